"""Fit the few physical parameters of engines and device families to published measurements, and score them honestly.

    python -m tools.fit_efficiency ../shared/measurements/measurements.csv.gz            fit every block, print
    python -m tools.fit_efficiency FILE --block llama.cpp --score                        and leave groups out
    python -m tools.fit_efficiency FILE --write                                      and put the values into the YAML

A block is a set of rows (engine presets, device families) with the parameters that they can tell. Each parameter is a
factor on what the profile says; the loss is the mean over (source, device, model) groups of |ln(predicted/measured)|,
cut at CUT, with a small cost for leaving the profile's value. The score refits without whole devices, models and
sources in turn and reports the error of the rows left out; no constant belongs to a row or to a (device, model) pair.
"""

import argparse
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from simulator.deployment import Deployment
from simulator.errors import InfercastError
from simulator.measurements import Measurement, Setup, read_measurements
from simulator.prediction import Outcome, outcome
from simulator.setups import Placed, place

ROOT = Path(__file__).parents[1]
CUT, PULL = 1.2, 0.01
STEPS = (0.4, 0.15, 0.05)
PER_GROUP, SIMULATED_PER_GROUP = 8, 4
EXCLUDED = {  # (source, device, model): why the fit does not see them; `infercast validate` scores them all the same
    ("nvidia-aiconfigurator-silicon", "H200 SXM", "Llama-3.1-8B"): "vLLM rows need more FLOP/s than fp8 kernels reach:"
    " repeated prompts met the prefix cache",
    ("nvidia-aiconfigurator-silicon", "B200 SXM", "Qwen3-32B"): "416 prompts of 15,000 tokens in 0.7 s",
    ("nvidia-aiconfigurator-silicon", "B200 SXM", "DeepSeek-R1"): "the same TPOT at 40 and at 224 in flight",
    ("nvidia-aiconfigurator-silicon", "B200 SXM", "DeepSeek-V3.1"): "448 prompts of 4,000 tokens in 0.4 s",
    ("nvidia-aiconfigurator-silicon", "GB200 NVL72", "DeepSeek-R1"): "TTFT of 40 s with 28 in flight",
    ("argonne-llm-inference-bench", "Intel Max 1550", "Llama-3-8B"): "two runs of one setup differ tenfold",
    ("argonne-llm-inference-bench", "Intel Max 1550", "Qwen2-7B"): "two runs of one setup differ tenfold",
}
Factors = dict[str, float]
TIMES = {"step_s", "sequence_s", "request_s"}
GEMM = {"compute": "compute_fraction", "memory": "memory_fraction", "launch": "launch_s"}


@dataclass(frozen=True)
class Block:
    """Rows by engine preset and device family ("" is any), and the parameters to fit on them.

    Parameters: `step_s`, `sequence_s`, `request_s` and the fields of `Kernels` belong to the engines; `gemm.compute`,
    `gemm.memory`, `attention`, `cache`, `link` to the families.
    """

    name: str
    engines: tuple[str, ...]
    families: tuple[str, ...]
    parameters: tuple[str, ...]

    def takes(self, deployment: Deployment) -> bool:
        """Tell whether a deployment belongs to the block."""
        engine = not self.engines or deployment.engine.id in self.engines
        return engine and (not self.families or deployment.hardware.family in self.families)


def blocks(path: Path) -> list[Block]:
    """Read the blocks from a YAML file."""
    import yaml  # noqa: PLC0415

    listed = yaml.safe_load(path.read_text())
    return [
        Block(name, *(tuple(each.get(key, ())) for key in ("engines", "families", "fit")))
        for name, each in listed.items()
    ]


def adjusted(deployment: Deployment, factors: Factors) -> Deployment:
    """Return a deployment whose rates and overheads are multiplied by factors."""
    engine, hardware = deployment.engine, deployment.hardware
    kernels, overheads = engine.kernels_on(hardware), engine.overheads
    own = {name: value for name, value in factors.items() if hasattr(kernels, name)}
    kernels = kernels.model_copy(update={name: getattr(kernels, name) * value for name, value in own.items()})
    host = {name: value for name, value in factors.items() if name in TIMES}
    overheads = overheads.model_copy(update={name: getattr(overheads, name) * value for name, value in host.items()})
    engine = engine.model_copy(
        update={"kernels": (kernels.model_copy(update={"families": ()}),), "overheads": overheads}
    )
    reached = hardware.achievable
    products = {GEMM[name[5:]]: value for name, value in factors.items() if name.startswith("gemm.")}
    if products:
        scaled = {
            key: each.model_copy(update={field: getattr(each, field) * value for field, value in products.items()})
            for key, each in reached.gemm.items()
        }
        hardware = hardware.model_copy(update={"achievable": reached.model_copy(update={"gemm": scaled})})
    return replace(deployment, engine=engine, hardware=hardware)


@dataclass
class Rows:
    """Measurements of a block, thinned to PER_GROUP a group, with each setup placed once."""

    rows: list[Measurement]
    placed: dict[str, Placed]

    def errors(self, factors: Factors) -> dict[str, float]:
        """Return ln(predicted / measured) by row id; rows that cannot be predicted are left out."""
        known: dict[Setup, Outcome | None] = {}
        found = {}
        for row in self.rows:
            if row.setup not in known:
                try:
                    base = self.placed[row.id]
                    known[row.setup] = outcome(row.setup, Placed(adjusted(base.deployment, factors), base.copies))
                except InfercastError:
                    known[row.setup] = None
            result = known[row.setup]
            if result is not None:
                value = result.value(row.metric, row.stat)
                if math.isfinite(value) and value > 0:
                    found[row.id] = math.log(value / row.value)
        return found

    def loss(self, factors: Factors) -> float:
        """Return the group-averaged loss with the cost of leaving the profile's values."""
        errors, groups = self.errors(factors), defaultdict(list)
        for row in self.rows:
            if row.id in errors:
                groups[(*row.group, row.metric)].append(min(abs(errors[row.id]), CUT))
        cost = PULL * sum(math.log(value) ** 2 for value in factors.values())
        return float(np.mean([np.mean(each) for each in groups.values()])) + cost


NEUTRAL = {
    "step_s": 1e-3,
    "sequence_s": 1e-5,
    "request_s": 1e-2,
    "experts": 0.65,
    "quantized_experts": 0.65,
}  # any other share: 1


def neutral(rows: Rows, parameters: Iterable[str]) -> Factors:
    """Return the factors that undo what an earlier fit wrote, so that a score starts from no row that it leaves out."""
    deployment = rows.placed[rows.rows[0].id].deployment
    engine, kernels = deployment.engine, deployment.engine.kernels_on(deployment.hardware)
    found = {}
    for name in parameters:
        now = getattr(engine.overheads if name in TIMES else kernels, name, 1.0)
        found[name] = NEUTRAL.get(name, 1.0) / now if now else 1.0
    return found


def fit(rows: Rows, parameters: Iterable[str], start: Factors | None = None) -> Factors:
    """Search factors one at a time with shrinking steps."""
    factors = start or dict.fromkeys(parameters, 1.0)
    best = rows.loss(factors)
    for step in STEPS:
        for name in factors:
            for sign in (1, -1):
                while True:
                    tried = {**factors, name: factors[name] * math.exp(sign * step)}
                    loss = rows.loss(tried)
                    if loss >= best - 1e-5 or not 0.02 < tried[name] < 50:
                        break
                    factors, best = tried, loss
    return factors


def thinned(rows: list[Measurement], placed: dict[str, Placed], block: Block) -> list[Measurement]:
    """Return the block's rows, evenly thinned by group and metric."""
    groups: dict[tuple[str, ...], list[Measurement]] = defaultdict(list)
    for row in rows:
        if (
            row.id not in placed
            or "p99" in row.stat
            or (row.setup.regime == "open_loop" and "MLPerf" in row.setup.load)
        ):
            continue  # tails, and loads set to the edge of saturation, tell little about rates
        if row.group not in EXCLUDED and block.takes(placed[row.id].deployment):
            groups[(*row.group, row.metric)].append(row)
    return [each[i] for each in groups.values() for i in _evenly(len(each), each[0].setup.regime)]


def _evenly(count: int, regime: str | None) -> Iterable[int]:
    most = PER_GROUP if regime in ("single", "fixed_batch") else SIMULATED_PER_GROUP
    return np.unique(np.linspace(0, count - 1, most).astype(int))


def score(every: Rows, block: Block, key: Callable[[Measurement], str]) -> list[float]:
    """Return the absolute error of each (group, metric) from a fit that has not seen its device, model or source."""
    found: list[float] = []
    rows, placed = every.rows, every.placed
    for left_out in sorted({key(row) for row in rows}):
        seen = [row for row in rows if key(row) != left_out]
        if not seen:
            continue
        factors, unseen = (
            fit(Rows(seen, placed), block.parameters, neutral(Rows(seen, placed), block.parameters)),
            Rows([row for row in rows if key(row) == left_out], placed),
        )
        groups = defaultdict(list)
        errors = unseen.errors(factors)
        for row in unseen.rows:
            if row.id in errors:
                groups[(*row.group, row.metric)].append(abs(math.expm1(errors[row.id])))
        found += [float(np.mean(each)) for each in groups.values()]
    return found


def written(block: Block, factors: Factors, families: set[str]) -> None:
    """Multiply the values in the YAML of the block's engines; a rule for the block's families is changed or added."""
    for name in block.engines:
        path = ROOT / "simulator" / "engines" / f"{name}.yaml"
        text = path.read_text()
        for part, factor in factors.items():
            if part in TIMES:
                text = _scale(text, rf"^  {part}: {{{{value: ([\d.e-]+) (us|ms|s)", factor)
        path.write_text(_rule(text, block, {k: v for k, v in factors.items() if k not in TIMES and "." not in k}))
    for family in families:
        for path in (ROOT / "hardware_profiles").glob("*.yaml"):
            text = path.read_text()
            if f"\nfamily: {family}\n" in text:
                for part, factor in factors.items():
                    if part.startswith("gemm."):
                        text = _scale(text, rf"^      {GEMM[part[5:]]}: {{{{value: ([\d.e-]+)()", factor)
                path.write_text(text)


def _scale(text: str, pattern: str, factor: float) -> str:
    def new(found: "re.Match[str]") -> str:
        return found.group(0).replace(found.group(1), f"{float(found.group(1)) * factor:.3g}", 1)

    return re.sub(pattern.replace("{{{{", "{").replace("{{", "{"), new, text, flags=re.MULTILINE)


def _rule(text: str, block: Block, factors: Factors) -> str:
    """Change or add the kernels rule of the block's families in an engine's text."""
    if not factors:
        return text
    import yaml  # noqa: PLC0415

    rules = yaml.safe_load(text).get("kernels") or []
    head = text[: text.index("\nkernels:")] if "\nkernels:" in text else text.rstrip("\n")
    wanted = list(block.families)
    rule = next((each for each in rules if each.get("families", []) == wanted), None)
    if rule is None:
        general = next((each for each in rules if not each.get("families")), {})
        rule = {**({"families": wanted} if wanted else {}), **{k: v for k, v in general.items() if k != "families"}}
        rules = [rule, *rules] if wanted else [*rules, rule]
    for name, factor in factors.items():
        before = rule.get(name, {}).get("value", NEUTRAL.get(name, 1.0))
        rule[name] = {"value": float(f"{before * factor:.3g}"), "source": "fit"}
    lines = ["\nkernels:"]
    for each in rules:
        parts = [f"families: [{', '.join(each['families'])}]"] if each.get("families") else []
        parts += [_figure(name, value) for name, value in each.items() if name != "families"]
        lines += [f"  {'- ' if index == 0 else '  '}{part}" for index, part in enumerate(parts)]
    return head + "\n".join(lines) + "\n"


def _figure(name: str, figure: dict[str, object]) -> str:
    why = f"source: {figure['source']}" if "source" in figure else f'guess: "{figure["guess"]}"'
    return f"{name}: {{value: {figure['value']}, {why}}}"


def say(line: str) -> None:
    """Print a line at once: a fit takes minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--block", default="", help="only blocks whose name starts so")
    parser.add_argument("--score", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows = [row for row in read_measurements(given.file) if row.quality in ("A", "B", "")]
    placed = {}
    for row in rows:
        try:
            placed[row.id] = place(row.setup)
        except InfercastError:
            continue
    for block in blocks(ROOT / "tools" / "fit_blocks.yaml"):
        if not block.name.startswith(given.block):
            continue
        chosen = thinned(rows, placed, block)
        if not chosen:
            say(f"{block.name}: no rows")
            continue
        every = Rows(chosen, placed)
        before, factors = every.loss({}), fit(every, block.parameters)
        listed = "  ".join(f"{name} x{value:.2f}" for name, value in factors.items())
        say(f"{block.name}: {len(chosen)} rows, loss {before:.3f} -> {every.loss(factors):.3f}: {listed}")
        if given.score:
            for what, key in (("device", 1), ("model", 2), ("source", 0)):
                left = score(every, block, lambda row, key=key: row.group[key])
                text = (
                    f"median {np.median(left):.1%}, p90 {np.quantile(left, 0.9):.1%}, n {len(left)}"
                    if left
                    else "one only"
                )
                say(f"   left out by {what}: {text}")
        if given.write:
            written(block, factors, set(block.families))


if __name__ == "__main__":
    main()

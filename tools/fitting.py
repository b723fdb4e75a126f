"""Fit the few physical parameters of engines and device families: blocks of rows, their response to each parameter.

The logarithm of a prediction is taken as a sum of one curve per parameter, measured at GRID around the present values:
a fit, and every fit with some rows left out, then costs no further prediction. The loss is the mean over (source,
device, model, metric) groups of |ln(predicted / measured)|, cut at CUT, and PULL for the squared distance, in
logarithms, of each parameter from its prior: the parent block's value, or NEUTRAL.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import yaml

from simulator.deployment import Deployment
from simulator.errors import InfercastError
from simulator.measurements import Measurement, Setup
from simulator.prediction import Outcome, outcome
from simulator.setups import Placed, place

ROOT = Path(__file__).parents[1]
CUT, PULL = 1.2, 0.2
GRID = (-0.5, 0.0, 0.5)  # of ln(value); a curve is straight between them, and beyond
STEPS = (0.3, 0.1, 0.03)
PER_GROUP, SIMULATED_PER_GROUP = (5, 2), (3, 1)  # rows of a group and metric; of a block whose children see them too
ROUNDS = 1  # of measuring the curves; run the fit again after --write for another
BOUNDS = (0.02, 50.0)  # times the prior
REPLAYS = "kept apart: nothing is fitted to the runs that tests/test_replays.py replays"
EXCLUDED = {  # (source, device, model): why the fit does not see them; `infercast validate` scores them all the same
    ("llmservingsim-vllm-bench", "RTX 4090", "Llama-3.1-8B"): REPLAYS,
    ("llmservingsim-vllm-bench", "RTX PRO 6000 Blackwell", "Llama-3.1-8B"): REPLAYS,
    ("nvidia-aiconfigurator-silicon", "H200 SXM", "Llama-3.1-8B"): "vLLM rows need more FLOP/s than fp8 kernels reach:"
    " repeated prompts met the prefix cache",
    ("nvidia-aiconfigurator-silicon", "B200 SXM", "Qwen3-32B"): "416 prompts of 15,000 tokens in 0.7 s",
    ("nvidia-aiconfigurator-silicon", "B200 SXM", "DeepSeek-R1"): "the same TPOT at 40 and at 224 in flight",
    ("nvidia-aiconfigurator-silicon", "B200 SXM", "DeepSeek-V3.1"): "448 prompts of 4,000 tokens in 0.4 s",
    ("nvidia-aiconfigurator-silicon", "GB200 NVL72", "DeepSeek-R1"): "TTFT of 40 s with 28 in flight",
    ("argonne-llm-inference-bench", "Intel Max 1550", "Llama-3-8B"): "two runs of one setup differ tenfold",
    ("argonne-llm-inference-bench", "Intel Max 1550", "Qwen2-7B"): "two runs of one setup differ tenfold",
}
TIMES = {"step_s", "sequence_s", "request_s"}
NEUTRAL = {  # where no parent says otherwise; any other share: 1
    **{"step_s": 1e-3, "sequence_s": 1e-5, "request_s": 1e-2, "experts": 0.65, "quantized_experts": 0.65}
}
Values = dict[str, float]
Keep = Callable[[Measurement], bool]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Block:
    """Rows by engine preset and device family (none is any), the parameters to fit on them, and whose values are prior.

    Parameters: `step_s`, `sequence_s`, `request_s` and the numbers of `Kernels`.
    """

    name: str
    engines: tuple[str, ...]
    families: tuple[str, ...]
    parameters: tuple[str, ...]
    parent: str = ""
    presets: tuple[str, ...] = ()  # that the values are written to

    def takes(self, deployment: Deployment) -> bool:
        """Tell whether a deployment belongs to the block."""
        engine = not self.engines or deployment.engine.id in self.engines
        return engine and (not self.families or deployment.hardware.family in self.families)


def blocks() -> dict[str, Block]:
    """Read the blocks; parents stand before their children."""
    listed = yaml.safe_load((ROOT / "tools" / "fit_blocks.yaml").read_text())
    keys = ("engines", "families", "fit")
    return {
        name: Block(
            name,
            *(tuple(each.get(key, ())) for key in keys),
            parent=each.get("parent", ""),
            presets=tuple(each.get("write", each["engines"])),
        )
        for name, each in listed.items()
    }


def block_of(every: Iterable[Block], deployment: Deployment) -> Block | None:
    """Return the narrowest block that takes a deployment."""
    found = [block for block in every if block.takes(deployment)]
    return max(found, key=lambda block: (bool(block.families), bool(block.parent)), default=None)


def adjusted(placed: Placed, values: Values) -> Placed:
    """Return a placed setup whose engine has other values of its parameters."""
    deployment = placed.deployment
    engine = deployment.engine
    kernels = engine.kernels_on(deployment.hardware)
    own = {name: value for name, value in values.items() if name not in TIMES}
    kernels = kernels.model_copy(update={**own, "families": ()})
    overheads = engine.overheads.model_copy(update={name: values[name] for name in TIMES & values.keys()})
    changed = engine.model_copy(update={"kernels": (kernels,), "overheads": overheads})
    return Placed(replace(deployment, engine=changed), placed.copies)


def shipped(placed: Placed, parameters: Iterable[str]) -> Values:
    """Return the values that the profiles hold now; a time of nothing starts from a thousandth of NEUTRAL."""
    engine = placed.deployment.engine
    kernels = engine.kernels_on(placed.deployment.hardware)
    found = {}
    for name in parameters:
        value = getattr(engine.overheads if name in TIMES else kernels, name)
        found[name] = float(value) if value else NEUTRAL.get(name, 1.0) * (1e-3 if name in TIMES else 1.0)
    return found


def predicted(rows: Sequence[Measurement], placed: dict[str, Placed], values: Values) -> Floats:
    """Return ln(predicted / measured) of each row with other values; NaN where it cannot be predicted."""
    known: dict[Setup, Outcome | None] = {}
    found = np.full(len(rows), np.nan)
    for index, row in enumerate(rows):
        if row.setup not in known:
            try:
                known[row.setup] = outcome(row.setup, adjusted(placed[row.id], values))
            except InfercastError:
                known[row.setup] = None
        result = known[row.setup]
        if result is not None:
            value = result.value(row.metric, row.stat)
            found[index] = math.log(value / row.value) if math.isfinite(value) and value > 0 else np.nan
    return found


@dataclass
class Fit:
    """A block's rows and their response to its parameters around `at`."""

    block: Block
    rows: list[Measurement]
    placed: dict[str, Placed]
    at: Values
    fixed: Values  # of its parent, where it fits none of its own
    base: Floats = field(init=False)
    curves: dict[str, Floats] = field(init=False)

    def __post_init__(self) -> None:
        self.measure()

    def measure(self) -> None:
        """Predict every row at `at` and at each point of GRID along each parameter."""
        self.base = predicted(self.rows, self.placed, {**self.fixed, **self.at})
        self.curves = {
            name: np.stack(
                [np.zeros(len(self.rows)) if step == 0.0 else self._moved(name, step) - self.base for step in GRID]
            )
            for name in self.block.parameters
        }

    def _moved(self, name: str, step: float) -> Floats:
        moved = {**self.fixed, **self.at, name: self.at[name] * math.exp(step)}
        return predicted(self.rows, self.placed, moved)

    def errors(self, values: Values) -> Floats:
        """Return ln(predicted / measured) by the curves."""
        total = self.base.copy()
        for name, curve in self.curves.items():
            total += _along(curve, math.log(values[name] / self.at[name]))
        return total

    def fitted(self, prior: Values, keep: Keep = bool) -> Values:
        """Return the values that suit the rows that are kept, each parameter in turn with shrinking steps."""
        chosen = np.array([keep(row) for row in self.rows]) & np.isfinite(self.base)
        if not chosen.any():
            return dict(prior)
        weights = _weights([row for row, each in zip(self.rows, chosen, strict=True) if each])
        base, curves = self.base[chosen], {name: curve[:, chosen] for name, curve in self.curves.items()}

        def loss(values: Values) -> float:
            moved = (_along(curve, math.log(values[name] / self.at[name])) for name, curve in curves.items())
            errors = np.minimum(np.abs(sum(moved, start=base)), CUT)
            distance = sum(_pull(name) * math.log(values[name] / prior[name]) ** 2 for name in values)
            return float(weights @ errors) + distance

        values = {name: self.at[name] for name in self.block.parameters}
        best = loss(values)
        for step in STEPS:
            moved = True
            while moved:
                values, better = _round(values, prior, best, step, loss)
                moved, best = better < best - 1e-4, better
        return values


def _pull(name: str) -> float:
    """Host times differ by orders of magnitude between engines, shares do not."""
    return PULL * (0.3 if name in TIMES else 1.0)


def _round(
    values: Values, prior: Values, best: float, step: float, loss: Callable[[Values], float]
) -> tuple[Values, float]:
    for name in values:
        for sign in (1, -1):
            while True:
                tried = {**values, name: values[name] * math.exp(sign * step)}
                cost = loss(tried)
                if cost >= best - 1e-5 or not BOUNDS[0] < tried[name] / prior[name] < BOUNDS[1]:
                    break
                values, best = tried, cost
    return values, best


def _along(curve: Floats, step: float) -> Floats:
    """Interpolate every row's curve at one step; beyond the ends it goes on as at the end."""
    right = int(np.clip(np.searchsorted(GRID, step), 1, len(GRID) - 1))
    share = (step - GRID[right - 1]) / (GRID[right] - GRID[right - 1])
    moved: Floats = curve[right - 1] + np.clip(share, -1.0, 2.0) * (curve[right] - curve[right - 1])
    return np.nan_to_num(moved)


def _weights(rows: Sequence[Measurement]) -> Floats:
    """Return 1 / size of each row's (source, device, model, metric) group."""
    sizes = Counter((*row.group, row.metric) for row in rows)
    return np.array([1 / sizes[(*row.group, row.metric)] for row in rows])


def thinned(
    rows: Iterable[Measurement], placed: dict[str, Placed], block: Block, *, is_parent: bool = False
) -> list[Measurement]:
    """Return the rows that a fit sees: means and medians, evenly thinned by group and metric."""
    groups: dict[tuple[str, ...], list[Measurement]] = defaultdict(list)
    for row in rows:
        seen = row.id in placed and not row.stat.startswith("p9") and row.group not in EXCLUDED
        if seen and block.takes(placed[row.id].deployment):
            groups[(*row.group, row.metric, row.setup.regime or "")].append(row)
    found = []
    for each in groups.values():
        is_batch = each[0].setup.regime in ("single", "fixed_batch")
        most = (PER_GROUP if is_batch else SIMULATED_PER_GROUP)[is_parent]
        found += [each[index] for index in np.unique(np.linspace(0, len(each) - 1, most).astype(int))]
    return found


def has_children(block: Block, every: dict[str, Block]) -> bool:
    """Whether narrower blocks of the same presets see a block's rows too."""
    return any(each.parent == block.name and set(each.engines) <= set(block.engines) for each in every.values())


def effective(block: Block, every: dict[str, Block], solved: dict[str, Values]) -> Values:
    """Return a block's values, completed with those of its parents."""
    own = solved.get(block.name, {})
    return {**effective(every[block.parent], every, solved), **own} if block.parent else own


def prior_of(block: Block, every: dict[str, Block], solved: dict[str, Values]) -> Values:
    """Return a block's prior: its parents' values where they have them, else NEUTRAL."""
    above = effective(every[block.parent], every, solved) if block.parent else {}
    return {name: above.get(name, NEUTRAL.get(name, 1.0)) for name in block.parameters}


@dataclass
class Fits:
    """Every block with its rows, curves and values."""

    blocks: dict[str, Block]
    fits: dict[str, Fit]
    solved: dict[str, Values]

    def without(self, keep: Keep) -> dict[str, Values]:
        """Return the values of all blocks from the rows that are kept; a block that loses none keeps its values."""
        found: dict[str, Values] = {}
        for name, fit in self.fits.items():
            above = self.blocks[name].parent
            touched = above and found.get(above) != self.solved.get(above)
            if touched or not all(keep(row) for row in fit.rows):
                found[name] = fit.fitted(prior_of(fit.block, self.blocks, found), keep)
            else:
                found[name] = self.solved[name]
        return found

    def narrowest(self, deployment: Deployment) -> Block | None:
        """Return the narrowest block with rows that takes a deployment."""
        return block_of((self.blocks[name] for name in self.fits), deployment)


def fit_all(rows: list[Measurement], placed: dict[str, Placed], say: Callable[[str], None], only: str = "") -> Fits:
    """Fit every block that has rows, parents first, measuring its curves ROUNDS times."""
    every = blocks()
    found = Fits(every, {}, {})
    for name, block in every.items():
        if not name.startswith(only):
            continue
        chosen = thinned(rows, placed, block, is_parent=has_children(block, every))
        if not chosen:
            continue
        prior = prior_of(block, every, found.solved)
        fixed = effective(every[block.parent], every, found.solved) if block.parent else {}
        fit = Fit(block, chosen, placed, shipped(placed[chosen[0].id], block.parameters), fixed)
        for _ in range(ROUNDS - 1):
            fit.at = fit.fitted(prior)
            fit.measure()
        found.solved[name], found.fits[name] = fit.fitted(prior), fit
        after = float(np.nanmedian(np.abs(fit.errors(found.solved[name]))))
        listed = "  ".join(f"{key} {value:.3g}" for key, value in found.solved[name].items())
        say(f"{name}: {len(chosen)} rows, median |ln| {after:.3f}: {listed}")
    return found


def place_all(rows: Sequence[Measurement]) -> dict[str, Placed]:
    """Return the setups of the rows that can be placed, by row id."""
    known: dict[Setup, Placed | None] = {}
    for row in rows:
        if row.setup not in known:
            try:
                known[row.setup] = place(row.setup)
            except InfercastError:
                known[row.setup] = None
    found = ((row.id, known[row.setup]) for row in rows)
    return {name: placed for name, placed in found if placed is not None}

"""Write docs/accuracy.md and its plots: how far predictions lie from published measurements, seen and left out.

infercast validate --light --format csv > scored.csv
python -m tools.fit_efficiency --left-out left_out.csv
python -m tools.write_accuracy scored.csv left_out.csv
"""

import csv
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from simulator.profile_files import read_yaml
from simulator.reports.interval_widths import is_rate
from simulator.validation.measurements import read_measurements
from simulator.validation.scatter import Dot, draw_dots
from simulator.validation.scores import GRADES, LIGHT_MARGIN
from tools.fit_intervals import LOOPS, SAME
from tools.fitting import EXCLUDED, REPLAYS, TABLES

ROOT = Path(__file__).parents[1]
KINDS = ("device and model", "device", "model", "source")
WORST = 14
DRAWN = ("ttft_ms", "tpot_ms", "e2e_latency_ms", "throughput_out_tok_s", "throughput_total_tok_s", "tg_tok_s")
WHY = {  # what was found behind groups that are far off
    **EXCLUDED,
    (
        "nvidia-aiconfigurator-silicon",
        "H200 SXM",
        "Llama-3.1-8B",
    ): "which prompts of 8,000 tokens are cached, and in which order they come",
    (
        "splitwise-sim",
        "A100 SXM 80GB",
        "Llama-2-70b",
    ): "texts end by themselves, read as at 600 tokens; alone with its engine, it leaves nothing to fit on",
    (
        "rocm-vllm-dev-docker",
        "AMD MI300X",
        "Llama-3.1-70B",
    ): "16 end-to-end rows are microseconds in the source's table",
    ("lhl-strix-halo-testing", "AMD Ryzen AI Max+ 395 (Strix Halo, Radeon 8060S)", "Qwen3-30B-A3B"): "kernels of four"
    " weeks of builds: from 93 % too slow to none",
}


class Row(NamedTuple):
    """One measurement with its error, (predicted - measured) / measured, NaN where nothing can be as fast as measured.

    `left_out` is "" for the shipped constants.
    """

    id: str
    left_out: str
    group: tuple[str, str, str]
    engine: str
    metric: str
    regime: str
    stat: str
    measured: float
    error: float
    light: float
    experts: bool = False

    @property
    def over_light(self) -> float:
        """Measured over the speed of light, as a speed; NaN where light is not known."""
        return self.measured / self.light if is_rate(self.metric) else self.light / self.measured


class Aim(NamedTuple):
    """A line of the table: which rows it is about, and the median error asked for of rows that no fit has seen."""

    name: str
    metrics: tuple[str, ...]
    regimes: tuple[str, ...]
    tail: bool
    aim: float


BATCH, OPEN = ("fixed_batch", "single"), ("open_loop",)
AIMS = (
    Aim("TPOT and ITL, fixed batch", ("tpot_ms", "itl_ms"), BATCH, False, 0.05),
    Aim("TPOT and ITL, closed loop", ("tpot_ms", "itl_ms"), ("closed_loop",), False, 0.10),
    Aim("throughput, fixed batch", ("throughput_out_tok_s", "throughput_total_tok_s"), BATCH, False, 0.07),
    Aim("throughput, offline", ("throughput_out_tok_s", "throughput_total_tok_s"), ("offline",), False, 0.09),
    Aim("throughput, closed loop", ("throughput_out_tok_s",), ("closed_loop",), False, 0.12),
    Aim("end-to-end latency", ("e2e_latency_ms",), (*BATCH, "closed_loop"), False, 0.12),
    Aim("TTFT, closed loop", ("ttft_ms",), ("closed_loop",), False, 0.25),
    Aim("prefill and TTFT of one request or batch", ("ttft_ms", "prefill_ms"), BATCH, False, 0.12),
    Aim("llama.cpp generation (tg)", ("tg_tok_s",), BATCH, False, 0.08),
    Aim("llama.cpp prompts (pp)", ("pp_tok_s",), BATCH, False, 0.16),
    Aim("open loop, TTFT and TPOT, mean", ("ttft_ms", "tpot_ms", "itl_ms"), OPEN, False, 0.15),
    Aim("open loop, TTFT and TPOT, p99", ("ttft_ms", "tpot_ms", "itl_ms"), OPEN, True, 0.40),
)


def read(scored: Path, left_out: Path) -> list[Row]:
    """Read what `infercast validate` and `tools.score` wrote; rows that beat light get no error."""
    with scored.open(newline="") as file:
        found = [
            _row(row, "", float(row["error"] or "nan")) for row in csv.DictReader(file) if row["quality"] in GRADES
        ]
    beyond = {row.id for row in found if row.over_light > 1 + LIGHT_MARGIN}
    apart = [each for each in found if EXCLUDED.get(each.group) == REPLAYS]  # the shipped constants have not seen them
    found += [each._replace(left_out=kind) for each in apart for kind in KINDS]
    with left_out.open(newline="") as file:
        rows = [_row(row, row["left_out"], math.expm1(float(row["error"]))) for row in csv.DictReader(file)]
    every = found + [row for row in rows if EXCLUDED.get(row.group) != REPLAYS]
    return [row._replace(error=math.nan) if row.id in beyond else row for row in every]


def _row(row: dict[str, str], left_out: str, error: float) -> Row:
    group = (row["source"], row["hardware"], row["model"])
    fields = (row["engine"], row["metric"], row["regime"], row["stat"])
    light, experts = float(row.get("light") or "nan"), "experts" in row.get("traits", "").split()
    return Row(row["id"], left_out, group, *fields, float(row["measured"]), error, light, experts)


def errors(rows: Iterable[Row]) -> list[float]:
    """Return the mean |error| of each group and metric."""
    groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in rows:
        if math.isfinite(row.error):
            groups[(*row.group, row.metric)].append(abs(row.error))
    return [float(np.mean(each)) for each in groups.values()]


def about(rows: Iterable[Row], aim: Aim) -> list[Row]:
    """Return the rows that a line of the table is about."""
    return [
        row
        for row in rows
        if row.metric in aim.metrics and row.regime in aim.regimes and row.stat.startswith("p9") == aim.tail
    ]


def percent(share: float) -> str:
    """Format a share."""
    return f"{share:.0%}".replace("%", " %")


def quantile(values: Sequence[float], share: float = 0.5) -> str:
    """Format a quantile of errors."""
    return percent(float(np.quantile(values, share))) if values else "-"


def headline(rows: list[Row]) -> Iterator[str]:
    """Yield the table of the aims."""
    yield "| metric | aim | shipped | " + " | ".join(f"without the {kind}" for kind in KINDS) + " | groups | p90 |"
    yield "|---|---|---|" + "---|" * len(KINDS) + "---|---|"
    for aim in AIMS:
        some = about(rows, aim)
        by_kind = [errors(row for row in some if row.left_out == kind) for kind in ("", *KINDS)]
        pair = by_kind[1]
        met = "**" if pair and np.median(pair) <= aim.aim else ""
        cells = [quantile(each) for each in by_kind]
        cells[1] = f"{met}{cells[1]}{met}"
        asked = percent(aim.aim)
        yield f"| {aim.name} | {asked} | {' | '.join(cells)} | {len(pair)} | {quantile(pair, 0.9)} |"


def of_experts(rows: list[Row]) -> str:
    """Say how far off mixtures of experts and dense models are, without the device and model."""
    kept = [row for row in rows if row.left_out == KINDS[0]]
    experts, dense = (errors(row for row in kept if row.experts == has) for has in (True, False))
    return f"{quantile(experts)} and {quantile(dense)}, {np.median(experts) / np.median(dense):.1f} times"


def parts(rows: list[Row], key: Callable[[Row], str], name: str) -> Iterator[str]:
    """Yield a table of errors by a key: seen, without the device and model, without the device."""
    yield f"| {name} | groups | shipped | without the device and model | without the device | p90 |"
    yield "|---|---|---|---|---|---|"
    names = sorted({key(row) for row in rows}, key=lambda each: (-len({r.group for r in rows if key(r) == each}), each))
    for each in names:
        some = [row for row in rows if key(row) == each]
        seen, pair, device = (errors(r for r in some if r.left_out == kind) for kind in ("", *KINDS[:2]))
        if len(pair) > 1:
            cells = f"{quantile(seen)} | {quantile(pair)} | {quantile(device)} | {quantile(pair, 0.9)}"
            yield f"| {each} | {len(pair)} | {cells} |"


def worst(rows: list[Row]) -> Iterator[str]:
    """Yield the groups that are furthest off when left out, with the reason where one is known."""
    yield "| group | metric | rows | error | bias | why |"
    yield "|---|---|---|---|---|---|"
    groups: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in rows:
        if row.left_out == KINDS[0] and row.regime != "open_loop" and math.isfinite(row.error):
            groups[(*row.group, f"{row.metric}, {row.regime}")].append(row.error)
    ranked = sorted(groups.items(), key=lambda item: -float(np.mean(np.abs(item[1]))))
    for (source, device, model, metric), each in ranked[:WORST]:
        why = WHY.get((source, device, model), "")
        off, bias = (percent(float(value)) for value in (np.mean(np.abs(each)), np.mean(each)))
        yield f"| {source}, {device}, {model} | {metric} | {len(each)} | {off} | {bias} | {why} |"


def faster_than_light(rows: list[Row]) -> dict[tuple[str, ...], list[float]]:
    """Return measured over light, as a speed, of rows that are more than a margin faster, by group."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in rows:
        if row.over_light > 1 + LIGHT_MARGIN:
            found[(*row.group, row.engine, row.metric)].append(row.over_light)
    return found


def light(rows: list[Row]) -> Iterator[str]:
    """Yield the table of rows that beat the speed of light."""
    yield "| group | engine | metric | rows | faster by |"
    yield "|---|---|---|---|---|"
    for (source, device, model, engine, metric), speeds in sorted(faster_than_light(rows).items()):
        low, high = (percent(each - 1) for each in (min(speeds), max(speeds)))
        yield f"| {source}, {device}, {model} | {engine} | {metric} | {len(speeds)} | {low} to {high} |"


def draw(rows: list[Row]) -> Figure:
    """Draw predicted over measured of what was left out by device and model, one panel per metric."""
    left = [row for row in rows if row.left_out == KINDS[0] and row.metric in DRAWN and math.isfinite(row.error)]
    return draw_dots(Dot(row.metric, row.regime, row.measured, row.measured * (1 + row.error)) for row in left)


def explicable(rows: list[Row]) -> str:
    """Say what the closed loops come to without the groups that no physics explains."""
    kept = [row for row in rows if row.left_out == KINDS[0] and row.group not in EXCLUDED]
    return ", ".join(f"{aim.name} {quantile(errors(about(kept, aim)))}" for aim in AIMS if "closed_loop" in aim.regimes)


def intervals() -> Iterator[str]:
    """Yield the table of how often intervals hold, and how wide they are."""
    yield "| 80 % intervals | rows | groups | inside, rows | inside, groups | width | score |"
    yield "|---|---|---|---|---|---|---|"
    for name, scores in read_yaml(ROOT / "simulator" / "reports" / "residuals.yaml")["scores"].items():
        number, groups, *shares, width, score = map(float, scores)
        inside = " | ".join(percent(each) for each in shares)
        yield f"| {name} | {number:,.0f} | {groups:,.0f} | {inside} | {width:.2f} | {score:.2f} |"


def page(rows: list[Row]) -> str:
    """Return the text of docs/accuracy.md."""
    later = {row.id for row in read_measurements(TABLES[1])}
    tables = {
        "headline": headline(rows),
        "round_2": headline([row for row in rows if row.id in later]),
        "engines": parts(rows, lambda row: row.engine.split(" (")[0].split(",")[0], "engine"),
        "devices": parts(rows, lambda row: row.group[1], "device"),
        "worst": worst(rows),
        "light": light(rows),
        "intervals": intervals(),
    }
    text = (ROOT / "tools" / "accuracy.txt").read_text()
    filled = {name: "\n".join(lines) for name, lines in tables.items()}
    number = sum(row.left_out == "" and math.isfinite(row.error) for row in rows)
    return text.format(
        **filled, rows=f"{number:,}", same=SAME, loops=LOOPS, explicable=explicable(rows), experts=of_experts(rows)
    )


def main() -> None:
    """Write the page and the plot."""
    rows = read(Path(sys.argv[1]), Path(sys.argv[2]))
    (ROOT / "docs" / "accuracy.md").write_text(page(rows))
    (ROOT / "docs" / "images").mkdir(exist_ok=True)
    draw(rows).savefig(ROOT / "docs" / "images" / "accuracy.png", dpi=80)


if __name__ == "__main__":
    main()

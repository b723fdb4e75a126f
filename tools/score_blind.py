"""Print the tables of docs/blind_round_1.md from the kept predictions and the file of measurements that they are of.

python -m tools.score_blind docs/blind_round_1.csv.gz MEASUREMENTS.csv.gz
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from simulator.engines.engine import engine_of
from simulator.models.model import checkpoint
from simulator.validation.measurements import read_measurements
from simulator.validation.scores import GRADES
from tools.write_accuracy import AIMS, Aim, percent

NEW_SOURCES = {
    *("cloudrift-deplodock", "sgl-cookbook", "dennislee22-vllm-a100", "qwen3-speed-benchmark"),
    *("databasemart-a40", "databasemart-rtx4090", "mushfiqrahman-rtx4090"),
}
TIMES, OPEN = ("ttft_ms", "tpot_ms", "itl_ms"), ("open_loop",)
RATES, CLOSED = ("throughput_out_tok_s", "throughput_total_tok_s"), ("fixed_batch", "single", "closed_loop", "offline")
NO_AIM = (  # of docs/accuracy.md is about these
    Aim("TTFT, TPOT and ITL, all at once", TIMES, ("offline",), False, 0.0),
    Aim("closed loop and all at once, p90 to p99", (*TIMES, "e2e_latency_ms"), CLOSED, True, 0.0),
    Aim("throughput and end-to-end, open loop", (*RATES, "e2e_latency_ms"), OPEN, False, 0.0),
    Aim("requests/s; tokens/s of one user", ("req_s", "decode_tok_s_per_user"), CLOSED, False, 0.0),
)
GROUP = ["source", "hardware", "model", "metric"]
SCORES = "rows | groups | median | p90 | bias | inside, rows | inside, groups | median, plain |"
SPLITS = "sources of the first file | new sources | dense | mixture of experts |"
FEW, REASONS = 65, 15  # rows of an engine that is one of the others; lines


def read(kept: Path, measured: Path) -> pd.DataFrame:
    """Return the predictions of measurements graded A or B, with their setups; KeyError for another file's."""
    graded = [row for row in read_measurements(measured) if row.quality in GRADES]
    rows = pd.read_csv(kept, index_col="id").loc[[row.id for row in graded]]
    rows[["source", "hardware", "model"]] = [row.group for row in graded]
    rows["regime"] = [row.setup.regime for row in graded]
    rows["engine"] = [row.setup.engine for row in graded]
    for name, column in (("error", "predicted"), ("plain_error", "plain")):
        rows[name] = rows[column] / rows["measured"] - 1
    rows["inside"] = rows["measured"].between(rows["low"], rows["high"])
    rows["is_new"] = rows["source"].isin(NEW_SOURCES)
    return rows


def profiled(rows: pd.DataFrame) -> pd.DataFrame:
    """Return predicted rows with the engine that predicts them, and whether the model's profile has routed experts."""
    engines = {each: engine_of(each or "vllm", "").engine for each in rows["engine"].unique()}
    experts = {each: any(op.experts for op in checkpoint(each)[0].ops()) for each in rows["model"].unique()}
    return rows.assign(engine=rows["engine"].map(engines), is_routed=rows["model"].map(experts))


def about(rows: pd.DataFrame, aim: Aim) -> pd.DataFrame:
    """Return the rows that a line of a table is about."""
    is_tail = rows["stat"].str.startswith("p9")
    return rows[rows["metric"].isin(aim.metrics) & rows["regime"].isin(aim.regimes) & (is_tail == aim.tail)]


def scores(rows: pd.DataFrame) -> str:
    """Return the cells of SCORES: errors are means of each group, then over groups."""
    by_group = rows.assign(off=rows["error"].abs(), plain=rows["plain_error"].abs()).groupby(GROUP)
    means = by_group[["off", "error", "plain", "inside"]].mean()
    middle, off = means.median(), means["off"]
    errors = (middle["off"], off.quantile(0.9), middle["error"])
    shares = (*errors, rows["inside"].mean(), means["inside"].mean(), middle["plain"])
    return f"{len(rows):,} | {len(off)} | {' | '.join(percent(float(each)) for each in shares)} |"


def short(rows: pd.DataFrame) -> str:
    """Return the median error of the groups, their number, and the share of rows inside intervals."""
    off = rows["error"].abs().groupby([rows[name] for name in GROUP]).mean()
    return f"{percent(off.median())} ({len(off)}; {percent(rows['inside'].mean())})" if len(off) else "-"


def splits(rows: pd.DataFrame) -> str:
    """Return the cells of SPLITS."""
    sides = (rows[rows[name] == side] for name in ("is_new", "is_routed") for side in (False, True))
    return " | ".join(short(each) for each in sides) + " |"


def table(head: str, columns: str, cells: dict[str, str]) -> Iterator[str]:
    """Yield the lines of a table after an empty one."""
    yield f"\n| {head} | {columns}\n|---|" + "---|" * columns.count("|")
    yield from (f"| {name} | {each}" for name, each in cells.items())


def tables(rows: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of every table."""
    predicted = rows[rows["predicted"].notna()]
    kept = profiled(predicted[predicted["beats_light"].isna()])
    beating = len(predicted) - len(kept)
    yield f"{len(rows):,} rows of grades A and B, {len(predicted):,} predicted, {beating} of these beat light"
    lines = {aim.name: about(kept, aim) for aim in (*AIMS, *NO_AIM)} | {"every row": kept}
    names = kept["engine"].where(kept.groupby("engine")["engine"].transform("size") >= FEW, "others")
    engines = {name: kept[names == name] for name in names.value_counts().index}
    yield from table("metric", SCORES, {name: scores(some) for name, some in lines.items()})
    yield from table("metric", SPLITS, {name: splits(some) for name, some in lines.items()})
    crossed = " | ".join(short(some) for _, some in kept.groupby(["is_new", "is_routed"]))
    yield f"| every row, first file dense / experts, new dense / experts | {crossed} |"
    both = {name: f"{scores(some)} {splits(some)}" for name, some in engines.items()}
    yield from table("engine", f"{SCORES} {SPLITS}", both)
    yield "\n| rows | why they are not predicted |\n|---|---|"
    reasons = rows["reason"].value_counts().head(REASONS)
    yield from (f"| {number} | {why} |" for why, number in reasons.items())


if __name__ == "__main__":
    sys.stdout.write("\n".join(tables(read(Path(sys.argv[1]), Path(sys.argv[2])))) + "\n")

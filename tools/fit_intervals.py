"""Make simulator/reports/residuals.yaml, the widths behind the error bars; report how often they hold, and how wide.

    python -m tools.fit_efficiency --left-out left_out.csv
    python -m tools.fit_intervals left_out.csv

The residuals are of fits that had not seen the row's source, as a user's own run is of a new source, too, and, of rows
that these do not have, those of blind round 1 as it was scored (docs/blind_round_1.csv.gz). For the score the table is
made again without each source, so that neither the constants nor the widths have seen it. A narrower interval that
holds as much is better, so the score is the interval score of Winkler (Gneiting and Raftery, JASA 2007, section 6.2),
in ln(measured / predicted): the width, and 2 / (1 - level) times how far outside a measurement lies.

Latencies of open loops are no part of the table: they depend on how near saturation each was measured. Their intervals
come from simulations, as everywhere, with that table. Runs under published limits (`limited`) are all near, and are.
"""

import csv
import gzip
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simulator.reports.interval_widths import LEVELS, Side, WidthKey, Widths, width_key
from simulator.reports.intervals import STEPS
from simulator.validation.measurements import Measurement, Setup, read_published
from simulator.validation.prediction import Answered, ask
from simulator.validation.scores import GRADES
from tools.fit_widths import Group, Residual, Residuals
from tools.fitting import EXCLUDED

ROOT = Path(__file__).parents[1]
BLIND = ROOT / "docs" / "blind_round_1.csv.gz"
LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_latency_ms")
SAME, LOOPS = "one width for all", "open loops simulated"
PARTS: dict[str, Callable[[Residual], str]] = {
    "regime": lambda each: each.key.regime,
    "model": lambda each: "experts" if "experts" in each.key.traits else "dense",
    "evidence": lambda each: next((name for name in ("guess", "family") if name in each.key.traits), "fitted"),
    "metric": lambda each: each.key.names[0],
}


class Held(NamedTuple):
    """A residual and the ends of its interval, in ln(measured / predicted), from a table without its source."""

    residual: Residual
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Whether the measurement is inside."""
        return self.low <= self.residual.value <= self.high

    def score(self, level: float) -> float:
        """Return the interval score; less is better.

        >>> key = WidthKey("tpot_ms", "single")
        >>> ends = -0.1, 0.2
        >>> [round(Held(Residual(key, ("", "", ""), by), *ends).score(0.8), 3) for by in (0.0, 0.25)]
        [0.3, 0.8]
        """
        value = self.residual.value
        outside = max(0.0, self.low - value, value - self.high)
        return self.high - self.low + 2 / (1 - level) * outside


class Summary(NamedTuple):
    """How many rows of how many groups; shares inside, of rows and as the mean of groups; mean width and score."""

    rows: int
    groups: int
    inside: float
    inside_groups: float
    width: float
    score: float

    @classmethod
    def of(cls, found: Sequence[Held], level: float = 0.8) -> "Summary":
        """Return the summary of some rows; widths and scores in ln(measured / predicted)."""
        groups: dict[Group, list[bool]] = defaultdict(list)
        for each in found:
            groups[each.residual.group].append(each.holds)
        means = (
            np.mean([each.holds for each in found]),
            np.mean([np.mean(each) for each in groups.values()]),
            np.mean([each.high - each.low for each in found]),
            np.mean([each.score(level) for each in found]),
        )
        return cls(len(found), len(groups), *(round(float(each), 3) for each in means))


def residuals(path: Path) -> list[Residual]:
    """Read the errors of rows whose source was left out.

    Those that no physics explains (EXCLUDED) and those of round 2 that beat light tell nothing.
    """
    impossible = {each["id"] for each in _blind_rows() if each["beats_light"]}
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["left_out"] == "source" and row["id"] not in impossible]
    found = [
        Residual(
            WidthKey(row["metric"], row["limited"] or row["regime"], tuple(row["traits"].split())),
            (row["source"], row["hardware"], row["model"]),
            -float(row["error"]),
            row["id"],
        )
        for row in rows
    ]
    return [each for each in found if each.group not in EXCLUDED]


def blind_residuals(known: Collection[str] = ()) -> Iterator[Residual]:
    """Yield the errors of blind round 1 as it was scored, of rows graded A and B that do not beat light.

    Leaves out rows whose ids are known: a fit without their source has predicted them, too.
    """
    rows = {row.id: row for row in read_published()}
    for row, each in ((rows[each["id"]], each) for each in _blind_rows() if each["predicted"]):
        if row.quality in GRADES and row.id not in known and not each["beats_light"]:
            error = math.log(float(each["predicted"]) / float(each["measured"]))
            yield Residual(_width_key(row), row.group, -error, row.id)


@cache
def _blind_rows() -> list[dict[str, str]]:
    with gzip.open(BLIND, "rt", newline="") as file:
        return list(csv.DictReader(file))


def _width_key(row: Measurement) -> WidthKey:
    asked = _asked(row.setup)
    regime = "limited" if asked.placed.recipe.latency_limits_s else row.setup.regime or ""
    return width_key(asked.deployment, f"{row.stat} {row.metric}", regime)


def in_table(found: Iterable[Residual]) -> list[Residual]:
    """Return the residuals that the table is made of: all but those of open loops."""
    return [each for each in found if each.key.regime != "open_loop"]


def held(found: Residuals, level: float = 0.8) -> list[Held]:
    """Return the interval of each row from a table without its source."""
    ends = ((each, found.tables[each.group[0]].ends(each.key, level)) for each in found.rows)
    return [Held(each, float(low), float(high)) for each, (low, high) in ends]


def summaries(found: Sequence[Held]) -> Iterator[tuple[str, Summary]]:
    """Yield the summary of all rows, of each part, and of each source."""
    yield "all", Summary.of(found)
    for part in (*PARTS.values(), _source):
        names = Counter(part(each.residual) for each in found)
        yield from ((name, Summary.of([each for each in found if part(each.residual) == name])) for name in names)


def _source(each: Residual) -> str:
    return each.group[0]


def alike(found: Residuals) -> Summary:
    """Return the summary of intervals with one width on each side for all, to compare."""
    bare = [each._replace(key=WidthKey("req_s" if each.key.is_rate else "e2e", "")) for each in found.rows]
    return Summary.of(held(Residuals(bare)))


def open_loops(found: Iterable[Residual], rows: Iterable[Measurement], known: Residuals) -> list[Held]:
    """Return the simulated intervals of latencies of open loops, with tables without their sources."""
    by_id, made = {row.id: row for row in rows}, []
    for each in found:
        if each.key.regime != "open_loop" or each.key.metric not in LATENCIES or each.id not in by_id:
            continue
        table = known.tables.get(each.group[0], known.tables[""])
        low, high = (float(end) for end in table.ends(each.key, 0.8))
        ratios = _bent(by_id[each.id], table, each.key.traits)
        made.append(Held(each, min(low, *ratios), max(high, *ratios)))
    return made


def _bent(row: Measurement, table: Widths, traits: tuple[str, ...]) -> list[float]:
    """Return ln of the factors on a prediction that the shortest and the longest steps make."""
    usual = tuple(name for name in traits if name != "tail")
    ends = (float(end) for end in table.ends(WidthKey(*STEPS[0], usual), 0.8))
    answers = [_answer(row.setup, math.exp(-end)) for end in (0.0, *ends)]
    value, *others = (each.value(row.metric, row.stat) for each in answers)
    return [math.log(each / value) for each in others]


_asked = cache(ask)


@cache
def _answer(setup: Setup, factor: float) -> Answered:
    asked = _asked(setup)
    return asked.on(replace(asked.deployment, step_factor=factor)).answer()


def as_yaml(widths: Widths, scored: dict[str, Summary], found: Residuals) -> str:
    """Return the table as text, with its source and its scores."""
    sources = len(set(map(str, found.sources)))
    kinds = {part(each) for part in PARTS.values() for each in found.rows}
    kept = {name: each for name, each in scored.items() if name in {"all", SAME, LOOPS, *kinds}}
    lines = [
        "# Widths of held-out intervals, in ln(measured / predicted): what each factor means says interval_widths.py.",
        f"source: tools/fit_intervals.py, {len(found.rows)} rows of {sources} sources, each left out, {_today()}",
        f"# of 80 % intervals from tables without the row's source: {', '.join(Summary._fields)}",
        "scores:",
        *(f"  {name}: [{', '.join(map(str, each))}]" for name, each in kept.items()),
        f"levels: [{', '.join(map(str, LEVELS))}]",
        *_side("slower", widths.slower),
        *_side("faster", widths.faster),
    ]
    return "\n".join(lines) + "\n"


def _side(name: str, side: Side) -> Iterator[str]:
    yield f"{name}:"
    yield f"  width: {side.width}"
    for key in ("metric", "regime", "traits"):
        factors = ", ".join(f"{factor}: {value}" for factor, value in getattr(side, key).items())
        yield f"  {key}: {{{factors}}}"
    yield f"  shape: [{', '.join(map(str, side.shape))}]"


def main() -> None:
    """Write the table and print how often it holds."""
    left_out = residuals(Path(sys.argv[1]))
    every = [*left_out, *blind_residuals({each.id for each in left_out})]
    found = Residuals(in_table(every))
    scored = dict(summaries(held(found)))
    loops = open_loops(every, read_published(), found)
    scored |= {LOOPS: Summary.of(loops)} if loops else {}
    scored[SAME] = alike(found)
    sys.stdout.write(f"{'80 % intervals':36s}{'rows':>6s}{'groups':>8s}   inside, groups   width  score\n")
    for name, each in scored.items():
        shares = f"{each.inside:9.0%}{each.inside_groups:8.0%}{each.width:9.2f}{each.score:7.2f}"
        sys.stdout.write(f"{name:36s}{each.rows:6d}{each.groups:8d}{shares}\n")
    (ROOT / "simulator" / "reports" / "residuals.yaml").write_text(as_yaml(found.tables[""], scored, found))


def _today() -> str:
    return datetime.now(tz=UTC).date().isoformat()


if __name__ == "__main__":
    main()

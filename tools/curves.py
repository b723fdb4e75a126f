"""How predictions of published rows respond to the parameters of an engine: one curve per row and parameter.

The logarithm of a prediction is taken as a sum of one curve per parameter, measured at GRID around some values: a fit,
and every fit with some rows left out, then costs no further prediction.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import yaml

from simulator.arrays import Floats
from simulator.deployment.deployment import Deployment
from simulator.engines.overheads import Overheads
from simulator.errors import InfercastError
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.prediction import Answered, Asked, ask

ROOT = Path(__file__).parents[1]
GRID = (-0.35, 0.0, 0.35)  # of ln(value); a curve is straight between them, and goes on as at its ends
REACH = 1.0  # of ln(value): where a curve is believed
BATCHES, RUNS = 16, 8  # setups of a kind that are predicted at most: batches by the roofline, simulated runs
WORKERS = 2
TIMES = frozenset(Overheads.model_fields)
NEUTRAL = {  # where no parent says otherwise; any other share: 1
    **{"step_s": 1e-3, "sequence_s": 1e-5, "request_s": 1e-2},
    **{"per_head": 1.0, "per_head_crowded": 0.3, "expert_tile": 32.0, "layer_launches": 60.0, "prompt_launch_s": 4e-5},
    "vector": 0.1,
    "experts_launch_s": 3e-4,
    "cached_token_s": 1e-8,
    "ranks_s": 1e-2,
    "stream_s": 5e-5,
    "prompt_token_s": 4e-6,
}
Values = dict[str, float]


@dataclass(frozen=True)
class Block:
    """Rows by engine preset and device family (none is any), the parameters to fit on them, and whose values are prior.

    Parameters: the fields of `Overheads` and of `FittedMultipliers`.
    """

    name: str
    engines: tuple[str, ...]
    families: tuple[str, ...]
    parameters: tuple[str, ...]
    parent: str = ""
    presets: tuple[str, ...] = ()  # that the values are written to
    prior: Mapping[str, float] = field(default_factory=dict)  # where the parent's kernel is another one, or none is
    fitted_on: tuple[str, ...] = ()  # families whose rows the fit sees, of those that the block takes; none is all
    first_table: bool = False  # whether the fit sees rows of the first table alone
    sources: Mapping[str, str] = field(default_factory=dict)  # of held values: keys in the presets
    lacks: tuple[str, ...] = ()  # what the parents have values of, and the engine has no such time or kernel

    @property
    def held(self) -> Values:
        """Values that are not fitted, though they differ from the parent's."""
        return {name: value for name, value in self.prior.items() if name not in self.parameters}

    def takes(self, deployment: Deployment) -> bool:
        """Tell whether a deployment belongs to the block."""
        engine = not self.engines or deployment.engine.id in self.engines
        return engine and (not self.families or deployment.hardware.family in self.families)


def blocks() -> dict[str, Block]:
    """Read the blocks; parents stand before their children."""
    listed = yaml.safe_load((ROOT / "tools" / "fit_blocks.yaml").read_text())
    return {
        name: Block(
            name,
            engines=tuple(each["engines"]),
            families=tuple(each.get("families", ())),
            parameters=tuple(each["fit"]),
            parent=each.get("parent", ""),
            presets=tuple(each.get("write", each["engines"])),
            prior=each.get("prior", {}),
            fitted_on=tuple(each.get("fitted_on", ())),
            first_table=each.get("first_table", False),
            sources=each.get("sources", {}),
            lacks=tuple(each.get("lacks", ())),
        )
        for name, each in listed.items()
    }


def block_of(every: Iterable[Block], deployment: Deployment) -> Block | None:
    """Return the narrowest block that takes a deployment."""
    found = [block for block in every if block.takes(deployment)]
    return max(found, key=_narrowness, default=None)


def _narrowness(block: Block) -> tuple[bool, bool, int, int]:
    return bool(block.families), bool(block.parent), -len(block.families), -len(block.engines)


def adjusted(asked: Asked, values: Values) -> Asked:
    """Return a measured setup whose engine has other values of its parameters."""
    deployment = asked.deployment
    engine = deployment.engine
    kernels = deployment.kernels.of_engine
    own = {name: value for name, value in values.items() if name not in TIMES}
    kernels = kernels.with_fitted(**own).model_copy(update={"families": ()})
    overheads = engine.overheads.model_copy(update={name: values[name] for name in TIMES & values.keys()})
    changed = engine.model_copy(update={"kernels": (kernels,), "overheads": overheads})
    return asked.on(replace(deployment, engine=changed))


def ask_all(rows: Sequence[Measurement]) -> dict[str, Asked]:
    """Return the questions of the rows that can be asked, by row id."""
    known: dict[Setup, Asked | None] = {}
    for row in rows:
        if row.setup not in known:
            try:
                known[row.setup] = ask(row.setup)
            except InfercastError:
                known[row.setup] = None
    found = ((row.id, known[row.setup]) for row in rows)
    return {name: asked for name, asked in found if asked is not None}


def predicted(rows: Sequence[Measurement], asked: Mapping[str, Asked], values: Values) -> Floats:
    """Return ln(predicted / measured) of each row with other values; NaN where it cannot be predicted."""
    known: dict[Setup, Answered | None] = {}
    found = np.full(len(rows), np.nan)
    for index, row in enumerate(rows):
        if row.setup not in known:
            try:
                known[row.setup] = adjusted(asked[row.id], values).answer()
            except InfercastError:
                known[row.setup] = None
        result = known[row.setup]
        if result is not None:
            found[index] = _log_ratio(result, row)
    return found


def _log_ratio(answer: Answered, row: Measurement) -> float:
    try:
        value = answer.value(row.metric, row.stat)
    except InfercastError:
        return math.nan
    return math.log(value / row.value) if math.isfinite(value) and value > 0 else math.nan


@dataclass(frozen=True)
class Curves:
    """Rows, ln(predicted / measured) of each at the values `at`, and its response to each of them."""

    rows: list[Measurement]
    asked: dict[str, Asked]
    at: Values
    base: Floats
    moved: dict[str, Floats]  # by parameter: what each point of GRID (first axis) adds to each row

    def hold_at(self, values: Values) -> bool:
        """Tell whether values are where the curves were measured, within GRID."""
        return all(abs(math.log(values[name] / at)) <= GRID[-1] for name, at in self.at.items())

    def of(self, numbers: Sequence[int]) -> "Curves":
        """Return the curves of some rows alone."""
        moved = {name: each[:, numbers] for name, each in self.moved.items()}
        return Curves([self.rows[each] for each in numbers], self.asked, self.at, self.base[numbers], moved)

    def errors(self, values: Values) -> Floats:
        """Return ln(predicted / measured) of every row with other values; those not named stay as they are."""
        return sum((self.along(name, value)[0] for name, value in values.items()), start=self.base)

    def along(self, name: str, value: float) -> tuple[Floats, Floats]:
        """Return what a parameter's value adds to every row, and the slope of that in ln(value)."""
        step = math.log(value / self.at[name])
        right = int(np.clip(np.searchsorted(GRID, step), 1, len(GRID) - 1))
        left, width = GRID[right - 1], GRID[right] - GRID[right - 1]
        low, high = self.moved[name][right - 1 : right + 1]
        return low + (step - left) / width * (high - low), (high - low) / width


@dataclass(frozen=True)
class Job:
    """The rows of a block that can be asked, and the values around which their curves are measured."""

    rows: list[Measurement]
    asked: dict[str, Asked]
    at: Values

    def points(self) -> list[tuple[str, float]]:
        """List what is to be predicted: all as it is, then each parameter at each point of GRID."""
        return [("", 0.0), *((name, step) for name in self.at for step in GRID if step)]

    def measured(self) -> Curves:
        """Return the curves, measured one after the other."""
        return self.curves({point: self.moved(*point) for point in self.points()})

    def moved(self, name: str, step: float) -> Floats:
        """Return ln(predicted / measured) of each row where one parameter is exp(step) times its value at `at`."""
        return predicted(self.rows, self.asked, {**self.at, name: self.at[name] * math.exp(step)} if name else self.at)

    def curves(self, found: Mapping[tuple[str, float], Floats]) -> Curves:
        """Return the curves from all that `moved` gave; leaves out what cannot be predicted."""
        base = found["", 0.0]
        can = np.flatnonzero(np.isfinite(base))
        changes = {key: np.nan_to_num((each - base)[can]) for key, each in found.items()} | {
            (name, 0.0): np.zeros(len(can)) for name in self.at
        }
        moved = {name: np.stack([changes[name, step] for step in GRID]) for name in self.at}
        return Curves([self.rows[index] for index in can], self.asked, self.at, base[can], moved)


_JOBS: dict[str, Job] = {}  # set before processes are forked, which then share it


def _moved(task: tuple[str, str, float]) -> Floats:
    block, name, step = task
    return _JOBS[block].moved(name, step)


def thinned(rows: Sequence[Measurement]) -> list[Measurement]:
    """Return all rows of a few setups of each kind, which span its range; those of a kind share group and metrics."""
    setups: dict[Setup, list[Measurement]] = defaultdict(list)
    for row in rows:
        setups[row.setup].append(row)
    kinds: dict[tuple[object, ...], list[list[Measurement]]] = defaultdict(list)
    for setup, its in setups.items():
        kinds[(its[0].group, setup.regime, *sorted({row.metric for row in its}))].append(its)
    found = []
    for some in kinds.values():
        ordered = sorted(some, key=lambda its: its[0].value)
        most = BATCHES if ordered[0][0].setup.regime in ("single", "fixed_batch") else RUNS
        chosen = np.unique(np.linspace(0, len(ordered) - 1, most).round().astype(int))
        found += [row for number in chosen for row in ordered[number]]
    return found


def rows_of(block: Block, rows: Iterable[Measurement], asked: Mapping[str, Asked]) -> list[Measurement]:
    """Return the rows that a block takes, of a few setups of each kind."""
    return thinned([row for row in rows if row.id in asked and block.takes(asked[row.id].deployment)])


def measure_all(jobs: Mapping[str, Job], say: Callable[[str], None]) -> dict[str, Curves]:
    """Return the curves of some blocks, by their names."""
    _JOBS.clear()
    _JOBS.update(jobs)
    tasks = [(block, *point) for block, job in jobs.items() for point in job.points()]
    tasks.sort(key=lambda task: -len(jobs[task[0]].rows))  # the longest first
    found: dict[str, dict[tuple[str, float], Floats]] = defaultdict(dict)
    with ProcessPoolExecutor(WORKERS, get_context("fork")) as pool:
        for (block, name, step), moved in zip(tasks, pool.map(_moved, tasks), strict=True):
            found[block][name, step] = moved
            if len(found[block]) == len(jobs[block].points()):
                say(f"{block}: curves of {len(jobs[block].rows)} rows")
    return {block: job.curves(found[block]) for block, job in jobs.items()}

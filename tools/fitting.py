"""Fit the few physical parameters of engines and device families to published measurements, parents first.

The loss is the mean over (source, device, model, metric) groups of |ln(predicted / measured)|, rounded at ROUNDED and
cut at CUT, and PULL for the squared distance, in logarithms, of each parameter from its prior: the parent block's
value, or NEUTRAL. Predictions are the curves of tools/curves.py.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from simulator.arrays import Floats
from simulator.validation.measurements import PUBLISHED, Measurement, read_measurements
from simulator.validation.prediction import Asked
from tools.curves import (
    NEUTRAL,
    REACH,
    TIMES,
    Block,
    Curves,
    Job,
    Values,
    ask_all,
    block_of,
    blocks,
    measure_all,
    rows_of,
)
from tools.newton import Point, minimum

TABLES = (PUBLISHED / "measurements.csv.gz", PUBLISHED / "round2.csv.gz")  # what the constants are fitted to
ROUNDED, CUT, PULL = 0.02, 1.2, 0.2
PASSES = 4  # of measuring curves, at most: a block's own again where its values, or its parents', left them
ENOUGH = 1e-5  # a gain that counts
OTHER_START = 10.0  # times the prior of a step's host time, which differs by orders of magnitude: a second start
REPLAYS = "kept apart: nothing is fitted to the runs that tests/simulation/test_replays.py replays"
EXCLUDED = {  # (source, device, model): why the fit does not see them; they are scored all the same
    ("llmservingsim-vllm-bench", "RTX 4090", "Llama-3.1-8B"): REPLAYS,
    ("llmservingsim-vllm-bench", "RTX PRO 6000 Blackwell", "Llama-3.1-8B"): REPLAYS,
    ("nvidia-aiconfigurator-silicon", "B200 SXM", "Qwen3-32B"): "416 prompts of 15,000 tokens need 430 GB of cache"
    " on two devices of 180: the load must be over several copies",
    ("nvidia-aiconfigurator-silicon", "B200 SXM", "DeepSeek-R1"): "85 to 92 ms a token at any load: eager steps",
    ("nvidia-aiconfigurator-silicon", "GB200 NVL72", "DeepSeek-R1"): "TTFT of 40 s with 28 in flight: a cold start",
    ("optimum-habana-ci-baselines", "Intel Gaudi1", "GPT-J-6B"): "reads 1.9 TB/s of weights from memory of 1 TB/s",
}
Keep = Callable[[Measurement], bool]
Settled = tuple[dict[str, "Fit"], dict[str, Values]]


def is_tail(row: Measurement) -> bool:
    """Whether a row is a high percentile: scored, and never fitted."""
    return row.stat.startswith("p9")


def is_rented_pair(row: Measurement) -> bool:
    """Whether a row is of two cards on rented hosts, whose all-reduce runs at 4 to 30 GB/s: scored, not fitted."""
    return row.setup.source == "holtmann-consumer-blackwell" and row.setup.tp > 1


def is_balanced_host(row: Measurement) -> bool:
    """Whether a row is of several replicas behind nginx on one rented host: scored, not fitted.

    How unevenly it shares the load follows from its number of workers, which is a guess.
    """
    return row.setup.source == "cloudrift-deplodock" and row.setup.replicas > 1


UNSEEN_KINDS = (is_tail, is_rented_pair, is_balanced_host)


@dataclass(frozen=True)
class Fit:
    """A block, and the curves of its rows."""

    block: Block
    curves: Curves

    @cached_property
    def seen(self) -> list[int]:
        """The numbers of the rows that a fit may see."""
        rows = enumerate(self.curves.rows)
        known = [at for at, row in rows if not (any(of(row) for of in UNSEEN_KINDS) or row.group in EXCLUDED)]
        if self.block.first_table:
            known = [at for at in known if self.curves.rows[at].id in _of_first_table()]
        families, asked = self.block.fitted_on, self.curves.asked
        family = {at: asked[self.curves.rows[at].id].deployment.hardware.family for at in known}
        return [at for at in known if family[at] in (families or (family[at],))]

    def fitted(self, prior: Values, above: Values, keep: Keep = bool) -> Values:
        """Return the values that suit the rows that are kept; `above` are those of the parents.

        Reweighted least squares: |error| is error^2 with the weight 1 / |error| of the last step.
        """
        kept = self.curves.of([at for at in self.seen if keep(self.curves.rows[at])])
        if not (kept.rows and prior):
            return dict(prior)
        fixed = kept.errors({name: value for name, value in above.items() if name not in prior})
        weights, pull = _weights(kept.rows), _pull(prior)
        centre, start = np.log(list(prior.values())), np.log([self.curves.at[name] for name in prior])

        def look(at: Floats) -> Point:
            at = np.clip(at, start - REACH, start + REACH)
            moved = [kept.along(name, math.exp(value)) for name, value in zip(prior, at, strict=True)]
            errors, slopes = sum((each for each, _ in moved), start=fixed), np.stack([slope for _, slope in moved])
            rounded = np.hypot(errors, ROUNDED)
            pulled = slopes * weights / rounded * (rounded < CUT)
            gradient = pulled @ errors + 2 * pull * (at - centre)
            loss = _loss(errors, weights, pull, at - centre)
            return Point(at, loss, gradient, pulled @ slopes.T + 2 * np.diag(pull))

        found = np.exp(minimum(look, start, ENOUGH))
        return dict(zip(prior, map(float, found), strict=True))

    def loss(self, prior: Values, values: Values) -> float:
        """Return the loss of all rows that a fit may see, at the values of the block and of its parents."""
        seen, away = self.curves.of(self.seen), np.log([values[name] / value for name, value in prior.items()])
        return _loss(seen.errors(values), _weights(seen.rows), _pull(prior), away)


def _loss(errors: Floats, weights: Floats, pull: Floats, away: Floats) -> float:
    """Return the loss of rows' errors and of parameters that are so far `away` from their priors, in logarithms."""
    return float(weights @ np.minimum(np.hypot(errors, ROUNDED), CUT) + pull @ away**2)


@cache
def _of_first_table() -> frozenset[str]:
    return frozenset(row.id for row in read_measurements(TABLES[0]))


def _pull(names: Iterable[str]) -> Floats:
    """Return how much each distance counts: host times differ by orders of magnitude between engines."""
    return np.array([PULL * (0.3 if name in TIMES else 1.0) for name in names])


def _weights(rows: Sequence[Measurement]) -> Floats:
    """Return 1 / size of each row's (source, device, model, metric) group."""
    sizes = Counter((*row.group, row.metric) for row in rows)
    return np.array([1 / sizes[(*row.group, row.metric)] for row in rows])


def effective(block: Block, every: dict[str, Block], solved: dict[str, Values]) -> Values:
    """Return a block's values, completed with those of its parents."""
    return {**_inherited(block, every, solved), **solved.get(block.name, {})}


def _inherited(block: Block, every: dict[str, Block], solved: dict[str, Values]) -> Values:
    """Return the values that a block has from its parents: all but those that its kernels lack."""
    above = effective(every[block.parent], every, solved) if block.parent else {}
    return {name: value for name, value in above.items() if name not in block.lacks}


@dataclass(frozen=True)
class Fits:
    """Every block with its curves and values."""

    blocks: dict[str, Block]
    fits: dict[str, Fit]
    solved: dict[str, Values]

    def without(self, keep: Keep) -> dict[str, Values]:
        """Return the values of all blocks from the rows that are kept; a block that loses none keeps its values."""
        found: dict[str, Values] = {}
        for name, fit in self.fits.items():
            above = self.blocks[name].parent
            touched = above and found.get(above) != self.solved.get(above)
            if touched or not all(keep(fit.curves.rows[at]) for at in fit.seen):
                found[name] = _solved(fit, self.blocks, found, keep)
            else:
                found[name] = self.solved[name]
        return found

    def errors(self, name: str, solved: dict[str, Values]) -> Floats:
        """Return ln(predicted / measured) of a block's rows."""
        return self.fits[name].curves.errors(effective(self.blocks[name], self.blocks, solved))

    @cached_property
    def own(self) -> dict[str, list[int]]:
        """The numbers of each block's rows that no narrower block takes."""
        found: dict[str, list[int]] = {}
        for name, fit in self.fits.items():
            deployments = [fit.curves.asked[row.id].deployment for row in fit.curves.rows]
            narrowest = [block_of((self.blocks[each] for each in self.fits), each) for each in deployments]
            found[name] = [at for at, block in enumerate(narrowest) if block == fit.block]
        return found


def _solved(fit: Fit, every: dict[str, Block], solved: dict[str, Values], keep: Keep = bool) -> Values:
    prior, above = _prior(fit.block, every, solved)
    return {**fit.block.held, **fit.fitted(prior, above, keep)}


def _prior(block: Block, every: dict[str, Block], solved: dict[str, Values]) -> tuple[Values, Values]:
    """Return a block's prior, its parents' values where they have them, else NEUTRAL; and the values that are given."""
    above = {**_inherited(block, every, solved), **block.held}
    usual = {**NEUTRAL, **above, **block.prior}
    return {name: usual.get(name, 1.0) for name in block.parameters}, above


def idle_parameters(fits: Fits, name: str) -> list[str]:
    """List a block's parameters that do not earn their place: without them, rows of unseen sources fit as well.

    One after the other, the most harmful first; the rest is fitted again each time. A block whose rows have one source
    leaves out its devices and models in turn.
    """
    fit, dropped = fits.fits[name], list[str]()
    prior, above = _prior(fit.block, fits.blocks, fits.solved)
    seen = fit.curves.of(fit.seen)
    by_source = len({row.setup.source for row in seen.rows}) > 1
    kinds = {row.id: row.setup.source if by_source else " ".join(row.group) for row in seen.rows}
    kind_of, weights = np.array(list(map(kinds.get, (row.id for row in seen.rows)))), _weights(seen.rows)

    def loss(free: Sequence[str]) -> float:
        found = np.zeros(len(seen.rows))
        fixed = {**above, **{each: value for each, value in prior.items() if each not in free}}
        for kind in set(kinds.values()):
            solved = fit.fitted({each: prior[each] for each in free}, fixed, lambda row, k=kind: kinds[row.id] != k)  # type: ignore[misc]
            found = np.where(kind_of == kind, np.minimum(np.abs(seen.errors({**fixed, **solved})), CUT), found)
        return float(weights @ found / weights.sum())

    free, best = list(prior), loss(list(prior))
    while free:
        tried = {each: loss([other for other in free if other != each]) for each in free}
        worst = min(tried, key=lambda each: tried[each])
        if tried[worst] > best + ENOUGH:
            break
        free.remove(worst)
        dropped, best = [*dropped, worst], min(best, tried[worst])
    return dropped


@dataclass(frozen=True)
class Search:
    """The rows of each block, parents first, and what a fit of them needs."""

    every: dict[str, Block]
    rows: dict[str, list[Measurement]]
    asked: dict[str, Asked]
    say: Callable[[str], None]

    def settled(self, fits: dict[str, Fit], solved: dict[str, Values]) -> Settled:
        """Return fits and values of the blocks, from `solved` on; curves that do not hold there are measured again."""
        fits, solved = dict(fits), dict(solved)
        for _ in range(PASSES):
            at = {name: effective(self.every[name], self.every, solved) for name in self.rows}
            far = [name for name in self.rows if name not in fits or not fits[name].curves.hold_at(at[name])]
            jobs = {name: Job(self.rows[name], self.asked, at[name]) for name in far}
            fits |= {name: Fit(self.every[name], curves) for name, curves in measure_all(jobs, self.say).items()}
            for name in self.rows:
                solved[name] = _solved(fits[name], self.every, solved)
            if not far:
                break
        return fits, solved

    def from_far_starts(self, fits: dict[str, Fit], solved: dict[str, Values]) -> Settled:
        """Return fits and values where each block that ends with less loss from OTHER_START keeps what it found."""
        for name in [each for each in self.rows if "step_s" in self.every[each].parameters]:
            prior, _ = _prior(self.every[name], self.every, solved)
            far = {name: solved[name] | {"step_s": OTHER_START * prior["step_s"]}}
            seen = [fits[name].curves.rows[at] for at in fits[name].seen]
            others, other = replace(self, rows={name: seen}).settled({}, solved | far)
            before, after = (
                found[name].loss(prior, effective(self.every[name], self.every, values))
                for found, values in ((fits, solved), (others, other))
            )
            self.say(f"{name}: loss {before:.3f}, from a far start {after:.3f}")
            if after < before - ENOUGH:
                fits, solved = self.settled({each: fits[each] for each in fits if each != name}, other)
        return fits, solved


def fit_all(rows: Sequence[Measurement], say: Callable[[str], None], only: Sequence[str] = ("",)) -> Fits:
    """Fit every block that has rows, parents first; `only`: those whose names start with one of these, and parents.

    Curves are measured around the priors, then around what was found, whatever the profiles hold of these values.
    """
    every, asked = blocks(), ask_all(rows)
    chosen = {name: rows_of(every[name], rows, asked) for name in with_parents(only, every)}
    search = Search(every, {name: some for name, some in chosen.items() if some}, asked, say)
    fits, solved = search.from_far_starts(*search.settled({}, starts(every)))
    found = Fits(every, fits, {name: solved[name] for name in fits})
    for name, fit in fits.items():
        after = float(np.median(np.abs(found.errors(name, found.solved)[fit.seen])))
        listed = "  ".join(f"{key} {value:.3g}" for key, value in found.solved[name].items())
        say(f"{name}: {len(fit.seen)} rows, median |ln| {after:.3f}: {listed}")
    return found


def with_parents(starts_so: Sequence[str], every: dict[str, Block]) -> list[str]:
    """Name the blocks whose names start with one of these, and all above them, parents first."""
    named: set[str] = set()
    for name, block in reversed(every.items()):
        if name.startswith(tuple(starts_so)) or name in named:
            named |= {name, block.parent}
    return [name for name in every if name in named]


def starts(every: dict[str, Block]) -> dict[str, Values]:
    """Return each block's prior where no block has been fitted."""
    found: dict[str, Values] = {}
    for name, block in every.items():
        found[name] = {**block.held, **_prior(block, every, found)[0]}
    return found

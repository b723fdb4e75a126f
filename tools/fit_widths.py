"""Fit the widths of held-out intervals (simulator/reports/interval_widths.py) to residuals of sources left out.

For each side, with q = exp(b X) the width of a row and X its names (one for all rows, metric, regime, traits):

    loss(b) = sum over rows of weight x pinball(u - q, REACHED) + SHRINK |b of metrics, regimes|^2,  b of a trait >= 0

by a damped Newton method, with |u - q| rounded at ROUNDED. Rows weigh 1 / sqrt(rows of their (source, device, model) x
such groups of their source), all together 1: neither large sources nor small groups decide.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.arrays import Bools, Floats, Ints
from simulator.reports.interval_widths import LEVELS, TRAITS, Side, WidthKey, Widths, weighted_quantiles
from tools.newton import Point, minimum

REACHED = 0.9  # of an 80 % interval's end
ROUNDED = 0.01
SHRINK = 0.002  # of 0.001 to 0.006, whose interval scores on sources left out differ by 1.3 %
ENOUGH = 2e-6  # a gain worth a step
BOUNDS = (-8.0, 3.0)  # of ln(width)
Group = tuple[str, str, str]


class Residual(NamedTuple):
    """ln(measured / predicted) of one row by a fit without its source, its key, and (source, device, model)."""

    key: WidthKey
    group: Group
    value: float
    id: str = ""

    @property
    def slowness(self) -> float:
        """Above 0 where the engine was slower than predicted."""
        return -self.value if self.key.is_rate else self.value


@dataclass(frozen=True)
class Residuals:
    """Residuals as arrays, and fits of widths to some of them."""

    rows: Sequence[Residual]

    @cached_property
    def names(self) -> list[tuple[str, str]]:
        """Kind and name of each factor, the width of all rows first."""
        found = {("metric", each.key.names[0]) for each in self.rows}
        found |= {("regime", each.key.names[1]) for each in self.rows}
        return [("width", ""), *sorted(found), *(("traits", each) for each in TRAITS)]

    @cached_property
    def keys(self) -> list[WidthKey]:
        """The keys that some row has, each once."""
        return list(dict.fromkeys(each.key for each in self.rows))

    @cached_property
    def key(self) -> Ints:
        """Which of `keys` each row has, shape (rows,)."""
        at = {key: place for place, key in enumerate(self.keys)}
        return np.array([at[each.key] for each in self.rows], np.int64)

    @cached_property
    def has(self) -> Floats:
        """Which key has which factor, shape (keys, factors)."""
        kinds = [{*zip(("metric", "regime"), each.names, strict=True)} for each in self.keys]
        traits = [{("traits", name) for name in each.traits} for each in self.keys]
        sets = [{("width", "")} | kind | others for kind, others in zip(kinds, traits, strict=True)]
        return np.array([[name in found for name in self.names] for found in sets], float)

    @cached_property
    def slowness(self) -> Floats:
        """`Residual.slowness`, shape (rows,)."""
        return np.array([each.slowness for each in self.rows])

    @cached_property
    def sources(self) -> npt.NDArray[np.str_]:
        """Source of each row."""
        return np.array([each.group[0] for each in self.rows])

    @cached_property
    def source(self) -> Ints:
        """A number for the source of each row, shape (rows,)."""
        return np.unique(self.sources, return_inverse=True)[1]

    @cached_property
    def weights(self) -> Floats:
        """Weight of each row; the sum of some is made 1 by the fit."""
        sizes = Counter(each.group for each in self.rows)
        groups: dict[str, set[Group]] = defaultdict(set)
        for each in self.rows:
            groups[each.group[0]].add(each.group)
        return np.array([(sizes[each.group] * len(groups[each.group[0]])) ** -0.5 for each in self.rows])

    @cached_property
    def every(self) -> tuple[Floats, Floats]:
        """Logarithms of the factors of both sides, slower and faster, from all rows."""
        everything = np.ones(len(self.rows), bool)
        return self.factors(everything, 1.0), self.factors(everything, -1.0)

    def factors(self, keep: Bools, sign: float, start: Floats | None = None) -> Floats:
        """Return the logarithms of one side's factors (`sign` 1: slower, -1: faster) from the rows that are kept."""
        weights = self.weights[keep] / self.weights[keep].sum()
        loss = Loss(self.has, self.key[keep], sign * self.slowness[keep], weights, self._least)
        return loss.minimum(np.array([math.log(0.25), *[0.0] * (len(self.names) - 1)]) if start is None else start)

    def _few(self, keep: Bools) -> Floats:
        """Return ln((n + 1) / n) of each metric and regime that n sources of the rows that are kept measured, else 0.

        A guess, after the levels (n + 1) / n of conformal prediction: what few sources tell holds less for another one.
        n is Kish's number, (sum of weights)^2 / sum of their squares: one that outweighs the others leaves few.
        """
        sources = [self._effective(keep & (has > 0)[self.key]) for has in self.has.T]
        counted = (kind in ("metric", "regime") for kind, _ in self.names)
        return np.array([math.log1p(1 / max(n, 1)) * is_one for n, is_one in zip(sources, counted, strict=True)])

    def _effective(self, rows: Bools) -> float:
        """Return Kish's number of sources of some rows; 0 for none."""
        each = np.bincount(self.source[rows], self.weights[rows])
        return float(each.sum() ** 2 / (each @ each)) if len(each) else 0.0

    @property
    def _least(self) -> Floats:
        return np.array([0.0 if kind == "traits" else -np.inf for kind, _ in self.names])

    @cached_property
    def logs(self) -> dict[str, tuple[Floats, Floats]]:
        """Logarithms of the factors of both sides, for few sources, too, by the source that they have not seen."""
        return {source: self._logs(self.sources != source) for source in ("", *sorted(set(map(str, self.sources))))}

    def _logs(self, keep: Bools) -> tuple[Floats, Floats]:
        few, (slower, faster) = self._few(keep), self.every
        return self.factors(keep, 1.0, slower) + few, self.factors(keep, -1.0, faster) + few

    @cached_property
    def apart(self) -> tuple[Floats, Floats]:
        """Widths of both sides of each row from a fit without its source, shape (rows,)."""
        found = np.empty((2, len(self.rows)))
        for source in np.unique(self.sources):
            mine = self.sources == source
            for side, logs in enumerate(self.logs[source]):
                found[side, mine] = np.exp(np.clip(self.has @ logs, *BOUNDS))[self.key[mine]]
        return found[0], found[1]

    def shapes(self, keep: Bools) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the multiples of the widths at LEVELS, slower and faster, from the rows that are kept.

        Quantiles of u / width, of fits without the row's own source, but not without those that are not kept here.
        """
        at, found = 0.5 + np.array(LEVELS) / 2, []
        for sign, width in zip((1.0, -1.0), self.apart, strict=True):
            ends = weighted_quantiles(sign * self.slowness[keep] / width[keep], self.weights[keep], at)
            found.append(tuple(round(max(0.0, float(each)), 3) for each in ends))
        return found[0], found[1]

    @cached_property
    def tables(self) -> dict[str, Widths]:
        """The tables by the source that they have not seen; "" for the one from all rows."""
        return {source: self._without(source) for source in self.logs}

    def _without(self, source: str) -> Widths:
        shapes = self.shapes(self.sources != source)
        return Widths(*(self._side(logs, shape) for logs, shape in zip(self.logs[source], shapes, strict=True)))

    def _side(self, logs: Floats, shape: tuple[float, ...]) -> Side:
        named: dict[str, dict[str, float]] = {"metric": {}, "regime": {}, "traits": {}}
        for (kind, name), each in zip(self.names[1:], np.exp(logs[1:]), strict=True):
            named[kind][name] = round(float(each), 3)
        return Side(round(math.exp(logs[0]), 4), named["metric"], named["regime"], named["traits"], shape)


@dataclass(frozen=True)
class Loss:
    """The loss of one side.

    Which key has which factor, which key each row has, u outwards, weights, and the least logarithm of each factor.
    Rows of one key have one width, so they are summed before factors are looked at.
    """

    has: Floats
    key: Ints
    outwards: Floats
    weights: Floats
    least: Floats

    def look(self, at: Floats) -> Point:
        """Return the loss and its slopes, at `least` where `at` is below.

        |error| has the curvature of a parabola that touches it.
        """
        at = np.maximum(at, self.least)
        width = np.exp(np.clip(self.has @ at, *BOUNDS))[self.key]
        error = self.outwards - width
        rounded, skew = np.hypot(error, ROUNDED), REACHED - 0.5
        shrink = np.array([0.0, *[SHRINK] * (len(at) - 1 - len(TRAITS)), *[0.0] * len(TRAITS)])  # as `names` has them
        loss = (self.weights * (rounded / 2 + skew * error)).sum() + shrink @ at**2
        slope = -self._sums(self.weights * (error / rounded / 2 + skew) * width) @ self.has + 2 * shrink * at
        bend = self._sums(self.weights * width * (width / rounded / 2 + 0.5))
        return Point(at, float(loss), slope, (self.has.T * bend) @ self.has + 2 * np.diag(shrink))

    def _sums(self, of_rows: Floats) -> Floats:
        return np.asarray(np.bincount(self.key, of_rows, len(self.has)), np.float64)

    def minimum(self, start: Floats) -> Floats:
        """Return the logarithms of least loss."""
        return minimum(self.look, start, ENOUGH)

"""Plots of sweeps: latency over the load with the SLO and the knee, tokens/s per user and per device, cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.arrays import Floats
from simulator.frames import Row
from simulator.plots.labels import legend_below, spread_labels
from simulator.plots.marks import BEYOND, Curve, ends_of, whisker
from simulator.plots.palette import BOUND, grid_lines, short, tip, wide_axis
from simulator.reports.slo import Slo

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOM = 3  # times the highest value, up to which an interval's end is on the axis: a queue's may be far above
CROSS_POINTS = 9  # between the rows of crosses above a plot
NEAR = 1.04  # points of a curve within this factor of each other share a label
ASIDE_POINTS = 3.5  # between two curves of one plot, so that intervals at one load do not cover each other


@dataclass(frozen=True)
class Sweep:
    """Rows of simulations, each at one value of what is swept, and the name of the curve that it belongs to.

    `rows` have the keys of `infercast simulate`'s JSON, `x` are numbers or words, `x_label` says what they are.
    """

    title: str
    x_label: str
    x: Sequence[float | str]
    series: Sequence[str]
    rows: Sequence[Row]
    slo: Slo
    of_load: bool = True  # x is a load: the SLO is kept up to a knee

    @property
    def curves(self) -> dict[str, list[int]]:
        """Places of the rows of each curve, in order of x."""
        names = dict.fromkeys(self.series)
        order = sorted(range(len(self.rows)), key=lambda place: self.places[place])
        return {name: [place for place in order if self.series[place] == name] for name in names}

    @property
    def marks(self) -> dict[str, Curve]:
        """The colour and the marker of each curve."""
        return {name: Curve.of(place) for place, name in enumerate(self.curves)}

    @property
    def is_numeric(self) -> bool:
        """Whether x are numbers."""
        return all(isinstance(each, int | float) for each in self.x)

    @property
    def places(self) -> Floats:
        """The numbers of x; of words their order."""
        words = list(dict.fromkeys(self.x))
        return np.array([each if self.is_numeric else words.index(each) for each in self.x], np.float64)

    def keeps_slo(self, place: int) -> bool:
        """Whether the load of a row keeps the SLO."""
        return bool(self.rows[place]["meets_slo"])

    def kept(self, places: Sequence[int]) -> list[int]:
        """Return the places of a curve to mark: of a load the knee, up to which the SLO is kept; else all that keep it.

        Empty where none does, or no SLO is asked for.
        """
        if not self.slo.bounds_s:
            return []
        if not self.of_load:
            return [place for place in places if self.keeps_slo(place)]
        return list(takewhile(self.keeps_slo, places))[-1:]


def plot_sweep(sweep: Sweep) -> "Figure":
    """Return TTFT and TPOT (p95 and median, in ms) over what is swept, and tokens/s per user over tokens/s per device.

    One colour per curve; bands and bars are held-out intervals, dashed red lines the SLO's bounds, a ring the knee: the
    largest load up to which the SLO is kept (of settings: all that keep it). Overloaded loads, whose latency grows with
    the run, are crosses above the plot, a row of them for each curve.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  half a second

    figure = Figure(figsize=(13.5, 4.8), layout="constrained")
    panels = figure.subplots(1, 3)
    for axes, metric in zip(panels, ("ttft", "tpot"), strict=False):
        draw_latency(axes, sweep, metric)
    draw_pareto(panels[2], sweep)
    panels[2].set_title(f"Pareto curve (labels: {sweep.x_label})")
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        grid_lines(axes)
    legend_below(figure, _legend(sweep), grows=True)
    figure.suptitle(sweep.title, fontsize=10.5, wrap=True)
    spread_labels(figure)
    return figure


def _values(sweep: Sweep, key: str, places: Sequence[int]) -> Floats:
    found = [sweep.rows[place].get(key) for place in places]
    return np.array([np.nan if each is None else each for each in found], np.float64)


def draw_latency(axes: "Axes", sweep: Sweep, metric: str) -> None:
    """Plot p95 with its interval and the median over x, the SLO's bound, the knee and what is overloaded."""
    seen, bound_s, crossed = [], sweep.slo.bounds_s.get(metric), 0
    for name, places in sweep.curves.items():
        x, (colour, marker) = sweep.places[places], sweep.marks[name]
        p95, low, high = (_values(sweep, f"p95_{metric}_ms{end}", places) for end in ("", "_low", "_high"))
        known = ~np.isnan(p95)
        axes.plot(x[known], p95[known], marker=marker, color=colour, markersize=4, lw=1.6)
        axes.plot(x[known], _values(sweep, f"median_{metric}_ms", places)[known], ":", color=colour, lw=1.3)
        both, high = known & ~np.isnan(low), np.where(np.isnan(high), BEYOND, high)
        axes.fill_between(x[both], low[both], high[both], color=colour, alpha=0.13, lw=0)
        if both.sum() == 1:  # a band of one point has no width
            whisker(axes, "y", x[both][0], (low[both][0], high[both][0]), colour)
        if not known.all():
            _plot_crosses(axes, x[~known], colour, crossed)
            crossed += 1
        for place in sweep.kept(places):
            (at_y,) = _values(sweep, f"p95_{metric}_ms", [place])  # NaN: one output token has no TPOT
            axes.plot(sweep.places[place], at_y, "o", color=colour, mfc="none", markersize=12, mew=1.6)
        for at, value in zip(x, p95, strict=True):
            tip(axes, at, value, f"{_word(at)} {sweep.x_label}: {metric.upper()} p95 {short(value)} ms")
        shown = high[high <= ROOM * np.max(p95, initial=0.0, where=known)]
        seen += [*p95, *_values(sweep, f"median_{metric}_ms", places), *low, *shown]
    if bound_s:
        axes.axhline(bound_s * 1e3, color=BOUND, ls="--", lw=1.2)
    axes.set(xlabel=sweep.x_label, ylabel=f"{metric.upper()} [ms]")
    axes.set_title(metric.upper(), pad=6 + CROSS_POINTS * crossed)
    if sweep.is_numeric:
        wide_axis(axes, "x", sweep.places)
    else:
        axes.set_xticks(range(len(set(sweep.x))), list(dict.fromkeys(map(str, sweep.x))), rotation=20, ha="right")
    wide_axis(axes, "y", seen, [bound_s * 1e3] if bound_s else [])


def _plot_crosses(axes: "Axes", x: Floats, colour: str, row: int) -> None:
    """Plot the overloaded loads of a curve as crosses above the plot, in a row of their own."""
    from matplotlib.transforms import ScaledTranslation  # noqa: PLC0415  half a second

    up = ScaledTranslation(0, CROSS_POINTS * (row + 0.6) / 72, axes.figure.dpi_scale_trans)
    above = axes.get_xaxis_transform() + up
    axes.plot(x, np.ones(len(x)), "x", color=colour, transform=above, markersize=6, mew=1.6, clip_on=False)


def draw_pareto(axes: "Axes", sweep: Sweep) -> None:
    """Plot output tokens/s of a device over tokens/s of a user, one point per row with its x beside it."""
    users, devices = list[float](), list[float]()
    for name, places in sweep.curves.items():
        count = np.array([sweep.rows[place]["devices"] * sweep.rows[place]["replicas"] for place in places])
        user, device = _values(sweep, "tokens_per_s_user", places), _values(sweep, "output_throughput", places) / count
        bars = [
            np.abs(np.nan_to_num(np.vstack([value - _values(sweep, f"{key}_low", places) / by,
                                            _values(sweep, f"{key}_high", places) / by - value])))
            for key, value, by in (("tokens_per_s_user", user, 1), ("output_throughput", device, count))
        ]  # fmt: skip
        colour, marker = sweep.marks[name]
        axes.errorbar(
            user, device, bars[1], bars[0], "-", marker=marker, color=colour, markersize=4, lw=1.4, elinewidth=0.6
        )
        words = [_word(sweep.x[place]) for place in places]
        for word, at in zip(words, zip(user, device, strict=True), strict=True):
            tip(axes, *at, f"{word}: {short(at[0])} tokens/s of a user, {short(at[1])} of a device")
        for first, last in _near(user, device):
            said = (
                words[first] if first == last else f"{words[first]}{', ' if last == first + 1 else ' to '}{words[last]}"
            )
            at = (float(user[first]), float(device[first]))
            axes.annotate(said, at, (5, 4), textcoords="offset points", fontsize=8.5, color=colour)
        users = [*users, *(user - bars[0][0]).tolist(), *(user + bars[0][1]).tolist()]
        devices = [*devices, *(device - bars[1][0]).tolist(), *(device + bars[1][1]).tolist()]
    axes.set(xlabel="output tokens/s of a user (1 / TPOT)", ylabel="output tokens/s of a device")
    wide_axis(axes, "x", users)
    wide_axis(axes, "y", devices)


def _near(user: Floats, device: Floats) -> list[tuple[int, int]]:
    """Return the first and the last place of each run of points that lie on each other; of points that are known.

    >>> _near(np.array([9.0, 8.0, 8.0, 8.1]), np.array([1.0, 2.0, 2.0, 2.0]))
    [(0, 0), (1, 3)]
    """
    runs = list[tuple[int, int]]()
    for place in np.flatnonzero(np.isfinite(user + device)).tolist():
        if runs and all(1 / NEAR < each[place] / each[runs[-1][0]] < NEAR for each in (user, device)):
            runs[-1] = runs[-1][0], place
        else:
            runs.append((place, place))
    return runs


def _word(x: float | str) -> str:
    return x if isinstance(x, str) else f"{x:,.0f}" if x == round(x) else f"{x:.3g}"


def _legend(sweep: Sweep) -> list[Any]:
    """Return an entry per curve, with its knee, and one for each kind of line."""
    from matplotlib.lines import Line2D  # noqa: PLC0415  half a second
    from matplotlib.patches import Patch  # noqa: PLC0415

    entries: list[Any] = []
    for name, places in sweep.curves.items():
        marked = ", ".join(_word(sweep.x[place]) for place in sweep.kept(places))
        kept = f"kept {'up to' if sweep.of_load else 'at'} {marked}" if marked else "never kept"
        label = (f"{name}: SLO {kept}" if sweep.slo.bounds_s else name).removeprefix(": ")
        entries.append(sweep.marks[name].handle(label))
    ink: dict[str, Any] = {"color": "#555555"}
    entries.append(Line2D([], [], marker="o", markersize=4, **ink, label="p95"))
    entries.append(Line2D([], [], ls=":", **ink, label="median"))
    entries.append(Patch(alpha=0.2, lw=0, **ink, label=f"held-out {sweep.rows[0]['interval']:.0%} interval"))
    if sweep.slo.bounds_s:
        entries.append(Line2D([], [], ls="--", color=BOUND, label=str(sweep.slo)))
        entries.append(
            Line2D(
                [],
                [],
                ls="",
                marker="o",
                mfc="none",
                markersize=11,
                **ink,
                label="knee" if sweep.of_load else "keeps the SLO",
            )
        )
    if any(row["overloaded"] for row in sweep.rows):
        entries.append(Line2D([], [], ls="", marker="x", **ink, label="overloaded: latency grows with the run"))
    return entries


def plot_cost_curves(rows: Sequence[Row], series: Sequence[str], title: str = "") -> "Figure":
    """Return $ per million output tokens and $ per hour over the asked rate in requests/s, a mark per deployment.

    `rows` are those of `infercast cost` at several rates, `series` the curve of each. Bars are held-out intervals,
    numbers the replicas where they change; rows that keep the SLO at no load are left out.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  half a second
    from matplotlib.transforms import ScaledTranslation  # noqa: PLC0415

    figure = Figure(figsize=(12, 5.0), layout="constrained")
    panels = figure.subplots(1, 2)
    keys = {"usd_per_million_output_tokens": "$ per million output tokens", "usd_per_hour": "$ per hour"}
    curves = {name: Curve.of(place) for place, name in enumerate(dict.fromkeys(series))}
    for axes, (key, label) in zip(panels, keys.items(), strict=True):
        seen = list[float]()
        for place, (name, curve) in enumerate(curves.items()):
            own = [row for row, each in zip(rows, series, strict=True) if each == name and row["replicas"]]
            before, right = len(axes.lines), ASIDE_POINTS * (place - (len(curves) - 1) / 2) / 72
            seen += _plot_cost(axes, sorted(own, key=lambda row: row["asked_rate_per_s"]), key, curve)
            for line in axes.lines[before:]:
                line.set_transform(line.get_transform() + ScaledTranslation(right, 0, figure.dpi_scale_trans))
        axes.set(xlabel="asked rate, requests/s", ylabel=label)
        wide_axis(axes, "x", [row["asked_rate_per_s"] for row in rows])
        wide_axis(axes, "y", seen)
        axes.spines[["top", "right"]].set_visible(False)
        grid_lines(axes)
    legend_below(figure, [curve.handle(name) for name, curve in curves.items()], grows=True)
    bars = f"bars: {rows[0]['interval']:.0%} intervals, an arrow: it ends far above, or nowhere"
    note = f"numbers: replicas, where they change; {bars}"
    figure.suptitle(f"{title}\n{note}".strip(), fontsize=10.5, wrap=True)
    spread_labels(figure)
    return figure


def _plot_cost(axes: "Axes", rows: Sequence[Row], key: str, curve: Curve) -> list[float]:
    """Plot a figure of some rows over their rates, with intervals and replicas; return what the axis has to show."""
    x, y = [row["asked_rate_per_s"] for row in rows], [row[key] for row in rows]
    known = [each for each in y if each is not None]
    most = ROOM * max(known, default=0.0)
    both = (ends_of(row, key) for row in rows)
    ends = [(low, high if high is not None and high <= most else None) for low, high in both]
    axes.plot(x, [np.nan if each is None else each for each in y], color=curve.colour, marker=curve.marker, lw=1.6)
    replicas = 0
    for row, at_x, at_y, interval in zip(rows, x, y, ends, strict=True):
        whisker(axes, "y", at_x, interval, curve.colour)
        if at_y is not None and row["replicas"] != replicas:
            said, replicas = str(row["replicas"]), row["replicas"]
            axes.annotate(said, (at_x, at_y), (4, 5), textcoords="offset points", fontsize=9, color=curve.colour)
    return known + [end for interval in ends for end in interval if end is not None]

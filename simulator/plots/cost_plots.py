"""Plots of cost and capacity: what deployments cost at a rate, and how much one replica serves within the SLO."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from simulator.cost.capacity import Answer
from simulator.deployment.deployment import Deployment
from simulator.frames import Row
from simulator.plots.labels import legend_below
from simulator.plots.marks import WHISKER, Curve, Ends, ends_of, whisker
from simulator.plots.palette import BOUND, ON_PAPER, grid_lines, short, wide_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_costs(answers: Sequence[Answer], rows: Sequence[Row] = (), labels: Sequence[str] = ()) -> "Figure":
    """Return a plot with one row per answer: dollars per million output tokens, max req/s per replica within the SLO.

    All answers are to the same rate, workload and SLO: those of the first are in the title. `rows` of `infercast
    cost`'s JSON, one per answer, have the intervals that are drawn. `labels`: instead of what tells deployments apart.
    Dots, not bars: an axis may be logarithmic, where the length of a bar says nothing.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  half a second
    from matplotlib.lines import Line2D  # noqa: PLC0415

    rate, scenario = answers[0].rate_per_s, answers[0].scenario
    figure = Figure(figsize=(11, 2.2 + 0.72 * len(answers)), layout="constrained")
    (left, right) = figure.subplots(1, 2, sharey=True)
    shared, own = _labels(answers)
    figure.suptitle(f"{shared}; {scenario.slo}\n{scenario.workload.describe()}", fontsize=10)
    key = "usd_per_million_output_tokens"
    at_load, at_capacity = (
        [bill.usd_per_million_output_tokens if bill else None for bill in bills]
        for bills in ([each.at_load for each in answers], [each.at_capacity for each in answers])
    )
    asked = _Values(f"at {rate:g} requests/s", Curve.of(0), at_load, [ends_of(row, key) for row in rows], -0.2, "$")
    most = [ends_of(row, f"at_capacity_{key}") for row in rows]
    full = _Values("at the highest load within the SLO", Curve.of(1), at_capacity, most, 0.2, "$")
    _plot_values(left, [asked, full])
    replicas = [f"\n{each.replicas} replicas" if each.replicas > 1 else "" for each in answers]
    left.set_yticks(range(len(answers)), [a + b for a, b in zip(labels or own, replicas, strict=True)])
    left.set_ylim(len(answers) - 0.4, -0.6)
    left.set(xlabel="$ per million output tokens", title="Cost", ylabel="")
    rates = [each.capacity.rate_per_s or None for each in answers]
    served = _Values("", Curve.of(1), rates, [ends_of(row, "capacity_per_s") for row in rows])
    _plot_values(right, [served], [rate])
    bound = right.axvline(rate, color=BOUND, linestyle="--", linewidth=1.2, label=f"asked: {rate:g} requests/s")
    right.set(xlabel="requests/s", title="Max requests/s per replica within the SLO")
    for place, each in enumerate(answers):
        if each.at_load is None:
            _say(left, place, "cannot meet the SLO")
        if not each.capacity.rate_per_s:
            _say(right, place, "none")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        grid_lines(axes)
    handles = [*left.get_legend_handles_labels()[0], bound]
    if rows:
        said = f"{rows[0]['interval']:.0%} interval; arrows: down to 0, or without an upper end"
        handles.append(Line2D([], [], color=WHISKER, lw=1.0, marker="|", markersize=6, label=said))
    legend_below(figure, handles)
    return figure


class _Values(NamedTuple):
    """Values of all answers, each with its interval, drawn alike: beside the middle of an answer's row by `offset`."""

    label: str
    curve: Curve
    values: Sequence[float | None]
    intervals: Sequence[Ends]
    offset: float = 0.0
    unit: str = ""


def _plot_values(axes: "Axes", drawn: Sequence[_Values], bounds: Sequence[float] = ()) -> None:
    """Plot dots with their figures above them and their intervals through them."""
    ends = [end for each in drawn for pair in each.intervals for end in pair if end]
    wide_axis(axes, "x", [*(value for each in drawn for value in each.values if value), *ends], bounds)
    for each in drawn:
        known = [(place, value) for place, value in enumerate(each.values) if value is not None]
        x, y = [value for _, value in known], [place + each.offset for place, _ in known]
        axes.plot(x, y, each.curve.marker, color=each.curve.colour, markersize=7, label=each.label or None, zorder=3)
        for value, at in zip(x, y, strict=True):
            written = f"{each.unit}{short(value)}"
            axes.annotate(
                written, (value, at), (0, 6), textcoords="offset points", ha="center", fontsize=8.5, bbox=ON_PAPER
            )
        for place, _ in known:
            if each.intervals:
                whisker(axes, "x", place + each.offset, each.intervals[place])


def _say(axes: "Axes", place: int, text: str) -> None:
    """Write a text in an answer's row, instead of a value."""
    axes.text(0.01, place, text, va="center", fontsize=9, color=BOUND, transform=axes.get_yaxis_transform())


def _labels(answers: Sequence[Answer]) -> tuple[str, list[str]]:
    """Return what the deployments have in common, and a label for each: device, degrees, what differs."""
    parts = [(*_parts(each.scenario.deployment), _commitment(each)) for each in answers]
    varying = {place for place, values in enumerate(zip(*parts, strict=True)) if len(set(values)) > 1}
    own = [[name for place, name in enumerate(each) if name and (place < 2 or place in varying)] for each in parts]
    shared = ", ".join(name for place, name in enumerate(parts[0]) if place >= 2 and place not in varying)
    return shared, [" ".join(names) for names in own]


def _commitment(found: Answer) -> str:
    return ", ".join(dict.fromkeys(each.commitment for each in found.scenario.offers))


def _parts(deployment: Deployment) -> tuple[str, ...]:
    """Return the parts of a deployment's label: device, parallel degrees above 1, model, engine, formats."""
    layout = deployment.layout
    degrees = (f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "ep", "dp") if getattr(layout, name) > 1)
    formats = (f"{layout.weight_dtype} weights", f"{layout.cache_dtype} cache")
    return deployment.hardware.id, " ".join(degrees), deployment.model.id, deployment.engine.id, *formats

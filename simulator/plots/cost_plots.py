"""Plots of cost and capacity: what deployments cost at a rate, and how much one replica serves within the SLO."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.cost.capacity import Answer
from simulator.deployment.deployment import Deployment
from simulator.frames import Row
from simulator.plots.palette import BOUND, wide_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DARK, LIGHT = "#4c72b0", "#b3c6e0"  # at the asked rate; at the highest load within the SLO


def plot_costs(answers: Sequence[Answer], rows: Sequence[Row] = (), labels: Sequence[str] = ()) -> "Figure":
    """Return a plot with one row per answer: dollars per million output tokens, max req/s per replica within the SLO.

    All answers are to the same rate, workload and SLO: those of the first are in the title. `rows` of `infercast
    cost`'s JSON, one per answer, have the intervals that are drawn. `labels`: instead of what tells deployments apart.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415  half a second

    rate, scenario = answers[0].rate_per_s, answers[0].scenario
    size = (11, 2.4 + 0.6 * len(answers))
    figure = Figure(figsize=size, layout="constrained")
    (left, right) = figure.subplots(1, 2, sharey=True)
    shared, own = _labels(answers)
    figure.suptitle(f"{shared}; {scenario.slo}\n{scenario.workload.describe()}", fontsize=10)
    _price_bars(left, answers, rows)
    replicas = [f"\n{each.replicas} replicas" if each.replicas > 1 else "" for each in answers]
    left.set_yticks(range(len(answers)), [a + b for a, b in zip(labels or own, replicas, strict=True)])
    left.invert_yaxis()
    left.set(xlabel="$ per million output tokens", title="Cost", ylabel="")
    highest = [each.capacity.rate_per_s for each in answers]
    right.barh(range(len(answers)), highest, 0.5, color=LIGHT)
    _interval_bars(right, highest, 0.0, rows, "capacity_per_s")
    ends = [row[f"capacity_per_s_{end}"] for row in rows for end in ("low", "high")]
    wide_axis(right, "x", [*highest, *ends], [rate])
    right.axvline(rate, color=BOUND, linestyle="--", linewidth=1.2, label=f"asked: {rate:g} requests/s")
    right.set(xlabel="requests/s", title="Max requests/s per replica within the SLO")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    handles = [handle for axes in (left, right) for handle in axes.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    return figure


def _interval_bars(axes: "Axes", values: Sequence[float], offset: float, rows: Sequence[Row], key: str) -> None:
    """Draw the interval of each value over its bar, an arrow where it has no upper end."""
    for place, (value, row) in enumerate(zip(values, rows, strict=False)):
        low, high = row[f"{key}_low"], row[f"{key}_high"]
        if value and low is not None:
            axes.plot([low, high or value], [place + offset] * 2, color="#333333", lw=1.0, marker="|", markersize=5)
            if high is None:
                axes.plot(value, place + offset, color="#333333", marker=">", markersize=5)


def _price_bars(axes: "Axes", answers: Sequence[Answer], rows: Sequence[Row]) -> None:
    key = "usd_per_million_output_tokens"
    bars = (
        (-0.2, DARK, f"at {answers[0].rate_per_s:g} requests/s", [each.at_load for each in answers], key),
        (
            0.2,
            LIGHT,
            "at the highest load within the SLO",
            [each.at_capacity for each in answers],
            f"at_capacity_{key}",
        ),
    )
    seen = list[float]()
    for offset, colour, label, bills, its_key in bars:
        prices = [bill.usd_per_million_output_tokens if bill else 0.0 for bill in bills]
        axes.barh([row + offset for row in range(len(answers))], prices, 0.38, color=colour, label=label)
        _interval_bars(axes, prices, offset, rows, its_key)
        ends = [row[f"{its_key}_high"] or 0.0 for row in rows]
        for place, price in enumerate(prices):
            if price:
                where = "bottom" if rows else "center"  # above the line of its interval
                at = (price, place + offset)
                axes.annotate(f"${price:.3g}", at, (3, 0), textcoords="offset points", va=where, fontsize=8)
        seen += [each for each in (*prices, *ends) if each]
    wide_axis(axes, "x", seen)
    axes.set_xlim(right=axes.get_xlim()[1] * (1.6 if axes.get_xscale() == "log" else 1.15))  # room for the figures
    for row, each in enumerate(answers):
        if each.at_load is None:
            at = (0.01, row)
            axes.text(
                *at, "cannot meet the SLO", va="center", fontsize=9, color=BOUND, transform=axes.get_yaxis_transform()
            )


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

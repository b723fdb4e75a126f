"""Plots of cost and capacity: what deployments cost at a rate, and how latency rises with the rate."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.cost.capacity import Answer
from simulator.deployment.deployment import Deployment
from simulator.reports.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DARK, LIGHT, BOUND = "#4c72b0", "#b3c6e0", "#c44e52"  # BOUND: what the SLO or the asked rate demands, and what fails it


def plot_costs(answers: Sequence[Answer]) -> "Figure":
    """Return a plot with one row per answer: dollars per million output tokens, max req/s per replica within the SLO.

    All answers are to the same rate, workload and SLO: those of the first are in the title.
    """
    import matplotlib.pyplot as plt  # noqa: PLC0415  half a second

    rate, scenario = answers[0].rate_per_s, answers[0].scenario
    size = (11, 2.4 + 0.6 * len(answers))
    figure, (left, right) = plt.subplots(1, 2, figsize=size, sharey=True, layout="constrained")
    shared, labels = _labels(answers)
    figure.suptitle(f"{shared}; {scenario.slo}\n{scenario.workload.describe()}", fontsize=10)
    _price_bars(left, answers)
    left.set_yticks(range(len(answers)), labels)
    left.invert_yaxis()
    left.set(xlabel="$ per million output tokens", title="Cost", ylabel="")
    right.barh(range(len(answers)), [each.capacity.rate_per_s for each in answers], 0.5, color=DARK)
    right.axvline(rate, color=BOUND, linestyle="--", linewidth=1.2, label=f"asked: {rate:g} requests/s")
    right.set(xlabel="requests/s", title="Max requests/s per replica within the SLO")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.18)
        axes.set_xlim(left=0)
    handles = [handle for axes in (left, right) for handle in axes.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    return figure


def _price_bars(axes: "Axes", answers: Sequence[Answer]) -> None:
    bars = (
        (-0.2, DARK, f"at {answers[0].rate_per_s:g} requests/s", [each.at_load for each in answers]),
        (0.2, LIGHT, "at the highest load within the SLO", [each.at_capacity for each in answers]),
    )
    for offset, colour, label, bills in bars:
        prices = [bill.usd_per_million_output_tokens if bill else 0.0 for bill in bills]
        drawn = axes.barh([row + offset for row in range(len(answers))], prices, 0.38, color=colour, label=label)
        axes.bar_label(drawn, [f"${price:.2f}" if price else "" for price in prices], padding=3, fontsize=9)
    for row, each in enumerate(answers):
        if each.at_load is None:
            axes.text(0, row, " cannot meet the SLO", va="center", fontsize=9, color=BOUND)


def _labels(answers: Sequence[Answer]) -> tuple[str, list[str]]:
    """Return what the deployments have in common, and a label for each: device, degrees, what differs, replicas."""
    parts = [_parts(each.scenario.deployment) for each in answers]
    varying = {place for place, values in enumerate(zip(*parts, strict=True)) if len(set(values)) > 1}
    own = [[name for place, name in enumerate(each) if name and (place < 2 or place in varying)] for each in parts]
    shared = ", ".join(name for place, name in enumerate(parts[0]) if place >= 2 and place not in varying)
    replicas = [f"\n{each.replicas} replicas" if each.replicas > 1 else "" for each in answers]
    return shared, [" ".join(names) + count for names, count in zip(own, replicas, strict=True)]


def _parts(deployment: Deployment) -> tuple[str, ...]:
    """Return the parts of a deployment's label: device, parallel degrees above 1, model, engine, formats."""
    layout = deployment.layout
    degrees = (f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "ep", "dp") if getattr(layout, name) > 1)
    formats = (f"{layout.weight_dtype} weights", f"{layout.cache_dtype} cache")
    return deployment.hardware.id, " ".join(degrees), deployment.model.id, deployment.engine.id, *formats


def plot_latency_curves(rates_per_s: Sequence[float], reports: Sequence[Report]) -> "Figure":
    """Return a plot of median and p95 TTFT and TPOT, in milliseconds, over the rate in requests/s.

    `reports[i]` is the report at `rates_per_s[i]`. The SLO's bounds are lines; overloaded rates, at which latency grows
    with the length of the run, are shaded and have no points.
    """
    import matplotlib.pyplot as plt  # noqa: PLC0415  half a second

    figure, panels = plt.subplots(1, 2, figsize=(11, 3.9), layout="constrained")
    steady = [(rate, report) for rate, report in zip(rates_per_s, reports, strict=True) if not report.overloaded]
    for axes, metric in zip(panels, ("ttft", "tpot"), strict=True):
        for measure, colour in (("median", LIGHT), ("p95", DARK)):
            values = [report.metrics[metric][measure] * 1e3 for _, report in steady]
            axes.plot([rate for rate, _ in steady], values, "o-", color=colour, label=measure, markersize=4)
        bound_s = reports[0].slo.bounds_s.get(metric)
        if bound_s:
            axes.axhline(bound_s * 1e3, color=BOUND, linestyle="--", linewidth=1.2, label="SLO")
        overloaded = [rate for rate, report in zip(rates_per_s, reports, strict=True) if report.overloaded]
        if overloaded:
            axes.axvspan(min(overloaded), max(rates_per_s), color=BOUND, alpha=0.12, label="overloaded")
        axes.set(xlabel="requests per second", ylabel=f"{metric.upper()} [ms]")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    return figure

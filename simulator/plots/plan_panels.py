"""Plots of a plan: what each kind of fleet costs by the month, and the replicas that it has over a day."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from simulator.cost.plan import FleetPlan
from simulator.plots.labels import legend_below
from simulator.plots.palette import BOUND, SERIES, TIP, grid_lines, plain_ticks, tip
from simulator.plots.panels import WIDE_SIZE, panel

HOUR_S, TICK_H = 3600.0, 6.0
STYLES = {"static": "-", "scheduled": "-", "autoscaled": "--"}


def months_panel(plan: FleetPlan) -> Figure:
    """Return dollars (without a price, most replicas) of each kind of fleet over the months."""
    figure, axes = panel(WIDE_SIZE)
    for colour, kind in zip(SERIES, plan.kinds, strict=False):
        months = [each for each in plan.months if each.kind == kind]
        x = [each.month for each in months]
        y = [each.most if each.usd is None else each.usd for each in months]
        axes.plot(x, y, STYLES[kind], marker="o", markersize=4, color=colour, lw=1.6, label=kind)
        for at, value, each in zip(x, y, months, strict=True):
            sizes = f"{each.least} to {each.most} replicas, {each.replica_hours:,.0f} replica-hours"
            tip(axes, at, value, f"{kind}, month {at}: {value:,.0f}{' $' if each.usd is not None else ''}; {sizes}")
    priced = all(each.usd is not None for each in plan.months)
    axes.set(xlabel="month", ylabel="$ of a month" if priced else "replicas at most")
    axes.set_ylim(bottom=0)
    plain_ticks(axes.yaxis)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    grid_lines(axes)
    legend_below(figure, axes.get_legend_handles_labels()[0])
    return figure


def day_panel(plan: FleetPlan, month: int) -> Figure:
    """Return the rate over a day of a month, filled, and under lines what the replicas of each fleet serve in the SLO.

    All in requests/s; spare replicas are left out, headroom is the room between the two.
    """
    figure, axes = panel(WIDE_SIZE)
    rates_per_s = plan.demand.rates_per_s(month)
    edges_h = np.arange(len(rates_per_s) + 1) * plan.demand.window_s / HOUR_S
    axes.stairs(rates_per_s, edges_h, fill=True, color="#b3c6e0", label="requests/s", gid=f"{TIP}requests/s asked")
    for colour, kind in zip(SERIES, plan.kinds, strict=False):
        up = plan.held(kind, month) - plan.sizing.spare
        served_per_s = np.array([plan.rates.rate_per_s(each) if each else 0.0 for each in up.tolist()])
        line = axes.stairs(served_per_s, edges_h, baseline=None, color=colour, lw=1.8, ls=STYLES[kind])
        line.set(label=f"{kind} fleet can serve", gid=f"{TIP}{kind}: {up.min()} to {up.max()} replicas without spares")
    busiest_h = float(edges_h[int(rates_per_s.argmax())])
    axes.axvline(busiest_h, color=BOUND, ls=":", lw=1.0, label="busiest")
    axes.set(xlabel=f"hour of the day, month {month}", ylabel="requests/s")
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    axes.xaxis.set_major_locator(MultipleLocator(TICK_H))
    legend_below(figure, axes.get_legend_handles_labels()[0])
    return figure

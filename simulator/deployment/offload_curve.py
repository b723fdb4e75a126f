"""How decoding slows down as a model leaves its device: seconds per step by the share of layers on the host."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from simulator.deployment.deployment import Deployment
from simulator.deployment.offload import Offload, layer_bytes
from simulator.models.operations import Sequence, count

if TYPE_CHECKING:
    from collections.abc import Sequence as Rows

    from matplotlib.figure import Figure

OffloadKind = Literal["stream", "cpu"]
LABELS: dict[OffloadKind, str] = {"stream": "weights stream over PCIe", "cpu": "the CPU computes them"}

TICKS = [digit * 10.0**power for power in range(-3, 4) for digit in (1, 2, 5)]


class OffloadPoint(NamedTuple):
    """One point of the curve: layers on the host, seconds of a decode step, and these over those with none there."""

    kind: OffloadKind
    layers: int
    share: float
    step_s: float
    slowdown: float


def offload_curve(
    deployment: Deployment, kind: OffloadKind, batch: int = 1, context_tokens: int = 1024
) -> list[OffloadPoint]:
    """Return the seconds of a decode step with 0, 1, ... layers on the host.

    `kind`: weights are copied over PCIe ("stream"), or the CPU computes the layers ("cpu"), where one stays on the
    device. The step is that of `batch` sequences that each attend to `context_tokens`; whether it fits is not checked.
    """
    names = deployment.model.layer_names
    counts = count([Sequence(1, context_tokens - 1)] * batch, deployment.model.window)
    whole = layer_bytes(deployment.model, deployment.layout)
    found: list[OffloadPoint] = []
    for layers in range(len(names) + (kind == "stream")):
        share = layers / len(names)
        offload = Offload(weight_bytes=share * whole) if kind == "stream" else Offload(gpu_layers=len(names) - layers)
        settings = replace(deployment.settings, offload=replace(offload, host=deployment.settings.offload.host))
        step_s = float(replace(deployment, settings=settings).step_model().seconds(counts))
        found.append(OffloadPoint(kind, layers, share, step_s, step_s / found[0].step_s if found else 1.0))
    return found


def offload_figure(title: str, curves: "Rows[Rows[OffloadPoint]]") -> "Figure":
    """Draw tokens/s and slow-down over the share of layers on the host, a line for each curve."""
    from matplotlib.figure import Figure  # noqa: PLC0415  half a second

    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    speed, slower = figure.subplots(1, 2)
    for curve, colour in zip(curves, ("#1b6ca8", "#d95f02", "#7570b3", "#666666"), strict=False):
        shares = 100 * np.array([each.share for each in curve])
        label = LABELS[curve[0].kind]
        speed.plot(shares, [1 / each.step_s for each in curve], color=colour, label=label)
        slower.plot(shares, [each.slowdown for each in curve], color=colour, label=label)
    speed.set_ylabel("tokens per second of one sequence")
    speed.set_yscale("log")
    rates = [1 / each.step_s for curve in curves for each in curve]
    ticks = [tick for tick in TICKS if min(rates) / 1.5 <= tick <= 1.5 * max(rates)]
    speed.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    speed.minorticks_off()
    slower.set_ylabel("times slower than on the device alone")
    for axes in (speed, slower):
        axes.set_xlabel("share of the layers on the host [%]")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    slower.legend(frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=11)
    return figure

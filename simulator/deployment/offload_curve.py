"""How decoding slows down as a model leaves its device: seconds per step by the share of layers on the host."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from simulator.deployment.batches import attended
from simulator.deployment.deployment import Deployment
from simulator.deployment.offload import Offload, layer_bytes
from simulator.frames import Framed, frame
from simulator.models.operations import Sequence, count

if TYPE_CHECKING:
    import pandas as pd

OffloadKind = Literal["stream", "cpu"]


class OffloadPoint(NamedTuple):
    """One point of the curve: layers on the host, seconds of a decode step, and these over those with none there."""

    layers: int
    share: float
    step_s: float
    slowdown: float


@dataclass(frozen=True, slots=True, repr=False)
class OffloadCurve(Framed):
    """A decode step with 0, 1, ... layers on the host."""

    points: tuple[OffloadPoint, ...]

    def to_frame(self) -> "pd.DataFrame":
        """Return a row for each number of layers on the host; columns are those of `OffloadPoint`."""
        return frame(self.points)


def offload_curve(
    deployment: Deployment, kind: OffloadKind, batch: int = 1, context_tokens: int = 1024
) -> OffloadCurve:
    """Return the seconds of a decode step with 0, 1, ... layers on the host.

    `kind`: weights are copied over PCIe ("stream"), or the CPU computes the layers ("cpu"), where one stays on the
    device. The step is that of `batch` sequences that each attend to `context_tokens`; whether it fits is not checked.

    >>> from simulator.deployment.deployment import deploy
    >>> points = offload_curve(deploy("llama-3.1-8b", "rtx-4090", "llama.cpp"), "cpu").points
    >>> len(points), points[0].slowdown, points[16].share
    (32, 1.0, 0.5)
    """
    names = deployment.model.layer_names
    counts = count([Sequence(1, context_tokens - 1)] * batch, attended(deployment))
    whole = layer_bytes(deployment.model, deployment.layout)
    found: list[OffloadPoint] = []
    for layers in range(len(names) + (kind == "stream")):
        share = layers / len(names)
        offload = Offload(weight_bytes=share * whole) if kind == "stream" else Offload(gpu_layers=len(names) - layers)
        settings = replace(deployment.settings, offload=replace(offload, host=deployment.settings.offload.host))
        step_s = float(replace(deployment, settings=settings).step_model().seconds(counts))
        found.append(OffloadPoint(layers, share, step_s, step_s / found[0].step_s if found else 1.0))
    return OffloadCurve(tuple(found))

"""How a replica lies on its devices: parallel degrees, and the number format of each part of its weights."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from simulator.errors import Given, NotModelledError, ProfileError, Setting
from simulator.models.number_formats import number_format
from simulator.models.operations import Op

Part = Literal["mixer", "output", "linear", "experts", "other"]
PARTS: tuple[Part, ...] = get_args(Part)
COVERED: dict[str, tuple[Part, ...]] = {  # parts that a number format covers, by NumberFormat.covers
    "all": PARTS,
    "linear": ("mixer", "output", "linear", "experts"),
    "feed-forward and output": ("output", "linear", "experts"),
    "feed-forward": ("linear", "experts"),
    "experts": ("experts",),
}


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameter counts of a layer on one device, by what number formats cover together.

    `mixer`: projections of attention or of a recurrence; `output`: the output projection of latent attention, which
    some checkpoints quantise alone of these; `linear`: dense feed-forward projections; `experts`: routed experts;
    `other`: embeddings, norms, biases, routers, which most formats leave in the model's own type.
    """

    mixer: int = 0
    output: int = 0
    linear: int = 0
    experts: int = 0
    other: int = 0

    def __add__(self, more: "Weights") -> "Weights":
        return Weights(*(mine + theirs for mine, theirs in zip(self.counts, more.counts, strict=True)))

    def __mul__(self, times: int) -> "Weights":
        return Weights(*(each * times for each in self.counts))

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Parameters of each part, in the order of the fields."""
        return self.mixer, self.output, self.linear, self.experts, self.other

    @property
    def total(self) -> int:
        """All parameters."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Layout:
    """How one replica of a model is spread over its devices, and in which number formats.

    `tp`, `pp`, `ep`, `dp` are the tensor-, pipeline-, expert- and data-parallel degrees. `ep` is 1 (experts are split
    like any other layer) or tp x dp (each device holds whole experts), as in vLLM. With `dp`, attention and dense
    layers are replicated: each rank of tp devices computes an even share of the batch, and tokens are sent to their
    experts. Devices compute in the first type of `NumberFormat.compute` that they support.

    Raises ProfileError for an unknown number format or a degree below 1, NotModelledError for other values of `ep`.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    weight_dtype: str = "bf16"
    cache_dtype: str = "bf16"
    model_dtype: str = "bf16"
    dp: int = 1

    def __post_init__(self) -> None:
        for name in (self.weight_dtype, self.cache_dtype, self.model_dtype):
            number_format(name)
        for name, degree in (("tp", self.tp), ("pp", self.pp), ("ep", self.ep), ("dp", self.dp)):
            if degree < 1:
                raise ProfileError(Setting(name, degree), "a parallel degree is at least 1", f"Give {name} 1 or more")
        group = self.tp * self.dp
        if self.dp > 1 and self.ep != group:
            given: Given = Setting("ep", self.ep), "with", Setting("tp", self.tp), "and", Setting("dp", self.dp)
            inside = f"tp {self.tp // self.dp}, dp {self.dp}, ep {self.tp}"  # as SGLang counts
            others = f"; if tp counts the devices of all ranks, {inside}" if self.tp % self.dp == 0 else ""
            raise NotModelledError(
                given, "with dp, experts lie on all tp x dp devices", f"Give ep {group} ({group} devices){others}"
            )
        if self.ep not in (1, group):
            given = Setting("ep", self.ep), "with", Setting("tp", self.tp)
            advice = f"Give ep 1 or {self.tp}" if self.tp > 1 else f"Give ep 1, or tp {self.ep} too"
            raise NotModelledError(given, "experts lie on 1 or on tp devices", advice)

    @property
    def devices(self) -> int:
        """Devices of one replica: tp x pp x dp."""
        return self.tp * self.pp * self.dp

    @property
    def cache_bytes(self) -> float:
        """Bytes per number in the KV cache."""
        return number_format(self.cache_dtype).size_bytes

    @property
    def activation_bytes(self) -> float:
        """Bytes per activation."""
        return number_format(self.model_dtype).size_bytes

    def format_of(self, part: Part) -> str:
        """Return the name of the number format in which a part of the weights is stored."""
        for name in (self.weight_dtype, number_format(self.weight_dtype).rest):
            if name and part in COVERED[number_format(name).covers]:
                return name
        return self.model_dtype

    def weight_bytes(self, weights: Weights) -> float:
        """Return the bytes of a layer's weights on one device."""
        sizes = [number_format(self.format_of(part)).size_bytes for part in PARTS]
        return float(np.dot(weights.counts, sizes))

    def of_one_rank(self, ops: Iterable[Op]) -> tuple[Op, ...]:
        """Return what one device computes of a step: with `dp`, 1/dp of the batch, except in experts."""
        if self.dp == 1:
            return tuple(ops)
        return tuple(op if op.experts or op.rate == "all_to_all" else op.of_one_rank(self.dp) for op in ops)

    def share(self, heads: int, what: str) -> int:
        """Return `heads` / tp, the share of one device. Raises NotModelledError if tp does not divide them."""
        if heads % self.tp:
            because = f"{heads} {what} do not divide by it"
            raise NotModelledError(Setting("tp", self.tp), because, f"Give a divisor of {heads}")
        return heads // self.tp

"""What a batch asks of a device: counts of the batch, operations linear in them, layouts."""

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from statistics import NormalDist
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from simulator.errors import NotModelledError, ProfileError
from simulator.models.number_formats import number_format

Array = float | npt.NDArray[np.float64]
Part = Literal["mixer", "linear", "experts", "other"]
PARTS: tuple[Part, ...] = get_args(Part)
COVERED: dict[str, tuple[Part, ...]] = {  # by Format.covers
    "all": PARTS,
    "linear": ("mixer", "linear", "experts"),
    "feed-forward": ("linear", "experts"),
    "experts": ("experts",),
}
Rate = Literal[
    "gemm", "decode_attention", "prefill_attention", "elementwise", "all_reduce", "all_to_all", "send", "host_link"
]


class Counts(NamedTuple):
    """What one step of an engine processes; every op is linear in these (or in the experts that they touch).

    The same type holds an op's coefficients, so that `counts.dot(op.flops)` is the op's work. Values may be arrays.
    """

    steps: Array = 0.0  # one per step: weights are read once
    tokens: Array = 0.0  # new tokens computed
    logits: Array = 0.0  # sequences that need a next-token distribution
    decode_reads: Array = 0.0  # cached tokens that decoding sequences attend to
    decode_reads_windowed: Array = 0.0  # the same in layers with a sliding window
    prefill_tokens: Array = 0.0  # new tokens that belong to prompts
    prefill_pairs: Array = 0.0  # causal query-key pairs of prompts
    prefill_pairs_windowed: Array = 0.0  # the same in layers with a sliding window

    def dot(self, coefficients: "Counts") -> Array:
        """Return the sum of count x coefficient."""
        total: Array = 0.0
        for count, each in zip(self, coefficients, strict=True):
            if isinstance(each, np.ndarray) or each:
                total = total + count * each
        return total

    def over(self, parts: float) -> "Counts":
        """Return one of so many even parts of it."""
        return Counts(*(each / parts for each in self))


NOTHING = Counts()


class Sequence(NamedTuple):
    """One sequence of a batch: its new tokens and the tokens that its cache already holds."""

    new_tokens: int
    past_tokens: int


def pairs(new_tokens: int, past_tokens: int, window: int | None = None) -> int:
    """Count the keys that causal queries attend to, over all new tokens; query i sees past + i + 1 keys.

    >>> pairs(4, 0), pairs(1, 10), pairs(4, 0, window=2)
    (10, 11, 7)
    """
    if window is None:
        return new_tokens * past_tokens + new_tokens * (new_tokens + 1) // 2
    growing = max(0, min(new_tokens, window - past_tokens))
    return pairs(growing, past_tokens) + (new_tokens - growing) * window


def count(batch: list[Sequence], window: int | None = None) -> Counts:
    """Count what a batch asks for; a sequence of one new token with a past is a decode, any other a prefill chunk.

    Every sequence is taken to need a logit: a chunk that does not end its prompt costs one row too much.
    """
    decodes = [each for each in batch if each.new_tokens == 1 and each.past_tokens > 0]
    prompts = [each for each in batch if not (each.new_tokens == 1 and each.past_tokens > 0)]
    return Counts(
        steps=1.0,
        tokens=float(sum(each.new_tokens for each in batch)),
        logits=float(len(batch)),
        decode_reads=float(sum(pairs(*each) for each in decodes)),
        decode_reads_windowed=float(sum(pairs(*each, window) for each in decodes)),
        prefill_tokens=float(sum(each.new_tokens for each in prompts)),
        prefill_pairs=float(sum(pairs(*each) for each in prompts)),
        prefill_pairs_windowed=float(sum(pairs(*each, window) for each in prompts)),
    )


class Experts(NamedTuple):
    """A router that sends each token to `chosen` of `total` experts, uniformly; they lie on `ranks` devices."""

    total: int
    chosen: int
    ranks: int = 1

    def touched(self, tokens: Array) -> Array:
        """Return the expected number of distinct experts: E (1 - (1 - k/E)^n).

        >>> round(float(Experts(8, 2).touched(1)), 6), round(float(Experts(8, 2).touched(1000)), 6)
        (2.0, 8.0)
        """
        missed: Array = (1.0 - self.chosen / self.total) ** tokens
        return self.total * (1.0 - missed)

    def padded(self, tokens: Array, tile: float, least: float = math.inf) -> Array:
        """Return the tokens that experts compute over those that reach them, where each computes a multiple of a tile.

        1 + (t / 2) touched / (k n): half a tile more per expert touched. One token alone takes a product of a matrix
        and a vector, without tiles. `least`: the tile is as many tokens as reach an expert, from so many on.

        >>> float(Experts(8, 2).padded(1, 32)), round(float(Experts(8, 2).padded(64, 32)), 2)
        (1.0, 2.0)
        >>> round(float(Experts(8, 2).padded(64, 128, least=16)), 2), round(float(Experts(8, 2).padded(32, 128, 16)), 2)
        (1.5, 2.0)
        """
        tiles_per_token = self.touched(tokens) / (np.maximum(tokens, 1.0) * self.chosen)
        rows = np.minimum(np.maximum(1.0 / np.maximum(tiles_per_token, 1e-9), least), tile)
        return 1.0 + rows / 2 * np.where(np.asarray(tokens) > 1, tiles_per_token, 0.0)

    def busiest_tokens(self, tokens: Array) -> Array:
        """Return the tokens that reach the busiest rank over the mean, where each chooses at random.

        1 + z sqrt((1 - 1/R) / mean): loads are binomial, taken as normal, and z is the expected largest of R normals
        (Blom's approximation); at most R. Real routers also favour some experts: that is not in it.

        >>> round(float(Experts(256, 8, 8).busiest_tokens(1.0)), 2), float(Experts(8, 2).busiest_tokens(1.0))
        (2.34, 1.0)
        """
        return self._busiest(tokens * self.chosen, 1.0 - 1.0 / self.ranks)

    def busiest_experts(self, tokens: Array) -> Array:
        """Return the distinct experts on the rank with the most of them over the mean; 1 once all are touched."""
        touched = self.touched(tokens)
        return self._busiest(touched, 1.0 - touched / self.total)

    def _busiest(self, load: Array, spread: Array) -> Array:
        largest = NormalDist().inv_cdf((self.ranks - 0.375) / (self.ranks + 0.25))
        mean = np.maximum(load, 1e-9) / self.ranks
        factor: Array = np.minimum(1.0 + largest * np.sqrt(spread / mean), float(self.ranks))
        return factor

    @property
    def other_ranks(self) -> float:
        """Expected ranks other than its own that a token's experts lie on: (R - 1)(1 - (1 - 1/R)^k)."""
        return (self.ranks - 1) * (1.0 - (1.0 - 1.0 / self.ranks) ** self.chosen)


@dataclass(frozen=True, slots=True)
class Op:
    """One kernel per layer on one device: how its FLOPs and bytes grow with the counts of a batch."""

    name: str
    rate: Rate
    format: str = "bf16"
    flops: Counts = NOTHING
    weight_bytes: float = 0.0
    columns: int = 0  # of a matrix of weights: its outputs
    expert_bytes: float = 0.0
    experts: Experts | None = None
    shared_inputs: Counts = NOTHING  # numbers that come once, though several experts take them
    cache_bytes: Counts = NOTHING
    activation_bytes: Counts = NOTHING
    link_bytes: Counts = NOTHING
    link_devices: int = 1
    repeats: int = 1
    launches: int = 1  # kernels that follow one another
    heads: float = 0.0  # query heads of attention, times a rank's share of the batch; 0: all share what they read
    shared_by: float = 1.0  # query heads per head of the cache
    cache_format: str = ""  # of the numbers that attention reads
    alike: bool = False  # sequences decode the same token, and so reach the same experts
    on_host: bool = False  # its weights lie in the host's memory, and its CPU computes it (offload.py)

    def of_one_rank(self, ranks: int) -> "Op":
        """Return it for the share of a batch that one of so many ranks computes with all of its weights."""
        return replace(
            self,
            flops=self.flops.over(ranks),
            cache_bytes=self.cache_bytes.over(ranks),
            activation_bytes=self.activation_bytes.over(ranks),
            link_bytes=self.link_bytes.over(ranks),
            heads=self.heads / ranks,
        )

    def with_every_expert(self) -> "Op":
        """Return it for an engine that sends each token through all experts, and drops what was not chosen."""
        if self.experts is None:
            return self
        share = self.experts.chosen / self.experts.total
        return replace(
            self,
            flops=self.flops.over(share),
            activation_bytes=self.activation_bytes.over(share),
            experts=self.experts._replace(chosen=self.experts.total),
        )

    def bytes_read(self, counts: Counts) -> Array:
        """Return all bytes moved between the device and its memory: weights, cache and activations."""
        weights = self.weight_bytes * counts.steps
        if self.experts is not None:
            tokens = np.minimum(counts.tokens, counts.prefill_tokens + 1) if self.alike else counts.tokens
            weights = weights + self.expert_bytes * self.experts.touched(tokens)
        return weights + counts.dot(self.cache_bytes) + counts.dot(self.activation_bytes)


@dataclass(frozen=True, slots=True)
class Weights:
    """Numbers of a layer on one device: what formats cover together, and what stays in the model's own type.

    Projections of attention or of a recurrence, those of the feed-forward part, its routed experts, and the rest.
    """

    mixer: int = 0
    linear: int = 0
    experts: int = 0
    other: int = 0

    def __add__(self, more: "Weights") -> "Weights":
        return Weights(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(more), strict=True)))

    def __mul__(self, times: int) -> "Weights":
        return Weights(*(each * times for each in astuple(self)))

    @property
    def total(self) -> int:
        """All numbers."""
        return sum(astuple(self))


@dataclass(frozen=True, slots=True)
class Layout:
    """How one replica of a model lies on its devices, and in which number formats.

    `ep` is 1 (experts are split like any other layer) or tp x dp (each device holds whole experts), as in vLLM. With
    `dp` attention and dense layers are copied: each rank of tp devices computes an even share of the batch, and tokens
    travel to their experts. A device multiplies in the first type of `Format.compute` that it has.
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
                raise ProfileError(f"{name} {degree}", "a parallel degree is at least 1", f"Give {name} 1 or more")
        group = self.tp * self.dp
        if self.dp > 1 and self.ep != group:
            given = f"ep {self.ep} with tp {self.tp} and dp {self.dp}"
            advice = f"Give ep {group}, or leave dp out where the model has no experts"
            raise NotModelledError(given, "with dp, experts lie on all tp x dp devices", advice)
        if self.ep not in (1, group):
            given = f"ep {self.ep} with tp {self.tp}"
            advice = f"Give ep 1 or {self.tp}" if self.tp > 1 else f"Give ep 1, or tp {self.ep} too"
            raise NotModelledError(given, "experts lie on 1 or on tp devices", advice)

    @property
    def devices(self) -> int:
        """Devices of one replica."""
        return self.tp * self.pp * self.dp

    @property
    def cache_bytes(self) -> float:
        """Bytes per cached number."""
        return number_format(self.cache_dtype).size_bytes

    @property
    def activation_bytes(self) -> float:
        """Bytes per activation."""
        return number_format(self.model_dtype).size_bytes

    def format_of(self, part: Part) -> str:
        """Return the number format that a part of the weights is stored in."""
        stored = number_format(self.weight_dtype)
        return self.weight_dtype if part in COVERED[stored.covers] else stored.rest or self.model_dtype

    def weight_bytes(self, weights: Weights) -> float:
        """Bytes of a layer's weights on one device."""
        sizes = [number_format(self.format_of(part)).size_bytes for part in PARTS]
        return float(np.dot(astuple(weights), sizes))

    def of_one_rank(self, ops: Iterable[Op]) -> tuple[Op, ...]:
        """Return what one device does of a batch; experts and the ways to them count all of it already."""
        if self.dp == 1:
            return tuple(ops)
        whole = [(op, op.experts is not None or op.rate == "all_to_all") for op in ops]
        return tuple(op if counted else op.of_one_rank(self.dp) for op, counted in whole)

    def share(self, heads: int, what: str) -> int:
        """Split heads evenly over tp; NotModelledError where they do not divide."""
        if heads % self.tp:
            raise NotModelledError(f"tp {self.tp}", f"{heads} {what} do not divide by it", f"Give a divisor of {heads}")
        return heads // self.tp

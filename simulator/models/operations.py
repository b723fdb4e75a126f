"""What a batch asks of a device: the counts of a batch, and operations that are linear in these counts."""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np

from simulator.arrays import Floats

Array = float | Floats
# Variance of experts' popularity over its squared mean, as ranks feel it: ranks of 8 of DeepSeek-R1's 256 experts get
# 1,024 (491) choices in a step (NVIDIA/TensorRT-LLM examples/ep_load_balancer, 58 layers); Qwen3-30B-A3B: layers.py
RANK_SPREAD = 1.9
Rate = Literal[
    "gemm", "decode_attention", "prefill_attention", "elementwise", "all_reduce", "all_to_all", "send", "host_link"
]


class Counts(NamedTuple):
    """What one step of an engine processes; the work of every op is linear in these counts (or in the experts touched).

    The same type holds an op's coefficients: `counts.dot(op.flops)` is the op's FLOPs. Fields are floats, or float64
    arrays that broadcast together, such as (steps,) for many steps at once.
    """

    steps: Array = 0.0  # steps: weights are read once in each
    tokens: Array = 0.0  # new tokens computed
    logits: Array = 0.0  # sequences that need logits for their next token
    decode_reads: Array = 0.0  # cached tokens that decoding sequences attend to
    decode_reads_windowed: Array = 0.0  # the same in local layers: within their window or chunk
    prefill_tokens: Array = 0.0  # new tokens that belong to prompts
    prefill_pairs: Array = 0.0  # causal query-key pairs of prompts
    prefill_pairs_windowed: Array = 0.0  # the same in local layers

    def dot(self, coefficients: "Counts") -> Array:
        """Return sum_i count_i x coefficient_i, with the shape of the counts."""
        if coefficients is NOTHING:  # most of what an op could move it does not
            return 0.0
        total: Array = 0.0
        for count, each in zip(self, coefficients, strict=True):
            if each.__class__ is np.ndarray or each:
                total = total + count * each
        return total

    def over(self, parts: float) -> "Counts":
        """Return all counts divided by `parts`."""
        return Counts(*(each / parts for each in self))


NOTHING = Counts()


class Sequence(NamedTuple):
    """One sequence of a batch: the tokens that it computes in this step, and those already in its KV cache."""

    new_tokens: int
    past_tokens: int


class Span(NamedTuple):
    """The tokens that a query attends to in local layers: the last `tokens`, or those of its own chunk of as many.

    Chunks begin at position 0 (Llama 4: create_chunked_causal_mask of transformers 5.23.0, masking_utils.py).
    """

    tokens: int
    chunked: bool = False

    def seen(self, tokens: Array) -> Array:
        """Return to how many the last of `tokens` attends, itself included: min(t, w), or (t - 1) mod C + 1.

        >>> [int(Span(4, chunked).seen(9)) for chunked in (False, True)]
        [4, 1]
        """
        seen: Array = (tokens - 1) % self.tokens + 1 if self.chunked else np.minimum(tokens, self.tokens)
        return seen


def pairs(new_tokens: Array, past_tokens: Array = 0, span: Span | None = None) -> Array:
    """Count the query-key pairs of causal attention: query i attends to past_tokens + i + 1 keys, within its span.

    p(past + new) - p(past), where p(n) of the first n tokens is n (n + 1) / 2; w (w + 1) / 2 + (n - w) w in a window of
    w < n tokens; q C (C + 1) / 2 + r (r + 1) / 2 in chunks of C tokens, n = q C + r. Of the shape of the tokens.

    >>> [float(each) for each in (pairs(4), pairs(1, 10), pairs(4, 0, Span(2)), pairs(4, 3, Span(5, chunked=True)))]
    [10.0, 11.0, 7.0, 12.0]
    """
    return _pairs_before(past_tokens + new_tokens, span) - _pairs_before(past_tokens, span)


def _pairs_before(tokens: Array, span: Span | None) -> Array:
    if span is None:
        return tokens * (tokens + 1) / 2
    chunks, rest = divmod(tokens, span.tokens) if span.chunked else (0, tokens)
    growing = np.minimum(rest, span.tokens)
    before: Array = chunks * (span.tokens * (span.tokens + 1) / 2) + growing * (growing + 1) / 2
    before += (rest - growing) * span.tokens
    return before


def count(batch: list[Sequence], span: Span | None = None) -> Counts:
    """Return the counts of a batch; a sequence with one new token and a past is a decode, any other a prefill chunk.

    Every sequence is assumed to need logits, so a chunk that does not end its prompt is charged for one row too many.
    `span`: of the model's local layers, None if it has none.
    """
    decodes = [each for each in batch if each.new_tokens == 1 and each.past_tokens > 0]
    prompts = [each for each in batch if not (each.new_tokens == 1 and each.past_tokens > 0)]
    return Counts(
        steps=1.0,
        tokens=float(sum(each.new_tokens for each in batch)),
        logits=float(len(batch)),
        decode_reads=float(sum(pairs(*each) for each in decodes)),
        decode_reads_windowed=float(sum(pairs(*each, span) for each in decodes)),
        prefill_tokens=float(sum(each.new_tokens for each in prompts)),
        prefill_pairs=float(sum(pairs(*each) for each in prompts)),
        prefill_pairs_windowed=float(sum(pairs(*each, span) for each in prompts)),
    )


def padded_over(size: int, multiple: int) -> float:
    """Return what a size becomes as a whole multiple, over what it is.

    >>> padded_over(2880, 256), padded_over(512, 256)
    (1.0666666666666667, 1.0)
    """
    return -(-size // multiple) * multiple / size


class Experts(NamedTuple):
    """Routed experts: each of `tokens` (of any shape) goes to `chosen` of `total`, on `ranks` devices.

    `uneven`: their popularity spreads as an exponential variable does, whose variance is its squared mean (of ranks'
    loads: RANK_SPREAD); else all are chosen alike. `width`: intermediate numbers of one on a device.
    """

    total: int
    chosen: int
    ranks: int = 1
    uneven: bool = False
    width: int = 0

    def touched(self, tokens: Array) -> Array:
        """Return the expected number of distinct experts that `tokens` tokens reach.

        E (1 - (1 - k/E)^n) if they are chosen alike; its mean over an exponential popularity, E n k / (E - k + n k).

        >>> [round(float(Experts(8, 2).touched(tokens)), 6) for tokens in (1, 2, 1000)]
        [2.0, 3.5, 8.0]
        >>> [round(float(Experts(128, 8, uneven=uneven).touched(16)), 1) for uneven in (False, True)]
        [82.4, 66.1]
        >>> [float(Experts(8, 8, uneven=True).touched(tokens)) for tokens in (0.0, 1.0)]
        [0.0, 8.0]
        """
        if self.uneven and self.chosen < self.total:
            draws = np.asarray(tokens) * float(self.chosen)
            reached: Array = self.total * draws / (self.total - self.chosen + draws)
            return reached
        missed = math.log1p(-self.chosen / self.total) if self.chosen < self.total else -1e3  # its logarithm, per token
        touched: Array = -self.total * np.expm1(tokens * missed)
        return touched

    def padded(self, tokens: Array, tile: Array, least: float = math.inf) -> Array:
        """Return computed over needed tokens, because each expert computes a multiple of `tile` tokens in its GEMM.

        1 + (t / 2) touched / (k n): half a tile more per expert touched; a single token is a matrix-vector product.
        `least`: with fewer than `tile` tokens per expert, the tile shrinks to that number, down to `least`, of which
        each expert touched computes a whole one, for a single token, too.

        >>> float(Experts(8, 2).padded(1, 32)), round(float(Experts(8, 2).padded(64, 32)), 2)
        (1.0, 2.0)
        >>> [round(float(Experts(8, 2).padded(tokens, 128, least=16)), 2) for tokens in (64, 32, 1)]
        [1.5, 2.0, 16.0]
        """
        tiles = self.touched(tokens) / (np.maximum(tokens, 1.0) * self.chosen)  # over the tokens of all experts
        if least == math.inf:
            return 1.0 + tile / 2 * np.where(np.asarray(tokens) > 1, tiles, 0.0)
        rows = np.clip(1.0 / np.maximum(tiles, 1e-9), least, tile)
        return np.maximum(1.0 + rows / 2 * tiles, least * tiles)

    def tiles(self, tokens: Array, most: float, least: float) -> Array:
        """Return the tiles of `least` to `most` rows, as `padded` shrinks them, that all experts compute.

        >>> [round(float(Experts(8, 2).tiles(tokens, 64, least=16)), 1) for tokens in (1, 16, 512)]
        [2.0, 7.9, 20.0]
        """
        routed = np.maximum(tokens, 1.0) * self.chosen
        rows = np.clip(routed / np.maximum(self.touched(tokens), 1e-9), least, most)
        return routed * self.padded(tokens, most, least) / rows

    def busiest_tokens(self, tokens: Array) -> Array:
        """Return the tokens of the busiest rank over the mean of all ranks, whose experts are placed at random.

        exp(z s - s^2 / 2), at most R: loads are binomial about the popularity of a rank's experts, so their variance is
        (1 - 1/R) (1 / mean + v R / E) = exp(s^2) - 1, v RANK_SPREAD, 0 if all are alike; taken as log-normal (as
        recorded loads of ranks are: deepseek-ai/DeepEP pull request 393), and z is the expected maximum of R standard
        normals (Blom, Statistical Estimates and Transformed Beta-Variables, 1958).

        >>> [round(float(Experts(256, 8, 8, uneven=True).busiest_tokens(tokens)), 2) for tokens in (1.0, 1e6)]
        [2.3, 1.35]
        >>> float(Experts(8, 2).busiest_tokens(1.0))
        1.0
        """
        draws = tokens * self.chosen
        variance = 1.0 + RANK_SPREAD * self.uneven * draws / self.total  # of a rank's draws, over that of a binomial
        return self.busiest_load(draws, (1.0 - 1.0 / self.ranks) * variance)

    def busiest_experts(self, tokens: Array) -> Array:
        """Return the most distinct experts touched on a rank over the mean of all ranks; 1 once all are touched.

        Shapes as in `touched`.
        """
        touched = self.touched(tokens)
        return self.busiest_load(touched, 1.0 - touched / self.total)

    def busiest_load(self, load: Array, variance: Array) -> Array:
        """Return the largest of all ranks' loads over their mean; `load`: of all; `variance`: of one, over its mean."""
        largest = NormalDist().inv_cdf((self.ranks - 0.375) / (self.ranks + 0.25))
        mean = np.maximum(load, 1e-9) / self.ranks
        squared = np.log1p(variance / mean)
        factor: Array = np.clip(np.exp(largest * np.sqrt(squared) - squared / 2), 1.0, float(self.ranks))
        return factor

    @property
    def other_ranks(self) -> float:
        """Expected number of other ranks to which a token's experts belong."""
        return others(self.ranks, self.chosen)


def others(places: int, chosen: int) -> float:
    """Return how many other places, of equal ones, an item is sent to that draws `chosen`: (R - 1)(1 - (1 - 1/R)^k).

    >>> others(2, 8), others(4, 2)
    (0.99609375, 1.3125)
    """
    return (places - 1) * (1.0 - (1.0 - 1.0 / places) ** chosen)


@dataclass(frozen=True, slots=True)
class Op:
    """One kind of kernel on one device: its FLOPs and bytes per step, as coefficients of the counts of a batch.

    Byte and FLOP fields of type Counts are per count; `weight_bytes` are read once per step and `expert_bytes` once per
    distinct expert touched.
    """

    name: str
    rate: Rate  # which achievable rates apply to it
    format: str = "bf16"  # number format of its weights, or of what it computes with
    flops: Counts = NOTHING
    weight_bytes: float = 0.0
    columns: int = 0  # outputs of a GEMM
    inputs: int = 0  # of a GEMM, on one device
    expert_bytes: float = 0.0  # weights of one expert
    experts: Experts | None = None
    shared_inputs: Counts = NOTHING  # input numbers that are read once, though several experts use them
    cache_bytes: Counts = NOTHING  # KV cache or recurrent state moved
    activation_bytes: Counts = NOTHING
    link_bytes: Counts = NOTHING  # of the tensor that a collective or a send moves
    link_devices: int = 1  # devices that communicate
    choices: int = 0  # experts that a token chooses, of an all-to-all
    repeats: int = 1  # layers that have this op
    launches: int = 1  # kernels that follow one another
    normed: Literal["", "outputs", "heads", "values", "router"] = ""  # by norms that engines may fuse
    at_once: Literal["", "shared", "latent", "delta"] = ""  # with routed experts, or in a GEMM with others
    norms: int = 0  # as many, of which NormKernels says how many kernels one is
    # kernels of prompts alone, whose time is in a measured rate: the host launches them, too; below 0: those they lack
    prompt_launches: int = 0
    splits: bool = False  # attention and recurrences, which lie between piecewise graphs (splitting_ops)
    heads: float = 0.0  # query heads of attention x a rank's share of the batch; 0: all share one read of the cache
    shared_by: float = 1.0  # query heads per KV head, or per latent vector
    latent_heads: float = 0.0  # the same of latent attention, which share one read of the cache
    cache_format: str = ""  # number format of the KV cache
    chunk_tokens: int = 0  # of the chunks that decode attention keeps to; 0: it has none
    alike: bool = False  # all sequences decode the same token, and so reach the same experts
    on_host: bool = False  # its weights lie in host memory, and the CPU computes it (offload.py)

    @property
    def attending_heads(self) -> float:
        """Query heads x a rank's share of the batch, whether they read the cache together or not; 0: no attention."""
        return self.heads or self.latent_heads

    @property
    def updates_states(self) -> bool:
        """Whether it moves the states of a recurrence: as many bytes a sequence, whatever its length."""
        return self.rate == "decode_attention" and bool(self.cache_bytes.logits)

    def of_one_rank(self, ranks: int) -> "Op":
        """Return this op for an even 1/`ranks` share of the batch, with all its weights (data-parallel attention)."""
        return replace(
            self,
            flops=self.flops.over(ranks),
            cache_bytes=self.cache_bytes.over(ranks),
            activation_bytes=self.activation_bytes.over(ranks),
            link_bytes=self.link_bytes.over(ranks),
            heads=self.heads / ranks,
            latent_heads=self.latent_heads / ranks,
        )

    def with_every_expert(self) -> "Op":
        """Return this op for an engine that computes all experts for each token and discards those not chosen."""
        if self.experts is None:
            return self
        share = self.experts.chosen / self.experts.total
        return replace(
            self,
            flops=self.flops.over(share),
            activation_bytes=self.activation_bytes.over(share),
            experts=self.experts._replace(chosen=self.experts.total),
        )

    def with_padded_experts(self, wide: int, high: int) -> "Op":
        """Return this op for kernels whose experts have multiples of `wide` hidden and `high` intermediate columns.

        What pads them is read and multiplied as the rest is.
        """
        if self.experts is None or not self.inputs:
            return self
        hidden = self.columns if self.shared_inputs == NOTHING else self.inputs
        growth = padded_over(hidden, wide) * padded_over(self.experts.width, high)
        return replace(self, flops=self.flops.over(1 / growth), expert_bytes=self.expert_bytes * growth)

    def bytes_read(self, counts: Counts) -> Array:
        """Return the bytes moved between the device and its memory: weights, KV cache and activations.

        The result has the shape of the counts.
        """
        weights = self.weight_bytes * counts.steps
        if self.experts is not None:
            tokens = np.minimum(counts.tokens, counts.prefill_tokens + 1) if self.alike else counts.tokens
            weights = weights + self.expert_bytes * self.experts.touched(tokens)
        return weights + counts.dot(self.cache_bytes) + counts.dot(self.activation_bytes)


def with_every_expert(ops: tuple[Op, ...], *, apart: bool) -> tuple[Op, ...]:
    """Return the ops of an engine that computes all experts for each token.

    `apart`: one after the other, as dense layers. The second GEMM of each is a layer of its own to what splits a model
    over devices then, and so sums over them for itself (DeepSpeed's LinearAllreduce: `w2` of Mixtral in
    deepspeed/module_inject/auto_tp.py, read 2026-11-27).
    """
    made, experts = list[Op](), 1
    for op in ops:
        if op.experts is not None:
            made.append(op.with_every_expert())
            experts = op.experts.total if apart else 1
        elif op.rate == "all_reduce":
            made.append(replace(op, repeats=op.repeats * experts))
            experts = 1
        else:
            made.append(op)
    return tuple(made)

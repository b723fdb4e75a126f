"""What a batch asks of a device: the counts of a batch, and operations that are linear in these counts."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from simulator.arrays import Array
from simulator.models.routed_experts import Experts

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

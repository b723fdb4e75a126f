"""Counts of the steps of one batch alone: those that compute its prompts, and those that generate its tokens."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from simulator.arrays import Array, Floats
from simulator.deployment.deployment import Deployment
from simulator.errors import Setting, WorkloadError
from simulator.limits import is_whole, refuse_beyond_memory
from simulator.models.operations import Counts, Span, pairs


@dataclass(frozen=True, slots=True)
class Batch:
    """`size` requests of equal lengths in tokens that start together; `context_tokens` of each are cached before.

    Raises WorkloadError for a size, prompt or output below 1 and for a negative context; InfercastError for an output
    whose steps exceed the memory.

    >>> Batch(8, 1024, 128).cached_tokens
    1151
    """

    size: int
    prompt_tokens: int
    output_tokens: int
    context_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("size", "prompt_tokens", "output_tokens"):
            if not is_whole(getattr(self, name)) or getattr(self, name) < 1:
                given = Setting(name, getattr(self, name))
                because = "a batch has whole requests and tokens, at least one each way"
                raise WorkloadError(given, because, "Give 1 or more")
        refuse_beyond_memory(f"{self.output_tokens:,} output tokens", 100.0 * self.output_tokens, "Give fewer")
        if not is_whole(self.context_tokens) or self.context_tokens < 0:
            given = Setting("context_tokens", self.context_tokens)
            raise WorkloadError(given, "a cache holds whole tokens, and no fewer than none", "Give 0 or more")

    @property
    def cached_tokens(self) -> int:
        """Tokens of one request in the KV cache at its end: the last output token is never fed back."""
        return self.context_tokens + self.prompt_tokens + self.output_tokens - 1

    @property
    def middle_tokens(self) -> int:
        """Tokens per request that the decode step in the middle of the generation attends to, its new one included."""
        return self.context_tokens + self.prompt_tokens + max(1, self.output_tokens // 2)

    def __str__(self) -> str:
        return f"batch {self.size} x ({self.prompt_tokens:,} in + {self.output_tokens:,} out)"


def attended(deployment: Deployment) -> Span | None:
    """Return what attention of local layers passes over, None without such layers.

    Where an engine's kernels only mask what lies before a chunk (Engine.masked_chunks) they read more than they need,
    but not at the speed of light.

    >>> from simulator.deployment.deployment import deploy
    >>> [attended(deploy("llama-4-scout", "h200-sxm", each)) for each in ("vllm", "ollama")]
    [Span(tokens=8192, chunked=True), Span(tokens=1048576, chunked=False)]
    """
    model, masked = deployment.model, deployment.engine.masked_chunks
    if not model.span or not model.span.chunked or not masked or deployment.light:
        return model.span
    if deployment.hardware.family in masked.except_families:
        return model.span
    return Span(model.span.tokens if masked.over == "window" else model.max_context_tokens)


def decode_counts(deployment: Deployment, batch: Batch, attended_tokens: Array) -> Counts:
    """Return the counts of a decode step in which each request attends to `attended_tokens`, its new token included.

    `attended_tokens` is a number or an array of shape (steps,), as are the fields of the result. With speculation a
    request computes its draft tokens too; without a cache (policy "uncached") all its tokens anew; of a static cache
    it reads whole buckets, but not at the speed of light.
    """
    span, each = attended(deployment), 1 + deployment.draft_tokens
    if deployment.engine.policy == "uncached":
        return _uncached_counts(batch, np.asarray(attended_tokens), span)
    static = deployment.engine.static_cache
    if static and not deployment.light:
        attended_tokens = static.read_tokens(attended_tokens, batch.cached_tokens + 1)
    read = attended_tokens + deployment.draft_tokens
    seen = span.seen(attended_tokens) + deployment.draft_tokens if span else read
    return Counts(
        steps=np.ones_like(attended_tokens, dtype=np.float64),
        tokens=float(batch.size * each),
        logits=float(batch.size * each),
        decode_reads=batch.size * read,
        decode_reads_windowed=batch.size * seen,
    )


def _uncached_counts(batch: Batch, tokens: Floats, span: Span | None) -> Counts:
    """Return the counts of a step that computes all tokens of each sequence anew, without a KV cache."""
    return Counts(
        steps=np.ones_like(tokens, dtype=np.float64),
        tokens=batch.size * tokens,
        logits=float(batch.size),
        prefill_tokens=batch.size * tokens,
        prefill_pairs=batch.size * pairs(tokens),
        prefill_pairs_windowed=batch.size * pairs(tokens, 0, span),
    )


def prefill_counts(deployment: Deployment, batch: Batch, *, past: int = 0, budget: int = 0) -> Counts:
    """Return the counts of the steps that compute the prompts one after the other; fields have shape (steps,).

    Every step but the last is full. A static batch computes all prompts in one step; without chunked prefill no prompt
    is cut. `past`: tokens of each prompt that are cached already. `budget`: most tokens of a step, 0 for the
    deployment's. A static cache's prompts are not padded at the speed of light.

    >>> from simulator.deployment.deployment import deploy
    >>> prefill_counts(deploy("llama-3.1-8b", "h100-sxm"), Batch(4, 1000, 1), budget=1500).tokens
    array([1500., 1500., 1000.])
    """
    static = deployment.engine.static_cache
    padding = batch.output_tokens if static and static.pads_prompts and not deployment.light else 0
    each = batch.prompt_tokens + padding
    prompts = batch.size * each
    budget = budget or (prompts if deployment.engine.policy == "static" else deployment.max_num_batched_tokens)
    if not deployment.engine.chunked_prefill and budget < prompts:
        budget = max(1, budget // each) * each
    bounds = [*range(0, prompts, budget), prompts]
    tokens = np.diff(bounds).astype(np.float64)
    sequences = [-(-end // each) - start // each for start, end in pairwise(bounds)]
    before, local = (
        [_pairs_before(bound, each, past, span) for bound in bounds] for span in (None, attended(deployment))
    )
    return Counts(
        steps=np.ones_like(tokens),
        tokens=tokens,
        logits=np.array(sequences, dtype=np.float64),
        prefill_tokens=tokens,
        prefill_pairs=np.diff(before),
        prefill_pairs_windowed=np.diff(local),
    )


def _pairs_before(token: int, prompt: int, past: int, span: Span | None) -> float:
    """Return the query-key pairs of the first `token` tokens of prompts laid end to end, each after `past` tokens."""
    whole, rest = divmod(token, prompt)
    return float(whole * pairs(prompt, past, span) + pairs(rest, past, span))

"""Speculative decoding: what drafts, how many tokens a step yields, and what the drafting costs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from numbers import Real

from simulator.engines.engine import Engine
from simulator.errors import InfercastError, NotModelledError
from simulator.limits import is_whole
from simulator.models.layout import Layout
from simulator.models.model import Model, load_model
from simulator.models.op_builders import linear
from simulator.models.operations import Op

MORE_TOKENS = "Give a larger --max-num-batched-tokens"
NGRAM, MTP, EAGLE, MEDUSA = "ngram", "mtp", "eagle", "medusa"  # what drafts without a profile of its own


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding with `tokens` draft tokens per step and sequence (vLLM: num_speculative_tokens).

    `draft`: a model profile, "ngram" (look-up in the text so far), "mtp" (the model's multi-token prediction head),
    "eagle" (a head of one block) or "medusa" (a head per position); of a tree of drafts only its longest path counts.
    `acceptance`: probability that a position is accepted if all before it are; one for all, or one per position. It
    depends on draft, model and text, so it has no default. `expected`: every sequence accepts the expected number of
    tokens, spread evenly over steps, instead of a random one.

    Raises InfercastError for no draft token, rates that are no tuple, or neither one nor `tokens` of them, and a rate
    outside of 0 to 1.

    >>> Speculation("ngram", 3, (0.8,)).rates
    (0.8, 0.8, 0.8)
    """

    draft: str
    tokens: int
    acceptance: tuple[float, ...]
    expected: bool = False

    def __post_init__(self) -> None:
        if not is_whole(self.tokens) or self.tokens < 1:
            because = "a draft is a whole number of tokens, at least one"
            raise InfercastError(f"{self.tokens!r} draft tokens", because, "Give 1 or more")
        if not isinstance(self.acceptance, Sequence) or isinstance(self.acceptance, str):
            given, because = f"acceptance {self.acceptance!r}", "it is a tuple of rates, of one for all positions"
            raise InfercastError(given, because, f"Give ({self.acceptance!r},)")
        if len(self.acceptance) not in (1, self.tokens):
            given = f"{len(self.acceptance)} acceptance rates for {self.tokens} draft tokens"
            raise InfercastError(given, "it is one for all positions or one for each", "Give one rate or as many")
        for rate in self.acceptance:
            if not isinstance(rate, Real) or not 0 <= rate <= 1:
                raise InfercastError(f"acceptance rate {rate!r}", "it is a probability", "Give a number from 0 to 1")

    @property
    def rates(self) -> tuple[float, ...]:
        """The acceptance of each position, one per draft token."""
        return self.acceptance if len(self.acceptance) == self.tokens else self.acceptance * self.tokens

    @property
    def tokens_per_step(self) -> float:
        """Expected tokens that a step yields per sequence: 1 + a0 + a0 a1 + ...

        For one rate a this is (1 - a^(k+1)) / (1 - a); Leviathan et al. 2023 (arXiv:2211.17192), equation 1.

        >>> round(Speculation("ngram", 4, (0.8,)).tokens_per_step, 4), round((1 - 0.8**5) / (1 - 0.8), 4)
        (3.3616, 3.3616)
        """
        rates = self.rates
        return 1.0 + sum(prod(rates[: position + 1]) for position in range(len(rates)))


@dataclass(frozen=True, slots=True)
class Draft:
    """What drafting adds on each device: ops to draft one token, bytes of weights, bytes of KV cache per token."""

    ops: tuple[Op, ...] = ()
    weight_bytes: float = 0.0
    cache_bytes_per_token: float = 0.0


def draft_of(speculation: Speculation, model: Model, layout: Layout) -> Draft:
    """Return what drafts for a model; n-grams cost nothing, a draft model is sharded over the same devices.

    Raises NotModelledError for a draft with another vocabulary or with other sliding windows than the model, and
    ProfileError for a draft without a profile.

    >>> draft_of(Speculation("ngram", 4, (0.8,)), load_model("llama-3.1-8b"), Layout())
    Draft(ops=(), weight_bytes=0.0, cache_bytes_per_token=0.0)
    """
    if speculation.draft == NGRAM:
        return Draft()
    if speculation.draft == MTP:
        return _head_of_one_block("mtp", model, layout)
    if speculation.draft == EAGLE:
        return _head_of_one_block("eagle", model, replace(layout, weight_dtype=layout.model_dtype))
    if speculation.draft == MEDUSA:
        return _medusa_heads(speculation.tokens, model, replace(layout, weight_dtype=layout.model_dtype))
    draft = load_model(speculation.draft)
    if abs(draft.vocab - model.vocab) > model.vocab // 100:  # tables padded differently are one vocabulary
        given = f"draft {draft.id} for {model.id}"
        because = f"its vocabulary of {draft.vocab:,} is not {model.vocab:,}"
        raise NotModelledError(given, because, "Give a draft of the same family")
    if draft.span not in (None, model.span):
        given = f"draft {draft.id} with a window of {draft.span.tokens}"
        has = model.span.tokens if model.span else "none"
        raise NotModelledError(given, f"{model.id} has {has}", "Give a draft of the same family")
    own = replace(layout, weight_dtype=draft.weight_dtype, model_dtype=draft.dtype)
    return Draft(draft.ops(own), own.weight_bytes(draft.weights(own)), draft.cache_bytes(1, own))


def _logits(model: Model, layout: Layout) -> list[Op]:
    return [op for op in model.ops(layout) if op.flops.logits or op.link_bytes.logits]


def _medusa_heads(count: int, model: Model, layout: Layout) -> Draft:
    """Return `count` heads, one per draft token: a square layer with a residual, and an output layer of its own.

    Each device holds the square layer whole and its share of the output layer, as in vLLM. The heads run one after the
    other here, in one pass in truth. Source: Medusa, arXiv:2401.10774, section 2.1.1.
    """
    square = linear("medusa residual", (model.hidden, model.hidden), layout, per="logits")
    ops = (square, *_logits(model, layout))
    return Draft(layout.of_one_rank(ops), count * sum(op.weight_bytes for op in ops))


def _head_of_one_block(name: str, model: Model, layout: Layout) -> Draft:
    """Return a head that drafts one token after the other: two hidden states joined to one, a block, the output layer.

    The block is like the model's last; the output layer is the model's. Sources: multi-token prediction, DeepSeek-V3,
    arXiv:2412.19437, section 2.2; EAGLE, arXiv:2401.15077, section 4.1.
    """
    block = model.blocks[model.layer_names[-1]]
    join = linear(f"{name} projection", (2 * model.hidden, model.hidden), layout)
    logits = _logits(model, layout)
    weights = layout.weight_bytes(block.weights(model.hidden, model.norm_parameters, layout)) + join.weight_bytes
    cache = block.mixer.cache_bytes_per_token(layout) / layout.dp if block.mixer is not None else 0.0
    return Draft((*layout.of_one_rank((join, *block.ops(model.hidden, layout))), *logits), weights, cache)


def refuse_drafts(tokens: int, engine: Engine, layout: Layout, most_tokens: int) -> None:
    """Refuse drafts of so many `tokens` where they cannot be, in steps of `most_tokens`; 0: there are none."""
    if not tokens:
        return
    if layout.pp > 1:
        raise NotModelledError(f"speculation with pp {layout.pp}", "which stage drafts is not known", "Use tp")
    if engine.policy not in ("continuous", "prompts-first"):
        given, because = f"speculation in {engine.id}", f"its policy is {engine.policy}"
        raise NotModelledError(given, because, "Use an engine that batches continuously")
    if 1 + tokens > most_tokens:
        given = f"{tokens} draft tokens with max_num_batched_tokens {most_tokens}"
        raise InfercastError(given, "a step verifies all drafts of a sequence", MORE_TOKENS)

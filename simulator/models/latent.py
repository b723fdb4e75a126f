"""Multi-head latent attention (MLA): one compressed vector per token for all heads; and its sparse form's indexer."""

from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from simulator.errors import ProfileError
from simulator.models.layout import Layout, Weights
from simulator.models.op_builders import SINGLE, Ops, PositiveInt, all_reduce, attention, elementwise, linear
from simulator.models.operations import Counts, Op
from simulator.profile import Strict

INDEX_KEY_BYTES, INDEX_SCALE_BYTES = 1, 4  # an fp8 number; a scale per key of up to 128 numbers


class Indexer(Strict):
    """Indexer of sparse attention: a small fp8 attention that scores all cached tokens; the `chosen` best are used.

    Every device of a layout scores all tokens. A `shared` one uses the choice of the layer before: it has no weights
    and no keys (GLM-5.2's indexer_types). With `pool` one key stands for so many tokens, weighted number by number
    (GLM-5.3-Flash's index_kpool, stored so in vLLM's pages). Source: DeepSeek-V3.2-Exp technical report (2025), section
    1, and its implementation in transformers 5.23.0; bytes per key as in vLLM (132 for a head of 128).
    """

    heads: PositiveInt
    head_dim: PositiveInt
    chosen: PositiveInt
    shared: bool = False
    pool: PositiveInt = 1

    def projections(self, hidden: int, q_lora: int) -> dict[str, tuple[int, int]]:
        """Return the shapes (inputs, outputs) of its GEMMs: queries, one key for all heads, weights of the heads."""
        if self.shared:
            return {}
        return {
            "indexer query": (q_lora, self.heads * self.head_dim),
            "indexer key": (hidden, self.head_dim),
            "indexer weights": (hidden, self.heads),
            **({"indexer pool": (hidden, self.head_dim)} if self.pool > 1 else {}),
        }

    def cache_bytes_per_token(self) -> float:
        """Bytes of one cached fp8 key with its scales.

        >>> Indexer(heads=64, head_dim=128, chosen=2048).cache_bytes_per_token()
        132.0
        """
        own = float(self.head_dim * INDEX_KEY_BYTES + -(-self.head_dim // 128) * INDEX_SCALE_BYTES)
        return 0.0 if self.shared else own / self.pool

    @property
    def norm_parameters(self) -> int:
        """Parameters of the norm of its keys, a weight and a bias for each number, and of places in a pool.

        >>> Indexer(heads=64, head_dim=128, chosen=2048).norm_parameters
        256
        """
        places = self.pool if self.pool > 1 else 0
        return 0 if self.shared else (2 + places) * self.head_dim

    def ops(self) -> Ops:
        """Score every cached token: 2 FLOPs per number of each head's query."""
        if self.shared:
            return ()
        return _scores("fp8", self.heads * self.head_dim / self.pool, self.cache_bytes_per_token())


class BlockIndexer(Strict):
    """Indexer of block-sparse attention: scores all cached tokens, by one head of it for each KV head.

    The blocks of the best are attended to. Its queries and its one key of a token are projected with those of attention
    and kept in the cache's type. Source: transformers 5.24.0 (MiniMaxM3VLIndexer), TensorRT-LLM's
    MiniMaxM3SparseAttentionConfig (read 2026-11-27).
    """

    heads: PositiveInt
    head_dim: PositiveInt

    def _local(self, layout: Layout) -> int:
        return -(-self.heads // layout.tp)

    def columns(self, layout: Layout) -> int:
        """Return the outputs of its projections on one device; every device has the key."""
        return (self._local(layout) + 1) * self.head_dim

    @property
    def norm_parameters(self) -> int:
        """Parameters of the norms of queries and keys.

        >>> BlockIndexer(heads=4, head_dim=128).norm_parameters
        256
        """
        return 2 * self.head_dim

    def cache_bytes_per_token(self, layout: Layout) -> float:
        """Bytes of one cached key."""
        return self.head_dim * layout.cache_bytes

    def ops(self, layout: Layout) -> Ops:
        """Score every cached token: 2 FLOPs per number of each head's query."""
        return _scores(layout.model_dtype, self._local(layout) * self.head_dim, self.cache_bytes_per_token(layout))


def _scores(dtype: str, numbers: float, key_bytes: float) -> Ops:
    """Return the ops in which all cached keys are multiplied with queries: decode, and prompts.

    `numbers`: of all queries of a token, each of which takes 2 FLOPs with a key of `key_bytes`.
    """
    flops, reads = 2.0 * numbers, Counts(decode_reads=key_bytes)
    return (
        Op("indexer scores", "decode_attention", dtype, Counts(decode_reads=flops), cache_bytes=reads, splits=True),
        Op("indexer scores of prompts", "prefill_attention", dtype, Counts(prefill_pairs=flops), splits=True),
    )


class LatentAttention(Strict):
    """Multi-head latent attention (MLA): one compressed key-value vector per token, shared by all heads.

    Decode works on the compressed vectors (the up-projection is absorbed into query and output), as does all attention
    to tokens that an indexer chose. `gate`: a projection as wide as the output gates it (Kimi K3's
    mla_use_output_gate); `head_gate`: one of a number per head does (Ling 3). Source: DeepSeek-V2, arXiv:2405.04434,
    section 2.1. Raises ProfileError for an indexer without `q_lora`.
    """

    kind: Literal["latent"]
    heads: PositiveInt
    q_lora: PositiveInt | None = None
    kv_lora: PositiveInt
    rope_dim: Annotated[int, Field(ge=0)] = 0
    nope_dim: PositiveInt
    v_dim: PositiveInt
    indexer: Indexer | None = None
    gate: bool = False
    head_gate: bool = False
    sinks: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.indexer and self.q_lora is None:
            raise ProfileError("indexer without q_lora", "its queries start from the query's latent", "Give q_lora")
        return self

    @property
    def window(self) -> int | None:
        """Most tokens that a query attends to: those that the indexer chose, None without one; all are cached."""
        return self.indexer.chosen if self.indexer else None

    def _projections(self, hidden: int, layout: Layout) -> dict[str, tuple[int, int]]:
        heads = layout.share(self.heads, "attention heads")
        q_width = heads * (self.nope_dim + self.rope_dim)
        query = {"query projection": (hidden, q_width)}
        if self.q_lora is not None:
            query = {"query down": (hidden, self.q_lora), "query up": (self.q_lora, q_width)}
        indexed = self.indexer.projections(hidden, self.q_lora or 0) if self.indexer else {}
        gate = {"gate projection": (hidden, heads * self.v_dim)} if self.gate else {}
        gate |= {"head gate": (hidden, heads)} if self.head_gate else {}
        return (
            query
            | indexed
            | gate
            | {
                "kv down": (hidden, self.kv_lora + self.rope_dim),
                "kv up": (self.kv_lora, heads * (self.nope_dim + self.v_dim)),
                "output projection": (heads * self.v_dim, hidden),
            }
        )

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Parameters on one device; the down-projections and the indexer are replicated over tp."""
        *before, output = (rows * columns for rows, columns in self._projections(hidden, layout).values())
        norms = (self.q_lora or 0) + self.kv_lora + (self.indexer.norm_parameters if self.indexer else 0)
        sinks = layout.share(self.heads, "attention heads") * self.sinks
        return Weights(mixer=sum(before), output=output, other=norms + sinks)

    def cache_bytes_per_token(self, layout: Layout = SINGLE) -> float:
        """Bytes per token of a compressed vector, its rotary part and the indexer's key, whole on every tp device."""
        index = self.indexer.cache_bytes_per_token() if self.indexer else 0.0
        return (self.kv_lora + self.rope_dim) * layout.cache_bytes + index

    def state_bytes(self, _layout: Layout = SINGLE) -> float:
        """Bytes per sequence whatever its length: none."""
        return 0.0

    def _projection(self, name: str, shape: tuple[int, int], layout: Layout) -> Op:
        """Return a projection before attention; the two down-projections read the same inputs.

        Where attention is absorbed, as decodes are, the up-projection of keys multiplies queries, and that of values
        what attention gives: two kernels, one for prompts.
        """
        own = linear(name, shape, layout, "mixer")
        if name == "kv up":
            return replace(own, splits=True, launches=own.launches + 1, prompt_launches=-1)
        return replace(own, at_once="latent" if name == "kv down" and self.q_lora is not None else "")

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Down- and up-projections, indexer, attention, output projection, all-reduce."""
        heads = layout.share(self.heads, "attention heads")
        shapes = self._projections(hidden, layout).items()
        *before, (last, wide) = shapes
        output = linear(last, wide, layout, "output")
        moved = 2 * heads * (self.nope_dim + self.rope_dim)
        absorbed = 2.0 * heads * (2 * self.kv_lora + self.rope_dim)
        expanded = 2.0 * heads * (self.nope_dim + self.rope_dim + self.v_dim)
        return (
            *(self._projection(name, shape, layout) for name, shape in before),
            replace(
                elementwise("rope and cache write", moved, layout, splits=True),
                normed="heads",
                norms=1 + (self.q_lora is not None),
            ),
            *(self.indexer.ops() if self.indexer else ()),
            *attention(
                layout,
                flops_per_read=absorbed,
                flops_per_pair=absorbed if self.indexer else expanded,
                cache_bytes=(self.kv_lora + self.rope_dim) * layout.cache_bytes,
                windowed=self.indexer is not None,
                heads=(heads, 0),
            ),
            *((elementwise("gate", 3 * heads * self.v_dim, layout, splits=True),) * (self.gate or self.head_gate)),
            output,
            *all_reduce("all-reduce after attention", hidden, layout),
        )

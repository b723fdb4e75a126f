"""Attention to compressed tokens: each query reads the last few tokens whole, and older ones as rows of several."""

from dataclasses import replace
from typing import Literal, Self

from pydantic import model_validator

from simulator.errors import NotModelledError, ProfileError
from simulator.models.latent import Indexer
from simulator.models.layout import Layout, Weights
from simulator.models.op_builders import SINGLE, Ops, PositiveInt, all_reduce, elementwise, linear
from simulator.models.operations import Counts, Op
from simulator.profile import Strict

ROW_FORMAT, NUMBERS_PER_SCALE = "fp8", 64  # of a cached row: fp8 numbers, each 64 with a scale of a byte
ROTARY_BYTES, PADDING_BYTES = 2, 1  # a rotary number stays in 16 bits
STATE_BYTES = 4  # a number that waits to be compressed is in fp32
STATE_TRAFFIC = 2  # 16-bit numbers that one of fp32 moves


class Compressor(Strict):
    """Sums `ratio` tokens, weighted number by number, to one row of `width`; with `overlap`, those before them, too.

    Two projections of the layer's input, rows and their weights, in the model's own type on every device. Source:
    transformers 5.24.0, DeepseekV4HCACompressor and DeepseekV4CSACompressor; states as vLLM keeps them
    (model_executor/layers/deepseek_compressor.py, read 2026-11-27).

    >>> Compressor(width=512, ratio=4, overlap=True).columns, Compressor(width=512, ratio=128).columns
    (2048, 1024)
    """

    width: PositiveInt
    ratio: PositiveInt
    overlap: bool = False

    @property
    def columns(self) -> int:
        """Outputs of both projections together."""
        return 2 * (1 + self.overlap) * self.width

    def weights(self, hidden: int) -> Weights:
        """Parameters: both projections, a bias for each place in a row, a norm."""
        return Weights(other=self.columns * hidden + self.ratio * self.columns // 2 + self.width)

    @property
    def state_bytes(self) -> float:
        """Bytes of the tokens of one sequence that wait, whatever its length."""
        return float(self.columns * (1 + self.overlap) * self.ratio * STATE_BYTES)

    def ops(self, name: str, hidden: int, layout: Layout) -> Ops:
        """Projections; a kernel keeps what they give, another sums, norms and stores it once for each row."""
        moved = (3 + self.overlap) * STATE_TRAFFIC * self.columns
        kept = elementwise(f"{name} compression", moved, layout, splits=True)
        return linear(f"{name} compressor", (hidden, self.columns), layout, "other"), replace(kept, launches=2)


class CompressedAttention(Strict):
    """One head of keys that are values: the last `local` tokens, and a row for each `ratio` tokens, `indexer` chosen.

    Without `ratio` local tokens alone; without `indexer` all rows are read. Rows overlap where an indexer chooses them.
    Outputs leave in `output_groups` of heads, each through `output_lora` numbers. The cache is in fp8 whatever its
    type: FlashMLA has no other. Local tokens are read for each sequence and token as if all were there: fewer only in
    the first `local` of a sequence. Source: DeepSeek-V4 technical report (2026), section 2.3, as implemented in
    transformers 5.24.0 and vLLM (deepseek_v4_attention.py, read 2026-11-27). Raises ProfileError for an indexer without
    a ratio, NotModelledError for one that layers share.
    """

    kind: Literal["compressed"]
    heads: PositiveInt
    q_lora: PositiveInt
    head_dim: PositiveInt
    rope_dim: PositiveInt
    output_groups: PositiveInt
    output_lora: PositiveInt
    local: PositiveInt
    ratio: PositiveInt | None = None
    indexer: Indexer | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.indexer and self.ratio is None:
            raise ProfileError("indexer without ratio", "it chooses among compressed rows", "Give ratio")
        if self.indexer and self.indexer.shared:
            raise NotModelledError("a shared indexer", "each layer of compressed rows has its own", "Leave shared out")
        return self

    @property
    def window(self) -> int | None:
        """Most tokens that the chosen rows hold, None where all rows are read; all are cached."""
        return self.indexer.chosen * self.ratio if self.indexer and self.ratio else None

    @property
    def _compressors(self) -> dict[str, Compressor]:
        if self.ratio is None:
            return {}
        overlap = self.indexer is not None
        found = {"kv": Compressor(width=self.head_dim, ratio=self.ratio, overlap=overlap)}
        if self.indexer:
            found["indexer"] = Compressor(width=self.indexer.head_dim, ratio=self.ratio, overlap=overlap)
        return found

    def _shares(self, layout: Layout) -> tuple[int, int]:
        """Return the columns of queries and the groups of outputs on one device."""
        groups = layout.share(self.output_groups, "groups of outputs")
        return layout.share(self.heads, "attention heads") * self.head_dim, groups

    def weights(self, hidden: int, layout: Layout = SINGLE) -> Weights:
        """Parameters on one device; what makes keys, rows and the index is replicated over tp."""
        columns, groups = self._shares(layout)
        mixer = hidden * (self.q_lora + self.head_dim) + self.q_lora * columns
        output = columns * self.output_lora + groups * self.output_lora * hidden
        other = self.q_lora + self.head_dim + columns // self.head_dim  # two norms, a sink for each head
        if self.indexer:
            mixer += self.q_lora * self.indexer.heads * self.indexer.head_dim
            other += hidden * self.indexer.heads
        rows = (each.weights(hidden) for each in self._compressors.values())
        return sum(rows, Weights(mixer=mixer, output=output, other=other))

    @property
    def row_bytes(self) -> int:
        """Bytes of one cached row.

        >>> flash = {"heads": 64, "q_lora": 1024, "output_groups": 8, "output_lora": 1024, "local": 128}
        >>> CompressedAttention(kind="compressed", head_dim=512, rope_dim=64, **flash).row_bytes
        584
        """
        plain = self.head_dim - self.rope_dim
        return plain + -(-plain // NUMBERS_PER_SCALE) + PADDING_BYTES + ROTARY_BYTES * self.rope_dim

    def cache_bytes_per_token(self, _layout: Layout = SINGLE) -> float:
        """Bytes per token of rows and of the index's keys, whole on every tp device; local tokens are a state."""
        index = self.indexer.cache_bytes_per_token() if self.indexer else 0.0
        return (self.row_bytes + index) / self.ratio if self.ratio else 0.0

    def state_bytes(self, _layout: Layout = SINGLE) -> float:
        """Bytes per sequence whatever its length: its local tokens, and those that wait to be compressed."""
        return self.local * self.row_bytes + sum(each.state_bytes for each in self._compressors.values())

    def ops(self, hidden: int, layout: Layout) -> Ops:
        """Projections, compression, indexer, attention, grouped output projections, all-reduce."""
        columns, groups = self._shares(layout)
        narrow = groups * self.output_lora
        moved = 2 * (columns + self.head_dim)
        down = linear("output down", (columns // groups, narrow), layout, "output")
        return (
            linear("query and kv down", (hidden, self.q_lora + self.head_dim), layout, "mixer"),
            linear("query up", (self.q_lora, columns), layout, "mixer"),
            elementwise("rope and cache write", moved, layout, splits=True),
            *(op for name, each in self._compressors.items() for op in each.ops(name, hidden, layout)),
            *self._index(hidden, layout),
            *self._attention(columns, layout),
            elementwise("rope of outputs", 2 * columns, layout),
            replace(down, activation_bytes=Counts(tokens=(columns + narrow) * layout.activation_bytes)),
            linear("output projection", (narrow, hidden), layout, "output"),
            *all_reduce("all-reduce after attention", hidden, layout),
        )

    def _index(self, hidden: int, layout: Layout) -> Ops:
        """Score every row's key; every device does."""
        if not self.indexer or not self.ratio:
            return ()
        scores = (
            replace(op, flops=op.flops.over(self.ratio), cache_bytes=op.cache_bytes.over(self.ratio))
            for op in self.indexer.ops()
        )
        return (
            linear("indexer query", (self.q_lora, self.indexer.heads * self.indexer.head_dim), layout, "mixer"),
            linear("indexer weights", (hidden, self.indexer.heads), layout, "other"),
            *scores,
        )

    def _attention(self, columns: int, layout: Layout) -> Ops:
        """Return the ops of attention, one kernel over local tokens and rows: decode, and prompts."""
        suffix, share = "_windowed" if self.indexer else "", 1.0 / self.ratio if self.ratio else 0.0
        flops, heads = 4.0 * columns, columns / self.head_dim

        def of_rows(each: float, per_sequence: str, per_token: str) -> Counts:
            return Counts(**{per_sequence: each * self.local, f"{per_token}{suffix}": each * share})

        return (
            Op(
                name="decode attention",
                rate="decode_attention",
                splits=True,
                format=layout.model_dtype,
                flops=of_rows(flops, "logits", "decode_reads"),
                cache_bytes=of_rows(float(self.row_bytes), "logits", "decode_reads"),
                shared_by=heads,
                latent_heads=heads,
                cache_format=ROW_FORMAT,
            ),
            Op(
                name="prefill attention",
                rate="prefill_attention",
                splits=True,
                format=layout.model_dtype,
                flops=of_rows(flops, "prefill_tokens", "prefill_pairs"),
                shared_by=heads,
            ),
        )

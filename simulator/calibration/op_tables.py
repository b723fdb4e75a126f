"""Measured ops to the seconds of a step: tables by shape and tokens, attention by lengths, corrected by a few steps.

No engine is needed here: the tables are numbers, and their file a record. The result is a `StepTable`, so the simulator
runs on measured ops exactly as it runs on a profile.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from simulator.errors import ProfileError
from simulator.models.layers import Attention, Dense
from simulator.models.model import Model
from simulator.models.operations import Counts
from simulator.roofline.step_model import StepTable

Floats = npt.NDArray[np.float64]
KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)  # tokens at which steps correct the tables
STIFFNESS = 0.03  # relative error at which a correction of a knot by 100 % is as bad


@dataclass(frozen=True, slots=True)
class OpTables:
    """Seconds of single ops on one device, as measured.

    `gemm`: "inputs x outputs" -> tokens -> seconds. `decode_attention`: rows (sequences, context, seconds) of one
    layer. `prefill_attention`: rows (new tokens, past tokens, seconds). `layer_rest`: tokens -> seconds of everything
    else in a layer. `host_s`, `host_sequence_s`: the engine's own time per step and per sequence.
    """

    gemm: Mapping[str, Mapping[int, float]]
    decode_attention: tuple[tuple[int, int, float], ...]
    prefill_attention: tuple[tuple[int, int, float], ...]
    layer_rest: Mapping[int, float]
    host_s: float
    host_sequence_s: float

    def gemm_seconds(self, inputs: int, outputs: int, tokens: Floats) -> Floats:
        """Interpolate between measured tokens, straight in both logarithms."""
        key = f"{inputs}x{outputs}"
        if key not in self.gemm:
            raise ProfileError(f"GEMM {key}", "the tables do not have it", "Measure the tables with this model")
        return _interpolated(self.gemm[key], tokens)

    def write(self, path: Path) -> None:
        """Write them as JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        path.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")


def _interpolated(row: Mapping[int, float], tokens: Floats) -> Floats:
    """Interpolate in logarithms; beyond the last measured number of tokens, in proportion."""
    known = np.array(sorted(row), dtype=np.float64)
    seconds = np.array([row[int(each)] for each in known])
    inside = np.exp(np.interp(np.log(np.maximum(tokens, 1)), np.log(known), np.log(seconds)))
    return np.where(tokens > 0, inside * np.maximum(1.0, tokens / known[-1]), 0.0)


def gemm_shapes(model: Model) -> Counter[tuple[int, int]]:
    """Count the products of a step by (inputs, outputs), without the head; routed experts are no single product.

    >>> from simulator.models.model import load_model
    >>> gemm_shapes(load_model("llama-3.1-8b"))[4096, 6144]
    32
    """
    found: Counter[tuple[int, int]] = Counter()
    for name in model.layer_names:
        mixer, ffn = model.blocks[name].mixer, model.blocks[name].ffn
        if isinstance(mixer, Attention):
            wide, narrow = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
            found[model.hidden, wide + 2 * narrow] += 1
            found[wide, model.hidden] += 1
        if isinstance(ffn, Dense):
            found[model.hidden, 2 * ffn.intermediate] += 1
            found[ffn.intermediate, model.hidden] += 1
    return found


def step_table(tables: OpTables, model: Model, max_tokens: int, max_sequences: int) -> StepTable:
    """Compose a step from measured ops: what depends on tokens, on sequences, and on the lengths of the cache."""
    layers = len(model.layer_names)
    tokens, sequences = np.arange(max_tokens + 1.0), np.arange(max_sequences + 1.0)
    token_s = tables.host_s + layers * _interpolated(tables.layer_rest, tokens)
    for (inputs, outputs), times in gemm_shapes(model).items():
        token_s = token_s + times * tables.gemm_seconds(inputs, outputs, tokens)
    per_step, per_sequence, per_read = decode_line(tables)
    per_token, per_pair = prefill_line(tables, per_step + per_sequence)
    logit_s = tables.gemm_seconds(model.hidden, model.vocab, sequences) + tables.host_sequence_s * sequences
    logit_s = logit_s + np.where(sequences > 0, layers * (per_step + per_sequence * sequences), 0.0)
    full, windowed = (float(each) for each in model.attention_layers)
    slopes = [full * per_read, windowed * per_read, layers * per_token, full * per_pair, windowed * per_pair]
    return StepTable(token_s, np.ascontiguousarray(logit_s), np.array(slopes))


def decode_line(tables: OpTables) -> tuple[float, float, float]:
    """Fit seconds = a + b sequences + c tokens read to decode attention, each row by its relative error."""
    sequences, context, seconds = np.array(tables.decode_attention).T
    columns = np.stack([np.ones(len(seconds)), sequences, sequences * context], axis=1)
    per_step, per_sequence, per_read = _positive_fit(columns, seconds, seconds).tolist()
    return per_step, per_sequence, per_read


def prefill_line(tables: OpTables, fixed_s: float) -> tuple[float, float]:
    """Fit seconds = fixed + a tokens + b pairs to prompt attention; `fixed_s` is charged per sequence elsewhere."""
    new, past, seconds = np.array(tables.prefill_attention).T
    columns = np.stack([new, new * past + new * (new + 1) / 2], axis=1)
    per_token, per_pair = _positive_fit(columns, seconds - fixed_s, seconds).tolist()
    return per_token, per_pair


def _positive_fit(columns: Floats, aims: Floats, scale: Floats) -> Floats:
    """Least squares of errors over `scale` with no coefficient below 0: negative ones are dropped, one at a time."""
    kept = list(range(columns.shape[1]))
    while True:
        found = np.linalg.lstsq(columns[:, kept] / scale[:, None], aims / scale, rcond=None)[0]
        if (found >= 0).all() or len(kept) == 1:
            break
        kept.pop(int(found.argmin()))
    result = np.zeros(columns.shape[1])
    result[kept] = np.maximum(found, 0.0)
    return result


def table_seconds(table: StepTable, counts: Counts) -> float:
    """Return what the simulator would say for one step."""
    lengths = (
        counts.decode_reads,
        counts.decode_reads_windowed,
        counts.prefill_tokens,
        counts.prefill_pairs,
        counts.prefill_pairs_windowed,
    )
    attention = float(table.slopes @ np.array(lengths, dtype=np.float64))
    return float(table.token_s[int(counts.tokens)] + table.logit_s[int(counts.logits)] + attention)


def fitted(table: StepTable, measured: Sequence[tuple[Counts, float]]) -> StepTable:
    """Fit a table of the right shape to measured steps: first one factor for all of it, then its parts.

    token_s is scaled by a curve over tokens (straight between `KNOTS` in the logarithm), logit_s by one factor, the
    decode slopes by one, the prompt slopes by one: a linear least-squares fit of relative errors, held to factors of 1
    by `STIFFNESS`, and to factors of neighbours by the same.
    """
    overall = float(np.median([seconds / table_seconds(table, counts) for counts, seconds in measured]))
    table = StepTable(overall * table.token_s, overall * table.logit_s, overall * table.slopes)
    tokens = np.arange(len(table.token_s), dtype=np.float64)
    knots = np.array([each for each in KNOTS if each < len(tokens)] or [1], dtype=np.float64)
    shares = _shares(tokens, knots)
    rows = []
    for counts, _ in measured:
        at = int(counts.tokens)
        decode = table.slopes[0] * counts.decode_reads + table.slopes[1] * counts.decode_reads_windowed
        prompt = table_seconds(table, counts) - table.token_s[at] - table.logit_s[int(counts.logits)] - decode
        rows.append([*(shares[at] * table.token_s[at]), table.logit_s[int(counts.logits)], decode, prompt])
    seconds = np.array([each for _, each in measured])
    columns = np.array(rows, dtype=np.float64) / seconds[:, None]
    count = columns.shape[1]
    smooth = np.diff(np.eye(count)[: len(knots)], axis=0)
    ties = np.concatenate([STIFFNESS * np.eye(count), STIFFNESS * smooth])
    aims = np.concatenate([np.full(count, STIFFNESS), np.zeros(len(smooth))])
    known = np.concatenate([np.ones(len(seconds)), aims])
    factors = np.clip(np.linalg.lstsq(np.concatenate([columns, ties]), known, rcond=None)[0], 0.2, 5.0)
    logit, decode, prompt = factors[len(knots) :]
    scale = np.array([decode, decode, prompt, prompt, prompt])
    return StepTable(shares @ factors[: len(knots)] * table.token_s, logit * table.logit_s, scale * table.slopes)


def _shares(tokens: Floats, knots: Floats) -> Floats:
    """Return the weight of each knot at each number of tokens: 1 in every row."""
    place = np.interp(np.log(np.maximum(tokens, 1)), np.log(knots), np.arange(len(knots)))
    return np.maximum(0.0, 1.0 - np.abs(place[:, None] - np.arange(len(knots))))

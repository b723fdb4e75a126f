"""From measured ops to seconds of a step: GEMMs by shape and tokens, attention by lengths, corrected by a few steps.

No engine is needed here: the tables are numbers in a file. The result is a `StepTable`, so the simulator runs on
measured ops exactly as it runs on a profile.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulator.arrays import Floats
from simulator.errors import ProfileError
from simulator.files import write_whole
from simulator.models.layers import Attention, Dense
from simulator.models.model import Model
from simulator.models.operations import Counts
from simulator.roofline.graphs import HostLaunch
from simulator.roofline.step_model import StepTable

KNOTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)  # tokens at which measured steps correct
STIFFNESS = 0.03  # a factor of 2 at a knot costs the fit as much as a relative error of 0.03


@dataclass(frozen=True, slots=True)
class OpTables:
    """Measured seconds of single ops on one device.

    `gemm`: "inputs x outputs" -> tokens -> seconds. `decode_attention`: rows (sequences, context in tokens, seconds) of
    one layer. `prefill_attention`: rows (new tokens, past tokens, seconds) of one layer. `layer_rest`: tokens ->
    seconds of everything else in a layer. `host_s`, `host_sequence_s`: the engine's own seconds per step and per
    sequence. `prompt_least_s`: seconds of a step with prompts at least, where the host launches its kernels one by one.
    """

    gemm: Mapping[str, Mapping[int, float]]
    decode_attention: tuple[tuple[int, int, float], ...]
    prefill_attention: tuple[tuple[int, int, float], ...]
    layer_rest: Mapping[int, float]
    host_s: float
    host_sequence_s: float
    prompt_least_s: float = 0.0

    def gemm_seconds(self, inputs: int, outputs: int, tokens: Floats) -> Floats:
        """Return the seconds of a GEMM, of the shape of `tokens`, float64, interpolated between measured tokens.

        Straight in both logarithms; in proportion to tokens beyond the last. Raises ProfileError for a GEMM that was
        not measured.

        >>> table = OpTables({"8x8": {1: 1.0, 4: 2.0}}, (), (), {}, 0.0, 0.0)
        >>> table.gemm_seconds(8, 8, np.array([0.0, 2.0, 8.0])).round(3)
        array([0.   , 1.414, 4.   ])
        """
        key = f"{inputs}x{outputs}"
        if key not in self.gemm:
            raise ProfileError(f"GEMM {key}", "the tables do not have it", "Measure the tables with this model")
        return _interpolated(self.gemm[key], tokens)

    def write(self, path: Path) -> None:
        """Write the tables as JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        write_whole(path, json.dumps(fields, indent=1) + "\n")


def _interpolated(row: Mapping[int, float], tokens: Floats) -> Floats:
    """Interpolate in logarithms; beyond the last measured number of tokens, in proportion."""
    known = np.array(sorted(row), dtype=np.float64)
    seconds = np.array([row[int(each)] for each in known])
    inside = np.exp(np.interp(np.log(np.maximum(tokens, 1)), np.log(known), np.log(seconds)))
    return np.where(tokens > 0, inside * np.maximum(1.0, tokens / known[-1]), 0.0)


def gemm_shapes(model: Model) -> Counter[tuple[int, int]]:
    """Return how often each GEMM (inputs, outputs) runs in a step, without logits; routed experts are left out.

    Llama-3.1-8B has 32 layers, whose queries, keys and values are one GEMM of 4,096 x (4,096 + 2 x 1,024)
    (config.json).

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
    """Return the seconds of steps up to `max_tokens` tokens and `max_sequences` sequences, composed of measured ops.

    token_s = host + layers x rest + GEMMs; logit_s = logits' GEMM + host per sequence + the part of decode attention
    that does not depend on lengths; slopes: seconds per count of attention. Raises ProfileError for a GEMM that was not
    measured.
    """
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
    least_s = tables.prompt_least_s
    return StepTable(token_s, np.ascontiguousarray(logit_s), np.array(slopes), prompts=HostLaunch(least_s))


def decode_line(tables: OpTables) -> tuple[float, float, float]:
    """Return (a, b, c) of seconds = a + b x sequences + c x tokens read, fitted to one layer's decode attention.

    Least squares of relative errors, none of the three negative.
    """
    sequences, context, seconds = np.array(tables.decode_attention).T
    columns = np.stack([np.ones(len(seconds)), sequences, sequences * context], axis=1)
    per_step, per_sequence, per_read = _positive_fit(columns, seconds, seconds).tolist()
    return per_step, per_sequence, per_read


def prefill_line(tables: OpTables, fixed_s: float) -> tuple[float, float]:
    """Return (a, b) of seconds = fixed_s + a x tokens + b x query-key pairs, fitted to one layer's prefill attention.

    `fixed_s` is charged per sequence elsewhere. Least squares of relative errors, neither a nor b negative.
    """
    new, past, seconds = np.array(tables.prefill_attention).T
    columns = np.stack([new, new * past + new * (new + 1) / 2], axis=1)
    per_token, per_pair = _positive_fit(columns, seconds - fixed_s, seconds).tolist()
    return per_token, per_pair


def _positive_fit(columns: Floats, aims: Floats, scale: Floats) -> Floats:
    """Return the least-squares coefficients of errors over `scale`; negative ones are set to 0, one at a time."""
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
    """Return the seconds of one step by a table, as the event loop computes them."""
    return table.prompts.least_s if _waits_for_host(table, counts) else _kernels_s(table, counts)


def _waits_for_host(table: StepTable, counts: Counts) -> bool:
    """Tell whether the host launches the kernels of a step with prompts more slowly than they run."""
    return bool(counts.prefill_tokens > 0 and _kernels_s(table, counts) < table.prompts.least_s)


def _kernels_s(table: StepTable, counts: Counts) -> float:
    """Return the seconds of one step by a table, but for the least of steps with prompts."""
    lengths = (
        counts.decode_reads,
        counts.decode_reads_windowed,
        counts.prefill_tokens,
        counts.prefill_pairs,
        counts.prefill_pairs_windowed,
    )
    attention = float(table.slopes @ np.array(lengths, dtype=np.float64))
    return float(table.token_s[int(counts.tokens)] + table.logit_s[int(counts.logits)] + attention)


def fit_step_table(table: StepTable, measured: Sequence[tuple[Counts, float]]) -> StepTable:
    """Return a table fitted to measured steps (counts, seconds): first scaled by one factor, then part by part.

    token_s is scaled by a curve over tokens (straight between `KNOTS` in the logarithm), logit_s by one factor, the
    decode slopes by one, the prompt slopes by one: a linear least-squares fit of relative errors, tied to factors of 1
    and to the factors of neighbouring knots by `STIFFNESS`; factors are kept within 0.2 and 5. Steps that wait for the
    host tell how long that takes, and nothing else: their median.
    """
    launched = [seconds for counts, seconds in measured if _waits_for_host(table, counts)]
    least_s = float(np.median(launched)) if launched else table.prompts.least_s
    measured = [(counts, seconds) for counts, seconds in measured if not _waits_for_host(table, counts)]
    overall = float(np.median([seconds / table_seconds(table, counts) for counts, seconds in measured]))
    table = StepTable(overall * table.token_s, overall * table.logit_s, overall * table.slopes)
    tokens = np.arange(len(table.token_s), dtype=np.float64)
    knots = np.array([each for each in KNOTS if each < len(tokens)] or [1], dtype=np.float64)
    weights = _knot_weights(tokens, knots)
    rows = []
    for counts, _ in measured:
        at = int(counts.tokens)
        decode = table.slopes[0] * counts.decode_reads + table.slopes[1] * counts.decode_reads_windowed
        prompt = _kernels_s(table, counts) - table.token_s[at] - table.logit_s[int(counts.logits)] - decode
        rows.append([*(weights[at] * table.token_s[at]), table.logit_s[int(counts.logits)], decode, prompt])
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
    token_s = weights @ factors[: len(knots)] * table.token_s
    return StepTable(token_s, logit * table.logit_s, scale * table.slopes, prompts=HostLaunch(least_s))


def _knot_weights(tokens: Floats, knots: Floats) -> Floats:
    """Return the weight of each knot at each number of tokens, shape (tokens, knots); each row sums to 1."""
    place = np.interp(np.log(np.maximum(tokens, 1)), np.log(knots), np.arange(len(knots)))
    return np.maximum(0.0, 1.0 - np.abs(place[:, None] - np.arange(len(knots))))

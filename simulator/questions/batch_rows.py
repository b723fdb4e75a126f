"""The answer to a question about one batch: a row of figures in SI units, each with its interval beside it."""

from simulator.deployment.estimate import Estimate, Phase
from simulator.frames import Row
from simulator.questions.row_intervals import intervals
from simulator.reports.intervals import PredictionRange

PREDICTED = {  # a row's predicted keys, and the metric of published measurements whose errors give their interval
    **{
        "ttft_s": "ttft_ms",
        "tpot_s": "tpot_ms",
        "median_tpot_s": "tpot_ms",
        "e2el_s": "e2e_latency_ms",
        "tokens_per_s_user": "1/tpot_ms",
    },
    **{"output_tokens_per_s": "throughput_out_tok_s", "total_tokens_per_s": "throughput_total_tok_s"},
    **{"requests_per_s": "req_s", "prompt_tokens_per_s": "pp_tok_s", "decode_tokens_per_s": "tg_tok_s"},
}
OF_PHASES = {"prefill_s": "ttft_ms", "decode_s": "tpot_ms"}  # the same for the details of a row


def batch_row(found: Estimate, level: float | None = 0.8, replicas: int = 1, *, with_details: bool = True) -> Row:
    """Return the figures of an estimated batch as one row: seconds (`*_s`), tokens or requests per second (`*_per_s`).

    Each predicted key has its interval beside it (`*_low`, `*_high`), which contains a share `level` of measurements;
    `level` None leaves intervals out. Batch and throughputs are those of all `replicas`. `with_details` adds the speed
    of light (`light_*`: the data sheet's peaks without overhead) and what binds each phase.
    """
    row, predicted = _figures(found, replicas), PREDICTED
    if with_details:
        row, predicted = {**row, **_details(found)}, PREDICTED | OF_PHASES
    if level is None:
        return row
    regime = "single" if found.batch.size == 1 else "fixed_batch"
    return {**row, **intervals(PredictionRange(found.deployment, regime, level, row), predicted)}


def _figures(found: Estimate, replicas: int) -> Row:
    batch, expected, size = found.batch, found.expected, found.batch.size * replicas
    return {
        "batch": size,
        "input_tokens": batch.prompt_tokens,
        "output_tokens": batch.output_tokens,
        "ttft_s": expected.ttft_s,
        "tpot_s": expected.tpot_s,
        "median_tpot_s": expected.median_tpot_s,
        "e2el_s": expected.e2el_s,
        "tokens_per_s_user": found.tokens_per_s_user,
        "output_tokens_per_s": size * batch.output_tokens / expected.e2el_s,
        "total_tokens_per_s": size * (batch.prompt_tokens + batch.output_tokens) / expected.e2el_s,
        "requests_per_s": size / expected.e2el_s,
        "prompt_tokens_per_s": size * batch.prompt_tokens / found.prefill_s,
        "decode_tokens_per_s": size / expected.tpot_s if expected.tpot_s else None,
    }


def _details(found: Estimate) -> Row:
    """Return the speed of light of the latencies, the share of the cache, and what binds each phase."""
    light = found.light
    return {
        "light_ttft_s": light.ttft_s,
        "light_tpot_s": light.tpot_s,
        "light_e2el_s": light.e2el_s,
        "cache_share": found.cache_share,
        "speculation_speedup": found.speedup,
        **_phase_figures("prefill", found.prefill),
        **_phase_figures("decode", found.decode),
        "decode_context_tokens": found.batch.middle_tokens,
        "request_s": found.request.seconds,
        "request_op": found.request.binding.time.name if found.request.ops else "",
        "request_op_share": found.request.share(found.request.binding) if found.request.ops else None,
    }


def _phase_figures(name: str, phase: Phase) -> Row:
    """Return seconds of a phase, the resource that binds most of it, its longest op, and what binds that op."""
    op, (resource, share) = phase.binding, phase.mostly
    return {
        f"{name}_steps": phase.steps,
        f"{name}_s": phase.seconds,
        f"light_{name}_s": phase.light_s,
        f"{name}_mostly": resource,
        f"{name}_mostly_share": share,
        f"{name}_op": op.time.name,
        f"{name}_op_share": phase.share(op),
        f"{name}_bound": op.time.bound,
        f"{name}_margin": op.margin,
        f"{name}_runner_up": op.runner_up,
    }

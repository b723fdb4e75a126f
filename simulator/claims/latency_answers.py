"""Answers from one batch alone: seconds of prefill and decode, their shares, what binds, and the work behind them."""

from typing import Any

from simulator.claims.cases import estimated
from simulator.deployment.estimate import Phase
from simulator.questions.batch_rows import batch_row

LONGEST_SEARCHED_TOKENS = 4096


def estimate(key: str, **options: Any) -> float:
    """Return a key of the row that `infercast estimate` prints, in its unit."""
    return float(batch_row(estimated(options), None)[key])


def prefill_share(**options: Any) -> float:
    """Return the share of TTFT in the time of a whole answer."""
    found = estimated(options).expected
    return found.ttft_s / found.e2el_s


def answer_s(network_s: float = 0.0, **options: Any) -> float:
    """Return the seconds of a whole answer as its user sees it, with the network's round trip."""
    return estimated(options).expected.e2el_s + network_s


def decode_s(**options: Any) -> float:
    """Return the seconds in which all output tokens after the first are generated."""
    found = estimated(options).expected
    return found.e2el_s - found.ttft_s


def bound_share(phase: str, resource: str, **options: Any) -> float:
    """Return the share of a phase's time that is bound by a resource: compute, memory, link or overhead."""
    return _bound_share(getattr(estimated(options), phase), resource)


def _bound_share(phase: Phase, resource: str) -> float:
    return sum(phase.share(op) for op in phase.ops if op.time.bound == resource)


def compute_bound_tokens(**options: Any) -> float:
    """Return the shortest prompt, in tokens, half of whose prefill is bound by compute; at most 4,096."""
    low, high = 1, LONGEST_SEARCHED_TOKENS
    while low < high:
        middle = (low + high) // 2
        found = estimated({**options, "input_len": str(middle), "output_len": "1"})
        low, high = (low, middle) if _bound_share(found.prefill, "compute") >= 0.5 else (middle + 1, high)
    return float(low)


def prefill_flops(part: str = "", **options: Any) -> float:
    """Return the FLOPs of the prefill, of ops whose name contains `part`."""
    return sum(float(op.time.flops) for op in estimated(options).prefill.ops if part in op.time.name)


def link_share(phase: str, **options: Any) -> float:
    """Return the share of a phase's time that devices spend on exchanging data."""
    found: Phase = getattr(estimated(options), phase)
    return sum(found.share(op) for op in found.ops if op.time.link_s)


def token_rate_cap(**options: Any) -> float:
    """Return the bandwidth of the device over the bytes of the weights: no more tokens/s for one request."""
    found = estimated(options)
    return found.deployment.hardware.memory_bytes_per_s / found.plan.weight_bytes


def reached_of_cap(**options: Any) -> float:
    """Return the predicted tokens/s of one request over the cap of the bandwidth."""
    return (estimated(options).tokens_per_s_user or 0.0) / token_rate_cap(**options)


def weight_readings_s(**options: Any) -> float:
    """Return the seconds in which the weights are read once for each output token, at the bandwidth of the device."""
    return estimated(options).batch.output_tokens / token_rate_cap(**options)


def answer_sum_s(prefill_s: float, decode_step_s: float, network_s: float, output_len: str) -> float:
    """Return the seconds of an answer as texts add them up: prefill + tokens x seconds of each + network."""
    return prefill_s + int(output_len) * decode_step_s + network_s


def slowdown_without_cache(**options: Any) -> float:
    """Return the seconds of an answer without a KV cache over those with one, both at the speed of light.

    Without the host's times, so that the contrast is the cache alone.
    """
    without = estimated({**options, "engine": "naive"}).light
    return without.e2el_s / estimated(options).light.e2el_s


FIBRE_M_PER_S = 299_792_458 / 1.4682  # group index of single-mode fibre at 1550 nm: Corning SMF-28 data sheet


def fibre_round_trip_s(distance_km: float) -> float:
    """Return the seconds of light through a fibre, there and back: 2 d n / c; switches and detours come on top.

    >>> round(fibre_round_trip_s(1000.0) * 1e3, 1)
    9.8
    """
    return 2e3 * distance_km / FIBRE_M_PER_S


WORDS_PER_S = 238 / 60  # silent reading of English: Brysbaert, Journal of Memory and Language 109, 2019
TOKENS_PER_WORD = 100 / 75  # of English: OpenAI's help pages, "What are tokens and how to count them?"


def reading_tokens_per_s() -> float:
    """Return the tokens/s at which people read.

    >>> round(reading_tokens_per_s(), 1)
    5.3
    """
    return WORDS_PER_S * TOKENS_PER_WORD

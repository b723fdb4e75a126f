"""Requests that an engine rejects on arrival, because it could never finish them. Rule Z: docs/serving-rules.md."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from simulator.arrays import Bools, Ints
from simulator.errors import WorkloadError
from simulator.scheduler.state import STATIC, UNCACHED, SchedulerLimits, most_blocks
from simulator.workloads.workload import Requests

REMEDY = "Give shorter requests, a larger --max-model-len or --max-num-batched-tokens, or more memory"
Reasons = dict[str, Bools]  # which requests, of shape (requests,), an engine rejects for what


@dataclass(frozen=True, slots=True)
class Rejected:
    """What engines answered with an error (vLLM: HTTP 400) instead of tokens.

    `rows` of the workload, shape (rejected,), int64, in its order; `reasons`: how many for each reason, in words.
    """

    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    reasons: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, reasons: Reasons, count: int) -> "Rejected":
        """Return what engines reject of `count` requests; each counts for the first of its reasons.

        Raises WorkloadError where nothing is left.
        """
        found, counts = np.zeros(count, bool), dict[str, int]()
        for because, refused in reasons.items():
            if new := int((refused & ~found).sum()):
                counts[because] = new
            found |= refused
        rejected = cls(np.flatnonzero(found), counts)
        if len(rejected) == count:
            given = f"all {count:,} requests rejected" if count > 1 else "the request, rejected"
            raise WorkloadError(given, rejected.in_words(), REMEDY)
        return rejected

    def in_words(self) -> str:
        """Return the reason, or the reasons with how many requests each rejected."""
        if len(self.reasons) == 1:
            return next(iter(self.reasons))
        return "; ".join(f"{count:,} of {because}" for because, count in self.reasons.items())

    def accepted(self, count: int) -> Ints:
        """Return the other rows of a workload of `count` requests, int64."""
        return np.delete(np.arange(count), self.rows)


def rejections(allowed: SchedulerLimits, requests: Requests) -> Reasons:
    """Return which requests an engine of these limits rejects, for each reason: what it could never finish.

    Longer (prompt and output) than max_model_len; than the KV cache holds; or, where prompts are not chunked, a prompt
    of more tokens than a step computes. What a preemption makes an engine compute again is not looked at: a run in
    which that is too long ends with `engine_loop.stuck`.

    Source: vLLM's OpenAI server (`_validate_input`) answers HTTP 400 where prompt and max_tokens exceed max_model_len,
    and starts only where the cache holds max_model_len; its V0 scheduler ends prompts beyond a step unserved.
    """
    totals, found = requests.prompt_tokens + requests.output_tokens, Reasons()
    most = requests.max_total_tokens
    if 0 < allowed.max_model_len < most:
        found[f"more than {allowed.max_model_len:,} tokens (max_model_len)"] = totals > allowed.max_model_len
    if allowed.policy != UNCACHED and most_blocks(allowed, most) > allowed.num_blocks:
        fits = bisect_right(range(most + 1), allowed.num_blocks, key=lambda total: most_blocks(allowed, total)) - 1
        found[f"more than the {fits:,} tokens that the KV cache holds ({allowed.num_blocks:,} blocks)"] = totals > fits
    budget = allowed.max_num_batched_tokens
    if not allowed.chunked_prefill and allowed.policy not in (STATIC, UNCACHED) and requests.max_prompt_tokens > budget:
        found[f"prompts of more than {budget:,} tokens, not chunked (max_num_batched_tokens)"] = (
            requests.prompt_tokens > budget
        )
    return found

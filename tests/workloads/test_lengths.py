"""Length distributions: means within their confidence interval, vLLM's ranges, atoms, bands and pairs."""

import math

import numpy as np
import pytest
from pydantic import ValidationError

from simulator.errors import WorkloadError
from simulator.workloads.arrivals import ClosedLoop, OpenLoop
from simulator.workloads.lengths import MAX_TOKENS, Banded, Ended, LogNormal, Quantiles, Recorded, Uniform
from simulator.workloads.workload import Workload

TABLE = Quantiles(levels=(0, 0.5, 1), tokens=(1, 101, 1101))


@pytest.mark.parametrize(
    ("length", "mean", "deviation"),
    [
        (Uniform(10, 30), 20, math.sqrt((21**2 - 1) / 12)),
        (Uniform.around(1024, 0.5), 1024, 296),
        (LogNormal(600, cv=1.5), 600, 900),
        (TABLE, 0.5 * (51 + 601), 343.1),
    ],
)
def test_means_lie_in_their_confidence_interval(length: Uniform | LogNormal, mean: float, deviation: float) -> None:
    drawn = length.draw(200_000, np.random.default_rng(3))
    assert drawn.mean() == pytest.approx(mean, abs=4 * deviation / math.sqrt(200_000))
    assert drawn.std() == pytest.approx(deviation, rel=0.03)


def test_range_ratio_is_that_of_vllm() -> None:
    assert Uniform.around(100, 0.25) == Uniform(75, 125)
    assert Uniform.around(128, 0.1) == Uniform(115, 141)  # floor(115.2), ceil(140.8)
    assert Uniform.around(1, 0.9) == Uniform(1, 2)
    assert Uniform.around(100, 0.0) == Uniform(100, 100)
    drawn = Uniform(2, 4).draw(1000, np.random.default_rng(0))
    assert set(drawn.tolist()) == {2, 3, 4}


def test_log_normal_median_and_cut() -> None:
    drawn = LogNormal(600, cv=1.5, max_tokens=2000).draw(100_000, np.random.default_rng(0))
    assert np.median(drawn) == pytest.approx(600 / math.sqrt(1 + 1.5**2), rel=0.02)
    assert drawn.max() == 2000
    assert LogNormal(7, cv=0).draw(3, np.random.default_rng(0)).tolist() == [7, 7, 7]


@pytest.mark.parametrize(("mean", "most"), [(389.1, 512), (473.0, 512), (255.8, 256), (256.0, 256), (40.0, 4096)])
def test_answers_that_end_by_themselves_keep_their_mean_and_their_limit(mean: float, most: int) -> None:
    drawn = Ended(mean, most).draw(100_000, np.random.default_rng(1))
    assert drawn.mean() == pytest.approx(mean, abs=4 * drawn.std() / math.sqrt(100_000) + 0.5)  # (rounded to tokens)
    assert drawn.max() == most or mean < most / 10
    early = drawn[drawn < most]
    if len(early) > 1000:  # where they end before it, each token is as likely as the next one
        assert np.median(early) / early.max() < 0.5


def test_quantiles_hold_atoms() -> None:
    histogram = Quantiles(levels=(0, 0.25, 0.2501, 1), tokens=(5, 5, 80, 80))
    drawn = histogram.draw(40_000, np.random.default_rng(0))
    assert (drawn == 5).mean() == pytest.approx(0.25, abs=0.01)
    assert (drawn == 80).mean() == pytest.approx(0.75, abs=0.01)


def test_bands_tie_outputs_to_prompts_within_the_context() -> None:
    short, long = Quantiles(levels=(0, 1), tokens=(10, 10)), Quantiles(levels=(0, 1), tokens=(1000, 1000))
    banded = Banded(prompt=TABLE, output_by_prompt_band=(long, short), max_total_tokens=1108)
    requests = Workload(OpenLoop(1.0), banded, 1000).requests()
    below = requests.prompt_tokens < 101
    assert set(requests.output_tokens[below]) == {1000}
    assert set(requests.output_tokens[requests.prompt_tokens > 101]) <= {7, 8, 9, 10}
    assert requests.max_total_tokens == 1108


def test_a_trace_has_no_more_lengths_than_its_rows() -> None:
    lengths = Recorded(np.array([10, 20]), np.array([3, 4]))
    assert Workload(ClosedLoop(2), lengths, 2).requests().prompt_tokens.tolist() == [10, 20]
    with pytest.raises(WorkloadError, match="3 requests: the trace has 2"):
        Workload(ClosedLoop(2), lengths, 3).requests()


def test_a_table_of_lengths_no_context_holds_is_refused():
    assert Quantiles(levels=(0, 1), tokens=(1, MAX_TOKENS)).tokens[-1] == MAX_TOKENS
    with pytest.raises(ValidationError, match="they fall, or leave 1 to 2147483647"):
        Quantiles(levels=(0, 1), tokens=(1, MAX_TOKENS + 1))

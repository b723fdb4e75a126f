"""Decode steps that are decided at once (num_scheduler_steps): host time in estimate and loop, and refusals."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.deployment.batches import Batch
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.estimate import estimate
from simulator.deployment.layouts import default_layout
from simulator.deployment.settings import Settings
from simulator.deployment.speculation import NGRAM, Speculation
from simulator.engines.engine import load_engine
from simulator.errors import InfercastError, NotModelledError
from simulator.models.model import load_model
from simulator.models.operations import Counts
from simulator.simulation.engine_loop import simulate
from simulator.simulation.scheduler_limits import limits
from simulator.workloads.workload import Requests


def at_once(steps: int, engine: str = "vllm-0.5", **layout: int) -> Deployment:
    plain = load_engine(engine)
    changes = {"num_scheduler_steps": steps, "chunked_prefill": False}
    found = deploy("llama-3.1-8b", "h100-sxm", engine, layout=default_layout(load_model("llama-3.1-8b"), **layout))
    return replace(found, engine=plain.model_copy(update=changes))


def test_an_estimate_has_the_host_time_of_a_decode_once_for_all_that_are_decided():
    batch = Batch(64, 256, 9)
    plain, eight = (estimate(at_once(steps), batch) for steps in (1, 8))
    host_s = at_once(1).step_model().overheads.host_s(Counts(steps=1, logits=64, decode_reads=64 * 260.5))
    assert plain.expected.tpot_s - eight.expected.tpot_s == pytest.approx(host_s * 7 / 8)
    assert eight.expected.ttft_s == plain.expected.ttft_s
    assert eight.light == plain.light


def test_the_simulation_of_such_a_batch_is_its_estimate():
    """Sixteen decodes in two steps: as long as sixteen passes, two of which pay the host."""
    deployment = at_once(8)
    found = estimate(deployment, Batch(4, 256, 17))
    requests = Requests(np.zeros(4), np.full(4, 256), np.full(4, 17))
    run = simulate(limits(deployment, requests), deployment.step_table(), requests)
    assert run.steps.decodes.tolist() == [0, 4, 4]
    assert run.steps.seconds[1:].sum() / 16 == pytest.approx(found.expected.tpot_s, rel=1e-6)


def test_what_is_not_decided_at_once_is_refused():
    with pytest.raises(NotModelledError, match="num_scheduler_steps 8"):
        at_once(8, pp=2)
    with pytest.raises(NotModelledError, match="without chunked prefill"):
        at_once(8, "vllm")
    drafts = Settings(speculation=Speculation(NGRAM, 2, (0.5,)))
    with pytest.raises(InfercastError, match="beside speculative decoding"):
        replace(at_once(8), settings=drafts)

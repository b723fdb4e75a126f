"""The reference engine on a CUDA device, if there is one: what the CPU computes, with captured graphs and without."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from simulator.calibration.step_log import StepPart  # noqa: E402
from simulator.reference.batch import make_batch  # noqa: E402
from simulator.reference.catalogue import load_checkpoint  # noqa: E402
from simulator.reference.clock import RecordedClock  # noqa: E402
from simulator.reference.device import Device  # noqa: E402
from simulator.reference.engine import Executor, engine_limits, random_prompts, serve  # noqa: E402
from simulator.reference.transformer import Build, Transformer  # noqa: E402
from simulator.workloads.workload import Requests  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here")
REQUESTS = Requests(np.arange(6.0), [5, 60, 17, 33, 1, 40], [20] * 6)


def executor(name: str, dtype: str = "fp32", num_blocks: int = 60) -> Executor:
    return Executor(Transformer(load_checkpoint(name), Build(Device("cuda", dtype), num_blocks=num_blocks)))


def outputs(name: str, device: str, *, graphs: bool) -> list[list[int]]:
    engine = Executor(Transformer(load_checkpoint(name), Build(Device(device), num_blocks=60)), graphs=graphs)
    prompts = random_prompts(REQUESTS, engine.transformer.model.vocab)
    clock = RecordedClock(itertools.repeat(1.0))
    return list(serve(engine, engine_limits(engine.transformer, 8, 32), REQUESTS, prompts, clock).outputs)


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("name", ["random-250m", "random-tiny"])
def test_tokens_are_those_of_the_cpu(name, graphs):
    assert outputs(name, "cuda", graphs=graphs) == outputs(name, "cpu", graphs=False)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16])
def test_a_replayed_graph_computes_what_the_plain_step_does(count):
    """Twice, with other sequences: what was captured with the first is replayed with the second."""
    engine = executor("random-250m", num_blocks=200)
    for past in (30, 47):
        parts = [StepPart(row, 1, past + row) for row in range(count)]
        engine.known = [[(7 * place + row) % 100 for place in range(past + row + 1)] for row in range(count)]
        for row in range(count):  # fills the cache
            engine.logits([StepPart(row, past + row, 0)])
        replayed = engine.logits(parts).clone()
        tables = [engine.pool.grow(row, past + row + 1) for row in range(count)]
        tokens = [known[-1] for known in engine.known]
        plain = engine.transformer.forward(make_batch(parts, tokens, tables, engine.layout))
        torch.testing.assert_close(replayed, plain, atol=1e-4, rtol=1e-4)
        engine.pool.keep(set())


@pytest.mark.parametrize("name", ["random-250m", "random-tiny"])  # the second has windows
def test_one_kernel_attends_for_decodes_and_prompts_of_any_lengths(name):
    engine = executor(name, "bf16")
    assert engine.layout.ragged
    engine.known = [[(7 * place + row) % 100 for place in range(90)] for row in range(4)]
    engine.logits([StepPart(0, 40, 0), StepPart(1, 70, 0), StepPart(2, 20, 0)])
    parts = [StepPart(0, 1, 40), StepPart(1, 1, 70), StepPart(2, 30, 20), StepPart(3, 17, 0)]
    together = engine.logits(parts)
    tables = [engine.pool.held[row] for row in range(4)]
    tokens = [token for row, new, past in parts for token in engine.known[row][past : past + new]]
    apart = engine.transformer.forward(make_batch(parts, tokens, tables, engine.layout._replace(ragged=False)))
    assert (together - apart).float().norm() < 0.02 * apart.float().norm()  # of 8 bits of mantissa


def test_no_graph_is_captured_after_the_warm_up():
    engine = executor("random-250m", "bf16", num_blocks=256)
    engine.warm_up(8)
    captured = len(engine._graphs._captured)
    prompts = random_prompts(REQUESTS, engine.transformer.model.vocab)
    serve(engine, engine_limits(engine.transformer, 8, 32), REQUESTS, prompts, RecordedClock(itertools.repeat(1.0)))
    assert len(engine._graphs._captured) == captured > 20

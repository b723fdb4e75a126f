"""The floor that bounds stand on: no entry of a step table is below it, and it is close."""

import numpy as np
import pytest

from simulator import Settings, deploy, load_hardware, load_model
from simulator.deployment.layouts import running_layout
from simulator.deployment.speculation import Speculation
from simulator.engines.engine import load_engine
from tests.support.step_blocks import least_of

CASES = [
    ("llama-3.1-8b", "l40s", "vllm", {}),
    ("llama-3.1-8b", "h100-sxm", "vllm", {"tp": 8, "weight_dtype": "fp8"}),
    ("llama-3.1-8b", "h200-sxm", "vllm", {"weight_dtype": "fp8"}),
    ("llama-3.1-8b", "h100-sxm", "vllm-0.5", {"tp": 2}),
    ("llama-3.1-8b", "mi300x", "vllm", {"tp": 4}),
    ("llama-3.1-8b", "rtx-4090", "llama.cpp", {"pp": 2}),
    ("llama-3.1-8b", "xeon-8480", "llama.cpp", {}),
    ("gpt-oss-120b", "h100-sxm", "sglang", {"tp": 2, "ep": 2}),
    ("gpt-oss-120b", "b200-sxm", "tensorrt-llm", {"tp": 2, "pp": 2}),
    ("deepseek-v3", "h200-sxm", "vllm", {"dp": 8, "ep": 8}),
    ("deepseek-v3", "h200-sxm", "vllm", {"tp": 8, "pp": 2}),
    ("qwen3.5-27b", "h100-sxm", "vllm", {}),
]


def replica(case):
    model, device, engine, degrees = case
    profile = load_model(model), load_hardware(device), load_engine(engine)
    dtypes = degrees.get("weight_dtype", ""), ""
    layout = running_layout(
        *profile, dtypes=dtypes, **{name: degree for name, degree in degrees.items() if name != "weight_dtype"}
    )
    return deploy(model, device, profile[2].id, layout)


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)))
def test_no_step_is_below_its_floor(case):
    deployment = replica(case)
    table, floor = deployment.step_table(), deployment.step_floor()
    for found, seconds in ((floor.tokens, table.token_s[1:]), (floor.logits, table.logit_s)):
        exact = least_of(seconds)
        assert found.last.tolist() == exact.last.tolist()
        assert (found.seconds <= exact.seconds * (1 + 1e-12)).all()
        assert (found.seconds >= exact.seconds * 0.98).all()
    np.testing.assert_allclose(floor.slopes, table.slopes, rtol=1e-9, atol=1e-18)
    assert floor.least_s == table.least_s


def test_drafts_have_logits_and_steps_of_their_own():
    """Four drafts of a small model to each sequence: five logits, and what it reads for each token."""
    drafts = Speculation("llama-3.2-1b", 4, (0.8,))
    plain, drafted = (
        deploy("llama-3.1-8b", "h100-sxm", settings=Settings(speculation=each)) for each in (None, drafts)
    )
    table, floor = drafted.step_table(), drafted.step_floor()
    assert floor.logits.last[-1] == 5 * plain.step_floor().logits.last[-1] == len(table.logit_s) - 1
    np.testing.assert_allclose(floor.slopes, table.slopes, rtol=1e-9, atol=1e-18)
    assert floor.slopes.sum() > plain.step_floor().slopes.sum()


def test_slower_steps_have_a_floor_that_is_as_much_higher():
    floor = deploy("llama-3.1-8b", "h100-sxm").step_floor()._replace(least_s=0.002)
    slower = floor.times(1.5)
    for found, was in ((slower.tokens, floor.tokens), (slower.logits, floor.logits)):
        np.testing.assert_allclose(found.seconds, 1.5 * was.seconds)
        assert found.last.tolist() == was.last.tolist()
    np.testing.assert_allclose(slower.slopes, 1.5 * floor.slopes)
    assert slower.least_s == 0.003


def test_what_is_remembered_of_ops_is_that_of_the_same_kernels():
    plain = deploy("llama-3.1-8b", "h100-sxm")
    piped, longer, wider = (
        deploy("llama-3.1-8b", "h100-sxm", layout=running_layout(plain.model, plain.hardware, plain.engine, **degrees))
        for degrees in ({"pp": 2}, {"tp": 2, "pp": 8}, {"tp": 4, "pp": 4})  # 16 devices: sends between two nodes
    )
    for each in (plain, piped, longer, wider, plain):
        exact = least_of(each.step_table().token_s[1:]).seconds
        np.testing.assert_allclose(each.step_floor().tokens.seconds, exact, rtol=1e-12)

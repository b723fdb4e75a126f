"""What `compare` searches where nothing is said: devices by class, degrees that fit, formats of the device."""

import pytest

from simulator import Workload, load_workload, parse_slo
from simulator.cost.light_bounds import Demand
from simulator.errors import InfercastError
from simulator.questions.compare_question import CompareQuestion, devices

CHAT = load_workload("chat")
DEMAND = Demand(Workload(CHAT.arrivals(1.0), CHAT.lengths, 200).requests(), parse_slo("ttft:2s,tpot:100ms"))


def layouts(**asked):
    candidates = CompareQuestion(**asked).options(DEMAND).candidates
    return {(each.layout.tp, each.layout.pp, each.layout.ep, each.layout.dp) for each in candidates}


def formats(model: str, device: str, **asked):
    return {
        each.layout.weight_dtype for each in CompareQuestion(model, device, tp="1", **asked).options(DEMAND).candidates
    }


def test_devices_by_name_pattern_class_vendor_and_family():
    assert len(devices("all")) > 180
    assert {each.vendor for each in devices("apple")} == {"Apple"}
    assert {each.device_class for each in devices("cloud")} == {"datacenter-gpu", "accelerator"}
    assert {each.family for each in devices("hopper")} == {"hopper"}
    assert [each.id for each in devices("l40s,l40s,l4")] == ["l40s", "l4"]
    with pytest.raises(InfercastError, match="no device fits it"):
        devices("nothing*")


def test_dense_models_are_split_by_tensor_and_pipeline_parallelism():
    found = layouts(model="llama-3.1-8b", hardware="h100-sxm")
    assert {(1, 1, 1, 1), (8, 1, 1, 1), (2, 4, 1, 1), (8, 2, 1, 1)} <= found
    assert all(dp == 1 for *_, dp in found)
    assert max(tp * pp for tp, pp, *_ in found) == 16


def test_experts_may_lie_whole_on_devices():
    found = layouts(model="gpt-oss-120b", hardware="h200-sxm")
    assert {(8, 1, 8, 1), (8, 1, 1, 1), (1, 1, 8, 8), (4, 1, 8, 2)} <= found


def test_what_is_said_is_kept():
    assert layouts(model="llama-3.1-8b", hardware="h100-sxm", tp="2", pp="1") == {(2, 1, 1, 1)}
    assert layouts(model="llama-3.1-8b", hardware="h100-sxm", tp="3,32", pp="1") == {(3, 1, 1, 1), (32, 1, 1, 1)}


def test_a_laptop_is_not_joined_with_others():
    assert layouts(model="qwen3-0.6b", hardware="m2-ultra") == {(1, 1, 1, 1)}


def test_formats_are_the_checkpoints_and_what_the_device_multiplies():
    assert formats("llama-3.1-8b", "h100-sxm") == {"bf16", "fp8"}
    assert formats("llama-3.1-8b", "a100-sxm-80") == {"bf16", "int8"}
    assert formats("llama-3.1-8b", "b200-sxm") == {"bf16", "fp8", "nvfp4"}
    assert formats("llama-3.1-8b", "h100-sxm", weight_dtype="int4") == {"int4"}
    assert formats("gpt-oss-20b", "h100-sxm") == {"mxfp4"}


def test_engines_that_run_there():
    def engines(device: str, engine: str) -> set[str]:
        candidates = CompareQuestion("llama-3.1-8b", device, engine=engine, tp="1").options(DEMAND).candidates
        return {each.build(each.layout).engine.engine for each in candidates}

    assert engines("h100-sxm", "auto") == {"vllm"}
    assert {"vllm", "sglang", "tensorrt-llm", "llama.cpp"} <= engines("h100-sxm", "all")
    assert "tensorrt-llm" not in engines("m2-ultra", "all")


def test_what_the_data_sheet_rules_out_is_counted_by_reason_and_device():
    found = CompareQuestion("llama-3.1-70b", "l4,h200-sxm", tp="1", pp="1", weight_dtype="bf16").options(DEMAND)
    assert found.cut["memory", "l4"] == 1
    assert all(reason in ("memory", "ttft", "tpot") for reason, _ in found.cut)

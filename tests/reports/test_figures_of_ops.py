"""The figures of a device that steps are said to rest on, against those that change their seconds."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from pydantic import BaseModel

from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.layouts import default_layout
from simulator.hardware.hardware import Hardware
from simulator.models.model import load_model
from simulator.models.operations import Counts
from simulator.profile import Figure
from simulator.reports.figures_of_ops import DeviceOps, kernel_figures, rate_figures, sourced_figures

# Sequences that decode and cached tokens of each; tokens of a prompt
DECODES = [(1.0, n, n, n * read, n * min(read, 200.0)) for n in (1.0, 8.0, 70.0, 300.0) for read in (10.0, 5000.0)]
PROMPTS = [(1.0, n, 1.0, 0.0, 0.0, n, n * n / 2, n * min(n, 200.0) / 2) for n in (5.0, 300.0, 8000.0)]
STEPS = Counts(*np.array([[*row, *[0.0] * (8 - len(row))] for row in (*DECODES, *PROMPTS)]).T)
NOT_OF_STEPS = ("memory_reported_bytes", "memory_marketed_bytes", "devices_per_node")
# What is listed though no step here shows it: the second best rate of reading is as high; tiles fill no last wave;
# a table of collectives has sizes of other groups, and nodes; attention that writes scores computes at another rate
KEPT = ("achievable.gemm.fp16", "achievable.gemm.fp8", "multiprocessors", "achievable.all_reduce")
KEPT += ("achievable.ring_all_reduce", "achievable.prefill_attention", "link")

CASES = {
    "dense": ("llama-3.1-8b", "h100-sxm", "vllm", {}),
    "fp8": ("llama-3.1-8b", "h200-sxm", "vllm", {"tp": 2, "dtypes": ("fp8", "fp8")}),
    "a narrow cache in tiles": ("llama-3.1-8b", "h100-sxm", "vllm", {"dtypes": ("", "fp8")}),
    "experts of rates of their own": ("deepseek-v3", "b200-sxm", "vllm", {"tp": 8, "dtypes": ("nvfp4", "")}),
    "ranks": ("deepseek-v3", "h200-sxm", "vllm", {"dp": 8, "ep": 8}),
    "two nodes": ("llama-3.1-405b", "h100-sxm", "vllm", {"tp": 16}),
    "stages": ("llama-3.1-70b", "l40s", "vllm", {"pp": 4}),
    "tiles of many rows": ("llama-3.1-8b", "rtx-5090", "vllm-0.14", {"dtypes": ("fp8", "")}),
    "int4": ("llama-3.1-8b", "rtx-4090", "vllm", {"dtypes": ("int4", "")}),
    "converted cache": ("llama-3-8b", "a100-sxm-40", "vllm", {"dtypes": ("fp16", "fp8")}),
    "scores in memory": ("llama-3.1-8b", "rtx-4090", "llama.cpp-b1500", {"dtypes": ("q4_K_M", "")}),
    "vector units": ("llama-2-7b", "strix-halo", "llama.cpp", {"dtypes": ("q4_K_M", "")}),
    "a CPU": ("llama-3.1-8b", "xeon-8480", "llama.cpp", {}),
    "recurrent": ("qwen3.5-27b", "h100-sxm", "sglang", {}),
}


def changed(value: object, path: list[str], factor: float) -> object:
    """A profile, or a part of one, with the figure at a path times a factor."""
    if not path:
        return Figure(float(value) * factor, value.source)
    name, *rest = path
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: changed(getattr(value, name), rest, factor)})
    if isinstance(value, tuple):
        return tuple(changed(each, rest, factor) if str(at) == name else each for at, each in enumerate(value))
    assert isinstance(value, Mapping)
    return {key: changed(each, rest, factor) if str(key) == name else each for key, each in value.items()}


def part_of(path: str) -> str:
    """The part of a profile that a figure belongs to: one type's GEMM, one kind of attention, one table."""
    names = path.split(".")
    if names[0] in ("peak_flops_per_s", "vector_flops_per_s"):
        return path
    return ".".join(
        names[: 3 if names[1:2] in (["gemm"], ["experts"]) else 2] if names[0] == "achievable" else names[:1]
    )


def moved(deployment: Deployment) -> set[str]:
    """The figures of its device that change the seconds of a step where they are 60 % smaller."""

    def seconds(hardware: Hardware) -> list[float]:
        return replace(deployment, hardware=hardware).step_model().seconds(STEPS).tolist()

    hardware, found = deployment.hardware, set()
    every = [
        each
        for name in Hardware.model_fields
        if name not in NOT_OF_STEPS
        for each in sourced_figures(getattr(hardware, name), name)
    ]
    before = seconds(hardware)
    for path, _ in every:
        if seconds(changed(hardware, path.split("."), 0.4)) != before:
            found.add(path)
    return found


@pytest.mark.parametrize("case", CASES)
def test_figures_that_are_listed_are_those_that_change_the_time_of_steps(case):
    model, device, engine, given = CASES[case]
    deployment = deploy(model, device, engine, default_layout(load_model(model), **given))
    listed = {path for path, _ in rate_figures(DeviceOps(deployment.kernels, deployment.ops))}
    change = moved(deployment)
    assert change <= listed
    idle = {part_of(path) for path in listed} - {part_of(path) for path in change}
    assert idle <= {*KEPT}
    assert change


RULED = {
    "experts that gather": ("deepseek-v3", "b200-sxm", "vllm", {"tp": 8}),
    "scores in memory": CASES["scores in memory"],
    "vector units": CASES["vector units"],
    "vector units and experts": ("gpt-oss-20b", "strix-halo", "llama.cpp-vulkan", {"dtypes": ("mxfp4_MoE", "")}),
    "a fast format": ("llama-2-7b", "strix-halo", "llama.cpp", {"dtypes": ("q8_0", "")}),
    "heads in groups": ("llama-3.1-8b", "rx-7900-xtx", "llama.cpp", {"dtypes": ("q8_0", "")}),
    "a clock": ("llama-3.1-8b", "rtx-4090", "llama.cpp", {"dtypes": ("q4_K_M", "")}),
    "clocks of two formats": ("gpt-oss-20b", "rtx-5090", "llama.cpp", {"dtypes": ("mxfp4_MoE", "")}),
    "channels": ("llama-3.1-8b", "strix-halo", "llama.cpp-vulkan", {"dtypes": ("q4_K_M", "")}),
    "a clock and integers": ("llama-3.1-8b", "t4", "llama.cpp", {"dtypes": ("q4_K_M", "")}),
    "experts one by one": ("qwen3-30b-a3b", "arc-b580", "llama.cpp", {"dtypes": ("q4_K_M", "")}),
    "tiles of many rows": CASES["tiles of many rows"],
    "experts unpacked": ("qwen3-30b-a3b", "h100-sxm", "sglang-0.5", {"dtypes": ("int4", "")}),
    "latent attention in Triton": ("glm-4.7-flash", "a100-sxm-80", "sglang", {}),
    "other attention in Triton": ("gemma-4-31b", "mi300x", "sglang", {}),
    "experts that start one by one": ("qwen3-30b-a3b", "gaudi3", "optimum-habana", {}),
    "chunks": ("llama-4-scout", "h100-sxm", "tensorrt-llm", {"tp": 8}),
    "a CPU": ("llama-3.1-8b", "xeon-8480", "llama.cpp", {"dtypes": ("q4_K_M", "")}),
}


@pytest.mark.parametrize("case", RULED)
def test_rules_of_kernels_that_are_listed_are_those_that_change_the_time_of_steps(case):
    """By a third or three times of each; an all-reduce in one shot is hidden where the host launches a batch."""
    model, device, engine, given = RULED[case]
    deployment = deploy(model, device, engine, default_layout(load_model(model), **given))
    kernels = deployment.engine.kernels_on(deployment.hardware).of_engine

    def seconds(found: object) -> list[float]:
        own = deployment.engine.model_copy(update={"kernels": (found,)})
        return replace(deployment, engine=own).step_model().seconds(STEPS).tolist()

    every = kernel_figures(DeviceOps(deployment.kernels, deployment.ops))
    listed = {path.removeprefix("kernels.") for path, _ in every if path.startswith("kernels.rules")}
    before, change = seconds(kernels), set()
    for path, _ in sourced_figures(kernels.rules, "rules"):
        if any(seconds(changed(kernels, path.split("."), factor)) != before for factor in (1 / 3, 3.0)):
            change.add(path)
    assert change
    assert change <= listed <= change | {"rules.one_shot_tokens"}


@pytest.mark.parametrize(
    ("device", "engine"), [("gaudi3", "optimum-habana"), ("mi300x", "vllm"), ("h100-sxm", "sglang")]
)
def test_a_dense_model_rests_on_no_experts_and_no_latent_vectors(device, engine):
    deployment = deploy("llama-3.1-8b", device, engine)
    listed = kernel_figures(DeviceOps(deployment.kernels, deployment.ops))
    assert not [path for path, _ in listed if "expert" in path or "latent" in path]

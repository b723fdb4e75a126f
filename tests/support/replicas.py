"""Replicas of every kind that bounds and laws of loads are held against: models, devices, engines and degrees."""

from dataclasses import replace

from simulator import deploy, load_hardware, load_model
from simulator.deployment.layouts import running_layout
from simulator.engines.engine import load_engine

CASES = [
    ("llama-3.1-8b", "l40s", "vllm", {}),
    ("llama-3.1-8b", "h100-sxm", "vllm", {"tp": 2}),
    ("llama-3.1-8b", "h100-sxm", "vllm", {"pp": 2}),
    ("llama-3.1-8b", "h100-sxm", "sglang", {}),
    ("llama-3.1-8b", "h100-sxm", "tensorrt-llm", {}),
    ("llama-3.1-8b", "a100-sxm-80", "vllm-0.5", {}),
    ("llama-3.1-8b", "rtx-4090", "llama.cpp", {}),
    ("llama-3.1-8b", "m2-ultra", "llama.cpp", {}),
    ("llama-3.1-8b", "m2-ultra", "mlx-lm", {}),
    ("llama-3.1-8b", "h100-sxm", "naive", {}),
    ("gpt-oss-20b", "h100-sxm", "vllm", {"tp": 2, "ep": 2}),
    ("gemma-3-27b", "h100-sxm", "vllm", {}),
    ("deepseek-v3", "h200-sxm", "vllm", {"dp": 8, "ep": 8}),
    ("qwen3.5-27b", "h100-sxm", "vllm", {}),
]


def replica(case, **settings_):
    model, device, engine, degrees = case
    profile = load_model(model), load_hardware(device), load_engine(engine)
    found = deploy(model, device, profile[2].id, running_layout(*profile, **degrees))
    return replace(found, settings=replace(found.settings, **settings_))

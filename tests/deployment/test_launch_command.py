"""The printed command starts the engine with the settings that the prediction rests on."""

import pytest

from simulator import Settings, default_layout, deploy, load_model
from simulator.deployment.launch_command import launch_command
from simulator.errors import NotModelledError


def command(model: str, device: str, engine: str, settings: Settings | None = None, **degrees) -> str:
    layout = default_layout(load_model(model), **degrees) if degrees else None
    return launch_command(deploy(model, device, engine, layout, settings or Settings()))


def test_vllm():
    assert command("llama-3.1-8b", "l40s", "vllm") == (
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 256 --max-num-batched-tokens 2048 "
        "--gpu-memory-utilization 0.92"
    )
    found = command(
        "llama-3.1-70b", "h100-sxm", "vllm", Settings(max_model_len=8192), tp=4, pp=2, dtypes=("fp8", "fp8")
    )
    for words in (
        "--tensor-parallel-size 4",
        "--pipeline-parallel-size 2",
        "--quantization fp8",
        "--max-model-len 8192",
    ):
        assert words in found
    assert "--kv-cache-dtype fp8" in found


def test_vllm_with_experts_on_ranks_gives_each_its_share():
    found = command("deepseek-v3", "h200-sxm", "vllm", Settings(max_num_seqs=64), dp=8, ep=8)
    assert "--data-parallel-size 8 --enable-expert-parallel" in found
    assert "--max-num-seqs 64" in found


def test_sglang():
    found = command("llama-3.1-8b", "h100-sxm", "sglang", tp=2)
    assert found.startswith("python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp 2 ")
    assert "--mem-fraction-static 0.87" in found


def test_tensorrt_llm():
    found = command("llama-3.1-8b", "h100-sxm", "tensorrt-llm", tp=2)
    assert found.startswith("trtllm-serve meta-llama/Llama-3.1-8B-Instruct --tp_size 2 ")
    assert "--kv_cache_free_gpu_memory_fraction 0.9" in found


def test_llama_server_gets_the_context_of_all_slots():
    found = command("llama-3.1-8b", "rtx-4090", "llama.cpp", Settings(max_num_seqs=4, max_model_len=4096))
    assert found.startswith("llama-server -m llama-3.1-8b-")
    assert "-c 16384 --parallel 4" in found
    assert "-fa on" in found


def test_mlx_and_ollama():
    found = command("llama-3.1-8b", "m2-ultra", "mlx-lm", dtypes=("mlx-q4", ""))
    assert found == "mlx_lm.server --model mlx-community/Llama-3.1-8B-Instruct-4bit"
    assert command("llama-3.1-8b", "rtx-4090", "ollama").startswith("OLLAMA_NUM_PARALLEL=")


def test_an_engine_without_a_known_command_is_refused():
    with pytest.raises(NotModelledError, match="launch command"):
        command("llama-3.1-8b", "h100-sxm", "lmdeploy")

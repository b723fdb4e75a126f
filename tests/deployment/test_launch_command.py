"""The printed command starts the engine with the settings that the prediction rests on."""

import json
import shlex

import pytest

from simulator import DeploymentQuestion, Settings, Speculation, default_layout, deploy, load_model
from simulator.deployment.launch_command import launch_command
from simulator.deployment.offload import Offload
from simulator.errors import DoesNotFitError, NotModelledError
from simulator.units import GIB


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


@pytest.mark.parametrize(
    ("model", "repository"),  # others' fine-tunes are aliases, too, and end alike
    [
        ("llama-3-8b", "meta-llama/Meta-Llama-3-8B-Instruct"),
        ("mistral-small-24b-2501", "mistralai/Mistral-Small-24B-Instruct-2501"),
        ("qwen3-30b-a3b-2507", "Qwen/Qwen3-30B-A3B-Instruct-2507"),
        ("qwen3-32b", "Qwen/Qwen3-32B"),
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct"),
    ],
)
def test_the_repository_is_that_of_the_publisher(model, repository):
    assert command(model, "h200-sxm", "vllm").split()[2] == repository


def test_vllm_keeps_a_cache_in_nvfp4_on_blackwell_only():
    assert "--kv-cache-dtype nvfp4" in command("llama-3.1-8b", "b200-sxm", "vllm", dtypes=("", "nvfp4"))
    with pytest.raises(NotModelledError, match=r"its kernels for that are Blackwell's\. Give --cache-dtype fp8"):
        DeploymentQuestion("llama-3.1-8b", "h100-sxm", engine="vllm", cache_dtype="fp4").deployment()


def test_vllm_with_experts_on_ranks_gives_each_its_share():
    found = command("deepseek-v3", "h200-sxm", "vllm", Settings(max_num_seqs=64), dp=8, ep=8)
    assert "--data-parallel-size 8 --enable-expert-parallel" in found
    assert "--max-num-seqs 64" in found


def test_a_replica_over_two_hosts_is_started_on_both():
    """A host of H100 has 8, one of GB200 has 4, though their link reaches 72."""
    assert "--nnodes 2 --node-rank $NODE_RANK --master-addr $HEAD_IP" in command(
        "deepseek-v3", "h100-sxm", "vllm", tp=16
    )
    assert "--nnodes" not in command("deepseek-v3", "h200-sxm", "vllm", tp=8)
    assert "--nnodes 2 " in command("deepseek-v3", "gb200", "vllm", tp=8)
    ranks = command("deepseek-v3", "h100-sxm", "vllm", dp=16, ep=16)
    assert "--data-parallel-size-local 8 --data-parallel-address $HEAD_IP" in ranks
    assert "--data-parallel-start-rank $((8*NODE_RANK))" in ranks
    assert "--nnodes 2 --node-rank $NODE_RANK --dist-init-addr $HEAD_IP:5000" in command(
        "deepseek-v3", "h100-sxm", "sglang", tp=16
    )
    assert command("deepseek-v3", "h100-sxm", "tensorrt-llm", tp=16).startswith(
        "srun -N 2 --ntasks-per-node 8 --mpi=pmix trtllm-llmapi-launch trtllm-serve deepseek-ai/DeepSeek-V3 "
    )
    with pytest.raises(NotModelledError, match="over 2 hosts"):
        command("llama-3.1-70b", "rtx-4090", "llama.cpp", pp=16)
    with pytest.raises(NotModelledError, match="Give multiples of 2"):
        command("llama-3.1-70b", "h100-sxm", "vllm", tp=1, pp=9)


def test_sglang():
    found = command("llama-3.1-8b", "h100-sxm", "sglang", tp=2)
    assert found.startswith("python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp 2 ")
    assert "--mem-fraction-static 0.827" in found


def test_tensorrt_llm():
    found = command("llama-3.1-8b", "h100-sxm", "tensorrt-llm", tp=2)
    assert found.startswith("trtllm-serve meta-llama/Llama-3.1-8B-Instruct --tp_size 2 ")
    assert "--kv_cache_free_gpu_memory_fraction 0.9" in found


def test_llama_server_gets_the_context_of_all_slots():
    found = command("llama-3.1-8b", "rtx-4090", "llama.cpp", Settings(max_num_seqs=4, max_model_len=4096))
    assert found.startswith("llama-server -m llama-3.1-8b-")
    assert "-c 16384 --parallel 4" in found
    assert "-fa on" in found


def test_a_mix_of_unsloths_has_its_files_name():
    found = command("qwen3.5-35b-a3b", "strix-halo", "llama.cpp", dtypes=("q4_K_XL@4.9+q8_0", ""))
    assert found.startswith("llama-server -m qwen3.5-35b-a3b-UD-Q4_K_XL.gguf ")


def test_mlx_and_ollama():
    found = command("llama-3.1-8b", "m2-ultra", "mlx-lm", dtypes=("mlx-q4", ""))
    assert found == "mlx_lm.server --model mlx-community/Llama-3.1-8B-Instruct-4bit"
    assert command("llama-3.1-8b", "rtx-4090", "ollama").startswith("OLLAMA_NUM_PARALLEL=")


def test_an_engine_without_a_known_command_is_refused():
    with pytest.raises(NotModelledError, match="launch command"):
        command("llama-3.1-8b", "h100-sxm", "lmdeploy")


def flags(engine: str, settings: Settings, model: str = "llama-3.1-8b", **degrees) -> str:
    """The flags that settings add to the command of an engine on an H100."""
    plain = command(model, "h100-sxm", engine, **degrees)
    given = command(model, "h100-sxm", engine, settings, **degrees)
    assert given.startswith(plain)
    return given.removeprefix(plain).strip()


def test_vllm_gets_whatever_was_set():
    offloaded = Offload(weight_bytes=4 * GIB)
    assert flags("vllm", Settings(num_blocks=8192, offload=offloaded, changes=("prefix_caching=false",))) == (
        "--num-gpu-blocks-override 8193 --cpu-offload-gb 4 --no-enable-prefix-caching"
    )
    changes = ("block_size=32", "async_scheduling=false", "enable_chunked_prefill=false", "scheduling_policy=priority")
    found = command("llama-3.1-8b", "h100-sxm", "vllm", Settings(changes=changes))
    for words in ("--block-size 32", "--no-async-scheduling", "--no-enable-chunked-prefill"):
        assert words in found
    assert "--scheduling-policy priority" in found
    assert flags("vllm", Settings(offload=Offload(cache_bytes=8 * GIB)), tp=2) == (
        "--kv-offloading-size 16 --kv-offloading-backend native"
    )


def test_sglang_gets_whatever_was_set():
    changes = ("disable_radix_cache=true", "page_size=16", "max_total_tokens=131072", "enable_mixed_chunk=true")
    assert flags("sglang", Settings(changes=changes)) == (
        "--max-total-tokens 131072 --disable-radix-cache --enable-mixed-chunk --page-size 16"
    )


def test_defaults_need_no_flag():
    assert flags("vllm", Settings(changes=("prefix_caching=true", "block_size=16"))) == ""
    assert flags("tensorrt-llm", Settings(changes=("tokens_per_block=32",))) == ""


def test_a_cache_other_than_the_checkpoints_is_a_flag():
    """ModelOpt's nvfp4 checkpoints ask for an fp8 cache, which --kv-cache-dtype auto heeds."""
    asked = command("llama-3.1-8b", "b200-sxm", "vllm", dtypes=("nvfp4", "bf16"))
    assert "--kv-cache-dtype bfloat16" in asked
    assert "--kv-cache-dtype" not in command("llama-3.1-8b", "b200-sxm", "vllm", dtypes=("nvfp4", "fp8"))
    assert "-ctk q8_0 -ctv q8_0" in command("llama-3.1-8b", "rtx-4090", "llama.cpp", dtypes=("q4_K_M", "q8_0"))


@pytest.mark.parametrize(
    ("draft", "config"),
    [
        ("llama-3.2-1b", {"method": "draft_model", "model": "meta-llama/Llama-3.2-1B-Instruct"}),
        ("ngram", {"method": "ngram", "prompt_lookup_max": 4}),
        ("mtp", {"method": "mtp"}),
        ("eagle", {"method": "eagle", "model": "<eagle heads of meta-llama/Llama-3.1-8B-Instruct>"}),
        ("medusa", {"method": "medusa", "model": "<medusa heads of meta-llama/Llama-3.1-8B-Instruct>"}),
    ],
)
def test_vllm_is_told_what_drafts(draft, config):
    option, text = shlex.split(flags("vllm", Settings(speculation=Speculation(draft, 3, (0.7,)))))
    assert option == "--speculative-config"
    assert json.loads(text) == {**config, "num_speculative_tokens": 3}


def test_sglang_is_told_what_drafts():
    chain = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
    assert flags("sglang", Settings(speculation=Speculation("mtp", 3, (0.7,)))) == (
        f"--speculative-algorithm EAGLE {chain}"
    )
    assert flags("sglang", Settings(speculation=Speculation("llama-3.2-1b", 3, (0.7,)))) == (
        "--speculative-algorithm STANDALONE --speculative-draft-model-path meta-llama/Llama-3.2-1B-Instruct " + chain
    )


@pytest.mark.parametrize(
    ("engine", "setting", "words"),
    [
        ("vllm", "moe_backend=marlin", "--moe-backend marlin"),
        (
            "vllm-0.14",
            "fuse_allreduce_rms=true",
            """--compilation-config '{"pass_config": {"fuse_allreduce_rms": true}}'""",
        ),
    ],
)
def test_kernels_that_are_asked_for_have_flags(engine, setting, words):
    assert command("gpt-oss-120b", "h100-sxm", engine, Settings(changes=(setting,))).endswith(words)


def test_sglang_is_told_kernels_of_experts_for_their_weights():
    triton, cutlass = (Settings(changes=(f"moe_backend={each}",)) for each in ("triton", "cutlass"))
    found = command("qwen3-30b-a3b", "h100-sxm", "sglang", triton, dtypes=("int4", "bf16"))
    assert found.endswith("--quantization moe_wna16")
    found = command("qwen3-30b-a3b", "b200-sxm", "sglang", cutlass, dtypes=("nvfp4", "bf16"))
    assert found.endswith("--moe-runner-backend cutlass")
    for settings in (triton, cutlass):
        with pytest.raises(NotModelledError, match="no flag of this engine is known for it"):
            command("gpt-oss-120b", "h100-sxm", "sglang", settings)


@pytest.mark.parametrize(
    ("engine", "settings", "named"),
    [
        ("vllm", Settings(changes=("drift_tokens=3",)), "--set drift_tokens=3"),
        ("vllm", Settings(threads=8), "--threads 8"),
        ("sglang", Settings(speculation=Speculation("ngram", 3, (0.7,))), "--speculative-model ngram"),
        ("sglang", Settings(offload=Offload(weight_bytes=1.5 * GIB)), "--cpu-offload-gb 1.5"),
        ("sglang", Settings(changes=("chunked_prefill=false",)), "--set chunked_prefill=false"),
        ("vllm", Settings(changes=("VLLM_USE_FLASHINFER_SAMPLER=1",)), "--set VLLM_USE_FLASHINFER_SAMPLER=1"),
        ("tensorrt-llm", Settings(changes=("max_tokens=5000",)), "--set max_tokens=5000"),
        ("tensorrt-llm", Settings(num_blocks=2999), "--num-gpu-blocks-override 3000"),
        ("tensorrt-llm", Settings(speculation=Speculation("mtp", 1, (0.7,))), "--speculative-model mtp"),
        ("mlx-lm", Settings(max_num_seqs=4), "--max-num-seqs 4"),
        ("llama.cpp", Settings(memory_fraction=0.5), "--gpu-memory-utilization 0.5"),
        ("vllm-0.14", Settings(changes=("moe_backend=marlin",)), "--set moe_backend=marlin"),  # its flag came with 0.17
        ("vllm-0.8", Settings(changes=("fuse_allreduce_rms=true",)), "--set fuse_allreduce_rms=true"),
        ("tensorrt-llm", Settings(changes=("moe_backend=cutlass",)), "--set moe_backend=cutlass"),
    ],
)
def test_what_no_flag_is_known_for_is_refused_by_name(engine, settings, named):
    device = "m2-ultra" if engine == "mlx-lm" else "h100-sxm"
    with pytest.raises(NotModelledError, match=f"{named}.*no flag of this engine is known for it. Leave it out"):
        command("llama-3.1-8b", device, engine, settings)


def test_data_parallel_attention_of_tensorrt_llm_has_no_flag():
    with pytest.raises(NotModelledError, match="--dp 8"):
        command("deepseek-v3", "h200-sxm", "tensorrt-llm", dp=8, ep=8)


@pytest.mark.parametrize(
    ("model", "dtype", "words"),
    [
        ("gpt-oss-120b", "bf16", "serve '<openai/gpt-oss-120b in bf16>' --tensor"),
        ("gpt-oss-120b", "fp8", "serve '<openai/gpt-oss-120b in fp8>' --tensor"),  # no engine quantises mxfp4 to fp8
        ("gpt-oss-120b", "mxfp4", "serve openai/gpt-oss-120b --tensor"),
        ("llama-3.1-8b", "fp16", "serve meta-llama/Llama-3.1-8B-Instruct --tensor"),
    ],
)
def test_a_checkpoint_is_named_only_where_it_has_the_format(model, dtype, words):
    assert words in command(model, "b200-sxm", "vllm", tp=2, dtypes=(dtype, "bf16"))


@pytest.mark.parametrize(
    ("engine", "words"),
    [("vllm", "--max-model-len 95120"), ("sglang", "--context-length "), ("tensorrt-llm", "--max_seq_len ")],
)
def test_a_context_beyond_the_cache_is_cut_as_the_engine_demands(engine, words):
    assert words in command("llama-3.3-70b", "b200-sxm", engine)
    assert words.split()[0] not in command("llama-3.3-70b", "b200-sxm", engine, tp=2)


def test_what_does_not_fit_has_no_command():
    with pytest.raises(DoesNotFitError, match="leave no cache"):
        command("llama-3.3-70b", "h100-sxm", "vllm")

"""The command that starts a deployment's engine with exactly its settings, in the engine's own words."""

from collections.abc import Callable, Mapping

from simulator.deployment.deployment import Deployment
from simulator.deployment.memory import memory_plan
from simulator.errors import NotModelledError
from simulator.models.number_formats import number_format

Words = list[str]
ONLINE = {"fp8": "fp8"}  # formats to which vLLM and SGLang quantise a checkpoint as they load it (--quantization)


def launch_command(deployment: Deployment) -> str:
    """Return the command that starts one replica, with every setting that its prediction rests on.

    Names of flags: `vllm serve --help` (0.33), SGLang's server_args.py, trtllm-serve, tools/server/README.md of
    llama.cpp, mlx_lm.server, Ollama's FAQ. Raises NotModelledError for engines that no command is known for.

    >>> from simulator.deployment.deployment import deploy
    >>> launch_command(deploy("qwen3-32b", "h100-sxm")).partition(" --max-num-batched")[0]
    'vllm serve Qwen/Qwen3-32B --max-num-seqs 1024'
    """
    engine = deployment.engine
    if engine.engine not in _COMMANDS:
        given, known = f"a launch command of {engine.engine}", ", ".join(_COMMANDS)
        raise NotModelledError(given, "its flags are not known here", f"Known: {known}")
    return " ".join(_COMMANDS[engine.engine](deployment))


def _name(deployment: Deployment) -> str:
    """Return the repository of the model on Hugging Face, that of its instruction-tuned form first."""
    names = [each for each in deployment.model.aliases if "/" in each and "meta-llama/Meta-" not in each]
    tuned = [each for each in names if each.lower().endswith(("instruct", "-it"))]
    return [*tuned, *names, deployment.model.id][0]


def _checkpoint(deployment: Deployment) -> str:
    """Return the checkpoint in the format of the weights: the model's own by name, another as what has to be found."""
    stored = deployment.layout.weight_dtype
    if stored == deployment.model.weight_dtype or stored in ("bf16", "fp16"):
        return _name(deployment)
    return f"'<{_name(deployment)} in {stored}>'"


def _given(flags: Mapping[str, object]) -> Words:
    """Return the flags that have a value, each with it; True is the flag alone."""
    given = {flag: value for flag, value in flags.items() if value is not None}
    words = [[flag] if value is True else [flag, str(value)] for flag, value in given.items()]
    return [word for each in words for word in each]


def _more_than_one(degree: int) -> int | None:
    return degree if degree > 1 else None


def _quantised(deployment: Deployment) -> tuple[str, str | None]:
    """Return the checkpoint, and the format to which the engine quantises it while it loads."""
    stored = deployment.layout.weight_dtype
    online = ONLINE.get(stored) if stored != deployment.model.weight_dtype else None
    return (_name(deployment) if online else _checkpoint(deployment)), online


def _cache_dtype(deployment: Deployment, words: dict[str, str]) -> str | None:
    layout = deployment.layout
    return words.get(layout.cache_dtype, layout.cache_dtype) if layout.cache_dtype != layout.model_dtype else None


def _vllm(deployment: Deployment) -> Words:
    layout, settings = deployment.layout, deployment.settings
    checkpoint, online = _quantised(deployment)
    flags = {
        "--tensor-parallel-size": _more_than_one(deployment.tp),
        "--pipeline-parallel-size": _more_than_one(layout.pp),
        "--data-parallel-size": _more_than_one(layout.dp),
        "--enable-expert-parallel": layout.ep > 1 or None,
        "--quantization": online,
        "--kv-cache-dtype": _cache_dtype(deployment, {}),
        "--max-model-len": settings.max_model_len,
        "--max-num-seqs": deployment.max_num_seqs // layout.dp,
        "--max-num-batched-tokens": deployment.max_num_batched_tokens // layout.dp,
        "--gpu-memory-utilization": f"{deployment.memory_fraction:g}",
    }
    return ["vllm", "serve", checkpoint, *_given(flags), *_drafting(deployment)]


def _drafting(deployment: Deployment) -> Words:
    drafts = deployment.settings.speculation
    if drafts is None:
        return []
    return ["--speculative-config", f'\'{{"model": "{drafts.draft}", "num_speculative_tokens": {drafts.tokens}}}\'']


def _sglang(deployment: Deployment) -> Words:
    layout, settings = deployment.layout, deployment.settings
    checkpoint, online = _quantised(deployment)
    flags = {
        "--tp": _more_than_one(deployment.tp * layout.dp),
        "--pp": _more_than_one(layout.pp),
        "--dp": _more_than_one(layout.dp),
        "--enable-dp-attention": layout.dp > 1 or None,
        "--ep": _more_than_one(layout.ep),
        "--quantization": online,
        "--kv-cache-dtype": _cache_dtype(deployment, {"fp8": "fp8_e4m3"}),
        "--context-length": settings.max_model_len,
        "--max-running-requests": deployment.max_num_seqs,
        "--chunked-prefill-size": deployment.max_num_batched_tokens,
        "--mem-fraction-static": f"{deployment.memory_fraction:g}",
    }
    return ["python", "-m", "sglang.launch_server", "--model-path", checkpoint, *_given(flags)]


def _tensorrt_llm(deployment: Deployment) -> Words:
    layout, settings = deployment.layout, deployment.settings
    flags = {
        "--tp_size": _more_than_one(deployment.tp * layout.dp),
        "--pp_size": _more_than_one(layout.pp),
        "--ep_size": _more_than_one(layout.ep),
        "--max_seq_len": settings.max_model_len,
        "--max_batch_size": deployment.max_num_seqs // layout.dp,
        "--max_num_tokens": deployment.max_num_batched_tokens // layout.dp,
        "--kv_cache_free_gpu_memory_fraction": f"{deployment.memory_fraction:g}",
    }
    return ["trtllm-serve", _checkpoint(deployment), *_given(flags)]


def _llama_cpp(deployment: Deployment) -> Words:
    """Return the flags of llama-server: the context is that of all slots together."""
    plan = memory_plan(deployment)
    stored, micro = deployment.layout.weight_dtype, deployment.engine.micro_batch_tokens
    flags = {
        "-c": plan.block_size * plan.num_blocks,
        "--parallel": plan.num_blocks,
        "-b": deployment.max_num_batched_tokens,
        "-ub": micro or None,
        "-ngl": 99 if deployment.settings.offload.gpu_layers is None else deployment.settings.offload.gpu_layers,
        "-sm": "row" if deployment.tp > 1 else "layer" if deployment.layout.pp > 1 else None,
        "-fa": "on" if deployment.engine.flash_attention else None,
        "-ctk": _cache_dtype(deployment, {}),
        "-ctv": _cache_dtype(deployment, {}),
    }
    return ["llama-server", "-m", f"{deployment.model.id}-{stored.upper()}.gguf", *_given(flags)]


def _mlx(deployment: Deployment) -> Words:
    stored, bits = deployment.layout.weight_dtype, int(number_format(deployment.layout.weight_dtype).bits)
    last = _name(deployment).rpartition("/")[2]
    name = f"mlx-community/{last}-{bits}bit" if stored.startswith("mlx") else _name(deployment)
    return ["mlx_lm.server", "--model", name]


def _ollama(deployment: Deployment) -> Words:
    plan = memory_plan(deployment)
    of_server = [f"OLLAMA_NUM_PARALLEL={plan.num_blocks}", f"OLLAMA_CONTEXT_LENGTH={plan.block_size}"]
    return [*of_server, "ollama", "serve"]


_COMMANDS: dict[str, Callable[[Deployment], Words]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt_llm,
    "llama.cpp": _llama_cpp,
    "mlx-lm": _mlx,
    "ollama": _ollama,
}

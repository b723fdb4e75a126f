"""The command that starts a deployment's engine with exactly its settings, in the engine's own words."""

import json
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.deployment.deployment import Deployment
from simulator.deployment.given_settings import as_given, given_settings
from simulator.deployment.launch_several_hosts import words_of_hosts
from simulator.deployment.memory import memory_plan
from simulator.deployment.memory_advice import refuse_misfit
from simulator.deployment.speculation import EAGLE, MEDUSA, MTP, NGRAM, Speculation
from simulator.deployment.weight_files import file_ending
from simulator.engines.engine import release_of
from simulator.errors import NotModelledError
from simulator.models.model import Model, load_model
from simulator.models.number_formats import number_format

Words = list[str]
Flag = Callable[[Any, Deployment], Words | None]  # from a setting's value to its words; None: there are none for it
LOOKED_UP = 4  # tokens of the n-grams that are looked up, as in vLLM's documentation; what is accepted is given
ONLINE = {"fp8": "fp8"}  # formats to which vLLM and SGLang quantise a checkpoint as they load it (--quantization)
CAST = {"bf16", "fp16"}  # formats of which engines load either from a checkpoint of the other
VLLM_CACHES = {"fp8": "fp8", "bf16": "bfloat16", "nvfp4": "nvfp4"}
SGLANG_CACHES = {"fp8": "fp8_e4m3", "bf16": "bf16", "nvfp4": "fp4_e2m1"}
GGUF_CACHES = {"bf16": "bf16", "fp16": "f16", "q8_0": "q8_0", "q5_0": "q5_0", "q5_1": "q5_1", "q4_0": "q4_0"}


def launch_command(deployment: Deployment, repository: str = "") -> str:
    """Return the command that starts one replica, with every setting that its prediction rests on.

    `repository` holds the checkpoint, where one is known; else it is its publisher's, or what has to be found.
    Names of flags: `vllm serve --help` (0.33), SGLang's server_args.py, trtllm-serve, tools/server/README.md of
    llama.cpp, mlx_lm.server, Ollama's FAQ. Over several hosts it is that of each (launch_several_hosts.py). Raises
    NotModelledError for engines that no command is known for, and for settings that no flag of the engine is known
    for; DoesNotFitError where the engine would not start.

    >>> from simulator.deployment.deployment import deploy
    >>> launch_command(deploy("qwen3-32b", "h100-sxm")).partition(" --max-num-batched")[0]
    'vllm serve Qwen/Qwen3-32B --max-model-len 35488 --max-num-seqs 1024'
    """
    engine = deployment.engine
    if engine.engine not in _COMMANDS:
        given, known = f"a launch command of {engine.engine}", ", ".join(_COMMANDS)
        raise NotModelledError(given, "its flags are not known here", f"Known: {known}")
    refuse_misfit(memory_plan(deployment))
    command = _COMMANDS[engine.engine]
    before, after = words_of_hosts(deployment)
    return " ".join([*before, *command.words(deployment, repository), *after, *_flags(command.flags, deployment)])


def _flags(known: Mapping[str, Flag], deployment: Deployment) -> Words:
    """Return the flags of what was set. Raises NotModelledError for a setting, or a value of one, that has none."""
    found: Words = []
    for name, value in given_settings(deployment).items():
        words = known[name](value, deployment) if name in known else None
        if words is None:
            given = f"{as_given(name, value, deployment)} in a launch command of {deployment.engine.id}"
            raise NotModelledError(given, "no flag of this engine is known for it", "Leave it out")
        found += words
    return found


def _valued(flag: str) -> Flag:
    return lambda value, _: [flag, str(int(value) if float(value).is_integer() else value)]


def _whole(flag: str) -> Flag:
    return lambda value, _: [flag, str(int(value))] if float(value).is_integer() else None


def _switch(on: str, off: str) -> Flag:
    """Return the flag of a switch; "" where there is none for one of its two states."""
    return lambda value, _: [on if value else off] if (on if value else off) else None


def _said(_value: object, _deployment: Deployment) -> Words:
    """Return no more words: the command has the setting already."""
    return []


def _said_of(values: Collection[str]) -> Flag:
    return lambda value, _: [] if value in values else None


def _name(model: Model) -> str:
    """Return the repository of the model on Hugging Face: its publisher's first instruction-tuned form, or its first.

    The publisher is that of the first alias; Llama 3.1's repositories have lost the Meta of their names.
    """
    names = [each for each in model.aliases if "/" in each]
    own = [each for each in names if each.partition("/")[0] == names[0].partition("/")[0]]
    now = [each for each in own if "meta-llama/Meta-" not in each] or own
    tuned = [each for each in now if each.lower().endswith(("instruct", "-it")) or "instruct" in now[0].lower()]
    return [*tuned, *now, model.id][0]


def _checkpoint(deployment: Deployment) -> str:
    """Return the checkpoint in the format of the weights: its publisher's by name, another as what has to be found."""
    stored, own = deployment.layout.weight_dtype, deployment.model.weight_dtype
    if stored == own or {stored, own} <= CAST:
        return _name(deployment.model)
    if stored == deployment.model.published_fp8 != "fp8":  # Qwen's; that others' publishers have one is not known
        return f"{_name(deployment.model)}-FP8"
    return f"'<{_name(deployment.model)} in {stored}>'"


def _given(flags: Mapping[str, object]) -> Words:
    """Return the flags that have a value, each with it; True is the flag alone."""
    given = {flag: value for flag, value in flags.items() if value is not None}
    words = [[flag] if value is True else [flag, str(value)] for flag, value in given.items()]
    return [word for each in words for word in each]


def _more_than_one(degree: int) -> int | None:
    return degree if degree > 1 else None


def _quantised(deployment: Deployment, repository: str) -> tuple[str, str | None]:
    """Return the checkpoint, and the format to which the engine quantises it while it loads."""
    if repository:
        return repository, None
    stored = deployment.layout.weight_dtype
    online = ONLINE.get(stored) if deployment.model.weight_dtype in CAST else None
    return (_name(deployment.model) if online else _checkpoint(deployment)), online


def _cache(deployment: Deployment, words: Mapping[str, str]) -> str | None:
    """Return the engine's word for the format of the KV cache, None for the usual one."""
    return words.get(given_settings(deployment).get("cache_dtype", ""))


def _longest(deployment: Deployment) -> int | None:
    """Return the longest sequence in tokens: as set, or as the cache holds where that is less than the context.

    vLLM does not start where one sequence of the whole context has no room in its cache.
    """
    held = memory_plan(deployment).max_context_tokens
    return deployment.settings.max_model_len or (held if held < deployment.max_model_len else None)


def _vllm(deployment: Deployment, repository: str) -> Words:
    layout = deployment.layout
    checkpoint, online = _quantised(deployment, repository)
    flags = {
        "--tensor-parallel-size": _more_than_one(deployment.tp),
        "--pipeline-parallel-size": _more_than_one(layout.pp),
        "--data-parallel-size": _more_than_one(layout.dp),
        "--enable-expert-parallel": layout.ep > 1 or None,
        "--quantization": online,
        "--kv-cache-dtype": _cache(deployment, VLLM_CACHES),
        "--max-model-len": _longest(deployment),
        "--max-num-seqs": deployment.max_num_seqs // layout.dp,
        "--max-num-batched-tokens": deployment.max_num_batched_tokens // layout.dp,
        "--gpu-memory-utilization": f"{deployment.memory_fraction:g}",
    }
    return ["vllm", "serve", checkpoint, *_given(flags)]


def _vllm_drafts(drafts: Speculation, deployment: Deployment) -> Words:
    """Return --speculative-config; heads that no repository is known for have to be found."""
    if drafts.draft == NGRAM:
        what: dict[str, Any] = {"method": NGRAM, "prompt_lookup_max": LOOKED_UP}
    elif drafts.draft == MTP:
        what = {"method": MTP}
    elif drafts.draft in (EAGLE, MEDUSA):
        what = {"method": drafts.draft, "model": _heads(drafts, deployment)}
    else:
        what = {"method": "draft_model", "model": _name(load_model(drafts.draft))}
    return ["--speculative-config", shlex.quote(json.dumps({**what, "num_speculative_tokens": drafts.tokens}))]


def _heads(drafts: Speculation, deployment: Deployment) -> str:
    return f"<{drafts.draft} heads of {_name(deployment.model)}>"


def _sglang(deployment: Deployment, repository: str) -> Words:
    layout = deployment.layout
    checkpoint, online = _quantised(deployment, repository)
    flags = {
        "--tp": _more_than_one(deployment.tp * layout.dp),
        "--pp": _more_than_one(layout.pp),
        "--dp": _more_than_one(layout.dp),
        "--enable-dp-attention": layout.dp > 1 or None,
        "--ep": _more_than_one(layout.ep),
        "--quantization": online,
        "--kv-cache-dtype": _cache(deployment, SGLANG_CACHES),
        "--context-length": _longest(deployment),
        "--max-running-requests": deployment.max_num_seqs,
        "--chunked-prefill-size": deployment.max_num_batched_tokens,
        "--mem-fraction-static": f"{deployment.memory_fraction:g}",
    }
    return ["python", "-m", "sglang.launch_server", "--model-path", checkpoint, *_given(flags)]


def _sglang_drafts(drafts: Speculation, deployment: Deployment) -> Words | None:
    """Return the flags of a chain of drafts; n-grams are a tree there, and Medusa's heads are not served."""
    if drafts.draft in (NGRAM, MEDUSA):
        return None
    if drafts.draft in (EAGLE, MTP):
        words = ["EAGLE"]
    else:
        words = ["STANDALONE", "--speculative-draft-model-path", _name(load_model(drafts.draft))]
    if drafts.draft == EAGLE:
        words += ["--speculative-draft-model-path", shlex.quote(_heads(drafts, deployment))]
    steps = ["--speculative-num-steps", str(drafts.tokens), "--speculative-eagle-topk", "1"]
    return ["--speculative-algorithm", *words, *steps, "--speculative-num-draft-tokens", str(drafts.tokens + 1)]


def _tensorrt_llm(deployment: Deployment, repository: str) -> Words:
    layout = deployment.layout
    flags = {
        "--tp_size": _more_than_one(deployment.tp * layout.dp),
        "--pp_size": _more_than_one(layout.pp),
        "--ep_size": _more_than_one(layout.ep),
        "--max_seq_len": _longest(deployment),
        "--max_batch_size": deployment.max_num_seqs // layout.dp,
        "--max_num_tokens": deployment.max_num_batched_tokens // layout.dp,
        "--kv_cache_free_gpu_memory_fraction": f"{deployment.memory_fraction:g}",
    }
    return ["trtllm-serve", repository or _checkpoint(deployment), *_given(flags)]


def _llama_cpp(deployment: Deployment, _repository: str) -> Words:
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
        "-ctk": _cache(deployment, GGUF_CACHES),
        "-ctv": _cache(deployment, GGUF_CACHES),
    }
    return ["llama-server", "-m", f"{deployment.model.id}-{file_ending(stored)}.gguf", *_given(flags)]


def _mlx(deployment: Deployment, repository: str) -> Words:
    stored, bits = deployment.layout.weight_dtype, int(number_format(deployment.layout.weight_dtype).bits)
    last = _name(deployment.model).rpartition("/")[2]
    name = f"mlx-community/{last}-{bits}bit" if stored.startswith("mlx") else _name(deployment.model)
    return ["mlx_lm.server", "--model", repository or name]


def _ollama(deployment: Deployment, _repository: str) -> Words:
    plan = memory_plan(deployment)
    of_server = [f"OLLAMA_NUM_PARALLEL={plan.num_blocks}", f"OLLAMA_CONTEXT_LENGTH={plan.block_size}"]
    return [*of_server, "ollama", "serve"]


LIMITS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")


@dataclass(frozen=True, slots=True)
class LaunchWords:
    """The words that start an engine, of a deployment and a repository or "", and the flags of other settings."""

    words: Callable[[Deployment, str], Words]
    flags: Mapping[str, Flag]


def _cache_outside(size_gib: float, deployment: Deployment) -> Words:
    """Return vLLM's room for evicted blocks, which is that of all ranks together; ours is of one device."""
    words = _valued("--kv-offloading-size")(size_gib * deployment.layout.tp * deployment.layout.pp, deployment) or []
    return [*words, "--kv-offloading-backend", "native"]


def _since(release: tuple[int, int], flag: Flag) -> Flag:
    """Return a flag that a release of an engine brought: there is none in older ones."""
    return lambda value, of: flag(value, of) if release_of(of.engine.engine, of.engine.version) >= release else None


def _vllm_fused_norms(value: object, _: Deployment) -> Words:
    """Return a pass of vLLM's compiler."""
    return ["--compilation-config", shlex.quote(json.dumps({"pass_config": {"fuse_allreduce_rms": bool(value)}}))]


_VLLM: Mapping[str, Flag] = {
    **dict.fromkeys(("tp", "pp", "ep", "dp", *LIMITS, "memory_fraction"), _said),
    "cache_dtype": _said_of(VLLM_CACHES),
    "num_blocks": lambda blocks, _: ["--num-gpu-blocks-override", str(blocks + 1)],  # one is vLLM's null block
    "speculation": _vllm_drafts,
    "cpu_offload_gb": _valued("--cpu-offload-gb"),
    "kv_offloading_size": _cache_outside,
    "language_model_only": _switch("--language-model-only", ""),
    "adapters": _switch("--enable-lora", ""),
    "admit_full_prompt": _switch("--scheduler-reserve-full-isl", "--no-scheduler-reserve-full-isl"),
    "async_scheduling": _switch("--async-scheduling", "--no-async-scheduling"),
    "by_priority": lambda value, _: ["--scheduling-policy", "priority" if value else "fcfs"],
    "chunked_prefill": _switch("--enable-chunked-prefill", "--no-enable-chunked-prefill"),
    "prefix_caching": _switch("--enable-prefix-caching", "--no-enable-prefix-caching"),
    "block_size": _valued("--block-size"),
    "max_loras": _valued("--max-loras"),
    "max_lora_rank": _valued("--max-lora-rank"),
    "api_server_count": _valued("--api-server-count"),
    "stream_interval": _valued("--stream-interval"),
    "long_prefill_tokens": _valued("--long-prefill-token-threshold"),
    "moe_backend": _since((0, 17), lambda value, _: ["--moe-backend", value]),  # vLLM's pull request 33807
    "fuse_allreduce_rms": _since((0, 13), _vllm_fused_norms),  # enable_fi_allreduce_fusion until then
}


def _sglang_piecewise(value: object, deployment: Deployment) -> Words | None:
    """Return SGLang's flag of no graphs of prompts, which has another name from 0.5.15 on."""
    kind = "prefill" if deployment.engine.graph_capture.graph_breakable else "piecewise"
    return None if value else [f"--disable-{kind}-cuda-graph"]


_SGLANG_EXPERTS = {  # by kernels and the weights that they are for
    ("triton", "int4"): ["--quantization", "moe_wna16"],
    ("cutlass", "nvfp4"): ["--moe-runner-backend", "cutlass"],
}
_SGLANG: Mapping[str, Flag] = {
    **dict.fromkeys(("tp", "pp", "ep", "dp", *LIMITS, "memory_fraction"), _said),
    "cache_dtype": _said_of(SGLANG_CACHES),
    "num_blocks": lambda blocks, of: ["--max-total-tokens", str(blocks * int(of.engine.block_size))],
    "speculation": _sglang_drafts,
    "cpu_offload_gb": _whole("--cpu-offload-gb"),
    "async_scheduling": _switch("", "--disable-overlap-schedule"),
    "by_priority": _switch("--enable-priority-scheduling", ""),
    "piecewise_graphs": _sglang_piecewise,
    "prefix_caching": _switch("", "--disable-radix-cache"),
    "policy": lambda value, _: ["--enable-mixed-chunk"] if value == "continuous" else None,
    "block_size": _valued("--page-size"),
    "scheduler_recv_interval": _valued("--scheduler-recv-interval"),
    "stream_interval": _valued("--stream-interval"),
    "graph_tokens": _valued("--piecewise-cuda-graph-max-tokens"),
    "moe_backend": lambda value, of: _SGLANG_EXPERTS.get((value, of.layout.weight_dtype.partition("-")[0])),
}
_TENSORRT_LLM: Mapping[str, Flag] = dict.fromkeys(("tp", "pp", "ep", *LIMITS, "memory_fraction"), _said)
_LLAMA_CPP: Mapping[str, Flag] = {
    **dict.fromkeys(("tp", "pp", *LIMITS, "num_blocks", "gpu_layers", "micro_batch_tokens"), _said),
    "cache_dtype": _said_of(GGUF_CACHES),
    "threads": _valued("-t"),
    "flash_attention": lambda value, _: [] if value else ["-fa", "off"],
}
_COMMANDS: dict[str, LaunchWords] = {
    "vllm": LaunchWords(_vllm, _VLLM),
    "sglang": LaunchWords(_sglang, _SGLANG),
    "tensorrt-llm": LaunchWords(_tensorrt_llm, _TENSORRT_LLM),
    "llama.cpp": LaunchWords(_llama_cpp, _LLAMA_CPP),
    "mlx-lm": LaunchWords(_mlx, {}),
    "ollama": LaunchWords(_ollama, dict.fromkeys(("max_num_seqs", "max_model_len", "num_blocks"), _said)),
}

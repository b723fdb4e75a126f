"""Engine settings by the engine's own names or by ours: "chunked_prefill_size=4096" -> an engine and settings."""

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple, get_args

from simulator.deployment.settings import Settings
from simulator.engines.engine import AttentionBackend, Engine, MoeBackend, Policy, Reservation, load_engine
from simulator.errors import InfercastError, NotModelledError, UnitError, nearest
from simulator.limits import MOST_WHOLE, in_range
from simulator.profile import Figure, Source
from simulator.units import parse

GIVEN = Source(text="given by the user", date="", evidence="given")
SWITCHES = (
    "adapters",
    "admit_full_prompt",
    "admit_full_output",
    "amx",
    "async_scheduling",
    "by_priority",
    "chunked_prefill",
    "every_expert",
    "flash_attention",
    "fuse_allreduce_rms",
    "graph_padding",
    "piecewise_graphs",
    "prefix_caching",
    "quick_reduce",
    "reuse_cache",
)
NO_GRAPHS = {"graph_tokens": 0, "decode_graph_tokens": 0}  # what the switch "eager" sets
# Switches of the clients, not of the engine
OF_REQUESTS = ("identical_prompts", "ignore_eos", "sorted_sampling", "stream")
OF_START = ("flashinfer_sampler", "language_model_only")
CHOICES = {
    "policy": get_args(Policy),
    "reservation": get_args(Reservation),
    "attention_backend": get_args(AttentionBackend),
    "moe_backend": get_args(MoeBackend),
}
OF_ADAPTERS = ("max_loras", "max_lora_rank")
OF_STATIC_CACHES = ("bucket_size", "reuse_cache")
ONE_OR_MORE = (
    *("batch_size", "block_size", *OF_ADAPTERS),
    *("num_scheduler_steps", "scheduler_recv_interval", "stream_interval", "api_server_count"),
)
NO_LIMIT = (  # counts that may be 0: no limit
    *("long_prefill_tokens", "micro_batch_tokens", "graph_tokens", "graph_tokens_per_seq", "decode_graph_tokens"),
    *("graph_max_batch_size", "bucket_size", "drift_tokens", "gathered_steps", "least_waiting", "prompt_interval"),
)
COUNTS = (*ONE_OR_MORE, *NO_LIMIT)
SIZES = ("graph_batch_sizes",)  # whole numbers with "+" between: a comma is between the values of a sweep
LIMITS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "threads")  # fields of Settings
FRACTIONS = ("memory_fraction", "least_free_share", "watermark")
SECONDS = ("batch_wait_s", "first_call_s")
# Sizes of the whole KV cache: its blocks with vLLM's null block, the tokens of all blocks, the tokens of all slots
CACHE_SIZES = ("num_gpu_blocks_override", "cache_tokens", "total_context")
OF_ENGINE = (*SWITCHES, *CHOICES, *COUNTS, *SIZES, "batch_wait_s", *FRACTIONS[1:])  # fields of an engine's preset
OURS = (
    *SWITCHES,
    "eager",
    *OF_REQUESTS,
    *OF_START,
    *CHOICES,
    *COUNTS,
    *SIZES,
    *LIMITS,
    *FRACTIONS,
    *SECONDS,
    *CACHE_SIZES,
)
FIGURES = ("block_size", "max_lora_rank", "drift_tokens")  # values of an engine preset that carry a source
WORDS = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}
OPTIONS = {  # of settings whose option is not their name
    "memory_fraction": "--gpu-memory-utilization",
    "num_blocks": "--num-gpu-blocks-override",
    "speculation": "--speculative-model",
}


class Configured(NamedTuple):
    """An engine preset and settings, as changed by the user."""

    engine: Engine
    settings: Settings


def configure(engine: Engine, settings: Settings, given: Iterable[str]) -> Configured:
    """Apply settings written NAME=VALUE, each under the engine's own name for it or under ours.

    Raises InfercastError (with the nearest names) for an unknown name, for a value out of range and for limits of
    adapters without adapters, NotModelledError for flash_attention where the engine's kernels were measured in one way
    only, UnitError for seconds without a unit.

    >>> configure(load_engine("sglang"), Settings(), ["--chunked-prefill-size=4096"]).settings.max_num_batched_tokens
    4096
    """
    values, texts = dict[str, Any](), dict[str, str]()
    given = tuple(given)
    for text in given:
        name, value = our_words(engine, text)
        if name == "flash_attention" and engine.flash_attention is None:
            because = f"the figures of {engine.id} do not tell fused attention from unfused"
            raise NotModelledError(f"--set {text}", because, "Leave it out, or take llama.cpp")
        values[name], texts[name] = _parsed(name, value, text), text
        if name in OF_STATIC_CACHES and engine.static_cache is None:
            because = f"the cache of {engine.id} grows with its sequences"
            raise NotModelledError(f"--set {text}", because, "Leave it out, or take Optimum Habana")
        if name == "attention_backend" and name not in load_engine(engine.engine).spelling:
            because = f"the attention of {engine.id} is that of its usual kernels on a device"
            raise NotModelledError(f"--set {text}", because, "Leave it out, or take SGLang")
    values |= NO_GRAPHS if values.get("eager") else {}
    rules = {name: values[name] for name in OF_ENGINE if name in values}
    sourced = {name: Figure(rules[name], GIVEN) for name in FIGURES if name in rules}
    changed = engine.with_settings(rules | sourced)
    if not changed.adapters and (alone := [texts[name] for name in OF_ADAPTERS if name in texts]):
        because = f"{engine.id} makes no room for adapters unless told to"
        raise InfercastError(f"--set {alone[0]}", because, "Add --set enable_lora=true")
    of_user = (*LIMITS, *OF_REQUESTS, *OF_START, "memory_fraction", "first_call_s")
    chosen = {name: values[name] for name in of_user if name in values}
    slots, size = values.get("max_num_seqs") or settings.max_num_seqs or 1, int(changed.block_size)
    if "num_gpu_blocks_override" in values:
        because = "one block is vLLM's null block, and requests need another"
        _require(2, values["num_gpu_blocks_override"], texts["num_gpu_blocks_override"], because)
        chosen["num_blocks"] = values["num_gpu_blocks_override"] - 1
    if "cache_tokens" in values:
        _require(size, values["cache_tokens"], texts["cache_tokens"], f"a block has {size} tokens")
        chosen["num_blocks"] = values["cache_tokens"] // size
    if "total_context" in values:
        _require(slots, values["total_context"], texts["total_context"], f"{slots} slots share it")
        chosen["max_model_len"] = values["total_context"] // slots
    _refuse_two_values(settings, chosen, given)
    return Configured(changed, replace(settings, **chosen, changes=given))


def _refuse_two_values(settings: Settings, chosen: dict[str, Any], given: Iterable[str]) -> None:
    """Raise InfercastError where an option and --set give a setting (None where nothing does) different values."""
    for name, value in chosen.items():
        before = getattr(settings, name)
        if getattr(Settings(), name) is None and before not in (None, value):
            typed = before + 1 if name == "num_blocks" else before  # one is vLLM's null block
            both = f"{option_of_setting(name)} {typed} with --set {' --set '.join(given)}"
            raise InfercastError(both, "they set the same to different values", "Give one of the two")


def option_of_setting(name: str) -> str:
    """Return the option that gives a field of `Settings`.

    >>> option_of_setting("memory_fraction"), option_of_setting("max_num_seqs")
    ('--gpu-memory-utilization', '--max-num-seqs')
    """
    return OPTIONS.get(name, f"--{name.replace('_', '-')}")


def _require(least: int, value: int, text: str, because: str) -> None:
    if value < least:
        raise InfercastError(f"--set {text}", because, f"Write {least} or more")


def known_names(engine: Engine) -> list[str]:
    """Return every name by which a setting of an engine can be given, the engine's own names first.

    SGLang's own are arguments of its server (python/sglang/srt/server_args.py).

    >>> known_names(load_engine("sglang"))[:2]
    ['max_running_requests', 'chunked_prefill_size']
    """
    return list(dict.fromkeys([*load_engine(engine.engine).spelling, *OURS]))


def _plain(name: str) -> str:
    return name.strip().lstrip("-").replace("-", "_").lower()


def our_words(engine: Engine, text: str) -> tuple[str, str]:
    """Return our name and our value of a setting that is given in the engine's words or in ours.

    Raises InfercastError for a name or a value that the engine does not have.

    >>> our_words(load_engine("sglang"), "disable_radix_cache=true")
    ('prefix_caching', 'false')
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise InfercastError(f"--set {text}", "a setting has a name and a value", "Write --set NAME=VALUE")
    own = {_plain(each): spelling for each, spelling in load_engine(engine.engine).spelling.items()}
    if (spelling := own.get(_plain(name))) is not None:
        words = {each.lower(): translated for each, translated in spelling.values.items()}
        if words and value.strip().lower() not in words:
            raise InfercastError(f"--set {text}", f"{name} has no such value", nearest(value, spelling.values))
        return spelling.sets, words.get(value.strip().lower(), value.strip())
    if _plain(name) not in OURS:
        known = [_plain(each) for each in known_names(engine)]
        raise InfercastError(f"--set {text}", f"{engine.id} has no such setting", nearest(_plain(name), known))
    return _plain(name), value.strip()


def _parsed(name: str, value: str, text: str) -> Any:
    """Return a value parsed by the kind of its setting; `text` is what the user wrote."""
    if name in (*SWITCHES, "eager", *OF_REQUESTS, *OF_START):
        if value.lower() not in WORDS:
            raise InfercastError(f"--set {text}", "it is on or off", "Write true or false")
        return WORDS[value.lower()]
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise InfercastError(f"--set {text}", f"{name} has no such value", nearest(value, CHOICES[name]))
        return value
    if name in (*SECONDS, *FRACTIONS):
        return _quantity(name, value, text)
    if name in SIZES:
        return tuple(sorted({_count(name, each.strip(), text) for each in value.split("+")}))
    return _count(name, value, text)


def _count(name: str, value: str, text: str) -> int:
    """Return a whole number that a setting may have."""
    least = 0 if name in NO_LIMIT else 1
    digits = value.replace("_", "")
    if not digits.isdecimal() or in_range(float(digits), f"--set {name}", MOST_WHOLE) < least:
        typed, is_short = text.partition("=")[0], re.fullmatch(r"[0-9]{1,6}[kK]", digits)
        written = f"{typed}={int(digits[:-1]) * 1024 if is_short else 64}"
        because = f"{typed} is a whole number of {least} or more"
        raise InfercastError(f"--set {text}", because, f"Write it in digits, as {written}")
    return int(digits)


def _quantity(name: str, value: str, text: str) -> float:
    """Return a time or a share that the field of an engine's preset may have, where it is one."""
    try:
        found = parse(value, "s" if name in SECONDS else "fraction")
    except UnitError as error:
        raise UnitError(f"--set {text}", error.because, error.remedy) from None
    bounds = Engine.model_fields[name].metadata if name in Engine.model_fields else ()
    most = min((getattr(bound, "lt", math.inf) for bound in bounds), default=math.inf)
    if found >= most:
        raise InfercastError(f"--set {text}", f"{name} is less than {most:g}", f"Write {name}=0.1")
    return found

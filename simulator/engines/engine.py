"""Every serving engine: its scheduling rules, its defaults by device, its memory convention, its overheads."""

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from simulator.engines.conditions import FormatName
from simulator.engines.defaults import Default, default_of
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine_names import redirected, spelt, stated_date, stated_release
from simulator.engines.graph_capture import GraphCapture
from simulator.engines.kernels import Kernels
from simulator.engines.overheads import Overheads
from simulator.engines.platforms import Platform
from simulator.engines.refused import refuse_known
from simulator.engines.static_cache import StaticCache
from simulator.engines.static_reserve import StaticReserve
from simulator.errors import NotModelledError, ProfileError, Setting, nearest
from simulator.hardware.hardware import Hardware
from simulator.models.architecture import Architecture
from simulator.models.number_formats import Files
from simulator.profile import Bytes, Figure, Fraction, Number, Origin, Profile, Source, Strict, Whole, find, joined
from simulator.profile_folders import names

KIND = "engines"
USUAL = "vllm"  # on devices of which no preset says that its own users run it
NO_PRODUCT = "No engine of such devices is modelled; --engine static, a plain loop of no product, runs on any"
Policy = Literal["continuous", "static", "prompts-first", "uncached"]
Reservation = Literal["paged", "contiguous"]
RecurrentKind = Literal["gated_delta_net", "kimi_delta", "lightning", "short_convolution", "mamba", "mamba2"]
TieredSetting = Literal["max_num_seqs", "max_num_batched_tokens"]
MoeBackend = Literal["auto", "triton", "cutlass", "marlin"]  # the engine's choice, or what was asked for
# Decode attention of the engine's choice on a device, in Triton, or in HIP (ROCM_ATTN) and AITER (ROCM_AITER_FA)
AttentionBackend = Literal["auto", "triton", "rocm"]
USUAL_RANK = Figure(16.0, Source(text="the adapters' own; vLLM keeps room for 16", date="", evidence="guess"))
NO_MORE = Figure(0.0, Source(text="nothing more is counted", date="", evidence="derived"))
ALL_OF_IT = Figure(1.0, Source(text="nothing is known to change it", date="", evidence="derived"))
NO_DRIFT = Figure(0.0, Source(text="nothing is known of it", date="", evidence="guess"))
# Fields of an engine that hold settings of their own
PARTS: dict[str, type[Strict]] = {"graph_capture": GraphCapture, "static_cache": StaticCache}
RECALLED = Source(text="rules as documented for the engine, recalled", date="", evidence="guess")


class MemoryRule(Strict):
    """What an engine leaves for the cache.

    `of_total`: fraction x memory - weights - workspace (vLLM, llama.cpp with all of it). `of_free`: fraction x
    (memory - weights - workspace) (TensorRT-LLM). `of_rest`: fraction x (memory - context) - weights (SGLang).
    """

    convention: Literal["of_total", "of_free", "of_rest"]
    fraction: Fraction
    reserve: StaticReserve | None = None  # by which the engine sets `fraction` itself; none: it is one for all devices
    context_bytes: Bytes  # driver context, libraries, communication buffers
    graph_bytes: Bytes  # captured CUDA graphs
    logit_copies: Number  # fp32 copies of the logits alive at once in the sampler
    graphs_hold_step: bool = False  # captured before memory is measured, with activations and logits of their own
    keeps_sampler: bool = False  # the sampler's buffers are allocated once, beside those of activations
    sequence_bytes: Bytes = NO_MORE  # of each sequence in the sampler's and the runtime's buffers, beside its logits
    peak_bytes: Bytes = NO_MORE  # of the step that the engine profiles, measured beside activations and logits
    recurrent_blocks: Annotated[int, Field(ge=0)] = 0  # per sequence and group of recurrent layers; 0: states lie apart
    windowed_share: Fraction | None = None  # of the context, that windowed layers keep; none: pages of their windows
    keeps_chunks: bool = False  # tokens before the present chunk of a layer with chunks stay in the cache
    state_slots: Annotated[int, Field(ge=0)] = 0  # of a pool of states, per sequence beside a prefix cache; 0: no pool
    fp32_states: bool = False  # states of recurrent layers are fp32 where a model's config.json does not say
    loads_vision: bool = False  # weights of a checkpoint's vision encoder, whose largest batch is profiled


class MaskedChunks(Strict):
    """Devices on which attention within chunks passes over a window of as many tokens, or all, and masks the others."""

    over: Literal["window", "context"]
    except_families: tuple[str, ...] = ()  # whose kernels know chunks


class OutputEstimate(Strict):
    """How long an engine expects outputs to become, by which it admits prompts. Rule J of docs/serving-rules.md."""

    tokens: Whole  # that a request is taken to produce still, at most
    first_ratio: Fraction  # of these kept free for what decodes, in the beginning
    least_ratio: Fraction  # and at least
    ranks_factor: Fraction = ALL_OF_IT  # of both, with data-parallel attention
    decay_steps: Whole  # of decodes, from the one to the other
    spare_tokens: Whole  # that a preemption adds to those of each, before it sets the ratio from them


class SettingName(Strict):
    """What one of an engine's own settings sets here; `values` translates where the words differ too."""

    sets: str
    values: dict[str, str] = {}


class Engine(Profile):
    """One version of a serving engine.

    The scheduling rules (docs/serving-rules.md) from `policy` to `micro_batch_tokens` rest on `rules`.
    """

    engine: str
    version: str
    since: str = ""  # when it was released, to the day where that is known, for sources with a date and no version
    aliases: tuple[str, ...] = ()
    runs_on: tuple[Platform, ...] = ()  # none: as the next newer version; if that has none either, everywhere
    notes: str = ""
    reads: tuple[Files, ...] = ()  # kinds of checkpoints; none: all, an engine that is no product
    usual_weights: str = ""  # format of the weights that it fetches where nothing is said; none: the checkpoint's own
    rules: Origin = RECALLED
    spelling: dict[str, SettingName] = {}  # its own names of settings; older versions use the newest one's
    policy: Policy
    block_size: Whole
    max_num_seqs: tuple[Default, ...]
    max_num_batched_tokens: tuple[Default, ...]
    max_model_len: tuple[Default, ...] = ()  # none: the model's, or what fits where contexts are reserved
    admit_full_prompt: bool = False
    admit_full_output: bool = False  # a request waits until all that it will ever hold is sure to fit
    least_free_share: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0  # of the cache: prompts wait while less is free
    watermark: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0  # of the blocks: an admission leaves so many free
    least_waiting: Annotated[int, Field(ge=0)] = 0  # requests for which prompts are computed twice in a row
    output_estimate: OutputEstimate | None = None  # a request waits until there is room for what outputs may become
    prompt_interval: Annotated[int, Field(ge=0)] = 0  # prompts wait for so many decode steps after the last that came
    scheduler_recv_interval: Annotated[int, Field(ge=1)] = 1  # decodes from one look at arrivals to the next
    num_scheduler_steps: Annotated[int, Field(ge=1)] = 1  # decode steps that are decided at once (vLLM V0)
    stream_interval: Annotated[int, Field(ge=1)] = 1  # tokens of a sequence that its client receives at once
    api_server_count: Annotated[int, Field(ge=1)] = 1  # processes that take requests in and stream tokens
    async_scheduling: bool = False
    launches_ahead: bool = False  # with it the host launches a step, too, while the one before runs
    serial_states: tuple[RecurrentKind, ...] = ()  # mixers with whose states it is off where prefixes are cached
    chunked_prefill: bool = True
    ranks_share_chunk: bool = False  # ranks of data-parallel attention divide the default of max_num_batched_tokens
    hides_sequences: bool = False  # under async_scheduling sequence_s passes while devices compute the next step
    stages_prepare: bool = False  # each pipeline stage prepares a step once it has what the stage before it sends
    long_prefill_tokens: Annotated[int, Field(ge=0)] = 0  # of one request in a step at most; 0 is no limit
    by_priority: bool = False
    prefix_caching: bool = False
    batch_size: Annotated[int, Field(ge=1)] = 1  # dynamic batches: requests that start a batch at once
    batch_wait_s: Annotated[float, Field(ge=0.0)] = 0.0  # or once the oldest has waited so long
    reservation: Reservation = "paged"
    micro_batch_tokens: Annotated[int, Field(ge=0)] = 0  # a step runs in parts of so many tokens; 0: in one
    flash_attention: bool | None = None  # attention fused or not, where the kernels' figures cover both
    attention_backend: AttentionBackend = "auto"
    absorbs_prompts: bool = False  # latent attention of prompts works on compressed vectors, as that of decodes does
    amx: bool = False  # a build for AMX, which llama.cpp is where it is compiled on such a CPU (-march=native)
    masked_chunks: MaskedChunks | None = None  # none: attention reads nothing before a chunk
    static_cache: StaticCache | None = None  # none: the cache grows with its sequences
    graph_capture: GraphCapture = GraphCapture()
    drift_tokens: Whole = NO_DRIFT  # by which equal requests of a closed loop drift apart (simulation/engine_workload)
    gathered_steps: Annotated[int, Field(ge=0)] = 0  # for which a prompt waits for others before it is computed
    splits_rows: bool = False  # tensor parallelism cuts rows of matrices: any number of devices divides a model
    pads_heads: bool = False  # heads of zeros are added until every core has as many
    every_expert: bool = False  # a token passes all experts, and what the router did not choose is dropped
    every_expert_of: tuple[Architecture, ...] = ()  # architectures of which it does so, all experts at once
    fp8_cache: tuple[FormatName, ...] = ()  # weights whose checkpoints ask for an fp8 cache, as it heeds
    moe_backend: MoeBackend = "auto"  # kernels of routed experts: SGLang's moe_wna16, cutlass_moe_fp4, vLLM's Marlin
    fuse_allreduce_rms: bool | None = None  # norms are part of all-reduces (vLLM); none: where its kernels say so
    quick_reduce: bool = False  # long all-reduces on AMD in 4 bits (VLLM_ROCM_QUICK_REDUCE_QUANTIZATION=INT4)
    adapters: bool = False  # GEMMs of low-rank adapters (LoRA) beside each of a layer's but the routed experts'
    max_loras: Annotated[int, Field(ge=1)] = 1  # adapters on the device at once
    max_lora_rank: Whole = USUAL_RANK  # columns of their matrices
    memory: MemoryRule
    overheads: Overheads
    kernels: tuple[Kernels, ...] = ()
    kernels_of: str = ""  # another engine whose kernels it runs

    def schedules_ahead(self, mixers: set[str]) -> bool:
        """Tell whether a step is decided while the one before runs, for a model with mixers of these kinds."""
        serial = self.prefix_caching and not mixers.isdisjoint(self.serial_states)
        return self.async_scheduling and not serial

    @property
    def is_reserved(self) -> bool:
        """Whether whole contexts are set aside, so that no batch waits for blocks."""
        return self.reservation == "contiguous"

    @property
    def is_built_on_ggml(self) -> bool:
        """Whether it reads GGUF first, as engines built on GGML do; these compute layers on the CPU, too (-ngl)."""
        return self.reads[:1] == ("gguf",)

    def setting(self, name: str) -> Any:
        """Return one of its settings, those of its parts among them; None where it lacks the part."""
        part = next((part for part, kind in PARTS.items() if name in kind.model_fields), None)
        return getattr(getattr(self, part), name, None) if part else getattr(self, name)

    def with_settings(self, values: Mapping[str, Any]) -> "Engine":
        """Return it with other settings, by the names of `setting`."""
        changed, own = dict[str, Any](), dict(values)
        for part, kind in PARTS.items():
            of_part = {name: own.pop(name) for name in values if name in kind.model_fields}
            if of_part:
                changed[part] = getattr(self, part).model_copy(update=of_part)
        return self.model_copy(update=own | changed)

    def platform(self, hardware: Hardware) -> Platform | None:
        """Return what it is on a device; NotModelledError where it does not run there, None where that is unknown."""
        found, missing = self._stated(hardware)
        if not missing:
            return found
        usual = load_engine(usual_engine(hardware))
        other = NO_PRODUCT if usual._stated(hardware)[1] else f"Choose another engine, say {usual.id}"
        raise NotModelledError(f"{self.id} on {hardware.id}", missing, other)

    def _stated(self, hardware: Hardware) -> tuple[Platform | None, str]:
        """Return what is documented of it on a device, None where nothing is, and why it does not run there, or ""."""
        known = self.runs_on or _newer_platforms(self.engine, self.version, os.environ.get("INFERCAST_PROFILES"))
        found = next((each for each in known if each.holds(hardware)), None)
        if found:
            return found, found.missing
        kind = f"vendor {hardware.vendor}, {hardware.device_class}, family {hardware.family}"
        return None, f"its documentation does not name such devices ({kind})" if known else ""

    def context_tokens(self, hardware: Hardware) -> int | None:
        """Return the context that it gives a sequence by default; None for as long as the model's, or as fits."""
        return default_of(self.max_model_len, hardware)

    def calibrated_for(self, model: str) -> "Engine":
        """Return the same engine with what a user's calibration says of a model, by id, and not with that of others."""
        return self.model_copy(update={"kernels": tuple(each for each in self.kernels if each.holds_for(model))})

    def kernels_on(self, hardware: Hardware) -> DeviceKernels:
        """Return its kernels on a device: the first that hold there, or those that the device was measured with."""
        for rule in self.kernels:
            if rule.covers(hardware):
                asked = rule.with_attention(fused=bool(self.flash_attention)).with_attention_of(self.attention_backend)
                asked = asked.with_experts_of(self.moe_backend).with_fused_norms(self.fuse_allreduce_rms)
                return DeviceKernels(hardware, asked.with_amx(self.amx).with_quick_reduce(self.quick_reduce))
        if not self.kernels_of:
            return DeviceKernels(hardware)
        other = load_engine(self.kernels_of)
        if other.kernels_of:
            because = f"{other.id} runs the kernels of {other.kernels_of} itself"
            raise ProfileError((Setting("kernels_of", self.kernels_of), f"in {self.id}"), because, "Name that one")
        return other.kernels_on(hardware)

    def overheads_on(self, hardware: Hardware) -> Overheads:
        """Return its host times beside a device: those that it was measured with, or the engine's."""
        return self.kernels_on(hardware).of_engine.overheads or self.overheads

    def rank_tokens(self, hardware: Hardware, ranks: int) -> int:
        """Return its default of max_num_batched_tokens for one of several ranks of data-parallel attention."""
        tokens = self.default("max_num_batched_tokens", hardware)
        return max(1, tokens // ranks) if self.ranks_share_chunk else tokens

    def default(self, setting: TieredSetting, hardware: Hardware) -> int:
        """Return an engine's default for a device."""
        found = default_of(getattr(self, setting), hardware)
        if found is None:
            because = f"no default covers {hardware.name}"
            raise ProfileError(f"{self.engine} {setting}", because, "Add a rule without conditions")
        return found


@cache
def _newer_platforms(engine: str, version: str, _folder: str | None) -> tuple[Platform, ...]:
    """Return the platforms of the next newer version of an engine that states some."""
    stated = [each for each in _presets(_folder) if each.engine == engine and each.runs_on]
    newer = (each for each in stated if _numbers(each.version) > _numbers(version))
    return next((each.runs_on for each in sorted(newer, key=lambda each: _numbers(each.version))), ())


@cache
def _presets(_folder: str | None) -> tuple[Engine, ...]:
    return tuple(Engine.from_yaml(find(KIND, each)) for each in names(KIND))


VERSION = re.compile(r"([a-z][a-z.+_-]*?)[\s:=@_-]*v?(b?\d[\d.]*\w*)")  # vllm:0.10.2, llama.cpp b4000


def usual_engine(hardware: Hardware) -> str:
    """Return the engine that users of a device run where they name none: vLLM unless a preset says that it is its own.

    An older version, where the newest does not run there any more.

    >>> from simulator.hardware.hardware import load_hardware
    >>> [usual_engine(load_hardware(each)) for each in ("h100-sxm", "m2-ultra", "gaudi2", "tpu-v6e")]
    ['vllm', 'llama.cpp', 'optimum-habana', 'vllm-tpu']
    """
    for preset in _presets(os.environ.get("INFERCAST_PROFILES")):
        here = next((each for each in preset.runs_on if each.holds(hardware)), None)
        if here and here.usual:
            return preset.engine if preset.id == load_engine(preset.engine).id else preset.id
    return USUAL


def load_engine(name: str) -> Engine:
    """Return an engine's preset: "vllm-0.33" by its file, or "vllm" for the newest version, in any capitals.

    Raises ProfileError with the nearest names for an unknown one, and with the preset of a version that has none.

    >>> load_engine("TGI").id
    'tgi-3.3'
    """
    engines = {each: each.rpartition("-")[0] or each for each in names(KIND)}
    versions = [each for each, engine in engines.items() if joined(engine) == joined(name)]
    newest = max(versions, key=lambda each: _numbers(each.rpartition("-")[2]), default=name)
    stated = VERSION.fullmatch(name.strip().lower())
    try:
        return Engine.from_yaml(find(KIND, newest, groups=engines.values()))
    except ProfileError:
        refuse_known(name)
        if stated is None or stated[1] not in engines.values():
            raise
    remedy = f"Give {engine_of(stated[1], stated[2]).id}, the nearest to it"
    raise ProfileError(Setting("engine", name), f"no preset is of version {stated[2]}", remedy)


def engine_of(name: str, version: str) -> Engine:
    """Return the preset for an engine as a source names it, of the generation that the version or date belongs to.

    The longest name or alias that `name` begins with decides the engine (`engine_names.spelt`). Of its presets, the
    newest that is not newer than the version ("0.6.3") or the date ("2024-05") is taken, the oldest where all are
    newer. A month is its first day; of several dates the most exact one counts.

    >>> engine_of("vLLM", "0.33.1").id, engine_of("NVIDIA TensorRT LLM", "1.1").id
    ('vllm-0.33', 'tensorrt-llm-1.0')
    >>> engine_of("vLLM", "latest (2026-01)").id, engine_of("vLLM", "latest (2026-01) 2026-01-20").id
    ('vllm-0.8', 'vllm-0.14')
    """
    presets = _presets(os.environ.get("INFERCAST_PROFILES"))
    known = {alias.lower(): each.engine for each in presets for alias in (each.engine, *each.aliases)}
    computes = redirected(name)
    alias, rest = spelt(computes, known)
    if alias != computes.lower():
        refuse_known(computes)
    if not alias:
        raise ProfileError(f"no engine preset for {name!r}", "no name and no alias fits", nearest(name, known))
    family = sorted((each for each in presets if each.engine == known[alias]), key=lambda each: _numbers(each.version))
    older = family
    if release := release_of(known[alias], version) or release_of(known[alias], rest):  # "0.33" is any 0.33.x
        older = [each for each in family if _numbers(each.version)[: len(release)] <= release]
    elif stated := stated_date(f"{rest} {version}"):
        older = [each for each in family if each.since <= stated]
    return older[-1] if older else family[0]


def release_of(engine: str, text: str) -> tuple[int, ...]:
    """Return the release of an engine that a text states, a build of llama.cpp (b5921) among them; () for none.

    >>> release_of("vllm", "rocm7.0.0_vllm_0.11.1_20"), release_of("llama.cpp", "b5921")
    ((0, 11, 1), (5921,))
    """
    return _numbers(stated_release(engine, text))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", text))

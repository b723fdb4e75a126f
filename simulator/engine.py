"""Every serving engine: its scheduling rules, its defaults by device, its memory convention, its overheads."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema

from simulator.errors import ProfileError, nearest
from simulator.formats import number_format
from simulator.hardware import DeviceClass, Hardware, PeakName
from simulator.profile import Bytes, Figure, Fraction, Number, Profile, Seconds, Source, Strict, Whole, find, names
from simulator.work import Array, Counts, Op

KIND = "engines"
UNITY = Figure(1.0, Source(text="the kernels that the device was measured with", date="", evidence="derived"))
NO_TIME = Figure(0.0, Source(text="it is left out, or not known of the engine", date="", evidence="derived"))
EXPERTS = Figure(
    0.65,
    Source(
        text="aiconfigurator-core 0.12.0 kernel tables: 0.5 to 0.75 of the share of plain products at 4,096 tokens",
        date="2026-11",
        evidence="derived",
    ),
)
FUSED = {"score_bytes": None, "per_head": None, "per_head_crowded": None}  # what fused attention does away with
QUICK = {  # of vLLM's QuickReduce, where it is asked for 4 bits
    "reduced_bits": Figure(
        4.5,
        Source(
            text="vllm-project/vllm pull request 19744: INT4 in groups of 32, a scale of 16 bits for each",
            date="2025-06",
            evidence="datasheet",
        ),
    )
}
FEW_ROWS = 16  # of `past_16_tokens`
WIDE_BYTES = 2.0  # of a cached number in the registers of a kernel
CROWDED_HEADS = 512  # sequences x query heads beyond which the other kernel runs (vllm/attention/ops/paged_attn.py)
CAPTURED_TOKENS = 8192  # of context at most in a captured graph (vLLM: max_seq_len_to_capture), shorter for some models
Policy = Literal["continuous", "static", "prompts-first", "uncached"]
Reservation = Literal["paged", "contiguous"]
RECALLED = Source(text="rules as documented for the engine, recalled", date="", evidence="guess")


class Kernels(Strict):
    """What an engine's kernels reach of the device's achievable rates (hardware profile), and how they are launched.

    `compute`, `memory`: matrix products; `quantized`: a further share of the compute rate for those in fp8 and fp4,
    where no kernel of its own quantises their inputs (Format.scaled_late: the tables of products hold it);
    `unpacked`, `packed`: further shares of the two where weights are unpacked before they are multiplied; `experts`: a
    further share of the compute rate for routed experts; `cache`: reading the cache; `attention`: prompts;
    `half_length`: times the length at which a prompt's attention reaches half of its rate; `widened`: types that
    weights are unpacked from, though the device could multiply them. `launch`: times the launch of a kernel alone,
    below 1 inside a captured graph, above 1 where a slow host launches; `split_launch`: times that again where layers
    are split over devices, which loses the graph; `link`: times the latency of collectives.

    `layer_launches`: the host's work on a layer where no graph is captured, in launches of a product alone, which is
    how fast the host of a device is known; the device works meanwhile, and a step takes as long as the slower of the
    two. None: a captured graph, or a host that is faster than the device.

    `prompt_launch_s`: the host's time to launch a kernel of a step that computes prompts, where graphs are captured for
    decodes alone (or up to Engine.graph_tokens), on an x86 server (Hardware.host_slowness); here too a step takes
    as long as the slower of the two. None: prompts are in graphs, or their kernels are compiled into few launches.

    `past_16_tokens`: a further share of the rate at which products in fp8, scaled as a whole, read weights in a step of
    more tokens. vLLM on Hopper has a CUTLASS tile of its own up to 16 rows, and another from 17 to 64
    (csrc/quantization, scaled_mm_sm90_fp8_dispatch.cuh); that larger batches are no faster again is a guess.

    `fuses`: formats of weights whose inputs the kernel before quantises (norm, all-reduce, activation, attention):
    their products start as those of 16 bits do. The start of one in fp8 in the tables holds the quantising kernel.

    `one_shot_tokens`: tokens up to which an all-reduce sends each device's share to all others at once (Links).
    `reduced_bits`: of a number in a long all-reduce (Links); none: it travels as it is.

    `streams`: products tuned for decode read weights at the best rate that any kernel of the device reaches, and not at
    `memory_fraction` of its gemm, which was fitted to single products and holds the time that they take to start.

    `per_head`, `per_head_crowded`: share of the bandwidth at which query heads read the cache each for itself, in a
    batch of few and of many heads (`CROWDED_HEADS`); none where the query heads of a group share what they read.
    vLLM's paged attention before 0.6 has one block of threads per sequence and query head (csrc/attention), and for
    many of them a kernel that keeps a row of `CAPTURED_TOKENS` scores in shared memory, which bounds the blocks at
    work: `per_head_crowded` is for rows so long, and grows as they shrink.

    `score_bytes`: bytes that prompts without fused attention move per score, a number for each head and pair of a query
    and a key; none: fused. `unpack_tokens`: tokens that a CPU unpacks weights for at once (Format.unpacking); none: it
    costs nothing. `expert_tile`: each expert computes a multiple of so many tokens; none: what reaches it.
    """

    families: tuple[str, ...] = ()  # of devices that it holds for; none is all
    fitted_on: tuple[str, ...] = ()  # families of the devices whose measurements its figures come from
    devices: tuple[str, ...] = ()  # the same by id, for what was measured on one
    residuals: dict[str, tuple[float, ...]] = {}  # "metric regime": ln(measured / predicted) of setups held back
    compute: Number = UNITY
    quantized: Number = UNITY
    memory: Number = UNITY
    unpacked: Number = UNITY
    packed: Number = UNITY
    experts: Number = EXPERTS
    quantized_experts: Number | None = None  # the same where they are multiplied in fp8 or fp4, if it differs
    cache: Number = UNITY
    attention: Number = UNITY
    half_length: Number = UNITY
    per_head: Number | None = None
    per_head_crowded: Number | None = None
    per_head_formats: tuple[str, ...] = ()  # of the cache for which heads read apart; none is all
    per_head_except: tuple[int, ...] = ()  # query heads in a group, for which the group shares what it reads
    score_bytes: Number | None = None
    unpack_tokens: Number | None = None
    expert_tile: Number | None = None
    streams: bool = False
    fuses: tuple[str, ...] = ()
    widened: tuple[PeakName, ...] = ()
    launch: Number = UNITY
    split_launch: Number = UNITY
    layer_launches: Number | None = None
    prompt_launch_s: Seconds | None = None
    past_16_tokens: Number = UNITY
    one_shot_tokens: Number | None = None
    reduced_bits: Number | None = None
    link: Number = UNITY

    def holds(self, hardware: Hardware) -> bool:
        """Tell whether the rule is for a device."""
        family, device = hardware.family, hardware.id
        return family in (self.families or (family,)) and device in (self.devices or (device,))

    def reads_per_head(self, cache_format: str, group: float) -> bool:
        """Tell whether the query heads of a group of so many read a cache of a format each for itself."""
        apart = cache_format in (self.per_head_formats or (cache_format,)) and group not in self.per_head_except
        return self.per_head is not None and apart

    def share_per_head(self, heads: Array, context_tokens: int, cache_format: str) -> Array:
        """Return the share of the bandwidth that `heads`, sequences x query heads, reach who read each for itself.

        They read what another has brought near, and compute in 16 bits: a narrower number costs them as much. 0 heads:
        nothing is known of the batch (a slope of StepTable), and it counts as crowded.
        """
        few, longest = float(self.per_head or math.inf), float(self.per_head_crowded or math.inf)
        crowded = min(longest * CAPTURED_TOKENS / min(context_tokens, CAPTURED_TOKENS), few)
        narrow = min(1.0, number_format(cache_format).size_bytes / WIDE_BYTES)
        return narrow * np.where((heads > 0) & (heads <= CROWDED_HEADS), few, crowded)

    def share_of_rows(self, op: Op, tokens: Array) -> Array:
        """Return the share of the rate of a few rows at which a product of so many tokens reads its weights."""
        apart = op.format == "fp8" and op.experts is None
        return np.where(np.asarray(tokens) > FEW_ROWS, float(self.past_16_tokens), 1.0) if apart else 1.0

    def compute_share(self, peak: PeakName, op: Op) -> float:
        """Return the share of a device's compute rate that a product in a type reaches."""
        narrow = peak in ("fp8", "fp4")
        own = self.quantized_experts if narrow else None
        experts = self.experts if own is None else own
        quantized = self.quantized if narrow and not number_format(op.format).scaled_late else 1.0
        return self.compute * quantized * (experts if op.experts else 1.0)

    def fuses_quantization(self, op: Op) -> bool:
        """Tell whether the kernel before a product quantises its input; experts sort theirs first."""
        return op.format in self.fuses and op.experts is None


class Default(Strict):
    """A setting's default on the devices that the conditions name; the first that holds wins."""

    value: Whole
    memory_at_least_bytes: Bytes | None = None
    device_classes: tuple[DeviceClass, ...] = ()
    except_families: tuple[str, ...] = ()

    def holds(self, hardware: Hardware) -> bool:
        """Tell whether every condition holds for a device."""
        return (
            hardware.memory_bytes >= (self.memory_at_least_bytes or 0)
            and (not self.device_classes or hardware.device_class in self.device_classes)
            and hardware.family not in self.except_families
        )


class MemoryRule(Strict):
    """What an engine leaves for the cache.

    `of_total`: fraction x memory - weights - workspace (vLLM, SGLang, llama.cpp with all of it). `of_free`: fraction x
    (memory - weights - workspace) (TensorRT-LLM).
    """

    convention: Literal["of_total", "of_free"]
    fraction: Fraction
    context_bytes: Bytes  # driver context, libraries, communication buffers
    graph_bytes: Bytes  # captured CUDA graphs
    logit_copies: Number  # fp32 copies of the logits alive at once in the sampler


class Overheads(Strict):
    """Host time that no kernel hides, of an engine on a current x86 server.

    `step_s`: of a step; where the host launches kernels (Kernels.prompt_launch_s) it launches the sampler's here, and
    takes Hardware.host_slowness times as long.

    `cached_token_s`: per token that a step's sequences hold in the cache, of an engine that lists their blocks anew in
    each step (vLLM V0: Python lists of block numbers, copied by the scheduler and into a tensor of block tables).
    """

    step_s: Seconds
    sequence_s: Seconds
    request_s: Seconds
    cached_token_s: Seconds = NO_TIME

    def host_s(self, counts: Counts) -> Array:
        """Return the seconds of a step that no kernel hides."""
        cached_s = self.cached_token_s * counts.decode_reads
        return self.step_s * counts.steps + self.sequence_s * counts.logits + cached_s


def _origin(raw: object, info: ValidationInfo) -> object:
    """Read `{source: key}` or `{guess: reason}`, as figures have it."""
    if not isinstance(raw, Mapping):
        return raw
    sources: Mapping[str, Source] = (info.context or {}).get("sources", {})
    if "guess" in raw:
        return Source(text=str(raw["guess"]), date="", evidence="guess")
    key = str(raw.get("source"))
    if key not in sources:
        raise ProfileError(f"source {key!r}", "it is not in sources:", nearest(key, sources))
    return sources[key]


_ORIGIN_SCHEMA = {
    "type": "object",
    "properties": {"source": {"type": "string"}, "guess": {"type": "string"}},
    "oneOf": [{"required": ["source"]}, {"required": ["guess"]}],
    "additionalProperties": False,
}
Origin = Annotated[Source, BeforeValidator(_origin), WithJsonSchema(_ORIGIN_SCHEMA)]


class Spelling(Strict):
    """What one of an engine's own settings sets here; `values` translates where the words differ too."""

    sets: str
    values: dict[str, str] = {}


class Engine(Profile):
    """One version of a serving engine.

    The scheduling rules (docs/serving-rules.md) from `policy` to `micro_batch_tokens` rest on `rules`.
    """

    engine: str
    version: str
    since: str = ""  # the year and month of its release, for sources that state a date and no version
    aliases: tuple[str, ...] = ()
    vendors: tuple[str, ...] = ()  # whose devices alone it runs on
    notes: str = ""
    rules: Origin = RECALLED
    spelling: dict[str, Spelling] = {}  # its own names of settings; older versions use the newest one's
    policy: Policy
    block_size: Whole
    max_num_seqs: tuple[Default, ...]
    max_num_batched_tokens: tuple[Default, ...]
    max_model_len: tuple[Default, ...] = ()  # none: the model's, or what fits where contexts are reserved
    admit_full_prompt: bool = False
    admit_full_output: bool = False  # a request waits until all that it will ever hold is sure to fit
    async_scheduling: bool = False
    chunked_prefill: bool = True
    long_prefill_tokens: Annotated[int, Field(ge=0)] = 0  # of one request in a step at most; 0 is no limit
    by_priority: bool = False
    prefix_caching: bool = False
    batch_size: Annotated[int, Field(ge=1)] = 1  # dynamic batches: requests that start a batch at once
    batch_wait_s: Annotated[float, Field(ge=0.0)] = 0.0  # or once the oldest has waited so long
    reservation: Reservation = "paged"
    micro_batch_tokens: Annotated[int, Field(ge=0)] = 0  # a step runs in parts of so many tokens; 0: in one
    flash_attention: bool | None = None  # attention fused or not, where the kernels' figures cover both
    read_bucket: Annotated[int, Field(ge=0)] = 0  # the cache is read up to the next power of two from so many tokens on
    graph_tokens: Annotated[int, Field(ge=0)] = 0  # of a step with prompts that a captured graph launches, at most
    graph_tokens_per_seq: Annotated[int, Field(ge=0)] = 0  # and for each of max_num_seqs at most; 0: no such bound
    drift_tokens: Annotated[int, Field(ge=0)] = 0  # guess: outputs of equal requests differ by so many, see loads.py
    every_expert: bool = False  # a token passes all experts, and what the router did not choose is dropped
    one_text: bool = False  # all sequences of a batch are the same text; of measured loads (recipes) alone
    fp8_cache: bool = False  # the cache is fp8 where the weights are fp8 or fp4
    quick_reduce: bool = False  # long all-reduces on AMD in 4 bits (VLLM_ROCM_QUICK_REDUCE_QUANTIZATION=INT4)
    sorted_bytes: Annotated[float, Field(ge=0.0)] = 0.0  # moved per logit to sort them; of measured loads alone
    adapters: bool = False  # products of low-rank adapters (LoRA) beside each of a layer's
    memory: MemoryRule
    overheads: Overheads
    kernels: tuple[Kernels, ...] = ()
    kernels_of: str = ""  # another engine whose kernels it runs

    @property
    def is_reserved(self) -> bool:
        """Whether whole contexts are set aside, so that no batch waits for blocks."""
        return self.reservation == "contiguous"

    def context_tokens(self, hardware: Hardware) -> int | None:
        """Return the context that it gives a sequence by default; None for as long as the model's, or as fits."""
        return next((int(rule.value) for rule in self.max_model_len if rule.holds(hardware)), None)

    def kernels_on(self, hardware: Hardware) -> Kernels:
        """Return what its kernels reach on a device: the first rule that holds, or all of the achievable rates."""
        for rule in self.kernels:
            if rule.holds(hardware):
                changed = (FUSED if self.flash_attention else {}) | (QUICK if self.quick_reduce else {})
                return rule.model_copy(update=changed) if changed else rule
        return load_engine(self.kernels_of).kernels_on(hardware) if self.kernels_of else Kernels()

    def default(self, setting: Literal["max_num_seqs", "max_num_batched_tokens"], hardware: Hardware) -> int:
        """Return an engine's default for a device."""
        for rule in getattr(self, setting):
            if rule.holds(hardware):
                return int(rule.value)
        raise ProfileError(
            f"{self.engine} {setting}", f"no default covers {hardware.name}", "Add a rule without conditions"
        )


def load_engine(name: str) -> Engine:
    """Return an engine's preset: "vllm-0.33" by its file, or "vllm" for the newest version."""
    versions = [each for each in names(KIND) if each.rpartition("-")[0] == name]
    newest = max(versions, key=lambda each: _numbers(each.rpartition("-")[2]), default=name)
    return Engine.from_yaml(find(KIND, newest))


def engine_of(name: str, version: str) -> Engine:
    """Return the preset for an engine as a source names it, of the generation that the version or date belongs to.

    The longest name or alias that `name` starts with decides the engine. Of its presets, the newest that is not newer
    than the version ("0.6.3") or the date ("2024-05") is taken, the oldest where all are newer.

    >>> engine_of("vLLM", "0.33.1").id
    'vllm-0.33'
    """
    presets = [Engine.from_yaml(find(KIND, each)) for each in names(KIND)]
    known = {alias.lower(): each.engine for each in presets for alias in (each.engine, *each.aliases)}
    alias = max((each for each in known if name.lower().startswith(each)), key=len, default="")
    if not alias:
        raise ProfileError(f"no engine preset for {name!r}", "no name and no alias fits", nearest(name, known))
    family = sorted((each for each in presets if each.engine == known[alias]), key=lambda each: _numbers(each.version))
    text, older = f"{name[len(alias) :] if alias == known[alias] else ''} {version}", family
    if stated := re.search(r"(?<![\d.-])\d+(\.\d+)+|\bb\d{4,}\b", text):  # b5921: a build of llama.cpp
        older = [each for each in family if _numbers(each.version) <= _numbers(stated.group())]
    elif stated := re.search(r"20\d\d(-\d\d)?", text):
        older = [each for each in family if each.since <= stated.group()]
    return older[-1] if older else family[0]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", text))

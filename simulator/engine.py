"""Every serving engine: its scheduling rules, its defaults by device, its memory convention, its overheads."""

import re
from typing import Annotated, Literal

from pydantic import Field

from simulator.errors import ProfileError, nearest
from simulator.hardware import DeviceClass, Hardware, PeakName
from simulator.profile import Bytes, Figure, Fraction, Number, Profile, Seconds, Source, Strict, Whole, find, names

KIND = "engines"
UNITY = Figure(1.0, Source(text="the kernels that the device was measured with", date="", evidence="derived"))
EXPERTS = Figure(
    0.65,
    Source(
        text="aiconfigurator-core 0.12.0 kernel tables: 0.5 to 0.75 of the share of plain products at 4,096 tokens",
        date="2026-11",
        evidence="derived",
    ),
)
Policy = Literal["continuous", "static", "prompts-first"]


class Kernels(Strict):
    """What an engine's kernels reach of the device's achievable rates (hardware profile), and how they are launched.

    `compute`, `memory`: matrix products; `unpacked`, `packed`: further shares of the two where weights are unpacked
    before they are multiplied; `experts`: a further share of the compute rate for routed experts; `cache`: reading the
    cache; `attention`: prompts. `launch`: times the launch of a kernel alone, below 1 inside a captured graph, above 1
    where a slow host launches; `link`: times the duration of collectives.
    """

    families: tuple[str, ...] = ()  # of devices that it holds for; none is all
    compute: Number = UNITY
    memory: Number = UNITY
    unpacked: Number = UNITY
    packed: Number = UNITY
    experts: Number = EXPERTS
    quantized_experts: Number | None = None  # the same where they are multiplied in fp8 or fp4, if it differs
    cache: Number = UNITY
    attention: Number = UNITY
    launch: Number = UNITY
    link: Number = UNITY

    def experts_share(self, peak: PeakName) -> float:
        """Return the share of the compute rate that routed experts reach when multiplied in a type."""
        own = self.quantized_experts if peak in ("fp8", "fp4") else None
        return self.experts if own is None else own


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

    `of_total`: fraction x memory - weights - workspace (vLLM, SGLang). `of_free`: fraction x (memory - weights -
    workspace) (TensorRT-LLM). `reserved`: a fixed context per slot beside the weights (llama.cpp).
    """

    convention: Literal["of_total", "of_free", "reserved"]
    fraction: Fraction
    context_bytes: Bytes  # driver context, libraries, communication buffers
    graph_bytes: Bytes  # captured CUDA graphs
    logit_copies: Number  # fp32 copies of the logits alive at once in the sampler

    @property
    def is_reserved(self) -> bool:
        """Whether whole contexts are set aside, so that no batch waits for blocks."""
        return self.convention == "reserved"


class Overheads(Strict):
    """Host time that no kernel hides, of an engine on a current server."""

    step_s: Seconds
    sequence_s: Seconds
    request_s: Seconds


class Engine(Profile):
    """One version of a serving engine."""

    engine: str
    version: str
    since: str = ""  # the year and month of its release, for sources that state a date and no version
    aliases: tuple[str, ...] = ()
    notes: str = ""
    policy: Policy
    block_size: Whole
    max_num_seqs: tuple[Default, ...]
    max_num_batched_tokens: tuple[Default, ...]
    admit_full_prompt: bool = False
    admit_full_output: bool = False  # a request waits until all that it will ever hold is sure to fit
    async_scheduling: bool = False
    scheduler_not_modelled: str = ""  # what no policy here follows; `infercast simulate` then refuses the engine
    prompt_chunks_in_flight: Annotated[int, Field(ge=1)] = (
        1  # chunks of a prompt that follow one another through stages
    )
    fp8_cache: bool = False  # the cache is fp8 where the weights are fp8 or fp4
    memory: MemoryRule
    overheads: Overheads
    kernels: tuple[Kernels, ...] = ()

    def kernels_on(self, hardware: Hardware) -> Kernels:
        """Return what its kernels reach on a device: the first rule that holds, or all of the achievable rates."""
        rules = (rule for rule in self.kernels if not rule.families or hardware.family in rule.families)
        return next(rules, Kernels())

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
    text = f"{name[len(alias) :] if alias == known[alias] else ''} {version}"
    if stated := re.search(r"(?<![\d.-])\d+(\.\d+)+", text):
        older = [each for each in family if _numbers(each.version) <= _numbers(stated.group())]
    elif stated := re.search(r"20\d\d(-\d\d)?", text):
        older = [each for each in family if each.since <= stated.group()]
    else:
        older = family
    return older[-1] if older else family[0]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"\d+", text))

"""Every serving engine: its scheduling rules, its defaults by device, its memory convention, its overheads."""

from pathlib import Path
from typing import Literal

from simulator.errors import ProfileError
from simulator.hardware import DeviceClass, Hardware
from simulator.profile import Bytes, Fraction, Number, Profile, Seconds, Strict, find, names

KIND = "engines"
Policy = Literal["continuous", "static"]


class Default(Strict):
    """A setting's default on the devices that the conditions name; the first that holds wins."""

    value: Number
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


class Overheads(Strict):
    """Host time that no kernel hides, of an engine on a current server."""

    step_s: Seconds
    sequence_s: Seconds
    request_s: Seconds


class Engine(Profile):
    """One version of a serving engine."""

    engine: str
    version: str
    aliases: tuple[str, ...] = ()
    notes: str = ""
    policy: Policy
    block_size: Number
    max_num_seqs: tuple[Default, ...]
    max_num_batched_tokens: tuple[Default, ...]
    admit_full_prompt: bool = False
    async_scheduling: bool = False
    scheduler_not_modelled: str = ""  # what no policy here follows; `infercast simulate` then refuses the engine
    memory: MemoryRule
    overheads: Overheads

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
    newest = max(versions, key=_version, default=name)
    return Engine.from_yaml(find(KIND, newest))


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in Path(name).name.rpartition("-")[2].split(".") if part.isdigit())

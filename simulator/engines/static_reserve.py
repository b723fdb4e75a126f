"""What an engine leaves of a device's memory for activations and captured graphs, where no share of it is given."""

from simulator.hardware.hardware import Hardware
from simulator.profile import Bytes, Strict

LEAST_CHUNK = 2048  # tokens of a chunk whose activations are counted at least
DIGITS = 3  # to which the share is rounded


class FixedReserve(Strict):
    """What does not depend on a chunk's tokens, on devices with so much memory; the first that holds wins."""

    value: Bytes  # metadata, captured graphs
    rank_bytes: Bytes  # of each rank of data-parallel attention, where there are several
    least_bytes: Bytes | None = None  # of the whole reserve
    memory_at_least_bytes: Bytes | None = None


class StaticReserve(Strict):
    """SGLang's mem_fraction_static where it is not given: what is left beside the reserve, over the memory.

    Bytes of the largest graph are those of one or two devices: up to 0.5 GiB more from 4 devices on are left out.
    """

    fixed: tuple[FixedReserve, ...]
    chunk_token_bytes: Bytes
    device_bytes: Bytes  # of each device of a replica, on every one

    def on(self, hardware: Hardware) -> "StaticReserve":
        """Return the same with what holds for a device alone."""
        holds = next(each for each in self.fixed if hardware.memory_bytes >= (each.memory_at_least_bytes or 0.0))
        return self.model_copy(update={"fixed": (holds,)})

    def fraction(self, hardware: Hardware, chunk_tokens: int, devices: int, ranks: int) -> float:
        """Return the share of a device's memory for weights and cache; `chunk_tokens`: of a step of all ranks.

        >>> from simulator.hardware.hardware import load_hardware
        >>> from simulator.engines.engine import load_engine
        >>> rule = load_engine("sglang-0.5").memory.reserve
        >>> rule.fraction(load_hardware("h200-sxm"), 8192, 1, 1)
        0.907
        """
        memory, (fixed,) = hardware.memory_bytes, self.on(hardware).fixed
        reserved = fixed.value + self.chunk_token_bytes * max(chunk_tokens, LEAST_CHUNK) + self.device_bytes * devices
        reserved = max(reserved + (fixed.rank_bytes * ranks if ranks > 1 else 0.0), fixed.least_bytes or 0.0)
        return round(1.0 - reserved / memory, DIGITS)

"""The torch device that the engine computes on: its kind, its dtype, its free memory."""

from dataclasses import dataclass
from pathlib import Path

import torch

from simulator.errors import DoesNotFitError, InfercastError, nearest
from simulator.limits import machine_bytes
from simulator.units import gibibytes

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
CPUINFO = Path("/proc/cpuinfo")
RESERVE_BYTES = 1 << 30  # left for activations and everybody else


@dataclass(frozen=True, slots=True)
class Device:
    """A torch device ("cpu", "cuda" or "meta") and the dtype of weights, activations and cache ("fp32" or "bf16").

    Raises InfercastError for another name, and for "cuda" where torch sees none.
    """

    kind: str = "cpu"
    dtype_name: str = "fp32"

    def __post_init__(self) -> None:
        if self.kind not in ("cpu", "cuda", "meta"):
            raise InfercastError(f"device {self.kind!r}", "it is not known", nearest(self.kind, ("cpu", "cuda")))
        if self.kind == "cuda" and not torch.cuda.is_available():
            raise InfercastError("device 'cuda'", "torch sees no CUDA device here", "Give --device cpu")
        if self.dtype_name not in DTYPES:
            raise InfercastError(f"dtype {self.dtype_name!r}", "it is not known", nearest(self.dtype_name, DTYPES))

    @property
    def dtype(self) -> torch.dtype:
        """The torch dtype."""
        return DTYPES[self.dtype_name]

    @property
    def fuses_attention(self) -> bool:
        """Whether one kernel attends for sequences of all lengths: FlashAttention, on CUDA in 16 bits."""
        return self.kind == "cuda" and self.dtype_name == "bf16"

    @property
    def free_bytes(self) -> int:
        """Bytes of device memory that are free; on a CPU of main memory, the page cache included."""
        if self.kind == "cuda":
            return int(torch.cuda.mem_get_info()[0])
        return int(machine_bytes())

    def require(self, needed_bytes: float, what: str) -> None:
        """Raise DoesNotFitError where `needed_bytes`, and 1 GiB for activations, are not free."""
        room = self.free_bytes - RESERVE_BYTES
        if self.kind != "meta" and needed_bytes > room:
            because = f"it needs {gibibytes(needed_bytes)}, {gibibytes(max(0, room))} are free on {self.kind}"
            raise DoesNotFitError(what, because, "Give a smaller model, or --dtype bf16, or fewer cache blocks")

    def synchronize(self) -> None:
        """Wait until all launched kernels are done."""
        if self.kind == "cuda":
            torch.cuda.synchronize()

    @property
    def name(self) -> str:
        """Name of the GPU or processor, as the driver or /proc/cpuinfo gives it."""
        if self.kind == "cuda":
            return str(torch.cuda.get_device_name())
        return _processor_name()


CPU = Device()


def _processor_name() -> str:
    lines = CPUINFO.read_text(encoding="utf-8").splitlines() if CPUINFO.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")

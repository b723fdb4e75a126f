"""Training against inference: FLOPs, device hours and dollars of training, and the served tokens that equal it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.engines.device_kernels import DeviceKernels
from simulator.errors import InfercastError, Setting
from simulator.frames import Framed, frame
from simulator.hardware.hardware import Hardware
from simulator.models.model import Model
from simulator.profile import Figure, Source
from simulator.roofline.roofline import Rates

if TYPE_CHECKING:
    import pandas as pd

FLOPS_PER_PARAMETER = 6.0  # and token: 2 forward, 4 backward
MFU = Figure(
    0.40,
    Source(
        text="380 to 430 TFLOP/s of the 989 of each H100, Llama 3 405B on 8,192 and 16,384 of them (arXiv:2407.21783, "
        "table 4); 0.46 of PaLM 540B (arXiv:2204.02311, table 3)",
        date="2024-07",
        evidence="measured",
    ),
)
PUBLISHED_TIMES = 0.8, 2.9  # the device hours at MFU, of five published runs (tests/cost/test_training.py)
OPTIMAL_TOKENS_PER_PARAMETER = Figure(
    20.0,
    Source(
        text="about, at the least loss for a budget: Hoffmann et al. (arXiv:2203.15556)",
        date="2022-03",
        evidence="fitted",
    ),
)


@dataclass(frozen=True, slots=True, repr=False)
class Training(Framed):
    """One pass of a model over `tokens` training tokens, on devices that reach a share `mfu` of their dense peak.

    `parameters`: those that one token uses; all of a dense model, the active ones of a mixture of experts. What is left
    out: the pairs of attention, failed and repeated runs, data, post-training and people. Published device hours are
    0.8 to 2.9 times those computed here at an MFU of 0.4 (tests/cost/test_training.py).

    Raises InfercastError for numbers that are not above 0, and for an `mfu` above 1.

    >>> Training(parameters=1e9, tokens=1e10, peak_flops_per_s=1e15).flops
    6e+19
    """

    parameters: float
    tokens: float
    peak_flops_per_s: float
    mfu: float = float(MFU)

    def __post_init__(self) -> None:
        for name in ("parameters", "tokens", "peak_flops_per_s", "mfu"):
            if not 0 < getattr(self, name) < float("inf"):
                given, because = Setting(name, getattr(self, name)), "it is a finite number above 0"
                usual = {"parameters": 8e9, "tokens": 1.5e13, "peak_flops_per_s": 1e15, "mfu": 0.4}[name]
                raise InfercastError(given, because, f"Give, say, {usual:g}")
        if self.mfu > 1:
            raise InfercastError(Setting("mfu", self.mfu), "it is a share of the peak, up to 1", "Give, say, 0.4")

    @property
    def flops(self) -> float:
        """6 N D: N parameters, D tokens; 2 N per token forward, twice that backward.

        Kaplan et al. 2020 (arXiv:2001.08361, section 2.1). The 405B of Llama 3 saw 15.6e12 tokens: its paper has
        3.8e25 FLOPs (arXiv:2407.21783, section 3.2).

        >>> f"{Training(405e9, 15.6e12, 989e12).flops:.2g}"
        '3.8e+25'
        """
        return FLOPS_PER_PARAMETER * self.parameters * self.tokens

    @property
    def device_hours(self) -> float:
        """6 N D / (peak x MFU) / 3600.

        LLaMA-65B took 1,022,362 hours of A100 for 1.4e12 tokens (arXiv:2302.13971, table 15): an MFU of 0.48.

        >>> round(Training(65.2e9, 1.4e12, 312e12, mfu=0.48).device_hours / 1_022_362, 2)
        0.99
        """
        return self.flops / (self.peak_flops_per_s * self.mfu) / 3600

    def to_frame(self) -> "pd.DataFrame":
        """Return one row: parameters, training tokens, MFU, FLOPs, device hours, served tokens of as many FLOPs."""
        names = ("parameters", "tokens", "mfu", "flops", "device_hours", "equal_flops_tokens")
        return frame([{name: getattr(self, name) for name in names}])

    def usd(self, usd_per_device_hour: float) -> float:
        """Return the cost of the device hours in US dollars."""
        return self.device_hours * usd_per_device_hour

    @property
    def equal_flops_tokens(self) -> float:
        """Served tokens that take as many FLOPs: 3 D, because inference takes 2 N per token."""
        return FLOPS_PER_PARAMETER / 2 * self.tokens


def training_of(model: Model, hardware: Hardware, tokens: float | None = None, mfu: float | None = None) -> Training:
    """Return the training of a model in 16 bits on a device; without `tokens`, on 20 tokens per active parameter.

    Hoffmann et al. trained Chinchilla, 70B, on 1.4e12 tokens (arXiv:2203.15556, table 4).

    >>> from simulator.hardware.hardware import load_hardware
    >>> from simulator.models.model import load_model
    >>> f"{training_of(load_model('llama-2-70b'), load_hardware('h100-sxm')).tokens:.2g}"
    '1.4e+12'
    """
    parameters = float(model.active_parameters)
    tokens = float(OPTIMAL_TOKENS_PER_PARAMETER) * parameters if tokens is None else tokens
    peak = float(Rates(DeviceKernels(hardware)).peak("bf16")[1])
    return Training(parameters, tokens, peak, float(MFU) if mfu is None else mfu)


def equal_cost_tokens(training_usd: float, usd_per_million_tokens: float) -> float:
    """Return the served tokens after which inference has cost as much as training: dollars / dollars per token.

    At 2 dollars per million, 100,000 dollars are 5e10 tokens. Raises InfercastError for a price that is not above 0.

    >>> equal_cost_tokens(100_000, 2.0)
    50000000000.0
    """
    if not usd_per_million_tokens > 0:
        because = "free tokens never cost as much as training"
        raise InfercastError(f"{usd_per_million_tokens:g} dollars per million tokens", because, "Give a price above 0")
    return training_usd / usd_per_million_tokens * 1e6

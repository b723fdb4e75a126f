"""One model on some devices under one engine: the only place where the three meet, and what cannot work is refused."""

from dataclasses import dataclass

from simulator.engine import Engine, load_engine
from simulator.errors import InfercastError, NotModelledError
from simulator.hardware import Hardware, load_hardware
from simulator.model import Model, load_model
from simulator.roofline import StepModel
from simulator.work import Layout, Op


@dataclass(frozen=True, slots=True)
class Settings:
    """An engine's settings that a user may choose; None is the engine's default for the device."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    memory_fraction: float | None = None
    num_blocks: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_blocks"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InfercastError(f"{name} {value}", "it is at least 1", "Give a larger number or leave it out")
        if self.memory_fraction is not None and not 0 < self.memory_fraction <= 1:
            given = f"memory fraction {self.memory_fraction}"
            raise InfercastError(given, "it is a share above 0 and up to 1", "Give, say, 0.9")


@dataclass(frozen=True)
class Deployment:
    """One copy of a model on `layout.devices` devices under an engine's rules."""

    model: Model
    hardware: Hardware
    engine: Engine
    layout: Layout
    settings: Settings = Settings()

    def __post_init__(self) -> None:
        context = self.settings.max_model_len
        if context is not None and context > self.model.max_context_tokens:
            given, limit = f"max_model_len {context}", self.model.max_context_tokens
            raise InfercastError(given, f"{self.model.id} handles {limit} tokens", f"Give {limit} or less")
        if self.max_num_seqs > self.max_num_batched_tokens:
            given = f"max_num_seqs {self.max_num_seqs} with max_num_batched_tokens {self.max_num_batched_tokens}"
            raise InfercastError(given, "a step computes one token per sequence at least", "Raise the token budget")
        self.ops  # noqa: B018  refuses a layout that does not divide the model

    @property
    def ops(self) -> tuple[Op, ...]:
        """Everything one step does on the devices of one copy."""
        return self.model.ops(self.layout)

    @property
    def max_num_seqs(self) -> int:
        """Sequences in one step at most."""
        default = self.engine.default("max_num_seqs", self.hardware)
        return self.settings.max_num_seqs or min(default, self.max_num_batched_tokens)

    @property
    def max_num_batched_tokens(self) -> int:
        """New tokens in one step at most."""
        return self.settings.max_num_batched_tokens or self.engine.default("max_num_batched_tokens", self.hardware)

    @property
    def memory_fraction(self) -> float:
        """Share of the memory that the engine may use, by its own convention."""
        return self.settings.memory_fraction or float(self.engine.memory.fraction)

    def step_model(self, *, light: bool = False) -> StepModel:
        """Return the seconds of its steps, or the speed of light that no kernel can beat."""
        kernels = self.engine.kernels_on(self.hardware)
        return StepModel(self.ops, self.hardware, self.engine.overheads, light=light, kernels=kernels)

    def refuse_pipelines(self) -> None:
        """Refuse what needs several batches in flight."""
        if self.layout.pp > 1:
            because = "a serving engine keeps pp batches in flight, and their overlap is not modelled"
            raise NotModelledError(f"pp {self.layout.pp} under load", because, "Use tp, or ask `infercast estimate`")

    def __str__(self) -> str:
        size = f"{self.layout.devices} x " if self.layout.devices > 1 else ""
        return f"{self.model.id} ({self.layout.weight_dtype}) on {size}{self.hardware.id}"


def deploy(
    model: str,
    hardware: str,
    engine: str = "vllm",
    layout: Layout | None = None,
    settings: Settings = Settings(),
) -> Deployment:
    """Look three profiles up by name; without a layout, one device and the checkpoint's own number formats.

    >>> str(deploy("llama-3.1-8b", "h100-sxm"))
    'llama-3.1-8b (bf16) on h100-sxm'
    """
    loaded = load_model(model)
    layout = layout or default_layout(loaded)
    return Deployment(loaded, load_hardware(hardware), load_engine(engine), layout, settings)


def default_layout(
    model: Model, *, tp: int = 1, pp: int = 1, ep: int = 1, dtypes: tuple[str, str] = ("", "")
) -> Layout:
    """Return a layout whose (weight, cache) formats are the checkpoint's where they are not given."""
    weights, cached = dtypes
    return Layout(tp, pp, ep, weights or model.weight_dtype, cached or model.dtype, model.dtype)

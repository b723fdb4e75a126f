"""One model on some devices under one engine: the only place where the three meet, and what cannot work is refused."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from simulator.deployment.offload import NO_OFFLOAD, Offload, device_part, host_cost, host_layers, offloaded_ops
from simulator.deployment.sharding import sharded
from simulator.deployment.speculation import Draft, Speculation, draft_of
from simulator.deployment.weight_files import refuse_unreadable, weight_format
from simulator.engines.engine import Engine, load_engine, usual_engine
from simulator.engines.kernels import Kernels
from simulator.errors import InfercastError, NotModelledError
from simulator.hardware.hardware import Hardware, load_hardware
from simulator.models.model import Model, checkpoint
from simulator.models.number_formats import named_format, number_format
from simulator.models.op_builders import adapter_parameters, adapters, sorting
from simulator.models.operations import Layout, Op
from simulator.roofline.collectives import host_bytes_per_s
from simulator.roofline.roofline import Rates
from simulator.roofline.step_model import StepModel, StepTable

LONGEST_WHOLE_PROMPT = 32_768  # vLLM V0 splits prompts of models with longer contexts by default


@dataclass(frozen=True, slots=True)
class Settings:
    """An engine's settings that a user may choose; None is the engine's default for the device."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    memory_fraction: float | None = None
    num_blocks: int | None = None
    speculation: Speculation | None = None
    offload: Offload = NO_OFFLOAD
    threads: int | None = None  # of a CPU; None: all of its cores
    identical_prompts: bool = False  # all requests of a batch are the same text: the router picks the same experts
    sorted_sampling: bool = False  # requests ask for top-k or top-p, and the sampler sorts the vocabulary
    stream: bool = True  # clients ask for each token as it is made
    first_call_s: float = 0.0  # that the first call of a batch takes longer, where nothing warmed the engine up

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_blocks", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InfercastError(f"{name} {value}", "it is at least 1", "Give a larger number or leave it out")
        if self.memory_fraction is not None and not 0 < self.memory_fraction <= 1:
            given = f"memory fraction {self.memory_fraction}"
            raise InfercastError(given, "it is a share above 0 and up to 1", "Give, say, 0.9")


@dataclass(frozen=True)
class Deployment:
    """One replica of a model on some devices under an engine's rules; `deployment_of` makes it of what is asked for."""

    model: Model
    hardware: Hardware
    engine: Engine
    layout: Layout
    settings: Settings = Settings()
    step_factor: float = 1.0  # on the times of the event loop's steps: what an error of them would come to
    light: bool = False  # at the speed of light: data-sheet peaks, no overhead of the engine or its front end
    devices_each: float = 1.0  # that each of the layout's stands for (sharding.py)

    def __post_init__(self) -> None:
        context = self.settings.max_model_len
        if context is not None and context > self.model.max_context_tokens:
            given, limit = f"max_model_len {context}", self.model.max_context_tokens
            raise InfercastError(given, f"{self.model.id} handles {limit} tokens", f"Give {limit} or less")
        self._refuse_platform()
        if self.tp > (most := self.hardware.node_devices):
            given = f"{self.tp} devices of {self.hardware.name}"
            raise NotModelledError(given, f"a tensor-parallel group beyond {most} crosses nodes", "Lower tp; use pp")
        if self.max_num_seqs > self.max_num_batched_tokens:
            given = f"max_num_seqs {self.max_num_seqs} with max_num_batched_tokens {self.max_num_batched_tokens}"
            raise InfercastError(given, "a step computes one token per sequence at least", "Raise the token budget")
        self._refuse_drafts()
        if not any(op.experts for op in self.ops):
            self._refuse_without_experts()
        self.ops, self.draft  # noqa: B018  refuses a layout that does not divide the model or its draft

    def _refuse_platform(self) -> None:
        """Refuse an engine that does not run on the device, or has no kernels there for a format of the weights."""
        platform, stored = self.engine.platform(self.hardware), self.layout.weight_dtype
        refuse_unreadable(stored, self.engine)
        if platform and stored in platform.lacks:
            given = f"{stored} weights in {self.engine.id} on {self.hardware.id}"
            raise NotModelledError(given, f"it has no kernels for them there ({platform.origin.text})", platform.advice)

    def _refuse_without_experts(self) -> None:
        stored, dp = self.layout.weight_dtype, self.layout.dp
        if number_format(stored).covers == "experts":
            given, because = f"{stored} for {self.model.id}", "it holds routed experts alone, and the model has none"
            raise NotModelledError(given, because, "Choose another format, say nvfp4 or int4")
        if dp > 1:
            given, because = f"dp {dp} for {self.model.id}", "ranks of a model without experts are replicas"
            raise NotModelledError(given, because, f"Leave dp out; `infercast fleet --replicas {dp}` simulates them")

    def _refuse_drafts(self) -> None:
        if not self.draft_tokens:
            return
        if self.layout.pp > 1:
            because = "which stage drafts is not modelled"
            raise NotModelledError(f"speculation with pp {self.layout.pp}", because, "Use tp")
        if self.engine.policy not in ("continuous", "prompts-first"):
            because = f"its policy is {self.engine.policy}"
            raise NotModelledError(
                f"speculation in {self.engine.id}", because, "Use an engine that batches continuously"
            )
        if 1 + self.draft_tokens > self.max_num_batched_tokens:
            given = f"{self.draft_tokens} draft tokens with max_num_batched_tokens {self.max_num_batched_tokens}"
            raise InfercastError(given, "a step verifies all drafts of a sequence", "Raise the token budget")

    @property
    def tp(self) -> int:
        """Tensor-parallel degree that is asked for; that of the layout divides the model."""
        return round(self.layout.tp * self.devices_each)

    @property
    def devices(self) -> int:
        """Devices of one replica."""
        return round(self.layout.devices * self.devices_each)

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """Everything one step does on the devices of one replica, and on the host that helps them."""
        ops = offloaded_ops(self.model, self.layout, self.settings.offload)
        return tuple(replace(op, alike=True) for op in ops) if self.settings.identical_prompts else ops

    @property
    def device_part(self) -> Model:
        """The model without the layers that the host computes."""
        return device_part(self.model, self.settings.offload)

    @cached_property
    def draft(self) -> Draft:
        """What drafting adds, nothing without it."""
        speculation = self.settings.speculation
        return Draft() if speculation is None else draft_of(speculation, self.model, self.layout)

    @property
    def adapter_bytes(self) -> float:
        """Bytes that one device keeps for low-rank adapters: max_loras of max_lora_rank, whatever is loaded."""
        if not self.engine.adapters:
            return 0.0
        numbers = self.engine.max_loras * self.engine.max_lora_rank * adapter_parameters(self.ops)
        return numbers * self.layout.activation_bytes / self.layout.pp

    @property
    def draft_tokens(self) -> int:
        """Tokens drafted per step and sequence; 0 without speculation."""
        return self.settings.speculation.tokens if self.settings.speculation else 0

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Probability that each drafted position is accepted if all before it are."""
        return self.settings.speculation.rates if self.settings.speculation else ()

    @property
    def expected_acceptance(self) -> bool:
        """Whether accepted tokens are spread evenly instead of drawn."""
        return self.settings.speculation is not None and self.settings.speculation.expected

    @property
    def tokens_per_step(self) -> float:
        """Expected tokens that a decode step yields per sequence."""
        return self.settings.speculation.tokens_per_step if self.settings.speculation else 1.0

    @property
    def context_tokens(self) -> int:
        """Tokens of one sequence at most, by the user, the engine or the model."""
        given = self.settings.max_model_len or self.engine.context_tokens(self.hardware)
        return min(given or self.model.max_context_tokens, self.model.max_context_tokens)

    @property
    def max_num_seqs(self) -> int:
        """Sequences in one step at most; a setting counts for each data-parallel rank."""
        default = self.engine.default("max_num_seqs", self.hardware) * self.layout.dp
        return (self.settings.max_num_seqs or 0) * self.layout.dp or min(default, self.max_num_batched_tokens)

    @property
    def max_num_batched_tokens(self) -> int:
        """New tokens in one step at most; an engine that does not split prompts makes room for the longest."""
        default = self.engine.default("max_num_batched_tokens", self.hardware)
        if not self.engine.chunked_prefill:
            default = max(default, min(self.context_tokens, LONGEST_WHOLE_PROMPT))
        return (self.settings.max_num_batched_tokens or default) * self.layout.dp

    @property
    def graph_tokens(self) -> int:
        """Tokens of a step with prompts that a graph launches, of all ranks: a prompt lies on one, and all wait."""
        most, each = self.engine.graph_tokens, self.engine.graph_tokens_per_seq
        return min(most, each * self.max_num_seqs * (1 + self.draft_tokens)) if each else most

    @property
    def memory_fraction(self) -> float:
        """Share of the memory that the engine may use, by its own convention."""
        return self.settings.memory_fraction or float(self.engine.memory.fraction)

    @property
    def stream_s(self) -> float:
        """Seconds that the front end takes for each token that it streams; none where clients wait for the end."""
        return 0.0 if self.light or not self.settings.stream else float(self.engine.overheads.stream_s)

    @property
    def first_call_s(self) -> float:
        """Seconds that the first call of a batch takes longer."""
        return 0.0 if self.light else self.settings.first_call_s

    def request_s(self, prompt_tokens: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the seconds of requests outside the steps, by the lengths of their prompts: HTTP, tokenisation."""
        return self.engine.overheads.answer_s(prompt_tokens) * (not self.light)

    def step_table(self) -> StepTable:
        """Return the seconds of steps for the event loop, as long as they can be, times `step_factor`."""
        table = self.step_model(light=self.light).table(self.max_num_batched_tokens, self.max_num_seqs)
        return StepTable._make(part * self.step_factor for part in table)

    def step_model(self, *, light: bool = False) -> StepModel:
        """Return the seconds of its steps, or the speed of light that no kernel can beat."""
        offload, engine = self.settings.offload, self.engine
        kernels = engine.kernels_on(self.hardware)
        if self.layout.pp > 1:
            kernels = kernels.split_over_devices()
        by_host = host_cost(self.hardware, engine, offload, light=light) if host_layers(self.model, offload) else None
        slowness = self._host_slowness if kernels.fitted.prompt_launch_s else 1.0  # it launches the sampler's, too
        overheads, ranks = engine.overheads, self.layout.dp  # a rank's process handles the sequences of its own
        times = {
            "step_s": overheads.step_s * slowness + (overheads.ranks_s if ranks > 1 else 0.0),
            "sequence_s": overheads.sequence_s / ranks,
            "cached_token_s": overheads.cached_token_s / ranks,
        }
        return StepModel(
            self._step_ops(light=light),
            self.hardware,
            overheads.model_copy(update=times),
            light=light,
            kernels=kernels,
            draft_ops=self.draft.ops,
            draft_tokens=self.draft_tokens,
            micro_batch_tokens=engine.micro_batch_tokens,
            loaded_token_s=self._loaded_token_s(light=light),
            host_cost=by_host,
            context_tokens=self.context_tokens,
            least_s=0.0 if light else self._host_s(kernels),
            prompt_least_s=0.0 if light else self._prompt_host_s(kernels),
            graph_tokens=self.graph_tokens,
        )

    def _step_ops(self, *, light: bool = False) -> tuple[Op, ...]:
        """Return what its steps do, with what this engine is asked beside it; `light`: without what nobody needs."""
        every = self.engine.every_expert and not light
        ops = tuple(op.with_every_expert() for op in self.ops) if every else self.ops
        ops = (*ops, *adapters(ops)) if self.engine.adapters else ops
        if light or not self.settings.sorted_sampling:
            return ops
        return (*ops, sorting(self.model.vocab))

    def _host_s(self, kernels: Kernels) -> float:
        """Return the seconds that the host takes to launch a step, where no graph is captured.

        eager kernels of a layer x seconds of each (KernelRules.eager_kernels), or what was fitted to steps
        (FittedMultipliers.layer_launches); the devices work meanwhile.
        """
        layers = len(self.model.layer_names)
        if kernels.rules.eager_kernels:
            return kernels.rules.eager_kernels * self.engine.overheads.kernel_s * layers * self._host_slowness
        if kernels.fitted.layer_launches is None:
            return 0.0
        product = self.hardware.achievable.gemm[Rates(self.hardware, kernels).peak(self.layout.model_dtype)[0]]
        return kernels.fitted.layer_launches * product.launch_s * layers

    def _prompt_host_s(self, kernels: Kernels) -> float:
        """Return the seconds that the host takes to launch a step with prompts, kernel by kernel."""
        launches = sum(op.launches * op.repeats for op in self._step_ops())
        return launches * float(kernels.fitted.prompt_launch_s or 0.0) * self._host_slowness

    @property
    def _host_slowness(self) -> float:
        return float(self.hardware.host_slowness or 1.0)

    def _loaded_token_s(self, *, light: bool) -> float:
        """Return the seconds that bringing one token's cache back from the host takes; devices load side by side."""
        if not self.settings.offload.cache_bytes:
            return 0.0
        return self.model.cache_bytes(1, self.layout) / host_bytes_per_s(self.hardware, light=light)

    def __str__(self) -> str:
        size = f"{self.devices} x " if self.devices > 1 else ""
        return f"{self.model.id} ({self.layout.weight_dtype}) on {size}{self.hardware.id}"


def deploy(
    model: str,
    hardware: str,
    engine: str = "",
    layout: Layout | None = None,
    settings: Settings = Settings(),
) -> Deployment:
    """Look three profiles up by name; without an engine, the device's usual one; without a layout, one device.

    >>> str(deploy("llama-3.1-8b", "h100-sxm"))
    'llama-3.1-8b (bf16) on h100-sxm'
    """
    (loaded, named), device = checkpoint(model), load_hardware(hardware)
    preset = load_engine(engine or usual_engine(device))
    layout = layout or running_layout(loaded, device, preset, dtypes=(named, ""))
    return deployment_of(loaded, device, preset, layout, settings)


def deployment_of(model: Model, hardware: Hardware, engine: Engine, layout: Layout, settings: Settings) -> Deployment:
    """Return the deployment of three profiles, sharded as the engine does it (sharding.py)."""
    parts = sharded(model, hardware, engine, layout, settings.threads)
    return Deployment(parts.model, parts.hardware, engine, parts.layout, settings, devices_each=parts.devices_each)


def running_layout(
    model: Model, hardware: Hardware, engine: Engine, *, dtypes: tuple[str, str] = ("", ""), **degrees: int
) -> Layout:
    """Return a layout as `default_layout` does, in the formats that an engine reads and runs on a device.

    Where no 16-bit type is asked for and the device has none of the checkpoint's, it is cast (Platform.casts).
    """
    weights = weight_format(dtypes[0], model, engine)
    layout = default_layout(model, dtypes=(weights, dtypes[1]), **degrees)
    platform = engine.platform(hardware)
    casts = platform.casts if platform else {}
    weights, cached = (
        stored if asked else casts.get(stored, stored)
        for asked, stored in zip(dtypes, (layout.weight_dtype, layout.cache_dtype), strict=True)
    )
    model_dtype = casts.get(layout.model_dtype, layout.model_dtype)
    return replace(layout, weight_dtype=weights, cache_dtype=cached, model_dtype=model_dtype)


def default_layout(
    model: Model, *, tp: int = 1, pp: int = 1, ep: int = 1, dp: int = 1, dtypes: tuple[str, str] = ("", "")
) -> Layout:
    """Return a layout whose (weight, cache) formats are the checkpoint's where they are not given, or given as fp4."""
    weights, cached = (named_format(name) for name in dtypes)
    weights = model.fp4_dtype if weights == "nvfp4" else weights
    return Layout(tp, pp, ep, weights or model.weight_dtype, cached or model.dtype, model.dtype, dp)

"""One replica: a model sharded over devices under an engine. Combinations that cannot work raise errors."""

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy.typing as npt

from simulator.arrays import Floats
from simulator.deployment.captured_graphs import CapturedGraphs
from simulator.deployment.host_launches import host_slowness, launches_s, step_launches_s
from simulator.deployment.layouts import refuse_degrees_of_experts, running_layout
from simulator.deployment.model_ops import absorbed, fused_experts, ops_of_model
from simulator.deployment.offload import (
    device_part,
    host_layers,
    host_time,
    loaded_token_s,
    offloaded_ops,
    refuse_layers_on_host,
)
from simulator.deployment.setting_names import configure
from simulator.deployment.settings import Settings
from simulator.deployment.sharding import sharded
from simulator.deployment.speculation import MORE_TOKENS, Draft, draft_of, refuse_drafts
from simulator.deployment.weight_files import refuse_unreadable
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import Engine, load_engine, usual_engine
from simulator.engines.overheads import NO_OVERHEADS, Overheads
from simulator.errors import Given, InfercastError, NotModelledError, Setting
from simulator.hardware.hardware import Hardware, load_hardware
from simulator.models.layout import Layout
from simulator.models.model import Model, checkpoint
from simulator.models.number_formats import number_format
from simulator.models.op_builders import adapter_parameters, adapters, sorting
from simulator.models.operations import Op, with_every_expert
from simulator.roofline.step_floor import StepFloor, step_floor
from simulator.roofline.step_model import StepModel, StepTable

LONGEST_WHOLE_PROMPT = 32_768  # vLLM V0 splits prompts of models with longer contexts by default


@dataclass(frozen=True, repr=False)
class Deployment:
    """One replica, as `deployment_of` makes it: a model on devices, sharded, under an engine and the user's settings.

    Raises InfercastError or NotModelledError for combinations that cannot be.
    """

    model: Model
    hardware: Hardware
    engine: Engine
    layout: Layout
    settings: Settings = Settings()
    step_factor: float = 1.0  # multiplies the event loop's step times, to see what an error of them would change
    light: bool = False  # at the speed of light: data-sheet peaks, no overhead of the engine or its front end
    devices_each: float = 1.0  # devices asked for over devices of the layout (sharding.py)
    cache_shift: float = 0.0  # share of the memory added to the KV cache, to see what an error of the plan would change

    def __post_init__(self) -> None:
        context = self.settings.max_model_len
        if context is not None and context > self.model.max_context_tokens:
            limit = self.model.max_context_tokens
            because = f"{self.model.id} handles {limit} tokens"
            raise InfercastError(Setting("max_model_len", context), because, f"Give {limit} or less")
        self._refuse_platform()
        self.hardware.nodes(self.layout.ep)  # refuses uneven ones
        if self.hardware.nodes(self.tp) > 1 and self.engine.splits_rows:
            given: Given = f"{self.engine.id} with", Setting("tp", self.tp)
            because = "it splits rows of matrices within a node"
            raise NotModelledError(given, because, f"Give --tp {self.hardware.node_devices}, and --pp for more devices")
        if self.layout.pp > len(self.model.layer_names):
            given, layers = Setting("pp", self.layout.pp), len(self.model.layer_names)
            because = f"each stage has a layer at least, and {self.model.id} has {layers}"
            raise InfercastError(given, because, f"Give --pp {layers} or less")
        if self.max_num_seqs > self.max_num_batched_tokens * self.layout.pp:  # stages share the sequences
            budget = Setting("max_num_batched_tokens", self.max_num_batched_tokens)
            given = Setting("max_num_seqs", self.max_num_seqs), "with", budget
            raise InfercastError(given, "a step computes one token per sequence at least", MORE_TOKENS)
        refuse_drafts(self.draft_tokens, self.engine, self.layout, self.max_num_batched_tokens)
        self._refuse_steps_at_once()
        refuse_layers_on_host(self.model, self.engine, self.settings.offload)
        refuse_degrees_of_experts(self.model, self.layout.ep, self.layout.dp)
        self._refuse_format_of_experts()
        self.ops, self.draft  # noqa: B018  raises where the layout does not divide the model or its draft model

    def _refuse_platform(self) -> None:
        """Refuse an engine that does not run on the device, or has no kernels there for a format of the weights."""
        platform, stored = self.engine.platform(self.hardware), self.layout.weight_dtype
        refuse_unreadable(stored, self.engine)
        if platform and stored in platform.lacks:
            given = f"{stored} weights in {self.engine.id} on {self.hardware.id}"
            raise NotModelledError(given, f"it has no kernels for them there ({platform.origin.text})", platform.advice)

    def _refuse_format_of_experts(self) -> None:
        stored = self.layout.weight_dtype
        if number_format(stored).covers == "experts" and not self.model.is_routed:
            given, because = f"{stored} for {self.model.id}", "it holds routed experts alone, and the model has none"
            raise NotModelledError(given, because, "Choose another format, say nvfp4 or int4")

    def _refuse_steps_at_once(self) -> None:
        """Refuse what vLLM refuses beside num_scheduler_steps (engine/arg_utils.py), and what is not modelled."""
        if self.engine.num_scheduler_steps == 1:
            return
        given = Setting("num_scheduler_steps", self.engine.num_scheduler_steps), f"in {self.engine.id}"
        if self.draft_tokens:
            raise InfercastError(given, "vLLM refuses it beside speculative decoding", "Leave one of them out")
        if self.engine.policy != "prompts-first" or self.engine.chunked_prefill or self.layout.pp > 1:
            because = "it is modelled for the scheduler of vLLM V0, without chunked prefill and stages"
            raise NotModelledError(given, because, "Leave it out, or add --set chunked_prefill=false with vllm-0.5")

    @property
    def tp(self) -> int:
        """Tensor-parallel degree as asked for; `layout.tp` is lower where fewer, faster devices stand for them."""
        return round(self.layout.tp * self.devices_each)

    @property
    def devices(self) -> int:
        """Devices of one replica, as asked for."""
        return round(self.layout.devices * self.devices_each)

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """Ops of one step of the replica, those on its host included; identical prompts choose the same experts."""
        ops = offloaded_ops(self.model, self.layout, self.settings.offload)
        return tuple(replace(op, alike=True) for op in ops) if self.settings.identical_prompts else ops

    @property
    def device_part(self) -> Model:
        """The model without the layers that the host's CPU computes."""
        return device_part(self.model, self.settings.offload)

    @cached_property
    def draft(self) -> Draft:
        """Ops, weights and cache that drafting adds on each device; all empty without speculation."""
        speculation = self.settings.speculation
        return Draft() if speculation is None else draft_of(speculation, self.model, self.layout)

    @property
    def adapter_bytes(self) -> float:
        """Bytes on each device for LoRA adapters: max_loras x max_lora_rank x numbers per unit of rank x bytes / pp.

        vLLM allocates room for that many at the highest rank, whatever is loaded.
        """
        if not self.engine.adapters:
            return 0.0
        numbers = self.engine.max_loras * self.engine.max_lora_rank * adapter_parameters(self.ops)
        return numbers * self.layout.activation_bytes / self.layout.pp

    @property
    def draft_tokens(self) -> int:
        """Draft tokens per step and sequence (vLLM: num_speculative_tokens); 0 without speculation."""
        return self.settings.speculation.tokens if self.settings.speculation else 0

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Probability that each draft token is accepted if all before it are, one per token; () without speculation."""
        return self.settings.speculation.rates if self.settings.speculation else ()

    @property
    def expected_acceptance(self) -> bool:
        """Whether sequences accept the expected number of draft tokens, evenly over steps, and not a random one."""
        return self.settings.speculation is not None and self.settings.speculation.expected

    @property
    def tokens_per_step(self) -> float:
        """Expected output tokens of a sequence per decode step; 1 without speculation."""
        return self.settings.speculation.tokens_per_step if self.settings.speculation else 1.0

    @property
    def max_model_len(self) -> int:
        """Most tokens of a sequence: max_model_len, else the engine's default, up to the model's context."""
        given = self.settings.max_model_len or self.engine.context_tokens(self.hardware)
        return min(given or self.model.max_context_tokens, self.model.max_context_tokens)

    @property
    def max_num_seqs(self) -> int:
        """Most sequences in a step, of all data-parallel ranks; the setting and the engine's default are of one rank.

        The default is lowered to the token budget where that is smaller.
        """
        default = self.engine.default("max_num_seqs", self.hardware) * self.layout.dp
        return (self.settings.max_num_seqs or 0) * self.layout.dp or min(default, self.max_num_batched_tokens)

    @property
    def max_num_batched_tokens(self) -> int:
        """Most new tokens in a step, of all data-parallel ranks; the setting and the engine's default are of one rank.

        Without chunked prefill the default has room for the longest prompt, up to LONGEST_WHOLE_PROMPT tokens.
        """
        default = self.engine.rank_tokens(self.hardware, self.layout.dp)
        if not self.engine.chunked_prefill:
            default = max(default, min(self.max_model_len, LONGEST_WHOLE_PROMPT))
        return (self.settings.max_num_batched_tokens or default) * self.layout.dp

    @property
    def async_scheduling(self) -> bool:
        """Whether a step is decided while the one before runs: not where some recurrent states are cached (SGLang)."""
        return self.engine.schedules_ahead(self.model.mixer_kinds)

    @cached_property
    def graphs(self) -> CapturedGraphs:
        """The CUDA graphs that the engine captures for the model on the device."""
        placed = self.engine, self.model, self.hardware, self.layout
        return CapturedGraphs(*placed, self.max_num_seqs, self.max_num_batched_tokens, self.draft_tokens)

    @property
    def memory_fraction(self) -> float:
        """Share of the memory for the engine (vLLM: gpu_memory_utilization), by its own convention (`MemoryRule`)."""
        return self.settings.memory_fraction or self.usual_memory_fraction

    @property
    def usual_memory_fraction(self) -> float:
        """The same where it is not given."""
        rule, dp = self.engine.memory, self.layout.dp
        if rule.reserve is None:
            return float(rule.fraction)
        return rule.reserve.fraction(self.hardware, self.max_num_batched_tokens, self.tp * dp * self.layout.pp, dp)

    @cached_property
    def calibrated_engine(self) -> Engine:
        """The engine with what a user's calibration says of this model."""
        return self.engine.calibrated_for(self.model.id)

    @cached_property
    def kernels(self) -> DeviceKernels:
        """The engine's kernels on the device, for the model."""
        return self.calibrated_engine.kernels_on(self.hardware).of_model(self.model)

    @property
    def overheads(self) -> Overheads:
        """The engine's host times beside the device; none at the speed of light."""
        return NO_OVERHEADS if self.light else self.calibrated_engine.overheads_on(self.hardware)

    @property
    def stream_s(self) -> float:
        """Seconds of the front end per token; 0 where clients wait for the end, and at the speed of light.

        Of what a client receives at once (`stream_interval`; that its first token comes alone is left out), by servers.
        """
        return self._of_front_end_s(self.overheads.stream_s)

    @property
    def message_s(self) -> float:
        """Seconds more that a first token waits per sequence of its step, each sent by itself; otherwise as above."""
        return self._of_front_end_s(max(0.0, self.overheads.message_s - self.overheads.stream_s))

    def _of_front_end_s(self, token_s: float) -> float:
        return token_s * self.settings.stream / self.engine.stream_interval / self.engine.api_server_count

    @property
    def first_call_s(self) -> float:
        """Seconds that the first step takes longer, without a warm-up; 0 at the speed of light."""
        return 0.0 if self.light else self.settings.first_call_s

    def request_s(self, prompt_tokens: npt.ArrayLike) -> Floats:
        """Return the seconds outside of steps by prompt length, float64 of its shape; 0 at the speed of light."""
        return self.overheads.outside_steps_s(prompt_tokens)

    @cached_property
    def at_light(self) -> "Deployment":
        """The same at the speed of light; what has been computed of it holds there, too."""
        found = copy(self)
        object.__setattr__(found, "light", True)
        return found

    def step_table(self) -> StepTable:
        """Return the seconds of steps up to the limits of tokens and sequences, times `step_factor`."""
        return self.step_model().table(self.max_num_batched_tokens, self.max_num_seqs).times(self.step_factor)

    def step_floor(self) -> StepFloor:
        """Return lower bounds of the seconds of `step_table`, times `step_factor`."""
        return step_floor(self.step_model(), self.max_num_batched_tokens, self.max_num_seqs).times(self.step_factor)

    def step_model(self) -> StepModel:
        """Return the model of a step's seconds."""
        offload, kernels, ahead = self.settings.offload, self.kernels, self.async_scheduling
        engine = self.calibrated_engine
        on_host = host_layers(self.model, offload)
        waits = kernels.fitted.prompt_launch_s and not ahead  # the device, for the sampler
        slowness = (host_slowness(self.hardware) if waits else 1.0) * (self.layout.pp if engine.stages_prepare else 1)
        times = self.overheads.of_rank(self.layout.dp, slowness, ahead=ahead)
        hidden_s = times.sequence_s * host_slowness(self.hardware) if engine.hides_sequences and ahead else 0.0
        found = StepModel(
            self._step_ops(),
            kernels,
            times.model_copy(update={"sequence_s": 0.0}) if hidden_s else times,
            light=self.light,
            draft_ops=self.draft.ops,
            draft_tokens=self.draft_tokens,
            num_scheduler_steps=engine.num_scheduler_steps,
            micro_batch_tokens=engine.micro_batch_tokens,
            loaded_token_s=loaded_token_s(self.model, self.hardware, self.layout, offload, light=self.light),
            host_time=host_time(self.hardware, engine, offload, light=self.light) if on_host else None,
            context_tokens=self.max_model_len,
        )
        if self.light:
            return found
        return replace(
            found,
            least_s=step_launches_s(kernels, self.layout, self.model, self.overheads),
            launches=launches_s(kernels, self.model, found.ops)._replace(sequence_s=hidden_s),
            graphs=self.graphs.of_steps,
        )

    def _step_ops(self) -> tuple[Op, ...]:
        """Return the ops of a step, of adapters and the sampler too; at the speed of light without padding."""
        ops = tuple(fused_experts(self.ops, self.kernels, self.layout))
        if not self.light:
            each = self.engine.every_expert or self.model.architecture in self.engine.every_expert_of
            ops = with_every_expert(ops, apart=self.engine.every_expert) if each else ops
            ops = tuple(self.kernels.padded(op) for op in ops)
            ops = ops_of_model(ops, self.kernels, self.model, self.layout)
            ops = tuple(absorbed(ops, self.engine, self.kernels))
        ops = (*ops, *adapters(ops)) if self.engine.adapters else ops
        if self.light or self.settings.flashinfer_sampler or not self.settings.sorted_sampling:
            return ops
        return (*ops, sorting(self.model.vocab))

    def __repr__(self) -> str:
        return f"Deployment({self}, {self.engine.id})"

    def __str__(self) -> str:
        size = f"{self.devices} x " if self.devices > 1 else ""
        return f"{self.model.id} ({self.layout.weight_dtype}) on {size}{self.hardware.label}"


def deploy(
    model: str, hardware: str, engine: str = "", layout: Layout | None = None, settings: Settings = Settings()
) -> Deployment:
    """Return a replica of three profiles, each given by name or path; without an engine, the device's usual one.

    Without a layout: one device and the checkpoint's number formats. `settings.changes` are set as --set sets them.
    Raises ProfileError for an unknown name, and the errors of `configure` and `Deployment`.

    >>> str(deploy("llama-3.1-8b", "h100-sxm"))
    'llama-3.1-8b (bf16) on h100-sxm'
    >>> deploy("llama-3.1-8b", "h100-sxm", settings=Settings(changes=("policy=static",))).engine.policy
    'static'
    """
    (loaded, named), device = checkpoint(model), load_hardware(hardware)
    preset, chosen = configure(load_engine(engine or usual_engine(device)), settings, settings.changes)
    layout = layout or running_layout(loaded, device, preset, dtypes=(named, ""))
    return deployment_of(loaded, device, preset, layout, chosen)


def deployment_of(model: Model, hardware: Hardware, engine: Engine, layout: Layout, settings: Settings) -> Deployment:
    """Return a replica of loaded profiles, sharded as the engine does it (sharding.py). Raises as `Deployment` does."""
    parts = sharded(model, hardware, engine, layout, settings.threads)
    return Deployment(parts.model, parts.hardware, engine, parts.layout, settings, devices_each=parts.devices_each)

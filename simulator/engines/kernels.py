"""Kernels of an engine on some devices: rules that were read, and multipliers that were fitted."""

from typing import Any

from simulator.engines.conditions import OnDevices
from simulator.engines.fitted_multipliers import FittedMultipliers
from simulator.engines.kernel_rules import ExpertPadding, KernelRules
from simulator.engines.model_kernels import FusedNorms
from simulator.engines.overheads import Overheads
from simulator.profile import Figure, Source

CALIBRATED = ("residuals", "models", "except_models")  # fields that a calibration sets, one of them at least
ONE_ROW = Figure(
    1.0,
    Source(
        text="sglang 0.5.9 srt/layers/quantization/awq.py, AWQLinearMethod.apply: awq_dequantize, then torch.matmul",
        date="2026-11-27",
        evidence="datasheet",
    ),
)
QUICK_REDUCE_BITS = Figure(
    4.5,
    Source(
        text="vllm-project/vllm pull request 19744: INT4 in groups of 32, a scale of 16 bits for each",
        date="2025-06",
        evidence="datasheet",
    ),
)
MARLIN_PADDING = ExpertPadding(families=(), formats=("mxfp4",), hidden=256, intermediate=128)


class Kernels(OnDevices):
    """What an engine's kernels do on some devices (`rules`), and what they reach there (`fitted`).

    `fitted` multiplies the achievable rates of a device's profile. A user's own measurements (`infercast calibrate`)
    make one for a single device and the `models` that were measured, with `residuals`, and one for all others.
    """

    families: tuple[str, ...] = ()  # of devices that it holds for
    fitted_on: tuple[str, ...] = ()  # families of the devices whose measurements `fitted` comes from
    models: tuple[str, ...] = ()  # that it holds for, by id; none is all
    except_models: tuple[str, ...] = ()  # that it does not hold for
    residuals: dict[str, tuple[float, ...]] = {}  # "metric regime": ln(measured / predicted) of setups held back
    overheads: Overheads | None = None  # of the host of what was measured; none: the engine's
    rules: KernelRules = KernelRules()
    fitted: FittedMultipliers = FittedMultipliers()

    @property
    def is_calibrated(self) -> bool:
        """Whether `infercast calibrate` wrote it.

        >>> [each.is_calibrated for each in (Kernels(), Kernels(models=("qwen3-8b",)))]
        [False, True]
        """
        return any(getattr(self, name) for name in CALIBRATED)

    def holds_for(self, model: str) -> bool:
        """Tell whether it holds for a model, by id.

        >>> one, rest = Kernels(models=("llama-3.1-8b",)), Kernels(except_models=("llama-3.1-8b",))
        >>> [[each.holds_for(model) for each in (Kernels(), one, rest)] for model in ("llama-3.1-8b", "qwen3-8b")]
        [[True, True, False], [True, False, True]]
        """
        return model in (self.models or (model,)) and model not in self.except_models

    def with_fitted(self, **values: float | None) -> "Kernels":
        """Return the same kernels with other multipliers; those not named stay as they are."""
        return self.model_copy(update={"fitted": self.fitted.model_copy(update=values)})

    def with_rules(self, **values: Any) -> "Kernels":
        """Return the same kernels with other rules; those not named stay as they are."""
        return self.model_copy(update={"rules": self.rules.model_copy(update=values)})

    def with_attention(self, *, fused: bool) -> "Kernels":
        """Return the same kernels with fused attention, or without, though it would be the default.

        Fused: no scores in memory, no query head that reads for itself. Where it is the default because it is no
        slower, the scores stay as a bound (KernelRules.fuses_if_faster).
        """
        if not fused:
            return self.with_rules(fuses_if_faster=False)
        kept = self.rules.score_bytes if self.rules.fuses_if_faster else None
        return self.with_rules(score_bytes=kept).with_fitted(per_head=None, per_head_crowded=None)

    def with_amx(self, built: bool) -> "Kernels":
        """Return the same kernels of a build with AMX, or without."""
        return self if built else self.with_rules(amx=())

    def with_attention_of(self, backend: str) -> "Kernels":
        """Return the same kernels with decode attention of a backend that was asked for.

        `triton`: on any device. `rocm`: in Triton where latent attention has no other kernel alone.
        """
        own = self.rules.split_decode
        if backend == "triton":
            asked = own and own.asked()
            return self.with_rules(split_decode=asked, decode_tile=None, wave_decode=None, empty_blocks=None)
        if backend == "rocm" and own:
            return self.with_rules(split_decode=own.model_copy(update={"everywhere": False}))
        return self

    def with_experts_of(self, backend: str) -> "Kernels":
        """Return the same kernels of an engine that was asked for other kernels of routed experts than it chooses.

        With Triton's of 4 bits, dense layers unpack weights into memory and multiply there (SGLang's AWQLinearMethod);
        Marlin pads experts in mxfp4.
        """
        asked = self.rules.asked_experts.get(backend, ())
        own: dict[str, Any] = {"expert_kernels": (*asked, *self.rules.expert_kernels)}
        if asked and backend == "triton":
            own["unpacks_from_rows"] = ONE_ROW
        if asked and backend == "marlin":
            own["expert_padding"] = (MARLIN_PADDING, *self.rules.expert_padding)
        return self.with_rules(**own)

    def with_fused_norms(self, fused: bool | None) -> "Kernels":
        """Return the same kernels with norms in all-reduces, or without (pass_config.fuse_allreduce_rms of vLLM).

        None: as the engine's release has them.
        """
        return self if fused is None else self.with_rules(fuses_norms=FusedNorms(families=()) if fused else None)

    def with_quick_reduce(self, asked: bool) -> "Kernels":
        """Return the same kernels with vLLM's QuickReduce of 4 bits, where it is asked for."""
        return self.with_rules(reduced_bits=QUICK_REDUCE_BITS) if asked else self

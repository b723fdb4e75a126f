"""What was fitted to published measurements: factors on what a device's own kernel tables say, and host times.

None of these was read in a source or derived: each is the number at which an engine's measured latencies are met
(tools/fit_efficiency.py), or a guess until there are such measurements. `simulator.reports.provenance` lists those that
an answer used. What was read in an engine's source is in `kernel_rules`.
"""

from pydantic import Field

from simulator.hardware.achievable import PeakName
from simulator.models.number_formats import number_format
from simulator.models.operations import Op
from simulator.profile import Figure, Number, Positive, Seconds, Source, Strict

UNITY = Figure(1.0, Source(text="the kernels that the device was measured with", date="", evidence="derived"))
EXPERTS = Figure(
    1.0,
    Source(
        text="aiconfigurator-core 0.12.0 kernel tables of bf16, fp8, nvfp4: that of dense GEMMs, with gemm.exponent_of",
        date="2026-11",
        evidence="derived",
    ),
)


class FittedMultipliers(Strict):
    """Factors on the achievable rates and times of a device (`Hardware.achievable`), by what each multiplies.

    Without a unit, but for `expert_tile` (tokens) and times (seconds). 1, or None, is the device's own
    figure. A description is what a factor multiplies; "further" means: beside the factor before it.

    The fp8 GEMMs that `quantized` is for do not include those whose inputs are scaled in blocks
    (NumberFormat.scaled_late): their quantising kernel is counted by itself. The compute and the memory time of routed
    experts nearly add up, so that `experts` and `block_experts` act on nearly the whole GEMM (gemm.exponent_of).
    """

    compute: Positive = Field(UNITY, description="compute fraction of GEMMs")
    quantized: Positive = Field(UNITY, description="compute fraction of fp8 and fp4 GEMMs, further")
    memory: Positive = Field(UNITY, description="bandwidth fraction at which GEMMs read weights")
    unpacked: Positive = Field(UNITY, description="compute fraction of GEMMs with weight-only formats, further")
    vector: Positive | None = Field(
        None, description="share of the fp32 peak at which GEMMs of a few rows multiply (KernelRules.vector_rows)"
    )
    packed: Positive = Field(UNITY, description="bandwidth fraction at which weight-only formats are read, further")
    experts: Positive = Field(EXPERTS, description="compute fraction of GEMMs of routed experts, further")
    block_experts: Positive | None = Field(
        None, description="in place of `experts` where fp8 inputs of experts are scaled in blocks"
    )
    cache: Positive = Field(UNITY, description="bandwidth fraction at which decode attention reads the KV cache")
    attention: Positive = Field(UNITY, description="compute fraction of prefill attention")
    vector_attention: Positive | None = Field(
        None, description="share of the fp32 peak at which prompts attend in vector units (KernelRules.matrix_heads)"
    )
    reread: Positive = Field(
        UNITY, description="bandwidth of the memory at which its caches serve K and V (KernelRules.strided_cache)"
    )
    half_length: Number = Field(UNITY, description="prompt tokens at which prefill attention reaches half of its rate")
    per_head: Positive | None = Field(
        None,
        description="bandwidth at which each query head reads the KV cache for itself (or numbers a clock:"
        " KernelRules.per_head_by_clock); none: a group shares it",
    )
    per_head_crowded: Positive | None = Field(
        None, description="the same in a batch of more than kernel_rules.CROWDED_HEADS sequences x query heads"
    )
    expert_tile: Positive | None = Field(
        None, description="tokens to a multiple of which the rows of each expert are padded (the value itself)"
    )
    launch: Number = Field(
        UNITY, description="launch time of each kernel: below 1 in a CUDA graph, above on a slow host"
    )
    layer_launches: Number | None = Field(
        None, description="GEMM launches' worth of host time per layer and step, without CUDA graphs"
    )
    prompt_launch_s: Seconds | None = Field(
        None, description="host time per kernel of a step with prompts, where no CUDA graph launches it"
    )
    experts_launch_s: Seconds | None = Field(
        None, description="the same per layer of routed experts, whose Python does more than launch kernels, further"
    )
    link: Number = Field(UNITY, description="latency of collectives")

    def of_compute(self, peak: PeakName, op: Op, own: float | None = None, *, freely: bool = False) -> float:
        """Return the factor on the compute fraction of a GEMM that is multiplied in a type.

        `own`: of kernels that routed experts have for themselves (ExpertKernels), None for grouped GEMMs. `freely`: its
        format is one of KernelRules.unpacks_freely.
        """
        stored = number_format(op.format)
        narrow, late = peak in ("fp8", "fp4"), stored.scaled_late
        share = self.compute * (self.quantized if narrow and not late else 1.0)
        if op.experts and own:
            return share * own
        experts = self.experts if self.block_experts is None or not (narrow and late) else self.block_experts
        loses = stored.unpacked_for(peak) and not freely
        return share * (experts if op.experts else 1.0) * (self.unpacked if loses else 1.0)

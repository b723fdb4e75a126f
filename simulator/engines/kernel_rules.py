"""What the kernels of an engine reach of a device's rates, how they are launched, and what its host adds."""

import math
from typing import Annotated, get_args

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator

from simulator.hardware.hardware import Achievable, Hardware, PeakName
from simulator.models.number_formats import number_format
from simulator.models.operations import Array, Counts, Op
from simulator.profile import Figure, Number, Positive, Seconds, Source, Strict

UNITY = Figure(1.0, Source(text="the kernels that the device was measured with", date="", evidence="derived"))
NO_TIME = Figure(0.0, Source(text="it is left out, or not known of the engine", date="", evidence="derived"))
EXPERTS = Figure(
    1.0,
    Source(
        text="aiconfigurator-core 0.12.0 kernel tables of bf16, fp8 and nvfp4: that of plain products (Gemm.sharpness)",
        date="2026-11",
        evidence="derived",
    ),
)
FUSED = {"score_bytes": None, "per_head": None, "per_head_crowded": None}  # what fused attention does away with
QUICK = {  # of vLLM's QuickReduce, where it is asked for 4 bits
    "reduced_bits": Figure(
        4.5,
        Source(
            text="vllm-project/vllm pull request 19744: INT4 in groups of 32, a scale of 16 bits for each",
            date="2025-06",
            evidence="datasheet",
        ),
    )
}
FEW_ROWS, SOME_ROWS = 16, 64  # between which `past_16_tokens` holds
H200_BYTES_PER_S = 4.8e12
WIDE_BYTES = 2.0  # of a cached number in the registers of a kernel
CROWDED_HEADS = 512  # sequences x query heads beyond which the other kernel runs (vllm/attention/ops/paged_attn.py)
CAPTURED_TOKENS = 8192  # of context at most in a captured graph (vLLM: max_seq_len_to_capture), shorter for some models


def _known_format(name: str) -> str:
    number_format(name)
    return name


def _known_kind(name: str) -> str:
    return name if name in get_args(PeakName) else _known_format(name)


FormatName = Annotated[str, AfterValidator(_known_format)]
KindName = Annotated[str, AfterValidator(_known_kind)]  # of a format, or of a type that devices multiply


class Kernels(Strict):
    """What an engine's kernels reach of the device's achievable rates (hardware profile), and how they are launched.

    `compute`, `memory`: matrix products; `quantized`: a further share of the compute rate for those in fp8 and fp4,
    where no kernel of its own quantises their inputs (Format.scaled_late: what that one moves is counted by itself);
    `unpacked`, `packed`: further shares of the two where weights are unpacked before they are multiplied; `experts`: a
    further share of the compute rate for routed experts, `block_experts` where their inputs in fp8 are scaled in blocks
    (their two limits nearly add up: Gemm.sharpness); `cache`: reading the cache; `attention`: prompts;
    `half_length`: times the length at which a prompt's attention reaches half of its rate; `widened`: types, or
    formats, that weights are unpacked from, though the device could multiply them. `launch`: times the launch of a
    kernel alone, below 1 inside a captured graph, above 1 where a slow host launches; `split_launch`: times that again
    where layers are split over devices, which loses the graph; `link`: times the latency of collectives.

    `layer_launches`: the host's work on a layer where no graph is captured, in launches of a product alone, which is
    how fast the host of a device is known; the device works meanwhile, and a step takes as long as the slower of the
    two. None: a captured graph, or a host that is faster than the device.

    `prompt_launch_s`: the host's time to launch a kernel of a step that computes prompts, where graphs are captured for
    decodes alone (or up to Engine.graph_tokens), on an x86 server (Hardware.host_slowness); here too a step takes
    as long as the slower of the two. None: prompts are in graphs, or their kernels are compiled into few launches.

    `past_16_tokens`: the share of an H200's rate that products in fp8, scaled as a whole, read weights at in a step of
    17 to 64 tokens, on Hopper. vLLM has a CUTLASS tile of its own for these rows (csrc/quantization,
    scaled_mm_sm90_fp8_dispatch.cuh; read 2026-11-22). It is a rate, not a share, that such a tile keeps up with: on an
    H100, whose memory is slower, the tables of products have no step there (facts/efficiency.md: .62, .63, .61 of the
    roofline at 16, 64 and 128 rows).

    `fuses`: formats of weights whose inputs the kernel before quantises (norm, all-reduce, activation, attention):
    their products start as those of 16 bits do. The start of one in fp8 in the tables holds the quantising kernel.

    `routes_apart`: of the kernels of routed experts only the two products start as those of their format do, which the
    quantising kernels are part of; what chooses, sorts, activates and sums starts as a product of 16 bits at most, as
    Triton's and FlashInfer's do in vLLM (fused_moe; vllm-project/vllm pull request 42497 shows one layer); FlashInfer
    has TensorRT-LLM's.

    `sorts_inputs`: routed experts take copies of their inputs, each as often as an expert takes it and in the order of
    the experts, which a kernel writes (TensorRT-LLM, cutlass_kernels/moe_gemm/moe_kernels.cu: expandInputRowsKernel;
    vLLM's kernels find the rows where they are). Inputs that are scaled in blocks are quantised behind it, others
    before (fp8_blockscale_gemm_kernel.cuh: fp8_grouped_gemm_run; fused_moe_cutlass.py; read 2026-11-22).

    `one_shot_tokens`: tokens up to which an all-reduce sends each device's share to all others at once (Links).
    `staged`: an all-reduce is one stage or two by its bytes, as vLLM's own kernel over NVLink (Links).
    `reduced_bits`: of a number in a long all-reduce (Links); none: it travels as it is.
    `one_ring`: collectives at the rate of one link of a device (Links). RCCL's reach but a part of all on fewer than
    eight MI300X (ROCm/rccl pull request 1270); that on eight they were no faster in 2024 is read off Argonne's rows.

    `streams`: products tuned for decode read weights at the best rate that any kernel of the device reaches, and not at
    `memory_fraction` of its gemm, which was fitted to single products and holds the time that they take to start.

    `per_head`, `per_head_crowded`: share of the bandwidth at which query heads read the cache each for itself, in a
    batch of few and of many heads (`CROWDED_HEADS`); none where the query heads of a group share what they read.
    vLLM's paged attention before 0.6 has one block of threads per sequence and query head (csrc/attention), and for
    many of them a kernel that keeps a row of `CAPTURED_TOKENS` scores in shared memory, which bounds the blocks at
    work: `per_head_crowded` is for rows so long, and grows as they shrink.

    `score_bytes`: bytes that prompts without fused attention move per score, a number for each head and pair of a query
    and a key; none: fused. `unpack_tokens`: tokens that a CPU unpacks weights for at once (Format.unpacking); none: it
    costs nothing. `expert_tile`: each expert computes a multiple of so many tokens; none: what reaches it.
    `least_tile`: of unpacked weights it is as many as reach an expert, from so many on (triton_kernels,
    matmul_ogs_details/opt_flags: block_m); none: all of `expert_tile`.
    """

    families: tuple[str, ...] = ()  # of devices that it holds for; none is all
    fitted_on: tuple[str, ...] = ()  # families of the devices whose measurements its figures come from
    devices: tuple[str, ...] = ()  # the same by id, for what was measured on one
    residuals: dict[str, tuple[float, ...]] = {}  # "metric regime": ln(measured / predicted) of setups held back
    compute: Positive = UNITY
    quantized: Positive = UNITY
    memory: Positive = UNITY
    unpacked: Positive = UNITY
    packed: Positive = UNITY
    experts: Positive = EXPERTS
    block_experts: Positive | None = None  # None: as `experts`
    cache: Positive = UNITY
    attention: Positive = UNITY
    half_length: Number = UNITY
    per_head: Positive | None = None
    per_head_crowded: Positive | None = None
    per_head_formats: tuple[FormatName, ...] = ()  # of the cache for which heads read apart; none is all
    per_head_except: tuple[int, ...] = ()  # query heads in a group, for which the group shares what it reads
    score_bytes: Number | None = None
    unpack_tokens: Positive | None = None
    expert_tile: Positive | None = None
    least_tile: Positive | None = None
    streams: bool = False
    fuses: tuple[FormatName, ...] = ()
    routes_apart: bool = False
    sorts_inputs: bool = False
    widened: tuple[KindName, ...] = ()
    launch: Number = UNITY
    split_launch: Number = UNITY
    layer_launches: Number | None = None
    prompt_launch_s: Seconds | None = None
    past_16_tokens: Positive = UNITY
    one_shot_tokens: Positive | None = None
    staged: bool = False
    reduced_bits: Positive | None = None
    one_ring: bool = False
    link: Number = UNITY

    def holds(self, hardware: Hardware) -> bool:
        """Tell whether the rule is for a device."""
        family, device = hardware.family, hardware.id
        return family in (self.families or (family,)) and device in (self.devices or (device,))

    def reads_per_head(self, cache_format: str, group: float) -> bool:
        """Tell whether the query heads of a group of so many read a cache of a format each for itself."""
        apart = cache_format in (self.per_head_formats or (cache_format,)) and group not in self.per_head_except
        return self.per_head is not None and apart

    def share_per_head(self, heads: Array, context_tokens: int, cache_format: str) -> Array:
        """Return the share of the bandwidth that `heads`, sequences x query heads, reach who read each for itself.

        They read what another has brought near, and compute in 16 bits: a narrower number costs them as much. 0 heads:
        nothing is known of the batch (a slope of StepTable), and it counts as crowded.
        """
        few, longest = float(self.per_head or math.inf), float(self.per_head_crowded or math.inf)
        crowded = min(longest * CAPTURED_TOKENS / min(context_tokens, CAPTURED_TOKENS), few)
        narrow = min(1.0, number_format(cache_format).size_bytes / WIDE_BYTES)
        return narrow * np.where((heads > 0) & (heads <= CROWDED_HEADS), few, crowded)

    def share_of_rows(self, op: Op, tokens: Array, hardware: Hardware) -> Array:
        """Return the share of the rate of a few rows at which a product of so many tokens reads its weights."""
        if op.format != "fp8" or op.experts is not None or hardware.family != "hopper":
            return 1.0
        share = min(1.0, self.past_16_tokens * H200_BYTES_PER_S / hardware.memory_bytes_per_s)
        some = (np.asarray(tokens) > FEW_ROWS) & (np.asarray(tokens) <= SOME_ROWS)
        return np.where(some, share, 1.0)

    def compute_share(self, peak: PeakName, op: Op) -> float:
        """Return the share of a device's compute rate that a product in a type reaches."""
        narrow, late = peak in ("fp8", "fp4"), number_format(op.format).scaled_late
        experts = self.experts if self.block_experts is None or not (narrow and late) else self.block_experts
        return self.compute * (self.quantized if narrow and not late else 1.0) * (experts if op.experts else 1.0)

    def padding(self, op: Op, tokens: Array, *, unpacked: bool) -> Array:
        """Return the tokens that experts compute over those that reach them."""
        if op.experts is None or not self.expert_tile:
            return 1.0
        least = float(self.least_tile or math.inf) if unpacked else math.inf
        return op.experts.padded(tokens, self.expert_tile, least)

    def start_s(self, rates: Achievable, peak: PeakName, op: Op) -> float:
        """Return what all kernels of a product take to start; experts sort their inputs before these are quantised."""
        own, wide = rates.gemm[peak], rates.gemm.get("bf16")
        least_s = min(own.launch_s, wide.launch_s) if wide else own.launch_s
        plain = op.launches if op.format in self.fuses else 0
        if op.experts is not None:
            plain = op.launches - 1 if self.routes_apart else 0
        return float(self.launch) * (own.launch_s * (op.launches - plain) + plain * least_s)


class Overheads(Strict):
    """Host time that no kernel hides, of an engine on a current x86 server.

    `step_s`: times Hardware.host_slowness where the host launches kernels, here the sampler's (`prompt_launch_s`).
    `cached_token_s`: per token that a step's sequences hold in the cache, of an engine that lists their blocks anew in
    each step (vLLM V0: Python lists of block numbers, copied by the scheduler and into a tensor of block tables).
    `ranks_s`: per step where attention is data-parallel, whose ranks exchange Python objects: how many prompts and
    tokens each has, what each has generated (TensorRT-LLM's PyExecutor: tp_allgather and tp_gather over MPI).
    `stream_s`: not of the step: per token that a front end of one process streams, behind the engine.
    `request_s`, `prompt_token_s`: of a request outside the steps, and per token that its prompt is split into.
    """

    step_s: Seconds
    sequence_s: Seconds
    request_s: Seconds
    cached_token_s: Seconds = NO_TIME
    ranks_s: Seconds = NO_TIME
    stream_s: Seconds = NO_TIME
    prompt_token_s: Seconds = NO_TIME

    def answer_s(self, prompt_tokens: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the seconds of requests outside the steps, by the lengths of their prompts."""
        return self.request_s + self.prompt_token_s * np.asarray(prompt_tokens, np.float64)

    def host_s(self, counts: Counts) -> Array:
        """Return the seconds of a step that no kernel hides."""
        cached_s = self.cached_token_s * counts.decode_reads
        return self.step_s * counts.steps + self.sequence_s * counts.logits + cached_s

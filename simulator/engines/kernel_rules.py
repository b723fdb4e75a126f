"""What was read in an engine's source or in tables of its kernels: which kernels it has, not how fast they are."""

from typing import Annotated, Literal

from pydantic import Field

from simulator.engines.clocked_gemms import ClockedGemms
from simulator.engines.conditions import FormatName, KindName, OfFormats, OnDevices
from simulator.engines.decode_tile import DecodeTile
from simulator.engines.dense_gemms import DenseMarlin, GemmCall, GemmTiles
from simulator.engines.empty_blocks import EmptyBlocks
from simulator.engines.heads_alone import ChunkedDecode
from simulator.engines.model_kernels import FusedNorms, ModelNorms, QuantisedInputs, RouterKernels
from simulator.engines.norm_kernels import NormKernels
from simulator.engines.split_decode import SplitDecode
from simulator.engines.strided_cache import StridedCache
from simulator.engines.tuned_experts import is_tuned
from simulator.engines.wave_decode import WaveDecode
from simulator.hardware.achievable import PeakName
from simulator.hardware.hardware import Hardware
from simulator.models.routed_experts import Experts
from simulator.profile import Number, Positive, Seconds, Strict

WIDE_BYTES = 2.0  # of a cached number in the registers of a kernel
CROWDED_HEADS = 512  # sequences x query heads beyond which the other kernel runs (vllm/attention/ops/paged_attn.py)
CAPTURED_TOKENS = 8192  # of context at most in a captured graph (vLLM: max_seq_len_to_capture), shorter for some models


class ExpertKernels(OfFormats):
    """Kernels of routed experts in some formats, on some families of devices, that have times of their own.

    They gather their inputs as they read them, but where they sort them (`sorts_inputs`). `compute` is their share of
    the device's compute fraction, beside those of all GEMMs, in place of the multipliers that were fitted to grouped
    GEMMs and to other weight-only formats (`experts`, `block_experts`, `unpacked`, `expert_tile`).
    """

    compute: Positive
    memory: Positive | None = Field(
        None, description="share of the bandwidth fraction at which weights are read, in place of `packed`"
    )
    inputs: PeakName | None = Field(None, description="type of inputs and multiplications; of formats of experts alone")
    least_tile: Positive | None = Field(None, description="rows of a tile, as many as tokens reach an expert, at least")
    most_tile: Positive | None = Field(None, description="the same at most; none: experts are not padded to tiles")
    unpack_rows: Positive | None = Field(
        None, description="of Marlin, whose tiles are those of marlin_tiles.py: rows in whose time a tile is unpacked"
    )
    fills_units: bool = Field(False, description="of AITER, whose tiles are those of aiter_tiles.py")
    default_tiles: bool = Field(False, description="only for experts that tuned_experts.is_tuned says have no others")
    k_loop_s: Seconds | None = Field(None, description="as KernelRules.k_loop_s")
    beside_s: Seconds | None = Field(
        None,
        description="of a layer's kernels beside its two GEMMs, where their sum was measured; none: their launches",
    )
    host_s: Seconds | None = Field(None, description="as FittedMultipliers.experts_launch_s, in its place")
    sorts_inputs: bool = Field(False, description="as KernelRules.sorts_inputs: they are grouped GEMMs, too")
    activates: bool = Field(
        False,
        description="the first GEMM activates: it writes as many numbers as an expert is wide, in 16 bits, and between"
        " the two lies nothing but, with fp8 that has no scales of blocks, a kernel that quantises them",
    )
    sums: bool = Field(False, description="the second GEMM sums over a token's experts, where others have a kernel")
    passes: Number | None = Field(
        None,
        description="times that inputs or outputs of each choice of a token, as wide as a token, pass through memory in"
        " kernels beside the GEMMs, the activation and the sum; none: they do not",
    )
    unpack_flops: Positive | None = Field(
        None,
        description="FLOPs of fp32 in whose time a weight is unpacked, anew for each tile of rows; none: Marlin, or"
        " nothing to unpack",
    )
    launches: tuple[Positive, Positive] | None = Field(
        None,
        description="kernels up to the first GEMM, which activates and quantises for the second, and those from there"
        " on; none: as grouped GEMMs have them",
    )
    start_s: Seconds | None = Field(None, description="of each of `launches`, on average; none: as GEMMs of experts")

    def runs(self, hardware: Hardware, stored: str, experts: Experts | None) -> bool:
        """Tell whether experts in a format run in them on a device; `experts`: which, None for any with tuned tiles."""
        own = not self.default_tiles or (experts is not None and not is_tuned(hardware.id, experts, stored))
        return self.holds(hardware, stored) and own


class ExpertPadding(OfFormats):
    """Columns of routed experts that some kernels want multiples of; zeros fill them up.

    `hidden`: of the model; `intermediate`: of an expert on a device. What pads them is held, read and multiplied as the
    rest is. vLLM pads mxfp4 in Marlin and for TensorRT-LLM's kernels (0.13.0, quantization/mxfp4.py; 0.19.0 and 0.33.0,
    fused_moe/oracle/mxfp4.py).
    """

    hidden: Annotated[int, Field(ge=1)]
    intermediate: Annotated[int, Field(ge=1)]


class ReadLengths(OnDevices):
    """Devices on which what plans attention of prompts reads their lengths back; not `latent` attention's, if false."""

    latent: bool = True


class KernelRules(Strict):
    """Which kernels an engine launches on some devices, and what they do beside the least work.

    Where a description names no source, the preset does, beside the rule.
    """

    weight_only: tuple[KindName, ...] = Field(
        (), description="types or formats whose weights are unpacked, though the device could multiply them"
    )
    reads_at_best_rate: bool = Field(
        False,
        description="GEMMs are tuned for decode: they read weights as fast as any GEMM or copy of the device, not at"
        " the memory_fraction of its gemm, which was fitted to single GEMMs and holds the time that they take to start",
    )
    fuses: tuple[FormatName, ...] = Field(
        (),
        description="formats of weights whose inputs the kernel before quantises (norm, all-reduce, activation,"
        " attention): their GEMMs start as those of 16 bits do; the start of one in fp8 in kernel tables holds the"
        " quantising kernel",
    )
    vector_only: bool = Field(
        False,
        description="GEMMs and attention run in the vector units of a device (Hardware.vector_flops_per_s), not in its"
        " matrix units, but for the formats of `amx` on CPUs in builds that have it",
    )
    amx: tuple[FormatName, ...] = Field(
        (), description="formats with kernels for AMX, which the engine's setting `amx` switches on"
    )
    sums_in_half: bool = Field(
        False,
        description="GEMMs of 16 bits sum in fp16, which devices whose peak is that of sums in fp32 at half the rate do"
        " twice as fast: they may reach two of that peak",
    )
    unpack_tokens: Positive | None = Field(
        None,
        description="tokens that a CPU unpacks weights for at once (NumberFormat.unpacking); none: it costs nothing",
    )
    unpacks_from_rows: Positive | None = Field(
        None,
        description="rows of a GEMM from which on a kernel of its own unpacks weights into memory, in 16 bits, and a"
        " library's GEMM reads them there; with fewer, GEMMs unpack what they read; none: they always do",
    )
    clocked_gemms: ClockedGemms | None = Field(
        None,
        description="GEMMs of weight-only formats multiply integers, at a rate that goes by the clock; none: shares",
    )
    gemm_tiles: tuple[GemmTiles, ...] = Field((), description="kernels of dense GEMMs with tiles of many rows alone")
    dense_marlin: tuple[DenseMarlin, ...] = Field((), description="dense weights that run in Marlin alone")
    gemm_calls: tuple[GemmCall, ...] = Field((), description="dense GEMMs whose kernel a library chooses in Python")
    unpacks_freely: tuple[FormatName, ...] = Field(
        (), description="weight-only formats whose GEMMs lose no time to unpacking: `unpacked` is that of others"
    )
    vector_rows: Positive | None = Field(
        None,
        description="rows up to which dense GEMMs of weight-only formats run in vector units (fitted: `vector`); none:"
        " they do not, or it is not known to cost time",
    )
    vector_expert_tokens: Positive | None = Field(
        None,
        description="tokens of a batch up to which routed experts run in the kernels of `vector_rows`; none: never",
    )
    fast_vectors: tuple[FormatName, ...] = Field(
        (), description="weight-only formats whose GEMMs of few rows have the rate `fast_vector`, others have `vector`"
    )
    fast_vector: Positive | None = Field(
        None, description="share of the fp32 peak that GEMMs of a few rows reach with the formats of `fast_vectors`"
    )
    expert_tiles: tuple[Positive, Positive] | None = Field(
        None,
        description="rows of a tile of routed experts, at least and at most: as many as the whole batch has, though an"
        " expert sees few of them; none: `expert_tile`, if it was fitted",
    )
    experts_apart_from_tokens: Positive | None = Field(
        None,
        description="tokens of a batch from which on the host takes the experts that they reach one after the other,"
        " each in the kernels of a dense GEMM of its own rows; none: never",
    )
    expert_launches: tuple[Positive, Positive] | None = Field(
        None,
        description="kernels of routed experts up to the first GEMM and those from there on, counted in launches of a"
        " dense GEMM, which may stand for several kernels; none: as grouped GEMMs have them",
    )
    expert_starts: Positive | None = Field(
        None,
        description="kernels of each routed expert that a device holds, chosen or not, which start one after the other"
        " while those before compute (a GEMM of each matrix where every expert is computed, whatever is said here);"
        " none: experts are no kernels of their own",
    )
    start_s: Seconds | None = Field(
        None,
        description="launch of a GEMM, with the small kernels beside it, that `launch` multiplies: of kernels of the"
        " engine's own, where the launches of devices, and the least rows of their GEMMs, are of other kernels; none:"
        " the device's own",
    )
    k_loop_s: Seconds | None = Field(
        None,
        description="per element of K (the inputs) of routed experts' GEMMs: a tile reads K in steps, each of which"
        " waits for memory; none: tiles that share K, or not known",
    )
    k_loop_except: tuple[FormatName, ...] = Field(
        (), description="formats whose experts have other kernels than those of k_loop_s, and whose time is not known"
    )
    eager_kernels: Positive | None = Field(
        None,
        description="kernels of a layer that Python launches one by one: a step lasts no less than the host takes"
        " for them (Overheads.kernel_s); none: captured graphs, or a host in C++",
    )
    routes_apart: bool = Field(
        False,
        description="of the kernels of routed experts only the two GEMMs start as those of their format do, with the"
        " quantising kernels; what chooses, sorts, activates and sums starts as a GEMM of 16 bits at most (fused_moe;"
        " vllm-project/vllm pull request 42497 shows one layer; TensorRT-LLM has FlashInfer's)",
    )
    sorts_inputs: bool = Field(
        False,
        description="routed experts take copies of their inputs, one for each expert that takes them, in the order of"
        " the experts (TensorRT-LLM, cutlass_kernels/moe_gemm/moe_kernels.cu: expandInputRowsKernel); inputs scaled in"
        " blocks are quantised behind it, others before (fp8_blockscale_gemm_kernel.cuh, fused_moe_cutlass.py)",
    )
    expert_padding: tuple[ExpertPadding, ...] = Field((), description="what fills up columns of routed experts")
    expert_kernels: tuple[ExpertKernels, ...] = Field(
        (), description="kernels of routed experts beside the engine's grouped GEMMs"
    )
    asked_experts: dict[str, tuple[ExpertKernels, ...]] = Field(
        {}, description="kernels of routed experts that take the place of `expert_kernels`, by who asks: `moe_backend`"
    )
    score_bytes: Number | None = Field(
        None, description="bytes that prefill attention moves per score, one per head, query and key; none: fused"
    )
    matrix_heads: Positive | None = Field(
        None,
        description="numbers of a head at most for which prompts attend in matrix units, if query heads share a KV"
        " head; all others do in vector units (fitted: `vector_attention`); none: all do, or it is not known",
    )
    strided_cache: StridedCache | None = Field(
        None, description="prompts read K and V again out of few channels of the memory (fitted: `reread`); none: no"
    )
    scan_flops_per_byte: Positive | None = Field(
        None,
        description="FLOPs of a scan of prompts in the time in which the device's memory moves a byte: its kernels pass"
        " the states of chunks through memory (flash-linear-attention); none: as fast as GEMMs",
    )
    state_start_s: Seconds | None = Field(
        None,
        description="before one kernel updates recurrent states; none: that of decode attention, which adds up parts",
    )
    fuses_if_faster: bool = Field(
        False,
        description="attention is fused by default because it is no slower so (llama.cpp's --flash-attn auto): the"
        " unfused kernels, of score_bytes, bound its time where its own rate rests on few rows",
    )
    per_head_formats: tuple[FormatName, ...] = Field(
        (), description="formats of the KV cache that each query head reads for itself; none is all"
    )
    per_head_windowed: bool = Field(
        False,
        description="each query head reads the KV cache of a layer with a sliding window for itself, too, whatever its"
        " format: the attention that shares it has no windows",
    )
    per_head_except: tuple[int, ...] = Field(
        (), description="query heads per KV head for which the group shares what it reads"
    )
    per_head_groups: tuple[int, ...] = Field(
        (), description="query heads per KV head for which each reads for itself; none is all but `per_head_except`"
    )
    per_head_by_clock: bool = Field(
        False,
        description="`per_head` counts numbers of any format that a multiprocessor reads in a clock: what the kernel"
        " computes bounds it, not the memory",
    )
    slow_fp8_cache: bool = Field(
        False,
        description="decode attention over a KV cache in fp8 is FlashAttention 3's, which reads it at a share of the"
        " bandwidth of its own (hardware.DecodeAttention.fp8_memory_fraction)",
    )
    split_decode: SplitDecode | None = Field(
        None, description="decode attention in Triton, where the engine has no other or is told to run it"
    )
    reads_lengths: ReadLengths | None = Field(
        None,
        description="devices on which what plans attention of prompts, but in Triton, reads lengths back, so that the"
        " host launches a step with prompts after the one before has ended; none: it launches it ahead",
    )
    scans_wait: bool = Field(
        False,
        description="scans of recurrent layers read lengths of prompts back from the device, with the same effect",
    )
    wave_decode: WaveDecode | None = Field(
        None, description="decode attention is TensorRT-LLM's for Blackwell: a wave of blocks, by its longest sequence"
    )
    decode_tile: DecodeTile | None = Field(
        None, description="tiles of query rows that decode attention computes in full; none: it computes its FLOPs"
    )
    empty_blocks: EmptyBlocks | None = Field(
        None, description="decode attention launches blocks behind the ends of sequences, too; none: it does not"
    )
    chunked_decode: ChunkedDecode | None = Field(
        None, description="decode attention within chunks (Llama 4), where it is not the kernel of other layers"
    )
    sparse_heads: dict[str, Positive] = Field(
        {},
        description="query heads that attention of prompts to chosen tokens (sparse latent attention) computes for a"
        " rank that has fewer, by family of devices: its kernel has no narrower tile, and zeros fill the rest",
    )
    gathers_tokens: Positive | None = Field(
        None,
        description="devices of a node up to which the tokens of data-parallel ranks are gathered by all ranks, and the"
        " sums over experts scattered, in place of all-to-alls that send a token to the ranks of its experts alone",
    )
    sends_residual: bool = Field(
        False, description="a pipeline stage sends its output and the residual, which are added in the next one's norm"
    )
    sends_quantized: tuple[FormatName, ...] = Field(
        (),
        description="formats of experts whose inputs data-parallel ranks quantise before they send them; what comes"
        " back has 16 bits",
    )
    prompt_kernels: dict[str, int] = Field(
        {}, description="by kind of a layer's mixer: kernels that the host launches for prompts beside those of its ops"
    )
    router_kernels: tuple[RouterKernels, ...] = Field(
        (), description="models without a fused kernel to choose or to scale experts; none: all have, or not known"
    )
    quantised_inputs: QuantisedInputs | None = Field(
        None, description="which kernels quantise inputs of the formats of `fuses`; none: all that come before a GEMM"
    )
    fuses_norms: FusedNorms | None = Field(None, description="models whose norms are part of all-reduces; none: none")
    at_once: tuple[Literal["shared", "latent", "delta"], ...] = Field(
        (),
        description="ops without a start of their own: shared experts, whose kernels run beside those of routed ones in"
        " captured graphs, or are theirs; the down-projection to a latent vector, which is one GEMM with that of"
        " queries; projections of Kimi Delta Attention in 16 bits, two GEMMs in all beside that of its output",
    )
    norm_kernels: NormKernels | None = Field(
        None, description="kernels of norms that are not fused; none: they are, or it is not known"
    )
    model_norms: ModelNorms | None = Field(None, description="kernels of norms in place of norm_kernels in some models")
    one_shot_tokens: Positive | None = Field(
        None, description="tokens up to which an all-reduce sends each device's share to all others at once"
    )
    all_reduce_shots: Literal[0, 1, 2] = Field(0, description="of TensorRT-LLM's plugin before NCCL; 0: not known")
    staged: bool = Field(
        False, description="an all-reduce has one stage or two by its bytes, as vLLM's own kernel over NVLink"
    )
    reduced_bits: Positive | None = Field(None, description="of a number in a long all-reduce; none: as it is")
    one_ring: bool = Field(False, description="collectives keep to one ring, at the rate of one link of a device")

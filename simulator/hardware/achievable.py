"""What kernels achieve of a device's peaks: shares, launch times, attention, collectives."""

from typing import Literal

from simulator.profile import BytesPerS, Fraction, Positive, Seconds, Strict, Tokens

PeakName = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4"]


class Gemm(Strict):
    """Soft roofline of a GEMM: t = ((F/(c P))^p + (B/(m W) + s K)^p)^(1/p) + t0; no exponent means the plain maximum.

    F: FLOPs, P: dense peak FLOP/s, c: compute_fraction, B: bytes moved, W: memory_bytes_per_s, m: memory_fraction, t0:
    launch_s. `panel_bytes_per_s`, r: kernels that give 128 (gemm.PANEL) of the N columns of weights to one
    multiprocessor, whole, read them no faster: the memory time is at least B_w (128 / N) / r, of B_w bytes of weights.
    None: inputs are split, too, or all columns keep all multiprocessors busy. `least_rows`: a dense GEMM of fewer takes
    as long to multiply as one of so many, where tensor cores multiply whole tiles of them and are slow beside the
    memory; `least_unpacked_rows`: one whose weights are unpacked to the type. `input_s`, s: a tile's loop over the K
    inputs of a dense GEMM, which its memory time does not hide; None: it does, or the loop is not known.
    """

    compute_fraction: Fraction
    memory_fraction: Fraction
    launch_s: Seconds
    exponent: Positive | None = None
    panel_bytes_per_s: BytesPerS | None = None
    least_rows: Positive | None = None
    least_unpacked_rows: Positive | None = None
    input_s: Seconds | None = None


class DecodeAttention(Strict):
    """Decode attention, which reads the KV cache for one new token per sequence: t = t0 + B / (m W), per layer.

    `fp8_memory_fraction`: m over a cache in fp8 with kernels that lose time to it (KernelRules.slow_fp8_cache);
    `latent_memory_fraction`: m of latent attention, where its kernels reach another one.
    """

    memory_fraction: Fraction
    launch_s: Seconds
    fp8_memory_fraction: Fraction | None = None
    latent_memory_fraction: Fraction | None = None


class PrefillAttention(Strict):
    """Prefill attention: its causal pairs of a prompt of S tokens run at the share c S / (S + S_half) of the peak."""

    compute_fraction: Fraction
    half_length_tokens: Tokens


class Collective(Strict):
    """All-reduce over n devices: t = latency + 2 (n-1)/n bytes / bus bandwidth, as nccl-tests define the latter."""

    latency_s: Seconds
    bus_bytes_per_s: BytesPerS


class Achievable(Strict):
    """Shares of a device's peaks that measured kernels reach, and their launch times.

    A missing part is looked up in the device's family, then in its class (`load_hardware`). What an engine's kernels
    reach of these is fitted (engines.fitted_multipliers).
    """

    gemm: dict[PeakName, Gemm] = {}
    blocks: dict[PeakName, Gemm] = {}  # of dense GEMMs with inputs scaled in blocks, likewise
    experts: dict[PeakName, Gemm] = {}  # of routed experts, where their kernels are others than those of `gemm`
    wave_fraction: Fraction | None = None  # while each multiprocessor works on a tile of a GEMM (gemm.wave_padding)
    decode_attention: DecodeAttention | None = None
    prefill_attention: PrefillAttention | None = None
    elementwise_memory_fraction: Fraction | None = None
    copy_memory_fraction: Fraction | None = None  # a plain copy of gigabytes
    elementwise_launch_s: Seconds | None = None  # of one norm, activation or rotation; none is nothing
    all_reduce: dict[int, Collective] = {}
    ring_all_reduce: dict[int, Collective] = {}  # NCCL's: for large messages where it is faster, and over nodes

    def or_else(self, other: "Achievable") -> "Achievable":
        """Fill what is missing here from a more general set."""
        return Achievable(
            gemm={**other.gemm, **self.gemm},
            blocks={name: each for name, each in other.blocks.items() if name not in self.gemm} | self.blocks,
            experts={name: each for name, each in other.experts.items() if name not in self.gemm} | self.experts,
            wave_fraction=self.wave_fraction or other.wave_fraction,
            decode_attention=self.decode_attention or other.decode_attention,
            prefill_attention=self.prefill_attention or other.prefill_attention,
            elementwise_memory_fraction=self.elementwise_memory_fraction or other.elementwise_memory_fraction,
            copy_memory_fraction=self.copy_memory_fraction or other.copy_memory_fraction,
            elementwise_launch_s=self.elementwise_launch_s or other.elementwise_launch_s,
            all_reduce=self.all_reduce or other.all_reduce,
            ring_all_reduce=self.ring_all_reduce,
        )

    def kind_of(self, name: PeakName, *, experts: bool, blocks: bool) -> str:
        """Return where the rates of a GEMM stand: of routed experts, or of a dense one with inputs scaled in blocks."""
        if experts:
            return "experts" if name in self.experts else "gemm"
        return "blocks" if blocks and name in self.blocks else "gemm"

    def gemm_of(self, name: PeakName, *, experts: bool, blocks: bool = False) -> Gemm | None:
        """Return the rates of a GEMM that is multiplied in a type, by its kind; None: not known."""
        found: Gemm | None = getattr(self, self.kind_of(name, experts=experts, blocks=blocks)).get(name)
        return found

    @property
    def best_memory_fraction(self) -> Fraction:
        """Highest share of the bandwidth at which numbers are read that are used once: GEMMs of any type, a copy.

        Weights are read in 16 bits and less: what is said of wider types counts where nothing else is known.
        """
        narrow = [each.memory_fraction for peak, each in self.gemm.items() if peak not in ("fp32", "tf32")]
        found = narrow or [each.memory_fraction for each in self.gemm.values()]
        return max([*found, self.copy_memory_fraction] if self.copy_memory_fraction else found)

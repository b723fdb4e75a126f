"""Which steps CUDA graphs launch, and which the host launches kernel by kernel: whole graphs, and piecewise graphs."""

from dataclasses import dataclass

import numpy as np

from simulator.arrays import Ints
from simulator.engines.defaults import default_of
from simulator.engines.engine import Engine
from simulator.engines.graph_capture import GraphCapture
from simulator.hardware.hardware import Hardware
from simulator.models.layout import Layout
from simulator.models.model import Model
from simulator.roofline.graphs import EVERY_STEP, Graphs

QWEN_3 = (
    "Qwen3MoeForCausalLM",
    "Qwen3VLMoeForConditionalGeneration",
    "Qwen3NextForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
    "Qwen3_5ForConditionalGeneration",
)
PIECEWISE_OF_LATENT = 2048  # tokens of a step with latent attention that SGLang's piecewise graphs launch
BREAKABLE_OF_LATENT = 8192  # and breakable ones (_handle_gpu_memory_settings of 0.5.10, memory_hook.py of 0.5.23)
WIDE = 256  # tokens from which on captured sizes are 16 apart, not 8


@dataclass(frozen=True)
class CapturedGraphs:
    """What an engine captures for a model: sizes in tokens of a step, of all data-parallel ranks together.

    A bound is of one rank and holds for all: a prompt lies on one of them, and the others wait for it.
    """

    engine: Engine
    model: Model
    hardware: Hardware
    layout: Layout
    max_num_seqs: int
    max_num_batched_tokens: int
    draft_tokens: int = 0

    @property
    def of_steps(self) -> Graphs:
        """Which steps they launch, and how rows fill these up."""
        filled = self.routed_sizes, self.batch_sizes, self._capture.graph_padding
        return Graphs(self.tokens, self.decode_tokens, self.decode_piecewise_tokens, *filled)

    @property
    def tokens(self) -> int:
        """Most tokens of a step with prompts that graphs launch; 0 where none does.

        SGLang's piecewise graphs have no other bound than the step's, but for latent attention (PIECEWISE_OF_LATENT).
        """
        most, each = self._capture.graph_tokens, self._capture.graph_tokens_per_seq
        if self._capture.piecewise_graphs:
            bound = BREAKABLE_OF_LATENT if self._capture.graph_breakable else PIECEWISE_OF_LATENT
            whole = (
                self.max_num_batched_tokens if self.model.latent is None else min(bound, self.max_num_batched_tokens)
            )
            return (most or whole) if self._captures_piecewise else 0
        return min(most, each * self.max_num_seqs * (1 + self.draft_tokens)) if each else most

    @property
    def decode_tokens(self) -> int:
        """Most tokens of a step of decodes alone that one whole graph launches; `EVERY_STEP` where none is larger.

        vLLM captures whole graphs of the sizes up to max_num_seqs (initialize_cudagraph_keys of
        v1/cudagraph_dispatcher.py), to which max_num_seqs itself belongs since pull request 57355; SGLang those of up
        to cuda_graph_max_bs sequences.
        """
        capture, each, ranks = self._capture, 1 + self.draft_tokens, self.layout.dp
        if not self._on_gpus:
            return EVERY_STEP
        if (given := capture.decode_graph_tokens) is None:
            seqs = default_of(capture.decode_graph_seqs, self.hardware, self.layout.tp * ranks)
            return EVERY_STEP if seqs is None else seqs * each * ranks
        most = self.max_num_seqs // ranks * each
        if capture.captures_max_num_seqs and most <= given:
            return most * ranks
        sizes = capture_sizes(given, each)
        return int(sizes[sizes <= most].max(initial=0)) * ranks

    @property
    def decode_piecewise_tokens(self) -> int:
        """Most tokens of a step of decodes alone that piecewise graphs launch, where no whole one does.

        Those of SGLang are for prompts alone (forward_extend of its model_runner.py asks PiecewiseCudaGraphRunner).
        """
        return 0 if self._capture.piecewise_graphs else self.tokens

    @property
    def routed_sizes(self) -> tuple[int, ...]:
        """Tokens to which steps are filled up with rows that choose experts, too; () where none are."""
        if not self._capture.routes_padding or not self._on_gpus:
            return ()
        most = min(self._capture.graph_tokens_per_seq * self.max_num_seqs // self.layout.dp, self._capture.graph_tokens)
        sizes = capture_sizes(max(most, self.decode_tokens // self.layout.dp), 1 + self.draft_tokens)
        return tuple(int(size) * self.layout.dp for size in sizes)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """Tokens of the steps of decodes alone that TensorRT-LLM captures, one by one; () where no sizes are listed.

        With padding a larger size than any batch gives way to the largest batch: _filter_cuda_graph_batch_sizes of
        _torch/pyexecutor/model_engine.py (read 2026-11-27). Sizes are of each rank and of each stage.
        """
        capture, each, layout = self._capture, 1 + self.draft_tokens, self.layout
        listed = capture.graph_batch_sizes or trtllm_batch_sizes(capture.graph_max_batch_size, capture.graph_padding)
        if not self._on_gpus:
            return ()
        most = min(max(self.max_num_seqs // (layout.dp * layout.pp), 1), max(self.max_num_batched_tokens // each, 1))
        kept = [size for size in listed if size <= most]
        if capture.graph_padding and len(kept) < len(listed) and kept[-1:] != [most]:
            kept.append(most)
        return tuple(size * each * layout.dp for size in kept)

    @property
    def _capture(self) -> GraphCapture:
        return self.engine.graph_capture

    @property
    def _on_gpus(self) -> bool:
        """Whether the engine captures any graph there (support_static_graph_mode of vllm/platforms)."""
        return self.hardware.vendor in ("NVIDIA", "AMD") and self.hardware.device_class != "cpu"

    @property
    def _captures_piecewise(self) -> bool:
        """Whether SGLang captures piecewise graphs of steps with prompts.

        Breakable graphs: `_captures_breakable`. Others: not with drafts and adapters, on devices of others than
        NVIDIA, with stages, data-parallel attention, vision encoders, sparse attention, gated DeltaNet, and where
        `has_trtllm_experts`: _handle_piecewise_cuda_graph and _handle_moe_kernel_config of server_args.py,
        piecewise_cuda_graph_disabled_model_archs of model_config.py, sglang 0.5.10.post1 (read 2026-11-27).
        """
        if self._capture.graph_breakable:
            return self._captures_breakable
        model, layout = self.model, self.layout
        mixers = [block.mixer for block in model.blocks.values() if block.mixer is not None]
        sparse = any(mixer.kind == "compressed" or getattr(mixer, "indexer", None) for mixer in mixers)
        delta = any(mixer.kind == "gated_delta_net" for mixer in mixers)
        plain = model.vision is None and not sparse and not delta and layout.pp == 1 and layout.dp == 1
        alone = not self.draft_tokens and not self.engine.adapters
        trtllm = has_trtllm_experts(model, self.hardware, layout)
        return plain and alone and self.hardware.vendor == "NVIDIA" and not trtllm

    @property
    def _captures_breakable(self) -> bool:
        """Whether SGLang's breakable graphs launch steps with prompts, as cuda_graph_hook.py of 0.5.23 has them.

        Not on devices of others than NVIDIA, with stages, vision encoders (but of some models), Kimi Delta Attention,
        DeepSeek V4, and latent attention in TensorRT-LLM's kernel, which data-center Blackwell has for DeepSeek V3 and
        R1 and Kimi K2 (read 2026-11-28).
        """
        model = self.model
        indexed = any(getattr(block.mixer, "indexer", None) for block in model.blocks.values())
        unseen = model.vision is None or model.architecture in self._capture.piecewise_of_vision
        trtllm = self.hardware.family == "blackwell" and model.latent is not None and model.vision is None
        excepted = model.mixer_kinds & {"kimi_delta", "compressed"} or (trtllm and not indexed)
        return self.hardware.vendor == "NVIDIA" and self.layout.pp == 1 and unseen and not excepted


def capture_sizes(most: int, each: int = 1) -> Ints:
    """Return the tokens of vLLM's captured graphs up to `most`, in steps of `each` tokens per sequence.

    1, 2, 4, multiples of 8 below 256 and of 16 from there on (_set_cudagraph_sizes of config/vllm.py; multiples of 8
    throughout before 0.11.1), rounded up to whole sequences (adjust_cudagraph_sizes_for_spec_decode).

    >>> capture_sizes(24).tolist(), capture_sizes(24, each=3).tolist()
    ([1, 2, 4, 8, 16, 24], [3, 6, 9, 18, 24])
    """
    sizes = np.concatenate([[1, 2, 4], np.arange(8, WIDE, 8), np.arange(WIDE, max(most, WIDE) + 1, 16)])
    rounded = np.unique(-(-sizes[sizes <= most] // each) * each)
    return np.asarray(rounded[rounded <= most], np.int64)


def trtllm_batch_sizes(most: int, padding: bool) -> tuple[int, ...]:
    """Return the sequences of TensorRT-LLM's captured graphs where cuda_graph_config has a max_batch_size alone.

    CudaGraphConfig._generate_cuda_graph_batch_sizes of llmapi/llm_args.py, 1.0 to 1.3.0rc (read 2026-11-27).

    >>> trtllm_batch_sizes(20, padding=True), trtllm_batch_sizes(600, padding=False)[30:]
    ((1, 2, 4, 8, 16, 20), (31, 32, 64, 128, 256, 512, 600))
    """
    few = [1, 2, 4, *range(8, 129, 8)] if padding else [*range(1, 33), 64, 128]
    powers = [2**power for power in range(8, max(most, 1).bit_length())]
    return tuple(sorted({size for size in (*few, *powers) if size <= most} | ({most} if most else set())))


def has_trtllm_experts(model: Model, hardware: Hardware, layout: Layout) -> bool:
    """Tell whether SGLang's experts are TensorRT-LLM's kernels, in FlashInfer, by default (`flashinfer_trtllm`).

    On data-center Blackwell: DeepSeek's and Kimi's in fp8 and nvfp4, Qwen 3's in 16 bits, too
    (_handle_model_specific_adjustments of server_args.py, sglang 0.5.10.post1, read 2026-11-27). Those of gpt-oss are
    another choice (`flashinfer_mxfp4`).

    >>> from simulator.deployment.layouts import default_layout
    >>> from simulator.hardware.hardware import load_hardware
    >>> from simulator.models.model import load_model
    >>> model = load_model("deepseek-v3")
    >>> layout = default_layout(model, tp=8)
    >>> [has_trtllm_experts(model, load_hardware(device), layout) for device in ("b200", "h200")]
    [True, False]
    """
    if hardware.family != "blackwell":
        return False
    experts = any(block.ffn is not None and block.ffn.kind == "experts" for block in model.blocks.values())
    few_bits = layout.weight_dtype.startswith(("fp8", "nvfp4"))
    if model.architecture in QWEN_3:
        return experts and (few_bits or layout.weight_dtype == model.dtype)
    return experts and few_bits and model.latent is not None

"""Measure the ceilings of a device, and the seconds of single ops of a model with the engine's own kernels."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch
from torch import Tensor

from simulator.calibration.op_tables import OpTables, gemm_shapes
from simulator.calibration.step_log import StepPart
from simulator.models.layers import Attention
from simulator.models.model import Model
from simulator.reference.attention import attend
from simulator.reference.batch import BatchLayout, StepBatch, make_batch
from simulator.reference.cache import BlockPool, CacheShape, LayerCache
from simulator.reference.checkpoint import random_checkpoint
from simulator.reference.device import Device
from simulator.reference.engine import Executor
from simulator.reference.graphs import capture
from simulator.reference.linear import Linear, make_linear
from simulator.reference.timing import Timing, other_process, timed
from simulator.reference.transformer import Build, Transformer

COLD_BYTES = 160_000_000  # of weights or cache in turn, of which each call finds its own gone from the caches
FLUSH_BYTES = 1 << 29  # read before each timing: as much as a step reads between two uses of a weight
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
DECODES = ((1, 64), (1, 512), (1, 1500), (4, 64), (4, 400), (8, 150), (16, 64), (16, 400), (32, 64), (32, 250))
PROMPTS = ((16, 0), (64, 0), (256, 0), (512, 0), (1000, 0), (64, 400), (128, 512))
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The best that a device reaches: bytes read per second, FLOP/s by dtype; `spread`: relative, of the repeats."""

    read_bytes_per_s: float
    flops_per_s: dict[str, float]
    spread: float


@torch.inference_mode()
def ceilings(device: Device) -> Ceilings:
    """Measure a sum over 256 MiB, and square GEMMs in fp32 and bf16 (1,024 wide on a CPU, 8,192 on a GPU)."""
    numbers = torch.ones(1 << 26, device=device.kind)  # 256 MiB
    reading = timed(numbers.sum, device)
    found, spreads = {}, [reading.spread_s / reading.seconds]
    for name in ("fp32", "bf16"):
        kind = Device(device.kind, name)
        size = 1024 if device.kind == "cpu" else 8192
        left, right = (torch.randn(size, size, device=device.kind).to(kind.dtype) for _ in range(2))
        timing = timed(partial(torch.matmul, left, right), device)
        found[name] = 2.0 * size**3 / timing.seconds
        spreads.append(timing.spread_s / timing.seconds)
    return Ceilings(numbers.nbytes / reading.seconds, found, max(spreads))


def ceilings_elsewhere(device: Device) -> Ceilings:
    """Measure the ceilings in another process, on as many threads: two processes differ by more than two repeats."""
    words = [device.kind, str(torch.get_num_threads())]
    what = "the ceilings in a second process"
    return Ceilings(**other_process(what, "simulator.reference.probe", words, "Run it again"))


def between(first: Ceilings, second: Ceilings) -> float:
    """Return the largest relative difference between the ceilings of two processes.

    >>> between(Ceilings(4e10, {"fp32": 1e11}, 0.0), Ceilings(5e10, {"fp32": 1e11}, 0.0))
    0.25
    """
    pairs = [(first.read_bytes_per_s, second.read_bytes_per_s)]
    pairs += [(rate, second.flops_per_s[name]) for name, rate in first.flops_per_s.items()]
    return max(max(pair) / min(pair) - 1 for pair in pairs)


class Probe:
    """Measures the op tables of a model on a device; keeps all `timings`, so that disturbed ones can be counted."""

    def __init__(self, model: Model, build: Build, progress: Progress = lambda _: None) -> None:
        self.model, self.build, self._progress = model, build, progress
        self.timings: list[Timing] = []
        self._others = torch.ones(FLUSH_BYTES // 4, device=build.device.kind)

    @torch.inference_mode()
    def tables(self) -> OpTables:
        """Measure all ops; seconds by shape, number of tokens and context."""
        rest, host_s, host_sequence_s = self._rest()
        return OpTables(
            gemm={f"{a}x{b}": self._gemm(a, b) for a, b in self._gemm_shapes()},
            decode_attention=tuple((b, c, self._decode_attention(b, c)) for b, c in DECODES),
            prefill_attention=tuple((n, p, self._prefill_attention(n, p)) for n, p in PROMPTS),
            layer_rest=rest,
            host_s=host_s,
            host_sequence_s=host_sequence_s,
        )

    def _gemm_shapes(self) -> list[tuple[int, int]]:
        return [*gemm_shapes(self.model), (self.model.hidden, self.model.vocab)]

    def _kernels_s(self, work: Callable[[], object], what: str) -> float:
        """Time kernels; on CUDA as a graph replays them, without the host's launches between them."""
        return self._time(capture(work)[0] if self.build.device.kind == "cuda" else work, what)

    def _time(self, work: Callable[[], object], what: str) -> float:
        self._progress(what)
        timing = timed(work, self.build.device, least_s=0.03, repeats=3, before=self._others.sum)
        self.timings.append(timing)
        return timing.seconds

    def _gemm(self, inputs: int, outputs: int) -> dict[int, float]:
        """Return seconds of a GEMM by number of tokens, with many weights in turn: each comes from memory."""
        device = self.build.device
        size = torch.empty(0, dtype=device.dtype).element_size() * inputs * outputs
        copies = max(1, min(64, int(COLD_BYTES // size)))
        packed = self.build.packed and device.kind == "cpu"
        weights = (torch.randn(outputs, inputs).to(device.dtype).to(device.kind) for _ in range(copies))
        linears = [make_linear(weight, None, packed=packed) for weight in weights]
        most = 64 if outputs == self.model.vocab else TOKENS[-1]  # the head sees one row per sequence
        return {
            tokens: self._gemm_s(linears if tokens < 128 else linears[:3], tokens, (inputs, outputs))
            for tokens in TOKENS
            if tokens <= most
        }

    def _gemm_s(self, linears: list[Linear], tokens: int, shape: tuple[int, int]) -> float:
        inputs, outputs = shape
        seconds = self._kernels_s(
            _in_turn(linears, self._rows(tokens, inputs)), f"GEMM {inputs} x {outputs}, {tokens} tokens"
        )
        return seconds / len(linears)

    def _rows(self, tokens: int, width: int) -> Tensor:
        return torch.randn(tokens, width).to(self.build.device.dtype).to(self.build.device.kind)

    def _caches(self, blocks: int) -> tuple[Attention, list[LayerCache]]:
        """Return KV caches of several layers: together larger than a processor's cache."""
        mixer = next(b.mixer for b in self.model.blocks.values() if isinstance(b.mixer, Attention))
        shape = CacheShape(blocks, self.build.block_size, mixer.kv_heads, mixer.head_dim)
        one = LayerCache(shape, self.build.device)
        copies = max(1, min(len(self.model.layer_names), int(COLD_BYTES // one.nbytes)))
        return mixer, [one, *(LayerCache(shape, self.build.device) for _ in range(copies - 1))]

    def _decode_attention(self, sequences: int, context: int) -> float:
        parts = [StepPart(row, 1, context - 1) for row in range(sequences)]
        return self._attention(parts, f"decode attention {sequences} x {context}")

    def _prefill_attention(self, new: int, past: int) -> float:
        fused = self.build.device.fuses_attention
        return self._attention([StepPart(0, new, past)], f"prompt attention {new} after {past}", ragged=fused)

    def _attention(self, parts: list[StepPart], what: str, *, ragged: bool = False) -> float:
        """Return the seconds of one layer's attention; `ragged`: in the kernel that takes all lengths."""
        layout = BatchLayout(self.build.block_size, (0,), self.build.device.kind, ragged)
        lengths = [new + past for _, new, past in parts]
        pool = BlockPool(sum(-(-length // layout.block_size) for length in lengths), layout.block_size)
        mixer, caches = self._caches(pool.free_blocks)
        new_tokens = sum(new for _, new, _ in parts)
        batch = make_batch(parts, [0] * new_tokens, [pool.grow(row, each) for row, each in enumerate(lengths)], layout)
        queries = self._rows(new_tokens, mixer.heads * mixer.head_dim).view(new_tokens, mixer.heads, mixer.head_dim)
        calls = [partial(attend, cache=cache, batch=batch, window=0) for cache in caches]
        return self._kernels_s(_in_turn(calls, queries), what) / len(caches)

    def _rest(self) -> tuple[dict[int, float], float, float]:
        """Return the rest of a layer in seconds by number of tokens, and the host's seconds per step and per sequence.

        Steps of two models without GEMMs and attention, of 2 and 10 layers: the slope over layers is the rest of a
        layer, what is left is the host's. On CUDA all of them are decodes: these are replayed, prompts are not.
        """
        most_decodes = TOKENS[-1] if self.build.device.kind == "cuda" else 32
        few, many = (self._hollow(layers) for layers in (2, 10))
        rest, left = {}, {}
        for tokens in TOKENS:
            parts = (
                [StepPart(row, 1, 4) for row in range(tokens)] if tokens <= most_decodes else [StepPart(0, tokens, 0)]
            )
            short, long = (self._hollow_step(engine, parts) for engine in (few, many))
            rest[tokens] = max(1e-7, (long - short) / 8)
            left[tokens] = max(0.0, short - 2 * rest[tokens])
        per_sequence_s = max(0.0, (left[32] - left[1]) / 31)
        return rest, max(1e-6, left[1] - per_sequence_s), per_sequence_s

    def _hollow(self, layers: int) -> Executor:
        name = self.model.layer_names[-1]
        run = self.model.layers[0].model_copy(update={"repeat": layers, "of": (name,)})
        changes = {"layers": (run,), "vocab": 64, "tied_embeddings": True, "max_context_tokens": 2 * TOKENS[-1]}
        small = self.model.model_copy(update=changes)
        return Executor(_Hollow(random_checkpoint(small), replace(self.build, num_blocks=TOKENS[-1])))

    def _hollow_step(self, engine: Executor, parts: list[StepPart]) -> float:
        engine.known = [[1] * (part.past_tokens + part.new_tokens) for part in parts]
        lengths = [len(each) for each in engine.known]

        def step() -> None:
            for known, length in zip(engine.known, lengths, strict=True):
                del known[length:]
            engine.execute(parts)

        seconds = self._time(step, f"the rest of {len(engine.transformer.layers)} layers, {sum(lengths)} tokens")
        engine.pool.keep(set())
        return seconds


class _Hollow(Transformer):
    """A transformer without GEMMs and attention: norms, rotary positions, cache writes and activations are left."""

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Linear:  # noqa: ARG002
        """Return rows made beforehand, in place of a projection."""
        rows = torch.randn(TOKENS[-1], len(weight)).to(weight.dtype).to(weight.device)
        return lambda x: rows[: len(x)]

    def attend(self, queries: Tensor, cache: LayerCache, batch: StepBatch, window: int) -> Tensor:  # noqa: ARG002
        """Return the queries, in place of attention."""
        return queries.reshape(len(queries), -1)


def _in_turn(calls: Sequence[Callable[[Tensor], Tensor]], x: Tensor) -> Callable[[], None]:
    def work() -> None:
        for call in calls:
            call(x)

    return work


if __name__ == "__main__":
    kind, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    sys.stdout.write(json.dumps(asdict(ceilings(Device(kind)))))

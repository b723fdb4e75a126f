"""Seconds of an engine step: the sum of its ops and of the host's time; tabulated for the event loop."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from simulator.arrays import Array, Floats
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.kernel_rules import CAPTURED_TOKENS
from simulator.engines.overheads import NO_OVERHEADS, Overheads
from simulator.limits import refuse_beyond_memory
from simulator.models.operations import Counts, Op
from simulator.roofline.graphs import NO_LAUNCHES, ONE_GRAPH, Graphs, HostLaunch, Launches
from simulator.roofline.op_time import OpTime
from simulator.roofline.roofline import Rates
from simulator.roofline.speed_of_light import LightRates


class StepTable(NamedTuple):
    """A step model tabulated for the event loop, in seconds.

    seconds = max(least_s, what the host takes to launch it, token_s[T] + logit_s[n] + draft_s[decodes] + slopes .
    attention counts + loaded_s x tokens from the host + what its graph adds), of a step of T new tokens and n logits.
    With prompts the host takes `prompts.piecewise_s` up to `graph_tokens` tokens, which piecewise graphs launch that
    add `prompts.gaps_s`, and `prompts.least_s` beyond; and host_s[3] for each logit. Decodes alone take it
    decode_launch_s[T], and their graph adds decode_graph_s[T]. Reads of the cache (the first two of `SLOPES`: of all
    layers, and of those with windows) take no less than lone_s[:2] for each token that the longest decoding sequence
    reads; where it has `lone_parts` blocks alone, and fewer beside others (WaveDecode), as much longer. Nor do they
    take less than lone_s[2:] for each decoding sequence (EmptyBlocks).

    `token_s`: (max tokens + 1,); `logit_s`: (max logits + 1,); `slopes`: (5,), seconds per count of `SLOPES`;
    `draft_s`: (max sequences + 1,); `lone_s`: (4,). `host_s`: (4,), what of all this the host takes: per step, per
    sequence and per cached token (Overheads.host_s), and per sequence beside the device (Launches.sequence_s).
    `decode_launch_s`, `decode_graph_s`: by tokens of decodes alone, of which the last stands for more.

    MOST_FIELDS: with one more, even an unused one, the compiled loops take three times as long, which is why `lone_s`
    holds both.
    """

    token_s: Floats
    logit_s: Floats
    slopes: Floats
    draft_s: Floats = np.zeros(1)
    loaded_s: float = 0.0
    least_s: float = 0.0
    prompts: HostLaunch = HostLaunch()
    lone_s: Floats = np.zeros(4)
    lone_parts: float = 0.0
    host_s: Floats = np.zeros(4)
    decode_launch_s: Floats = np.zeros(1)
    decode_graph_s: Floats = np.zeros(1)
    graph_tokens: int = 0

    def times(self, factor: float) -> "StepTable":
        """Return the table of steps that take `factor` times as long."""
        prompts, parts = HostLaunch(*(each_s * factor for each_s in self.prompts)), self._asdict()
        seconds = {name: part * factor for name, part in parts.items() if name not in COUNTS}
        return self._replace(**seconds, prompts=prompts)


COUNTS = ("prompts", "graph_tokens", "lone_parts")  # fields of a table that are no seconds, or have some of their own

MOST_FIELDS = 13  # of a StepTable
READ_TOKENS = 1e9  # so many that launches do not count
ROW_BYTES = 200  # of one row of a step table, while the seconds of all ops are added up
SLOPES = ("decode_reads", "decode_reads_windowed", "prefill_tokens", "prefill_pairs", "prefill_pairs_windowed")
ONES = Counts(**dict(zip(SLOPES, np.eye(len(SLOPES) + 1)[:-1], strict=True)))  # the last has none of the counts


@dataclass(frozen=True)
class StepModel:
    """Seconds of one engine step: the sum of its ops, of the ops that draft for it, and of the engine's host time.

    `kernels`: None for those that the device was measured with. `light`: the speed of light (LightRates), at which no
    engine has overheads.
    """

    ops: tuple[Op, ...]
    kernels: DeviceKernels
    overheads: Overheads = NO_OVERHEADS
    light: bool = False
    draft_ops: tuple[Op, ...] = ()  # of one sequential step of what drafts
    draft_tokens: int = 0
    micro_batch_tokens: int = 0  # a step runs in parts of so many tokens, one after the other; 0: in one
    loaded_token_s: float = 0.0  # to bring the cache of a token back from the host
    host_time: Callable[[Op, Counts], OpTime] | None = None  # of ops that lie on the host
    context_tokens: int = CAPTURED_TOKENS  # of one sequence at most
    least_s: float = 0.0  # of a step: what the host takes to launch it (FittedMultipliers.layer_launches)
    launches: Launches = NO_LAUNCHES  # the host's (FittedMultipliers.prompt_launch_s)
    graphs: Graphs = ONE_GRAPH
    num_scheduler_steps: int = 1  # decode steps that the host prepares at once (rule Y of docs/serving-rules.md)
    seconds_alone: bool = False  # without what the seconds of an op are made of

    @cached_property
    def _rates(self) -> Rates | LightRates:
        kernels, alone = self.kernels, self.seconds_alone
        if self.light:
            return LightRates(kernels, seconds_alone=alone)
        return Rates(kernels, context_tokens=self.context_tokens, seconds_alone=alone)

    def explain(self, counts: Counts) -> list[OpTime]:
        """Return the time of each op, in the order of execution, and of the engine's host time.

        `counts` of one step, or arrays over steps: then each has arrays of that shape.
        """
        filled = self.graphs.filled(counts)
        times = [*(self._time(op, filled) for op in self.ops), *(self._drafting(op, counts) for op in self.draft_ops)]
        gaps_s, least_s = self.graphs.launched(self.launches, counts)
        at_once = np.where(counts.prefill_tokens > 0, 1, self.num_scheduler_steps)
        host_s = self.overheads.host_s(counts) / at_once + gaps_s * counts.steps
        least_s = np.maximum(self.least_s, least_s) * counts.steps
        host_s = np.maximum(host_s, least_s - sum((each.seconds for each in times), start=0.0))
        return [*times, OpTime("engine host time", overhead_s=host_s, seconds=host_s)]

    def _time(self, op: Op, counts: Counts) -> OpTime:
        """Return the time of an op, of all micro-batches together; attention is a sum over sequences either way."""
        time_of = self.host_time if op.on_host and self.host_time else self._rates.time
        if op.experts is not None:
            counts = self.graphs.routed(counts)
        size = self.micro_batch_tokens
        by_token = op.flops.tokens or op.activation_bytes.tokens or op.link_bytes.tokens
        if not size or not by_token or np.max(counts.tokens) <= size:
            return time_of(op, counts)
        full, rest = np.divmod(counts.tokens, size)
        one = time_of(op, Counts(steps=1.0, tokens=float(size)))
        last = time_of(op, Counts(steps=np.where(rest > 0, counts.steps, 0.0), tokens=rest))
        return one.map(lambda each, left: full * each + left, last)

    def _by_decodes(self, tokens: Floats) -> tuple[Floats, Floats]:
        """Return `decode_launch_s` and `decode_graph_s` of a table: the host's seconds, and those that a graph adds.

        A piecewise graph adds the device's gaps, rows that fill a step up to a captured size what they take.
        """
        decodes = Counts(steps=np.ones_like(tokens), tokens=tokens, logits=tokens)
        gaps_s, launch_s = (np.asarray(each, np.float64) for each in self.graphs.launched(self.launches, decodes))
        filled = self.graphs.filled(decodes)
        if filled is decodes:
            return launch_s, gaps_s
        added = (self._time(op, filled).seconds - self._time(op, decodes).seconds for op in self.ops)
        filling_s: Floats = np.maximum(sum(added, start=np.zeros_like(tokens)), 0.0)
        return launch_s, gaps_s + filling_s

    def _drafting(self, op: Op, counts: Counts) -> OpTime:
        """Return an op of the draft: a pass per draft token over the decodes, the prompts at a large step's rate."""
        decodes = (counts.tokens - counts.prefill_tokens) / (1.0 + self.draft_tokens)
        reads = counts.decode_reads, counts.decode_reads_windowed
        each = self._rates.time(op, Counts(np.minimum(decodes, 1.0), decodes, decodes, *reads))
        prompts = counts._replace(steps=0.0, tokens=counts.prefill_tokens, logits=0.0, decode_reads=0.0)
        once = self._rates.time(replace(op, expert_bytes=0.0), prompts._replace(decode_reads_windowed=0.0))
        both = each.map(lambda drafted, prompted: self.draft_tokens * drafted + prompted, once)
        return both._replace(name=f"draft: {op.name}")

    def seconds(self, counts: Counts) -> Array:
        """Return the seconds of a step, or of each of an array of steps."""
        return sum((each.seconds for each in self.explain(counts)), start=0.0)

    def table(self, max_tokens: int, max_sequences: int) -> StepTable:
        """Return the table for steps of up to so many new tokens and sequences.

        What depends on tokens alone and on sequences alone is tabulated; attention is linear in its counts. Raises
        InfercastError for a table that exceeds the memory.
        """
        refuse_oversized_table(max_tokens, max_sequences)
        tokens = np.arange(max_tokens + 1, dtype=np.float64)
        sequences = np.arange(max_sequences + 1, dtype=np.float64)
        logits = np.arange(max_sequences * (1 + self.draft_tokens) + 1, dtype=np.float64)
        by_sequence = [op for op in self.ops if is_of_logits(op)]
        token_s = self._only([op for op in self.ops if not is_of_logits(op)]).seconds(
            Counts(steps=np.ones_like(tokens), tokens=tokens)
        )
        logit_s = self._only(by_sequence).seconds(Counts(steps=np.ones_like(logits), logits=logits))
        draft_s = self._drafting_s(Counts(tokens=sequences * (1.0 + self.draft_tokens))) + np.zeros_like(sequences)
        slopes = np.broadcast_to(self._only(self.ops).seconds(ONES), len(SLOPES) + 1)
        launch_s, graph_s = self._by_decodes(logits)
        return StepTable(
            np.ascontiguousarray(token_s - self.overheads.step_s, dtype=np.float64),
            np.ascontiguousarray(logit_s, dtype=np.float64),
            slopes[:-1] - slopes[-1] + self.drafting_slopes(),
            draft_s,
            self.loaded_token_s,
            self.least_s,
            lone_s=np.append(self._lone_s(), self._sent_s()),
            lone_parts=self._lone_parts,
            host_s=np.append(self.overheads.each_s, self.launches.sequence_s),
            prompts=self.launches.prompts,
            decode_launch_s=launch_s,
            decode_graph_s=graph_s,
            graph_tokens=self.graphs.tokens,
        )

    def _lone_s(self) -> Floats:
        """Return the seconds per cached token that a lone sequence reads, where these are not those of the slopes.

        0 where they are: only kernels with SplitDecode or WaveDecode leave devices idle for want of sequences.
        """
        rules = self.kernels.rules
        if rules.split_decode is None and rules.wave_decode is None:
            return np.zeros(2)
        reading = self._reading
        alone, together = (
            np.array([sum(float(self.once(op, each)) * op.repeats for op in reading) for each in _reads(sequences)])
            for sequences in (1.0, READ_TOKENS)
        )
        return np.where(alone > (1.0 + 1e-9) * together * (not self._lone_parts), alone / READ_TOKENS, 0.0)

    def _sent_s(self) -> Floats:
        """Return the seconds per decoding sequence in which EmptyBlocks are sent off, for the first two of SLOPES."""
        found, rates = np.zeros(2), self._rates
        if isinstance(rates, LightRates):
            return found
        for op in self._reading:
            if empty := rates.decoding.empty(op):
                is_windowed = op.cache_bytes.decode_reads == 0
                found[int(is_windowed)] += op.repeats * empty.sequence_s(op, self.context_tokens)
        return found

    @property
    def _reading(self) -> list[Op]:
        return [op for op in self.ops if max(op.cache_bytes.decode_reads, op.cache_bytes.decode_reads_windowed) > 0]

    @property
    def _lone_parts(self) -> float:
        """Multiprocessors for each KV head, among which a kernel of one wave shares the cache of a sequence; or 0."""
        rates = self._rates
        if isinstance(rates, LightRates):
            return 0.0
        waves = [op for op in self._reading if rates.decoding.wave(op)]
        share = min((op.shared_by / op.attending_heads for op in waves), default=0.0)
        return share * float(self.kernels.hardware.multiprocessors or 0.0)

    def once(self, op: Op, counts: Counts) -> Array:
        """Return the seconds of one repeat of an op; of sends, the mean of all."""
        return self._time(op, counts).seconds / op.repeats

    def drafting_slopes(self) -> Floats:
        """Return the seconds of drafting per count of SLOPES."""
        units = [Counts(tokens=float(name == "prefill_tokens"))._replace(**{name: 1.0}) for name in SLOPES]
        return np.array([float(self._drafting_s(each)) for each in units])

    def _drafting_s(self, counts: Counts) -> Array:
        return sum((self._drafting(op, counts).seconds for op in self.draft_ops), start=0.0)

    def _only(self, ops: Sequence[Op]) -> "StepModel":
        bare = replace(self, ops=tuple(ops), draft_ops=(), least_s=0.0, launches=NO_LAUNCHES)
        graphs = Graphs(routed_sizes=self.graphs.routed_sizes)
        return replace(bare, graphs=graphs, num_scheduler_steps=1, seconds_alone=True)


def _reads(sequences: float) -> Iterator[Counts]:
    """Yield a step of so many decoding sequences that read READ_TOKENS cached tokens, of each kind of layer."""
    for name in SLOPES[:2]:
        yield Counts(steps=1.0, tokens=sequences)._replace(**{name: READ_TOKENS})


def is_of_logits(op: Op) -> bool:
    """Whether an op's work follows the sequences that need logits, not the new tokens."""
    return bool(op.flops.logits or op.activation_bytes.logits or op.link_bytes.logits)


def refuse_oversized_table(max_tokens: int, max_sequences: int) -> None:
    """Raise InfercastError for a table that exceeds the memory."""
    given = f"a table of steps of up to {max_tokens:,} tokens and {max_sequences:,} sequences"
    remedy = "Lower --max-num-batched-tokens or --max-num-seqs"
    refuse_beyond_memory(given, (max_tokens + 4 * max_sequences) * ROW_BYTES, remedy)

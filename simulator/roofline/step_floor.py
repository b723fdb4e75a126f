"""Lower bounds of the seconds of steps, by blocks of their tokens: cheaper than the step table that they bound."""

from collections import defaultdict, deque
from dataclasses import replace
from functools import cache, partial
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from simulator.arrays import Floats, Ints
from simulator.models.operations import Counts, Op
from simulator.roofline.step_model import ONES, SLOPES, StepModel, is_of_logits, refuse_oversized_table

GROWTH = 1.1  # of the sizes of steps whose least time stands for all of them
MOST_OPS = 8_192  # that are remembered for a device and an engine's kernels
NAMED = ("name", "repeats")  # of an op, which do not change what it costs once
COSTED = attrgetter(*(name for name in Op.__slots__ if name not in NAMED))
_RECENT: defaultdict[str, deque[tuple[object, dict[object, Floats]]]] = defaultdict(partial(deque, maxlen=16))


class Least(NamedTuple):
    """Least seconds of the sizes 0, 1, ... in each of some blocks, and the largest size of it; shapes (blocks,).

    The two largest sizes are blocks of their own.
    """

    seconds: Floats
    last: Floats


class StepFloor(NamedTuple):
    """Lower bounds of a `StepTable`: the least `token_s` and `logit_s` in each block of sizes, all else as it is there.

    Sizes of `tokens` are one less than the tokens of a step, which has one at least.
    """

    tokens: Least
    logits: Least
    slopes: Floats
    least_s: float

    def times(self, factor: float) -> "StepFloor":
        """Return the floor of steps that take `factor` times as long."""
        tokens, logits = (each._replace(seconds=each.seconds * factor) for each in (self.tokens, self.logits))
        return StepFloor(tokens, logits, self.slopes * factor, self.least_s * factor)


@cache
def _starts(count: int) -> Ints:
    """Return the first of `count` sizes in each block: blocks grow by GROWTH, the last two sizes stand alone."""
    growing = np.floor(GROWTH ** np.arange(np.log(count) / np.log(GROWTH))).astype(np.int64)
    sizes = np.unique(np.concatenate([[0], growing, [count - 2, count - 1]]))
    return sizes[(sizes >= 0) & (sizes < count)]


def _last(starts: Ints, count: int) -> Floats:
    return np.append(starts[1:], count) - 1.0


def step_floor(model: StepModel, max_tokens: int, max_sequences: int) -> StepFloor:
    """Return the floor of `model.table(max_tokens, max_sequences)`.

    The least of a sum is no less than the sum of the least, so each op is looked at alone, and remembered for other
    layouts that have it. Raises InfercastError as `StepModel.table` does.
    """
    refuse_oversized_table(max_tokens, max_sequences)
    known, model = _known(model), replace(model, seconds_alone=True)
    of_logits = [op for op in model.ops if is_of_logits(op)]
    of_tokens = [op for op in model.ops if not is_of_logits(op)]
    tokens = np.arange(1.0, max_tokens + 1)
    logits = np.arange(max_sequences * (1 + model.draft_tokens) + 1.0)
    by_tokens = _least(model, known, of_tokens, Counts(steps=np.ones_like(tokens), tokens=tokens))
    by_logits = _least(model, known, of_logits, Counts(steps=np.ones_like(logits), logits=logits))
    slopes = sum((op.repeats * _slopes(model, known, op) for op in model.ops), start=np.zeros(len(SLOPES)))
    host_s = np.asarray(model.overheads.host_s(Counts(steps=1.0, logits=logits)))
    by_logits = by_logits + host_s[_starts(len(logits))]
    slopes = slopes + np.array([float(model.overheads.host_s(each)) for each in _units()])
    return StepFloor(
        Least(by_tokens, _last(_starts(max_tokens), max_tokens)),
        Least(by_logits, _last(_starts(len(logits)), len(logits))),
        slopes + model.drafting_slopes(),
        model.least_s,
    )


def _units() -> list[Counts]:
    return [Counts(**{name: 1.0}) for name in SLOPES]


def _known(model: StepModel) -> dict[object, Floats]:
    """Return what is known of ops on the same device, under the same kernels."""
    rest = model.kernels, model.light, model.context_tokens, model.micro_batch_tokens, model.host_time
    place: object = (model.graphs.routed_sizes, *rest)
    recent = _RECENT[model.kernels.hardware.id]
    for other, known in list(recent):  # a copy: other threads add to it
        if other == place:
            return known
    recent.append((place, {}))
    return recent[-1][1]


def _least(model: StepModel, known: dict[object, Floats], ops: list[Op], counts: Counts) -> Floats:
    """Return the sum over ops of their least seconds in each block of the counts, shape (blocks,)."""
    size = np.size(counts.steps)
    starts = _starts(size)
    firsts = Counts(*(each[starts] if isinstance(each, np.ndarray) else each for each in counts))
    total = np.zeros(len(starts))
    for op in ops:
        key = size, *_key(op)
        if key not in known:
            rises = _rises(model, op)
            seconds = np.broadcast_to(model.once(op, firsts if rises else counts), len(starts) if rises else size)
            _keep(known, key, seconds.copy() if rises else np.minimum.reduceat(seconds, starts))
        total += op.repeats * known[key]
    return total


def _rises(model: StepModel, op: Op) -> bool:
    """Whether more tokens never make an op shorter, so that its least in a block is that of the smallest size.

    FLOPs and bytes rise with tokens, and seconds with both. Not so where experts are padded and wait for the busiest
    rank, where another kernel runs for a few rows, where collectives change their algorithm, and over micro-batches.
    """
    plain = op.experts is None and op.rate in ("gemm", "elementwise") and not op.on_host
    rules = model.kernels.rules
    switches = rules.vector_rows is not None or rules.unpacks_from_rows is not None
    return plain and not switches and not model.micro_batch_tokens


def _slopes(model: StepModel, known: dict[object, Floats], op: Op) -> Floats:
    """Return the seconds of an op per count of SLOPES, shape (5,)."""
    key = _key(op)
    if key not in known:
        seconds = np.broadcast_to(model.once(op, ONES), len(SLOPES) + 1)
        _keep(known, key, seconds[:-1] - seconds[-1])
    return known[key]


def _key(op: Op) -> tuple[object, ...]:
    """Return what tells ops apart whose costs differ; of a send also its stages."""
    return (*COSTED(op), op.repeats if op.rate == "send" else 1)


def _keep(known: dict[object, Floats], key: object, found: Floats) -> None:
    if len(known) >= MOST_OPS:
        known.clear()
    known[key] = found

"""Tables of every operation of a batch, by phase."""

from collections.abc import Iterator

from simulator.cli.numbers import milliseconds, percent
from simulator.cli.output import Column, Row, View
from simulator.deployment.estimate import Estimate, Phase, StepOp
from simulator.questions.identity import identity
from simulator.units import scaled


def op_rows(found: Estimate) -> Iterator[Row]:
    """Yield a row for each operation of each phase, with its FLOPs, bytes and seconds."""
    batch = found.batch
    sizes = {"batch": batch.size, "input_tokens": batch.prompt_tokens, "output_tokens": batch.output_tokens}
    for name, phase in (("request", found.request), ("prefill", found.prefill), ("decode", found.decode)):
        for op in phase.ops:
            yield {**identity(found.deployment), **sizes, "phase": name, **_op_row(phase, op)}


def _op_row(phase: Phase, op: StepOp) -> Row:
    time = op.time._asdict()
    return {
        "op": time.pop("name"),
        "repeats": op.repeats,
        **time,
        "light_s": op.light_s,
        "share": phase.share(op),
        "bound": op.time.bound,
    }


OP_COLUMNS = (
    Column("op", "op", left=True),
    Column("repeats", "runs"),
    Column("flops", "FLOPs", lambda value: scaled(value, "")),
    Column("moved_bytes", "bytes", lambda value: scaled(value, "B")),
    Column("compute_s", "compute ms", milliseconds),
    Column("memory_s", "memory ms", milliseconds),
    Column("link_s", "link ms", milliseconds),
    Column("overhead_s", "overhead ms", milliseconds),
    Column("seconds", "total ms", milliseconds),
    Column("share", "share", percent),
    Column("bound", "bound", left=True),
    Column("light_s", "light ms", milliseconds),
)


def op_views(found: Estimate) -> Iterator[View]:
    """Yield a table of all ops for each phase."""
    for name, phase in (("Per request", found.request), ("Prefill", found.prefill), ("Decode step", found.decode)):
        if phase.ops:
            yield phase_view(found, name, phase)


def phase_view(found: Estimate, name: str, phase: Phase) -> View:
    """Return a table of all ops of a phase, with their sums in the last row."""
    each = ", each device" if found.deployment.layout.devices > 1 else ""
    subject = f"{found.batch} on {found.deployment}, {found.deployment.engine.id}{each}"
    steps = f" in {phase.steps} steps" if phase.steps > 1 else ""
    rows = [*(_op_row(phase, op) for op in phase.ops), _sum_row(phase)]
    return View(f"{name}{steps}: {subject}", OP_COLUMNS, rows)


def _sum_row(phase: Phase) -> Row:
    sums = {name: sum(float(getattr(op.time, name)) for op in phase.ops) for name in phase.ops[0].time._fields[1:]}
    return {"op": "sum", "repeats": None, **sums, "share": 1.0, "bound": None, "light_s": phase.light_s}

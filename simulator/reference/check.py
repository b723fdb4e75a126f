"""Predict steps and a load of the reference engine, then run them, and compare.

Tiers of prediction: "roofline" (measured or data-sheet ceilings, nothing else), "profile" (what `calibrate` writes),
"op tables" (steps composed of measured ops), "calibrated" (op tables fitted to the steps of small loads).
Every prediction is made before the held-out run starts.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from simulator.calibration.calibrate import Bench, engine_preset, hardware_profile, with_peaks_of
from simulator.calibration.comparison import StepErrors, errors_by_kind, latency_quantiles
from simulator.calibration.op_tables import OpTables, fit_step_table, step_table, table_seconds
from simulator.calibration.step_log import StepLog, typical_steps
from simulator.deployment.host_launches import launches_s
from simulator.engines.engine import Engine
from simulator.errors import InfercastError
from simulator.hardware.hardware import Hardware
from simulator.models.layout import Layout
from simulator.models.operations import Counts
from simulator.reference.checkpoint import Checkpoint
from simulator.reference.clock import WallClock
from simulator.reference.cores import Guard
from simulator.reference.device import Device
from simulator.reference.engine import Executor, engine_limits, random_prompts, serve
from simulator.reference.probe import Probe, between, ceilings, ceilings_elsewhere
from simulator.reference.small_loads import LENGTHS, small_loads
from simulator.reference.step_grid import HELD_OUT, Cell, fitting, measure_cells
from simulator.reference.timing import Pulse, Timing, drift, other_process
from simulator.reference.transformer import Build, Transformer
from simulator.roofline.step_model import StepModel, StepTable
from simulator.scheduler.state import SchedulerLimits
from simulator.simulation.engine_loop import simulate
from simulator.workloads.arrivals import ClosedLoop, OpenLoop
from simulator.workloads.workload import Workload

Progress = Callable[[str], None]
TIERS = ("roofline", "profile", "op tables", "calibrated")
MAX_TOKENS = 2048  # of a cell
SHORT_PROMPT = Cell(new=16)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to check: `load`, the rate as a share of what the engine can carry; how many requests; scheduler limits.

    `quick`: half of the small loads and of the cells, in fewer rounds: about a minute. Raises InfercastError for a load
    outside of 0 to 1.
    """

    load: float = 0.6
    requests: int = 100
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 256
    seed: int = 0
    quick: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.load < 1:
            raise InfercastError(f"load {self.load}", "above 1 every queue grows", "Give a share, say 0.6")


@dataclass(frozen=True, slots=True)
class CheckedCell:
    """One held-out cell: seconds by each tier, measured here, and again in the second process."""

    cell: Cell
    predicted_s: dict[str, float]
    measured: Timing
    again: Timing | None


@dataclass(frozen=True, slots=True)
class CheckedLoad:
    """A run with Poisson arrivals: predicted latencies by tier and measured ones in seconds, and the log."""

    rate_per_s: float
    predicted: dict[str, dict[str, float]]
    measured: dict[str, float]
    others_cores: float
    step_errors: dict[str, dict[str, StepErrors]]  # by kind of step and tier
    log: StepLog


@dataclass(frozen=True, slots=True)
class Check:
    """All predictions and measurements of a check; seconds, bytes, FLOP/s."""

    bench: Bench
    tables: OpTables
    calibration: list[tuple[Counts, float]]
    cells: list[CheckedCell]
    load: CheckedLoad | None
    pulses: list[Pulse]  # before calibrating, before predicting, before the load, at the end
    about: dict[str, str] = field(default_factory=dict)

    @property
    def drift(self) -> float:
        """How much the machine's own speed changed meanwhile, as slowest / fastest - 1: errors below it say nothing."""
        return drift(self.pulses)

    def as_dict(self) -> dict[str, Any]:
        """Return the check as plain values for JSON."""
        load = None
        if self.load is not None:
            load = {
                "rate_per_s": self.load.rate_per_s,
                "predicted": self.load.predicted,
                "measured": self.load.measured,
                "others_cores": self.load.others_cores,
                "step_errors": {
                    kind: {tier: asdict(each) for tier, each in tiers.items()}
                    for kind, tiers in self.load.step_errors.items()
                },
            }
        return {
            "about": self.about,
            "bench": asdict(self.bench),
            "tables": asdict(self.tables),
            "calibration": [{**counts._asdict(), "measured_s": seconds} for counts, seconds in self.calibration],
            "cells": [_row(each) for each in self.cells],
            "load": load,
            "pulses": [each._asdict() for each in self.pulses],
        }


def bench_of(name: str, device: Device, progress: Progress = lambda _: None) -> Bench:
    """Measure the ceilings of a device, here and in a second process; `progress` is told what is measured."""
    progress("ceilings")
    guard, found = Guard(), ceilings(device)
    progress("ceilings in a second process")
    other = ceilings_elsewhere(device)
    memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if device.kind == "cuda":
        memory = float(torch.cuda.mem_get_info()[1])
    return Bench(
        name=name,
        device=device.name,
        kind=device.kind,
        dtype=device.dtype_name,
        memory_bytes=memory,
        read_bytes_per_s=found.read_bytes_per_s,
        flops_per_s=found.flops_per_s,
        spread=max(found.spread, between(found, other)),
        contended=float(guard.others_cores > 0.1),
        software=f"torch {torch.__version__}, {torch.get_num_threads()} threads",
    )


class Checker:
    """Calibrates one engine on one device, predicts its steps and a load, and runs them.

    `progress` is told what is done now.
    """

    def __init__(self, checkpoint: Checkpoint, build: Build, plan: Plan, progress: Progress) -> None:
        self.model, self.build, self.plan, self._progress = checkpoint.model, build, plan, progress
        progress("loading the weights")
        self.executor = Executor(Transformer(checkpoint, build))
        progress("warming up")
        self.executor.warm_up(max(plan.max_num_seqs, *(cell.decodes for cell in HELD_OUT)))
        self._span = self.model.span

    def measure_held_out(self) -> list[Timing]:
        """Return the timing of the held-out cells."""
        self._progress(f"{len(self._held_out)} held-out steps")
        return measure_cells(self.executor, self._held_out, 3 if self.plan.quick else 7)

    @property
    def _held_out(self) -> list[Cell]:
        return fitting(HELD_OUT[:: 2 if self.plan.quick else 1], self.executor)

    def calibrate(self, name: str, like: Hardware | None = None) -> tuple[Bench, OpTables]:
        """Measure ceilings and op tables for a profile `name`; peaks of `like`, where given, stand for the ceilings."""
        bench = with_peaks_of(bench_of(name, self.build.device, self._progress), like)
        probe = Probe(self.model, self.build, self._progress)
        tables = replace(probe.tables(), prompt_least_s=self._prompt_least_s())
        shares = [each.contended for each in probe.timings]
        return replace(bench, contended=sum(shares) / len(shares)), tables

    def _prompt_least_s(self) -> float:
        """Return the seconds of a step with one short prompt: on CUDA the host launches its kernels one by one."""
        if self.build.device.kind != "cuda":
            return 0.0
        self._progress("a short prompt")
        return measure_cells(self.executor, [SHORT_PROMPT], rounds=7)[0].seconds

    def check(self, name: str, like: Hardware | None = None, again: Sequence[Timing] = ()) -> Check:
        """Calibrate, predict, and only then run the held-out cells and the load.

        `again` are timings of the same held-out cells in another process.
        """
        pulses = [Pulse.take(self.build.device)]
        steps = self._small_load_steps()
        bench, tables = self.calibrate(name, like)
        steps += self._small_load_steps()  # again, a minute later: shapes were new, and the machine's speed moves
        pulses.append(Pulse.take(self.build.device))
        tiers = self._tiers(bench, tables, steps, like)
        held_out = self._held_out
        predicted = [self._predicted(tiers, cell) for cell in held_out]
        load = self._predicted_load(tiers) if self.plan.requests else None
        measured = self.measure_held_out()
        pulses.append(Pulse.take(self.build.device))
        twins: Sequence[Timing | None] = again or [None] * len(measured)
        cells = [CheckedCell(*each) for each in zip(held_out, predicted, measured, twins, strict=True)]
        checked = self._run_load(*load, tiers) if load else None
        pulses.append(Pulse.take(self.build.device))
        return Check(
            bench=bench,
            tables=tables,
            calibration=steps,
            cells=cells,
            load=checked,
            pulses=pulses,
            about={"model": self.model.name, "device": bench.device, "dtype": bench.dtype, "software": bench.software},
        )

    def _small_load_steps(self) -> list[tuple[Counts, float]]:
        """Serve the small loads; return counts and seconds of their typical steps."""
        runs = []
        for requests in small_loads(self._max_tokens)[:: 2 if self.plan.quick else 1]:
            self._progress(f"small load: {len(requests)} prompts of {requests.max_prompt_tokens} tokens")
            prompts = random_prompts(requests, self.model.vocab, self.plan.seed)
            runs.append(serve(self.executor, self.limits, requests, prompts, WallClock()).steps)
        return typical_steps(runs, self._span)

    @property
    def _max_tokens(self) -> int:
        return min(self.limits.num_blocks * self.limits.block_size // 2, self.model.max_context_tokens)

    def _tiers(
        self, bench: Bench, tables: OpTables, steps: Sequence[tuple[Counts, float]], like: Hardware | None
    ) -> dict[str, StepTable]:
        sizes = MAX_TOKENS, max(64, self.plan.max_num_seqs)
        hardware = Hardware.from_mapping(hardware_profile(bench, tables, self.model, like), bench.name)
        engine = Engine.from_mapping(engine_preset(bench, tables, self.model), "reference")
        dtype = self.build.device.dtype_name
        ops = self.model.ops(Layout(weight_dtype=dtype, cache_dtype=dtype, model_dtype=dtype))
        kernels = engine.kernels_on(hardware)
        launches = launches_s(kernels, self.model, ops)
        profile = StepModel(ops, kernels, engine.overheads, launches=launches)
        composed = step_table(tables, self.model, *sizes)
        return {
            "roofline": StepModel(ops, kernels, light=True).table(*sizes),
            "profile": profile.table(*sizes),
            "op tables": composed,
            "calibrated": fit_step_table(composed, steps),
        }

    def _predicted(self, tiers: dict[str, StepTable], cell: Cell) -> dict[str, float]:
        return {name: table_seconds(table, cell.counts(self._span)) for name, table in tiers.items()}

    @property
    def limits(self) -> SchedulerLimits:
        """Scheduler limits of the engine."""
        return engine_limits(self.executor.transformer, self.plan.max_num_seqs, self.plan.max_num_batched_tokens)

    def _predicted_load(self, tiers: dict[str, StepTable]) -> tuple[Workload, dict[str, dict[str, float]]]:
        """Return a load, its rate from what the engine carries by the best tier, and its latencies by tier."""
        self._progress("predicting the load")
        full = Workload(ClosedLoop(2 * self.plan.max_num_seqs), LENGTHS, 300, self.plan.seed).requests()
        saturated = simulate(self.limits, tiers[TIERS[-1]], full)
        rate_per_s = self.plan.load * len(full) / saturated.end_s
        workload = Workload(OpenLoop(rate_per_s), LENGTHS, self.plan.requests, self.plan.seed)
        requests = workload.requests()
        runs = {name: latency_quantiles(simulate(self.limits, table, requests)) for name, table in tiers.items()}
        return workload, runs

    def _run_load(
        self, workload: Workload, predicted: dict[str, dict[str, float]], tiers: dict[str, StepTable]
    ) -> CheckedLoad:
        requests, guard = workload.requests(), Guard()
        prompts = random_prompts(requests, self.model.vocab, self.plan.seed)
        self._progress(f"{len(requests)} requests in real time, about {requests.arrival_s[-1]:.0f} s")
        served = serve(self.executor, self.limits, requests, prompts, WallClock())
        log = served.log({"engine": "reference", "model": self.model.name, "device": self.build.device.name})
        rate_per_s = float(getattr(workload.arrivals, "rate_per_s", float("nan")))
        errors = errors_by_kind(tiers, served.steps, self._span)
        return CheckedLoad(rate_per_s, predicted, latency_quantiles(served.run), guard.others_cores, errors, log)


def second_process(arguments: Sequence[str]) -> list[Timing]:
    """Time the held-out cells in a fresh process, on as many threads: the noise floor is what the two differ by."""
    words = ["check", *arguments, "--threads", str(torch.get_num_threads()), "--only-cells"]
    remedy = "Run it again, or with --once"
    return [Timing(*row) for row in other_process("the second process", "simulator.cli", words, remedy)]


def _row(checked: CheckedCell) -> dict[str, Any]:
    again = checked.again
    return {
        **checked.cell._asdict(),
        "kind": checked.cell.kind,
        "predicted_s": checked.predicted_s,
        "measured_s": checked.measured.seconds,
        "spread_s": checked.measured.spread_s,
        "others_cores": checked.measured.others_cores,
        "again_s": again.seconds if again else None,
        "again_others_cores": again.others_cores if again else None,
    }

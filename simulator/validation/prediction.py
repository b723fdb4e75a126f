"""Predict what a setup was measured at: one batch by the roofline in closed form, a load by simulation.

Every metric of a setup comes from one `Outcome`, in SI; `value` turns it into the metric's own unit and definition.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np

from simulator.deployment.batches import Batch, decode_counts, prefill_counts
from simulator.deployment.deployment import Deployment, Settings
from simulator.deployment.memory import memory_plan
from simulator.deployment.pipeline_overlap import kernels_per_layer, overlapped_s
from simulator.engines.kernel_rules import NO_TIME
from simulator.errors import InfercastError, NotModelledError
from simulator.reports.batch_means import QUANTILES
from simulator.reports.intervals import PredictionRange
from simulator.reports.report import Report, summarize
from simulator.roofline.step_model import StepModel, StepTable
from simulator.simulation.replica import simulate_replica
from simulator.validation.loads import workload_of
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.setups import Placed, place
from simulator.validation.sources import Recipe
from simulator.validation.validity import edge
from simulator.workloads.workload import Workload

POINTS = 257  # of the context at which decode steps are evaluated, at most
ENOUGH_REQUESTS, MOST_DRAWS = 1_000, 5  # of loads of fewer requests, several draws
DEFAULT_LENGTHS = (8, 128)  # guess: single streams whose source states no lengths start from a short question


@dataclass(frozen=True)
class Outcome:
    """What a setup comes to, per device group that serves it; copies of it share the load. Seconds and tokens/s."""

    placed: Placed
    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    ttft_s: dict[str, float]
    tpot_s: dict[str, float]
    itl_s: dict[str, float]
    gaps_s: dict[str, float]  # every gap of every request, pooled
    e2el_s: dict[str, float]
    prompt_tokens_per_s: float = float("nan")
    decode_tokens_per_s: float = float("nan")

    def value(self, metric: str, stat: str) -> float:
        """Return a metric in its own unit, by the definition of the measurement files."""
        times = {"ttft_ms": self.ttft_s, "prefill_ms": self.ttft_s, "tpot_ms": self.tpot_s}
        times["itl_ms"] = self.gaps_s if "pooled" in stat else self.itl_s
        if metric in times or metric == "e2e_latency_ms":
            of = times.get(metric, self.e2el_s)
            return 1e3 * of[_statistic(stat)]
        copies = self.placed.copies
        rates = {
            "req_s": self.requests_per_s * copies,
            "throughput_out_tok_s": self.output_tokens_per_s * copies,
            "throughput_total_tok_s": self.total_tokens_per_s * copies,
            "throughput_in_tok_s": self.prompt_tokens_per_s * copies,
            "pp_tok_s": self.prompt_tokens_per_s,
            "tg_tok_s": self.decode_tokens_per_s,
            "decode_tok_s_per_user": 1 / (self.tpot_s["mean"] or float("inf")),
        }
        return rates[metric]


def _statistic(stat: str) -> str:
    for name in ("p99", "p95", "p90"):
        if name in stat:
            return name
    return "median" if "p50" in stat or stat == "median" else "mean"  # "median of 5 runs": of five means


def outcome(placed: Placed, *, light: bool = False) -> Outcome:
    """Predict a placed setup; `light` at the speed of light. InfercastError where it cannot be predicted."""
    setup = placed.setup
    if setup.regime is None:
        load = f"load {setup.load!r}" if setup.load else "the load"
        because = "it is none that is predicted" if setup.load else "the source does not say how requests came"
        raise NotModelledError(load, because, "State batch or concurrency")
    if setup.regime in ("fixed_batch", "single"):
        return _one_batch(placed, light=light)
    return _under_load(placed, light=light)


def _one_batch(placed: Placed, *, light: bool) -> Outcome:
    """Prompts in chunks of the engine's budget, then decode along the growing context."""
    setup, recipe, deployment = placed.setup, placed.recipe, placed.deployment
    size = max(1, round(max(1, setup.batch) / placed.copies))
    depth = int(setup.noted(r"(?:depth |@ d)(\d+)") or 0) if setup.output_tokens == 0 else 0
    prompt, output = round(setup.input_tokens), round(recipe.output_tokens)
    if not prompt and not output:
        prompt, output = DEFAULT_LENGTHS
    if not setup.input_tokens and setup.notes and "prompt" in setup.notes and output:
        prompt = DEFAULT_LENGTHS[0]
    queues = deployment.engine.policy in ("continuous", "prompts-first") and not deployment.engine.is_reserved
    if queues and output > 1 and not light and size * (depth + prompt + output) > _cache_tokens(deployment):
        queued = replace(setup, concurrency=size * placed.copies, output_tokens=float(output))
        return _under_load(placed._replace(recipe=replace(recipe, setup=queued)), light=light)
    model = deployment.step_model(light=light)
    together = 1 if "ttft of one user" in setup.notes else size
    batch = Batch(size, max(1, prompt), max(1, output))
    ttft_s = _prefill_s(deployment, model, replace(batch, size=together), depth) if prompt else 0.0
    decodes = output - 1 if prompt else output  # the prompt's own step makes the first token
    attended = np.linspace(prompt + 1.0, prompt + max(1, decodes), max(1, min(decodes, POINTS)))
    steps_s = np.broadcast_to(model.seconds(decode_counts(deployment, batch, attended, light=light)), attended.shape)
    step_s = {"mean": float(steps_s.mean())}  # requests are alike, so statistics are over steps
    step_s |= {name: float(np.quantile(steps_s, share)) for name, share in QUANTILES.items()}
    request_s = 0.0 if light else float(deployment.engine.overheads.answer_s(prompt))
    first_s = 0.0 if light else recipe.first_call_s
    e2el_s = first_s + request_s + ttft_s + step_s["mean"] * decodes
    return Outcome(
        placed=placed,
        requests_per_s=size / e2el_s,
        output_tokens_per_s=size * output / e2el_s if output else float("nan"),
        total_tokens_per_s=size * (prompt + output) / e2el_s,
        ttft_s=_same(request_s + ttft_s),
        tpot_s=step_s,
        itl_s=step_s,
        gaps_s=step_s,
        e2el_s=_same(e2el_s),
        prompt_tokens_per_s=size * prompt / ttft_s if prompt else float("nan"),
        decode_tokens_per_s=size / step_s["mean"] if output else float("nan"),
    )


def _same(seconds: float) -> dict[str, float]:
    return dict.fromkeys(("mean", *QUANTILES), seconds)


def _cache_tokens(deployment: Deployment) -> int:
    return memory_plan(deployment).cache_tokens


def _prefill_s(deployment: Deployment, model: StepModel, batch: Batch, past: int) -> float:
    """Sum the steps that compute the prompts; where layers are split, their parts overlap on the devices."""
    stages = deployment.layout.pp
    part = deployment.engine.micro_batch_tokens if stages > 1 else 0
    counts = prefill_counts(deployment, batch, past=past, budget=part)
    seconds = np.broadcast_to(model.seconds(counts), np.shape(counts.steps))
    if not part:
        return float(seconds.sum())
    if model.light:
        return float(seconds.sum()) / stages
    return overlapped_s(seconds.tolist(), len(deployment.model.layer_names), stages, kernels_per_layer(deployment))


def _under_load(placed: Placed, *, light: bool) -> Outcome:
    recipe, deployment = placed.recipe, _that_holds(placed)
    table = _table(deployment, light)
    if light:
        deployment = _at_no_time(deployment, "request_s", "prompt_token_s", "stream_s")
    elif not recipe.streams:
        deployment = _at_no_time(deployment, "stream_s")
    placed, overheads = placed._replace(deployment=deployment), deployment.engine.overheads

    def under(workload: Workload) -> Report:
        run = simulate_replica(deployment, table, workload.requests())
        return summarize(run, steady=False, request_s=overheads.answer_s(run.requests.prompt_tokens))

    def seen(report: Report, served: float = 1.0) -> Outcome:
        if steps := 0 if light else recipe.gathered_steps:
            report = replace(report, request_s=report.request_s + steps * report.metrics["tpot"].values["mean"])
        duration_s = _duration_s(recipe, report) * max(1.0, served)  # no more is served than the source sent
        return _reported(report, placed, duration_s)

    workload, limits_s = workload_of(placed), recipe.latency_limits_s
    if light:
        return seen(under(workload))
    if limits_s:
        return seen(*edge(workload, limits_s, under, partial(recipe.arrivals, copies=placed.copies)))
    draws = max(1, min(MOST_DRAWS, round(ENOUGH_REQUESTS / workload.request_count)))
    return _mean([seen(under(replace(workload, seed=workload.seed + draw))) for draw in range(draws)])


def _mean(draws: Sequence[Outcome]) -> Outcome:
    """Return the mean of what came of one load, drawn anew each time: of few requests, one draw is an accident."""

    def of(name: str) -> Any:
        found = [getattr(each, name) for each in draws]
        if isinstance(found[0], dict):
            return {stat: float(np.mean([each[stat] for each in found])) for stat in found[0]}
        return float(np.mean(found))

    return replace(draws[0], **{each.name: of(each.name) for each in fields(Outcome) if each.name != "placed"})


def _at_no_time(deployment: Deployment, *names: str) -> Deployment:
    """Return a deployment some of whose overheads are none."""
    overheads = deployment.engine.overheads.model_copy(update=dict.fromkeys(names, NO_TIME))
    return replace(deployment, engine=deployment.engine.model_copy(update={"overheads": overheads}))


def _duration_s(recipe: Recipe, report: Report) -> float:
    """Return the seconds that throughput is over: without the drain where a run of unstated length goes on for long."""
    arrival_s, setup = report.run.requests.arrival_s, recipe.setup
    goes_on = setup.regime == "open_loop" and setup.rate_per_s and not recipe.request_count and len(arrival_s) > 1
    if not goes_on or report.overloaded:
        return report.duration_s
    return float(arrival_s[-1]) * len(arrival_s) / (len(arrival_s) - 1)


_TABLES: deque[tuple[Deployment, bool, StepTable]] = deque(maxlen=64)  # neighbours in a file often share one


def _table(deployment: Deployment, light: bool) -> StepTable:
    """Return the step table, that of an equal deployment where it is still known."""
    for known, was_light, table in reversed(_TABLES):
        if light == was_light and known == deployment:
            return table
    _TABLES.append((deployment, light, deployment.step_table(light=light)))
    return _TABLES[-1][-1]


def _that_holds(placed: Placed) -> Deployment:
    """Let an engine take at least as many sequences as the load keeps in flight: whoever measures sets it so."""
    deployment, share = placed.deployment, -(-placed.setup.concurrency // placed.copies)
    if share <= deployment.max_num_seqs:
        return deployment
    settings = deployment.settings
    tokens = max(deployment.max_num_batched_tokens, share)
    wider = Settings(share, tokens, settings.max_model_len, settings.memory_fraction, settings.num_blocks)
    return replace(deployment, settings=wider)


def _reported(report: Report, placed: Placed, duration_s: float) -> Outcome:
    stats = {name: stat.values for name, stat in report.metrics.items()}
    return Outcome(
        placed=placed,
        requests_per_s=report.completed / duration_s,
        output_tokens_per_s=report.output_tokens / duration_s,
        total_tokens_per_s=(report.input_tokens + report.output_tokens) / duration_s,
        ttft_s=stats["ttft"],
        tpot_s=stats["tpot"],
        itl_s=stats["itl" if placed.recipe.pools_gaps else "tpot"],
        gaps_s=stats["itl"],
        e2el_s=stats["e2el"],
        prompt_tokens_per_s=report.input_tokens / duration_s,
        decode_tokens_per_s=report.output_tokens / duration_s,
    )


class Prediction(NamedTuple):
    """A measurement with what is predicted for it, or the reason why nothing is."""

    measurement: Measurement
    value: float | None
    light: float | None
    reason: str = ""
    low: float | None = None
    high: float | None = None
    basis: str = ""  # what the interval rests on

    @property
    def error(self) -> float:
        """Relative error, (predicted - measured) / measured."""
        assert self.value is not None  # noqa: S101  callers have filtered
        return self.value / self.measurement.value - 1


def predict(rows: list[Measurement], *, light: bool = False, level: float | None = None) -> list[Prediction]:
    """Predict each row; rows of one setup share its outcome. `level` asks for intervals, 0.8 for those of 80 %."""
    known: dict[Setup, Outcome | InfercastError] = {}
    ideal: dict[Setup, Outcome | InfercastError] = {}
    brackets: dict[Setup, PredictionRange[Outcome]] = {}
    found = []
    for row in rows:
        value, reason = _value(row, known, light=False)
        best = _value(row, ideal, light=True)[0] if light and value is not None else None
        made, of = Prediction(row, value, best, reason), known[row.setup]
        if level is not None and value is not None and isinstance(of, Outcome):
            bracket = brackets.setdefault(row.setup, range_of(of, level))
            low, high = bracket.ends(row.metric, methodcaller("value", row.metric, row.stat))
            made = made._replace(low=low, high=high, basis=bracket.basis)
        found.append(made)
    return found


def range_of(found: Outcome, level: float) -> PredictionRange[Outcome]:
    """Return an outcome with those of other steps, which a stated rate may turn into longer queues."""
    placed, setup = found.placed, found.placed.setup
    regime = "limited" if placed.recipe.latency_limits_s else setup.regime or ""
    again = partial(with_steps, found) if setup.rate_per_s else None
    return PredictionRange(placed.deployment, regime, level, found, again)


def with_steps(found: Outcome, factor: float) -> Outcome:
    """Return an outcome where all steps take `factor` times as long."""
    placed = found.placed
    return outcome(placed._replace(deployment=replace(placed.deployment, step_factor=factor)))


def _value(row: Measurement, known: dict[Setup, Outcome | InfercastError], *, light: bool) -> tuple[float | None, str]:
    if row.setup not in known:
        try:
            known[row.setup] = outcome(place(row.setup), light=light)
        except InfercastError as error:
            known[row.setup] = error
    outcome_or_error = known[row.setup]
    if isinstance(outcome_or_error, InfercastError):
        return None, str(outcome_or_error)
    try:
        value = outcome_or_error.value(row.metric, row.stat)
    except InfercastError as error:
        return None, str(error)
    return (value, "") if np.isfinite(value) else (None, f"{row.metric} is not defined for this load")

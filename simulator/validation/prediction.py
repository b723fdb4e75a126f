"""Predictions of published rows: each setup is asked as a user would ask, and its metrics are read off the answer."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError, NotModelledError, WorkloadError
from simulator.frames import Row
from simulator.questions.batch_question import BatchQuestion
from simulator.questions.batch_rows import batch_row
from simulator.questions.load_rows import OF_ASKED, THROUGHPUTS, load_row
from simulator.reports.report import Report
from simulator.validation.benchfiles.rows import POOLED
from simulator.validation.loads import Question, about_metric, question_of
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.setups import Placed, place

BATCH_KEYS = {  # metric -> key of a batch's row, in SI, and the factor to the metric's unit
    **{"ttft_ms": ("ttft_s", 1e3), "prefill_ms": ("ttft_s", 1e3), "tpot_ms": ("tpot_s", 1e3)},
    **{"itl_ms": ("tpot_s", 1e3), "e2e_latency_ms": ("e2el_s", 1e3), "req_s": ("requests_per_s", 1.0)},
    **{"throughput_out_tok_s": ("output_tokens_per_s", 1.0), "throughput_total_tok_s": ("total_tokens_per_s", 1.0)},
    **{"throughput_in_tok_s": ("prompt_tokens_per_s", 1.0), "pp_tok_s": ("prompt_tokens_per_s", 1.0)},
    **{"tg_tok_s": ("decode_tokens_per_s", 1.0), "decode_tok_s_per_user": ("tokens_per_s_user", 1.0)},
}
OF_PROMPTS, OF_OUTPUTS = ("pp_tok_s", "throughput_in_tok_s"), ("tg_tok_s", "throughput_out_tok_s")
STATISTICS = {"mean": "mean", "median": "median", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}
MEANS = re.compile(  # what counts as a mean: several runs, a long one, and where the source does not say which
    r"avg|average|(?:mean|median) of \d+(?: runs)?|mean over [\w ]+|central \(mean or median, not stated\)"
)
LOAD_KEYS = {  # metric -> key of a load's row; times with a statistic before: mean_ttft_ms
    **{"ttft_ms": "ttft_ms", "prefill_ms": "ttft_ms", "tpot_ms": "tpot_ms", "e2e_latency_ms": "e2el_ms"},
    **{"req_s": "request_throughput", "throughput_out_tok_s": "output_throughput"},
    **{"throughput_total_tok_s": "total_token_throughput", "throughput_in_tok_s": "input_throughput"},
    **{"pp_tok_s": "input_throughput", "tg_tok_s": "output_throughput", "decode_tok_s_per_user": "tokens_per_s_user"},
}


@dataclass(frozen=True)
class Asked:
    """A measured setup as the question that a user would type; `deployment` may be replaced by another one."""

    placed: Placed
    question: Question
    deployment: Deployment

    def on(self, deployment: Deployment) -> "Asked":
        """Return the same question about another deployment, say with other kernels."""
        return replace(self, deployment=deployment)

    def question_about(self, metric: str) -> Question:
        """Return the question whose answer has a metric: a batch's first token may be asked of another batch size."""
        if isinstance(self.question, BatchQuestion):
            return about_metric(self.question, self.placed, metric)
        return self.question

    def key_of(self, metric: str, stat: str) -> tuple[str, float]:
        """Return a metric's key in the answer's row, and the factor from the row's unit to the metric's.

        Raises NotModelledError for a statistic that is not predicted, and where a batch has no such figure: a speed of
        prompts without prompts, or of outputs without any.
        """
        statistic = _statistic(stat)
        if isinstance(self.question, BatchQuestion):
            setup = self.placed.setup
            if setup.starts_empty and metric in OF_PROMPTS:
                raise NotModelledError(metric, "it is of prompts, and the run has none", "Leave the row out")
            if setup.input_tokens and not setup.output_tokens and metric in OF_OUTPUTS:
                raise NotModelledError(metric, "it is of outputs, and the run has none", "Leave the row out")
            key, scale = BATCH_KEYS[metric]
            return ("median_tpot_s" if key == "tpot_s" and statistic == "median" else key), scale
        if metric == "itl_ms":
            pooled = "pooled" in stat or self.placed.recipe.pools_gaps
            return f"{statistic}_{'itl' if pooled else 'tpot'}_ms", 1.0
        key = LOAD_KEYS[metric]
        if self.question.run.within_slo and key in THROUGHPUTS:
            return f"{key}{OF_ASKED}", 1.0
        return (f"{statistic}_{key}" if key.endswith("_ms") else key), 1.0

    def answer(self, level: float | None = None) -> "Answered":
        """Return the answer; `level`: share of measurements that its intervals hold, None for no intervals.

        Raises InfercastError where there is none.
        """
        if isinstance(self.question, BatchQuestion):
            return Answered(self, _batch(self.question, self.deployment, level))
        users, run = self.question.users, self.question.run.serving(self.question.users)
        (_, workload), *_ = users.workloads(run.shares)
        scenario = run.scenario(self.deployment, workload, self.question.accepted.value())
        report = run.report(scenario)
        _refuse_rejected(report)
        return Answered(self, load_row(scenario, report, level, with_details=False))


def _refuse_rejected(report: Report) -> None:
    """Raise WorkloadError where an engine rejects requests that a measured one answered: the row is not predicted."""
    for each in (report, *report.draws):
        if len(rejected := each.run.rejected):
            given = f"{len(rejected):,} of {each.sent:,} requests rejected"
            raise WorkloadError(given, rejected.in_words(), "Leave the row out, or state what was set")


def ask(setup: Setup) -> Asked:
    """Return the question that a user would type about a setup. Raises InfercastError if it is not modelled."""
    placed = place(setup)
    return Asked(placed, question_of(placed), placed.deployment)


def _batch(question: BatchQuestion, deployment: Deployment, level: float | None) -> Row:
    (batch,) = question.sizes.batches()
    found = question.sizes.estimate(deployment, batch)
    return batch_row(found, level, question.sizes.replicas, with_details=False)


@dataclass(frozen=True)
class Answered:
    """The answer to a question: the row that the command prints as JSON."""

    asked: Asked
    row: Row

    def value(self, metric: str, stat: str = "mean") -> float:
        """Return a metric in its own unit. Raises NotModelledError where the answer has no value."""
        key, scale = self.asked.key_of(metric, stat)
        return scale * self._known(self._rows(metric), key, metric)

    def interval(self, metric: str, stat: str = "mean") -> tuple[float | None, float | None]:
        """Return both ends of a metric's interval in its own unit; None for an end that it does not have."""
        key, scale = self.asked.key_of(metric, stat)
        row = self._rows(metric)
        low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
        return None if low is None else scale * low, None if high is None else scale * high

    @property
    def basis(self) -> str:
        """What the intervals rest on (docs/accuracy.md): measured, fitted, family or guess."""
        return str(self.row.get("interval_basis", ""))

    @staticmethod
    def _known(row: Row, key: str, metric: str) -> float:
        value = row.get(key)
        if value is None:
            because = "it has no value for this load: its queue grows without end, or there is one token"
            raise NotModelledError(metric, because, "Leave the row out")
        return float(value)

    def _rows(self, metric: str) -> Row:
        """Return the row that has a metric, asking another question where the source measured it that way."""
        question = self.asked.question_about(metric)
        if question == self.asked.question or not isinstance(question, BatchQuestion):
            return self.row
        return _batch(question, self.asked.deployment, self.row.get("interval"))


def _statistic(stat: str) -> str:
    """Return the statistic of a row's `stat` under our name; a median of several runs' means is a mean.

    Raises NotModelledError for any other: a maximum, say, or the 75th percentile.

    >>> _statistic("p99"), _statistic("p50 of pooled gaps"), _statistic("median of 5 runs")
    ('p99', 'median', 'mean')
    """
    name = stat.removesuffix(POOLED)
    if name in STATISTICS:
        return STATISTICS[name]
    if MEANS.fullmatch(name):
        return "mean"
    because = f"only {', '.join(STATISTICS)} are predicted"
    raise NotModelledError(f"statistic {stat!r}", because, "State one of these, or leave the row out")


class Prediction(NamedTuple):
    """A measurement with its predicted value, its value at the speed of light and its interval, in the metric's unit.

    Without a prediction `value` is None and `reason` says why.
    """

    measurement: Measurement
    value: float | None
    light: float | None
    reason: str = ""
    low: float | None = None
    high: float | None = None
    basis: str = ""  # what the interval rests on

    @property
    def error(self) -> float:
        """Relative error, (predicted - measured) / measured; only of a row with a prediction."""
        assert self.value is not None  # noqa: S101  callers have filtered
        return self.value / self.measurement.value - 1


AnswerOrError = Answered | InfercastError


def predict(rows: Sequence[Measurement], *, light: bool = False, level: float | None = None) -> list[Prediction]:
    """Return the prediction of each row; rows of one setup share its answer.

    `light`: at the speed of light, too. `level`: share of measurements that intervals hold, 0.8 for 80 %; None for
    none.
    """
    known: dict[Setup, tuple[AnswerOrError, AnswerOrError | None]] = {}
    for row in rows:
        if row.setup not in known:
            known[row.setup] = answers_of(row.setup, light=light, level=level)
    return [_prediction(row, *known[row.setup]) for row in rows]


def answers_of(
    setup: Setup, *, light: bool = False, level: float | None = None
) -> tuple[AnswerOrError, AnswerOrError | None]:
    """Return the answer to a setup, or the error why there is none; and the same at the speed of light if `light`."""
    try:
        asked = ask(setup)
        found = asked.answer(level)
    except InfercastError as error:
        return error, None
    if not light:
        return found, None
    try:
        return found, asked.on(asked.deployment.at_light).answer()
    except InfercastError as error:
        return found, error


def _prediction(row: Measurement, found: AnswerOrError, ideal: AnswerOrError | None) -> Prediction:
    if isinstance(found, InfercastError):
        return Prediction(row, None, None, str(found))
    try:
        value = found.value(row.metric, row.stat)
    except InfercastError as error:
        return Prediction(row, None, None, str(error))
    made = Prediction(row, value, _light(row, ideal))
    if "interval" not in found.row:
        return made
    low, high = found.interval(row.metric, row.stat)
    return made._replace(low=low, high=high, basis=found.basis)


def _light(row: Measurement, ideal: AnswerOrError | None) -> float | None:
    if not isinstance(ideal, Answered):
        return None
    try:
        return ideal.value(row.metric, row.stat)
    except InfercastError:
        return None

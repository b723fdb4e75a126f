"""What `infercast tune` prints: what the best settings serve instead of the default, and how to start them."""

from collections.abc import Sequence

from simulator.cli.answers.compare_screen import launch_notes, launch_words
from simulator.cli.answers.deployment_columns import evidence
from simulator.cli.answers.technique_notes import technique_notes
from simulator.cli.numbers import number
from simulator.cli.output import Column, Result, Row, View
from simulator.cli.text_layout import Command
from simulator.cost.scenario import Scenario
from simulator.cost.tuning import HighestRate, Trial, TunedSettings
from simulator.deployment.deployment import Deployment
from simulator.questions.cost_question import capacity_ends
from simulator.questions.deployment_question import SEQS, SHARE, TOKENS
from simulator.questions.identity import identity
from simulator.questions.load_rows import load_row
from simulator.questions.tune_question import CACHE, CHUNKS, DRAFTS, LONG, TP, TuneQuestion
from simulator.units import counted

FIRST = "Of a list that was given, the first value stands for the default."
QUALITY = "What an fp8 KV cache does to answers is not modelled: test it, or give --cache-dtype to leave it out."
RATES = (
    Column("which", "", left=True),
    Column("replicas", "replicas"),
    Column("per_s", "per s", number(3)),
    Column("range", "interval", left=True),
    Column("p95_ttft_ms", "TTFT p95 ms", number(3)),
    Column("p95_tpot_ms", "TPOT p95 ms", number(3)),
)
SETTINGS = (
    Column("setting", "setting", left=True),
    Column("default", "default", left=True),
    Column("best", "best", left=True),
    Column("without", "per s without", number(3)),
)


def tuned_rows(found: TunedSettings, question: TuneQuestion, level: float) -> list[Row]:
    """Return the figures of the default and of the best settings, where they keep the SLO; intervals at `level`."""
    kinds = {"default": found.default, "best": found.best}
    return [
        {**_row(name, each, question, level), "per_s_other_seed": again}
        for (name, each), again in zip(kinds.items(), found.again, strict=True)
        if each
    ]


def tuned_result(found: TunedSettings, question: TuneQuestion, rows: list[Row]) -> Result:
    """Return verdict, tables and sentences of a search, of its rows (`tuned_rows`)."""
    settings = _setting_rows(question, found)
    views = [View(f"Asked: {question.accepted.value()}", RATES, rows)] if rows else []
    views += [View("Settings to change", SETTINGS, settings)] if settings else []
    deployments = [each.scenario.deployment for each in (found.default, found.best) if each]
    notes = [*_notes(found, question), *technique_notes(deployments)]
    said = [_verdict(found, question)]
    return Result({"settings": settings, "tuned": rows}, views, notes, evidence(deployments), verdict=said)


def _row(which: str, trial: Trial, question: TuneQuestion, level: float) -> Row:
    scenario, objective = trial.scenario, question.objective
    row = load_row(scenario, trial.report, level)
    low, high = _rate_ends(trial, level) if isinstance(objective, HighestRate) else (
        row["output_throughput_low"], row["output_throughput_high"]
    )  # fmt: skip
    show = number(3)
    return {
        "which": which,
        **identity(scenario.deployment),
        **row,
        "replicas": scenario.replicas,
        "objective": objective.unit,
        "per_s": trial.per_s,
        "per_s_low": low,
        "per_s_high": high,
        "range": f"{show(low)}-{show(high)}",
        "flags": " ".join(question.flags(trial.point)),
        "launch_command": launch_words(scenario.deployment),
    }


def _rate_ends(trial: Trial, level: float) -> tuple[float, float]:
    """Return the least and the highest rate within the SLO, with the longest and the shortest steps of the interval."""
    replicas = trial.scenario.replicas
    least, most = capacity_ends(trial.scenario, trial.per_s / replicas, level)
    return least * replicas, most * replicas


def _setting_rows(question: TuneQuestion, found: TunedSettings) -> list[Row]:
    if found.best is None:
        return []
    plain, best = question.scenario({}), found.best.scenario
    return [
        {
            "setting": name,
            "default": _in_words(name, plain, ""),
            "best": _in_words(name, best, value),
            "without": found.without.get(name),
        }
        for name, value in found.best.point.items()
        if value
    ]


def _in_words(name: str, scenario: Scenario, value: str) -> str:
    """Return what a setting is in a deployment; `value` is what was given, where it does not tell itself."""
    deployment: Deployment = scenario.deployment
    known = {
        TP: f"{deployment.tp}, {counted(scenario.replicas, 'replica')}",
        SEQS: str(deployment.max_num_seqs),
        TOKENS: str(deployment.max_num_batched_tokens),
        SHARE: value or f"{deployment.memory_fraction:g}",
        CACHE: deployment.layout.cache_dtype,
        CHUNKS: str(deployment.engine.chunked_prefill).lower(),
        LONG: str(deployment.engine.long_prefill_tokens),
        DRAFTS: value or "none",
    }
    return known[name]


def _verdict(found: TunedSettings, question: TuneQuestion) -> str:
    """Return the answer in a sentence."""
    best, default, unit, show = found.best, found.default, question.objective.unit, number(3)
    if best is None:
        return f"No settings that were tried keep the SLO: {question.accepted.value()}."
    on = f"{best.scenario.deployment}" + (f", {best.scenario.replicas} replicas" if best.scenario.replicas > 1 else "")
    defaults = f"the defaults and {question.fixed}" if question.fixed else "the defaults"
    if default is None:
        return f"{on}: {show(best.per_s)} {unit}; with {defaults} no load keeps the SLO."
    if best is default or not any(best.point.values()):
        return f"{on}: {defaults} are best, {show(best.per_s)} {unit}; no change that was tried gains more than 1 %."
    gain = "" if found.gain is None else f"; on other random numbers than the search's {found.gain:+.0%}"
    return f"{on}: {show(best.per_s)} {unit} instead of {show(default.per_s)} with {defaults}{gain}."


def _notes(found: TunedSettings, question: TuneQuestion) -> list[str]:
    spent = f"{found.tried} of at most {found.budget} settings tried"
    names = ", ".join(question.coordinates)
    tried = f"{spent}: {names}. No single change is better; two at once might be."
    if found.is_cut:
        tried = f"{spent}; the budget ended the search through {names}: give a larger --budget."
    asked = question.deployment
    memory = asked.gpu_memory_utilization
    lists = (asked.max_num_seqs, asked.max_num_batched_tokens, memory, asked.cache_dtype, asked.tp)
    notes = [tried, FIRST] if any("," in each for each in lists) else [tried]
    if found.best is not None:
        notes = [*launch_notes(found.best.scenario.deployment), *notes]
    if found.best is not None and any(found.best.point.values()):
        notes = ["Flags:", Command(" ".join(question.flags(found.best.point))), *notes]
        notes += [QUALITY] if found.best.point.get(CACHE) else []
    return [*notes, *_grouped(found)]


def _grouped(found: TunedSettings) -> Sequence[str]:
    """Return a line on what could not be tried."""
    if not found.refused:
        return []
    first = found.refused[0]
    others = len(found.refused) - 1
    more = f", and {others} other reason{'s' if others > 1 else ''}" if others else ""
    return [f"Not possible: {first.given}: {first.because}{more}."]

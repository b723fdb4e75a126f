"""`infercast report`: one web page on some deployments under a load: what they cost, why, how sure that is."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.answers.compare_details import CostDetails
from simulator.cli.answers.compare_screen import Compared, compared_row, verdict_and_doubts
from simulator.cli.answers.compare_sensitivity import SensitivityTables
from simulator.cli.answers.deployment_columns import labels_of
from simulator.cli.answers.interval_columns import IntervalOptions
from simulator.cli.answers.surest import surest_of, surest_words
from simulator.cli.options.deployment_options import DeploymentOptions, grouped
from simulator.cli.options.executor_options import Jobs
from simulator.cli.options.offer_options import PriceAndApiOptions
from simulator.cli.options.workload_options import RateOptions, SloOptions
from simulator.cli.output import exit_if_interrupted, tried
from simulator.cli.progress import followed, progress_bar
from simulator.cli.text_layout import columns, wrapped
from simulator.cost.candidate import Candidate, extra_watts
from simulator.cost.capacity import Answer, answer, ranked
from simulator.cost.lower_bounds import lower_bounds
from simulator.cost.scenario import Scenario
from simulator.cost.search import Solution, Target, priced_target
from simulator.deployment.deployment import Deployment
from simulator.errors import InfercastError
from simulator.executors.executor import cores, in_order
from simulator.executors.threads import Threads
from simulator.html.page import refuse_ending
from simulator.questions.deployment_question import Choice

IN_A_LABEL = ("model", "hardware", "tp", "pp", "ep", "dp")  # a page says the model before it


@dataclass(frozen=True)
class Pinned(Compared):
    """An answer whose deployment was given, not searched; `more`: what tells it from others of the same label."""

    more: str = ""

    @property
    def label(self) -> str:
        """Devices of a replica, what is not usual, and what else tells it from the other deployments."""
        return f"{super().label} {self.more}".rstrip()


@grouped
def command(
    asked: DeploymentOptions,
    users: RateOptions,
    accepted: SloOptions,
    interval_options: IntervalOptions,
    priced: PriceAndApiOptions,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write it (.html).")] = Path(
        "report.html"
    ),
    jobs: Jobs = None,
) -> None:
    """Write one web page to hand on: what to rent of the deployments that are asked about, and why.

    The answer with its risk, cost, latency against load with the SLO, where a request's and a step's time goes, memory,
    roofline, sensitivity, prices with age and source, guesses and fitted multipliers, the command that repeats it. The
    cheapest deployment is looked into; comma lists give others beside it. The file needs no network.
    """
    refuse_ending(out)
    slo, choices = accepted.value(), asked.choices()  # first: it opens the user's own profiles, of workloads too
    rate, workload = users.one_load()
    priced.checked()
    load = priced_target(rate, workload, slo, priced.offers_for, priced.interruptions())

    def case(progress: Callable[[int, int], None], index: int, choice: Choice) -> Answer:
        progress(index, len(choices))
        deployment = choice()
        scenario = Scenario(deployment, workload, slo, priced.offers(deployment), interruptions=load.interruptions)
        return answer(scenario, rate)

    with progress_bar("deployments") as progress:
        found, refused = tried([partial(case, progress, *each) for each in enumerate(choices)])
    ordered = ranked(found)
    compared = _told_apart([_pinned(each, load) for each in ordered if each.replicas])
    excluded = [f"{each.scenario.deployment}: {each.why}." for each in ordered if not each.replicas]
    if not compared:
        raise InfercastError(f"{slo}", excluded[0].removesuffix("."), "Loosen the SLO, or give more devices")
    excluded += [f"Left out: {error}" for error in refused]
    threads = Threads(jobs or cores())
    rows = followed("answers", in_order(threads, compared_row, compared), len(compared))
    from simulator.cli.pages.decision_page import Decision

    figures = CostDetails(compared, priced, interval_options.interval)
    is_open = len(compared) > 1 and not compared[0].risk.is_sure
    models = len({row["model"] for row in rows})
    surest = surest_words(surest_of(compared), of_these=True, models=models) if is_open else ""
    Decision(figures, rows, SensitivityTables(compared, threads), excluded, surest).save(out)
    said = " ".join([*verdict_and_doubts([*compared], rows, surest), f"All of it: {out}"])
    typer.echo("\n".join(wrapped(said, columns())))
    exit_if_interrupted(refused)


def _told_apart(compared: list[Pinned]) -> list[Pinned]:
    """Return answers with labels that differ, such as those of one device with several settings."""
    if len({each.label for each in compared}) == len(compared):
        return compared
    more = labels_of([each.found.scenario.deployment for each in compared], IN_A_LABEL)
    return [replace(each, more=words) for each, words in zip(compared, more, strict=True)]


def _pinned(found: Answer, load: Target) -> Pinned:
    deployment = found.scenario.deployment

    def build(_layout: object) -> Deployment:
        return deployment

    candidate = Candidate(deployment.model, deployment.hardware, deployment.layout, 0.0, build)
    usd = found.at_load.usd_per_hour if found.at_load else None
    busy_w = extra_watts(found.scenario, found.report, found.replicas)
    known = lower_bounds(found.scenario)
    solution = Solution(candidate, found, usd, known, busy_w)
    return Pinned(solution, load)

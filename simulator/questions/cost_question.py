"""What `infercast cost` is asked, and the row of all figures that answers it."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from simulator.cost.bill import Bill
from simulator.cost.capacity import Answer, Capacity, answer, capacity
from simulator.cost.packing import full_usd_per_hour
from simulator.cost.scenario import Scenario
from simulator.frames import Row
from simulator.hardware.sites import Site
from simulator.questions.asked_columns import asked_columns
from simulator.questions.case_answer import CaseAnswer
from simulator.questions.deployment_question import DeploymentQuestion
from simulator.questions.load_question import LoadQuestion, SloQuestion
from simulator.questions.load_rows import load_row
from simulator.questions.price_question import PriceQuestion
from simulator.questions.price_rows import energy_columns, packing_columns, spot_columns
from simulator.questions.words import arguments, plain
from simulator.questions.workload_question import WorkloadQuestion
from simulator.reports.intervals import PredictionRange

SHARED = 64  # capacities that a process remembers: cases at several rates and prices have the same


@dataclass(frozen=True)
class CostQuestion:
    """All that `infercast cost` is asked: deployments, loads, an SLO, and which offers count.

    >>> users = WorkloadQuestion(input_len="512", output_len="128", request_rate="1,2")
    >>> asked = CostQuestion(DeploymentQuestion("llama-3.1-8b", "l40s"), users, priced=PriceQuestion(usd_per_hour=1))
    >>> [each.users.request_rate for each in asked.each()]
    ['1', '2']
    """

    deployment: DeploymentQuestion
    users: WorkloadQuestion
    accepted: SloQuestion = field(default_factory=SloQuestion)
    priced: PriceQuestion = field(default_factory=PriceQuestion)

    def each(self) -> list["CostQuestion"]:
        """Return a question for every combination of the comma lists: prices, then deployments, then loads.

        Raises InfercastError as `LoadQuestion.each` and WorkloadError as `WorkloadQuestion.one_load` do.
        """
        asked = self.load.each()
        for each in asked:
            each.users.one_load()  # refuses what has no rate
        prices = plain(PriceQuestion, self.priced).each()
        return [CostQuestion(each.deployment, each.users, each.accepted, one) for one in prices for each in asked]

    def command(self) -> list[str]:
        """Return the command line that asks this question, with the day from which prices age."""
        dated = replace(self.priced, price_date=str(self.priced.terms().on))
        groups = (self.deployment, self.users, self.accepted, dated)
        return ["infercast", "cost", *(word for each in groups for word in arguments(each))]

    def digests(self) -> Iterator[str]:
        """Yield the digests of the files that a question without lists names; price lists belong to the program."""
        return self.load.digests()

    @property
    def load(self) -> LoadQuestion:
        """The load that is asked about, whatever it costs."""
        return LoadQuestion(self.deployment, self.users, self.accepted)

    @property
    def together(self) -> LoadQuestion:
        """The load whose capacity this one's is: it depends neither on the asked rate nor on the offer."""
        return replace(self.load, users=replace(self.users, request_rate="" if self.users.trace else "1"))

    def scenario(self) -> Scenario:
        """Return the scenario of a question without lists. Raises InfercastError where it is impossible."""
        scenario, _ = self.load.scenario()
        offers = self.priced.offers(scenario.deployment)
        return replace(scenario, offers=offers, interruptions=self.priced.interruptions())

    def answered(self) -> Answer:
        """Return the answer to a question without lists as a value. Raises as `answer` does."""
        scenario, [(rate, _)] = self.scenario(), self.users.workloads()
        if scenario.offers:
            scenario.packing(1)  # refuses, before anything is simulated
        return answer(scenario, rate or 0.0, _capacity(self.together))

    def answer(self, level: float, *, explain: bool = False) -> CaseAnswer:  # noqa: ARG002  as of every question
        """Return the figures of the answer as one row. Raises as `answered` does."""
        found = self.answered()
        return CaseAnswer((_answer_row(found, level, self.priced, _shared_ends(self.together, level)),))


@lru_cache(maxsize=SHARED)
def _capacity(asked: LoadQuestion) -> Capacity:
    return capacity(asked.scenario()[0])


@lru_cache(maxsize=SHARED)
def _shared_ends(asked: LoadQuestion, level: float) -> list[float]:
    return capacity_ends(asked.scenario()[0], _capacity(asked).rate_per_s, level)


def answer_rows(found: list[Answer], level: float, priced: PriceQuestion) -> list[Row]:
    """Return a row of all figures for each answer; those at several rates share the intervals of their capacity."""
    known: dict[int, list[float]] = {}
    rows: list[Row] = []
    for each in found:
        ends_per_s = known.get(id(each.capacity)) or capacity_ends(each.scenario, each.capacity.rate_per_s, level)
        known[id(each.capacity)] = ends_per_s
        rows.append(_answer_row(each, level, priced, ends_per_s))
    return rows


def _answer_row(found: Answer, level: float, priced: PriceQuestion, ends_per_s: list[float]) -> Row:
    row = {**_figures(found, level, priced.place()), **packing_columns(found.packing, priced.terms().on)}
    return {**row, **_capacity_intervals(found, row, ends_per_s)}


AT_CAPACITY = tuple(f"at_capacity_usd_per_million_{kind}_tokens" for kind in ("output", "input", "total"))
AT_LOAD = (
    "usd_per_hour",
    "usd_per_month",
    *(f"usd_per_million_{kind}_tokens" for kind in ("output", "input", "total")),
)


def capacity_ends(scenario: Scenario, highest: float, level: float) -> list[float]:
    """Return the least and the highest max req/s of one replica: of searches with the longest and the shortest steps.

    And of one with a smaller KV cache, where it fits barely (`Scenario.with_least_cache`).
    """

    def capacity_per_s(step_factor: float) -> float:
        return capacity(scenario.with_steps(step_factor)).rate_per_s

    prediction = PredictionRange(scenario.deployment, "open_loop", level, highest, capacity_per_s)
    smaller = scenario.with_least_cache
    others = [*prediction.others, *([capacity(smaller).rate_per_s] if smaller else [])]
    return [min(highest, *others), max(highest, *others)]


def _capacity_intervals(found: Answer, row: Row, ends_per_s: list[float]) -> Row:
    """Return the intervals of the highest rate of one replica, and of the replicas and bills that follow from it.

    A high of None: no upper end, because with the longest steps no rate keeps the SLO.
    """
    (least, most), highest = ends_per_s, found.capacity.rate_per_s
    ends: dict[str, Any] = {"capacity_per_s_low": least, "capacity_per_s_high": most}
    for end, rate_per_s in (("low", most), ("high", least)):
        replicas = math.ceil(found.rate_per_s / rate_per_s) if rate_per_s and found.replicas else None
        ends[f"replicas_{end}"] = replicas
        usd = found.usd_per_hour(replicas) if replicas and found.packing else None
        times = usd / row["usd_per_hour"] if usd and row["usd_per_hour"] else 1.0  # of no price
        for name in AT_LOAD:
            ends[f"{name}_{end}"] = row[name] * times if usd is not None else None
        for name in AT_CAPACITY:
            ends[f"{name}_{end}"] = (row[name] and row[name] * highest / rate_per_s) if rate_per_s else None
    return ends


def _figures(found: Answer, level: float, site: Site) -> Row:
    scenario = found.scenario
    full = full_usd_per_hour(scenario.replica_size, scenario.offers) if scenario.offers else None
    at_load = asdict(found.at_load) if found.at_load else dict.fromkeys(BILL)
    at_capacity = asdict(found.at_capacity) if found.at_capacity else dict.fromkeys(BILL)
    return {
        **asked_columns(scenario, found.rate_per_s / max(found.replicas, 1), found.report),
        **load_row(scenario, found.report, level),
        "asked_rate_per_s": found.rate_per_s,
        "slo": str(scenario.slo),
        "replicas": found.replicas,
        "capacity_per_s": found.capacity.rate_per_s,
        "load_of_capacity": found.rate_per_s / found.replicas / found.capacity.rate_per_s if found.replicas else None,
        **at_load,
        **{f"at_capacity_{name}": value for name, value in at_capacity.items()},
        "usd_per_device_hour": full and full / scenario.deployment.devices,
        **energy_columns(found, site),
        **spot_columns(found),
        "breaks": found.capacity.breaks,
        "why": found.why,
    }


BILL = tuple(each.name for each in fields(Bill))

"""The first screen of `infercast compare`: verdict and risk, one table, why not the others, the launch command."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from simulator.cli.answers.cost_screen import barely, unbounded
from simulator.cli.answers.interval_columns import BASES
from simulator.cli.answers.router_savings import router_savings
from simulator.cli.numbers import count, number, percent, ranged
from simulator.cli.output import Column, Result, Row, View
from simulator.cli.text_layout import Command
from simulator.cost.candidate import Candidate, Rental
from simulator.cost.capacity import Answer
from simulator.cost.limiter import Limiter, limiter
from simulator.cost.lower_bounds import REJECTED
from simulator.cost.risk import Risk, replicas_needed
from simulator.cost.search import ALONE, SAME_PRICE, Search, SearchNode, Solution, Target
from simulator.deployment.deployment import Deployment
from simulator.deployment.launch_command import launch_command
from simulator.deployment.launch_several_hosts import note_of_hosts
from simulator.engines.engine import load_engine, usual_engine
from simulator.errors import DoesNotFitError, NotModelledError
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.questions.compare_question import NO_ROOM, Candidates
from simulator.questions.deployment_question import loaded
from simulator.questions.load_notes import rejection_notes
from simulator.reports.interval_widths import basis_of
from simulator.reports.slo import Slo
from simulator.units import counted, scaled, significant

OF_ONE = {"have": "has", "break": "breaks", "miss": "misses", "reject": "rejects", "are": "is", "cost": "costs"}
LOOSER = 1.1  # times the bounds of the SLO, to see whether the answer stands on a knife edge
SHOWN_DEVICES = 3


@dataclass(frozen=True)
class Compared:
    """An answer of the search with what limits it and how sure it is."""

    found: Solution
    load: Target

    @property
    def answer(self) -> Answer:
        """The answer with the highest rate of one replica within the SLO, and its bill."""
        return self.found.answer

    @cached_property
    def limiter(self) -> Limiter:
        """What limits a replica, at the highest rate within the SLO."""
        return limiter(self.found.bounds, self.answer.capacity.report)

    @cached_property
    def risk(self) -> Risk:
        """Replicas that it takes where steps are slower or faster than predicted."""
        return Risk(self.found, self.load)

    @cached_property
    def knife_edge(self) -> list[str]:
        """A sentence for each bound of the SLO that halves the replicas where it is a tenth looser."""
        found, slo = self.found, self.load.slo
        if found.replicas < 2:
            return []
        said = []
        for name, bound_s in slo.bounds_s.items():
            looser = Slo({**slo.bounds_s, name: bound_s * LOOSER}, slo.share)
            fewer = replicas_needed(
                replace(found.scenario, slo=looser), self.load.rate_per_s, found.replicas, self.risk.simulated
            )
            if fewer and fewer <= found.replicas / 2:
                edge = f"{name.upper()} <= {scaled(bound_s * LOOSER, 's')}"
                said.append(f"Knife edge: {edge} needs {fewer} instead of {found.replicas}.")
        return said

    @property
    def label(self) -> str:
        """Devices of a replica, and what is not usual: format, degrees, engine."""
        candidate, layout = self.found.candidate, self.found.candidate.layout
        many = f"{candidate.devices} x " if candidate.devices > 1 else ""
        degrees = _degrees(layout)[1:]
        stored = [layout.weight_dtype] if layout.weight_dtype != candidate.model.weight_dtype else []
        engine = self.found.scenario.deployment.engine
        usual = engine.engine == loaded(load_engine, usual_engine(candidate.hardware)).engine
        return " ".join([f"{many}{candidate.hardware.label}", *stored, *degrees, *([] if usual else [engine.engine])])

    def usd(self, replicas: int | None) -> float | None:
        """Return the dollars per hour of so many replicas; None for none, and without a price."""
        return None if replicas is None else self.found.price(self.load, replicas)


def compared_row(each: Compared) -> Row:
    """Return the figures of an answer that the first screen shows, with the interval of replicas and dollars."""
    answer, report = each.answer, each.found.report
    bill, share = answer.at_load, each.load.rate_per_s / each.found.replicas
    low, high = each.risk.replicas[0], each.risk.most
    per_million = bill.usd_per_million_output_tokens if bill else None
    ends: dict[str, float | None] = {}
    for end, replicas in (("low", low), ("high", high)):
        times = answer.usd_per_hour(replicas) / bill.usd_per_hour if replicas and bill else None
        ends[f"replicas_{end}"] = replicas
        ends[f"usd_per_million_output_tokens_{end}"] = per_million * times if per_million and times else None
    return {
        "model": each.found.candidate.model.id,
        "deployment": each.label,
        "replicas": each.found.replicas,
        "usd_per_hour": bill.usd_per_hour if bill else None,
        "usd_per_month": bill.usd_per_month if bill else None,
        "usd_per_million_output_tokens": per_million,
        **ends,
        "p95_ttft_ms": report.metrics["ttft"].values["p95"] * 1e3,
        "p95_tpot_ms": report.metrics["tpot"].values["p95"] * 1e3,
        "capacity_per_s": answer.capacity.rate_per_s,
        "load_of_capacity": share / answer.capacity.rate_per_s,
        "limiter": each.limiter.name,
        "limiter_sentence": each.limiter.sentence,
        "launch_command": launch_words(each.found.scenario.deployment),
    }


def launch_words(deployment: Deployment) -> str:
    """Return the command that starts a replica, or why none is known."""
    try:
        return launch_command(deployment)
    except NotModelledError as error:
        return f"({error.given}: {error.because})"


def launch_notes(deployment: Deployment, each: str = "") -> list[str]:
    """Return a heading, where to type the command if it is over several hosts, and the command itself."""
    heading = " ".join(filter(None, [f"Launch{each}:", note_of_hosts(deployment)]))
    return [heading, Command(launch_words(deployment))]


def table(rows: list[Row]) -> View:
    """Return the one table of the first screen."""
    several = len({row["model"] for row in rows}) > 1

    def interval(value_and_ends: tuple[float | None, float | None, float | None]) -> str:
        return "no price" if value_and_ends[0] is None else ranged(*value_and_ends)

    keys = [f"usd_per_million_output_tokens{end}" for end in ("", "_low", "_high")]
    shown = [{**row, "per_million": tuple(row[key] for key in keys)} for row in rows]
    columns = [
        *([Column("model", "model", left=True)] if several else []),
        Column("deployment", "deployment", left=True),
        Column("replicas", "n", count),
        Column("usd_per_hour", "$/h", number(3)),
        Column("per_million", "$/M out", interval),
        Column("p95_ttft_ms", "TTFT", number(3)),
        Column("p95_tpot_ms", "TPOT", number(3)),
        Column("load_of_capacity", "load", percent),
        Column("limiter", "limited by", left=True),
    ]
    return View("", columns, shown)


def verdict(compared: list[Compared], rows: list[Row], surest: str = "") -> str:
    """Return the answer: what, how many, dollars a month, in how many of five cases it is too little, and `surest`.

    Its model is named where there are several. `surest`: a sentence on what is enough in all of them.
    """
    best, usd = compared[0], rows[0]["usd_per_month"]
    price = f"${usd:,.0f} a month" if usd else "no price known"
    model = f"{rows[0]['model']}: " if len({row["model"] for row in rows}) > 1 else ""
    named = counted_replicas(best.label, best.found.candidate.devices, best.found.replicas)
    said = f"{model}{named}, {price}; {_risk_in_words(best.risk)}"
    return " ".join(filter(None, [said, surest]))


def verdict_and_doubts(compared: list[Compared], rows: list[Row], surest: str = "") -> list[str]:
    """Return the answer, and what speaks against it: no SLO was given, or it fits barely. Arguments of `verdict`."""
    best = compared[0]
    doubts = [*unbounded(best.load.slo, rows[0]), *barely(best.found.scenario.memory, _with_least_cache(best.risk))]
    return [verdict(compared, rows, surest), *doubts]


def _with_least_cache(risk: Risk) -> str:
    """Say what the answer takes with a KV cache smaller by the error of its plan."""
    if (replicas := risk.replicas_with_least_cache) is None:
        return ", and no number of replicas keeps the SLO then"
    return f" ({counted(replicas, 'replica')} then)"


def counted_replicas(label: str, devices: int, replicas: int) -> str:
    """Return so many replicas, each of so many devices, in words.

    >>> counted_replicas("l40s", 1, 2), counted_replicas("4 x l40s", 4, 1), counted_replicas("4 x l40s", 4, 2)
    ('2 replicas of l40s', '4 x l40s', '2 replicas of 4 x l40s')

    One replica on one device is said with its number: "1 x l40s".
    """
    if devices == replicas == 1:
        return f"1 x {label}"
    return label if replicas == 1 else f"{replicas} replicas of {label}"


def _risk_in_words(risk: Risk) -> str:
    """Say in how many cases it takes more, and in how many none does."""
    if risk.is_sure:
        return "enough in 5 of 5 cases."
    takes = []
    if more := risk.more:
        most = "" if more[0] == more[-1] else f" to {more[-1]}"
        takes.append(f"in {len(more)} of 5 cases it takes {more[0]}{most} replicas")
    if risk.never:
        takes.append(f"in {risk.never} of 5{'' if more else ' cases'} no number of them keeps the SLO")
    return f"{', '.join(takes)}."


def ties(search: Search, compared: list[Compared]) -> Iterator[str]:
    """Yield what costs the same as the best: other devices, then other formats or layouts of the same device.

    Models are named where there are several.
    """
    usd = compared[0].usd(compared[0].found.replicas)
    prices = [(each, each.usd(each.found.replicas)) for each in compared[1:]]
    several = len({each.found.candidate.model.id for each in compared}) > 1
    equal = [each for each, price in prices if usd and price is not None and price <= usd * SAME_PRICE]
    if equal:
        named = (f"{each.found.candidate.model.id} on {each.label}" if several else each.label for each in equal)
        yield f"Same price within 1 %: {', '.join(named)}."
    if alike := search.same_cost.get(0):
        best = compared[0].found.candidate
        kinds = dict.fromkeys(_in_words(each, best) for each in alike)
        yield f"At its price there may also be: {', '.join(list(kinds)[:4])}."


def _in_words(candidate: Candidate, best: Candidate) -> str:
    """Return a candidate's format and degrees, and its engine where that is not the engine of the best."""
    engine = [candidate.engine] if candidate.engine != best.engine else []
    return " ".join((candidate.layout.weight_dtype, *_degrees(candidate.layout), *engine))


def _degrees(layout: Layout) -> list[str]:
    """Return the parallel degrees of a layout: tp first, then those above 1.

    >>> _degrees(Layout(tp=1, ep=8, dp=8))
    ['tp1', 'ep8', 'dp8']
    """
    others = (("pp", layout.pp), ("ep", layout.ep), ("dp", layout.dp))
    return [f"tp{layout.tp}", *(f"{name}{degree}" for name, degree in others if degree > 1)]


def exclusions(search: Search, options: Candidates) -> Iterator[str]:
    """Yield why others are no answer, by reason, each with how many deployments and which devices have nothing else."""
    alive = {each.hardware.id for each in options.candidates}
    cut = Counter(options.cut)
    for node in search.out:
        cut[_reason(node), node.candidate.hardware.id] += 1
    words = {
        NO_ROOM: "have too little memory",
        "ttft": "miss TTFT even for lone requests",
        "tpot": "miss TPOT even for lone requests",
        "e2el": "miss E2EL even for lone requests",
        REJECTED: "reject too many requests as too long",
        ALONE: "break the SLO at every load",
    }
    for reason in dict.fromkeys(name for name, _ in cut):
        of = {device: many for (name, device), many in cut.items() if name == reason}
        only = sorted((device for device in of if device not in alive), key=lambda device: _usd(search, device))
        shown = ", ".join(only[:SHOWN_DEVICES]) + (", .." if len(only) > SHOWN_DEVICES else "")
        named = f" ({shown})" if only else ""
        yield f"{_counted_verb(sum(of.values()), words.get(reason, reason))}{named}"
    left = search.left
    if priced := sum(not without_price for without_price, *_ in left):
        yield f"{_counted_verb(priced, 'cost more')} (${number(3)(search.least_usd_left)}/h at least)"
    if priced < len(left):
        yield _counted_verb(len(left) - priced, "have no price")


def _counted_verb(number: int, said: str) -> str:
    """Return a number and what so many do, in words that begin with the verb of several.

    >>> _counted_verb(1, "have no price"), _counted_verb(1_200, "miss TTFT")
    ('1 has no price', '1,200 miss TTFT')
    """
    verb, _, rest = said.partition(" ")
    return f"{number:,} {OF_ONE.get(verb, verb) if number == 1 else verb} {rest}"


def excluded(search: Search, options: Candidates) -> str:
    """Return why others are no answer, in a sentence."""
    every = len(options.candidates) + sum(options.cut.values())
    if not (why := list(exclusions(search, options))):
        return "The only deployment was simulated." if every == 1 else f"All {every:,} deployments were simulated."
    return f"Of {counted(every, 'deployment')} {', '.join(why)}."


def _usd(search: Search, device: str) -> float:
    """Return the price of a device by the hour, infinity where there is none."""
    usd = search.load.price(Rental(loaded(load_hardware, device), devices=1))
    return math.inf if usd is None else usd


def _reason(node: SearchNode) -> str:
    if isinstance(node.error, DoesNotFitError):
        return NO_ROOM
    if node.error is not None:
        return "are impossible or not modelled" if isinstance(node.error, NotModelledError) else "cannot take the load"
    return node.never


def first_screen(search: Search, options: Candidates, compared: list[Compared], rows: list[Row], surest: str) -> Result:
    """Return what is printed where nothing else is asked for: at most 80 columns and 24 lines.

    `surest`: a sentence on what is enough however long steps take.
    """
    best = compared[0]
    slo = best.load.slo
    kept = f"with {slo.bounds} for {slo.asked} of requests" if slo.bounds_s else "without a queue that grows"
    most = f"{significant(best.answer.capacity.rate_per_s)} req/s per replica, the most {kept}"
    why = [f"Limit of {best.label} at {most}: {best.limiter.sentence}.", *best.knife_edge, *router_savings(best.answer)]
    why += [*rejection_notes([best.found.report.run]), *guessed(best), *ties(search, compared)]
    each = f" each of {best.found.replicas}" if best.found.replicas > 1 else ""
    launch = launch_notes(best.found.scenario.deployment, each)
    formats = ((each.found.candidate.layout.weight_dtype, each.found.candidate.model.weight_dtype) for each in compared)
    narrower = any(stored != own for stored, own in formats)
    endless = any(row["usd_per_hour"] and row["replicas_high"] is None for row in rows)
    foot = [FOOT, *([ENDLESS] if endless else []), *([QUALITY] if narrower else [])]
    notes = [*why, excluded(search, options), "", *launch, "", *foot]
    return Result({"answers": rows}, [table(rows)], notes, verdict=verdict_and_doubts(compared, rows, surest))


def guessed(best: Compared) -> list[str]:
    """Return a sentence where the rates of the answer's device are guesses."""
    basis = basis_of(best.found.scenario.deployment)
    return [f"{best.label} rests on {BASES[basis]}."] if basis == "guess" else []


QUALITY = "What another format than the checkpoint's costs in quality is not judged."
ENDLESS = '"up": in a slow case, or with a smaller cache, no number of replicas is enough.'
FOOT = (
    'TTFT, TPOT: p95, ms. "limited by": at the highest rate within the SLO. Cases: steps as far off as past '
    "predictions were. --details: all."
)

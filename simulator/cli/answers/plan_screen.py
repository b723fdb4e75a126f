"""What `infercast plan` prints: the fleet in a sentence, whether pools pay, and replicas and dollars by the month."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from simulator.cli.answers.deployment_columns import evidence
from simulator.cli.answers.interval_columns import BASES
from simulator.cli.answers.offer_columns import energy_guesses
from simulator.cli.answers.technique_notes import technique_notes
from simulator.cli.numbers import count, number
from simulator.cli.output import Column, Result, Row, View
from simulator.cost.plan import FleetCheck, FleetMonth, FleetPlan, Picked, PromptSplit
from simulator.errors import InfercastError
from simulator.limits import known
from simulator.questions.identity import identity
from simulator.questions.row_intervals import ENDS
from simulator.reports.interval_widths import basis_of
from simulator.reports.provenance import Provenance
from simulator.reports.slo import Slo
from simulator.units import counted, significant

SHOWN_MONTHS = 5  # as many rows and the last month: the screen has 24 lines; json and csv have all
MEANS = {
    "static": "always on, sized for the month's highest rate",
    "scheduled": "by the hour of the day",
    "autoscaled": "by load",
}
ELECTRICITY = "Dollars by the month hold electricity, which follows the load (an estimate)."
POOLS_BY_LOAD = (
    "Pools that scale by load are not compared: infercast fleet --disaggregate P:D --autoscale concurrency:N "
    "--prefill-autoscale queue:N simulates them."
)


class Searched(NamedTuple):
    """Plans of every deployment for some requests: mixed, in pairs with two pools, the cheapest, what is refused."""

    mixed: list[FleetPlan]
    pairs: list[tuple[FleetPlan, FleetPlan]]
    picked: Picked | None
    refused: list[InfercastError]

    @property
    def plans(self) -> list[FleetPlan]:
        """All plans."""
        return [*self.mixed, *(pooled for _, pooled in self.pairs)]


def plan_result(
    whole: Searched, parts: Mapping[int, Sequence[Searched]], slo: Slo, guesses: Sequence[Provenance]
) -> Result:
    """Return what is printed of plans for all requests, and of those for short and long prompts by where they split."""
    splits = [
        PromptSplit(tokens, (short.picked, long.picked))
        for tokens, (short, long) in parts.items()
        if short.picked and long.picked
    ]
    answers: list[Picked | PromptSplit] = [*([whole.picked] if whole.picked else ()), *splits]
    best = min(answers, key=lambda each: each.cost, default=None)
    chosen = list(best.fleets) if isinstance(best, PromptSplit) else [best] if best else []
    every = [whole, *(each for both in parts.values() for each in both)]
    pools = [pools_row(*pair) for each in every for pair in each.pairs]
    said = [split_verdict(each, whole.picked, chosen=True) for each in splits if each is best]
    said += [line for each in chosen for line in verdict(each)] or [f"No fleet keeps the SLO in simulation ({slo})."]
    said += [split_verdict(each, whole.picked, chosen=False) for each in splits if each is not best]
    said += [f"Prompts split at {each:,} tokens: no fleet keeps the SLO." for each in parts if not _is_in(each, splits)]
    said += [pools_verdict(*pair, chosen=chosen) for pair in whole.pairs]
    said += [POOLS_BY_LOAD] if any("autoscaled" in mixed.kinds for mixed, _ in whole.pairs) else []
    shown = [each.plan for each in chosen] or whole.plans[:1]
    views = [months_view(each, "") for each in shown]
    notes = [
        *(comparison(whole.plans) if len(whole.mixed) > 1 else ()),
        *(" ".join(assumptions(each)) for each in shown),
    ]
    notes += technique_notes([each.scenario.deployment for each in shown])
    checks = [_checked(each.plan, one) for each in chosen for one in each.failed]
    checks += [{**_checked(each.plan, each.check), **interval_row(each)} for each in chosen]
    months = [_checked(each, row) for search in every for each in search.plans for row in each.months]
    sections: dict[str, Sequence[Row]] = {"checks": checks, "months": months}
    power = energy_guesses() if any(each.pays_electricity for each in shown) else []
    used = [*evidence([each.scenario.deployment for each in shown]), *power, *guesses]
    refused = [error for each in every if each is whole or not each.picked for error in each.refused]
    return Result({"disaggregation": pools, **sections} if pools else sections, views, notes, used, refused, said)


def _is_in(tokens: int, splits: Sequence[PromptSplit]) -> bool:
    return any(each.tokens == tokens for each in splits)


def _checked(plan: FleetPlan, row: FleetCheck | FleetMonth) -> Row:
    """Return a row of a plan with what tells it apart: deployment, pools, and which prompts."""
    prompts = plan.scenario.workload.prompts
    kind = {"disaggregated": plan.is_pooled, "prompts": str(prompts) if prompts else "all"}
    return {**identity(plan.scenario.deployment), **kind, **row._asdict()}


def split_verdict(split: PromptSplit, one: Picked | None, *, chosen: bool) -> str:
    """Say whether two fleets, for short and for long prompts, cost less than one."""
    (usd, devices), sizes = split.cost, " and ".join(counted(each.check.replicas, "replica") for each in split.fleets)
    both = f"${usd:,.0f} in all" if math.isfinite(usd) else f"{devices} devices"
    other = ""
    if one is not None:
        usd, devices = one.cost
        other = f" against {f'${usd:,.0f}' if math.isfinite(usd) else f'{devices} devices'} for one fleet"
    kind = "Two fleets, prompts" if chosen else "Prompts"
    return f"{kind} split at {split.tokens:,} tokens: {'' if chosen else 'no; '}{sizes}, {both}{other}."


def pools_row(mixed: FleetPlan, pooled: FleetPlan) -> Row:
    """Return what the largest fleet of a plan in two pools serves within the SLO, and as many mixed replicas."""
    replicas = pooled.most_at(pooled.busiest)
    split_per_s, mixed_per_s = (each.rates.rate_per_s(replicas) for each in (pooled, mixed))
    return {
        "deployment": str(mixed.scenario.deployment),
        "replicas": replicas,
        "prefill": pooled.rates.prefill(replicas),
        "split_per_s": split_per_s,
        "mixed_per_s": mixed_per_s,
        "gain": split_per_s / mixed_per_s - 1,
        "split_usd": known(pooled.usd("static")),
        "mixed_usd": known(mixed.usd("static")),
    }


def pools_verdict(mixed: FleetPlan, pooled: FleetPlan, *, chosen: Sequence[Picked]) -> str:
    """Say whether a prefill and a decode pool were chosen, what they serve, and what they cost always on."""
    row, deployment = pools_row(mixed, pooled), pooled.scenario.deployment
    taken = any(each.plan.is_pooled and each.plan.scenario.deployment == deployment for each in chosen)
    split = f"{counted(row['prefill'], 'replica')} for prefill and {row['replicas'] - row['prefill']} for decode"
    served = f"{significant(row['split_per_s'])}/s {mixed.scenario.slo.within}"
    rates = f"{split} serve {served}, as many mixed ones {significant(row['mixed_per_s'])}/s"
    usd = row["split_usd"], row["mixed_usd"]
    costs = f"; always on ${usd[0]:,.0f} in pools, ${usd[1]:,.0f} mixed" if None not in usd else ""
    return f"Disaggregated: {'yes' if taken else 'no'}; {rates} ({row['gain']:+.0%}){costs}."


def verdict(picked: Picked) -> list[str]:
    """Say which fleet, at what price, and what its simulation showed."""
    best, check = picked.plan, picked.check
    months = [each for each in best.months if each.kind == check.kind]
    first, last = months[0], months[-1]
    least, most = min(each.least for each in months), max(each.most for each in months)
    sizes = f"{least} to {most} replicas" if least < most else counted(most, "replica")
    if best.is_pooled:
        sizes += f", {best.rates.prefill(check.replicas)} of {check.replicas} for prefill"
    total = best.usd(check.kind)
    price = ""
    if math.isfinite(total):
        later = f", ${last.usd:,.0f} in month {last.month}" if last.usd != first.usd else ""
        price = f": ${first.usd:,.0f} a month{later}, ${total:,.0f} in all"
    prompts = best.scenario.workload.prompts
    means = f"{prompts}; {MEANS[check.kind]}" if prompts else MEANS[check.kind]
    said = [f"{check.kind.capitalize()} fleet ({means}) of {best.scenario.deployment}, {sizes}{price}."]
    busiest = f"Simulated in month {check.month}, where it is busiest, with {counted(check.replicas, 'replica')}"
    kept = f"keep the SLO, {best.scenario.slo}" if best.scenario.slo.bounds_s else "are served, without an SLO"
    said.append(f"{busiest}: {check.within:.1%} of requests {kept}{_one_less(best, check)}.")
    return [*said, *_doubt(picked), *(_failed(each) for each in picked.failed)]


def interval_row(picked: Picked) -> Row:
    """Return the dollars of the chosen fleet over all months, and the intervals of these and of its replicas.

    Replicas are without the spare ones. A low or a high of None: no number of replicas keeps the SLO.
    """
    kind, deployment = picked.check.kind, picked.plan.scenario.deployment
    row: dict[str, Any] = {"usd": known(picked.plan.usd(kind))}
    if picked.steps is None:
        return row
    for end, plan in zip(ENDS, (picked.steps.shortest, picked.steps.longest), strict=True):
        row[f"replicas_{end}"] = plan and plan.most_at(plan.busiest)
        row[f"usd_{end}"] = plan and known(plan.usd(kind))
    return {**row, "interval": picked.steps.level, "interval_basis": basis_of(deployment)}


def _doubt(picked: Picked) -> list[str]:
    """Say how many replicas it may take, the spare ones among them, at which price."""
    if picked.steps is None:
        return []
    row, spare = interval_row(picked), picked.plan.sizing.spare
    interval = f"the {picked.steps.level:.0%} interval, by {BASES[row['interval_basis']]},"
    if None in (row["replicas_low"], row["replicas_high"]):
        return [f"In {interval} it may be that no number of replicas keeps the SLO."]
    sizes = " to ".join(dict.fromkeys(str(row[f"replicas_{end}"] + spare) for end in ENDS))
    replicas = f"{sizes} replica{'' if sizes == '1' else 's'} where it is busiest"
    usd = "" if row["usd"] is None else " to ".join(dict.fromkeys(f"${row[f'usd_{end}']:,.0f}" for end in ENDS))
    return [f"T{interval[1:]} is {replicas}{usd and f', {usd} in all'}."]


def _one_less(best: FleetPlan, check: FleetCheck) -> str:
    """Say what one replica less keeps, and why it is not chosen where that would be enough."""
    if check.within_one_less is None:
        return ""
    if check.within_one_less >= check.share and not check.keeps_one_less:
        return "; one less is overloaded"
    asked = f", but the headroom of {best.sizing.headroom:.0%} asks for {counted(check.replicas, 'replica')}"
    enough = check.keeps_one_less and best.sizing.headroom > 0
    return f"; with one less, {check.within_one_less:.1%}{asked if enough else ''}"


def _failed(check: FleetCheck) -> str:
    kept = "is overloaded" if check.within >= check.share else f"keeps it for {check.within:.1%} of requests only"
    return f"A cheaper {check.kind} fleet of {check.replicas} {kept}, in month {check.month}."


def comparison(plans: Sequence[FleetPlan]) -> list[str]:
    """Say what each deployment's fleets cost in all."""
    said = []
    for each in plans:
        usd = [f"{kind} ${each.usd(kind):,.0f}" for kind in each.kinds if math.isfinite(each.usd(kind))]
        pools = ", in pools" if each.is_pooled else ""
        said.append(f"{each.scenario.deployment}{pools}: over all months {', '.join(usd) or 'no price'}.")
    return said


def assumptions(best: FleetPlan) -> list[str]:
    """Say what the plan assumes, what a fleet serves, and what is rented at most."""
    sizing, demand, scenario = best.sizing, best.demand, best.scenario
    most = max(each.most for each in best.months)
    rented = scenario.packing(most).describe() if scenario.offers else "no price"
    scaled = "" if len(best.kinds) == 1 else " Scheduled and autoscaled fleets pay for what is up, start included."
    replicas = best.most_at(best.busiest)
    each = best.rates.rate_per_s(replicas) / replicas
    router = f", {significant(each)}/s as one of {replicas} behind a {best.rates.router} router" if replicas > 1 else ""
    alone = best.rates.rate_per_s(1) if best.rates.least == 1 else best.rates.known.rate_per_s
    sessions = f" in {best.rates.sessions}" if best.rates.sessions.turns > 1 else ""
    growing = f", growing {demand.growth_per_month:.0%} a month" if demand.growth_per_month else ""
    load = demand.in_month(1).describe()
    return [
        f"{load[:1].upper()}{load[1:]}{sessions}{growing}; "
        f"headroom {sizing.headroom:.0%}, {sizing.spare} spare, cold start {best.scaling.cold_start_s:.0f} s.",
        f"A replica serves {significant(alone)}/s {best.scenario.slo.within}{router}.",
        *(["Months between: --format json, csv."] if demand.growth_per_month and demand.months > SHOWN_MONTHS else []),
        f"At most: {rented}.{scaled}",
        *([ELECTRICITY] if best.pays_electricity else []),
    ]


def months_view(best: FleetPlan, title: str, shown: int = SHOWN_MONTHS) -> View:
    """Return a row for about as many months as `shown`: rates, and replicas and dollars of each kind of fleet."""
    rows: list[Row] = []
    months, grows = best.demand.months, bool(best.demand.growth_per_month)
    for month in sorted({*range(1, months + 1, math.ceil(months / shown)), months}) if grows else (1,):
        fleets = [each for each in best.months if each.month == month]
        label = str(month) if grows or months == 1 else f"1-{months}"
        rates = {"month": label, "mean_per_s": fleets[0].mean_per_s, "peak_per_s": fleets[0].peak_per_s}
        sizes = {f"{each.kind}_replicas": _sizes(each.least, each.most) for each in fleets}
        rows.append({**rates, **sizes, **{f"{each.kind}_usd": each.usd for each in fleets}})
    columns = [Column("month", "month", str), Column("mean_per_s", "mean/s", number(3))]
    if any(row["peak_per_s"] > row["mean_per_s"] for row in rows):
        columns.append(Column("peak_per_s", "peak/s", number(3)))
    for kind in (each for each in best.kinds if each == "static" or best.usd(each) != best.usd("static")):
        columns += [Column(f"{kind}_replicas", kind, str), Column(f"{kind}_usd", "$", count)]
    return View(title, columns, rows)


def _sizes(least: int, most: int) -> str:
    return str(most) if least == most else f"{least}-{most}"

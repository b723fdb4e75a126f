"""Columns of an answer against hosted APIs: their prices, what the load costs there, and from where own ones pay."""

from typing import NamedTuple

from simulator.cli.numbers import count, number
from simulator.cli.output import Column, Row, View
from simulator.cost.api_prices import ApiPrice, api_prices, edition
from simulator.cost.break_even import SelfHosting, hosted_usd_per_month
from simulator.cost.capacity import Answer
from simulator.hardware.prices import Terms

SHOWN = 8  # most providers in the text, of all models together; json has all


class Hosted(NamedTuple):
    """A model behind hosted APIs, as rows, the table and sentences."""

    rows: list[Row]
    views: list[View]
    notes: list[str]


def hosted(found: list[Answer], terms: Terms) -> Hosted:
    """Return what the asked load costs at each provider, and from which volume on the best answer costs less.

    The best answer of each model is compared: the first of it that keeps the SLO.
    """
    rows: list[Row] = []
    notes: list[str] = []
    models = {each.scenario.deployment.model.id: each for each in reversed(found) if each.replicas}
    for best in reversed(models.values()):
        own, prices = SelfHosting(best), prices_for(best, terms)
        rows += [_row(own, price) for price in prices]
        if prices and best.packing:
            cheapest = min(prices, key=lambda price: usd_per_request(best, price))
            said = own.verdict(usd_per_request(best, cheapest), cheapest.provider)
            notes.append(f"{best.scenario.deployment.model.id}: {said}" if len(models) > 1 else said)
        elif not prices:
            notes.append(f"No hosted API of {best.scenario.deployment.model.id} is known to genai-prices.")
    rows.sort(key=lambda row: row["usd_per_month"])
    notes.append(f"Hosted prices: {edition(terms.on)}; at list price, without rate limits or latency bounds.")
    named = list(dict.fromkeys(row["model"] for row in rows))
    most = max(1, SHOWN // max(1, len(named)))
    of_each = {model: [row for row in rows if row["model"] == model] for model in named}
    views = [_view(model if len(named) > 1 else "", of, most) for model, of in of_each.items()]
    return Hosted(rows, views, notes)


def prices_for(found: Answer, terms: Terms) -> list[ApiPrice]:
    """Return the hosted prices of an answer's model on the day of the question."""
    model, report = found.scenario.deployment.model, found.report
    prompt_tokens = round(report.input_tokens / report.completed)
    return api_prices((model.id, model.name), terms.on, prompt_tokens)


def usd_per_request(found: Answer, price: ApiPrice) -> float:
    """Return what a mean request of an answer's load costs at a hosted API, in US dollars.

    Prompts' tokens that the own prefix cache has are read from the provider's cache, too.
    """
    report = found.report
    tokens = report.input_tokens / report.completed, report.output_tokens / report.completed
    return price.usd(*tokens, report.prefix_hit_rate)


def _row(own: SelfHosting, price: ApiPrice) -> Row:
    found, usd = own.found, usd_per_request(own.found, price)
    above, batch = own.break_even(usd), price.batch
    month = hosted_usd_per_month(usd, found.rate_per_s)
    return {
        "model": found.scenario.deployment.model.id,
        "provider": price.provider,
        "hosted_model": price.model,
        "input_usd_per_million": price.input_usd_per_million,
        "cached_usd_per_million": price.cached_usd_per_million,
        "output_usd_per_million": price.output_usd_per_million,
        "batch_input_usd_per_million": price.batch_input_usd_per_million,
        "batch_output_usd_per_million": price.batch_output_usd_per_million,
        "usd_per_month": month,
        "batch_usd_per_month": batch and month * usd_per_request(found, batch) / usd,
        "break_even_tokens_per_day": above and above.tokens_per_day,
        "break_even_rate_per_s": above and above.rate_per_s,
        "break_even_utilisation": above and above.utilisation,
    }


def _view(model: str, rows: list[Row], most: int) -> View:
    """Return the table of the cheapest providers of a model, which is named unless it is empty."""
    dollars = number(3)
    columns = [
        Column("provider", "provider", left=True),
        Column("input_usd_per_million", "$/M in", dollars),
        Column("cached_usd_per_million", "cached", dollars),
        Column("output_usd_per_million", "$/M out", dollars),
        Column("batch_output_usd_per_million", "batch out", dollars),
        Column("usd_per_month", "$/month", count),
        Column("break_even_tokens_per_day", "M/day", number(3, 1e-6)),
    ]
    shown = f", cheapest {most} of {len(rows)}" if len(rows) > most else ""
    title = f"Hosted APIs{f' of {model}' if model else ''}{shown} (M/day: million tokens above which own ones pay)"
    return View(title, columns, rows[:most])

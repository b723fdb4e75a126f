"""Answers in dollars: arithmetic of the texts, bills of simulated loads, break-even points, training."""

from typing import Any

from simulator.claims.cases import deployment, estimated, scenario
from simulator.cost.bill import Bill, bill, usd_per_million
from simulator.cost.training import equal_cost_tokens, training_of
from simulator.deployment.deployment import Deployment
from simulator.hardware.prices import cheapest
from simulator.units import DAY_S


def usd_per_token(usd_per_hour: float, tokens_per_s: float) -> float:
    """Return US dollars per token of a device that makes so many tokens per second, all the time.

    At $1.19/h and 4,000 tokens/s, 1,000 tokens cost $0.000083.

    >>> f"{1000 * usd_per_token(1.19, 4000):.6f}"
    '0.000083'
    """
    return usd_per_million(usd_per_hour, tokens_per_s) / 1e6


def ratio(value: float) -> float:
    """Return a value of the texts, for a check that divides it by another."""
    return value


def billed(key: str, **options: Any) -> float:
    """Return a figure of the bill of one replica under a load, at the cheapest on-demand price."""
    value: float = getattr(_bill(options), key)
    return value


def _bill(options: dict[str, Any]) -> Bill:
    asked, report = scenario(options)
    return bill(report, report.requests_per_s, _usd_per_hour(asked.deployment))


def _usd_per_hour(served: Deployment) -> float:
    return _usd_per_device_hour(served.hardware.id) * served.devices


def _usd_per_device_hour(hardware: str) -> float:
    return cheapest(hardware).usd_per_device_hour


def split_ratio(**options: Any) -> float:
    """Return the cost of an output token over that of an input token, each charged with the busy time that it took."""
    found = _bill(options)
    return found.split_usd_per_million_output_tokens / found.split_usd_per_million_input_tokens


def api_share(usd_per_million_input: float, usd_per_million_output: float, **options: Any) -> float:
    """Return the share of a full replica's load from which on it costs less than an API with these prices.

    dollars per hour of the replica / dollars per hour of the API for the tokens of its highest load
    """
    asked, report = scenario(options)
    input_per_s = report.total_tokens_per_s - report.output_tokens_per_s
    usd_per_s = (input_per_s * usd_per_million_input + report.output_tokens_per_s * usd_per_million_output) / 1e6
    return _usd_per_hour(asked.deployment) / (3600 * usd_per_s)


def tpot_times_price(**options: Any) -> float:
    """Return the latency of a token for a dollar: TPOT of a batch alone x dollars per hour."""
    tpot_s = estimated(options).expected.tpot_s or float("nan")
    return tpot_s * _usd_per_hour(estimated(options).deployment)


def spent_share(training_usd: float, usd_per_day: float, days: float) -> float:
    """Return the dollars that inference has cost after some days over those of the training."""
    return usd_per_day * days / training_usd


def seconds_until(share: float, training_usd: float, usd_per_day: float) -> float:
    """Return the seconds until inference has cost a multiple `share` of the training."""
    return share * training_usd / usd_per_day * DAY_S


def training_usd(model: str, hardware: str, tokens: float) -> float:
    """Return the cost of training a model on a device, at the cheapest on-demand price."""
    options = {"model": model, "hardware": hardware}
    served = deployment(options)
    return training_of(served.model, served.hardware, tokens).usd(_usd_per_device_hour(hardware))


def served_over_trained_tokens(tokens: float, **options: Any) -> float:
    """Return the served tokens that cost as much as training, over the `tokens` that the model was trained on."""
    asked, _ = scenario(options)
    usd = training_usd(asked.deployment.model.id, asked.deployment.hardware.id, tokens)
    return equal_cost_tokens(usd, _bill(options).usd_per_million_total_tokens) / tokens

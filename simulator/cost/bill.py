"""The bill of a deployment under a load: dollars an hour, a month and per million tokens; idle time is paid for."""

from dataclasses import dataclass

from simulator.reports.report import Report

HOURS_PER_MONTH = 730.0  # 8,760 h / 12: the month of cloud price lists


@dataclass(frozen=True, slots=True)
class Bill:
    """Cost of a deployment under a load, in US dollars; idle time and empty devices are paid for like busy ones.

    A month has `HOURS_PER_MONTH` hours.
    `usd_per_million_*` divide the whole bill by the tokens of one kind. `split_usd_per_million_*` divide it between the
    kinds first: input tokens pay `prompt_share` of it (the share of the busy time that prefill took), output tokens the
    rest. `idle_share` is the share of the time in which no step runs. Shares are 0 to 1.
    """

    usd_per_hour: float
    usd_per_month: float
    usd_per_million_output_tokens: float
    usd_per_million_input_tokens: float
    usd_per_million_total_tokens: float
    split_usd_per_million_input_tokens: float
    split_usd_per_million_output_tokens: float
    prompt_share: float
    idle_share: float


def bill(report: Report, rate_per_s: float, usd_per_hour: float) -> Bill:
    """Return the bill of what costs `usd_per_hour` in all, and serves `rate_per_s` requests/s in all.

    usd per million tokens = usd per hour / (3600 x tokens per second) x 10^6, where tokens per second = `rate_per_s` x
    mean tokens per simulated request, of which a rejected one has none. `report` is the simulation of one replica; the
    rate is given apart, because the arrivals drawn for a finite run have a mean rate slightly off the asked one.
    """
    input_per_s, output_per_s = tokens_per_s(report, rate_per_s)
    share = report.prompt_share
    return Bill(
        usd_per_hour=usd_per_hour,
        usd_per_month=usd_per_hour * HOURS_PER_MONTH,
        usd_per_million_output_tokens=usd_per_million(usd_per_hour, output_per_s),
        usd_per_million_input_tokens=usd_per_million(usd_per_hour, input_per_s),
        usd_per_million_total_tokens=usd_per_million(usd_per_hour, input_per_s + output_per_s),
        split_usd_per_million_input_tokens=usd_per_million(usd_per_hour * share, input_per_s),
        split_usd_per_million_output_tokens=usd_per_million(usd_per_hour * (1 - share), output_per_s),
        prompt_share=share,
        idle_share=1 - report.utilisation,
    )


def tokens_per_s(report: Report, rate_per_s: float) -> tuple[float, float]:
    """Return the input and output tokens/s of `rate_per_s` requests/s like those of a report; rejected have none."""
    served_per_s = rate_per_s * (1 - report.rejected_share) / report.completed
    return served_per_s * report.input_tokens, served_per_s * report.output_tokens


def usd_per_million(usd_per_hour: float, tokens_per_s: float) -> float:
    """Return US dollars per million tokens: usd_per_hour / (tokens_per_s x 3600) x 10^6.

    A device at 1.19 $/h that makes 4,000 tokens/s: 8 cents per million.

    >>> round(usd_per_million(1.19, 4000), 3)
    0.083
    """
    return usd_per_hour / (tokens_per_s * 3600) * 1e6

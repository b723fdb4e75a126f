"""From seconds to dollars: what a million tokens costs when the devices are paid for around the clock."""

from dataclasses import dataclass

from simulator.reports.report import Report


@dataclass(frozen=True, slots=True)
class Bill:
    """Dollars of a deployment under a load, always on: idle time is paid for like busy time.

    `per_million_*` divide the whole bill by one kind of token. The split charges prompts with the share of the busy
    time that they took (`prompt_share`) and generated tokens with the rest; idle time is shared out alike.
    """

    usd_per_hour: float
    usd_per_million_output_tokens: float
    usd_per_million_input_tokens: float
    usd_per_million_total_tokens: float
    split_usd_per_million_input_tokens: float
    split_usd_per_million_output_tokens: float
    prompt_share: float
    idle_share: float


def bill(report: Report, rate_per_s: float, usd_per_hour: float, replicas: int = 1) -> Bill:
    """Return what a load costs on so many replicas, each at `usd_per_hour` and each under the reported load.

    dollars per million = dollars per hour / (tokens per second x 3600) x 10^6, with tokens per second = requests per
    second x mean tokens of the simulated ones: the gaps that were drawn for these have a rate of their own.
    """
    input_per_s, output_per_s = (
        rate_per_s * tokens / report.completed for tokens in (report.input_tokens, report.output_tokens)
    )
    share = report.prompt_share
    return Bill(
        usd_per_hour=usd_per_hour * replicas,
        usd_per_million_output_tokens=usd_per_million(usd_per_hour, output_per_s),
        usd_per_million_input_tokens=usd_per_million(usd_per_hour, input_per_s),
        usd_per_million_total_tokens=usd_per_million(usd_per_hour, input_per_s + output_per_s),
        split_usd_per_million_input_tokens=usd_per_million(usd_per_hour * share, input_per_s),
        split_usd_per_million_output_tokens=usd_per_million(usd_per_hour * (1 - share), output_per_s),
        prompt_share=share,
        idle_share=1 - report.utilisation,
    )


def usd_per_million(usd_per_hour: float, tokens_per_s: float) -> float:
    """Return the price of a million tokens at a price per hour.

    An A100 at 1.19 $/h with 4,000 tokens/s: 8 cents per million.

    >>> round(usd_per_million(1.19, 4000), 3)
    0.083
    """
    return usd_per_hour / (tokens_per_s * 3600) * 1e6

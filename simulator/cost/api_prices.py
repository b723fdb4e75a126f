"""Prices of the same open model behind hosted APIs, offline from the package genai-prices, dated."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

# Words of a name that say how the same weights were tuned or are served, not which they are.
SERVED = (
    "instruct",
    "it",
    "chat",
    "hf",
    "turbo",
    "fast",
    "fp8",
    "fp4",
    "nvfp4",
    "mxfp4",
    "maas",
    "versatile",
    "instant",
)
RESELLERS = ("github-copilot", "cursor")  # who charge for something else than tokens
BATCH = {"processing": "batch"}


@dataclass(frozen=True)
class ApiPrice:
    """Price of a model at a provider of a hosted API, in US dollars per million tokens.

    `cached_usd_per_million`: of prompt tokens that the provider has in its cache; `batch_*`: of answers within a day.
    None: the provider has no such price.
    """

    provider: str
    model: str
    input_usd_per_million: float
    output_usd_per_million: float
    cached_usd_per_million: float | None = None
    batch_input_usd_per_million: float | None = None
    batch_output_usd_per_million: float | None = None

    def usd(self, input_tokens: float, output_tokens: float, cached_share: float = 0.0) -> float:
        """Return the US dollars for some tokens, of whose prompts a share, 0 to 1, is read from the provider's cache.

        >>> ApiPrice("A", "a", 0.5, 2.0, 0.1).usd(2e6, 1e6), ApiPrice("A", "a", 0.5, 2.0, 0.1).usd(2e6, 1e6, 0.5)
        (3.0, 2.6)
        """
        cached = self.input_usd_per_million if self.cached_usd_per_million is None else self.cached_usd_per_million
        per_input = self.input_usd_per_million * (1 - cached_share) + cached * cached_share
        return (input_tokens * per_input + output_tokens * self.output_usd_per_million) / 1e6

    @property
    def batch(self) -> "ApiPrice | None":
        """The price of batches as one of its own; None where the provider has none for both kinds of tokens."""
        per_input, per_output = self.batch_input_usd_per_million, self.batch_output_usd_per_million
        if per_input is None or per_output is None:
            return None
        return ApiPrice(self.provider, self.model, per_input, per_output)


def api_prices(names: Iterable[str], on: date, prompt_tokens: int = 1000) -> list[ApiPrice]:
    """Return what providers take for a model on a day, lowest sum of input and output price first; one per provider.

    `names` are those of the model, `prompt_tokens` matters where long prompts cost more. Left out are models that a
    provider calls deprecated, prices of nothing, and who does not charge by tokens. Names are compared without
    organisation, punctuation and the words of `SERVED`.

    >>> found = api_prices(["openai/gpt-oss-120b"], date(2026, 11, 23))
    >>> [(each.input_usd_per_million, each.batch_output_usd_per_million) for each in found if each.provider == "Groq"]
    [(0.15, 0.3)]
    """
    keys = {model_key(name) for name in names}
    found: dict[str, ApiPrice] = {}
    for provider, info in _models():
        if model_key(info.id) in keys and (price := _price(provider, info, on, prompt_tokens)):
            found[provider] = min(found.get(provider, price), price, key=_sum)
    return sorted(found.values(), key=_sum)


def model_key(name: str) -> str:
    """Return a model's name without organisation, punctuation, and words that do not tell weights apart.

    What follows a colon is a service of its own, but for the versions of Bedrock.

    >>> model_key("meta-llama/Llama-3.3-70B-Instruct-Turbo"), model_key("@cf/meta/llama-3.3-70b-instruct-fp8-fast")
    ('llama3370b', 'llama3370b')
    >>> model_key("meta.llama3-3-70b-instruct-v1:0"), model_key("meta-llama/llama-3.3-70b-instruct:free")
    ('llama3370b', 'llama3370bfree')
    """
    last = re.sub(r"^[a-z]+\.|-v\d+:\d+$", "", name.lower().rpartition("/")[-1])
    return "".join(word for word in re.split(r"[^a-z0-9]+", last) if word not in SERVED)


def edition(on: date) -> str:
    """Return which prices these are: the package's version, and the newest day that they name up to a day, if any."""
    newest = max((day for day in _days() if day <= on.isoformat()), default="")
    return f"genai-prices {version('genai-prices')}" + (f", checked up to {newest} at least" if newest else "")


@cache
def _models() -> tuple[tuple[str, "ModelInfo"], ...]:
    from genai_prices.data import providers  # noqa: PLC0415  takes a third of a second

    listed = (each for each in providers if each.id not in RESELLERS)
    return tuple((each.name, info) for each in listed for info in each.models if not info.deprecated)


@cache
def _days() -> tuple[str, ...]:
    """Return the days that comments on prices name, as ISO dates."""
    return tuple(day for _, info in _models() for day in re.findall(r"\b20\d\d-\d\d-\d\d\b", info.price_comments or ""))


def _price(provider: str, info: "ModelInfo", on: date, prompt_tokens: int) -> ApiPrice | None:
    day = datetime.combine(on, time(12), UTC)
    standard, batch = info.get_prices(day), info.get_prices(day, BATCH)
    prices = list(_usd((standard, batch), prompt_tokens))
    if not prices[0] or not prices[1]:
        return None
    has_batch = prices[3:] != prices[:2]
    return ApiPrice(provider, info.id, prices[0], prices[1], prices[2], *(prices[3:] if has_batch else (None, None)))


def _usd(prices: tuple["ModelPrice", "ModelPrice"], prompt_tokens: int) -> Iterator[float | None]:
    """Yield input, output and cached price, then input and output price of batches."""
    standard, batch = prices
    for price, name in (
        (standard, "input"),
        (standard, "output"),
        (standard, "cache_read"),
        (batch, "input"),
        (batch, "output"),
    ):
        value: Any = getattr(price, f"{name}_mtok", None)
        if value is not None and not isinstance(value, Decimal):  # tiers by the length of the prompt
            tiers = [tier.price for tier in value.tiers if prompt_tokens > tier.start]
            value = tiers[-1] if tiers else value.base
        yield None if value is None else float(value)


def _sum(price: ApiPrice) -> float:
    return price.input_usd_per_million + price.output_usd_per_million

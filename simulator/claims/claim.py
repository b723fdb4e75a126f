"""A claim of introductory texts: what it says, the scenario that answers it, the claimed range of each figure."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from simulator.errors import InfercastError, ProfileError
from simulator.profile import Profile, Strict
from simulator.units import DAY_S, GB, KB

Options = Mapping[str, Any]
ABOUT = 1.25  # "about N" is N / 1.25 to 1.25 N
UNITS = {  # SI units in one of the unit in which a figure is claimed and shown
    **{"x": 1.0, "%": 0.01, "tokens": 1.0, "at once": 1.0, "GB": GB, "kB": KB, "s": 1.0, "ms": 1e-3},
    **{"tok/s": 1.0, "USD": 1.0, "$/M": 1e-6, "years": 365 * DAY_S},
}
Unit = Literal["x", "%", "tokens", "at once", "GB", "kB", "s", "ms", "tok/s", "USD", "$/M", "years"]
ClaimKind = Literal["rule of thumb", "figure", "arithmetic", "price"]


class ClaimedFigure(Strict):
    """One computed figure, and the range in which a claim has it, in `unit`: from `least` to `most`, or `about`.

    `answer` names the computation (answers.py), `given` its options beside those of the claim. `over`: the figure is
    divided by the same one with these options instead. Without a range the figure only shows how the claim depends on
    its case. Raises ProfileError for a range that is given twice or is empty.
    """

    case: str
    answer: str
    given: dict[str, Any] = {}
    over: dict[str, Any] = {}
    unit: Unit
    about: float | None = None
    least: float | None = None
    most: float | None = None

    @model_validator(mode="after")
    def _check(self) -> "ClaimedFigure":
        if self.about is not None and (self.least, self.most) != (None, None):
            raise ProfileError(f"about {self.about:g} of {self.case!r}", "least or most is given too", "Give one form")
        low, high = self.range
        if low > high:
            raise ProfileError(f"{low:g} to {high:g} of {self.case!r}", "the range is empty", "Exchange the ends")
        return self

    @property
    def is_claimed(self) -> bool:
        """Whether a claim has a range for the figure."""
        return (self.about, self.least, self.most) != (None, None, None)

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest claimed value, in `unit`; infinite where the claim has no such end."""
        if self.about is not None:
            return self.about / ABOUT, self.about * ABOUT
        return -math.inf if self.least is None else self.least, math.inf if self.most is None else self.most


class Claim(Strict):
    """One claim in the project's own words; `given` are the options that its checks share.

    `because` is one sentence on the physics, in which {0}, {1} ... are the figures of the checks.
    """

    number: Annotated[int, Field(ge=1)]
    topic: str
    title: str
    claim: str
    scenario: str
    kind: ClaimKind
    given: dict[str, Any] = {}
    checks: Annotated[tuple[ClaimedFigure, ...], Field(min_length=1)]
    because: str

    @model_validator(mode="after")
    def _check(self) -> "Claim":
        if not any(each.is_claimed for each in self.checks):
            because = "none of its checks has a range, so no verdict follows"
            raise ProfileError(f"claim {self.number}", because, "Give least, most or about")
        return self


class Claims(Profile):
    """All claims, in the order of their numbers."""

    claims: tuple[Claim, ...]


def load_claims() -> tuple[Claim, ...]:
    """Return the claims of claims.yaml.

    >>> len(load_claims())
    33
    """
    return Claims.from_yaml(Path(__file__).with_name("claims.yaml")).claims


def chosen(numbers: tuple[int, ...]) -> tuple[Claim, ...]:
    """Return the claims of some numbers, all for none. Raises InfercastError for a number that no claim has.

    >>> [each.topic for each in chosen((10, 23))]
    ['KV cache', 'cost']
    """
    known = {each.number: each for each in load_claims()}
    for number in numbers:
        if number not in known:
            because = f"they are numbered {min(known)} to {max(known)}"
            raise InfercastError(f"claim {number}", because, "`infercast claims` lists them")
    return tuple(known[number] for number in numbers) if numbers else tuple(known.values())

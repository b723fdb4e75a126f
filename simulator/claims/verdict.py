"""Verdicts on claims: computed figures against claimed ranges, and the reason with the figures in it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from simulator.claims.answers import figure
from simulator.claims.claim import UNITS, Claim, ClaimedFigure, chosen
from simulator.frames import Framed, frame
from simulator.limits import known

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Finding:
    """A check with its computed figure, in SI units."""

    check: ClaimedFigure
    value: float

    @property
    def shown(self) -> float:
        """The figure in the unit of the check."""
        return self.value / UNITS[self.check.unit]

    @property
    def holds(self) -> bool | None:
        """Whether the figure lies in the claimed range; None where the claim has none."""
        low, high = self.check.range
        return low <= self.shown <= high if self.check.is_claimed else None

    def __str__(self) -> str:
        return in_unit(self.shown, self.check.unit)


def in_unit(value: float, unit: str) -> str:
    """Return a figure as text, of three significant digits.

    >>> in_unit(4.9921, "x"), in_unit(7.0, "%"), in_unit(1365273.1, "USD"), in_unit(math.inf, "ms")
    ('4.99 x', '7 %', '1,370,000 USD', 'without end')
    """
    if math.isinf(value):
        return "without end"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.10g} {unit}" if abs(rounded) >= 1e-4 or not rounded else f"{rounded:.2e} {unit}"


def claimed(check: ClaimedFigure) -> str:
    """Return the claimed range as text; "" where a check has none.

    >>> claimed(ClaimedFigure(case="", answer="ratio", unit="ms", least=50, most=100))
    '50–100 ms'
    """
    if not check.is_claimed:
        return ""
    low, high = (f"{end:,g}" for end in check.range)
    if check.about is not None:
        words = f"about {check.about:,g}"
    elif check.least is None or check.most is None:
        words = f"≤ {high}" if check.least is None else f"≥ {low}"
    else:
        words = f"{low}–{high}"
    return f"{words} {check.unit}"


@dataclass(frozen=True)
class Verdict:
    """A claim with what was computed for it."""

    claim: Claim
    findings: tuple[Finding, ...]

    @cached_property
    def judged(self) -> list[Finding]:
        """The findings for which the claim has a range."""
        return [each for each in self.findings if each.holds is not None]

    @property
    def holding(self) -> int:
        """How many of the claimed figures lie in their ranges."""
        return sum(bool(each.holds) for each in self.judged)

    @property
    def short(self) -> str:
        """The verdict in a few words: "holds", "holds 2 of 3" or "does not hold"."""
        if not self.holding:
            return "does not hold"
        return "holds" if self.holding == len(self.judged) else f"holds {self.holding} of {len(self.judged)}"

    @property
    def text(self) -> str:
        """The verdict, with the cases where it holds if these are not all."""
        cases = "; ".join(each.check.case for each in self.judged if each.holds)
        return f"holds only for: {cases}" if self.short.startswith("holds ") else self.short

    @property
    def decisive(self) -> Finding:
        """The first claimed figure outside of its range, or the first of all."""
        return next((each for each in self.judged if not each.holds), self.judged[0])

    @property
    def reason(self) -> str:
        """Why, in a sentence, with the computed figures."""
        return self.claim.because.format(*self.findings)


@dataclass(frozen=True, slots=True, repr=False)
class Verdicts(Framed):
    """Verdicts in the order of the claims' numbers."""

    verdicts: list[Verdict]

    def to_frame(self) -> "pd.DataFrame":
        """Return one row per check: claim, claimed range and figure in `unit`, whether it holds, verdict and reason."""
        return frame(row for verdict in self.verdicts for row in rows(verdict))


def rows(verdict: Verdict) -> list[dict[str, object]]:
    """Return the checks of a claim as rows; ends of a range that the claim leaves open are None."""
    claim = verdict.claim
    told = {"number": claim.number, "topic": claim.topic, "claim": claim.claim, "verdict": verdict.text}
    return [
        {
            **told,
            "reason": verdict.reason,
            "scenario": claim.scenario,
            "kind": claim.kind,
            "case": each.check.case,
            **{f"claimed_{name}": None if math.isinf(end) else end for name, end in _ends(each.check)},
            "computed": known(each.shown),
            "unit": each.check.unit,
            "holds": each.holds,
        }
        for each in verdict.findings
    ]


def _ends(check: ClaimedFigure) -> Iterable[tuple[str, float]]:
    return zip(("low", "high"), check.range, strict=True)


def judge_claims(*numbers: int) -> Verdicts:
    """Return the verdicts on the claims with some numbers, on all 33 without any.

    A claimed figure holds where the computed one lies in its range; "about N" is N / 1.25 to 1.25 N. A claim holds
    where all of its figures do, and only for some cases where some do. Raises InfercastError for an unknown number.

    >>> judge_claims(23).verdicts[0].text
    'does not hold'
    """
    return Verdicts(
        [
            Verdict(claim, tuple(Finding(each, figure(claim, each)) for each in claim.checks))
            for claim in chosen(numbers)
        ]
    )

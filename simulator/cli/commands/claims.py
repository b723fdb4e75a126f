"""`infercast claims`: what introductory texts teach about inference, each claim with its value and a verdict."""

from typing import Annotated

import typer

from simulator.claims.answers import claim_commands, figures_behind_claim
from simulator.claims.verdict import Verdict, claimed, judge_claims, rows
from simulator.cli.options.deployment_options import OutputFormat, Profiles, use_profiles
from simulator.cli.output import Column, Result, Row, View, emit
from simulator.cli.text_layout import Command, Format

NOTE = (
    "Shown is the first figure of a claim that is not as claimed, or else its first; about N: N / 1.25 to 1.25 N.",
    "infercast claims 4 shows all figures of claim 4, its scenario, the reason and the commands that give them.",
)


def command(
    numbers: Annotated[
        list[int] | None, typer.Argument(metavar="[NUMBER]...", help="Claims to show in full; all in a table without.")
    ] = None,
    own: Profiles = None,
    form: OutputFormat = Format.TEXT,
) -> None:
    """Compute what introductory texts teach about inference, and say what holds.

    Each verdict compares computed figures with the claimed range, so a change of a profile can change it.
    """
    use_profiles(own)
    found = judge_claims(*(numbers or ())).verdicts
    checks: list[Row] = [row for each in found for row in rows(each)]
    sections = {"claims": [_claim(each) for each in found], "checks": checks}
    if numbers:
        used = list(dict.fromkeys(figure for each in found for figure in figures_behind_claim(each.claim)))
        emit(
            Result(
                sections, [_details(each) for each in found], [line for each in found for line in _told(each)], used
            ),
            form,
        )
    else:
        emit(Result(sections, [_table(found)], [_counted(found), *NOTE]), form)


def _claim(verdict: Verdict) -> Row:
    claim = verdict.claim
    return {
        "number": claim.number,
        "topic": claim.topic,
        "title": claim.title,
        "claim": claim.claim,
        "claimed": claimed(verdict.decisive.check),
        "computed": str(verdict.decisive),
        "verdict": verdict.text,
        "short": verdict.short,
        "reason": verdict.reason,
        "scenario": claim.scenario,
        "kind": claim.kind,
    }


TABLE = (
    Column("number", "#"),
    Column("title", "claim", left=True),
    Column("claimed", "claimed"),
    Column("computed", "computed"),
    Column("short", "verdict", left=True),
)
CHECKS = (
    Column("case", "case", left=True),
    Column("claimed", "claimed"),
    Column("computed", "computed"),
    Column("holds", "holds", left=True),
)


def _table(found: list[Verdict]) -> View:
    return View(f"{len(found)} claims of introductory texts", TABLE, [_claim(each) for each in found])


def _details(verdict: Verdict) -> View:
    words = {True: "yes", False: "no", None: ""}
    shown: list[Row] = [
        {
            "case": each.check.case,
            "claimed": claimed(each.check),
            "computed": str(each),
            "holds": words[each.holds],
        }
        for each in verdict.findings
    ]
    claim = verdict.claim
    return View(f"{claim.number}. {claim.topic}, {claim.title}: {verdict.short}", CHECKS, shown)


def _told(verdict: Verdict) -> list[str]:
    """Return the lines under the table of a claim: what it says, in which scenario, why it holds or not, commands."""
    claim, number = verdict.claim, verdict.claim.number
    said = {"claim": claim.claim, "scenario": f"{claim.scenario}.", "reason": verdict.reason}
    return [
        *(f"{number}. {word.capitalize()}: {text}" for word, text in said.items()),
        *map(Command, claim_commands(claim)),
    ]


def _counted(found: list[Verdict]) -> str:
    whole, none = (sum(each.short == word for each in found) for word in ("holds", "does not hold"))
    return f"{whole} hold, {len(found) - whole - none} hold for some of their figures, {none} do not hold."

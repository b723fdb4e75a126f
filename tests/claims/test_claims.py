"""The claims of introductory texts: every verdict is computed, today's are pinned, and a profile can change one."""

import csv
import io
import shlex
from pathlib import Path

import pytest

from simulator import judge_claims
from simulator.claims.answers import ANSWERS, claim_commands, figure
from simulator.claims.claim import Claim, ClaimedFigure, load_claims
from simulator.claims.verdict import Finding, Verdict, Verdicts
from simulator.errors import ProfileError
from tests.support.commands import answer, printed, refused

VERDICTS = {
    **{1: "holds 1 of 2", 2: "holds 3 of 4", 3: "holds 3 of 4", 4: "does not hold", 5: "holds 1 of 3", 6: "holds"},
    **{7: "does not hold", 8: "does not hold", 9: "holds", 10: "holds", 11: "holds 2 of 5", 12: "holds 8 of 11"},
    **{13: "holds 1 of 4", 14: "holds 2 of 3", 15: "holds", 16: "holds 4 of 6", 17: "holds", 18: "holds 3 of 7"},
    **{19: "holds 1 of 8", 20: "holds 3 of 4", 21: "holds 2 of 6", 22: "holds 3 of 5", 23: "does not hold"},
    **{24: "holds 3 of 5", 25: "holds", 26: "holds 1 of 3", 27: "holds 5 of 8", 28: "holds", 29: "holds"},
    **{30: "holds", 31: "holds", 32: "holds 3 of 5", 33: "does not hold"},
}


@pytest.fixture(scope="module")
def judged() -> Verdicts:
    return judge_claims()


def test_todays_verdicts(judged):
    assert {each.claim.number: each.short for each in judged.verdicts} == VERDICTS


def test_the_arithmetic_of_the_texts_is_checked():
    """Claim 23: 1.19 / (4,000 x 3,600) x 1,000 and 1.99 / (10,000 x 3,600) x 1,000; a year of $50 is $18,250."""
    first, second = (each.value for each in judge_claims(23).verdicts[0].findings)
    assert first * 1000 == pytest.approx(0.000083, abs=5e-7)
    assert second * 1000 == pytest.approx(0.000055, abs=5e-7)
    assert judge_claims(33).verdicts[0].findings[0].value == pytest.approx(18_250 / 100_000)


def test_a_verdict_follows_from_the_figure_and_the_range_alone():
    check = ClaimedFigure(case="a case", answer="ratio", unit="ms", least=50, most=100)
    assert [Finding(check, value_s).holds for value_s in (0.0499, 0.05, 0.1, 0.1001)] == [False, True, True, False]
    about = ClaimedFigure(case="another", answer="ratio", unit="x", about=10)
    assert [Finding(about, value).holds for value in (7.99, 8.0, 12.5, 12.51)] == [False, True, True, False]
    claim = Claim(number=1, checks=(check, about), **TOLD)

    def verdict(*values: float) -> Verdict:
        return Verdict(claim, tuple(map(Finding, claim.checks, values)))

    assert verdict(0.07, 10.0).text == "holds"
    assert verdict(0.07, 1.0).text == "holds only for: a case"
    assert verdict(0.01, 1.0).text == "does not hold"
    assert verdict(0.07, 1.0).reason == "it is 70 ms and 1 x"


TOLD = {"topic": "", "title": "", "claim": "", "scenario": "", "kind": "figure", "because": "it is {0} and {1}"}
PRICES = """
provider: Someone
sources: {own: {text: a test, date: "2026-11", evidence: given}}
offers:
  - {hardware: l40s, devices: 1, instance: one, commitment: on-demand, usd_per_hour: {value: 0.3 USD/h, source: own}}
"""


def test_a_price_changes_a_verdict(tmp_path: Path):
    """Claim 22: with an L40S for a third of its price it has the better latency per dollar, and throughput too."""
    folder = tmp_path / "hardware_profiles" / "prices"
    folder.mkdir(parents=True)
    (folder / "someone.yaml").write_text(PRICES)
    before, after = (answer("claims", "22", *own)["checks"][-2:] for own in ((), ("--profiles", str(tmp_path))))
    assert [each["holds"] for each in before] == [False, True]
    assert [each["holds"] for each in after] == [True, False]


def test_every_computation_is_asked_for():
    asked = {check.answer for claim in load_claims() for check in claim.checks}
    assert asked == set(ANSWERS)


def test_numbers_are_1_to_33():
    assert [claim.number for claim in load_claims()] == list(range(1, 34))


@pytest.mark.parametrize("number", [4, 14])
def test_printed_commands_have_the_figures(number):
    """The command under a claim, of `estimate` or of `simulate`, has its figure to the last digit as a key of JSON."""
    [verdict] = judge_claims(number).verdicts
    words, key = claim_commands(verdict.claim)[0].split("  # ")
    found = answer(*shlex.split(words)[1:])
    rows = found.get("estimates") or found["simulations"]
    assert rows[0][key] == verdict.findings[0].value


def test_a_misspelt_option_of_a_claim_is_refused():
    given = {"key": "ttft_s", "model": "llama-2-7b", "hardware": "a10", "promt": "500"}
    check = ClaimedFigure(case="", answer="estimate", given=given, unit="s", about=1)
    with pytest.raises(ProfileError, match="option 'promt' of a claim"):
        figure(Claim(number=1, checks=(check,), **TOLD), check)


def test_the_table_has_80_columns_and_33_verdicts():
    table = printed("claims").split("\n\n")[0].splitlines()
    assert [int(line.split()[0]) for line in table[3:]] == list(range(1, 34))
    assert max(map(len, table)) <= 80


@pytest.mark.slow
def test_the_figures_and_the_commands_of_each_claim_have_80_columns(judged):
    numbers = [str(each.claim.number) for each in judged.verdicts]
    assert max(map(len, printed("claims", *numbers, COLUMNS="80").splitlines())) <= 80


def test_json_and_csv_have_claim_value_verdict_and_reason():
    whole = answer("claims", "23", "26")
    assert [(each["number"], each["verdict"]) for each in whole["claims"]] == [
        (23, "does not hold"),
        (26, "holds only for: wait after 10 s at 110/s"),
    ]
    assert whole["checks"][-1]["computed"] is None  # a queue without end is no number in JSON
    rows = list(csv.DictReader(io.StringIO(printed("claims", "23", "--format", "csv"))))
    assert [float(row["computed"]) for row in rows] == [each["computed"] for each in whole["checks"][:2]]
    assert all(row[key] for row in rows for key in ("claim", "verdict", "reason", "case", "unit"))


def test_an_unknown_number_is_refused():
    assert "claim 34: they are numbered 1 to 33" in refused("claims", "34")


def test_frames_have_a_row_for_each_figure(judged):
    frame = judged.to_frame()
    assert len(frame) == sum(len(each.claim.checks) for each in judged.verdicts)
    assert set(frame.loc[frame.number == 23, "verdict"]) == {"does not hold"}

"""What options may ask for, and what a result may hold: finite numbers in the range of what they mean."""

import math

import pytest

from simulator.cli.output import Column, Result, View, emit
from simulator.cli.text_layout import Format
from simulator.errors import InfercastError
from tests.support.commands import printed, refused

LOAD = ("--model", "smollm2-135m", "--hardware", "l4", "--isl", "64", "--osl", "8")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("form", Format)
def test_a_number_that_is_not_finite_is_told_as_a_bug(value: float, form: Format) -> None:
    row = {"ttft_s": value}
    shown = View("Latencies", [Column("ttft_s", "TTFT")], [row])
    for result in (Result({"simulations": [row]}, []), Result({}, [shown])):
        with pytest.raises(InfercastError, match="bug of infercast"):
            emit(result, form)


@pytest.mark.parametrize(
    ("command", "options", "told"),
    [
        ("simulate", ("--request-rate", "2", "--slo", "ttft:1e308s"), "--slo ttft:1e308s: more than 1e+10 in s"),
        ("simulate", ("--request-rate", "1e16"), "--request-rate 1e16: it is not a number up to"),
        ("simulate", ("--request-rate", "nan"), "--request-rate nan: it is not a number up to"),
        ("simulate", ("--request-rate", "2", "--num-prompts", "1000000000000000"), "--num-prompts 1000000000000000: "),
        ("simulate", ("--request-rate", "2", "--release-period", "1e300"), "--release-period 1e+300: it is not"),
        ("simulate", ("--max-concurrency", "9" * 5000), "it is not a number up to 2,147,483,647"),
        ("simulate", ("--request-rate", "2", "--replicas", "9" * 18), "it is not a number up to 2,147,483,647"),
        ("estimate", ("--batch", "1" + "0" * 12), "it is not a number up to 2,147,483,647"),
        ("estimate", ("--batch", "٣"), "it is not a whole number above 0"),
        ("estimate", ("--tp", "1" + "0" * 12), "it is not a number up to 2,147,483,647"),
        ("estimate", ("--cpu-offload-gb", "1e300"), "--cpu-offload-gb 1e+300: it is not a number up to"),
    ],
)
def test_a_number_beyond_what_it_means_is_refused(command: str, options: tuple[str, ...], told: str) -> None:
    assert told in refused(command, *LOAD, *options)


def test_requests_of_one_token_have_no_time_per_token() -> None:
    slo = ("--slo", "tpot:50ms")
    text = printed("simulate", *LOAD[:-1], "1", "--request-rate", "2", "--num-prompts", "20", *slo)
    assert "TPOT ms" in text
    assert "nan" not in text


def test_an_error_is_one_line_however_long_its_input() -> None:
    error = InfercastError("a\nb" + "x" * 10_000, "of\r\x1b[2J it", "Mend it")
    assert str(error).startswith("a bx")
    assert len(str(error)) < 2_100
    assert str(error).isprintable()

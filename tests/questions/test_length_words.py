"""Lengths in words: each kind is read, what is written is read again, and what names no lengths is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InfercastError, WorkloadError
from simulator.questions.length_words import distribution, in_words
from simulator.units import LEAST
from simulator.workloads.lengths import Distribution, Ended, Fixed, LogNormal, Quantiles, Recorded, Uniform

TOKENS = st.integers(1, 1_000_000)


def read(text: str, ratio: float = 0.0) -> Distribution:
    return distribution(text, ratio, "--isl", Uniform.around)


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("512", Fixed(512)),
        ("uniform:256:1024", Uniform(256, 1024)),
        ("lognormal:512:0.8", LogNormal(512, 0.8)),
        ("lognormal:512.5:0.8:4096", LogNormal(512.5, 0.8, 4096)),
        ("ended:180:256", Ended(180, 256)),
        ("quantiles:0=10,0.5=90,1=400", Quantiles(levels=(0, 0.5, 1), tokens=(10, 90, 400))),
    ],
)
def test_every_kind_is_read(text, lengths):
    assert read(text) == lengths


@pytest.mark.parametrize(
    ("text", "written"),
    [("4k", "4000 or 4096"), ("0.5K", "500 or 512"), ("1M", "1000000 or 1048576"), ("1e4", "10000"), ("0.1k", None)],
)
def test_units_are_written_out(text, written):
    """0.1k may be 100, but no whole number of 1,024."""
    with pytest.raises(WorkloadError, match=f"Write it out, --isl {written}" if written else "Give, say, --isl 512"):
        read(text)


def test_a_plain_length_is_spread_as_the_load_generator_does_it():
    assert read("512", 0.25) == Uniform.around(512, 0.25)
    below = distribution("1000", 0.8, "--osl", lambda nominal, ratio: Uniform(round(ratio * nominal), nominal))
    assert below == Uniform(800, 1000)


@st.composite
def lengths_of_any_kind(draw: st.DrawFn) -> Distribution:
    most = draw(TOKENS)
    mean = draw(st.floats(1, most))
    levels = sorted(draw(st.sets(st.floats(0.001, 0.999), max_size=5)))
    counts = sorted(draw(st.lists(TOKENS, min_size=len(levels) + 2, max_size=len(levels) + 2)))
    return draw(
        st.sampled_from(
            [
                Fixed(most),
                Uniform(max(1, int(mean)), most),
                LogNormal(mean, draw(st.just(0.0) | st.floats(LEAST, 3)), most),
                Ended(mean, most),
                Quantiles(levels=(0.0, *levels, 1.0), tokens=tuple(counts)),
            ]
        )
    )


@given(lengths_of_any_kind())
def test_what_is_written_is_read_again(lengths):
    assert read(in_words(lengths)) == lengths


def test_lengths_that_no_words_name_are_refused():
    with pytest.raises(WorkloadError, match="no words name such lengths"):
        in_words(Recorded(np.array([1]), np.array([1])))


@pytest.mark.parametrize(
    "text",
    [
        "normal:5:2",
        "uniform:5",
        "uniform:1:2:3",
        "lognormal:5",
        "lognormal:5:1:9:9",
        "ended:5",
        "quantiles:1=5:2",
        "x:5",
    ],
)
def test_what_names_no_lengths_is_refused_with_every_spelling(text):
    with pytest.raises(WorkloadError, match=r"it names no lengths. Write --isl 512, uniform:256:1024"):
        read(text)


@pytest.mark.parametrize(
    "text", ["five", "5.5", "", "uniform:5:9.5", "ended:5:x", "quantiles:0=1,1=2.5", "quantiles:0"]
)
def test_what_is_no_count_of_tokens_is_refused(text):
    with pytest.raises(InfercastError, match=r"--isl .*: it is not a whole number of tokens"):
        read(text)


@pytest.mark.parametrize("text", ["lognormal:x:1", "lognormal:5:y", "ended:x:5", "quantiles:low=5,1=6"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(InfercastError, match=r"--isl .*: it is not a number"):
        read(text)


@pytest.mark.parametrize("text", ["uniform:1:5", "lognormal:5:1", "ended:5:9", "quantiles:0=1,1=2"])
def test_a_ratio_beside_lengths_with_a_spread_is_refused(text):
    with pytest.raises(WorkloadError, match="its lengths have a spread of their own"):
        read(text, 0.1)


@pytest.mark.parametrize(
    "text", ["0", "-5", "uniform:9:5", "lognormal:0.5:1", "quantiles:0.5=1,1=2", "quantiles:0=5,1=1"]
)
def test_lengths_that_cannot_be_are_refused(text):
    with pytest.raises(InfercastError):
        read(text)

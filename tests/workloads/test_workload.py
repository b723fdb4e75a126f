"""Requests against their laws, arrivals against theory, presets against the traces they are fitted to."""

import importlib.util
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InfercastError, ProfileError, WorkloadError
from simulator.profile import find
from simulator.profile_folders import names
from simulator.workloads.arrivals import Arrivals, ClosedLoop, OpenLoop, RecordedArrivals
from simulator.workloads.lengths import Banded, Fixed, Independent, Lengths, LogNormal, Quantiles, Uniform
from simulator.workloads.traces import Trace, read_trace
from simulator.workloads.workload import KIND, Requests, Workload, WorkloadPreset, load_workload, split_by_prompt
from tests.support.paths import ROOT

PRESETS = ("chat", "code", "rag", "reasoning", "summarize")
TABLE = Quantiles(levels=(0, 0.5, 1), tokens=(1, 101, 1101))
SHORT_LONG = Independent(Uniform(1, 99), LogNormal(200, cv=1.5))

rates = st.floats(0.01, 1000)
shapes = st.sampled_from([0.25, 1.0, 3.0, math.inf])
counts = st.integers(1, 300)
seeds = st.integers(0, 2**63)
lengths: st.SearchStrategy[Lengths] = st.sampled_from(
    [
        Independent(Fixed(512), Fixed(128)),
        SHORT_LONG,
        Independent(TABLE, Uniform.around(1024, 0.3)),
        Banded(prompt=TABLE, output_by_prompt_band=(TABLE, Quantiles(levels=(0, 1), tokens=(5, 9)))),
    ]
)


def columns(requests: Requests) -> list[list[float]]:
    return [requests.arrival_s.tolist(), requests.prompt_tokens.tolist(), requests.output_tokens.tolist()]


# Laws


@given(shapes, st.integers(0, 99))
def test_short_and_long_prompts_are_parts_of_one_trace(shape, seed):
    load = Workload(OpenLoop(2.0, shape), SHORT_LONG, 400, seed)
    parts = split_by_prompt(load, 40)
    assert sum(each.arrivals.rate_per_s for each in parts) == pytest.approx(2.0)
    short, long = (each.requests() for each in parts)
    assert len(short) == len(long) == load.request_count
    assert short.prompt_tokens.max() <= 40 < long.prompt_tokens.min()
    whole = load.requests()
    rows = whole.prompt_tokens <= 40
    for part, inside in ((short, rows), (long, ~rows)):
        count = min(len(part), int(inside.sum()))
        assert part.arrival_s[:count] == pytest.approx(whole.arrival_s[inside][:count])
        assert (part.output_tokens[:count] == whole.output_tokens[inside][:count]).all()


@given(rates, shapes, lengths, counts, seeds)
def test_requests_are_a_sorted_frozen_contiguous_table(
    rate_per_s: float, burstiness: float, length: Lengths, count: int, seed: int
) -> None:
    requests = Workload(OpenLoop(rate_per_s, burstiness), length, count, seed).requests()
    assert len(requests) == count
    assert requests.arrival_s[0] == 0
    assert (np.diff(requests.arrival_s) >= 0).all()
    assert min(requests.prompt_tokens.min(), requests.output_tokens.min()) >= 1
    for array, kind in (
        (requests.arrival_s, np.float64),
        (requests.prompt_tokens, np.int64),
        (requests.output_tokens, np.int64),
    ):
        assert array.dtype == kind
        assert array.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


@given(rates, rates, shapes, seeds)
def test_two_rates_of_one_seed_differ_by_a_factor_only(one: float, other: float, burstiness: float, seed: int) -> None:
    load = Workload(OpenLoop(one, burstiness), SHORT_LONG, 200, seed)
    slow, fast = load.requests(), load.at_rate(other).requests()
    np.testing.assert_allclose(slow.arrival_s * one, fast.arrival_s * other, rtol=1e-12)
    assert columns(slow)[1:] == columns(fast)[1:]


@given(shapes, lengths, counts, st.integers(0, 300), seeds)
def test_fewer_requests_are_the_first_of_more(
    burstiness: float, length: Lengths, count: int, more: int, seed: int
) -> None:
    load = Workload(OpenLoop(3.0, burstiness), length, count, seed)
    longer = replace(load, request_count=count + more)
    assert columns(load.requests()) == [column[:count] for column in columns(longer.requests())]


@given(lengths, seeds)
def test_changing_one_part_leaves_the_others(length: Lengths, seed: int) -> None:
    load = Workload(OpenLoop(2.0), SHORT_LONG, 100, seed)
    other_lengths = replace(load, lengths=length).requests()
    assert other_lengths.arrival_s.tolist() == load.requests().arrival_s.tolist()
    other_outputs = replace(load, lengths=Independent(Uniform(1, 99), TABLE)).requests()
    assert other_outputs.prompt_tokens.tolist() == load.requests().prompt_tokens.tolist()
    other_prompts = replace(load, lengths=Independent(Fixed(5), LogNormal(200, cv=1.5))).requests()
    assert other_prompts.output_tokens.tolist() == load.requests().output_tokens.tolist()


def test_seeds_and_streams_are_independent() -> None:
    load = Workload(OpenLoop(2.0), Independent(TABLE, TABLE), 2000)
    one, two = load.requests(), replace(load, seed=1).requests()
    assert columns(one) == columns(load.requests())
    for a, b in (
        (one.prompt_tokens, one.output_tokens),
        (one.prompt_tokens, two.prompt_tokens),
        (np.diff(one.arrival_s), np.diff(two.arrival_s)),
    ):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / math.sqrt(2000)


# Arrivals


@pytest.mark.parametrize("burstiness", [0.2, 1.0, 4.0, math.inf])
def test_gaps_have_the_mean_and_variation_of_the_gamma(burstiness: float) -> None:
    count, rate_per_s = 200_001, 5.0
    gaps = np.diff(Workload(OpenLoop(rate_per_s, burstiness), SHORT_LONG, count).requests().arrival_s)
    cv = burstiness**-0.5
    assert gaps.mean() * rate_per_s == pytest.approx(1, abs=4 * cv / math.sqrt(count) + 1e-9)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.02, abs=1e-9)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.sort(np.diff(Workload(OpenLoop(2.0), SHORT_LONG, 100_001).requests().arrival_s))
    distance = np.abs(1 - np.exp(-2.0 * gaps) - (np.arange(gaps.size) + 0.5) / gaps.size).max()
    assert distance * math.sqrt(gaps.size) < 1.95  # Kolmogorov-Smirnov at 0.1 %


def test_closed_loop_leaves_the_times_to_the_event_loop() -> None:
    requests = Workload(ClosedLoop(16), SHORT_LONG, 40).requests()
    assert requests.concurrency == 16
    assert not requests.arrival_s.any()
    assert Workload(OpenLoop(1.0), SHORT_LONG, 40).requests().concurrency == 0


def test_longest() -> None:
    requests = Requests(np.zeros(2), np.array([7, 5]), np.array([1, 9]), 2)
    assert (requests.max_prompt_tokens, requests.max_total_tokens) == (7, 14)


# Mistakes


def draw(arrivals: Arrivals) -> Requests:
    return Workload(arrivals, SHORT_LONG, 10).requests()


@pytest.mark.parametrize(
    ("make", "given", "remedy"),
    [
        (lambda: OpenLoop(0.0), "rate_per_s 0", "requests per second"),
        (lambda: OpenLoop(-1.0), "rate_per_s -1", "requests per second"),
        (lambda: OpenLoop(math.nan), "rate_per_s nan", "requests per second"),
        (lambda: OpenLoop(math.inf), "rate_per_s inf", "concurrency"),
        (lambda: OpenLoop(1.0, 0.0), "burstiness 0", "Poisson"),
        (lambda: OpenLoop(1.0, math.nan), "burstiness nan", "Poisson"),
        (lambda: OpenLoop(1e-320), "rate_per_s 1e-320", "requests per second"),
        (lambda: ClosedLoop(0), "concurrency 0", "16"),
        (lambda: ClosedLoop(4).at_rate(2.0), "rate 2/s for 4 in flight", "not both"),
        (lambda: RecordedArrivals("t", np.zeros(3), 0.0), "trace speed 0.0", "twice"),
        (lambda: RecordedArrivals("t", np.zeros(3)).at_rate(1.0), "t", "other arrivals"),
        (lambda: RecordedArrivals("t", np.arange(3.0)).at_rate(math.inf), "rate_per_s inf", "concurrency"),
        (lambda: draw(RecordedArrivals("t", np.arange(3.0))), "10 requests", "at most 3"),
        (lambda: Fixed(0), "length 0", "tokens"),
        (lambda: Uniform(0, 3), "low 0", "count of tokens"),
        (lambda: Uniform(3, 2**31), "high 2147483648", "count of tokens"),
        (lambda: Uniform(9, 3), "lengths from 9 to 3", "Swap"),
        (lambda: Uniform.around(100, 1.0), "range_ratio 1", "0.2"),
        (lambda: LogNormal(0.5, 1.0), "mean_tokens 0.5", "from 1 to"),
        (lambda: LogNormal(50, math.nan), "coefficient of variation nan", "1.2"),
        (lambda: Workload(ClosedLoop(1), SHORT_LONG, 0), "request_count 0", "1000"),
        (lambda: Workload(ClosedLoop(1), SHORT_LONG, 10**12), "request_count 1000000000000", "1000"),
        (lambda: Workload(ClosedLoop(1), SHORT_LONG, 1, -1), "seed -1", "0"),
        (lambda: Requests(np.array([1.0, 0.5]), np.ones(2), np.ones(2)), "arrivals", "Sort"),
        (lambda: Requests(np.array([-1.0]), np.ones(1), np.ones(1)), "arrivals", "Sort"),
        (lambda: Requests(np.zeros(2), np.ones(2), np.ones(3)), "requests", "one value per request"),
        (lambda: Requests(np.zeros(1), np.ones(1), np.zeros(1)), "lengths", "Remove"),
    ],
)
def test_mistakes_name_the_value_and_a_remedy(make: Callable[[], object], given: str, remedy: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        make()
    assert caught.value.given == given
    assert remedy in caught.value.remedy


def test_replay_scaling_and_first_n() -> None:
    trace = Trace("t.csv", np.array([0.0, 1.0, 3.0, 4.0]), np.arange(1, 5), np.arange(5, 9))
    load = Workload.from_trace(trace)
    assert columns(load.requests()) == [[0, 1, 3, 4], [1, 2, 3, 4], [5, 6, 7, 8]]
    assert columns(Workload.from_trace(trace, 2, speed=2).requests()) == [[0, 0.5], [1, 2], [5, 6]]
    assert load.arrivals.at_rate(1.5).times_s(4, np.random.default_rng(0)).tolist() == [0, 0.5, 1.5, 2]
    assert load.describe() == (
        "4 requests, arrivals of t.csv at 0.75/s: prompts mean 2 (p95 4), outputs mean 6 (p95 8) tokens"
    )
    assert "at 1.5/s (2 times its own speed)" in load.at_rate(1.5).describe()


def test_describe_names_the_process() -> None:
    fixed = Independent(Fixed(512), Fixed(128))
    sentences = {
        "Poisson arrivals at 2/s": OpenLoop(2.0),
        "evenly spaced at 2/s": OpenLoop(2.0, math.inf),
        "gamma arrivals of burstiness 0.5 at 2/s": OpenLoop(2.0, 0.5),
        "16 in flight": ClosedLoop(16),
    }
    for phrase, arrivals in sentences.items():
        told = Workload(arrivals, fixed, 1000, name="chat").describe()
        assert told == f"1,000 chat requests, {phrase}: prompts mean 512 (p95 512), outputs mean 128 (p95 128) tokens"


# Presets


def test_presets_are_shipped_and_follow_their_schema() -> None:
    assert set(names(KIND)) == set(PRESETS)
    schema = WorkloadPreset.model_json_schema()
    for name in PRESETS:
        text = find(KIND, name).read_text(encoding="utf-8")
        assert text.startswith("# yaml-language-server: $schema=schema.json\n")
        jsonschema.validate(yaml.safe_load(text), schema)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_draw_what_they_state(name: str) -> None:
    preset = load_workload(name)
    requests = Workload(preset.arrivals(2.0), preset.lengths, 200_000, seed=9).requests()
    for side, tokens in (("prompt", requests.prompt_tokens), ("output", requests.output_tokens)):
        assert tokens.mean() == pytest.approx(preset.fit[f"{side}_mean_tokens"].preset, rel=0.02)
        for level in (50, 95):
            stated = preset.fit[f"{side}_p{level}_tokens"].preset
            assert np.percentile(tokens, level) == pytest.approx(stated, rel=0.03)


@pytest.fixture(scope="module")
def for_fits(traces: Path) -> Path:
    """Whole traces in another order: a fit asks for lengths, pairs of lengths and gaps."""
    return traces / "for_fits"


def published(name: str, for_fits: Path) -> tuple[dict[str, float], float | None]:
    """Mean, p50 and p95 of both sides and the correlation, computed here from the trace itself."""
    files = {
        "chat": "azure_llm_2023_conv.csv.gz",
        "code": "azure_llm_2023_code.csv.gz",
        "rag": "mooncake_fast25_conversation.csv.gz",
        "summarize": "arxiv_summarization_lengths.csv.gz",
    }
    seen: dict[str, float] = {}
    if name == "reasoning":
        histogram = pd.read_csv(for_fits / "servegen_length_histograms.csv.gz").query("workload == 'deepseek-r1'")
        for side in ("prompt", "output"):
            bins = histogram[histogram["which"] == ("input_tokens" if side == "prompt" else "output_tokens")]
            share = bins["probability"] / bins["probability"].sum()
            seen[f"{side}_mean"] = float((share * bins["tokens_bin"]).sum())
            for level in (50, 95):  # a bin is 9 % wide: read between the middles of the bins
                seen[f"{side}_p{level}"] = float(np.interp(level / 100, share.cumsum() - share / 2, bins["tokens_bin"]))
        return seen, None
    pairs = pd.read_csv(for_fits / files[name])
    for side, column in (("prompt", "input_tokens"), ("output", "output_tokens")):
        seen[f"{side}_mean"] = pairs[column].mean()
        seen |= {f"{side}_p{level}": float(np.percentile(pairs[column], level)) for level in (50, 95)}
    return seen, float(pairs["input_tokens"].corr(pairs["output_tokens"]))


@pytest.mark.parametrize("name", PRESETS)
def test_presets_reproduce_their_trace(name: str, for_fits: Path) -> None:
    preset = load_workload(name)
    requests = Workload(preset.arrivals(1.0), preset.lengths, 200_000, seed=4).requests()
    seen, correlation = published(name, for_fits)
    for side, tokens in (("prompt", requests.prompt_tokens), ("output", requests.output_tokens)):
        assert tokens.mean() == pytest.approx(seen[f"{side}_mean"], rel=0.03)
        for level in (50, 95):
            assert np.percentile(tokens, level) == pytest.approx(seen[f"{side}_p{level}"], rel=0.05)
            assert preset.fit[f"{side}_p{level}_tokens"].trace == pytest.approx(seen[f"{side}_p{level}"], rel=0.001)
    if correlation is not None:
        drawn = np.corrcoef(requests.prompt_tokens, requests.output_tokens)[0, 1]
        assert drawn == pytest.approx(correlation, abs=0.04)


@pytest.mark.parametrize("name", ["chat", "code"])
def test_burstiness_is_the_best_gamma(name: str, for_fits: Path) -> None:
    file = {"chat": "azure_llm_2023_conv.csv.gz", "code": "azure_llm_2023_code.csv.gz"}[name]
    gaps = np.maximum(np.diff(read_trace(for_fits / file).arrival_s), 5e-5)

    def log_likelihood(shape: float) -> float:
        scale = gaps.mean() / shape
        return float(((shape - 1) * np.log(gaps) - gaps / scale).mean() - shape * math.log(scale) - math.lgamma(shape))

    shapes_tried = np.arange(0.02, 2, 0.01)
    best = shapes_tried[np.argmax([log_likelihood(shape) for shape in shapes_tried])]
    assert float(load_workload(name).burstiness) == pytest.approx(best, rel=0.03, abs=0.01)


def test_azure_traces_have_no_empty_output(for_fits: Path) -> None:
    trace = read_trace(for_fits / "azure_llm_2023_conv.csv.gz")
    assert len(trace) == 19_366
    assert trace.output_tokens.min() == 7
    assert Workload.from_trace(trace).describe() == (
        "19,366 requests, arrivals of azure_llm_2023_conv.csv.gz at 5.53/s: "
        "prompts mean 1,155 (p95 4,083), outputs mean 211 (p95 451) tokens"
    )


@pytest.mark.parametrize("name", PRESETS)
def test_fitting_again_gives_the_shipped_file(name: str, for_fits: Path) -> None:
    spec = importlib.util.spec_from_file_location("fit_workloads", ROOT / "tools" / "fit_workloads.py")
    assert spec is not None and spec.loader is not None
    fitter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fitter)
    fit = next(fit for fit in fitter.FITS if fit.name == name)
    assert fitter.preset_yaml(fit, for_fits) == find(KIND, name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("burstiness: {value: 0.87", "burstiness: {value: 0", "burstiness 0"),
        ("burstiness: {value: 0.87", "burstiness: {value: -1", "-1"),
        ("burstiness: {value: 0.87", "burstyness: {value: 0.87", "burstiness"),
        ("  source: lengths", "  source: length", "length"),
        ("levels: [0, ", "levels: [0.5, ", "levels"),
        ("tokens: [2, ", "tokens: [0, ", "tokens"),
        ("tokens: [2, ", "tokens: [9999999, ", "tokens"),
        ("tokens: [2, ", "tokens: ['2', ", "2"),
        ("  prompt:\n", "  max_total_tokens: 100\n  prompt:\n", "max_total_tokens 100"),
        ("description:", "rate_per_s: 2\ndescription:", "rate_per_s"),
    ],
)
def test_spoilt_presets(old: str, new: str, part: str, tmp_path: Path) -> None:
    text = find(KIND, "chat").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ProfileError) as caught:
        load_workload(str(path))
    assert part in str(caught.value)
    assert "mine.yaml" in str(caught.value)


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(InfercastError, match="chat"):
        load_workload("chatt")

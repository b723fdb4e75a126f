"""Arrivals and lengths against their laws, traces against every way to spoil one, presets against their traces."""

import gzip
import importlib.util
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InfercastError, ProfileError, WorkloadError
from simulator.lengths import Banded, Fixed, Independent, Lengths, LogNormal, Quantiles, Resampled, Uniform
from simulator.profile import find, names
from simulator.traces import Trace, read_trace
from simulator.workload import (
    KIND,
    Arrivals,
    ClosedLoop,
    OpenLoop,
    RecordedArrivals,
    Requests,
    Workload,
    WorkloadPreset,
    load_workload,
)

ROOT = Path(__file__).parents[1]
TRACES = ROOT.parent / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the published traces are not at ../shared/traces")
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
        Resampled(np.array([10, 20, 30]), np.array([1, 2, 3])),
    ]
)


def columns(requests: Requests) -> list[list[float]]:
    return [requests.arrival_s.tolist(), requests.prompt_tokens.tolist(), requests.output_tokens.tolist()]


# Laws


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


def test_constant_arrivals() -> None:
    assert OpenLoop(4, math.inf).times_s(5, np.random.default_rng(0)).tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_closed_loop_leaves_the_times_to_the_event_loop() -> None:
    requests = Workload(ClosedLoop(16), SHORT_LONG, 40).requests()
    assert requests.concurrency == 16
    assert not requests.arrival_s.any()
    assert Workload(OpenLoop(1.0), SHORT_LONG, 40).requests().concurrency == 0


# Lengths


@pytest.mark.parametrize(
    ("length", "mean", "deviation"),
    [
        (Uniform(10, 30), 20, math.sqrt((21**2 - 1) / 12)),
        (Uniform.around(1024, 0.5), 1024, 296),
        (LogNormal(600, cv=1.5), 600, 900),
        (TABLE, 0.5 * (51 + 601), 343.1),
    ],
)
def test_means_lie_in_their_confidence_interval(length: Uniform | LogNormal, mean: float, deviation: float) -> None:
    drawn = length.draw(200_000, np.random.default_rng(3))
    assert drawn.mean() == pytest.approx(mean, abs=4 * deviation / math.sqrt(200_000))
    assert drawn.std() == pytest.approx(deviation, rel=0.03)


def test_range_ratio_is_that_of_vllm() -> None:
    assert Uniform.around(100, 0.25) == Uniform(75, 125)
    assert Uniform.around(128, 0.1) == Uniform(115, 141)  # floor(115.2), ceil(140.8)
    assert Uniform.around(1, 0.9) == Uniform(1, 2)
    drawn = Uniform(2, 4).draw(1000, np.random.default_rng(0))
    assert set(drawn.tolist()) == {2, 3, 4}


def test_log_normal_median_and_cut() -> None:
    drawn = LogNormal(600, cv=1.5, max_tokens=2000).draw(100_000, np.random.default_rng(0))
    assert np.median(drawn) == pytest.approx(600 / math.sqrt(1 + 1.5**2), rel=0.02)
    assert drawn.max() == 2000
    assert LogNormal(7, cv=0).draw(3, np.random.default_rng(0)).tolist() == [7, 7, 7]


def test_quantiles_hold_atoms() -> None:
    histogram = Quantiles(levels=(0, 0.25, 0.2501, 1), tokens=(5, 5, 80, 80))
    drawn = histogram.draw(40_000, np.random.default_rng(0))
    assert (drawn == 5).mean() == pytest.approx(0.25, abs=0.01)
    assert (drawn == 80).mean() == pytest.approx(0.75, abs=0.01)


def test_bands_tie_outputs_to_prompts_within_the_context() -> None:
    short, long = Quantiles(levels=(0, 1), tokens=(10, 10)), Quantiles(levels=(0, 1), tokens=(1000, 1000))
    banded = Banded(prompt=TABLE, output_by_prompt_band=(long, short), max_total_tokens=1108)
    requests = Workload(OpenLoop(1.0), banded, 1000).requests()
    below = requests.prompt_tokens < 101
    assert set(requests.output_tokens[below]) == {1000}
    assert set(requests.output_tokens[requests.prompt_tokens > 101]) <= {7, 8, 9, 10}
    assert requests.max_total_tokens == 1108


def test_resampling_keeps_pairs() -> None:
    pairs = Resampled(np.arange(1, 101), np.arange(1, 101) ** 2)
    requests = Workload(OpenLoop(1.0), pairs, 5000).requests()
    assert (requests.prompt_tokens**2 == requests.output_tokens).all()
    assert len(set(requests.prompt_tokens)) == 100


def test_longest() -> None:
    requests = Requests(np.zeros(2), np.array([7, 5]), np.array([1, 9]), 2)
    assert (requests.max_prompt_tokens, requests.max_total_tokens) == (7, 14)


# Mistakes


def draw(arrivals: Arrivals) -> Requests:
    return Workload(arrivals, SHORT_LONG, 10).requests()


@pytest.mark.parametrize(
    ("make", "given", "remedy"),
    [
        (lambda: OpenLoop(0.0), "request rate 0.0", "requests per second"),
        (lambda: OpenLoop(-1.0), "request rate -1.0", "requests per second"),
        (lambda: OpenLoop(math.nan), "request rate nan", "requests per second"),
        (lambda: OpenLoop(math.inf), "request rate inf", "concurrency"),
        (lambda: OpenLoop(1.0, 0.0), "burstiness 0.0", "Poisson"),
        (lambda: OpenLoop(1.0, math.nan), "burstiness nan", "Poisson"),
        (lambda: OpenLoop(1e-320), "request rate 1e-320", "requests per second"),
        (lambda: ClosedLoop(0), "concurrency 0", "16"),
        (lambda: ClosedLoop(4).at_rate(2.0), "rate 2/s for 4 in flight", "not both"),
        (lambda: RecordedArrivals("t", np.zeros(3), 0.0), "trace speed 0.0", "twice"),
        (lambda: RecordedArrivals("t", np.zeros(3)).at_rate(1.0), "t", "other arrivals"),
        (lambda: RecordedArrivals("t", np.arange(3.0)).at_rate(math.inf), "request rate inf", "concurrency"),
        (lambda: draw(RecordedArrivals("t", np.arange(3.0))), "10 requests", "at most 3"),
        (lambda: Fixed(0), "length 0", "tokens"),
        (lambda: Uniform(9, 3), "lengths from 9 to 3", "Swap"),
        (lambda: Uniform.around(100, 1.0), "range ratio 1.0", "0.2"),
        (lambda: LogNormal(0.5, 1.0), "mean length 0.5", "Correct"),
        (lambda: LogNormal(50, math.nan), "coefficient of variation nan", "1.2"),
        (lambda: Workload(ClosedLoop(1), SHORT_LONG, 0), "0 requests", "1000"),
        (lambda: Workload(ClosedLoop(1), SHORT_LONG, 10**12), "1000000000000 requests", "1000"),
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


# Traces

HEADER = "arrival_s,prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
LINE = '{"timestamp": 0, "input_length": 5, "output_length": 5}\n'
GOOD = {
    "ours.csv": "arrival_s,prompt_tokens,output_tokens\n0,10,1\n0.25,20,2\n1.5,30,3\n",
    "shared.csv": "arrival_s,input_tokens,output_tokens,prefixes\n0,10,1,0 1\n0.25,20,2,0\n1.5,30,3,7\n",
    "plain.csv": "arrival_s, input, output\n 0, 10, 1\n 0.25, 20, 2\n\n 1.5, 30, 3\n\n",
    "azure.csv": "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,10,1\r\n"
    "2023-11-16 18:15:46.9305900,20,2\r\n2023-11-16 18:15:48.1805900,30,3",
    "azure_2024.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-12 00:00:00+00:00,10,1\n"
    "2024-05-12 00:00:00.250000+00:00,20,2\n2024-05-12 00:00:01.500000+00:00,30,3\n",
    "burstgpt.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    '0.0,ChatGPT,10,1,11,"Log, API"\n0.25,GPT-4,20,2,22,API log\n1.5,GPT-4,30,3,33,API log\n',
    "mooncake.csv": "timestamp,input_length,output_length\n0,10,1\n250,20,2\n1500,30,3\n",
    "mooncake.jsonl": '{"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [0]}\n'
    '{"timestamp": 250, "input_length": 20, "output_length": 2, "hash_ids": [0, 1]}\n\n'
    '{"timestamp": 1500, "input_length": 30, "output_length": 3, "hash_ids": []}\n',
}
UNUSED = {"shared.csv": 1, "burstgpt.csv": 3, "mooncake.jsonl": 1}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("packed", [False, True])
def test_every_spelling_reads_alike(name: str, packed: bool, tmp_path: Path) -> None:
    data = GOOD[name].encode()
    path = tmp_path / (name + ".gz" if packed else name)
    path.write_bytes(gzip.compress(data) if packed else data)
    trace = read_trace(path)
    np.testing.assert_allclose(trace.arrival_s, [0, 0.25, 1.5], rtol=0, atol=1e-12)
    assert trace.prompt_tokens.tolist() == [10, 20, 30]
    assert trace.output_tokens.tolist() == [1, 2, 3]
    assert len(trace.unused_columns) == UNUSED.get(name, 0)


def test_azure_ticks_of_100_ns_survive(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(AZURE + "2023-11-16 18:15:46.6805900,1,1\n2023-11-16 18:15:46.6805901,1,1\n")
    assert read_trace(path).arrival_s[1] == pytest.approx(1e-7, rel=1e-9)


BAD = {
    "empty": ("", "missing", "Name the columns"),
    "blank": ("\n\n", "missing", "Name the columns"),
    "header only": (HEADER, "no rows", "requests"),
    "header and blanks": (HEADER + "\n\n", "no rows", "requests"),
    "no header": ("0,5,5\n1,5,5\n", "missing arrival_s, prompt_tokens, output_tokens", "BurstGPT"),
    "column missing": ("arrival_s,prompt_tokens\n0,5\n", "missing output_tokens", "Azure"),
    "other case": ("timestamp,ContextTokens,GeneratedTokens\n0,5,5\n", "missing TIMESTAMP", "TIMESTAMP"),
    "two spellings": ("arrival_s,prompt_tokens,output_tokens,input_tokens\n0,5,5,5\n", "2 ways", "one set"),
    "column twice": ("arrival_s,prompt_tokens,output_tokens,output_tokens\n0,5,5,6\n", "twice", "one of them"),
    "unsorted": (HEADER + "0,5,5\n3,5,5\n2.5,5,5\n", "row 3: arrival_s '2.5'", "Sort"),
    "unsorted dates": (AZURE + "2023-11-16,5,5\n2023-11-15,5,5\n", "row 2: TIMESTAMP '2023-11-15'", "Sort"),
    "negative time": (HEADER + "-1,5,5\n0,5,5\n", "row 1: arrival_s '-1'", "Shift"),
    "zero prompt": (HEADER + "0,5,5\n1,0,5\n", "row 2: prompt_tokens '0'", "remove"),
    "zero outputs": (HEADER + "0,5,0\n1,5,5\n2,5,0\n", "row 1: output_tokens '0' (1 more rows like it)", "remove"),
    "negative output": (HEADER + "0,5,-3\n", "row 1: output_tokens '-3'", "remove"),
    "half a token": (HEADER + "0,5,5\n1,5.5,5\n", "row 2: prompt_tokens '5.5'", "remove"),
    "huge": (HEADER + "0,5,1e300\n", "row 1: output_tokens '1e+300'", "remove"),
    "beyond int64": (HEADER + "0,99999999999999999999999,5\n", "row 1: prompt_tokens '999999999", "remove"),
    "late": (HEADER + "0,5,5\n1e300,5,5\n", "row 2: arrival_s '1e+300'", "Shift"),
    "text": (HEADER + "0,5,5\n1,many,5\n", "row 2: prompt_tokens 'many'", "Correct"),
    "nan": (HEADER + "0,5,5\nnan,5,5\n", "row 2: arrival_s 'nan'", "Correct"),
    "inf": (HEADER + "0,5,5\ninf,5,5\n", "row 2: arrival_s 'inf'", "Correct"),
    "empty cell": (HEADER + "0,5,5\n1,,5\n", "row 2: prompt_tokens ''", "Correct"),
    "true": (HEADER + "0,True,5\n1,False,5\n", "row 1: prompt_tokens 'True'", "Correct"),
    "short row": (HEADER + "0,5,5\n1,5\n", "row 2: output_tokens ''", "Correct"),
    "one long row": (HEADER + "0,5,5\n1,5,5,9\n", "row 2: a field beyond the header '9'", "remove"),
    "all rows long": (HEADER + "0,5,5,9\n1,5,5,9\n", "row 1: a field beyond the header '9'", "remove"),
    "all rows much longer": (HEADER + "0,5,5,9,9\n1,5,5,9,9\n", "not CSV", "row per request"),
    "ragged": (HEADER + "0,5,5\n1,5,5,9,9\n", "not CSV", "row per request"),
    "open quote": (HEADER + '0,5,5\n1,"5,5\n', "not CSV", "row per request"),
    "no date": (AZURE + "2023-11-16 18:15:46,5,5\nyesterday,5,5\n", "row 2: TIMESTAMP 'yesterday'", "Correct"),
    "number for a date": (AZURE + "0.5,5,5\n", "row 1: TIMESTAMP '0.5'", "Correct"),
    "bad json": (LINE + "{nope\n", "row 2: it is not JSON", "one object per line"),
    "json without key": (LINE + '{"timestamp": 1, "input_length": 5}\n', "row 2: missing output_length", "Mend"),
    "json list": (LINE + "[1, 2, 3]\n", "row 2: it is not a JSON object", "one object per line"),
    "json deep": (LINE + "[" * 100_000 + "\n", "row 2: it is not JSON", "one object per line"),
    "json text": (LINE + LINE.replace("5", '"x"', 1), "row 2: input_length 'x'", "Correct"),
    "json null": (LINE + LINE.replace("5", "null", 1), "row 2: input_length", "Correct"),
    "json true": (LINE + LINE.replace("5", "true", 1), "row 2: input_length 'True'", "Correct"),
    "json nested": (LINE + LINE.replace("5", "[5]", 1), "row 2: input_length '[5]'", "Correct"),
    "json spread over lines": ('{\n"timestamp": 0\n}\n', "row 1: it is not JSON", "one object per line"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("packed", [False, True])
def test_spoilt_traces(case: str, packed: bool, tmp_path: Path) -> None:
    text, part, remedy = BAD[case]
    path = tmp_path / ("t.csv.gz" if packed else "t.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with pytest.raises(WorkloadError) as caught:
        read_trace(path)
    assert path.name in caught.value.given
    assert part in str(caught.value)
    assert remedy in caught.value.remedy


def test_files_that_are_no_text(tmp_path: Path) -> None:
    packed = gzip.compress(GOOD["ours.csv"].encode() * 100)
    spoilt = bytearray(packed)
    spoilt[len(packed) // 2] ^= 0xFF
    contents = {
        "binary.csv": bytes(range(128, 256)) * 40,
        "later.csv": GOOD["ours.csv"].encode() * 3000 + b"\xff\xfe",
        "plain.csv.gz": GOOD["ours.csv"].encode(),
        "cut.csv.gz": packed[: len(packed) // 2],
        "spoilt.csv.gz": bytes(spoilt),
        "no_deflate.csv.gz": packed[:10] + b"\xff" * 50,
        "nul.csv": HEADER.encode() + b"0,\0,5\n",
    }
    (tmp_path / "folder.csv").mkdir()
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    for name in [*contents, "folder.csv", "missing.csv"]:
        with pytest.raises(WorkloadError, match=name):
            read_trace(tmp_path / name)


@settings(max_examples=200)
@given(name=st.sampled_from(sorted(GOOD)), place=st.integers(0, 200), damage=st.binary(max_size=4))
def test_any_damage_is_read_or_refused_never_a_traceback(
    name: str, place: int, damage: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = GOOD[name].encode()
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(data[:place] + damage + data[place + len(damage) :])
    try:
        trace = read_trace(path)
    except WorkloadError as error:
        assert error.given and error.because and error.remedy
    else:
        assert Workload.from_trace(trace).requests().max_total_tokens >= 2


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


def test_a_million_rows_read_quickly(tmp_path: Path) -> None:
    path, n = tmp_path / "long.csv", 1_000_000
    pd.DataFrame({"arrival_s": np.arange(n) / 8, "input": 500, "output": 100}).to_csv(path, index=False)
    start = time.process_time()
    assert len(read_trace(path)) == n
    assert time.process_time() - start < 5


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


def published(name: str) -> tuple[dict[str, float], float | None]:
    """Mean, p50 and p95 of both sides and the correlation, computed here from the trace itself."""
    files = {
        "chat": "azure_llm_2023_conv.csv.gz",
        "code": "azure_llm_2023_code.csv.gz",
        "rag": "mooncake_fast25_conversation.csv.gz",
        "summarize": "arxiv_summarization_lengths.csv.gz",
    }
    seen: dict[str, float] = {}
    if name == "reasoning":
        histogram = pd.read_csv(TRACES / "servegen_length_histograms.csv.gz").query("workload == 'deepseek-r1'")
        for side in ("prompt", "output"):
            bins = histogram[histogram["which"] == ("input_tokens" if side == "prompt" else "output_tokens")]
            share = bins["probability"] / bins["probability"].sum()
            seen[f"{side}_mean"] = float((share * bins["tokens_bin"]).sum())
            for level in (50, 95):  # a bin is 9 % wide: read between the middles of the bins
                seen[f"{side}_p{level}"] = float(np.interp(level / 100, share.cumsum() - share / 2, bins["tokens_bin"]))
        return seen, None
    pairs = pd.read_csv(TRACES / files[name])
    for side, column in (("prompt", "input_tokens"), ("output", "output_tokens")):
        seen[f"{side}_mean"] = pairs[column].mean()
        seen |= {f"{side}_p{level}": float(np.percentile(pairs[column], level)) for level in (50, 95)}
    return seen, float(pairs["input_tokens"].corr(pairs["output_tokens"]))


@needs_traces
@pytest.mark.parametrize("name", PRESETS)
def test_presets_reproduce_their_trace(name: str) -> None:
    preset = load_workload(name)
    requests = Workload(preset.arrivals(1.0), preset.lengths, 200_000, seed=4).requests()
    seen, correlation = published(name)
    for side, tokens in (("prompt", requests.prompt_tokens), ("output", requests.output_tokens)):
        assert tokens.mean() == pytest.approx(seen[f"{side}_mean"], rel=0.03)
        for level in (50, 95):
            assert np.percentile(tokens, level) == pytest.approx(seen[f"{side}_p{level}"], rel=0.05)
            assert preset.fit[f"{side}_p{level}_tokens"].trace == pytest.approx(seen[f"{side}_p{level}"], rel=0.001)
    if correlation is not None:
        drawn = np.corrcoef(requests.prompt_tokens, requests.output_tokens)[0, 1]
        assert drawn == pytest.approx(correlation, abs=0.04)


@needs_traces
@pytest.mark.parametrize("name", ["chat", "code"])
def test_burstiness_is_the_best_gamma(name: str) -> None:
    file = {"chat": "azure_llm_2023_conv.csv.gz", "code": "azure_llm_2023_code.csv.gz"}[name]
    gaps = np.maximum(np.diff(read_trace(TRACES / file).arrival_s), 5e-5)

    def log_likelihood(shape: float) -> float:
        scale = gaps.mean() / shape
        return float(((shape - 1) * np.log(gaps) - gaps / scale).mean() - shape * math.log(scale) - math.lgamma(shape))

    shapes_tried = np.arange(0.02, 2, 0.01)
    best = shapes_tried[np.argmax([log_likelihood(shape) for shape in shapes_tried])]
    assert float(load_workload(name).burstiness) == pytest.approx(best, rel=0.03, abs=0.01)


@needs_traces
def test_azure_traces_have_no_empty_output() -> None:
    trace = read_trace(TRACES / "azure_llm_2023_conv.csv.gz")
    assert len(trace) == 19_366
    assert trace.output_tokens.min() == 7
    assert Workload.from_trace(trace).describe() == (
        "19,366 requests, arrivals of azure_llm_2023_conv.csv.gz at 5.53/s: "
        "prompts mean 1,155 (p95 4,083), outputs mean 211 (p95 451) tokens"
    )


@needs_traces
@pytest.mark.parametrize("name", PRESETS)
def test_fitting_again_gives_the_shipped_file(name: str) -> None:
    spec = importlib.util.spec_from_file_location("fit_workloads", ROOT / "tools" / "fit_workloads.py")
    assert spec is not None and spec.loader is not None
    fitter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fitter)
    fit = next(fit for fit in fitter.FITS if fit.name == name)
    assert fitter.preset_yaml(fit, TRACES) == find(KIND, name).read_text(encoding="utf-8")


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

"""Where the time went: the parts add up, the timeline adds up, and the files of a run are what they say."""

import csv
import io
import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulator.deployment.deployment import deploy
from simulator.engines.engine import load_engine
from simulator.errors import NotModelledError
from simulator.reports.latency_breakdown import PARTS, Explanation, latency_parts, saved_prefill_s
from simulator.reports.perfetto import trace
from simulator.reports.report import Report, summarize
from simulator.reports.timeline import COUNTERS, timeline_of
from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import CONTINUOUS, POLICIES, UNCACHED, SchedulerLimits
from simulator.simulation.engine_loop import Run, simulate
from simulator.simulation.fleet import CacheLink, Fleet, Pool, simulate_fleet
from simulator.workloads.shared_prefixes import Prefixes
from simulator.workloads.workload import Requests
from tests.support.commands import infercast, printed, refused

# A step takes 10 ms, each token of a prompt 1 ms more.
TABLE = StepTable(np.full(4097, 0.010), np.zeros(257), np.array([0, 0, 0.001, 0, 0]))
PLAIN = SchedulerLimits(
    policy=CONTINUOUS,
    max_num_seqs=8,
    max_num_batched_tokens=64,
    num_blocks=1000,
    block_size=16,
    admit_full_prompt=True,
)


def run(arrival_s: list[float], prompts: list[int], outputs: list[int], **changes: int) -> Run:
    requests = Requests(np.array(arrival_s), np.array(prompts), np.array(outputs))
    return simulate(PLAIN._replace(**changes), TABLE, requests)


def whole(happened: Run, **outside_s: float) -> Report:
    return summarize(happened, steady=False, **outside_s)


def test_slots_of_the_queueing_estimate_hold_what_windowed_layers_keep():
    """152 tokens and half of 16 are ten blocks of 16, of which a window keeps three: 100 blocks hold 7 of 13."""
    windowed = {"window": 32, "window_groups": 1, "window_blocks": 3, "num_blocks": 100, "max_num_batched_tokens": 256}
    happened = run([0.0, 1.0, 2.0], [152] * 3, [16] * 3, **windowed)
    assert Explanation(whole(happened)).queue.slots == 7
    assert Explanation(whole(run([0.0, 1.0], [152] * 2, [16] * 2, num_blocks=45))).queue.slots == 4


def test_the_split_of_two_requests_by_hand():
    # Request 0 decodes while request 1's prompt of 50 adds 50 ms to a step; request 1 waits 10 ms for that step.
    two = whole(run([0.0, 0.10], [100, 50], [4, 2], max_num_batched_tokens=4096), request_s=0.03, network_s=0.1)
    found = latency_parts(two)
    first, second = ({part: values[row] for part, values in found.e2el.items()} for row in (0, 1))
    outside = {"network": 0.1, "engine": 0.03, "redo": 0.0}
    assert first == pytest.approx(
        outside | {"queue": 0, "prefill": 0.110, "interference": 0.050, "decode": 0.030}, abs=1e-12
    )
    # Its own prompt step: 50 ms are its prompt's, 10 ms decode the other; then one decode.
    assert second == pytest.approx(
        outside | {"queue": 0.010, "prefill": 0.050, "interference": 0, "decode": 0.020}, abs=1e-12
    )
    assert found.ttft["decode"] == pytest.approx([0, 0.010], abs=1e-12)


def test_each_prompt_is_split_into_tokens_before_the_engine_sees_it():
    """At 4 us a token the second of two prompts waits for 7,000 more: 28 ms."""
    answers_s = load_engine("vllm").overheads.outside_steps_s([1000, 8000])
    assert answers_s[1] - answers_s[0] == pytest.approx(0.028)
    served = run([0.0, 100.0], [1000, 8000], [3, 3], max_num_batched_tokens=8192)
    seen, bare = whole(served, request_s=answers_s), whole(served)
    for name, later_s in {"ttft": answers_s, "e2el": answers_s, "tpot": 0.0, "queue": 0.0}.items():
        assert seen.latencies_s[name] - bare.latencies_s[name] == pytest.approx(later_s + np.zeros(2))
    assert np.array_equal(latency_parts(seen).ttft["engine"], answers_s)
    later = replace(seen, skipped=1)  # without the first request, its prompt is left out too
    assert later.latencies_s["ttft"] == seen.latencies_s["ttft"][1:]
    assert latency_parts(later).ttft["engine"] == answers_s[1:]


def test_a_prompt_pays_for_its_share_of_the_tokens():
    """Two prompts in one step: each waits for both, and has computed its own tokens."""
    together = latency_parts(whole(run([0.0, 0.0], [10, 30], [1, 1])))
    assert together.ttft["prefill"] == pytest.approx([0.05 / 4, 0.05 * 3 / 4])
    assert together.ttft["interference"] == pytest.approx([0.05 * 3 / 4, 0.05 / 4])


def test_a_preemption_is_redone():
    tight = run([0.0, 0.0], [16, 16], [20, 20], num_blocks=3)
    assert tight.preemptions.tolist() == [0, 1]
    found = latency_parts(whole(tight)).e2el
    assert found["redo"] == pytest.approx(tight.stalled_s)
    assert found["redo"][1] > 0


workloads = st.lists(st.tuples(st.floats(0, 0.3), st.integers(1, 120), st.integers(1, 60)), min_size=1, max_size=40)


@given(workloads, st.sampled_from(sorted(POLICIES)), st.sampled_from([0.0007, 0.004, 0.03]))
@example([(0.0, 1, 1)] * 11 + [(0.0, 1, 2), (0.0, 61, 1)], "prompts-first", 0.004)
@settings(max_examples=30, deadline=None)
def test_a_front_end_delays_what_is_seen_and_not_what_the_prompts_take(rows, policy, stream_s):
    gaps, prompts, outputs = zip(*rows, strict=True)
    sent, limits = list(np.cumsum(gaps)), {"policy": POLICIES[policy]}
    free, slow = (whole(run(sent, prompts, outputs, **limits, stream_s=each)) for each in (0.0, stream_s))
    parts, seen = latency_parts(free).e2el, latency_parts(slow).e2el
    for part in ("queue", "prefill"):
        assert seen[part] == pytest.approx(parts[part], abs=1e-9)
    late_s = slow.run.finished_s - free.run.finished_s
    assert late_s.min() > 0
    after = ("interference", "decode")
    assert sum(seen[part] - parts[part] for part in after) == pytest.approx(late_s)
    # A first token shown late may leave less time after it than prompts then took: no more of them is seen.
    lasted_s = [each.run.finished_s - each.run.first_token_s for each in (free, slow)]
    whole_s = lasted_s[1] >= lasted_s[0] - 1e-9
    assert seen["interference"][whole_s] == pytest.approx(parts["interference"][whole_s], abs=1e-9)
    assert (seen["interference"] <= parts["interference"] + 1e-9).all()


@given(workloads, st.sampled_from(sorted(POLICIES)), st.integers(12, 60), st.booleans())
@settings(max_examples=30, deadline=None)
def test_the_parts_add_up_and_none_is_negative(rows, policy, num_blocks, async_scheduling):
    gaps, prompts, outputs = zip(*rows, strict=True)
    limits = {"policy": POLICIES[policy], "num_blocks": num_blocks}
    if policy == "continuous":
        limits["async_scheduling"] = async_scheduling
    report = whole(run(list(np.cumsum(gaps)), prompts, outputs, **limits), request_s=0.005)
    found = latency_parts(report)
    for metric in ("ttft", "e2el"):
        parts = found.of(metric)
        assert list(parts) == list(PARTS)
        assert sum(parts.values()) == pytest.approx(report.latencies_s[metric], abs=1e-9)
        assert min(values.min() for values in parts.values()) >= -1e-9


@pytest.mark.parametrize("pool", [Pool(PLAIN, TABLE, replicas=3), Pool(PLAIN, TABLE, stages=2)], ids=["fleet", "pp 2"])
def test_the_parts_add_up_in_a_fleet(pool):
    rng = np.random.default_rng(0)
    requests = Requests(np.cumsum(rng.exponential(0.03, 300)), rng.integers(1, 120, 300), rng.integers(1, 60, 300))
    report = whole(simulate_fleet(Fleet(pool), requests))
    found = latency_parts(report)
    for metric in ("ttft", "e2el"):
        assert sum(found.of(metric).values()) == pytest.approx(report.latencies_s[metric], abs=1e-9)
        assert min(values.min() for values in found.of(metric).values()) >= -1e-9
    over_time = timeline_of(report.run, MODEL).columns
    assert over_time["vllm:generation_tokens"][-1] == pytest.approx(requests.output_tokens.sum())


def test_a_request_of_two_engines_has_no_split():
    fleet = Fleet(Pool(PLAIN, TABLE), prefill=Pool(PLAIN, TABLE), link=CacheLink(1e9))
    requests = Requests(np.zeros(2), np.array([20, 20]), np.array([5, 5]))
    with pytest.raises(NotModelledError, match="prefill pool"):
        latency_parts(whole(simulate_fleet(fleet, requests)))


def test_a_cache_hit_is_no_prefill_and_without_a_cache_every_token_is_its_own():
    ids = Prefixes.of([[1, 2], [1, 2]])
    twice = Requests(np.array([0.0, 5.0]), np.array([48, 48]), np.array([3, 3]), prefixes=ids)
    cached = latency_parts(whole(simulate(PLAIN._replace(prefix_block_tokens=16), TABLE, twice)))
    assert cached.ttft["prefill"] == pytest.approx([0.058, 0.026])  # 48 tokens, then 16; a step alone takes 10 ms
    naive = latency_parts(whole(simulate(PLAIN._replace(policy=UNCACHED, max_num_seqs=1), TABLE, twice)))
    assert (naive.e2el["interference"] == 0).all()


@given(workloads, st.integers(12, 60))
@settings(max_examples=25, deadline=None)
def test_the_timeline_adds_up(rows, num_blocks):
    gaps, prompts, outputs = zip(*rows, strict=True)
    happened = run(list(np.cumsum(gaps)), prompts, outputs, num_blocks=num_blocks)
    found = timeline_of(happened, MODEL, intervals=7).columns
    ends = {name: found[name][-1] for name in COUNTERS}
    assert ends["vllm:request_success"] == len(rows)
    assert ends["vllm:generation_tokens"] == pytest.approx(sum(outputs))
    assert ends["vllm:num_preemptions"] == happened.preemptions.sum()
    assert ends["vllm:prompt_tokens"] == pytest.approx(happened.steps.prompt_tokens.sum())  # redone ones too
    for name in COUNTERS:
        assert (np.diff(found[name], prepend=0.0) >= -1e-6).all(), name
    span_s = happened.end_s - float(happened.requests.arrival_s[0])
    assert found["vllm:num_requests_running"].mean() == pytest.approx(
        float((happened.steps.running * happened.steps.seconds).sum()) / span_s
    )
    shares = np.sum([values for name, values in found.items() if name.endswith("_share")], axis=0)
    assert shares == pytest.approx(np.ones(7))
    assert found["idle_share"].mean() == pytest.approx(1 - happened.busy_s / span_s, abs=1e-9)


MODEL = deploy("llama-3.1-8b", "l40s").step_model()


def test_decoding_alone_is_bound_by_memory_and_long_prompts_by_compute():
    decoding = timeline_of(run([0.0], [16], [60]), MODEL)
    prompts = timeline_of(run([0.0] * 8, [4000] * 8, [1] * 8, max_num_batched_tokens=4096, num_blocks=10_000), MODEL)
    assert Counter(decoding.binding).most_common(1)[0][0] == "memory"
    assert Counter(prompts.binding).most_common(1)[0][0] == "compute"


def test_a_trace_has_the_structure_of_chromes_format():
    happened = run([0.0, 0.0, 0.5], [16, 16, 40], [20, 20, 5], num_blocks=4)
    body = json.loads(json.dumps(trace(happened)))
    events = body["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C", "b", "e"}
    steps = [event for event in events if event["ph"] == "X"]
    assert len(steps) == len(happened.steps)
    assert sum(event["dur"] for event in steps) == pytest.approx(happened.busy_s * 1e6, abs=1)
    for one, next_one in pairwise(steps):  # slices of one track never overlap
        assert one["ts"] + one["dur"] <= next_one["ts"] + 1e-6
    for row in range(3):
        slices = [event for event in events if event.get("id") == row]
        assert [event["ph"] for event in slices] == list("bbebebee")
        assert all(one["ts"] <= next_one["ts"] for one, next_one in pairwise(slices))
        assert slices[0]["ts"] == pytest.approx(happened.requests.arrival_s[row] * 1e6)
        assert slices[-1]["ts"] == pytest.approx(happened.finished_s[row] * 1e6)


def test_a_trace_shows_the_first_requests_and_says_what_it_leaves_out():
    happened = run([0.0, 0.0, 9.0], [16, 16, 40], [20, 20, 5])
    body = trace(happened, max_requests=2, max_steps=10)
    assert body["otherData"] == {"steps_left_out": len(happened.steps) - 10, "requests_left_out": 1}


def test_the_request_at_p95_has_the_p95():
    rng = np.random.default_rng(1)
    report = summarize(run(list(np.cumsum(rng.exponential(0.05, 400))), [30] * 400, [5] * 400))
    explained = Explanation(report)
    for metric in ("ttft", "e2el"):
        assert sum(explained.p95_s(metric).values()) == pytest.approx(report.metrics[metric]["p95"], rel=0.05)
        assert sum(explained.mean_s(metric).values()) == pytest.approx(report.metrics[metric]["mean"])


CHAT = ["simulate", "--model", "llama-3.1-8b", "--hardware", "l40s", "--workload", "chat", "--num-prompts", "600"]


@pytest.mark.slow
def test_the_command_writes_every_file(tmp_path):
    endings = {"timeline": ".csv", "trace-out": ".json", "plot": ".png"}
    files = {name: tmp_path / f"{name}{ending}" for name, ending in endings.items()}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    text = printed(*CHAT, "--rate", "2", "--explain", *options)
    assert "Where the time went" in text
    assert "An estimate of queueing theory" in text
    rows = list(csv.DictReader(io.StringIO(files["timeline"].read_text())))
    assert float(rows[-1]["vllm:request_success"]) == 600
    assert json.loads(files["trace-out"].read_text())["traceEvents"]
    assert files["plot"].read_bytes().startswith(b"\x89PNG")


def test_the_split_is_in_the_json():
    found = json.loads(printed(*CHAT, "--rate", "2", "--explain", "--format", "json"))["simulations"][0]
    parts = sum(found[f"mean_ttft_{part}_ms"] for part in PARTS)
    assert parts == pytest.approx(found["mean_ttft_ms"])
    assert found["m_g_1_mean_queue_ms"] > 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--rate", "1,2", "--timeline", "x.csv"], "a file holds one"),
        (["--rate", "1", "--timeline", "x.txt"], "names no format"),
        (["--rate", "1", "--trace-out", "/proc/missing/x.json"], "cannot be written"),
    ],
)
def test_files_that_cannot_be_are_refused(options, told):
    assert told in refused(*CHAT, *options)


def test_overload_has_no_percentiles():
    command = [*CHAT[:-1], "3000", "--rate", "20", "--slo", "ttft:1s"]
    (found,) = json.loads(printed(*command, "--format", "json"))["simulations"]
    assert found["overloaded"] is True
    assert found["p95_ttft_ms"] is None
    assert found["mean_e2el_ms"] is None
    assert found["slo_attainment"] is None
    assert found["p95_tpot_ms"] > 0
    text = printed(*command)
    assert "a p95 of them does not exist" in text
    assert next(line for line in text.splitlines() if line.startswith("TTFT ms")).split()[2:] == ["-"] * 7
    assert infercast(*command).returncode == 0


def test_a_hit_saves_what_the_two_prompts_differ_by():
    """The second of two equal prompts finds one unit of 16 tokens, and takes as much less as is said to be saved."""
    table = StepTable(1e-3 + 1e-5 * np.arange(65.0), 1e-4 * np.arange(9.0), np.array([1e-6, 0, 2e-6, 3e-7, 0]))
    ids = Prefixes.of([[7], [7]])
    requests = Requests(np.array([0.0, 1.0]), np.array([32, 32]), np.array([1, 1]), prefixes=ids)
    run = simulate(PLAIN._replace(num_blocks=8, prefix_block_tokens=16), table, requests)
    assert run.hit_tokens.tolist() == [0, 16]
    first, second = run.first_token_s - requests.arrival_s
    assert saved_prefill_s(run, table) == pytest.approx(first - second)


def test_batches_of_a_pipeline_are_drawn_side_by_side():
    pool = Pool(PLAIN, TABLE, stages=2)
    happened = simulate_fleet(Fleet(pool), Requests(np.zeros(4), np.full(4, 16), np.full(4, 20)))
    steps = [event for event in trace(happened)["traceEvents"] if event["ph"] == "X"]
    tracks = {event["tid"] for event in steps}
    assert len(tracks) == 2
    for track in tracks:
        for one, next_one in pairwise(event for event in steps if event["tid"] == track):
            assert one["ts"] + one["dur"] <= next_one["ts"] + 1e-6

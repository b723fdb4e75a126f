"""What users send, in words: how many by default, who sends how, what the replicas share, and what contradicts."""

from pathlib import Path

import numpy as np
import pytest

from simulator.errors import InfercastError, WorkloadError
from simulator.questions.workload_question import AT_A_RATE, AT_ONCE, ROUNDS, WorkloadQuestion
from simulator.workloads.arrivals import ClosedLoop, OpenLoop, Released
from simulator.workloads.lengths import Fixed, Independent, Uniform
from simulator.workloads.workload import RepeatedPrompts, Workload, load_workload
from tests.support.paths import ROOT

LENGTHS = {"input_len": "1024", "output_len": "128"}


def sent(replicas: int = 1, **words: object) -> Workload:
    """Return what one of the replicas is sent."""
    ((_, workload),) = WorkloadQuestion(**{**LENGTHS, **words}).workloads(replicas)
    return workload


# ---------------------------------------------------------------------------------------------------- how many, how


@pytest.mark.parametrize(
    ("words", "arrivals", "count"),
    [
        ({"max_concurrency": "7"}, ClosedLoop(7), ROUNDS * 7),
        ({"request_rate": "inf"}, ClosedLoop(AT_ONCE), AT_ONCE),
        ({"request_rate": "2"}, OpenLoop(2.0), AT_A_RATE),
        ({"request_rate": "2", "burstiness": "0.5", "num_prompts": 40}, OpenLoop(2.0, 0.5), 40),
        ({"request_rate": "2", "release_period": 0.3, "num_prompts": 40}, Released(2.0, 0.3), 40),
        ({"request_rate": "inf", "num_prompts": 40}, ClosedLoop(40), 40),
        ({"max_concurrency": "8", "num_prompts": 5}, ClosedLoop(8), 5),
    ],
)
def test_requests_come_as_asked_and_as_many_by_default_as_their_kind_needs(words, arrivals, count):
    made = sent(**words)
    assert (made.arrivals, made.request_count) == (arrivals, count)
    assert made.lengths == Independent(Fixed(1024), Fixed(128))


def test_a_list_of_rates_is_a_workload_each():
    found = WorkloadQuestion(**LENGTHS, request_rate="1, 2.5,inf", num_prompts=9).workloads()
    assert [rate for rate, _ in found] == [1.0, 2.5, None]
    assert [workload.arrivals for _, workload in found] == [OpenLoop(1.0), OpenLoop(2.5), ClosedLoop(9)]


@pytest.mark.parametrize(
    ("words", "arrivals", "count"),
    [
        ({"max_concurrency": "12"}, ClosedLoop(3), ROUNDS * 3),
        ({"max_concurrency": "8", "num_prompts": 200}, ClosedLoop(2), 50),
        ({"request_rate": "8", "num_prompts": 200}, OpenLoop(2.0), 50),
        ({"request_rate": "8", "release_period": 2.4, "num_prompts": 200}, Released(2.0, 9.6, 4), 50),
        ({"request_rate": "8", "balanced": True, "num_prompts": 200}, OpenLoop(2.0, 4.0, balanced_over=4), 50),
        ({"request_rate": "inf", "num_prompts": 200}, ClosedLoop(50), 50),
        ({"request_rate": "8"}, OpenLoop(2.0), AT_A_RATE),  # an open loop goes on: as long for each
    ],
)
def test_four_replicas_share_what_is_sent(words, arrivals, count):
    made = sent(replicas=4, **words)
    assert (made.arrivals, made.request_count) == (arrivals, count)


def test_requests_in_flight_that_replicas_cannot_share_evenly_are_refused():
    with pytest.raises(WorkloadError, match=r"--max-concurrency 10 over 4 replicas.*--router round-robin"):
        sent(replicas=4, max_concurrency="10")


def test_a_preset_has_lengths_and_burstiness_and_no_rate(tmp_path):
    question, chat = WorkloadQuestion(workload="chat", request_rate="2"), load_workload("chat")
    ((rate, made),) = question.workloads()
    assert (rate, made.arrivals, made.name) == (2.0, OpenLoop(2.0, float(chat.burstiness)), "chat")
    ((_, even),) = WorkloadQuestion(workload="chat", request_rate="2", burstiness="3.0").workloads()
    assert even.arrivals.burstiness == 3.0
    own = tmp_path / "support.yaml"
    own.write_text((ROOT / "simulator" / "workloads" / "chat.yaml").read_text())
    ((_, mine),) = WorkloadQuestion(workload=str(own), request_rate="2").workloads()
    assert (mine.lengths, mine.name) == (made.lengths, "support")  # no path in headings, nor on a page to hand on


def test_the_seed_is_the_workloads():
    made = [sent(request_rate="1", num_prompts=9, seed=seed).requests().arrival_s[-1] for seed in (0, 0, 1)]
    assert made[0] == made[1] != made[2]


# ---------------------------------------------------------------------------------------------------- load generators


def test_a_range_ratio_is_that_of_its_client():
    """vLLM spreads both ways around the length, InferenceMAX below it (benchmark_serving.py: 0.8 to 1)."""
    words = {"max_concurrency": "8", "num_prompts": 4000}
    assert sent(**words, random_range_ratio=0.2).lengths == Independent(Uniform(819, 1229), Uniform(102, 154))
    below = sent(**words, random_range_ratio=0.8, client="inferencemax")
    assert below.lengths == Independent(Uniform(819, 1024), Uniform(102, 128))
    assert below.requests().output_tokens.mean() == pytest.approx(0.9 * 128, rel=0.01)


@pytest.mark.parametrize(
    ("client", "ratio"), [("vllm", 1.0), ("vllm", -0.1), ("inferencemax", 1.1), ("inferencemax", -1.0)]
)
def test_a_range_ratio_that_cannot_be_is_refused(client, ratio):
    with pytest.raises(WorkloadError, match=f"--random-range-ratio {ratio:g}"):
        sent(max_concurrency="8", random_range_ratio=ratio, client=client)


def test_prompts_are_repeated_as_aiperf_does():
    words = {"max_concurrency": "8", "num_prompts": 300}
    assert sent(**words).repeated is None
    assert sent(**words, num_dataset_entries=100).repeated == RepeatedPrompts(100, "shuffle", 0)
    asked = {"num_dataset_entries": 100, "dataset_sampling_strategy": "random", "warmup_request_count": 16}
    assert sent(**words, **asked).repeated == RepeatedPrompts(100, "random", 16)


def test_shuffled_prompts_come_all_before_one_comes_again_and_random_ones_do_not():
    shuffled, random = (RepeatedPrompts(100, strategy, 250) for strategy in ("shuffle", "random"))
    asked, warming = shuffled.asked(500, seed=3)
    assert (len(asked), len(warming)) == (500, 250)
    for turn in np.split(np.concatenate([warming, asked])[:700], 7):
        assert sorted(turn) == list(range(100))
    counts = np.bincount(random.asked(500, seed=3)[0], minlength=100)
    assert counts.sum() == 500
    assert counts.max() > counts.min() + 3
    assert not np.array_equal(shuffled.asked(500, seed=4)[0], asked)


@pytest.mark.parametrize(("entries", "warming"), [(0, 0), (5, -1)])
def test_fewer_prompts_than_one_are_refused(entries, warming):
    with pytest.raises(WorkloadError, match="there is at least one prompt"):
        RepeatedPrompts(entries, "shuffle", warming)


# ---------------------------------------------------------------------------------------------------- contradictions

TRACE = {"trace": Path("requests.csv"), "input_len": "", "output_len": ""}
PRESET = {"workload": "chat", "input_len": "", "output_len": ""}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({}, "no --request-rate: nobody sends anything"),
        ({"input_len": "", "output_len": "", "request_rate": "1"}, "no workload: the lengths of the requests"),
        ({"output_len": "", "request_rate": "1"}, "a request has a prompt and an output"),
        ({"workload": "chat", "request_rate": "1"}, "--workload with --isl and --osl: they say different things"),
        ({**TRACE, "workload": "chat"}, "--workload with --trace: they say different things"),
        ({**PRESET, "random_range_ratio": 0.1, "request_rate": "1"}, "its lengths are its own"),
        ({**TRACE, "burstiness": "2.0"}, "only requests at a rate of your own have gaps to draw"),
        ({"max_concurrency": "2", "burstiness": "2.0"}, "only requests at a rate of your own have gaps to draw"),
        ({"max_concurrency": "2", "request_rate": "1"}, "the rate of a closed loop is an outcome"),
        ({"max_concurrency": "2", "release_period": 1.0}, "a batcher holds Poisson arrivals at a rate of your own"),
        ({"request_rate": "1", "release_period": 1.0, "burstiness": "2.0"}, "a batcher holds Poisson arrivals"),
        ({**TRACE, "release_period": 1.0}, "a batcher holds Poisson arrivals"),
        ({"max_concurrency": "2", "balanced": True}, "replicas share Poisson arrivals at a rate of your own"),
        ({"request_rate": "1", "balanced": True, "burstiness": "2.0"}, "replicas share Poisson arrivals at a rate"),
        ({"request_rate": "1", "balanced": True}, "--balanced with one share: a load is balanced over several"),
        ({"request_rate": "inf", "balanced": True}, "--balanced with --request-rate inf: all requests come at once"),
        ({**TRACE, "num_dataset_entries": 5}, "which prompts of a trace are the same is its own"),
        ({**TRACE, "prefix_len": 100}, "which prompts of a trace begin alike is its own"),
        ({"max_concurrency": "2", "num_prefixes": 3}, "--num-prefixes 3: nothing is shared"),
        ({"max_concurrency": "2", "prefix_len": 9, "num_dataset_entries": 5}, "share all of their tokens"),
        ({"max_concurrency": "2", "trace_columns": "t"}, "it says where a trace has its numbers"),
        ({"max_concurrency": "2", "client": "vlm"}, "its meaning of --random-range-ratio is not known. Nearest: vllm"),
        ({"max_concurrency": "2", "num_dataset_entries": 5, "dataset_sampling_strategy": "rand"}, "Nearest: random"),
        ({"max_concurrency": "2", "dataset_sampling_strategy": "shuffel"}, "Nearest: shuffle"),
        ({"max_concurrency": "2", "dataset_sampling_strategy": "random"}, "no prompt is sent again. Give --num-datas"),
        ({"max_concurrency": "2", "warmup_request_count": 9}, "--warmup-request-count 9: no prompt is sent again"),
        ({"request_rate": "inf", "burstiness": "2.0"}, "--burstiness with --request-rate inf: all requests come at"),
        ({"request_rate": "1,inf", "burstiness": "2.0"}, "--burstiness with --request-rate inf: all requests come"),
        ({"request_rate": "inf", "release_period": 1.0}, "--release-period with --request-rate inf: all requests"),
        ({"max_concurrency": "2", "num_prompts": 0}, "--num-prompts 0"),
        ({"request_rate": "1", "num_prompts": -3}, "--num-prompts -3"),
        ({"request_rate": "1,"}, "a part of the list is empty"),
        ({"request_rate": "0"}, "finite rate above 0"),
        ({"request_rate": "-inf"}, "finite rate above 0"),
        ({"max_concurrency": "0"}, "max-concurrency 0"),
    ],
)  # fmt: skip
def test_what_contradicts_is_refused(words, told):
    with pytest.raises(InfercastError) as error:
        WorkloadQuestion(**{**LENGTHS, **words}).workloads()
    assert told in str(error.value)


def test_a_trace_is_replayed_by_as_many_users_as_are_asked_for(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0.0,10,5\n1.0,20,6\n")
    words = {**TRACE, "trace": path, "max_concurrency": "3,5"}
    found = WorkloadQuestion(**{**LENGTHS, **words}).workloads()
    assert [each.arrivals for _, each in found] == [ClosedLoop(3), ClosedLoop(5)]
    assert found[0][1].requests().prompt_tokens.tolist() == [10, 20]


def test_a_trace_is_of_one_replica(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n2,20,6\n")
    question = WorkloadQuestion(trace=path)
    ((rate, replay),) = question.workloads()
    assert (rate, replay.request_count) == (0.5, 2)
    ((twice, faster),) = WorkloadQuestion(trace=path, request_rate="1").workloads()
    assert (twice, faster.requests().arrival_s[-1]) == (1.0, 1.0)
    with pytest.raises(WorkloadError, match=r"--trace with --replicas 2: .* Use `infercast fleet`"):
        question.workloads(replicas=2)

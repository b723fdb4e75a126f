"""What introductory texts teach about serving, reproduced from the physics, each with the workload it holds for.

The rows are those of the claims that the texts make. Devices and models are shipped profiles; nothing is fitted here.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.layouts import default_layout
from simulator.deployment.memory import memory_plan
from simulator.deployment.speculation import Speculation
from simulator.models.model import load_model
from simulator.models.operations import Counts, Sequence, count
from simulator.reports.latency_breakdown import saved_prefill_s
from simulator.reports.queueing import m_g_1_wait_s
from simulator.reports.report import Report, summarize
from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import CONTINUOUS, STATIC, UNCACHED, SchedulerLimits
from simulator.simulation.engine_loop import Run, simulate
from simulator.simulation.scheduler_limits import limits
from simulator.workloads.arrivals import OpenLoop
from simulator.workloads.lengths import Fixed, Independent, LogNormal
from simulator.workloads.shared_prefixes import Prefixes
from simulator.workloads.workload import Requests, Workload, load_workload

LARGEST = 4096  # tokens of a step: whole prompts are computed at once where there is no cache


def table_of(deployment: Deployment) -> StepTable:
    return deployment.step_model().table(LARGEST, deployment.max_num_seqs)


@dataclass(frozen=True)
class Server:
    """A deployment whose scheduler may be changed."""

    deployment: Deployment
    limits: SchedulerLimits
    table: StepTable

    @classmethod
    def of(cls, deployment: Deployment, **changes: int) -> "Server":
        return cls(deployment, limits(deployment)._replace(**changes), table_of(deployment))

    def but(self, **changes: int) -> "Server":
        return replace(self, limits=self.limits._replace(**changes))

    def run(self, requests: Requests) -> Run:
        return simulate(self.limits, self.table, requests, acceptance=self.deployment.acceptance)

    def report(self, requests: Requests) -> Report:
        return summarize(self.run(requests), steady=False)


def at_once(prompts: np.ndarray, outputs: np.ndarray) -> Requests:
    """All requests arrive at 0: an offline job."""
    return Requests(np.zeros(len(prompts)), prompts, outputs)


def drawn(count: int, prompt: object, output: object) -> Requests:
    return at_once(*Independent(prompt, output).draw(count, np.random.default_rng(1), np.random.default_rng(2)))


A100 = Server.of(deploy("llama-2-7b", "a100-sxm-80"))


# ------------------------------------------------------------------ batching (rows 14 to 16)


def static(slots: int, reserved_tokens: int = 4096) -> Server:
    """Hugging Face style: fixed batches whose slots and cache stay taken until the longest is done."""
    contiguous = A100.limits.num_blocks * A100.limits.block_size // reserved_tokens
    return A100.but(policy=STATIC, async_scheduling=False, max_num_seqs=min(slots, contiguous))


def gain(requests: Requests, slots: int = 32) -> float:
    """Output tokens per second of continuous over those of static batching."""
    found = [server.report(requests) for server in (A100.but(max_num_seqs=slots), static(slots))]
    return found[0].output_tokens_per_s / found[1].output_tokens_per_s


def test_continuous_batching_gives_2_to_4_times_static_batching_where_lengths_vary():
    """Row 16: 1,024 of Azure's conversations at once, 32 slots; and 512 in, about 200 out, ever more spread."""
    assert 2.0 <= gain(conversations(load_workload("chat"), 1024, 4096)) <= 4.0
    even, some, more, wide = (gain(drawn(1024, Fixed(512), LogNormal(200, cv, 2000))) for cv in (0.0, 0.4, 0.6, 1.5))
    assert even == pytest.approx(1.0, abs=0.1)  # equal lengths: nothing to gain
    assert 2.0 <= some < more <= 4.0
    assert wide > 4.0  # a batch waits for the longest of 32


def test_a_paged_engine_gives_3_to_24_times_a_static_one_and_more_than_one_without_a_cache():
    """Row 16: against static batches of 8, against one request at a time, and against that without a cache."""
    requests = drawn(256, Fixed(512), LogNormal(200, 1.0, 2000))
    paged = A100.report(requests).output_tokens_per_s
    naive = A100.but(policy=UNCACHED, async_scheduling=False)
    eight, one, none = (paged / each.report(requests).output_tokens_per_s for each in (static(8), static(1), naive))
    assert 3 <= eight < one <= 24
    assert none > 24


SECOND_PER_STEP = StepTable(np.full(4097, 0.05), np.zeros(257), np.zeros(5))  # 50 ms a step: 20 tokens/s


def test_a_short_request_is_stuck_behind_a_long_one():
    """Row 15: 100 and 10 tokens in one static batch at 50 ms a token; the next 10-token request comes at 0.1 s."""
    three = Requests(np.array([0.0, 0.0, 0.1]), np.full(3, 8), np.array([100, 10, 10]))
    plain = A100.limits._replace(async_scheduling=False, max_num_seqs=2, stream_s=0.0)
    stuck = simulate(plain._replace(policy=STATIC), SECOND_PER_STEP, three)
    free = simulate(plain, SECOND_PER_STEP, three)
    assert stuck.steps.start_s[99] + 0.05 == pytest.approx(5.0)  # the batch, and with it its answers, ends at 5 s
    assert stuck.scheduled_s[2] == pytest.approx(5.0)
    assert stuck.finished_s[2] - 0.1 == pytest.approx(5.4)
    assert free.finished_s[2] - 0.1 == pytest.approx(0.9)  # it takes the slot that the short one leaves at 0.5 s
    one_at_a_time = simulate(plain._replace(max_num_seqs=1), SECOND_PER_STEP, three)
    assert one_at_a_time.finished_s[1] == pytest.approx(5.5)  # 5 s behind the long one, 0.5 s of its own


def test_ten_sequences_give_nearly_ten_times_one_and_twenty_less_than_twenty():
    """Row 14: 256 tokens in, 256 out in closed loops; all share one reading of the weights, but not of the prompts."""

    def tokens_per_s(users: int) -> float:
        requests = Requests(np.zeros(20 * users), np.full(20 * users, 256), np.full(20 * users, 256), users)
        return A100.report(requests).output_tokens_per_s

    one, ten, twenty = (tokens_per_s(users) for users in (1, 10, 20))
    weights_per_s = float(A100.deployment.hardware.memory_bytes_per_s) / memory_plan(A100.deployment).weight_bytes
    assert 0.5 * weights_per_s < one < weights_per_s  # 151/s is the speed of light; taught: 100
    assert 7 < ten / one < 10  # taught: 1,000/s
    assert 10 < twenty / one < 20


# ------------------------------------------------------------------ the cache (rows 9, 17, 29)


def test_without_a_cache_the_prompt_is_computed_for_every_token():
    """Row 9: 100 tokens, one request alone. Computing the prompt 100 times does not take 100 times as long: a short
    one costs hardly more than the reading of the weights that every token needs anyway."""
    slower = []
    for prompt in (50, 1000, 3900):
        alone = at_once(np.array([prompt]), np.array([100]))
        naive = A100.but(policy=UNCACHED, async_scheduling=False).run(alone)
        assert naive.steps.prompt_tokens.sum() == 100 * prompt + 99 * 100 // 2  # the prompt and all before, each time
        prompts_s = sum(step_s(A100.deployment, Sequence(prompt + done, 0)) for done in range(100))
        assert naive.finished_s[0] == pytest.approx(prompts_s, rel=1e-3)
        cached = A100.run(alone)
        decodes_s = sum(step_s(A100.deployment, Sequence(1, prompt + done)) for done in range(99))
        first_s = step_s(A100.deployment, Sequence(prompt, 0))
        assert cached.finished_s[0] == pytest.approx(first_s + decodes_s, rel=0.01)
        slower.append(float(naive.finished_s[0] / cached.finished_s[0]))
    short, middle, long = slower
    assert 1.0 < short < 1.6
    assert 5 < middle < 9
    assert 15 < long < 26  # as the prompt grows it tends to 100, less what attention to it costs each token


def step_s(deployment: Deployment, *batch: Sequence) -> float:
    """The step model's seconds for a batch, past any scheduler."""
    return float(deployment.step_model().seconds(count(batch, deployment.model.span)))


def test_reserving_the_maximum_wastes_60_to_80_percent_and_paging_under_5():
    """Row 17: Azure's conversations (some 1,000 in, 200 out) with 4,096 tokens reserved each, or blocks of 16."""
    requests = conversations(load_workload("chat"), 2000, 4096)
    capacity = A100.limits.num_blocks * A100.limits.block_size
    reserved = A100.but(block_size=4096, num_blocks=capacity // 4096)
    wasteful, frugal = reserved.report(requests), A100.report(requests)
    assert 0.6 <= wasteful.cache_waste <= 0.8
    assert frugal.cache_waste < 0.05
    assert frugal.run.steps.running.max() > 2 * wasteful.run.steps.running.max()  # so paging runs more at once


def conversations(preset: object, count: int, longest: int) -> Requests:
    """The preset's requests, all at once, without those above a length."""
    drawn_ = Workload(OpenLoop(1.0), preset.lengths, 2 * count).requests()
    kept = np.flatnonzero(drawn_.prompt_tokens + drawn_.output_tokens <= longest)[:count]
    return at_once(drawn_.prompt_tokens[kept], drawn_.output_tokens[kept])


@pytest.mark.parametrize("shared_prefix_blocks", [0, 4, 7])
def test_cached_tokens_are_not_computed(shared_prefix_blocks):
    """Row 29: prompts of 4,000 tokens whose first units of 512 are everyone's; TTFT falls with the hit rate."""
    count, unit = 40, 512
    ids = [
        [*range(shared_prefix_blocks), *(1000 * row + 100 + n for n in range(7 - shared_prefix_blocks))]
        for row in range(1, count + 1)
    ]
    arrival_s = np.arange(count) * 20.0  # far apart: no queue
    requests = Requests(arrival_s, np.full(count, 4000), np.full(count, 10), prefixes=Prefixes.of(ids))
    report = A100.but(prefix_block_tokens=unit).report(requests)
    run = report.run
    assert run.hit_tokens[0] == 0
    assert (run.hit_tokens[1:] == shared_prefix_blocks * unit).all()
    assert report.prefix_hit_rate == pytest.approx(shared_prefix_blocks * unit * (count - 1) / (4000 * count))
    cold, warm = run.first_token_s[0], float((run.first_token_s - arrival_s)[1:].mean())
    computed = 1 - shared_prefix_blocks * unit / 4000
    assert warm / cold == pytest.approx(computed, abs=0.04)
    assert run.steps.prompt_tokens.sum() == 4000 * count - shared_prefix_blocks * unit * (count - 1)
    # What it costs: the seconds that the device is busy, paid for by the hour, fall by those of the tokens found.
    unshared = A100.report(Requests(arrival_s, np.full(count, 4000), np.full(count, 10))).run
    assert unshared.busy_s - run.busy_s == pytest.approx(saved_prefill_s(run, A100.table), rel=0.05, abs=1e-6)
    prefill_share = float(unshared.steps.prompt_s.sum()) / unshared.busy_s
    assert run.busy_s / unshared.busy_s == pytest.approx(1 - prefill_share * report.prefix_hit_rate, abs=0.03)


# ------------------------------------------------------------------ queueing (row 26)


def served(rate_per_s: float, count: int, burstiness: float = 1.0) -> Run:
    """A server that takes exactly 10 ms for each request, one at a time."""
    ten_ms = StepTable(np.full(64, 0.01), np.zeros(2), np.zeros(5))
    arrival_s = OpenLoop(rate_per_s, burstiness).times_s(count, np.random.default_rng(0))
    one = A100.limits._replace(async_scheduling=False, max_num_seqs=1, policy=CONTINUOUS, max_num_batched_tokens=63)
    return simulate(one, ten_ms, Requests(arrival_s, np.ones(count), np.ones(count)))


def test_110_requests_per_second_into_a_server_of_100_queue_without_end():
    """Row 26: the wait grows by a tenth of a second every second: "a one-second queue" is true at 10 s, no longer."""
    even = served(110.0, 40_000, np.inf)
    wait_s, at_s = even.scheduled_s - even.requests.arrival_s, even.requests.arrival_s
    for seconds in (1.0, 10.0, 100.0, 300.0):
        assert wait_s[np.searchsorted(at_s, seconds)] == pytest.approx(0.1 * seconds, abs=0.02)
    report = summarize(served(110.0, 40_000))  # random arrivals: the same growth
    assert report.overloaded
    assert report.queue_growth_per_s == pytest.approx(10, rel=0.15)


@pytest.mark.parametrize(
    ("load", "wait_ms", "count"),
    [(0.9, 45, 200_000), (0.95, 95, 400_000), pytest.param(0.99, 495, 1_000_000, marks=pytest.mark.slow)],
)
def test_the_wait_below_saturation_is_pollaczek_and_khinchines(load, wait_ms, count):
    """Row 26: at 90 % 45 ms, at 95 % 95 ms, at 99 % 495 ms of mean wait; at 100 % none exists."""
    run = served(100 * load, count)
    assert m_g_1_wait_s(100 * load, 0.01, 0.0) * 1e3 == pytest.approx(wait_ms)
    error = 3 / (1 - load) / count**0.5  # a queue forgets after some (1 - load)^-2 services: three deviations
    assert float((run.scheduled_s - run.requests.arrival_s).mean()) * 1e3 == pytest.approx(wait_ms, rel=error)
    assert m_g_1_wait_s(100.0, 0.01, 0.0) == np.inf


# ------------------------------------------------------------------ speculation, sharding, experts, thinking


def speed_up(users: int, acceptance: float) -> float:
    """Tokens per second with 4 n-gram drafts over those without, in a closed loop of 128 in, 256 out."""
    plain = deploy("llama-3.1-8b", "h100-sxm")
    drafting = replace(plain, settings=replace(plain.settings, speculation=Speculation("ngram", 4, (acceptance,))))
    asked = max(2 * users, 40)
    requests = Requests(np.zeros(asked), np.full(asked, 128), np.full(asked, 256), users)
    with_drafts = Server.of(drafting, draft_tokens=4).report(requests).output_tokens_per_s
    return with_drafts / Server.of(plain).report(requests).output_tokens_per_s


@pytest.mark.parametrize(
    ("acceptance", "low", "high"), [(0.2, 1.2, 1.4), (0.25, 1.2, 1.4), (0.6, 2.0, 3.0), (0.7, 2.0, 3.0)]
)
def test_speculation_is_20_percent_or_threefold_by_acceptance(acceptance, low, high):
    """Row 18: both texts are right, for different acceptance. Alone, checking 5 tokens costs hardly more than making
    one, so the gain is nearly the tokens per step, (1 - a^5) / (1 - a) (Leviathan and others, 2023, equation 1)."""
    gained = speed_up(1, acceptance)
    assert low <= gained <= high
    assert 0.93 < gained * (1 - acceptance) / (1 - acceptance**5) < 1.01


def test_speculation_is_a_loss_in_large_batches():
    """Row 18: the more sequences, the less of a step is the reading of weights, and the more checking costs."""
    gains = [speed_up(users, 0.3) for users in (1, 8, 64, 512)]
    assert gains == sorted(gains, reverse=True)
    assert gains[1] > 1.2
    assert gains[3] < 0.7


def decode_s(deployment: Deployment, batch: int, context: int = 1024) -> float:
    step = Counts(steps=1.0, tokens=float(batch), logits=float(batch), decode_reads=float(batch * context))
    return float(deployment.step_model().seconds(step))


def sharded(model: str, hardware: str, tp: int) -> Deployment:
    return deploy(model, hardware, layout=default_layout(load_model(model), tp=tp))


def link_share(deployment: Deployment, prompt: int) -> float:
    """The share of a prompt's time that goes into all-reduces."""
    pairs = prompt * (prompt + 1) / 2
    step = Counts(steps=1.0, tokens=prompt, logits=1.0, prefill_tokens=prompt, prefill_pairs=pairs)
    costs = deployment.step_model().explain(step)
    return float(sum(each.seconds for each in costs if each.link_s) / sum(each.seconds for each in costs))


def test_sharding_serves_a_larger_model_and_pays_for_communication():
    """Row 30: a 70B fits four H100 and not one; over NVLink eight devices decode faster than four, by less than two."""
    assert memory_plan(sharded("llama-3.1-70b", "h100-sxm", 1)).num_blocks == 0
    assert memory_plan(sharded("llama-3.1-70b", "h100-sxm", 4)).num_blocks > 0
    four, eight = (decode_s(sharded("llama-3.1-70b", "h100-sxm", tp), 16) for tp in (4, 8))
    assert 1.2 < four / eight < 2.0
    light, paid = (sharded("llama-3.1-8b", device, 4) for device in ("h100-sxm", "l40s"))
    nvlink, pcie = (link_share(each, prompt=2048) for each in (light, paid))
    assert 0 < nvlink < 0.5 < pcie  # the activations of a prompt of 2,048 tokens
    staged = deploy("llama-3.1-8b", "l40s", layout=default_layout(load_model("llama-3.1-8b"), pp=4))
    assert link_share(staged, prompt=2048) < 0.05  # stages hand over once each, and nobody decodes faster for them
    assert decode_s(staged, 16) == pytest.approx(decode_s(deploy("llama-3.1-8b", "l40s"), 16), rel=0.05)


def test_experts_are_cheap_to_compute_and_dear_to_hold():
    """Row 31: Mixtral holds 47B and computes 13B per token: alone it decodes near a 13B, in a batch like all 47B."""
    mixtral, dense = deploy("mixtral-8x7b", "h200-sxm"), deploy("llama-2-13b", "h200-sxm")
    assert mixtral.model.parameters / mixtral.model.active_parameters == pytest.approx(47 / 13, rel=0.03)
    assert flops(mixtral) == pytest.approx(flops(dense), rel=0.05)
    weights = memory_plan(mixtral).weight_bytes / memory_plan(dense).weight_bytes
    assert weights == pytest.approx(47 / 13, rel=0.03)
    assert decode_s(mixtral, 1) < 1.3 * decode_s(dense, 1)
    assert 2 < decode_s(mixtral, 32, 64) / decode_s(dense, 32, 64) < weights


def flops(deployment: Deployment) -> float:
    """Floating-point operations of a token without context."""
    return sum(float(cost.flops) for cost in deployment.step_model().explain(count([Sequence(1, 0)])))


@pytest.mark.parametrize("thought", [1000, 2000, 4000])
def test_thinking_multiplies_latency_and_cost_by_output_tokens(thought):
    """Row 32: 1,000 in, 200 of answer, with and without thoughts before it, on an H100. Where the engine has room, the
    latency grows as the output tokens do; where it is full, so does what a request costs, the prompt aside."""
    server = Server.of(deploy("llama-3.1-8b", "h100-sxm"))

    def of(outputs: int) -> tuple[float, float, float]:
        prompts, answers = np.full(300, 1000), np.full(300, outputs)
        calm = server.report(Requests(OpenLoop(0.2).times_s(300, np.random.default_rng(0)), prompts, answers))
        busy_s = server.report(at_once(prompts, answers)).duration_s
        return calm.metrics["e2el"]["mean"], busy_s, calm.metrics["ttft"]["mean"]

    latency, cost, first = (much / none for much, none in zip(of(200 + thought), of(200), strict=True))
    tokens = (200 + thought) / 200
    assert tokens * 0.95 < latency < 1.5 * tokens
    assert 0.5 * tokens < cost < 1.5 * tokens
    assert first < 1.5  # it waits for steps with more decodes in them, not for the thoughts

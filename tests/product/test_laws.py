"""Laws that hold for every device, model, workload and limit (docs/structure.md, "Laws")."""

import json
import math
import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator.deployment.deployment import deploy
from simulator.deployment.settings import Settings
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import load_engine, usual_engine
from simulator.hardware.achievable import Achievable, DecodeAttention, Gemm, PrefillAttention
from simulator.hardware.hardware import Hardware, load_hardware
from simulator.models.layout import Layout
from simulator.models.model import Model, load_model
from simulator.models.operations import Counts, Sequence, count
from simulator.profile_folders import names
from simulator.roofline.speed_of_light import LightRates
from simulator.roofline.step_model import SLOPES, StepModel, StepTable
from simulator.scheduler.completion import complete
from simulator.scheduler.policies import schedule
from simulator.scheduler.state import POLICIES, STATIC, UNCACHED, SchedulerLimits, State, blocks
from simulator.scheduler.waiting_queue import enqueue
from simulator.simulation.engine_loop import Run, opening, simulate
from simulator.workloads.workload import Requests
from tests.support.digests import chat, compiled_digests, digest, digests, simulated
from tests.support.for_each import for_each
from tests.support.paths import ROOT
from tests.support.platforms import reads, runs_on

OVERHEADS = load_engine("vllm").overheads.model_copy(update={"step_s": 50e-6})
PLAIN = settings(max_examples=30, deadline=None)


# ---------------------------------------------------------------- random devices, models, batches


def shares(low: float = 0.05) -> st.SearchStrategy[float]:
    return st.floats(low, 1.0)


@st.composite
def devices(draw: st.DrawFn) -> Hardware:
    """A device with any rates; its peaks keep the order of number formats."""
    shipped = load_hardware("h100-sxm")
    peak = draw(st.floats(1e11, 5e15))
    gemm = st.builds(
        Gemm.model_construct,
        compute_fraction=shares(),
        memory_fraction=shares(),
        launch_s=st.floats(0, 50e-6),
        exponent=st.one_of(st.none(), st.floats(1.0, 8.0)),
    )
    achievable = Achievable.model_construct(
        gemm={name: draw(gemm) for name in ("bf16", "fp8")},
        decode_attention=DecodeAttention.model_construct(
            memory_fraction=draw(shares()), launch_s=draw(st.floats(0, 50e-6))
        ),
        prefill_attention=PrefillAttention.model_construct(
            compute_fraction=draw(shares()), half_length_tokens=draw(st.floats(0, 3000))
        ),
        elementwise_memory_fraction=draw(shares()),
        all_reduce=shipped.achievable.all_reduce,
    )
    changes = {
        "memory_bytes_per_s": draw(st.floats(1e10, 1e13)),
        "peak_flops_per_s": {"bf16": peak, "fp8": 2 * peak},
        "achievable": achievable,
    }
    return shipped.model_copy(update=changes)


def mixers() -> st.SearchStrategy[dict[str, object]]:
    grouped = st.builds(
        lambda kv_heads, group, window: {
            "kind": "attention",
            "heads": 4 * kv_heads * group,
            "kv_heads": 4 * kv_heads,
            "head_dim": 64,
            **({"window": window} if window else {}),
        },
        st.integers(1, 4),
        st.integers(1, 4),
        st.sampled_from([0, 0, 7, 64]),
    )
    latent = {"kind": "latent", "heads": 8, "q_lora": 96, "kv_lora": 64, "rope_dim": 16, "nope_dim": 32, "v_dim": 32}
    return st.one_of(grouped, st.just(latent))


def feed_forwards() -> st.SearchStrategy[dict[str, object]]:
    dense = st.builds(
        lambda width, gated: {"kind": "dense", "intermediate": 256 * width, "gated": gated},
        st.integers(1, 8),
        st.booleans(),
    )
    routed = st.builds(
        lambda experts, chosen, shared: {
            "kind": "experts",
            "experts": 8 * experts,
            "chosen": chosen,
            "intermediate": 256,
            "shared_intermediate": 256 * shared,
        },
        st.integers(1, 8),
        st.integers(1, 8),
        st.integers(0, 1),
    )
    return st.one_of(dense, routed)


@st.composite
def models(draw: st.DrawFn) -> Model:
    """A small model of one or two kinds of block: dense, grouped, windowed, latent, experts."""
    mixer = draw(mixers())
    full = {key: value for key, value in mixer.items() if key != "window"}
    blocks = {"a": {"mixer": mixer, "ffn": draw(feed_forwards())}, "b": {"mixer": full, "ffn": draw(feed_forwards())}}
    profile = {
        "name": "made up",
        "hidden": 128 * draw(st.integers(1, 16)),
        "vocab": draw(st.integers(100, 50_000)),
        "max_context_tokens": 1 << 20,
        "blocks": blocks,
        "layers": ({"repeat": draw(st.integers(1, 4)), "of": ("a", "b")}, {"of": ("a",)}),
    }
    return Model.from_mapping(profile, "a test")


decodes = st.builds(lambda past: Sequence(1, past), st.integers(1, 40_000))
prompts = st.builds(Sequence, st.integers(2, 500), st.integers(0, 5000))
batches = st.lists(st.one_of(decodes, prompts), min_size=1, max_size=12)
layouts = st.builds(
    lambda tp, weights, cached: Layout(tp=tp, weight_dtype=weights, cache_dtype=cached),
    st.sampled_from([1, 1, 2, 4]),
    st.sampled_from(["bf16", "fp8", "int4"]),
    st.sampled_from(["bf16", "fp8"]),
)


def both_modes(model: Model, hardware: Hardware, layout: Layout) -> tuple[StepModel, StepModel]:
    ops = model.ops(layout)
    return StepModel(ops, DeviceKernels(hardware), OVERHEADS), StepModel(ops, DeviceKernels(hardware), light=True)


def at_most(low: float, high: float) -> bool:
    """Whether low <= high, up to rounding."""
    return low <= high * (1 + 1e-9)


# ---------------------------------------------------------------- steps


@PLAIN
@given(model=models(), hardware=devices(), layout=layouts, batch=batches)
def test_a_step_is_the_sum_of_its_ops_and_never_beats_light(model, hardware, layout, batch):
    expected, light = both_modes(model, hardware, layout)
    counts = count(batch, model.span)
    for step in (expected, light):
        alone = [replace(step, ops=(op,)).seconds(counts) for op in step.ops]
        host_s = replace(step, ops=()).seconds(counts)
        assert math.isclose(step.seconds(counts), sum(alone) - (len(alone) - 1) * host_s, rel_tol=1e-9)
    for slow, fast in zip(expected.explain(counts), light.explain(counts), strict=True):
        assert slow.name == fast.name
        assert at_most(fast.seconds, slow.seconds)


@PLAIN
@given(model=models(), hardware=devices(), layout=layouts, batch=batches)
def test_no_step_exceeds_peak_times_time(model, hardware, layout, batch):
    counts = count(batch, model.span)
    for step in both_modes(model, hardware, layout):
        total_flops_s = total_bytes_s = 0.0
        for op, cost in zip(step.ops, step.explain(counts), strict=False):
            flops_s = cost.flops / LightRates(DeviceKernels(hardware)).peak_flops_per_s(op.format)
            # The keys and values of a prompt were just written: they come out of the on-chip cache and are not charged.
            bytes_s = cost.moved_bytes / hardware.memory_bytes_per_s
            assert at_most(max(flops_s, bytes_s), cost.seconds)
            total_flops_s, total_bytes_s = total_flops_s + flops_s, total_bytes_s + bytes_s
        assert at_most(max(total_flops_s, total_bytes_s), step.seconds(counts))


@PLAIN
@given(model=models(), hardware=devices(), layout=layouts, batch=batches, factor=st.floats(1.0, 10.0))
def test_a_better_device_is_never_slower(model, hardware, layout, batch, factor):
    counts = count(batch, model.span)
    wider = {"memory_bytes_per_s": hardware.memory_bytes_per_s * factor}
    faster = {"peak_flops_per_s": {name: peak * factor for name, peak in hardware.peak_flops_per_s.items()}}
    for changes in (wider, faster):
        better = both_modes(model, hardware.model_copy(update=changes), layout)
        for old, new in zip(both_modes(model, hardware, layout), better, strict=True):
            assert at_most(new.seconds(counts), old.seconds(counts))


@PLAIN
@given(model=models(), hardware=devices(), layout=layouts, first=batches, second=batches)
def test_one_batch_of_two_costs_no_more_than_two(model, hardware, layout, first, second):
    for step in both_modes(model, hardware, layout):
        together = step.seconds(count(first + second, model.span))
        apart = step.seconds(count(first, model.span)) + step.seconds(count(second, model.span))
        assert at_most(together, apart)
        assert at_most(step.seconds(count(first, model.span)), together)


def looked_up(table: StepTable, counts: Counts) -> float:
    attention = sum(slope * getattr(counts, name) for slope, name in zip(table.slopes, SLOPES, strict=True))
    return float(table.token_s[int(counts.tokens)] + table.logit_s[int(counts.logits)] + attention)


@PLAIN
@given(model=models(), hardware=devices(), layout=layouts, several=st.lists(batches, min_size=1, max_size=3))
def test_the_table_of_the_event_loop_equals_the_sum_of_ops(model, hardware, layout, several):
    for step in both_modes(model, hardware, layout):
        table = step.table(6000, 12)
        for batch in several:
            counts = count(batch, model.span)
            assert math.isclose(looked_up(table, counts), step.seconds(counts), rel_tol=1e-9)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-27b", "gpt-oss-120b", "deepseek-v3", "qwen3-30b-a3b"])
def test_the_table_of_shipped_models_equals_the_sum_of_ops(name):
    deployment = deploy(name, "h200-sxm")
    step, table = deployment.step_model(), deployment.step_model().table(4096, 64)
    rng = np.random.default_rng(0)
    for _ in range(20):
        batch = [Sequence(1, int(past)) for past in rng.integers(1, 9000, rng.integers(1, 40))]
        batch.append(Sequence(int(rng.integers(2, 2000)), int(rng.integers(0, 3000))))
        counts = count(batch, deployment.model.span)
        piecewise = counts.tokens <= step.graphs.tokens
        by_host_s = table.prompts.piecewise_s if piecewise else table.prompts.least_s
        worked_s = looked_up(table, counts) + piecewise * table.prompts.gaps_s
        assert math.isclose(max(worked_s, by_host_s), step.seconds(counts), rel_tol=1e-12)


@cache
def tried(engine: str) -> list[str]:
    """One device of each family that an engine runs on, another for the next engine, and those that it is usual on."""
    at, own, families = names("engines").index(engine), set(), defaultdict(list)
    for name in names("hardware_profiles"):
        device = load_hardware(name)
        if runs_on(engine, device):
            families[device.device_class, device.family].append(name)
            own |= {name} if load_engine(usual_engine(device)).id == engine else set()
    return sorted({*own, *(devices[at % len(devices)] for devices in families.values())})


@pytest.mark.slow
@for_each("engine", names("engines"))
def test_no_shipped_engine_beats_light_on_a_shipped_device(engine):
    batches_of = ([Sequence(1, 1000)], [Sequence(1, 1000)] * 200, [Sequence(4000, 0)])
    counts = Counts(*map(np.array, zip(*map(count, batches_of), strict=True)))
    for device, weights in product(tried(engine), ("bf16", "int4")):
        if not reads(engine, load_hardware(device), weights):
            continue
        deployment = deploy("mixtral-8x7b", device, engine, Layout(weight_dtype=weights))
        expected, light = deployment.step_model().explain(counts), deployment.at_light.step_model().explain(counts)
        for slow, fast in zip(expected, light, strict=True):
            assert np.all(fast.seconds <= slow.seconds * (1 + 1e-9)), (device, weights, slow.name)


@pytest.mark.slow
def test_light_is_compared_with_every_engine_and_on_every_device():
    found = {each: tried(each) for each in names("engines")}
    assert all(found.values())
    assert set().union(*found.values()) == set(names("hardware_profiles"))


@for_each("name", names("model_profiles"))
def test_one_device_has_no_collective(name):
    ops = load_model(name).ops(Layout())
    assert not any(op.rate in ("all_reduce", "send") or any(op.link_bytes) for op in ops)


# ---------------------------------------------------------------- schedules

rows = st.lists(st.tuples(st.floats(0, 0.05), st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=30).map(
    sorted
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[SchedulerLimits, StepTable, Requests]:
    """Limits in which each request fits alone, a step table, requests: open or closed, static, windowed, async."""
    requests = draw(rows)
    concurrency = draw(st.sampled_from([0, 0, 0, 1, 4]))
    arrival_s, prompt_tokens, output_tokens = (np.array(column) for column in zip(*requests, strict=True))
    policy = draw(st.sampled_from(sorted(POLICIES.values())))
    window = draw(st.sampled_from([0, 0, 3, 17])) if policy != STATIC else 0
    block_size, seqs = draw(st.sampled_from([1, 4, 16])), draw(st.integers(1, 8))
    limits = SchedulerLimits(
        policy=policy,
        max_num_seqs=seqs,
        max_num_batched_tokens=seqs + draw(st.integers(0, 60)),
        num_blocks=0,
        block_size=block_size,
        admit_full_prompt=draw(st.booleans()),
        async_scheduling=policy != STATIC and draw(st.booleans()),
        window=window,
        chunked=window > 0 and draw(st.booleans()),
        full_groups=draw(st.integers(1, 2)),
        window_groups=draw(st.integers(1, 3)) if window else 0,
        window_blocks=-(-window // block_size) + 1 if window else 0,
    )
    longest = max(blocks(limits, int(tokens)) for tokens in prompt_tokens + output_tokens - 1)
    table = StepTable(
        token_s=1e-3 + 1e-5 * np.arange(5000) * draw(st.floats(0, 2)),
        logit_s=1e-6 * np.arange(65),
        slopes=np.array(draw(st.lists(st.floats(0, 1e-6), min_size=5, max_size=5))),
    )
    times = np.zeros(len(arrival_s)) if concurrency else arrival_s
    sent = Requests(times, prompt_tokens, output_tokens, concurrency)
    return limits._replace(num_blocks=longest + draw(st.integers(0, 60))), table, sent


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_every_run_is_lawful(case):
    limits, table, requests = case
    run = simulate(limits, table, requests)
    check_requests(run)
    check_steps(run)
    if not run.preemptions.any():
        computed = int(run.steps.prompt_tokens.sum()) + int(run.steps.decodes.sum())
        each = requests.prompt_tokens + requests.output_tokens - 1
        if limits.policy == UNCACHED:  # p, p + 1, ..., p + n - 1
            each = requests.output_tokens * (requests.prompt_tokens + each) // 2
        asked = int(each.sum())
        assert computed == asked if limits.policy != STATIC else computed >= asked


def check_requests(run: Run) -> None:
    """None is lost, each in order: arrival <= scheduled <= first token <= finished."""
    times = [run.requests.arrival_s, run.scheduled_s, run.first_token_s, run.finished_s]
    assert np.isfinite(times).all()
    for earlier, later in pairwise(times):
        assert (earlier <= later).all()
    assert (run.first_token_s[run.requests.output_tokens > 1] < run.finished_s[run.requests.output_tokens > 1]).all()
    assert (run.scheduled_s < run.first_token_s).all()
    assert (np.diff(run.scheduled_s) >= 0).all()  # first come, first served
    assert (run.stalled_s[run.preemptions == 0] == 0).all()
    assert (run.stalled_s >= 0).all()
    assert (run.stalled_s <= (run.finished_s - run.first_token_s) * (1 + 1e-9)).all()


def check_steps(run: Run) -> None:
    """The clock never goes back, steps do not overlap, limits hold, and nobody idles while there is work."""
    start_s, end_s = run.steps.start_s, run.steps.start_s + run.steps.seconds
    assert (run.steps.seconds > 0).all()
    assert (start_s[1:] >= end_s[:-1]).all()
    assert at_most(run.busy_s, run.end_s - start_s[0])
    limits = run.limits
    assert (run.steps.blocks <= limits.num_blocks).all()
    assert (run.steps.running <= limits.max_num_seqs).all()
    if limits.policy not in (STATIC, UNCACHED):
        assert (run.steps.prompt_tokens + run.steps.decodes <= limits.max_num_batched_tokens).all()
    idle = np.flatnonzero(start_s[1:] > end_s[:-1])
    for before in idle:
        assert start_s[before + 1] in run.requests.arrival_s
        there = run.requests.arrival_s < start_s[before + 1]
        assert (run.finished_s[there] <= end_s[before]).all()


def held(s: State) -> int:
    """Recount the blocks of the running sequences."""
    book, slots = s.book[0], s.slots
    if s.limits.policy == STATIC:
        requests = s.requests[slots.request[: book.running]]
        return sum(blocks(s.limits, int(each.prompt_tokens + each.output_tokens - 1)) for each in requests)
    tokens = slots.cached[: book.running] + book.tick * (np.arange(book.running) < book.decoding)
    return sum(blocks(s.limits, int(each)) for each in tokens)


@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_blocks_and_sums_are_what_a_recount_gives(case):
    """Drive the scheduler as the reference engine does, and recount after every step."""
    limits, _, requests = case
    s, now_s = opening(limits, replace(requests, concurrency=0)), 0.0
    book = s.book[0]
    for index in range(len(requests)):
        enqueue(s, index)
    while book.finished < len(requests):
        assert schedule(s, now_s) > 0
        now_s += 1.0
        complete(s, now_s)
        decoding = s.slots[: book.decoding]
        assert book.free_blocks + held(s) == limits.num_blocks
        assert book.base_sum == decoding.cached.sum()
        assert (
            book.waiting
            == len(requests) - book.finished - np.isnan(s.requests.finished_s[s.slots.request[: book.running]]).sum()
        )
        if limits.window:
            tokens = decoding.cached + book.tick
            still_open = limits.chunked | (tokens < limits.window)
            start = tokens // limits.window * limits.window if limits.chunked else 0 * tokens
            assert book.open_reads == still_open.sum()
            assert book.open_base_sum == (decoding.cached - start)[still_open].sum()
    assert book.free_blocks == limits.num_blocks
    assert book.running == book.decoding == book.base_sum == book.unfinished == book.waiting == 0
    assert not s.growth.any()


@PLAIN
@given(case=cases(), factor=st.floats(1.0, 4.0))
def test_a_faster_engine_finishes_a_closed_loop_no_later(case, factor):
    """With one sequence at a time there is no scheduling anomaly: every time scales with the steps."""
    limits, table, requests = case
    assume(limits.policy != STATIC)
    alone = limits._replace(max_num_seqs=1)
    closed = Requests(np.zeros(len(requests)), requests.prompt_tokens, requests.output_tokens, 1)
    slow = table.times(factor)
    assert np.allclose(simulate(alone, slow, closed).finished_s, factor * simulate(alone, table, closed).finished_s)


# ---------------------------------------------------------------- the same answer, always


def test_the_same_seed_gives_the_same_bytes():
    again = digests()
    assert again == compiled_digests()
    assert len(set(again.values())) == len(again)
    llama = deploy("llama-3.1-8b", "l4", settings=Settings(num_blocks=600))
    assert digest(simulated(llama, chat(seed=1))) != digest(simulated(llama, chat(seed=2)))


@pytest.mark.slow
def test_plain_python_gives_the_same_bits():
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "tests.support.digests"]
    plain = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(plain.stdout) == compiled_digests()

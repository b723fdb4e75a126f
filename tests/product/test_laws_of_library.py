"""Laws of estimates for shipped devices, models and engines, drawn at random: most of them nobody has measured."""

import math
from contextlib import suppress
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simulator.deployment.batches import Batch, decode_counts
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.estimate import estimate
from simulator.deployment.layouts import default_layout, running_layout
from simulator.deployment.memory import memory_plan
from simulator.deployment.settings import Settings
from simulator.engines.engine import load_engine
from simulator.errors import NotModelledError, ProfileError
from simulator.hardware.hardware import load_hardware
from simulator.models.model import load_model
from simulator.models.operations import Counts
from simulator.profile_folders import names
from simulator.reports.intervals import interval

PLAIN = settings(max_examples=15, deadline=None)
PROFILES = st.tuples(*(st.sampled_from(names(each)) for each in ("model_profiles", "hardware_profiles", "engines")))
METRICS = ("ttft_ms", "tpot_ms", "throughput_out_tok_s", "tg_tok_s", "pp_tok_s", "p99 ttft_ms")
REGIMES = ("single", "fixed_batch", "closed_loop", "open_loop", "limited", "offline")


def deployed(profiles: tuple[str, str, str], tp: int = 1, given_settings: Settings = Settings()) -> Deployment:
    """A deployment as `estimate` makes it; hypothesis draws again where it is refused by name."""
    model, device, engine = profiles
    try:
        known = load_model(model), load_hardware(device), load_engine(engine)
        found = deploy(model, device, engine, running_layout(*known, dtypes=("", ""), tp=tp), given_settings)
        found.at_light.step_model().seconds(Counts(1.0, 1.0, 1.0))
    except (NotModelledError, ProfileError):  # such as weights in fp32 on a TPU
        assume(False)
    return found


def rises(seconds: object, steps: int) -> bool:
    """Whether seconds of so many steps are finite, above 0 and in order, up to rounding."""
    found = np.broadcast_to(np.asarray(seconds), (steps,))
    return bool(np.isfinite(found).all() and (found > 0).all() and (found[1:] >= found[:-1] * (1 - 1e-9)).all())


@PLAIN
@given(PROFILES)
def test_no_step_is_faster_for_another_sequence_or_a_longer_context(profiles):
    """But where graphs of listed sizes launch some batches, and the host those between them (TensorRT-LLM).

    And but where another chunk begins.
    """
    deployment = deployed(profiles)
    sequences = np.arange(1.0, min(deployment.max_num_seqs, 256) + 1)
    reads = 1000.0 * sequences
    span = deployment.model.span
    seen = sequences * (float(span.seen(1000)) if span else 1000.0)
    longest = span.tokens if span and span.chunked else deployment.model.max_context_tokens
    lengths = np.unique(np.geomspace(1, longest, 40).astype(int)).astype(float)
    for each in (deployment, deployment.at_light):
        model = each.step_model()
        if each.light or not each.graphs.batch_sizes:
            counts = Counts(np.ones_like(sequences), sequences, sequences, reads, seen)
            assert rises(model.seconds(counts), len(sequences))
        for size in (1, 16):
            counts = decode_counts(each, Batch(size, 8, 8), lengths)
            assert rises(model.seconds(counts), len(lengths))


@PLAIN
@given(PROFILES, st.sampled_from([1, 2, 8]), st.floats(1.0, 5.0))
def test_no_step_is_slower_on_a_device_of_more_bandwidth_or_of_higher_peaks(profiles, tp, factor):
    deployment = deployed(profiles, tp)
    hardware = deployment.hardware
    changes = {
        "memory_bytes_per_s": hardware.memory_bytes_per_s * factor,
        "peak_flops_per_s": {name: peak * factor for name, peak in hardware.peak_flops_per_s.items()},
    }
    if hardware.link:
        changes["link"] = hardware.link.model_copy(update={"bytes_per_s": hardware.link.bytes_per_s * factor})
    decodes = np.arange(1.0, 257.0)
    prompts = np.array([5.0, 100.0, 2000.0])
    steps = Counts(np.ones(259), *(np.concatenate([each, prompts]) for each in (decodes, decodes)))
    steps = steps._replace(
        decode_reads=np.concatenate([1000 * decodes, 0 * prompts]),
        prefill_tokens=np.concatenate([0 * decodes, prompts]),
        prefill_pairs=np.concatenate([0 * decodes, prompts**2 / 2]),
    )
    before = deployment.step_model().seconds(steps)
    for name, value in changes.items():
        better = replace(deployment, hardware=hardware.model_copy(update={name: value}))
        assert (better.step_model().seconds(steps) <= before * (1 + 1e-9)).all(), name


@PLAIN
@given(PROFILES)
def test_more_devices_never_hold_more_weights_each(profiles):
    found = []
    for tp in (1, 2, 4, 8):
        try:
            known = load_model(profiles[0]), load_hardware(profiles[1]), load_engine(profiles[2])
            layout = running_layout(*known, dtypes=("", ""), tp=tp)
            found.append(memory_plan(deploy(*profiles, layout)).weight_bytes)
        except NotModelledError:
            continue
    assert found == sorted(found, reverse=True)


@PLAIN
@given(PROFILES, st.integers(1, 64))
def test_room_for_more_sequences_leaves_no_larger_cache(profiles, sequences):
    one, more = (
        memory_plan(deployed(profiles, given_settings=Settings(max_num_seqs=each)))
        for each in (sequences, 2 * sequences)
    )
    states = [each.state_slots * each.state_bytes for each in (one, more)]
    assert one.cache_bytes >= more.cache_bytes - 1
    assert one.workspace_bytes + states[0] <= more.workspace_bytes + states[1] + 1


@PLAIN
@given(PROFILES, st.sampled_from(METRICS), st.sampled_from(REGIMES), st.floats(0.05, 0.9))
def test_intervals_end_and_hold_the_prediction(profiles, metric, regime, level):
    deployment = deployed(profiles)
    found, wider = (interval(deployment, metric, regime, each) for each in (level, level + 0.05))
    assert 0 < wider.low <= found.low <= 1 <= found.high <= wider.high < math.inf


DEVICES = ("h100-sxm", "b200-sxm", "mi300x", "rtx-4090", "m4-max", "gaudi2", "inferentia2", "tpu-v6e", "wormhole-n300")


@pytest.mark.parametrize("engine", names("engines"))
def test_each_engine_has_finite_steps_and_estimates(engine: str) -> None:
    """Of a dense model and a mixture of experts, in formats that kernels have rules for, wherever it runs."""
    many, ran = Batch(4, 512, 32), 0
    for model, device, weights in product(("llama-3.1-8b", "qwen3-30b-a3b"), DEVICES, ("", "fp8", "nvfp4", "q4_K_M")):
        with suppress(NotModelledError, ProfileError):
            layout = default_layout(load_model(model), dtypes=(weights, ""))
            found = deploy(model, device, engine, layout, settings=Settings(sorted_sampling=True))
            table = found.step_table()
            assert all(np.isfinite(each).all() for each in (table.token_s, table.logit_s, table.slopes, table.lone_s))
            estimated = estimate(found, many, assume_fits=True)
            assert math.inf > estimated.expected.e2el_s >= estimated.light.e2el_s > 0.0
            ran += 1
    assert ran

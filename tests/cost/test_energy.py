"""Energy: power between idle and the TDP by what binds, kWh and grams by hand, nothing without a TDP."""

from dataclasses import replace

import pytest

from simulator import ClosedLoop, Fixed, Independent, OpenLoop, Scenario, Settings, Workload, deploy
from simulator.cost.energy import COMPUTE_SHARE, HOST_W, IDLE_SHARE, MEMORY_SHARE, energy, power_w
from simulator.cost.mean_steps import decode_step
from simulator.deployment.speculation import Speculation
from simulator.hardware.sites import load_site

DEPLOYMENT = deploy("llama-3.1-8b", "h100-sxm")
TDP_W = 700.0


def watts_at(arrivals, prompt_tokens: int, output_tokens: int) -> float:
    load = Workload(arrivals, Independent(Fixed(prompt_tokens), Fixed(output_tokens)), 200)
    return power_w(DEPLOYMENT, Scenario(DEPLOYMENT, load).report(load)) - HOST_W


def test_a_device_that_hardly_works_idles():
    assert watts_at(OpenLoop(0.01), 128, 16) == pytest.approx(IDLE_SHARE * TDP_W, rel=0.05)


def test_decoding_alone_draws_what_memory_bound_work_draws():
    load = Workload(ClosedLoop(16), Independent(Fixed(16), Fixed(1024)), 64)
    watts = power_w(DEPLOYMENT, Scenario(DEPLOYMENT, load).report(load))
    assert watts - HOST_W == pytest.approx(MEMORY_SHARE * TDP_W, rel=0.12)


def test_drafts_are_computed_and_read_in_a_decode_step():
    """Seven drafts: eight times the tokens and logits, and each token reads the seven before it, too."""
    plain = deploy("llama-3.1-8b", "l40s")
    drafting = deploy("llama-3.1-8b", "l40s", settings=Settings(speculation=Speculation("ngram", 7, (0.7,))))
    load = Workload(ClosedLoop(96), Independent(Fixed(16), Fixed(256)), 192)
    report = Scenario(drafting, load).report(load)
    alone, found, running = decode_step(plain, report), decode_step(drafting, report), report.mean_step_running
    assert (found.tokens, found.logits) == pytest.approx((8 * alone.tokens, 8 * alone.logits))
    assert found.decode_reads - alone.decode_reads == pytest.approx(7 * running)
    assert found.decode_reads_windowed - alone.decode_reads_windowed == pytest.approx(7 * running)
    assert power_w(drafting, report) > 1.2 * power_w(plain, report)


def test_prompts_draw_what_compute_bound_work_draws():
    assert watts_at(ClosedLoop(16), 4096, 2) == pytest.approx(COMPUTE_SHARE * TDP_W, rel=0.12)


def test_more_load_takes_more_power_and_less_energy_per_token():
    found = []
    for rate in (0.5, 5.0):
        load = Workload(OpenLoop(rate), Independent(Fixed(1024), Fixed(128)), 400)
        report = Scenario(DEPLOYMENT, load).report(load)
        watts = power_w(DEPLOYMENT, report)
        found.append((watts, energy(watts, rate * 128, SITE)))
    (light, little), (heavy, much) = found
    assert IDLE_SHARE * TDP_W < light < heavy < TDP_W + HOST_W
    assert little.kwh_per_million_output_tokens > much.kwh_per_million_output_tokens


SITE = load_site("us")


def test_grams_by_hand():
    """1 kW at 1,000 tokens/s: 1,000 s for a million tokens, so 1/3.6 kWh, times PUE 1.2, at 384.4 g a kWh."""
    found = energy(1000.0, 1000.0, SITE)
    assert found.kwh_per_million_output_tokens == pytest.approx(1.2 / 3.6)
    assert found.grams_per_million_output_tokens == pytest.approx(1.2 / 3.6 * 384.4)
    assert found.output_tokens_per_joule == pytest.approx(1 / 1.2)


def test_without_a_tdp_there_is_no_power():
    hardware = DEPLOYMENT.hardware.model_copy(update={"tdp_w": None})
    unknown = replace(DEPLOYMENT, hardware=hardware)
    load = Workload(OpenLoop(1.0), Independent(Fixed(128), Fixed(16)), 50)
    assert power_w(unknown, Scenario(DEPLOYMENT, load).report(load)) is None

"""Error bars: what a prediction rests on, how wide its interval is, and that it holds its share of what is left out."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from simulator.deployment import deploy
from simulator.intervals import LEVELS, Residual, basis_of, bounds, interval, kinds, shipped, table
from simulator.profile import Figure, Source
from tools.fit_intervals import coverage, mean_coverage, residuals

LEFT_OUT = Path(__file__).parent / "fixtures" / "left_out.csv.gz"
METRICS = ("ttft_ms", "tpot_ms", "throughput_out_tok_s", "tg_tok_s", "pp_tok_s")
REGIMES = ("fixed_batch", "single", "closed_loop", "open_loop", "offline")


@pytest.mark.parametrize(
    ("hardware", "engine", "basis"),
    [
        ("h100-sxm", "vllm", "fitted"),
        ("rtx-4090", "llama.cpp", "fitted"),
        ("l40s", "vllm", "family"),  # kernel tables of L40S, but no measured run of vLLM on an Ada workstation card
        ("t4", "vllm", "guess"),
        ("v100-sxm2-32", "sglang", "guess"),
    ],
)
def test_the_label_says_what_a_prediction_rests_on(hardware, engine, basis):
    assert basis_of(deploy("llama-3.1-8b", hardware, engine)) == basis


def test_an_overlay_of_own_measurements_is_measured():
    deployment = deploy("llama-3.1-8b", "t4", "vllm")
    own = Figure(0.8, Source(text="mine", date="2026-11", evidence="measured"))
    kernels = deployment.engine.kernels_on(deployment.hardware).model_copy(update={"memory": own})
    engine = deployment.engine.model_copy(update={"kernels": (kernels,)})
    changed = type(deployment)(deployment.model, deployment.hardware, engine, deployment.layout)
    assert basis_of(changed) == "measured"
    guessed, measured = (interval(each, "tpot_ms", "fixed_batch") for each in (deployment, changed))
    assert measured.high / measured.low < guessed.high / guessed.low


def test_an_interval_holds_the_prediction_and_grows_with_the_level():
    deployment = deploy("llama-3.1-8b", "h100-sxm")
    for metric in METRICS:
        for regime in REGIMES:
            narrow, wide = (interval(deployment, metric, regime, level) for level in (0.5, 0.9))
            assert wide.low <= narrow.low <= 1.0 <= narrow.high <= wide.high
    low, high = interval(deployment, "tpot_ms", "fixed_batch").around(10.0)
    assert low <= 10.0 <= high


def test_what_is_guessed_is_no_surer_than_what_was_fitted():
    widths = {
        basis: np.mean(
            [np.log(high / low) for metric in METRICS for low, high in [bounds(shipped(), metric, "", 0.8, basis)]]
        )
        for basis in ("fitted", "family", "guess")
    }
    assert widths["fitted"] <= widths["family"] <= widths["guess"]


def test_requests_per_second_go_with_output_tokens():
    deployment = deploy("llama-3.1-8b", "h100-sxm")
    assert interval(deployment, "req_s", "offline") == interval(deployment, "throughput_out_tok_s", "offline")


def test_a_rare_kind_takes_the_residuals_of_its_metric():
    made = [Residual("tpot_ms", "closed_loop", (str(g), "", ""), 0.1 * g) for g in range(8)]
    rare = [Residual("tpot_ms", "offline", ("rare", "", ""), 9.0)]
    found = table([*made, *rare])
    assert "fitted tpot_ms offline" not in found
    assert bounds(found, "tpot_ms", "offline") == bounds(found, "tpot_ms", "single")
    assert kinds("tpot_ms", "offline", "measured")[0] == "fitted tpot_ms offline"


def test_the_shipped_table_is_the_one_of_what_was_left_out(tmp_path):
    """tests/fixtures/left_out.csv.gz is what `tools.score` wrote; the table was made of it."""
    found = residuals(_plain(tmp_path))
    assert table(found) == shipped()
    for kind in ("fitted tpot_ms closed_loop", "fitted ttft_ms closed_loop", "fitted tg_tok_s single"):
        assert shipped()[kind][LEVELS.index(0.1)] < shipped()[kind][LEVELS.index(0.9)]


def test_an_interval_of_80_per_cent_holds_75_to_85_of_what_was_left_out(tmp_path):
    """Each group's table is made without its device and without its source; groups and kinds weigh alike."""
    shares = coverage(residuals(_plain(tmp_path)))
    for basis in ("fitted", "family", "guess"):
        assert 0.75 <= mean_coverage(shares, basis) <= 0.85, basis


def _plain(folder: Path) -> Path:
    path = folder / "left_out.csv"
    path.write_bytes(gzip.decompress(LEFT_OUT.read_bytes()))
    with path.open(newline="") as file:
        assert next(csv.reader(file))[0] == "left_out"
    return path

"""Steps composed of op tables, their correction by a few steps, and the profile that is fitted to them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.calibration.calibrate import (
    Bench,
    engine_preset,
    fit_gemms,
    hardware_profile,
    with_peaks_of,
    write_profiles,
)
from simulator.calibration.comparison import step_errors
from simulator.calibration.op_tables import (
    OpTables,
    decode_line,
    fit_step_table,
    gemm_shapes,
    prefill_line,
    step_table,
    table_seconds,
)
from simulator.deployment.deployment import Deployment
from simulator.deployment.host_launches import launches_s
from simulator.deployment.layouts import default_layout
from simulator.deployment.settings import Settings
from simulator.engines.engine import Engine, load_engine
from simulator.errors import ProfileError
from simulator.hardware.hardware import Hardware, load_hardware
from simulator.models.layout import Layout
from simulator.models.model import Model, load_model
from simulator.models.operations import Counts, Sequence, count

MODEL = load_model("qwen2.5-0.5b")
PEAK, BANDWIDTH = 200e9, 40e9
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
BENCH = Bench(
    name="made-up",
    device="Made-up processor",
    kind="cpu",
    dtype="fp32",
    memory_bytes=16 * 2**30,
    read_bytes_per_s=BANDWIDTH,
    flops_per_s={"fp32": PEAK},
    spread=0.01,
    contended=0.0,
    software="none",
)


def product_s(inputs: int, outputs: int, tokens: int) -> float:
    """A device that follows the soft roofline with c = 0.8, m = 0.6, t0 = 5 us and p = 2."""
    compute = 2 * inputs * outputs * tokens / (0.8 * PEAK)
    memory = 4 * (inputs * outputs + tokens * (inputs + outputs)) / (0.6 * BANDWIDTH)
    return float(np.hypot(compute, memory)) + 5e-6


def tables() -> OpTables:
    shapes = [*gemm_shapes(MODEL), (MODEL.hidden, MODEL.vocab)]
    return OpTables(
        gemm={f"{a}x{b}": {tokens: product_s(a, b, tokens) for tokens in TOKENS} for a, b in shapes},
        decode_attention=tuple((b, c, 20e-6 + 3e-6 * b + 1e-7 * b * c) for b in (1, 4, 16) for c in (64, 512, 1500)),
        prefill_attention=tuple(
            (n, p, 23e-6 + 2e-6 * n + 1e-8 * (n * p + n * (n + 1) / 2))
            for n, p in ((16, 0), (256, 0), (900, 0), (64, 512))
        ),
        layer_rest={tokens: 50e-6 + 1e-6 * tokens for tokens in TOKENS},
        host_s=300e-6,
        host_sequence_s=10e-6,
    )


def test_lines_are_found_again():
    assert decode_line(tables()) == pytest.approx((20e-6, 3e-6, 1e-7))
    assert prefill_line(tables(), 23e-6) == pytest.approx((2e-6, 1e-8))


def test_a_step_is_the_sum_of_its_ops():
    found = step_table(tables(), MODEL, 512, 64)
    batch = [Sequence(1, 99), Sequence(1, 199), Sequence(126, 0)]
    layers = 24
    expected = 300e-6 + layers * (50e-6 + 128e-6) + 3 * 10e-6
    expected += layers * (20e-6 + 3 * 3e-6 + 1e-7 * 300 + 2e-6 * 126 + 1e-8 * 126 * 127 / 2)
    expected += sum(times * product_s(a, b, 128) for (a, b), times in gemm_shapes(MODEL).items())
    head = found.logit_s[3] - layers * (20e-6 + 9e-6) - 30e-6
    assert product_s(MODEL.hidden, MODEL.vocab, 2) < head < product_s(MODEL.hidden, MODEL.vocab, 4)
    assert table_seconds(found, count(batch)) == pytest.approx(expected + head)


def test_products_are_those_of_the_model():
    linear = sum(a * b * times for (a, b), times in gemm_shapes(MODEL).items())
    assert linear == MODEL.weights().mixer + MODEL.weights().linear


def test_a_correction_meets_steps_that_are_slower_by_phase():
    """Decodes 30 % slower, prompts 10 % faster than the tables: met, also between the steps of the fit."""
    table = step_table(tables(), MODEL, 1024, 64)

    def truth(counts: Counts) -> float:
        return table_seconds(table, counts) * (1.3 if counts.prefill_tokens == 0 else 0.9)

    decodes = [count([Sequence(1, context)] * n) for n in (1, 2, 4, 8, 16, 32) for context in (64, 500)]
    prompts = [count([Sequence(n, 0)]) for n in (64, 128, 256, 512, 1000)]
    better = fit_step_table(table, [(each, truth(each)) for each in (*decodes, *prompts)])
    for each in (count([Sequence(1, 200)] * 6), count([Sequence(1, 90)] * 12), count([Sequence(180, 0)])):
        before = abs(table_seconds(table, each) / truth(each) - 1)
        after = abs(table_seconds(better, each) / truth(each) - 1)
        assert after < min(0.05, before)


def test_what_the_host_takes_to_launch_a_prompt_is_told_by_prompts_that_run_faster_than_that():
    """Of 200 ms by the tables, 250 in truth: a prompt of 1,000 tokens takes longer, and decodes are graphs."""
    table = step_table(replace(tables(), prompt_least_s=0.200), MODEL, 1024, 64)
    short, long, decode = count([Sequence(16, 0)]), count([Sequence(1000, 0)]), count([Sequence(1, 64)] * 4)
    assert table_seconds(table, short) == 0.200
    assert table_seconds(table, long) > 0.300
    assert table_seconds(table, decode) == table_seconds(step_table(tables(), MODEL, 1024, 64), decode)
    steps = [(short, 0.250), *((each, table_seconds(table, each)) for each in (long, decode))]
    better = fit_step_table(table, steps)
    assert table_seconds(better, short) == 0.250
    for each in (long, decode):
        assert table_seconds(better, each) == pytest.approx(table_seconds(table, each))


def test_a_preset_says_what_the_host_takes_to_launch_a_kernel_of_a_prompt():
    """As many seconds as were measured, shared among the kernels of a step, and the same again by the simulator."""
    measured = replace(tables(), prompt_least_s=0.010)
    engine = Engine.from_mapping(engine_preset(BENCH, measured, MODEL), "reference")
    hardware = Hardware.from_mapping(hardware_profile(BENCH, measured, MODEL), "measured")
    found = launches_s(engine.kernels_on(hardware), MODEL, MODEL.ops(Layout())).prompts.least_s
    assert found == pytest.approx(0.010, rel=1e-3)
    assert "kernels" not in engine_preset(BENCH, tables(), MODEL)


def test_a_correction_of_nothing_changes_little():
    table = step_table(tables(), MODEL, 1024, 64)
    steps = [count([Sequence(1, 64)] * n) for n in (1, 4, 16)] + [count([Sequence(256, 0)])]
    same = fit_step_table(table, [(each, table_seconds(table, each)) for each in steps])
    np.testing.assert_allclose(same.token_s, table.token_s, rtol=1e-6)
    np.testing.assert_allclose(same.slopes, table.slopes, rtol=1e-6)


def test_the_soft_roofline_is_found_again():
    found = fit_gemms(BENCH, tables())
    assert found.compute_fraction == pytest.approx(0.8)
    assert found.memory_fraction == pytest.approx(0.6)
    assert (found.exponent, found.launch_s) == (2.0, 5e-6)
    assert found.median_error < 1e-9


def test_the_written_profiles_deploy_and_predict(tmp_path, monkeypatch):
    """What `infercast calibrate` writes is read back, and its steps are near those of the tables."""
    measured = tables()
    profiles = {
        "hardware_profiles/made-up": hardware_profile(BENCH, measured, MODEL),
        "engines/reference-0.1": engine_preset(BENCH, measured, MODEL),
    }
    written = write_profiles(tmp_path, BENCH, measured, profiles)
    assert [path.name for path in written] == ["made-up.yaml", "reference-0.1.yaml", "made-up.optables.json"]
    assert read_tables(written[-1]) == measured
    monkeypatch.setenv("INFERCAST_PROFILES", str(tmp_path))
    hardware = load_hardware("made-up")
    assert hardware.memory_bytes_per_s.source.evidence == "measured"
    assert hardware.achievable.gemm["fp32"].compute_fraction.source.evidence == "fitted"
    layout = default_layout(MODEL, dtypes=("fp32", "fp32"))
    deployment = Deployment(MODEL, hardware, load_engine("reference"), layout, Settings(max_num_seqs=16))
    table = step_table(measured, MODEL, 512, 64)
    for batch in ([Sequence(1, 200)] * 8, [Sequence(256, 0)]):
        said = float(deployment.step_model().seconds(count(batch)))
        assert said == pytest.approx(table_seconds(table, count(batch)), rel=0.25)


def test_data_sheet_peaks_may_stand_in():
    like = load_hardware("ryzen-7950x")
    bench = with_peaks_of(BENCH, like)
    profile = hardware_profile(bench, tables(), MODEL, like)
    assert profile["memory_bytes_per_s"] == {"value": "83.2 GB/s", "source": "peaks"}
    assert profile["sources"]["peaks"]["evidence"] == "datasheet"
    with pytest.raises(ProfileError, match="the profile has no peak for it"):
        with_peaks_of(bench.__class__(**{**{f: getattr(bench, f) for f in bench.__slots__}, "dtype": "fp8"}), like)


def test_tables_without_a_shape_are_refused():
    with pytest.raises(ProfileError, match="GEMM 4096x6144: the tables do not have it"):
        step_table(tables(), load_model("llama-3.1-8b"), 16, 4)


def test_a_name_that_is_no_file(tmp_path):
    bench = BENCH.__class__(**{**{f: getattr(BENCH, f) for f in BENCH.__slots__}, "name": "../up"})
    with pytest.raises(ProfileError, match="it is the name of a file"):
        write_profiles(tmp_path, bench, tables(), {})


def read_tables(path: Path) -> OpTables:
    body = json.loads(path.read_text(encoding="utf-8"))
    by_tokens = {name: {int(tokens): s for tokens, s in row.items()} for name, row in body["gemm"].items()}
    attention = {name: tuple(map(tuple, body[name])) for name in ("decode_attention", "prefill_attention")}
    rest = {int(tokens): s for tokens, s in body["layer_rest"].items()}
    return OpTables(**body | attention | {"gemm": by_tokens, "layer_rest": rest})


@pytest.fixture(scope="module")
def recorded():
    """A recorded `infercast check` of SmolLM2-135M in bf16 on one thread; nothing else ran on the machine."""
    return json.loads((Path(__file__).parents[1] / "fixtures" / "check-reference-smollm2.json").read_text())


@pytest.fixture(scope="module")
def smollm2():
    block = {
        "mixer": {"kind": "attention", "heads": 9, "kv_heads": 3, "head_dim": 64},
        "ffn": {"kind": "dense", "intermediate": 1536},
    }
    shape = {"name": "SmolLM2 135M", "hidden": 576, "vocab": 49152, "max_context_tokens": 8192, "tied_embeddings": True}
    layers = ({"repeat": 30, "of": ("decoder",)},)
    return Model.from_mapping({**shape, "blocks": {"decoder": block}, "layers": layers}, "test")


def cell_counts(row: dict) -> Counts:
    batch = [Sequence(1, row["context"])] * row["decodes"]
    return count([*batch, Sequence(row["new"], row["past"])] if row["new"] else batch)


def steps_of(recorded: dict) -> list[tuple[dict, float]]:
    return [({name: row[name] for name in Counts._fields}, row["measured_s"]) for row in recorded["calibration"]]


def test_recorded_predictions_are_made_again(recorded, smollm2, tmp_path):
    """Composing, fitting and predicting are deterministic: the same tables and steps give the same seconds."""
    path = tmp_path / "tables.json"
    path.write_text(json.dumps(recorded["tables"]))
    composed = step_table(read_tables(path), smollm2, 2048, 64)
    better = fit_step_table(composed, [(Counts(**row), seconds) for row, seconds in steps_of(recorded)])
    assert len(recorded["cells"]) == 29
    for row in recorded["cells"]:
        counts = cell_counts(row)
        assert table_seconds(composed, counts) == pytest.approx(row["predicted_s"]["op tables"], rel=1e-9)
        assert table_seconds(better, counts) == pytest.approx(row["predicted_s"]["calibrated"], rel=1e-6)


@pytest.mark.parametrize(("kind", "aim"), [("prefill", 0.05), ("decode", 0.08), ("mixed", 0.07)])
def test_recorded_steps_are_near(recorded, kind, aim):
    """A run during which the machine's own speed changed by 3 %; docs/reference.md has others, in which it moved."""
    rows = [row for row in recorded["cells"] if row["kind"] == kind]
    measured = [row["measured_s"] for row in rows]
    calibrated, roofline = (
        step_errors([row["predicted_s"][tier] for row in rows], measured) for tier in ("calibrated", "roofline")
    )
    assert calibrated.median < aim
    assert roofline.bias < 0.9  # the ceilings alone are always too fast


def test_the_recorded_load_is_near(recorded):
    load = recorded["load"]
    for metric in ("ttft", "tpot", "e2el"):
        for share, bound in (("p50", 0.08), ("p95", 0.15)):
            name = f"{metric}_{share}_s"
            assert abs(load["predicted"]["calibrated"][name] / load["measured"][name] - 1) < bound
            assert load["predicted"]["roofline"][name] < load["measured"][name]

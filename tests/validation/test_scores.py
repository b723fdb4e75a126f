"""Measurements: the reader, the names, what each load is predicted by, the scores, the intervals, the command."""

import csv
import gzip
import io
import json
import math
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from simulator.cli import build
from simulator.cost.scenario import Scenario
from simulator.deployment.batches import Batch, decode_counts
from simulator.deployment.deployment import deploy
from simulator.deployment.estimate import estimate
from simulator.engines.engine import engine_of, load_engine
from simulator.errors import NotModelledError, ProfileError
from simulator.models.model import load_model
from simulator.questions.load_rows import load_row
from simulator.validation.measurements import PUBLISHED, Setup, read_measurements
from simulator.validation.prediction import ask, predict
from simulator.validation.scores import beating_light, by, not_covered, score, scored, sections
from simulator.validation.setups import place
from tests.support.commands import refused
from tests.support.measured import answer, users

COLUMNS = (
    *("id", "source", "source_date", "hardware", "n_gpus", "tp", "pp", "ep", "dp", "model", "weight_dtype", "kv_dtype"),
    *("engine", "engine_version", "input_len", "output_len", "batch", "concurrency", "request_rate", "load"),
    *("metric", "stat", "value", "quality", "notes"),
)
PLAIN = {
    **{"source": "me", "hardware": "H100 SXM 80GB", "n_gpus": 1, "tp": 1, "model": "Llama-3.1-8B", "engine": "vLLM"},
    **{"engine_version": "0.33.0", "weight_dtype": "bf16", "input_len": 1024, "output_len": 128, "quality": "A"},
    **{"stat": "mean", "value": 10.0},
}
FIXED = {"load": "fixed-batch", "batch": 4}
CLOSED = {"load": "closed-loop concurrency", "concurrency": 8}


def write(path: Path, *rows: dict[str, object]) -> Path:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows({"id": f"row-{index}", **PLAIN, **row} for index, row in enumerate(rows))
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def setup(tmp_path: Path, **row: object):
    return read_measurements(write(tmp_path / "one.csv", {"metric": "tpot_ms", **row}))[0].setup


# ------------------------------------------------------------------------------------------------------- reading


def test_plain_and_compressed_files_are_the_same(tmp_path):
    row = {"metric": "tpot_ms", **FIXED}
    assert read_measurements(write(tmp_path / "a.csv", row)) == read_measurements(write(tmp_path / "a.csv.gz", row))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"metric": "tpt_ms"}, "line 2: metric 'tpt_ms' is not known. Nearest: "),
        ({"metric": "tpot_ms", "value": "fast"}, "line 2: value 'fast' is not a number"),
        ({"metric": "tpot_ms", "value": 0}, "line 2: value '0' is not a number above 0"),
        ({"metric": "tpot_ms", "batch": "four"}, "line 2: batch 'four' is not a number"),
    ],
)
def test_a_bad_cell_names_its_line(tmp_path, row, message):
    with pytest.raises(ProfileError) as error:
        read_measurements(write(tmp_path / "bad.csv", row))
    assert message in str(error.value)


def test_a_row_that_cannot_be_read_is_listed_beside_those_that_can(tmp_path):
    bad = [{"metric": "tpt_ms"}, {"metric": "tpot_ms", "value": "n/a"}, {"metric": "tpot_ms", "input_len": "nan"}]
    path = write(
        tmp_path / "some.csv", {"metric": " TPOT_MS ", **FIXED, "stat": "Mean"}, *({**FIXED, **each} for each in bad)
    )
    head, *rest = path.read_text().splitlines()
    path.write_text("\n".join(["\ufeff" + head.upper(), *rest, ",,,"]))
    found = predict(read_measurements(path), level=0.8)
    assert [each.value is not None for each in found] == [True, False, False, False]
    reasons = "line 3: metric 'tpt_ms' is not known", "line 4: value 'n/a'", "line 5: input_len 'nan'"
    assert all(said in each.reason for said, each in zip(reasons, found[1:], strict=True))
    arguments = ["validate", str(path), "--format", "csv"]
    lines = list(csv.DictReader(io.StringIO(CliRunner().invoke(build(arguments), arguments).stdout)))
    assert [line["measured"] for line in lines] == ["10.0", "", "", ""]


@pytest.mark.parametrize(
    ("stated", "name"), [("FP8 ", "fp8"), ("bfloat16", "bf16"), ("W4A16", "int4"), ("q4_K_M", "q4_K_M")]
)
def test_number_formats_go_by_many_names(tmp_path, stated, name):
    assert place(setup(tmp_path, weight_dtype=stated, **FIXED)).deployment.layout.weight_dtype == name


def test_a_missing_column_and_a_broken_file_are_three_part_errors(tmp_path):
    path = tmp_path / "short.csv"
    path.write_text("model,metric,value\n")
    with pytest.raises(ProfileError, match="no column 'hardware'"):
        read_measurements(path)
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(b"not gzip")
    for each in (broken, tmp_path / "none.csv"):
        with pytest.raises(ProfileError, match="cannot be read"):
            read_measurements(each)


@pytest.mark.parametrize(
    ("row", "regime"),
    [
        (FIXED, "fixed_batch"),
        ({"load": "single stream"}, "single"),
        (CLOSED, "closed_loop"),
        ({"load": "open loop, 500 requests at QPS 4", "request_rate": 4}, "open_loop"),
        ({"load": "open loop, 500 requests at QPS INF", "request_rate": "inf"}, "offline"),
        ({"load": "MLPerf Offline"}, "offline"),
        ({"load": "MLPerf Server (Poisson arrivals at target_qps)", "request_rate": 2}, "open_loop"),
        ({"load": "max throughput (all requests queued)"}, "offline"),
        ({"concurrency": 4}, "closed_loop"),
        ({"batch": 4}, "fixed_batch"),
        ({}, None),
    ],
)
def test_the_load_says_the_regime(tmp_path, row, regime):
    assert setup(tmp_path, **row).regime == regime


# ------------------------------------------------------------------------------------------------------- setups


@pytest.mark.parametrize(
    ("name", "version", "preset"),
    [
        ("vLLM", "0.33.0", "vllm-0.33"),
        ("vLLM", "0.19.0", "vllm-0.19"),
        ("vLLM", "vLLM ~0.5-0.6", "vllm-0.5"),
        ("vLLM", "2023", "vllm-0.2"),
        ("vLLM", "v0.19.0-cu130", "vllm-0.19"),
        ("vLLM", "rocm7.0.0_vllm_0.11.1_20251103", "vllm-0.8"),  # of an image, whose ROCm has a release, too
        ("vLLM", "rocm7.0_ubuntu_22.04_vll 2025-11-02", "vllm-0.8"),
        ("vLLM", "nightly-5b8c30d62b754b57 2026-04-03", "vllm-0.19"),
        ("vLLM 0.6.5.dev964+mlperf50, Pytorch 2.7.0a0", "2025-04", "vllm-0.5"),
        ("TensorRT-LLM + Triton", "0.14.0", "tensorrt-llm-0.14"),
        ("TensorRT 10.11, CUDA 12.9", "2025-09", "tensorrt-10.8"),
        ("llama.cpp Vulkan", "b7361", "llama.cpp-vulkan-b6325"),
        ("ik_llama.cpp CPU (iqk_mul_mat)", "2024-07", "ik-llama.cpp-b3441"),
    ],
)
def test_sources_names_lead_to_an_engine_generation(name, version, preset):
    assert engine_of(name, version).id == preset


def test_an_engine_nobody_knows_is_named():
    with pytest.raises(ProfileError, match="no engine preset for 'nullengine'"):
        engine_of("nullengine", "")


def test_copies_share_the_devices(tmp_path):
    assert place(setup(tmp_path, n_gpus=8, tp=2, **CLOSED)).replicas == 4
    copied = place(setup(tmp_path, n_gpus=4, tp=1, ep=4, dp=4, model="Qwen3-235B-A22B", weight_dtype="nvfp4", **CLOSED))
    assert copied.replicas * copied.deployment.layout.devices == 4


def test_heads_that_do_not_divide_are_pooled_onto_fewer_devices_of_the_same_sum(tmp_path):
    """By llama.cpp, which splits rows of matrices; other engines refuse what their heads do not divide."""
    row = {"hardware": "GB200 NVL72", "n_gpus": 12, "tp": 12, "model": "Llama-3-8B"}
    placed = place(setup(tmp_path, **row, engine="llama.cpp", engine_version="b6000", **FIXED))
    hardware, tp = placed.deployment.hardware, placed.deployment.layout.tp
    assert (placed.question.tp, tp, placed.replicas) == ("12", 8, 1)
    assert hardware.memory_bytes_per_s * tp == pytest.approx(12 * 8000e9, rel=0.01)
    with pytest.raises(NotModelledError, match="tp 12: 32 attention heads do not divide by it"):
        place(setup(tmp_path, **row, engine="TensorRT-LLM", engine_version="1.0", **FIXED))


@pytest.mark.parametrize(
    ("chips", "cores", "model", "heads"),
    [
        (12, 24, "Llama-2-7b", (48, 48)),
        (12, 24, "Llama-3-70B", (72, 24)),
        (16, 32, "Llama-3-8B", (32, 32)),
        (12, 24, "Mixtral-8x7B", (48, 24)),
    ],
)
def test_heads_are_padded_to_the_cores_that_a_source_counts_in_tp(tmp_path, chips, cores, model, heads):
    row = {"hardware": "Inf2" if chips == 12 else "Trn1", "n_gpus": chips, "tp": cores, "model": model}
    placed = place(setup(tmp_path, **row, engine="Transformers-NeuronX", engine_version="2.18", **FIXED))
    (block,), (plain,) = placed.deployment.model.blocks.values(), load_model(model).blocks.values()
    assert (placed.deployment.layout.tp, block.mixer.heads, block.mixer.kv_heads) == (chips, *heads)
    assert block.ffn.intermediate % cores == 0
    assert 0 <= block.ffn.intermediate - plain.ffn.intermediate < cores


def test_a_model_of_other_parts_is_not_padded_and_refused_where_its_heads_do_not_divide(tmp_path):
    row = {"hardware": "Inf2", "model": "DeepSeek-V2-Lite", "engine": "Transformers-NeuronX", "engine_version": "2.18"}
    whole = place(setup(tmp_path, **row, n_gpus=8, tp=16, **FIXED)).deployment
    assert (whole.layout.tp, whole.model) == (8, load_model("DeepSeek-V2-Lite"))
    with pytest.raises(NotModelledError, match="tp 12: 16 attention heads do not divide by it"):
        place(setup(tmp_path, **row, n_gpus=12, tp=24, **FIXED))


def test_whole_heads_of_data_parallel_attention_are_not_padded(tmp_path):
    row = {"hardware": "H200 SXM", "n_gpus": 8, "tp": 24, "model": "Qwen3-235B-A22B", "notes": "attention_dp enabled"}
    deployment = place(setup(tmp_path, **row, engine="TensorRT-LLM", engine_version="1.0", **FIXED)).deployment
    assert (deployment.layout.dp, deployment.model) == (8, load_model("Qwen3-235B-A22B"))


def test_packages_of_two_dies_are_twice_the_devices(tmp_path):
    placed = place(setup(tmp_path, hardware="AMD MI250", n_gpus=4, tp=4, model="Llama-2-7b", **FIXED))
    layout, die = placed.deployment.layout, placed.deployment.hardware
    assert (placed.question.hardware, placed.question.tp) == ("mi250-gcd", "8")
    assert (layout.tp, placed.replicas, die.seen_as, die.memory_bytes) == (8, 1, 1, 64e9)
    assert die.memory_bytes_per_s == pytest.approx(3277e9 / 2)
    one = place(setup(tmp_path, hardware="AMD MI250", n_gpus=2, tp=1, model="Llama-2-7b", **FIXED))
    assert (one.deployment.layout.tp, one.replicas) == (2, 2)
    row = {"hardware": "AMD MI250", "n_gpus": 4, "tp": 4, "model": "Mixtral-8x7B"}
    assert [place(setup(tmp_path, **row, ep=ep, **FIXED)).deployment.layout.ep for ep in (1, 4)] == [1, 8]


def test_layers_are_split_over_packages_and_in_llama_cpp_over_their_dies(tmp_path):
    """Argonne's llama.cpp/MI250 scripts: CUDA_VISIBLE_DEVICES of two dies for each package of the table."""
    row = {"hardware": "AMD MI250", "n_gpus": 2, "pp": 2, "model": "Llama-2-7b"}
    placed = place(setup(tmp_path, **row, engine="vLLM", **FIXED)).deployment
    assert (placed.layout.tp, placed.layout.pp, placed.hardware.memory_bytes_per_s) == (1, 2, 3277e9)
    for packages in (1, 2):
        stated = {**row, "n_gpus": packages, "pp": packages}
        dies = place(setup(tmp_path, **stated, engine="llama.cpp", **FIXED)).deployment
        assert (dies.layout.tp, dies.layout.pp, dies.hardware.id) == (1, 2 * packages, "mi250-gcd")


# ------------------------------------------------------------------------------------------------------- prediction


def test_a_fixed_batch_is_the_closed_form_of_the_roofline(tmp_path):
    found = answer(setup(tmp_path, **FIXED))
    alone = estimate(deploy("llama-3.1-8b", "h100-sxm", "vllm-0.33"), Batch(4, 1024, 128)).expected
    assert found.value("ttft_ms") == 1e3 * alone.ttft_s
    assert found.value("tpot_ms") == 1e3 * alone.tpot_s
    assert found.value("e2e_latency_ms") == 1e3 * alone.e2el_s


def test_blended_throughput_counts_both_sides_over_the_whole_time(tmp_path):
    found = answer(setup(tmp_path, **FIXED))
    e2el_s = found.value("e2e_latency_ms") / 1e3
    assert found.value("throughput_total_tok_s") == pytest.approx(4 * 1152 / e2el_s)
    assert found.value("throughput_out_tok_s") == pytest.approx(4 * 128 / e2el_s)


def test_requests_and_prompts_per_second_go_with_the_tokens(tmp_path):
    for load in (FIXED, CLOSED):
        found = answer(setup(tmp_path, **load))
        requests_per_s = found.value("req_s")
        assert found.value("throughput_out_tok_s") == pytest.approx(128 * requests_per_s, rel=0.01)
        total = found.value("throughput_total_tok_s")
        assert total == pytest.approx((1024 + 128) * requests_per_s, rel=0.01)
    assert found.value("throughput_in_tok_s") == pytest.approx(1024 * requests_per_s, rel=0.01)


def test_llama_bench_rates(tmp_path):
    row = {"hardware": "RTX 4090", "engine": "llama.cpp", "engine_version": "b6000", "weight_dtype": "F16", "batch": 1}
    prompts = answer(setup(tmp_path, **row, load="single stream", input_len=512, output_len=0))
    empty = answer(setup(tmp_path, **row, load="single stream", input_len=0, output_len=128))
    deep = answer(setup(tmp_path, **row, load="single stream", input_len=8192, output_len=128))
    assert prompts.value("pp_tok_s") > 20 * empty.value("tg_tok_s")
    assert deep.value("tg_tok_s") < empty.value("tg_tok_s")
    assert empty.value("tg_tok_s") < 1008e9 / 16e9  # 16 GB of weights cross the memory once a token


def test_a_closed_loop_is_simulated_with_ten_rounds(tmp_path):
    found = answer(setup(tmp_path, **CLOSED))
    in_engine_s = found.value("e2e_latency_ms") / 1e3 - float(load_engine("vllm").overheads.outside_steps_s(1024))
    in_flight = found.value("throughput_out_tok_s") * in_engine_s / 128  # Little's law, less the ramp at both ends
    assert 7.0 < in_flight < 8.2
    assert found.value("ttft_ms", "p99") > found.value("ttft_ms", "median")


@pytest.mark.parametrize("light", [False, True])
def test_a_load_of_few_requests_is_drawn_several_times(tmp_path, light):
    """80 requests: five draws of their lengths, whose mean is told; at the speed of light too."""
    given = setup(tmp_path, **CLOSED)
    told, asked = answer(given, light=light), ask(given)
    scenario = Scenario(replace(asked.deployment, light=light), users(given))
    singles = [load_row(scenario, scenario.report(replace(users(given), seed=seed)), None) for seed in range(5)]
    for key, metric in (("p99_ttft_ms", "ttft_ms"), ("output_throughput", "throughput_out_tok_s")):
        assert told.value(metric, "p99") == pytest.approx(np.mean([each[key] for each in singles]))
    assert len({each["output_throughput"] for each in singles}) == 5


def test_copies_multiply_throughput_and_share_the_load(tmp_path):
    one = answer(setup(tmp_path, **CLOSED))
    four = answer(setup(tmp_path, n_gpus=4, load="closed-loop concurrency", concurrency=32))
    assert four.value("throughput_out_tok_s") == pytest.approx(4 * one.value("throughput_out_tok_s"))
    assert four.value("tpot_ms") == pytest.approx(one.value("tpot_ms"))


def test_equal_requests_stay_together_where_prompts_go_first(tmp_path):
    mixed = answer(setup(tmp_path, engine="vLLM", concurrency=64, load="closed-loop concurrency"))
    first = answer(
        setup(tmp_path, engine="SGLang", engine_version="0.5.6", concurrency=64, load="closed-loop concurrency")
    )
    assert first.value("ttft_ms") > 1.25 * mixed.value("ttft_ms")  # vLLM's drift apart by a token


def test_nothing_beats_the_speed_of_light(tmp_path):
    rows = [{"metric": "tpot_ms", **FIXED, "value": 3.0}, {"metric": "tpot_ms", **FIXED, "value": 10.0}]
    found = predict(read_measurements(write(tmp_path / "two.csv", *rows)), light=True)
    assert all(each.value > each.light for each in found)
    assert [each.measurement.id for each in beating_light(found)] == ["row-0"]  # 16 GB in 3 ms is 5.3 TB/s


def test_a_request_that_no_cache_holds_is_refused_by_name(tmp_path):
    row = {"metric": "ttft_ms", **CLOSED, "input_len": 1_000_000}
    (found,) = predict(read_measurements(write(tmp_path / "long.csv", row)))
    assert "all 80 requests rejected: more than the" in found.reason
    assert "tokens that the KV cache holds" in found.reason


def test_the_mean_and_the_median_of_a_batch_are_over_its_steps_and_requests_are_alike(tmp_path):
    """Steps grow with the context, in a straight line; where requests are alike any share of them has the mean."""
    given = setup(tmp_path, **FIXED, input_len=64)
    found, deployment = answer(given), ask(given).deployment
    steps_s = deployment.step_model().seconds(decode_counts(deployment, Batch(4, 64, 128), 64 + np.arange(1.0, 128)))
    assert found.value("tpot_ms") == pytest.approx(1e3 * np.mean(steps_s), rel=1e-9)
    assert found.value("tpot_ms", "p50") == pytest.approx(1e3 * np.median(steps_s), rel=1e-9)
    assert found.value("tpot_ms", "p50") == pytest.approx(found.value("tpot_ms"), rel=1e-3)
    assert {found.value("tpot_ms", stat) for stat in ("p99", "median of 5 runs")} == {found.value("tpot_ms")}
    for metric in ("ttft_ms", "e2e_latency_ms"):
        assert found.value(metric, "p50") == found.value(metric, "p99") == found.value(metric)


# ------------------------------------------------------------------------------------------------------- scores


def test_errors_are_averaged_by_group_first(tmp_path):
    rows = [{"metric": "tpot_ms", **FIXED} for _ in range(3)] + [{"metric": "tpot_ms", **FIXED, "source": "you"}]
    found = predict(read_measurements(write(tmp_path / "four.csv", *rows)))
    value = found[0].value
    shifted = [
        each._replace(value=each.measurement.value * factor)
        for each, factor in zip(found, (1.1, 1.2, 1.3, 0.6), strict=True)
    ]
    assert value is not None
    got = score(shifted)
    assert (got.rows, got.groups) == (4, 2)
    assert got.median_ape == pytest.approx(np.median([0.2, 0.4]))
    assert got.bias == pytest.approx(np.median([0.2, -0.4]))
    assert got.row_median_ape == pytest.approx(0.25)


def test_what_is_not_covered_is_counted_with_its_reason(tmp_path):
    rows = [
        {"metric": "tpot_ms", **FIXED},
        {"metric": "tpot_ms", **FIXED, "model": "Nobody-7B"},
        {"metric": "tpot_ms", **FIXED, "hardware": "Nobody-9000"},
        {"metric": "tpot_ms"},
        {"metric": "tpot_ms", **FIXED, "weight_dtype": "int3-odd"},
        {"metric": "pp_tok_s", **FIXED, "input_len": "", "notes": "decode alone"},
    ]
    found = predict(read_measurements(write(tmp_path / "many.csv", *rows)))
    reasons = list(not_covered(found))
    assert sum(not_covered(found).values()) == 5
    for part in ("Nobody-7B", "Nobody-9000", "does not say how requests came", "int3-odd", "pp_tok_s: it is of"):
        assert any(part in reason for reason in reasons), part
    told = sections(found, ["A"])
    assert told["summary"] == [{"rows": 6, "rows_predicted": 1}]
    assert sum(each["rows"] for each in told["not_covered"]) == 5
    (errors,) = told["errors"]
    assert (errors["metric"], errors["regime"], errors["rows"]) == ("tpot_ms", "fixed_batch", 1)


@pytest.mark.parametrize("row", [CLOSED, FIXED], ids=["load", "batch"])
@pytest.mark.parametrize("stat", ["p99.9", "p999", "p75", "p10", "max", "min", "std", "median of runs"])
def test_a_statistic_that_is_not_predicted_is_named(tmp_path, row, stat):
    rows = read_measurements(write(tmp_path / "one.csv", {"metric": "tpot_ms", **row, "stat": stat}))
    (found,) = predict(rows)
    assert found.value is None
    assert found.reason.startswith(f"statistic '{stat}': only mean, median, p50, p90, p95, p99 are predicted.")


def test_grades_choose_what_is_scored(tmp_path):
    rows = [{"metric": "tpot_ms", **FIXED, "quality": grade} for grade in "ABC"] + [
        {"metric": "tpot_ms", **FIXED, "quality": ""}
    ]
    found = predict(read_measurements(write(tmp_path / "grades.csv", *rows)))
    assert [each.measurement.quality for each in scored(found, ["A", "B"])] == ["A", "B", ""]
    assert by(found, "metric")[("tpot_ms",)].rows == 4


# ------------------------------------------------------------------------------------------------------- command


def call(*arguments: str):
    return CliRunner().invoke(build(["validate"]), ["validate", *arguments])


def test_the_command_prints_json_csv_and_text(tmp_path):
    rows = [{"metric": "tpot_ms", **FIXED}, {"metric": "ttft_ms", **FIXED, "model": "Nobody-7B"}]
    path = str(write(tmp_path / "two.csv", *rows))
    told = json.loads(call(path, "--format", "json").stdout)
    assert told["summary"] == [{"rows": 2, "rows_predicted": 1}]
    assert [each["reason"] == "" for each in told["measurements"]] == [True, False]
    lines = list(csv.DictReader(call(path, "--format", "csv").stdout.splitlines()))
    assert len(lines) == 2
    assert float(lines[0]["low"]) < float(lines[0]["predicted"]) < float(lines[0]["high"])
    assert float(lines[0]["error"]) == pytest.approx(float(lines[0]["predicted"]) / 10 - 1, abs=1e-4)
    assert lines[1]["predicted"] == "" and "Nobody-7B" in lines[1]["reason"]
    text = call(path).stdout
    assert "Errors by metric and regime" in text
    assert "Errors by metric and device" not in text  # there is one
    assert re.search(r"row-0 +tpot_ms +mean +10\.0 +[\d.]+ +-?\d+ % +[\d.]+-[\d.]+ +fitted", text)
    assert "Not covered, 1 row: " in text


def test_the_verdict_is_over_rows_of_one_source_and_says_groups_of_several(tmp_path):
    """Of 10, 11 and 30 ms all are predicted alike: over rows the median is one of the three errors."""
    rows = [{"metric": "tpot_ms", **FIXED, "value": value} for value in (10, 11, 30)]
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    error = predict(read_measurements(write(one, *rows)), level=0.8)
    middle = sorted(abs(each.error) for each in error)[1]
    verdict = " ".join(call(str(one)).stdout.partition("\n\n")[0].split())
    assert verdict.startswith(f"3 rows predicted, {middle:.0%} off in the median; ")
    write(two, {**rows[0], "source": "another"}, *rows[1:])
    verdict = " ".join(call(str(two)).stdout.partition("\n\n")[0].split())
    assert verdict.startswith("3 rows predicted; over 2 groups (source, device, model) they are ")


def test_what_a_table_states_itself_is_not_said_once_more(tmp_path):
    path = str(write(tmp_path / "one.csv", {"metric": "tpot_ms", **FIXED}))
    told = refused("validate", path, "--hardware", "l4", "--devices", "2", "--pp", "1")
    assert (
        f"--hardware, --devices of {path}: each row of the table states its own. Leave out --hardware, --devices"
        in told
    )
    assert call(path, "--pp", "1").exit_code == 0


def test_the_command_draws_predicted_over_measured(tmp_path):
    path = write(tmp_path / "one.csv", {"metric": "tpot_ms", **FIXED})
    picture = tmp_path / "out.png"
    assert call(str(path), "--format", "json", "--plot", str(picture)).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


# ------------------------------------------------------------------------------------------------------- the whole file


@pytest.mark.slow
def test_the_published_measurements_are_covered_and_close():
    """Most of the rows graded A and B are predicted; the errors are where docs/log.md says, with a margin.

    Of each device and model in a source, every sixteenth setup and the first: `make accuracy` scores them all.
    """
    graded = [row for row in read_measurements(PUBLISHED / "measurements.csv.gz") if row.quality in ("A", "B")]
    setups: dict[tuple[str, str, str, str], list[Setup]] = defaultdict(list)
    for setup in dict.fromkeys(row.setup for row in graded):
        setups[setup.source, setup.hardware, setup.model, str(setup.regime)].append(setup)
    chosen = {setup for group in setups.values() for setup in group[::16]}
    rows = [row for row in graded if row.setup in chosen]
    found = predict(rows, level=0.8)
    assert sum(each.value is not None for each in found) >= 0.95 * len(rows)
    errors = by(found, "metric", "regime")
    for (metric, regime), most in {
        ("tpot_ms", "fixed_batch"): 0.12,
        ("tpot_ms", "closed_loop"): 0.18,
        ("throughput_total_tok_s", "fixed_batch"): 0.20,
        ("throughput_out_tok_s", "fixed_batch"): 0.18,
        ("throughput_out_tok_s", "offline"): 0.25,
        ("tg_tok_s", "single"): 0.12,
        ("ttft_ms", "fixed_batch"): 0.30,
    }.items():
        assert errors[(metric, regime)].median_ape < most, (metric, regime)
    assert math.isfinite(score(found).interval_coverage)

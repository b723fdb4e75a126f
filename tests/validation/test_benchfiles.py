"""Result files of other tools: every format gives the figures that it holds, by the definitions of measurements."""

import gzip
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.cli import build
from simulator.errors import ProfileError
from simulator.validation.benchfiles import Stated, read_results
from simulator.validation.benchfiles.rows import model_named
from simulator.validation.prediction import predict
from tests.support.measured import answer

BENCH = Path(__file__).parents[1] / "fixtures" / "bench"
SAID = Stated(hardware="l40s", engine="vllm", engine_version="0.33.0", tp=1, model="llama-3.1-8b")
LENGTHS = {"input_len": 512, "output_len": 128}
SERVING = {
    "invented_vllm_serve.json": SAID,
    "invented_vllm_serve_appended.json": SAID,
    "invented_sglang.jsonl": SAID,
    "invented_guidellm.json": SAID,
    "invented_aiperf.json": SAID,
    "invented_genai_perf.json": SAID,
    "invented_genai_perf.csv": replace(SAID, concurrency=4),
}
MEANS = {
    **{"ttft_ms": 100.0, "tpot_ms": 10.0, "itl_ms": 10.0, "e2e_latency_ms": 1370.0},
    **{"throughput_out_tok_s": 40 * 128 / 13.7, "throughput_total_tok_s": 40 * 640 / 13.7},
}


def test_a_model_that_is_refused_by_name_is_left_to_what_reads_the_rows():
    assert model_named("google/flan-t5-xxl") == {"model": "google/flan-t5-xxl"}


def read(name: str, stated: Stated = SAID):
    return read_results(BENCH / name, stated)


# ------------------------------------------------------------------------------------------------------- figures


@pytest.mark.parametrize("name", SERVING)
def test_means_are_those_of_the_definitions(name):
    rows = read(name, SERVING[name])
    means = {(row.metric, row.value) for row in rows if row.stat.startswith("mean")}
    for metric, value in means:
        assert value == pytest.approx(MEANS[metric], rel=1e-4)
    assert {metric for metric, _ in means} >= {"ttft_ms", "tpot_ms", "e2e_latency_ms", "throughput_out_tok_s"}
    assert all(row.setup.input_tokens == 512 and row.setup.output_tokens == 128 for row in rows)
    assert {row.stat.split()[0] for row in rows} <= {"mean", "p50", "p90", "p95", "p99"}


@pytest.mark.parametrize("name", SERVING)
def test_the_format_is_told_by_content(name, tmp_path):
    plain = shutil.copy(BENCH / name, tmp_path / "result.dat")
    packed = tmp_path / "result.gz"
    packed.write_bytes(gzip.compress((BENCH / name).read_bytes()))
    values = [
        [(row.metric, row.stat, row.value) for row in read_results(Path(each), SERVING[name])]
        for each in (plain, packed)
    ]
    assert values[0] == values[1] == [(row.metric, row.stat, row.value) for row in read(name, SERVING[name])]


@pytest.mark.parametrize(
    ("name", "regimes"),
    [
        ("invented_vllm_serve.json", ["closed_loop"]),
        ("invented_vllm_serve_appended.json", ["open_loop", "open_loop"]),
        ("invented_sglang.jsonl", ["closed_loop", "open_loop"]),
        ("invented_guidellm.json", ["single", "closed_loop", "open_loop", "open_loop", "offline"]),
        ("invented_aiperf.json", ["closed_loop"]),
        ("invented_genai_perf.json", ["closed_loop"]),
    ],
)
def test_every_run_has_the_load_that_it_was_made_under(name, regimes):
    setups = list(dict.fromkeys(row.setup for row in read(name)))
    assert [each.regime for each in setups] == regimes
    for each in setups:
        assert each.regime != "closed_loop" or each.concurrency == 4
        assert each.regime not in ("closed_loop", "open_loop") or each.num_prompts == 40


def test_gaps_pooled_over_requests_are_not_their_means():
    row = next(row for row in read("invented_vllm_serve.json") if row.metric == "itl_ms" and "p99" in row.stat)
    setup = replace(row.setup, concurrency=64, num_prompts=128)
    found, other = answer(setup), answer(replace(setup, client="aiperf"))
    assert found.value("itl_ms", row.stat) == found.value("itl_ms", "p99") == found.row["p99_itl_ms"]
    assert other.value("itl_ms", row.stat) == other.row["p99_itl_ms"]
    assert other.value("itl_ms", "p99") == other.row["p99_tpot_ms"] < other.value("itl_ms", row.stat)


def test_guidellm_weighs_gaps_by_tokens_so_uneven_outputs_are_pooled():
    uneven = [row for row in read("invented_guidellm.json") if row.setup.dataset == "custom"]
    assert {(row.metric, row.stat) for row in uneven if row.metric in ("itl_ms", "tpot_ms")} == {
        ("itl_ms", "mean of pooled gaps")
    }


def test_arrivals_keep_their_burstiness():
    even = next(row for row in read("invented_guidellm.json") if row.setup.burstiness == math.inf)
    bursty = next(row for row in read("invented_vllm_serve_appended.json") if row.setup.burstiness == 0.5)
    ttft = [answer(replace(row.setup, rate_per_s=3.0)).value("ttft_ms", "p99") for row in (even, bursty)]
    assert ttft[0] < ttft[1]


def test_latency_and_throughput_files_need_their_lengths():
    with pytest.raises(ProfileError, match=r"prompt length, the output length, the batch size. Give --input-len"):
        read("invented_vllm_latency.json")
    stated = Stated(**{**SAID.cells(), **LENGTHS, "batch": 8})
    rows = read("invented_vllm_latency.json", stated)
    assert [(row.metric, row.stat, row.value) for row in rows] == [
        ("e2e_latency_ms", "mean", 1370.0), ("e2e_latency_ms", "p50", 1370.0),
        ("e2e_latency_ms", "p90", 1378.0), ("e2e_latency_ms", "p99", 1380.0),
    ]  # fmt: skip
    assert (rows[0].setup.regime, rows[0].setup.batch) == ("fixed_batch", 8)
    (whole,) = read("invented_vllm_throughput.json", Stated(**{**SAID.cells(), **LENGTHS}))
    assert (whole.metric, whole.value, whole.setup.regime) == ("throughput_total_tok_s", 2000.0, "offline")
    with pytest.raises(ProfileError, match="the file has 640 tokens per request"):
        read("invented_vllm_throughput.json", Stated(**{**SAID.cells(), "input_len": 1024, "output_len": 128}))


# ------------------------------------------------------------------------------------------------------- llama-bench


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv", "md"])
def test_llama_bench_in_all_its_forms(ending):
    stated = Stated(hardware="rtx-4090", model="llama-3.1-8b" if ending == "md" else "")
    rows = read(f"invented_llama_bench.{ending}", stated)
    assert [(row.metric, round(row.value)) for row in rows] == [
        ("pp_tok_s", 8000), ("tg_tok_s", 125), ("pp_tok_s", 6000), ("tg_tok_s", 110), ("throughput_total_tok_s", 588),
    ]  # fmt: skip
    assert [(row.setup.input_tokens, row.setup.output_tokens) for row in rows] == [
        (512, 0), (0, 128), (512, 0), (2048, 128), (512, 128),
    ]  # fmt: skip
    assert [row.setup.context_len for row in rows] == [0, 0, 2048, 0, 0]
    assert {(row.setup.regime, row.setup.engine, row.setup.weight_dtype) for row in rows} == {
        ("single", "llama.cpp", "q4_K_M")
    }
    assert all(each.value is not None for each in predict(rows))


def llama_bench(tmp_path, **change):
    test = json.loads((BENCH / "invented_llama_bench.json").read_text())[0] | change
    path = tmp_path / "bench.json"
    path.write_text(json.dumps([test]))
    return read_results(path, Stated())[0]


@pytest.mark.parametrize(
    ("change", "devices"),
    [
        ({}, (1, 1, 1)),
        ({"gpu_info": "NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 4090"}, (2, 1, 2)),
        ({"gpu_info": "NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 4090", "split_mode": "row"}, (2, 2, 1)),
        ({"gpu_info": "NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 4090", "split_mode": "none"}, (1, 1, 1)),
        ({"gpu_info": "NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 4090", "devices": "CUDA0"}, (1, 1, 1)),
    ],
)
def test_llama_bench_splits_layers_over_the_devices_that_it_used(tmp_path, change, devices):
    setup = llama_bench(tmp_path, **change).setup
    assert (setup.devices, setup.tp, setup.pp) == devices
    assert setup.hardware == "NVIDIA GeForce RTX 4090"


@pytest.mark.parametrize(
    ("change", "load"),
    [
        ({"n_gpu_layers": 20}, "20 of 32 layers on the GPU"),
        ({"n_gpu_layers": 33}, None),
        ({"n_gpu_layers": 20, "backends": "CPU"}, None),
        ({"n_cpu_moe": 8}, "experts or the cache on the CPU"),
        ({"no_kv_offload": True}, "experts or the cache on the CPU"),
    ],
)
def test_llama_bench_partly_on_the_cpu_is_named_and_not_predicted(tmp_path, change, load):
    row = llama_bench(tmp_path, **change)
    assert row.setup.not_modelled == (load or "")
    if load:
        (found,) = predict([row])
        assert found.value is None
        assert load in found.reason


# --------------------------------------------------------------------------------------------------- what is missing


def test_all_that_is_missing_is_named_at_once_with_its_flags():
    with pytest.raises(ProfileError) as error:
        read("invented_genai_perf.csv", Stated())
    for word in ("hardware", "model", "engine", "version or the date", "tensor parallelism", "load"):
        assert word in error.value.because
    for flag in ("--hardware", "--model", "--engine", "--engine-version", "--tp", "--max-concurrency N or --rate"):
        assert flag in error.value.remedy
    with pytest.raises(ProfileError, match=r"does not state the hardware, the tensor parallelism. Give --hardware"):
        read("invented_vllm_serve.json", Stated())  # it names its model, its backend and its date


def test_what_a_file_says_is_used_and_what_the_user_says_comes_first():
    server = read("invented_sglang.jsonl", Stated(hardware="l40s"))[0].setup
    assert (server.engine, server.engine_version, server.tp) == ("sglang", "0.5.23", 1)
    assert server.model == "llama-3.1-8b"
    other = read("invented_sglang.jsonl", Stated(hardware="l40s", engine="vllm", tp=2, model="qwen2.5-7b"))[0].setup
    assert (other.engine, other.tp, other.model) == ("vllm", 2, "qwen2.5-7b")


def serve(tmp_path, **change):
    path = tmp_path / "serve.json"
    path.write_text(json.dumps(json.loads((BENCH / "invented_vllm_serve.json").read_text()) | change))
    return path


def test_metadata_of_vllm_bench_serve_counts_as_stated(tmp_path):
    path = serve(tmp_path, hardware="l40s", tp="1", engine_version="0.33.0")
    setup = read_results(path, Stated())[0].setup
    assert (setup.hardware, setup.tp, setup.engine, setup.engine_version) == ("l40s", 1, "vllm", "0.33.0")


def test_the_total_of_older_files_is_the_sum_of_both_sides(tmp_path):
    path = serve(tmp_path, input_throughput=20480 / 13.7)
    document = json.loads(path.read_text())
    del document["total_token_throughput"]
    path.write_text(json.dumps(document))
    totals = [row.value for row in read_results(path, SAID) if row.metric == "throughput_total_tok_s"]
    assert totals == [pytest.approx(MEANS["throughput_total_tok_s"])]


@pytest.mark.parametrize(
    ("change", "load"),
    [
        ({"request_rate": 2.0}, "rate 2/s held back to 4 in flight"),
        ({"spec_decode_acceptance_rate": 70.0}, "speculative decoding"),
    ],
)
def test_loads_that_are_not_modelled_are_named(tmp_path, change, load):
    found = predict(read_results(serve(tmp_path, **change), SAID))
    assert {each.value for each in found} == {None}
    assert all(load in each.reason for each in found)


@pytest.mark.parametrize(
    ("model_id", "model", "weights"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", ""),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b", "fp8"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b", "int4"),
        ("/data/Qwen2.5-7B-Instruct-AWQ", "qwen2.5-7b", "int4"),
        ("our/secret", "our/secret", ""),
    ],
)
def test_checkpoints_lead_to_profiles(tmp_path, model_id, model, weights):
    setup = read_results(serve(tmp_path, model_id=model_id), Stated(hardware="l40s", tp=1))[0].setup
    assert (setup.model, setup.weight_dtype) == (model, weights)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: it is not JSON"),
        ("[1, 2]", "it is no list of objects"),
        ('{"speed": 3}', "no tool known here writes speed. Give what one of these wrote: "),
        ("{}", "it holds nothing. Give what one of these wrote: "),
        ('{"avg_latency": 1, "percentiles": {}}\n{"avg_latency"', "line 2: it is not JSON"),
        ('{"benchmarks": []}', "the file has no figure"),
        ("speed\n3\n", "it has no column 'hardware'"),
    ],
)
def test_what_is_no_result_is_a_three_part_error(tmp_path, text, message):
    path = tmp_path / "odd"
    path.write_text(text)
    with pytest.raises(ProfileError) as error:
        read_results(path, Stated())
    assert message in str(error.value)


def test_a_prediction_is_no_measurement(tmp_path):
    with pytest.raises(ProfileError, match="it is a prediction, no measurement"):
        read_results(serve(tmp_path, endpoint_type="infercast"), SAID)


@pytest.mark.parametrize("value", [None, "many", [1], {"a": 1}, True, -1, math.inf])
def test_odd_values_are_left_out_or_refused_but_never_read(tmp_path, value):
    rows = read_results(serve(tmp_path, mean_ttft_ms=value), SAID)
    assert ("ttft_ms", "mean") not in {(row.metric, row.stat) for row in rows}
    with pytest.raises(ProfileError, match="does not state the prompt length"):
        read_results(serve(tmp_path, total_input_tokens=value), SAID)


def test_a_table_has_its_empty_cells_filled_and_no_other(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(
        "hardware,model,metric,value,batch,load\nh100-sxm,llama-3.1-8b,tpot_ms,10,8,fixed\n,llama-3.1-8b,tpot_ms,12,,fixed\n"
    )
    rows = read_results(path, Stated(hardware="l40s", batch=4, engine="vllm"))
    assert [(row.setup.hardware, row.setup.batch, row.setup.engine) for row in rows] == [
        ("h100-sxm", 8, "vllm"), ("l40s", 4, "vllm"),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------- round trips


def test_a_file_made_of_predictions_is_predicted_without_error(tmp_path):
    """The tool's file of a run that went as predicted has no error: units, statistics and load survive the reading."""
    setup = read("invented_vllm_serve.json")[0].setup
    row = answer(setup).row
    times = {key: row[key] for key in row if key.endswith("_ms") and key.split("_")[0] in ("mean", "median", "p99")}
    rates = {name: row[name] for name in ("output_throughput", "total_token_throughput")}
    again = predict(read_results(serve(tmp_path, **times, **rates), SAID))
    assert len(again) == 14
    assert all(abs(each.error) < 1e-9 for each in again)


def test_the_command_reads_them():
    arguments = [
        "validate",
        str(BENCH / "invented_vllm_serve.json"),
        "--hardware",
        "l40s",
        "--tp",
        "1",
        "--format",
        "json",
    ]
    result = CliRunner().invoke(build(arguments), arguments, catch_exceptions=False)
    found = json.loads(result.stdout)
    assert found["summary"] == [{"rows": 14, "rows_predicted": 14}]
    assert {(each["metric"], each["regime"]): each["rows"] for each in found["errors"]}["ttft_ms", "closed_loop"] == 3

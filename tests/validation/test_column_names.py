"""Tables of measurements as strangers write them: names of columns and metrics, units, and what is not read."""

import re

import pytest

from simulator.errors import ProfileError
from simulator.validation.column_names import COLUMNS, METRICS, header, metric_of
from simulator.validation.measurements import METRICS as KNOWN
from simulator.validation.measurements import READERS, read_measurements, unread_columns
from tests.support.commands import printed

STRANGERS = "GPU,Model Name,Framework,Version,Tensor Parallel Size,ISL,OSL,Max Concurrency,Metric,Value,Unit,Colour"
LLAMA_BENCH = "GPU,Model,Backend,Metric,Value,Unit"
ROW = "H100 SXM,meta-llama/Llama-3.1-8B-Instruct,vLLM,0.10.0,1,1024,256,16"


def rows(tmp_path, *lines, head=STRANGERS):
    path = tmp_path / "theirs.csv"
    path.write_text("\n".join([head, *lines]) + "\n")
    return path, read_measurements(path)


def test_other_names_of_columns_and_metrics_are_read_as_ours(tmp_path):
    _, [found] = rows(tmp_path, f'{ROW},Mean Output Throughput,"1,500.5",tok/s,red')
    assert (found.metric, found.stat, found.value) == ("throughput_out_tok_s", "mean", 1500.5)
    setup = found.setup
    assert (setup.hardware, setup.model, setup.engine) == ("H100 SXM", "meta-llama/Llama-3.1-8B-Instruct", "vLLM")
    assert (setup.engine_version, setup.tp, setup.input_tokens, setup.output_tokens) == ("0.10.0", 1, 1024, 256)
    assert (setup.concurrency, setup.regime) == (16, "closed_loop")


@pytest.mark.parametrize(
    ("metric", "unit", "value", "read"),
    [
        ("TTFT", "s", "0.5", ("ttft_ms", "mean", 500.0)),
        ("p99_ttft_ms", "", "500", ("ttft_ms", "p99", 500.0)),
        ("Median TPOT (ms)", "", "8.1", ("tpot_ms", "median", 8.1)),
        ("TTFT p50 (ms)", "", "8.1", ("ttft_ms", "p50", 8.1)),
        ("tpot_ms_p99", "", "8.1", ("tpot_ms", "p99", 8.1)),
        ("ITL", "us", "8100", ("itl_ms", "mean", 8.1)),
        ("request_throughput", "req/s", "3", ("req_s", "mean", 3.0)),
        ("tg_tok_s", "t/s", "3", ("tg_tok_s", "mean", 3.0)),
    ],
)
def test_a_time_is_read_in_its_unit(tmp_path, metric, unit, value, read):
    _, [found] = rows(tmp_path, f"{ROW},{metric},{value},{unit},")
    assert (found.metric, found.stat, found.value) == (*read[:2], pytest.approx(read[2]))


@pytest.mark.parametrize(
    ("said", "regime"), [("Closed-loop", "closed_loop"), ("single stream", "single"), ("static", "fixed_batch")]
)
def test_a_regime_is_read_as_people_write_it(tmp_path, said, regime):
    _, [found] = rows(tmp_path, f"L4,llama-3.1-8b,req_s,1,{said}", head="hardware,model,metric,value,regime")
    assert found.setup.regime == regime


@pytest.mark.parametrize(
    ("metric", "unit", "flaw"),
    [
        ("TTFT", "", "has no unit of time"),
        ("ttft_ms", "s", "contradict each other"),
        ("output_throughput", "tok/s/GPU", "is that of one device"),
        ("output_throughput", "tokens/s per GPU", "is that of one device"),
        ("throughput", "tok/s", "metric 'throughput' is not known"),
    ],
)
def test_a_figure_whose_unit_is_not_clear_is_named_and_not_predicted(tmp_path, metric, unit, flaw):
    _, [_, found] = rows(tmp_path, f"{ROW},req_s,1,,", f"{ROW},{metric},3,{unit},")
    assert flaw in found.setup.flaw


def test_two_columns_of_one_meaning_are_refused_unless_one_has_our_name():
    with pytest.raises(ProfileError, match="'GPU' and 'Device' are both hardware"):
        header(["GPU", "Device"], "theirs.csv")
    assert header(["hardware", "GPU", "model"], "theirs.csv") == ["hardware", "gpu", "model"]


def test_no_name_of_a_column_or_metric_means_two():
    others = [name for names in COLUMNS.values() for name in names]
    assert len(others) == len(set(others))
    assert not set(others) & (set(READERS) | {"id", "metric", "stat", "value", "unit", "quality"})
    assert set(METRICS) <= KNOWN


def test_columns_that_are_not_read_are_told(tmp_path):
    path, _ = rows(tmp_path, f"{ROW},output_throughput,1500,tok/s,red")
    assert unread_columns(path) == ["colour"]
    assert "Not read, 1 column of theirs.csv: colour" in " ".join(printed("validate", str(path), "--jobs", "1").split())


def test_a_metric_that_contradicts_its_statistic_is_no_figure():
    with pytest.raises(ValueError, match="contradict"):
        metric_of("p99_ttft_ms", "mean", "")


@pytest.mark.parametrize(
    ("metric", "unit", "found"),
    [
        ("output_throughput", "ktok/s", ("throughput_out_tok_s", 1000.0)),
        ("output_throughput", "Output tokens per second", ("throughput_out_tok_s", 1.0)),
        ("Output Throughput (tok/s)", "", ("throughput_out_tok_s", 1.0)),
        ("Request throughput (req/s)", "", ("req_s", 1.0)),
        ("req_s", "requests/min", ("req_s", 1 / 60)),
        ("decode_tok_s_per_user", "tok/s/user", ("decode_tok_s_per_user", 1.0)),
        ("tpot", "ms/token", ("tpot_ms", 1.0)),
    ],
)
def test_a_unit_is_that_of_its_metric(metric, unit, found):
    name, _, factor = metric_of(metric, "", unit)
    assert (name, factor) == found


@pytest.mark.parametrize(
    ("metric", "unit", "told"),
    [
        ("output_throughput", "tok/s/user", "not that of throughput_out_tok_s. State the value in tok/s"),
        ("output_throughput", "req/s", "not that of throughput_out_tok_s"),
        ("req_s", "%", "State the value in req/s"),
        ("ttft", "min", "unit 'min' is none of time"),
        ("ttft", "", "has no unit of time"),
    ],
)
def test_a_unit_of_something_else_is_a_flaw(metric, unit, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        metric_of(metric, "", unit)


def test_one_statistic_of_two_names_contradicts_nothing():
    assert metric_of("p50_ttft_ms", "median", "") == ("ttft_ms", "p50", 1.0)
    assert metric_of("mean_ttft_ms", "avg", "") == ("ttft_ms", "mean", 1.0)


@pytest.mark.parametrize(
    ("test", "lengths"),
    [
        ("pp512", ("pp_tok_s", 512, 0, 0)),
        ("tg128", ("tg_tok_s", 0, 128, 0)),
        ("pp2048 @ d4096", ("pp_tok_s", 2048, 0, 4096)),
        ("tg32 @ d4096", ("tg_tok_s", 4096, 32, 0)),
    ],
)
def test_a_test_of_llama_bench_says_its_lengths(tmp_path, test, lengths):
    _, [found] = rows(tmp_path, f"RTX 3090,Qwen3-8B-Q4_K_M.gguf,llama.cpp,{test},90,t/s", head=LLAMA_BENCH)
    setup = found.setup
    assert (found.metric, setup.input_tokens, setup.output_tokens, setup.context_len) == lengths
    assert (setup.regime, setup.client) == ("single", "llama-bench")


def test_a_column_for_each_metric_is_a_figure_each(tmp_path):
    head = "GPU,Model,Concurrency,Mean TTFT (ms),p99_tpot_ms,Output Throughput,TTFT"
    path, found = rows(tmp_path, "L4,llama-3.1-8b,8,120,31,250,0.1", "L4,llama-3.1-8b,16,130,,", head=head)
    figures = [(each.id, each.metric, each.stat, each.value) for each in found]
    assert figures == [
        ("line 2", "ttft_ms", "mean", 120.0),
        ("line 2", "tpot_ms", "p99", 31.0),
        ("line 2", "throughput_out_tok_s", "mean", 250.0),
        ("line 3", "ttft_ms", "mean", 130.0),
    ]
    assert unread_columns(path) == ["ttft"]  # without a unit


def test_times_without_a_unit_are_told_where_nothing_else_is_a_figure(tmp_path):
    with pytest.raises(ProfileError, match=re.escape("its columns ttft, tpot have no unit of time")):
        rows(tmp_path, "L4,llama-3.1-8b,8,120,31", head="GPU,Model,Concurrency,TTFT,TPOT")
    with pytest.raises(ProfileError, match="it has no column 'model'"):
        rows(tmp_path, "L4,8,120,31", head="GPU,Concurrency,TTFT (ms),TPOT")


def test_a_count_before_the_device_says_what_sglangs_degrees_are(tmp_path):
    head = "GPU,Model,Framework,TP,DP,Concurrency,output_throughput"
    _, found = rows(
        tmp_path, "8x H200,deepseek-r1,sglang,8,8,64,2500", "8x H200,deepseek-r1,sglang,8,2,64,1", head=head
    )
    assert [(each.setup.devices, each.setup.tp, each.setup.dp) for each in found] == [(8, 8, 8), (8, 8, 2)]
    _, [several] = rows(tmp_path, "8x H200,deepseek-r1,vllm,4,1,64,2500", head=head)
    assert several.setup.devices == 4

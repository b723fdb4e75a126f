"""`simulate --save-result` writes what tools for `vllm bench serve` read."""

import json

import pytest

from simulator.validation.benchfiles import Stated, read_results
from tests.support.commands import printed, refused

ASKED = ("simulate", "--model", "llama-3.1-8b", "--hardware", "h100-sxm", "--isl", "512", "--osl", "64")
LOAD = ("--num-prompts", "80", "--max-concurrency", "8")
# What vllm/benchmarks/serve.py writes without --save-detailed (v0.27.0, looked up 2026-11-23), but for the most output
# tokens in a second, which infercast does not count.
KEYS = (
    *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate"),
    *("burstiness", "max_concurrency", "duration", "completed", "failed", "total_input_tokens", "total_output_tokens"),
    *("request_throughput", "request_goodput", "output_throughput", "total_token_throughput"),
    "max_concurrent_requests",
    *(f"{stat}_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el") for stat in ("mean", "median", "std", "p99")),
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A result file, and the row that the command printed."""
    path = tmp_path_factory.mktemp("results") / "result.json"
    row = json.loads(printed(*ASKED, *LOAD, "--format", "json", "--save-result", str(path)))["simulations"][0]
    return path, row


def test_it_has_every_key_and_the_figures_that_were_printed(saved):
    path, row = saved
    document = json.loads(path.read_text())
    assert set(KEYS) <= document.keys()
    assert document.pop("date")[8] == "-"
    assert document == row
    assert document["completed"] == 80
    assert document["request_rate"] == "inf"


def test_our_own_reader_of_such_files_reads_it(saved, tmp_path):
    """As one of a real run: under its own name it is refused, as a prediction is no measurement."""
    path, row = saved
    assert "it is a prediction" in refused("validate", str(path), "--tp", "1")
    (tmp_path / "real.json").write_text(path.read_text().replace('"infercast"', '"vllm"'))
    found = {(each.metric, each.stat): each for each in read_results(tmp_path / "real.json", Stated(tp=1))}
    assert found["ttft_ms", "mean"].value == row["mean_ttft_ms"]
    assert found["tpot_ms", "p99"].value == row["p99_tpot_ms"]
    assert found["throughput_out_tok_s", "mean"].value == row["output_throughput"]
    setup = found["ttft_ms", "mean"].setup
    assert (setup.concurrency, setup.input_tokens) == (8, 512)
    assert setup.output_tokens == pytest.approx(64, abs=0.1)  # equal requests of a closed loop drift apart
    assert (setup.model, setup.hardware, setup.tp) == ("llama-3.1-8b", "h100-sxm", 1)


def test_one_file_holds_one_simulation(tmp_path):
    given = (*ASKED, "--max-concurrency", "1,2", "--save-result", str(tmp_path / "result.json"))
    assert "a file holds one" in refused(*given)
    (tmp_path / "no").write_text("a file, not a folder")
    (tmp_path / "file").touch()
    assert "cannot be written" in refused(*ASKED, *LOAD, "--save-result", str(tmp_path / "file" / "result.json"))

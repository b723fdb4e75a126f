"""The typed columns of measurements: what each decides, and how the text of older tables is turned into them."""

import csv
import inspect
from pathlib import Path

import pytest

from simulator.errors import NotModelledError, ProfileError
from simulator.simulation.scheduler_limits import limits
from simulator.validation import older_notes
from simulator.validation.measurements import READERS, UNIFORM, Setup, read_measurements
from simulator.validation.older_notes import typed_columns
from simulator.validation.prediction import ask, predict
from simulator.validation.setups import place
from tests.support.measured import answer, engine_gets, users

ROW = {
    **{"hardware": "H100 SXM 80GB", "model": "Llama-3.1-8B", "engine": "vLLM", "engine_version": "0.12.0", "n_gpus": 1},
    **{"tp": 1, "input_len": 1024, "output_len": 128, "metric": "tpot_ms", "value": 10.0},
}
CLOSED = {"regime": "closed_loop", "concurrency": 16}


def setup(tmp_path: Path, **cells: object) -> Setup:
    path = tmp_path / "one.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, {**ROW, **cells})
        writer.writeheader()
        writer.writerow({**ROW, **cells})
    return read_measurements(path)[0].setup


# ------------------------------------------------------------------------------------------------------ older tables


@pytest.mark.parametrize(
    ("load", "notes", "cells"),
    [
        ("closed-loop concurrency, 499 requests (rag workload)", "AIPerf client; gpu_mem_util None; multi-LoRA",
         {"regime": "closed_loop", "num_prompts": "499", "client": "aiperf", "engine_settings": "enable-lora=true"}),
        ("open loop, 300 ShareGPT requests at 10 req/s", "max_num_seqs 128, max_num_batched_tokens 2048",
         {"regime": "open_loop", "num_prompts": "300", "dataset": "llmservingsim", "max_num_seqs": "128",
          "max_num_batched_tokens": "2048"}),
        ("MLPerf Interactive (Poisson arrivals at target_qps)", "MLPerf dataset for llama2-70b",
         {"regime": "open_loop", "scenario": "Interactive", "client": "mlperf", "dataset": "mlperf"}),
        ("MLPerf Offline (all queries at once)", "", {"regime": "offline", "scenario": "Offline", "client": "mlperf",
                                                       "dataset": "mlperf"}),
        ("MLPerf Server", "closed division, submitter HPE, system H200x8", {"regime": "open_loop", "scenario": "Server",
         "client": "mlperf", "dataset": "mlperf", "submitter": "HPE"}),
        ("", "open division, Quanta_Cloud_Technology, D74U", {"submitter": "Quanta_Cloud_Technology"}),
        ("max throughput", "trtllm-bench; MoE run with attention_dp enabled",
         {"regime": "offline", "client": "trtllm-bench", "engine_settings": "enable_attention_dp=true"}),
        ("single stream", "llama-bench pp2048 @ d4096, n_ubatch 1024, flash-attn; GGUF 4.5 GiB",
         {"regime": "single", "client": "llama-bench", "context_len": "4096", "weights_bytes": "4831838208",
          "engine_settings": "flash-attn=1;ubatch-size=1024"}),
        ("", "MLX generation; weights 2871.0 MB; 8 threads", {"weights_bytes": "2871000000", "threads": "8"}),
        ("closed loop", "50 distinct prompts", {"regime": "closed_loop", "num_dataset_entries": "50"}),
        ("open loop", "random dataset, burstiness 0.5",
         {"regime": "open_loop", "dataset": "random", "burstiness": "0.5"}),
        ("closed-loop concurrency", "--max-running-requests 64; --context-length 8192",
         {"regime": "closed_loop", "max_num_seqs": "64", "max_model_len": "8192"}),
        ("max throughput", "24.83 GiB KV cache per GPU (gpu memory limited)",
         {"regime": "offline", "engine_settings": "kv-cache-memory-bytes=26661009490"}),
        ("fixed-batch", "ISL 128; ttft of one user", {"regime": "fixed_batch", "prefill_batch": "1"}),
        ("in bursts", "", {"not_modelled": "in bursts"}),
        ("fixed-batch", 'published "Batch Size" 16 is llama-bench -b; source model name: Mistral-7B-v0.1',
         {"regime": "fixed_batch", "client": "llama-bench", "checkpoint": "Mistral-7B-v0.1",
          "engine_settings": "ubatch-size=16"}),
    ],
)  # fmt: skip
def test_the_text_of_older_tables_becomes_columns(load, notes, cells):
    said = {"load": load, "notes": notes}
    assert typed_columns(said) == {**cells, **{name: text for name, text in said.items() if text}}
    assert typed_columns(typed_columns(said)) == typed_columns(said)


def test_every_rule_fills_a_column_that_is_read():
    rules = (*older_notes.IN_LOAD, *older_notes.IN_NOTES, *older_notes.IN_EITHER)
    assert {column for column, _, _ in rules} <= READERS.keys()


def test_a_cell_that_is_stated_is_never_changed():
    row = {"load": "closed loop, 500 requests", "notes": "gpu_mem_util 0.9", "num_prompts": "80", "concurrency": "8"}
    assert typed_columns(row) == row | {"regime": "closed_loop", "gpu_memory_utilization": "0.9"}


@pytest.mark.parametrize(
    ("load", "rate", "batch", "regime"),
    [("open loop", "inf", "", "offline"), ("at will", "inf", "", "offline"), ("at will", "", "4", "fixed_batch")],
)
def test_a_load_without_a_regime_goes_by_its_numbers(load, rate, batch, regime):
    assert typed_columns({"load": load, "request_rate": rate, "batch": batch})["regime"] == regime


def test_a_decode_without_a_prompt_starts_from_an_empty_context_unless_a_prompt_is_mentioned():
    for notes, cell in (("generation", "0"), ("a short prompt", None)):
        found = typed_columns({"load": "single stream", "notes": notes, "output_len": "128"})
        assert found.get("input_len") == cell


def test_a_table_with_the_column_regime_is_read_by_its_columns_alone(tmp_path):
    text = {"load": "MLPerf Offline, 500 requests", "notes": "AIC run; max_num_seqs 7; 12 threads; depth 4096"}
    assert setup(tmp_path, **CLOSED, **text) == setup(tmp_path, **CLOSED)
    assert setup(tmp_path, **text).client == "mlperf"


def test_text_is_read_in_one_place():
    """No setup has a note or a load in words, so that nothing else can read one."""
    assert not {"notes", "load"} & set(inspect.signature(Setup).parameters)
    assert not {"notes", "load"} & READERS.keys()


# ----------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"regime": "closed"}, "regime 'closed' is not known. Nearest: closed_loop"),
        ({**CLOSED, "length_spread": "wide"}, "length_spread 'wide' is not known"),
        ({**CLOSED, "prefix_caching": "maybe"}, "prefix_caching 'maybe' is not known"),
        ({**CLOSED, "engine_settings": "flash-attn"}, "engine_settings 'flash-attn' is not name=value;name=value"),
        ({"concurrency": "8.9"}, "concurrency '8.9' is not a whole number"),
        ({"batch": "0.5"}, "batch '0.5' is not a whole number"),
        ({**CLOSED, "num_prompts": "inf"}, "num_prompts 'inf' is not 0 or a number from"),
    ],
)
def test_a_bad_typed_cell_names_its_line(tmp_path, cells, message):
    with pytest.raises(ProfileError, match="line 2: ") as error:
        setup(tmp_path, **cells)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("cells", "regime"),
    [
        ({"concurrency": 4, "batch": 2}, "closed_loop"),
        ({"request_rate": 2}, "open_loop"),
        ({"request_rate": "inf"}, "offline"),
        ({"batch": 4}, "fixed_batch"),
        ({}, None),
    ],
)
def test_an_empty_regime_goes_by_the_numbers(tmp_path, cells, regime):
    assert setup(tmp_path, regime="", **cells).regime == regime


def test_a_prompt_of_no_tokens_is_not_one_of_unknown_length(tmp_path):
    """`input_len` 0 is llama-bench's tg; where it is empty, a short question is assumed."""
    decode = {"regime": "single", "output_len": 4, "metric": "tg_tok_s", "hardware": "RTX 4090", "engine": "llama.cpp"}
    empty, unknown = (setup(tmp_path, **{**decode, "input_len": cell}) for cell in ("0", ""))
    assert (empty.starts_empty, unknown.starts_empty) == (True, False)
    with pytest.raises(NotModelledError, match="pp_tok_s: it is of prompts, and the run has none"):
        answer(empty).value("pp_tok_s")
    assert answer(unknown).value("pp_tok_s") > 0
    assert answer(empty).value("tg_tok_s") > answer(unknown).value("tg_tok_s")


def test_what_is_not_modelled_is_named_whatever_else_is_stated(tmp_path):
    row = setup(tmp_path, **CLOSED, not_modelled="speculative decoding")
    with pytest.raises(NotModelledError, match=r"speculative decoding: it is not modelled"):
        ask(row)


# ------------------------------------------------------------------------------------------------- what each decides


def test_replicas_share_devices_and_load(tmp_path):
    """Two engines of four devices each, half of the 16 requests in flight and of the 40 each."""
    shared = setup(tmp_path, **CLOSED, n_gpus=8, tp="", replicas=2, num_prompts=40)
    placed, made = place(shared), users(shared)
    assert (placed.replicas, placed.deployment.layout.tp) == (2, 4)
    assert (made.arrivals.concurrency, made.request_count) == (8, 20)
    alone = setup(tmp_path, **{**CLOSED, "concurrency": 8}, n_gpus=4, tp=4, num_prompts=20)
    both, one = (answer(each).value("throughput_out_tok_s") for each in (shared, alone))
    assert both == pytest.approx(2 * one)
    assert place(setup(tmp_path, **CLOSED, n_gpus=8, tp="", replicas=1)).deployment.layout.tp == 8


def test_limits_are_those_stated(tmp_path):
    stated = {"gpu_memory_utilization": 0.8, "max_model_len": 4096, "max_num_seqs": 4, "max_num_batched_tokens": 1024}
    limited = setup(tmp_path, **CLOSED, **stated)
    settings = place(limited).deployment.settings
    assert (settings.memory_fraction, settings.max_model_len) == (0.8, 4096)
    assert (settings.max_num_seqs, settings.max_num_batched_tokens) == (4, 1024)
    queued, free = answer(limited), answer(setup(tmp_path, **CLOSED))
    assert queued.value("ttft_ms") > 5 * free.value("ttft_ms")  # 12 of 16 wait, though all are in flight
    beyond = place(setup(tmp_path, **CLOSED, max_model_len=262_144)).deployment
    assert beyond.settings.max_model_len == beyond.model.max_context_tokens


@pytest.mark.parametrize(
    ("spread", "prompts", "outputs"), [(UNIFORM, (1, 2047), (1, 255)), ("fixed", (1024, 1024), (127, 129))]
)
def test_lengths_spread_as_stated(tmp_path, spread, prompts, outputs):
    """Drawn uniformly around the means, or equal but for the drift of vLLM's front end."""
    made = engine_gets(setup(tmp_path, **CLOSED, length_spread=spread, num_prompts=4000, dataset="random"))
    requests = made.requests()
    assert (requests.prompt_tokens.min(), requests.prompt_tokens.max()) == prompts
    assert (requests.output_tokens.min(), requests.output_tokens.max()) == outputs
    assert requests.prompt_tokens.mean() == pytest.approx(1024, rel=0.03)
    assert requests.output_tokens.mean() == pytest.approx(128, rel=0.03)


@pytest.mark.parametrize(("stated", "caches"), [("", True), ("on", True), ("off", False)])
def test_a_prefix_cache_is_off_where_that_is_stated(tmp_path, stated, caches):
    row = setup(tmp_path, **CLOSED, client="aiperf", num_prompts=400, prefix_caching=stated)
    assert place(row).deployment.engine.prefix_caching == caches
    assert bool(len(engine_gets(row).prefixes)) == caches


def test_a_stated_cache_holds_as_many_blocks_as_fit_its_bytes(tmp_path):
    """Llama-3.1-8B keeps 131,072 bytes a token, 2 MiB a block of 16."""
    row = setup(tmp_path, **CLOSED, engine_settings=f"kv-cache-memory-bytes={100 * 2**21 + 5}")
    deployment = place(row).deployment
    assert limits(deployment).num_blocks == 100
    roomy = place(setup(tmp_path, **CLOSED, engine_settings="kv-cache-memory-bytes=1e15")).deployment
    assert limits(roomy).num_blocks == limits(place(setup(tmp_path, **CLOSED)).deployment).num_blocks


def test_prompts_of_one_user_are_computed_alone(tmp_path):
    batch = {"regime": "fixed_batch", "batch": 16, "metric": "ttft_ms"}
    together, alone = (answer(setup(tmp_path, **batch, prefill_batch=each)) for each in ("", 1))
    assert together.value("ttft_ms") > 4 * alone.value("ttft_ms")


def test_gaps_are_pooled_as_the_client_does(tmp_path):
    row = {**CLOSED, "metric": "itl_ms", "concurrency": 64, "num_prompts": 128}
    p99 = [answer(setup(tmp_path, **row, client=each)).value("itl_ms", "p99") for each in CLIENTS]
    assert p99[0] == p99[1] > 1.5 * p99[2]


CLIENTS = "vllm bench serve", "sglang.bench_serving", "guidellm"


def test_a_flawed_row_is_listed_beside_the_others(tmp_path):
    path = tmp_path / "two.csv"
    path.write_text(
        "hardware,model,metric,value,regime,batch\nh100-sxm,llama-3.1-8b,tpot_ms,10,fixed_batch,4\n"
        "h100-sxm,llama-3.1-8b,tpot_ms,10,fixed,4\n"
    )
    found = predict(read_measurements(path))
    assert [each.value is None for each in found] == [False, True]
    assert "regime 'fixed' is not known" in found[1].reason

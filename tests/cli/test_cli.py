"""The command line as a user meets it: what it imports, what it prints where, and how it refuses."""

import csv
import inspect
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.cli import COMMANDS, build
from simulator.cli.numbers import number
from simulator.cli.output import Column, Result, View
from simulator.cli.text_layout import Format
from simulator.errors import InfercastError
from simulator.profile_folders import folders
from simulator.questions.words import comma_list, whole_numbers
from tests.support.commands import answer, in_a_process_of_their_own, infercast, printed, refused
from tests.support.model_configs import LLAMA_SMALL
from tests.support.paths import ROOT

ESTIMATE = ["estimate", "--model", "llama-3.1-8b", "--hardware", "h100-sxm"]
MEMORY = ["memory", "--model", "llama-3.1-8b", "--hardware", "h100-sxm"]


# ------------------------------------------------------------------------------------------------------ cold start

HEAVY = ("pandas", "matplotlib", "numba", "torch", "scipy")


LIGHT = ("complaint", "completion", "examples", "help", "other_tools_options", "text_layout", "usage")


def test_nothing_heavy_is_imported():
    commands = [ESTIMATE, MEMORY, ["profiles", "models"], ["profiles", "--lint"]]
    first, *others = in_a_process_of_their_own(["--help"], *commands)
    assert not set(first.modules) & {*HEAVY, "numpy", "pydantic", "yaml", "rich"}
    light = {f"simulator.cli.{name}" for name in LIGHT}
    assert {name for name in first.modules if name.startswith("simulator.cli.")} == light
    for command, done in zip(commands, others, strict=True):
        assert "simulator.cli.commands." + command[0] in done.modules
        assert not set(done.modules) & set(HEAVY), command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_their_help_says(name):
    command = next(each for each in build([name]).registered_commands if each.name == name)
    assert command.callback.__doc__.partition("\n")[0] == COMMANDS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name):
    command = next(each for each in build([name]).registered_commands if each.name == name)
    for parameter in inspect.signature(command.callback).parameters.values():
        (option,) = parameter.annotation.__metadata__
        assert option.help, parameter.name


def test_the_version_is_the_packages():
    assert printed("--version").startswith("infercast 0.")


# ---------------------------------------------------------------------------------------------------------- output


@pytest.mark.slow
def test_the_same_question_has_the_same_bytes():
    commands = [(*ESTIMATE, "--batch", "1,8", "--format", form) for form in ("text", "csv", "json")]
    commands.append(("simulate", *ESTIMATE[1:], "--workload", "chat", "--num-prompts", "200", "--rate", "1"))
    assert [printed(*each) for each in commands] == [done.stdout for done in in_a_process_of_their_own(*commands)]


def test_csv_and_json_are_the_same_rows():
    for command, section in ((ESTIMATE, "estimates"), (MEMORY, "plans")):
        rows = answer(*command)[section]
        table = list(csv.DictReader(io.StringIO(printed(*command, "--format", "csv"))))
        assert len(table) == len(rows)
        for line, row in zip(table, rows, strict=True):
            assert line == {key: "" if value is None else str(value) for key, value in row.items()}


def test_lists_sweep_every_combination():
    rows = answer(*ESTIMATE[:-1], "l40s,h100-sxm", "--batch", "1,8", "--isl", "512,1024", "--osl", "16")["estimates"]
    seen = {(row["hardware"], row["batch"], row["input_tokens"]) for row in rows}
    assert len(rows) == len(seen) == 8
    for row in rows:
        assert row["ttft_s"] > row["light_ttft_s"] > 0
        assert row["tpot_s"] > row["light_tpot_s"] > 0
        assert row["output_tokens_per_s"] == pytest.approx(row["batch"] * 16 / row["e2el_s"])


def test_tables_say_what_the_rows_say():
    text = printed(*ESTIMATE, "--batch", "8", "--details")
    row = answer(*ESTIMATE, "--batch", "8")["estimates"][0]
    for value in (row["ttft_s"] * 1e3, row["tpot_s"] * 1e3, row["e2el_s"], row["output_tokens_per_s"]):
        assert number(3)(value) in text
    assert f"{row['decode_bound']}, {number(2)(row['decode_margin'])} x {row['decode_runner_up']}" in text
    assert f"{number(3)((row['ttft_s'] - row['prefill_s']) * 1e3)}" in text  # the engine's time per request
    assert "Rests on guesses: " in text


def test_tables_are_never_cut():
    text = printed(*ESTIMATE, "--hardware", "rtx-pro-6000-server,h100-sxm", "--explain", "--batch", "1,64")
    assert "…" not in text
    assert "\x1b" not in text
    assert "rtx-pro-6000-server" in text


def test_a_narrow_terminal_folds_and_never_cuts():
    rows = [{"name": "a long name of several words", "value": 123_456_789}]
    view = View("title", (Column("name", "name", left=True), Column("value", "value")), rows)
    text = Result({"rows": rows}, [view]).render(Format.TEXT, width=24)
    assert "…" not in text
    for word in ("long", "several", "words", "123456789"):
        assert word in text


def test_explain_adds_up():
    whole_answer = answer(*ESTIMATE, "--batch", "4", "--explain")
    row = whole_answer["estimates"][0]
    for phase in ("prefill", "decode"):
        ops = [op for op in whole_answer["ops"] if op["phase"] == phase]
        assert sum(op["seconds"] for op in ops) == pytest.approx(row[f"{phase}_s"])
        assert sum(op["light_s"] for op in ops) == pytest.approx(row[f"light_{phase}_s"])
        assert sum(op["share"] for op in ops) == pytest.approx(1)
    assert printed(*ESTIMATE, "--explain", "--format", "csv").startswith("model,hardware,")


def test_json_names_every_figure_with_its_source():
    used = answer(*ESTIMATE)["rests_on"]
    assert {each["profile"] for each in used} == {"h100-sxm", "llama-3.1-8b", "vllm-0.33"}
    assert all(each["text"] and each["evidence"] for each in used)


@pytest.mark.slow
def test_a_plot_is_written_whole(tmp_path):
    for ending, magic in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        path = tmp_path / "new" / f"roofline{ending}"
        printed(*ESTIMATE, "--batch", "1,8", "--plot", str(path))
        assert path.read_bytes().startswith(magic)
    assert len(list((tmp_path / "new").iterdir())) == 3


def test_a_reader_that_leaves_is_no_error():
    for arguments in (["profiles", "workloads", "--format", "json"], ["profiles", "models", "--schema"]):
        command = [sys.executable, "-m", "simulator.cli", *arguments]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait() == 1


def test_numbers_keep_three_digits_and_whole_thousands():
    show = number(3)
    assert [show(value) for value in (0, 0.01234, 1.0, 99.94, 123.4, 1234567.8)] == [
        "0",
        "0.0123",
        "1.00",
        "99.9",
        "123",
        "1,234,568",
    ]
    assert Column("key", "heading", show).cell({"key": None}) == "-"


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*ESTIMATE[:-1], "h100-smx"], "Nearest: h100-sxm,"),
        (
            ["estimate", "--model", "x/config.json", "--hardware", "l4"],
            "Say `infercast import-model x/config.json`, then",
        ),
        (["estimate", "--model", "llama-9", "--hardware", "l4"], "no model profile 'llama-9'"),
        ([*ESTIMATE, "--gpu-memory-utilization", "0.1"], "It fits with --gpu-memory-utilization 0.92"),
        ([*ESTIMATE, "--max-model-len", "100"], "Give shorter lengths, or --max-model-len "),
        ([*ESTIMATE, "--engine", "vlm"], "Nearest: vllm,"),
        ([*ESTIMATE, "--batch", "0"], "--batch 0"),
        ([*ESTIMATE, "--batch", "1,,2"], "a part of the list is empty"),
        ([*ESTIMATE, "--isl", "-5"], "--input-len -5"),
        ([*ESTIMATE, "--isl", "many"], "not a whole number above 0. Give, say, --input-len 512"),
        ([*ESTIMATE, "--isl", "1e3"], "not a whole number above 0. Write it out, --input-len 1000."),
        ([*ESTIMATE, "--isl", "1k"], "Write it out, --input-len 1000 or 1024"),
        ([*ESTIMATE, "--tp", "3"], "do not divide"),
        ([*ESTIMATE, "--ep", "4"], "--ep 4 for llama-3.1-8b: the model has no experts"),
        ([*ESTIMATE, "--weight-dtype", "fp9"], "Nearest: "),
        ([*ESTIMATE, "--gpu-memory-utilization", "1.5"], "1.5"),
        ([*ESTIMATE, "--gpu-memory-utilization", "nan"], "nan"),
        ([*ESTIMATE, "--max-num-seqs", "0"], "--max-num-seqs 0"),
        ([*ESTIMATE, "--max-model-len", "999999999"], "131072"),
        ([*ESTIMATE, "--batch", "4000"], "Give --batch"),
        ([*ESTIMATE, "--plot", "x.bmp"], "its ending names no format"),
        ([*ESTIMATE, "--plot", "/proc/none/x.png"], "it cannot be written"),
        ([*ESTIMATE, "--profiles", "/nowhere"], "there is no such folder"),
        (["estimate", "--model", "llama-3.1-70b", "--hardware", "l4"], "It fits with --tp 8"),
        (["profiles", "modls"], "Nearest: models"),
        (["profiles", "list", "models"], "Kinds: hardware, models, engines,"),
        (["profiles", "hardware", "h100-smx"], "Nearest: "),
        (["profiles", "weather", "--schema"], "there is no such kind"),
    ],
)
def test_a_mistake_is_one_line_on_stderr(arguments, message):
    assert message in refused(*arguments)


def test_a_sweep_goes_on_without_what_cannot_be_and_names_it():
    arguments = (*ESTIMATE[:-1], "l4,h100-sxm", "--batch", "64", "--isl", "1024")
    found = answer(*arguments)
    assert [row["hardware"] for row in found["estimates"]] == ["h100-sxm"]
    assert "on l4" in found["refused"][0]["given"]
    assert "Left out: batch 64 x (1,024 in + 128 out) on llama-3.1-8b (bf16) on l4" in printed(*arguments)
    done = infercast(*arguments, "--format", "csv")
    assert done.stderr.startswith("infercast: left out: ")
    assert done.stdout.count("\n") == 2


def test_a_misfit_prints_the_plan_and_what_would_make_it_fit():
    done = infercast("memory", "--model", "llama-3.1-70b", "--hardware", "h100-sxm,l4", "--format", "json")
    assert done.returncode == 2
    assert done.stderr.count("It fits with --tp") == 2
    assert done.stderr.count("or --cpu-offload-gb") == 2
    rows = json.loads(done.stdout)["plans"]
    assert {row["fits"] for row in rows} == {False}
    assert {row["blocks"] for row in rows} == {0}


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        (
            "gpt-oss-120b --hardware h100-sxm --num-gpu-blocks-override 1000000",
            "1,000,000 cache blocks: 15,054 fit.",
        ),
        ("llama-3.3-70b --hardware b200-sxm --max-model-len 131072", "the cache holds one sequence of 95,120 tokens"),
        ("llama-3.3-70b --hardware h100-sxm", "Does not fit: 131.42 GiB of weights in 79.22 GiB of memory."),
    ],
)
def test_the_verdict_of_a_misfit_is_its_own_reason(options, verdict):
    told = infercast("memory", "--model", *options.split()).stdout
    assert verdict in " ".join(told.partition("\n\n")[0].split())


def test_memory_answers_for_the_lengths_that_are_asked():
    rows = answer(*MEMORY, "--context", "1000", "--isl", "1024,8192", "--osl", "128")["plans"]
    assert [row["sequence_tokens"] for row in rows] == [1000, 1152, 8320]
    for row in rows:
        assert row["sequence_blocks"] == -(-row["sequence_tokens"] // 16)
        assert row["concurrency"] == row["blocks"] / row["sequence_blocks"]


def test_memory_refuses_lengths_beyond_the_context_as_estimate_does():
    assert "a sequence has 131,072 tokens at most" in refused(*MEMORY, "--isl", "200000", "--osl", "10")
    found = infercast(*MEMORY, "--context", "1000,200000")
    assert "Left out: 200,000 tokens on llama-3.1-8b" in found.stdout
    assert found.returncode == 0


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("llama-3.1-8b", "tokens, the longest sequence may have 131,072."),
        (
            "gemma-3-27b",
            "tokens of short sequences and more of long ones, which not all layers keep whole;",
        ),
        ("mamba-codestral-7b", "Fits: no layer caches tokens; "),
        ("mamba-codestral-7b", "sequences, of up to 262,144 tokens each."),
    ],
)
def test_the_verdict_says_what_a_cache_holds_as_its_layers_keep_it(model, said):
    told = infercast("memory", "--model", model, "--hardware", "h100-sxm").stdout
    assert said in " ".join(told.split())


def test_a_sweep_of_memory_says_which_fit_and_heads_its_columns_with_names():
    """What engines set by default (1,024 sequences on H100, 256 on L40S) is no setting that was asked for."""
    asked = ("memory", "--model", "llama-3.3-70b", "--hardware", "l40s,h200-sxm", "--tp", "1,2")
    told = infercast(*asked).stdout
    assert told.startswith("1 of 4 fit: h200-sxm TP 2.\n")
    heads = told.partition("bf16 cache\n")[2].splitlines()[:2]
    assert [each.split() for each in heads] == [
        ["l40s", "l40s", "h200-sxm", "h200-sxm"],
        ["TP", "1", "TP", "2", "TP", "1", "TP", "2"],
    ]
    assert "max seqs" not in told
    assert "max seqs 64" in infercast(*MEMORY, "--max-num-seqs", "32,64").stdout


def test_a_cache_that_an_error_of_the_plan_may_take_fits_barely():
    asked = ("memory", "--model", "llama-3.3-70b", "--hardware", "h100-sxm,h200-sxm", "--tp", "2")
    assert "2 of 2 fit. Barely: h100-sxm; an error of the plan" in infercast(*asked).stdout
    alone = infercast(*asked[:4], "h100-sxm", "--tp", "2").stdout
    assert alone.startswith("Fits barely: its KV cache of 4.30 GiB holds 28,160 tokens")
    assert "The plan of a cache may be off by 3.96 GiB: start the engine to see." in alone
    assert "memory plan: error of the KV cache" in alone
    assert infercast(*asked[:4], "h200-sxm", "--tp", "2").stdout.startswith("Fits: ")


def test_memory_under_three_conventions():
    rows = answer(*MEMORY, "--engine", "vllm,tensorrt-llm,llama.cpp", "--context", "4096")["plans"]
    assert [row["convention"] for row in rows] == ["of_total", "of_free", "reserved"]
    for row in rows:
        parts = ("weight", "workspace", "context", "graph", "unused", "cache")
        assert sum(row[f"{part}_bytes"] for part in parts) == pytest.approx(row["memory_bytes"])


def test_lists_of_numbers():
    assert whole_numbers(" 1, 8,64", "--batch") == [1, 8, 64]
    assert comma_list("a,b", "--model") == ["a", "b"]
    for bad in ("", "1,", "0", "-1", "1.5", "²"):
        with pytest.raises(InfercastError):
            whole_numbers(bad, "--batch")


# --------------------------------------------------------------------------------------------------------- profiles


def test_profiles_list_and_show_everything():
    kinds = {row["kind"]: row["profiles"] for row in answer("profiles")["kinds"]}
    for kind, count in kinds.items():
        assert len(answer("profiles", kind)[kind]) == count > 0
    shown = answer("profiles", "hardware", "H100")
    figures = {row["figure"]: row for row in shown["figures"]}
    assert figures["memory_bytes_per_s"]["value"] == 3350e9
    assert figures["memory_bytes_per_s"]["evidence"] == "datasheet"
    assert figures["achievable.elementwise_memory_fraction"]["evidence"] == "guess"  # its family's
    assert {"key": "vendor", "value": "NVIDIA"} in shown["facts"]
    text = printed("profiles", "hardware", "H100", "--all")
    assert "3.35 TB/s" in text
    assert figures["memory_bytes_per_s"]["text"] in text


def test_offers_are_shown_by_provider_and_by_device():
    by_device = answer("profiles", "prices", "h100")["offers"]
    assert {row["hardware"] for row in by_device} == {"h100-sxm"}
    assert len({row["provider"] for row in answer("profiles", "prices", "runpod")["offers"]}) == 1


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A user's folder with one faster L4 and one engine of their own."""
    (tmp_path / "hardware_profiles").mkdir()
    shipped = (folders("hardware_profiles")[-1] / "l4.yaml").read_text()
    (tmp_path / "hardware_profiles" / "l4.yaml").write_text(shipped.replace("300 GB/s", "600 GB/s", 1))
    return tmp_path


def test_the_users_own_profiles_come_first(own):
    faster = json.loads(printed(*ESTIMATE[:-1], "l4", "--format", "json", "--profiles", str(own)))["estimates"][0]
    same = json.loads(printed(*ESTIMATE[:-1], "l4", "--format", "json", INFERCAST_PROFILES=str(own)))["estimates"][0]
    shipped = answer(*ESTIMATE[:-1], "l4")["estimates"][0]
    assert faster == same
    assert shipped["light_tpot_s"] == pytest.approx(2 * faster["light_tpot_s"])


def test_lint_reports_every_problem_and_names_the_file(own):
    path = own / "hardware_profiles" / "mine.yaml"
    path.write_text("name: Mine\nvendor: 3\nfamily: ada\ndevice_class: gpu\nspeed: fast\n")
    done = infercast("profiles", "hardware", "--lint", "--profiles", str(own), "--format", "json")
    assert done.returncode == 2
    found = json.loads(done.stdout)["problems"]
    assert {row["file"] for row in found} == {str(path)}
    assert any("line 1" in row["problem"] for row in found)
    assert any("speed" in row["problem"] for row in found)


def test_the_shipped_profiles_have_no_problem():
    assert answer("profiles", "--lint")["problems"] == []


# ----------------------------------------------------------------------------------------------------- import-model


def test_an_imported_model_is_known_by_its_name(tmp_path):
    config, folder = tmp_path / "config.json", tmp_path / "own" / "model_profiles"
    config.write_text(json.dumps(LLAMA_SMALL))
    row = answer("import-model", str(config), "--name", "tiny", "--to", str(folder))["models"][0]
    assert (row["parameters"], row["cache_bytes_per_token"]) == (1_100_048_384, 22_528)  # as tinyllama-1.1b
    assert "this profile exists already" in refused("import-model", str(config), "--name", "tiny", "--to", str(folder))
    printed("import-model", str(config), "--name", "tiny", "--to", str(folder), "--force")
    estimate = ["estimate", "--model", "tiny", "--hardware", "l4", "--format", "json"]
    ours = json.loads(printed(*estimate, "--profiles", str(tmp_path / "own")))
    shipped = answer("estimate", "--model", "tinyllama-1.1b", "--hardware", "l4")
    assert ours["estimates"][0]["e2el_s"] == shipped["estimates"][0]["e2el_s"]


def test_an_imported_model_is_named_as_the_folder_of_its_checkpoint(tmp_path):
    folder = tmp_path / "Tiny-1B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_SMALL))
    imported = ["import-model", "config.json"]
    asked = ["estimate", "--model", "tiny-1b.yaml", "--hardware", "l4"]
    first, again, used = in_a_process_of_their_own(imported, imported, asked, folder=folder)
    assert (first.returncode, used.returncode) == (0, 0), (first.stderr, used.stderr)
    assert first.stdout.endswith("Use it: --model tiny-1b.yaml\n")
    assert "tiny-1b.yaml: this profile exists already" in again.stderr


def test_an_imported_checkpoint_has_the_size_of_its_own_format(tmp_path):
    quantised = {**LLAMA_SMALL, "quantization_config": {"quant_method": "fp8"}}
    rows, shown = [], []
    for name, content in (("narrow", quantised), ("wide", LLAMA_SMALL)):
        config = tmp_path / f"{name}.json"
        config.write_text(json.dumps(content))
        words = ("import-model", str(config), "--name", name, "--to", str(tmp_path))
        rows += answer(*words)["models"]
        shown.append(printed(*words, "--force"))
    narrow, wide = rows
    assert 0.5 < narrow["weight_bytes"] / narrow["weight_bytes_at_16_bits"] < 0.6  # all but embeddings and head
    assert wide["weight_bytes"] == wide["weight_bytes_at_16_bits"]
    assert ["weights as they are stored" in each for each in shown] == [True, False]
    assert narrow["active_parameters"] - narrow["computed_parameters"] == 32_000 * 2_048
    assert "without the embedding table" in shown[0]


def test_what_is_not_modelled_is_not_written(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**LLAMA_SMALL, "model_type": "rwkv"}))
    assert "rwkv" in refused("import-model", str(config), "--name", "tiny", "--to", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()

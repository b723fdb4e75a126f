"""Data sheets of models and devices: full digits, words for every architecture, evidence; 80 columns."""

import pytest

from simulator.cli.answers.architecture_words import WORDS, layers_in_words
from simulator.cli.answers.data_sheet import sheet
from simulator.cli.answers.profile_lint import kind
from simulator.cli.output import Result
from simulator.cli.text_layout import Format
from tests.support.commands import answer, printed
from tests.support.paths import ROOT


def test_a_model_has_full_digits_and_words():
    """gpt-oss-120b: 116.83B parameters, 5.1B of them without embeddings active (model card), 18 layers of each kind."""
    said = printed("profiles", "models", "gpt-oss-120b")
    lines = {line.split("  ")[0]: line for line in said.splitlines()}
    assert "116,829,156,672" in lines["parameters"]
    assert "73,728 bytes" in lines["KV cache per token, bf16"]
    assert "36,864 bytes" in said  # 18 layers keep all tokens: half of 73,728
    assert "5,711,982,912 (4.9%)" in said
    assert "    without the embeddings   5,132,849,472" in said
    assert "sliding-window attention of 64 heads, 8 key-value heads of 64" in said
    assert "128 experts of 2,880, 4 per token" in said.replace("\n         ", " ")
    assert "18 x (local, global)" in said
    assert "e+" not in said
    assert "openai/gpt-oss-120b" in said


def test_a_device_has_peaks_links_prices_and_evidence():
    said = printed("profiles", "hardware", "h100-sxm")
    for words in ("3.35 TB/s", "989 TFLOP/s, 295 FLOP per byte", "450 GB/s", "79.22 GiB", "700 W", "NVLink 4"):
        assert words in said
    rows = [line.split() for line in said.splitlines()]
    assert ["GEMM", "bf16", "77%", "90%", "3.8", "µs", "fitted"] in rows
    assert not any(row[:2] == ["GEMM", "fp4"] for row in rows)  # it has no such peak
    assert "Cheapest offers" in said
    assert "measured                 memory_reported_bytes" in said


def test_a_profile_of_ones_own_is_shown_by_its_path(tmp_path):
    device, model = tmp_path / "mine.yaml", tmp_path / "own.yaml"
    device.write_text((ROOT / "hardware_profiles" / "l4.yaml").read_text())
    model.write_text((ROOT / "model_profiles" / "tinyllama-1.1b.yaml").read_text())
    shown = printed("profiles", "hardware", str(device))
    assert "No price list has it" in shown
    assert f"infercast profiles hardware {device} --all" in " ".join(shown.split())
    assert f"infercast profiles models {model} --all" in " ".join(printed("profiles", "models", str(model)).split())
    assert "Other names" in printed("profiles", "models", str(model))
    model.write_text("\n".join(line for line in model.read_text().splitlines() if not line.startswith("aliases")))
    assert "Other names" not in printed("profiles", "models", str(model))


def test_all_shows_every_key_with_its_source():
    said = printed("profiles", "hardware", "h100-sxm", "--all")
    assert "achievable.gemm.bf16.compute_fraction" in said
    assert "Sources" in said
    assert "blocks.local.mixer.sinks" in printed("profiles", "models", "gpt-oss-120b", "--all")


def test_json_has_the_sheet_and_every_key():
    whole = answer("profiles", "models", "gpt-oss-120b")
    [row] = whole["sheet"]
    assert (row["parameters"], row["cache_bytes_per_token"]) == (116_829_156_672, 73_728)
    assert {"key": "blocks.local.mixer.sinks", "value": True} in whole["facts"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["models", "hardware"])
def test_every_sheet_has_80_columns(name):
    for each in kind(name).names():
        text = Result({}, sheet(kind(name).load(each))).render(Format.TEXT, width=80)
        assert max(map(len, text.splitlines())) <= 80, each


def test_embeddings_of_each_layer_are_named():
    text = Result({}, sheet(kind("models").load("gemma-3n-e4b"))).render(Format.TEXT, width=80)
    assert "embeddings of each layer   262,144 x 35 x 256" in text


def test_every_layer_has_words():
    models = [kind("models").load(name) for name in kind("models").names()]
    blocks = [block for model in models for block in model.blocks.values()]
    parts = {type(part) for block in blocks for part in (block.mixer, block.ffn, *block.beside)}
    assert parts - {type(None)} == set(WORDS)
    for model in models:
        assert sum(int(times) for times, _ in layers_in_words(model)) == len(model.layer_names)

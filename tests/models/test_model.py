"""Every shipped model against published figures, and the laws of weights, cache and work on any model and layout."""

import csv
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simulator.deployment.layouts import default_layout
from simulator.errors import InfercastError, NotModelledError, ProfileError
from simulator.models.compressed import CompressedAttention
from simulator.models.latent import LatentAttention
from simulator.models.layers import Attention, Dense, MixtureOfExperts
from simulator.models.layout import PARTS, Layout, Weights
from simulator.models.model import KIND, Model, checkpoint, load_model
from simulator.models.number_formats import FORMATS, number_format
from simulator.models.operations import Counts, Op
from simulator.models.recurrent import GatedDeltaNet, Mamba
from simulator.profile import find
from simulator.profile_files import read_yaml
from simulator.profile_folders import folders, names
from simulator.units import GIB
from tests.support.for_each import for_each
from tests.support.paths import FIXTURES

SHIPPED = names(KIND)
FIRST_LIBRARY = [
    *("llama-2-7b", "llama-2-13b", "llama-2-70b", "llama-3-8b", "llama-3-70b", "llama-3.1-8b", "llama-3.1-70b"),
    *("llama-3.1-405b", "llama-3.2-1b", "llama-3.2-3b", "mistral-7b", "mixtral-8x7b", "qwen2.5-7b", "qwen3-8b"),
    *("qwen3-32b", "qwen3-30b-a3b", "qwen3-235b-a22b", "gemma-3-27b", "deepseek-v3", "gpt-oss-20b", "gpt-oss-120b"),
    "phi-4",
]

# ---------------------------------------------------------------------------------------------- published figures


@pytest.mark.parametrize(
    ("name", "parameters", "cache_bytes_per_token"),
    [
        ("llama-3.1-8b", 8_030_261_248, 131_072),
        ("llama-2-7b", 6_738_415_616, 524_288),
        ("deepseek-v3", 671_026_419_200, 70_272),
        ("gpt-oss-120b", 116_829_156_672, 73_728),
        ("bloom-176b", 176_247_271_424, 70 * 2 * 112 * 128 * 2),
        ("gpt-j-6b", 6_050_882_784, 28 * 2 * 16 * 256 * 2),
        ("qwen3-next-80b-a3b", 79_674_391_296, 12 * 2 * 2 * 256 * 2),
        ("deepseek-v3.2", 671_877_944_064, 61 * (576 * 2 + 132)),
        ("gemma-4-31b", 30_697_345_280, 50 * 2 * 16 * 256 * 2 + 10 * 2 * 4 * 512 * 2),
        ("nemotron-3-super-120b-a12b", 120_668_707_840, 8 * 2 * 2 * 128 * 2),
        ("kimi-linear-48b-a3b", 49_122_681_728, 7 * 576 * 2),
        ("kimi-k3", 2_779_482_798_688, 24 * 576 * 2),
        ("deepseek-v4-flash", 284_332_240_471, 21 * (584 + 132) / 4 + 20 * 584 / 128),
        ("deepseek-v4-pro", 1_572_997_201_763, 30 * (584 + 132) / 4 + 31 * 584 / 128),
        ("ling-3.0-flash", 124_414_211_552, 7 * 576 * 2),
        ("command-a-plus", 218_254_938_112, 32 * 2 * 8 * 128 * 2),
        ("minimax-m3", 426_174_572_928, 60 * 2 * 4 * 128 * 2 + 57 * 128 * 2),
        ("glm-5.2", 743_377_019_904, 78 * 576 * 2 + 21 * 132),
        ("step-3.5-flash", 196_956_130_368, 45 * 2 * 8 * 128 * 2),
        ("lfm2-8b-a1b", 8_339_930_560, 6 * 2 * 8 * 64 * 2),
        ("granite-4.0-h-small", 32_207_337_984, 4 * 2 * 8 * 128 * 2),
    ],
)
def test_anchors(name: str, parameters: int, cache_bytes_per_token: int) -> None:
    model = load_model(name)
    assert model.parameters == parameters
    assert model.cache_bytes(1) == cache_bytes_per_token


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("glm-4.6", 355, 32),
        ("kimi-k2.5", 1000, 32),
        ("kimi-linear-48b-a3b", 48, 3),
        ("ernie-4.5-21b-a3b", 21, 3),
        ("mistral-small-4", 119, 6.5),
        ("step-3.5-flash", 196.81, 11),
        ("laguna-xs.2", 33, 3),
        ("laguna-s-2.1", 118, 8),
        ("laguna-m.1", 225.8, 23.4),
        ("north-mini-code", 30, 3),
        ("granite-4.2-30b", 29.28, 29.28),
        ("granite-4.0-h-small", 32, 9),
        ("lfm2-8b-a1b", 8.3, 1.5),
        ("nemotron-3-ultra-550b-a55b", 550, 55),
        ("gemma-4-12b", 11.95, 11.95),
        ("seed-oss-36b", 36, 36),
        ("k-exaone-236b-a23b", 236, 23),
        ("jamba-large", 398, 94),
        ("nemotron-4-340b", 341, 341),
        ("longcat-flash", 560, 27),
        ("deepseek-v4-flash", 284, 13),
        ("minimax-m3", 428, 23),
        ("hy4-preview", 770, 49),
        ("glm-5.3-flash", 320, 18),
        ("ling-3.0-flash", 124, 5.1),
        ("ling-3.0-tiny", 7.9, 1.3),
        ("command-a-plus", 218, 25),
        ("qwen3.8-2.4t-a95b", 2400, 95),
        ("k-exaone-2.0-750b-a37b", 750, 37),
        ("deepseek-v4-pro", 1600, 49),
        ("step-3", 316, 38),
        ("hunyuan-large", 389, 52),
        ("mimo-v2-flash", 309, 15),
        ("snowflake-arctic", 480, 17),
        ("minimax-text-01", 456, 45.9),
        ("deepseek-moe-16b", 16.4, 2.8),
        ("a.x-k1", 519, 33),
        ("granite-3.1-3b-a800m", 3.3, 0.88),
        ("falcon-mamba-7b", 7.27, 7.27),
        ("mamba-codestral-7b", 7.29, 7.29),
        ("qwen1.5-110b", 111, 111),
    ],
)
def test_parameters_that_publishers_announce(name: str, billions: float, active: float) -> None:
    # Rounded by them; some leave embeddings out of the active ones, some count prediction layers into the total.
    model = load_model(name)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.045)
    lookup = model.vocab * model.hidden * (1 if model.tied_embeddings else 2)
    assert (model.active_parameters - lookup) / 1e9 < active * 1.05 < 1.25 * model.active_parameters / 1e9


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("nemotron-3-nano-30b-a3b", 31.58),
        ("nemotron-3-super-120b-a12b", 120.67),
        ("qwen3.5-122b-a10b", 122.11),
        ("gemma-4-26b-a4b", 25.23),
        ("gemma-4-31b", 30.70),
        ("llama-4-scout", 107.77),
        ("llama-4-maverick", 400.71),
    ],
)
def test_parameters_that_llama_cpp_prints_for_gguf_files(name: str, billions: float) -> None:
    assert round(load_model(name).parameters / 1e9, 2) == billions


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("glm-4.5v", "107.710933120"),  # its safetensors, counted file by file (the profile's source)
        ("pixtral-large", "124"),  # its name
        ("internvl3.5-8b", "8.5"),  # these: ErfeiCui/InternVL-doc docs/en/internvl3.5/introduction.md
        ("internvl3.5-14b", "15.1"),
        ("internvl3.5-38b", "38.4"),
        ("internvl3.5-30b-a3b", "30.8"),
        ("internvl3.5-20b-a4b", "21.2"),
        ("internvl3.5-241b-a28b", "240.7"),
        ("internvl3.5-4b", "4.7"),
        ("internvl3.5-2b", "2.3"),
        ("internvl3.5-1b", "1.1"),
    ],
)
def test_text_and_vision_together_are_what_publishers_count(name: str, billions: str) -> None:
    model = load_model(name)
    assert model.vision
    digits = len(billions.partition(".")[2])
    assert f"{(model.parameters + model.vision.parameters) / 1e9:.{digits}f}" == billions


def test_layers_that_were_searched_one_by_one() -> None:
    # 253.4 and 49.9 billion (Hugging Face, recalled); the names say 253 and 49. Other layers have no attention.
    ultra, super49 = load_model("llama-3.1-nemotron-ultra-253b"), load_model("llama-3.3-nemotron-super-49b")
    assert [round(each.parameters / 1e9, 1) for each in (ultra, super49)] == [253.4, 49.9]
    assert [each.attention_layers for each in (ultra, super49)] == [(64, 0), (49, 0)]
    assert [len(each.layer_names) for each in (ultra, super49)] == [162 - 81, 80]


def test_a_tuned_checkpoint_has_the_shape_of_its_base() -> None:
    assert load_model("Qwen/Qwen2.5-7B-Instruct").id == "qwen2.5-7b"
    assert load_model("Llama-3.2-3B-Instruct").id == "llama-3.2-3b"
    with pytest.raises(ProfileError, match="'Qwen9-7B-Instruct'"):
        load_model("Qwen9-7B-Instruct")


@for_each("name", SHIPPED)
def test_every_shipped_model_equals_its_published_figures(name: str) -> None:
    model = load_model(name)
    if model.published_parameters is None:  # only a shape that was recalled may lack its published total
        assert model.sources["config"].evidence == "guess"
        return
    assert model.parameters == model.published_parameters
    assert model.cache_bytes(1) == model.published_cache_bytes_per_token
    assert model.published_parameters.source.text
    number_format(model.dtype)
    number_format(model.weight_dtype)


@pytest.fixture(scope="session")
def facts() -> list[dict[str, str]]:
    with (FIXTURES / "facts" / "models.csv").open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["params_total"]]


def test_every_row_of_the_facts_is_shipped_and_equal(facts: list[dict[str, str]]) -> None:
    assert len(facts) == len({find(KIND, row["model"]) for row in facts}) == 64
    for row in facts:
        model = load_model(row["model"])
        assert model.parameters == int(row["params_total"]), row["model"]
        assert model.cache_bytes(1) == int(row["kv_bytes_per_token_bf16_all_layers"]), row["model"]
        # Shared experts, embeddings and the biases of the chosen experts count on both sides: no row differs.
        assert model.active_parameters == int(row["params_active_incl_embed"]), row["model"]


def test_the_hybrids_of_the_facts_are_shipped_too() -> None:
    with (FIXTURES / "facts" / "models.csv").open(encoding="utf-8") as file:
        hybrids = [row for row in csv.DictReader(file) if not row["params_total"]]
    for row in hybrids:
        if row["model"] == "deepseek-ai/DeepSeek-V4-Flash":  # compressed attention is not modelled
            continue
        model = load_model(row["model"])
        assert (model.hidden, model.vocab) == (int(row["hidden"]), int(row["vocab"])), row["model"]
        assert model.attention_layers[0] == int(row["full_layers"] or model.attention_layers[0]), row["model"]
        assert len(model.layer_names) == int(row["layers"])


def test_context_and_window_differ_from_the_facts_only_where_a_profile_says_so(facts: list[dict[str, str]]) -> None:
    # litgpt's block_size instead of config.json's length; starcoder2's window left out; 2047 rounded to 2048.
    models = {row["model"]: load_model(row["model"]) for row in facts}
    contexts = {row["model"] for row in facts if models[row["model"]].max_context_tokens != int(row["max_pos"])}
    assert contexts == {"mistralai/Mistral-Large-Instruct-2407", "google/gemma-3-1b-it"}
    caches = {(row["model"], float(row["kv_bytes_32k_ctx_bf16"])) for row in facts}
    other_caches = {name for name, cache_bytes in caches if models[name].cache_bytes(32768) != cache_bytes}
    assert other_caches == {"bigcode/starcoder2-7b", "microsoft/Phi-3-mini-4k-instruct"}


@pytest.mark.parametrize(
    ("name", "context_tokens", "gibibytes"),
    [
        ("gemma-3-27b", 131072, 10.41),  # counts windows: ten full layers of 131072 and 52 of 1024 tokens
        ("deepseek-v3", 163840, 10.72),
        ("qwen3-0.6b", 40960, 4.38),
        ("kimi-k2", 262144, 17.16),  # Kimi K2.5: the same layers, a longer context
    ],
)
def test_caches_of_the_unsloth_table(name: str, context_tokens: int, gibibytes: float) -> None:
    assert round(load_model(name).cache_bytes(context_tokens) / GIB + 1e-9, 2) == gibibytes


def test_the_checkpoint_of_kimi_k2_has_int4_in_routed_experts_alone() -> None:
    # 595 GB (docs.unsloth.ai, Kimi K2.6: the size of its lossless file), with 0.9 GB of a vision part.
    model = load_model("kimi-k2.5")
    for said in ("", "int4"):
        layout = default_layout(model, dtypes=(said, ""))
        assert layout.weight_dtype == "int4-experts"
        assert layout.weight_bytes(model.weights()) / 1e9 == pytest.approx(594.1, abs=1.5)
    assert default_layout(model, dtypes=("nvfp4", "")).weight_dtype == "nvfp4-mlp"
    for one in ("fp8", ("fp8",)):
        with pytest.raises(InfercastError, match="two formats, of the weights and of the KV cache"):
            default_layout(model, dtypes=one)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "gibibytes"), [("gpt-oss-120b", 60.8), ("gpt-oss-20b", 12.8)])
def test_checkpoint_sizes_of_the_gpt_oss_model_card(name: str, gibibytes: float) -> None:
    # OpenAI, gpt-oss model card (2025), table 1; recalled.
    model = load_model(name)
    layout = Layout(weight_dtype=model.weight_dtype, model_dtype=model.dtype)
    assert round(layout.weight_bytes(model.weights()) / GIB, 1) == gibibytes


# ------------------------------------------------------------------------------------------------------- library


@pytest.mark.parametrize(
    ("name", "profile", "stored"),
    [
        ("ggml-org/Qwen3-Coder-30B-A3B-Instruct-Q8_0-GGUF", "qwen3-30b-a3b-2507", "q8_0"),
        ("google/gemma-3-27b-it-qat-q4_0-gguf", "gemma-3-27b", "q4_0"),
        ("bartowski/Qwen_Qwen3-8B-GGUF:Q6_K", "qwen3-8b", "q6_K"),
        ("unsloth/Qwen3-14B-unsloth-bnb-4bit", "qwen3-14b", "bnb-nf4-double"),
        ("gaunernst/gemma-3-12b-it-qat-autoawq", "gemma-3-12b", "int4"),
        ("mradermacher/Qwen3-8B-i1-GGUF:i1-IQ4_XS", "qwen3-8b", "iq4_XS"),
        ("huihui-ai/Qwen3-8B-abliterated", "qwen3-8b", ""),
        ("failspy/Meta-Llama-3-70B-Instruct-abliterated-v3.5", "llama-3-70b", ""),
    ],
)
def test_repositories_of_those_who_quantise_others_models(name: str, profile: str, stored: str) -> None:
    model, found = checkpoint(name)
    assert (model.id, found) == (profile, stored)


def test_a_word_before_an_underscore_is_no_organisation_that_is_not_known() -> None:
    with pytest.raises(ProfileError, match="no model profile"):
        load_model("someone_gemma-3-12b-it")


def test_names_and_aliases_are_unique() -> None:
    files = {path.stem: read_yaml(path) for path in folders(KIND)[-1].glob("*.yaml")}
    own = ({stem, *(str(alias).lower() for alias in raw["aliases"])} for stem, raw in files.items())
    said = Counter(name for each in own for name in each)
    assert [name for name, count in said.items() if count > 1] == []
    assert len({raw["name"] for raw in files.values()}) == len(files)


@pytest.mark.parametrize("name", FIRST_LIBRARY)
def test_the_first_library_is_there(name: str) -> None:
    assert load_model(name).published_parameters


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("Llama-2-70b", "llama-2-70b"),
        ("Llama-3.x-70B", "llama-3.1-70b"),
        ("Mistral-7B", "mistral-7b-v0.3"),
        ("MiniMax-M2.5", "minimax-m2.5"),
        ("gemma-3-27b-it", "gemma-3-27b"),
        ("DeepSeek-V3/R1", "deepseek-v3"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("GLM-4.6", "glm-4.6"),
        ("Qwen3-Coder-Next", "qwen3-next-80b-a3b"),
        ("Kimi-K2.5", "kimi-k2.5"),
        ("ERNIE-4.5-21B-A3B", "ernie-4.5-21b-a3b"),
        ("llama3_1-70b-fp8_trtllm", "llama-3.1-70b"),
        ("Qwen3-VL-4b-Heretic", "qwen3-vl-4b"),
    ],
)
def test_names_that_measurements_use(name: str, profile: str) -> None:
    assert find(KIND, name).stem == profile


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("microsoft/Orca-2-13b", "llama-2-13b"),
        ("gemma3:27b-it-qat", "gemma-3-27b"),
        ("deepseek-r1:32b-qwen-distill", "qwen2.5-32b"),
        ("microsoft/DialoGPT-medium", "gpt2-medium"),
        ("bartowski/mistralai_Mistral-Small-3.1-24B-Instruct-2503", "mistral-small-3.1-24b"),
        ("google_gemma-3-12b-it", "gemma-3-12b"),
        ("OpenHermes-2.5-Mistral-7B", "mistral-7b-v0.1"),
        ("Phind/Phind-CodeLlama-34B-v2", "codellama-34b"),
        ("defog/sqlcoder-7b-2", "codellama-7b"),
        ("WizardLMTeam/WizardCoder-15B-V1.0", "starcoder"),
        ("mistralai/Mistral-Small-Instruct-2409", "codestral-22b"),
        ("Qwen/Qwen-72B-Chat", "qwen1.5-72b"),
        ("moonshotai/Kimi-Dev-72B", "qwen2.5-72b"),
        ("CohereForAI/aya-expanse-32b", "command-r-08-2024"),
        ("ibm-granite/granite-3.0-3b-a800m-instruct", "granite-3.1-3b-a800m"),
        ("nvidia/Nemotron-4-340B-Instruct", "nemotron-4-340b"),
        ("llava:7b", "llava-v1.6-mistral-7b"),
        ("openai-community/gpt2", "gpt2"),
        ("MiniMaxAI/MiniMax-M1-80k", "minimax-text-01"),
        ("nvidia/Llama-3.1-Nemotron-Nano-4B-v1.1", "llama-3.1-minitron-4b-width"),
    ],
)
def test_checkpoints_of_a_known_shape_are_found_by_their_names(name: str, profile: str) -> None:
    assert load_model(name).id == profile


def test_layers_are_in_their_true_order() -> None:
    gemma = load_model("gemma-3-27b").layer_names
    assert [layer for layer, name in enumerate(gemma) if name == "global"] == list(range(5, 62, 6))
    for name in ("gemma-2-9b", "gpt-oss-20b"):
        assert load_model(name).layer_names[:4] == ("local", "global", "local", "global")
    assert load_model("deepseek-v3").layer_names == ("dense",) * 3 + ("experts",) * 58
    bamba = load_model("bamba-9b").layer_names
    assert [layer for layer, name in enumerate(bamba) if name == "global"] == [9, 18, 27]
    full = load_model("minimax-text-01").layer_names
    assert [layer for layer, name in enumerate(full) if name == "global"] == list(range(7, 80, 8))


# ---------------------------------------------------------------------------------- laws of weights and of the cache

DEGREES = st.sampled_from([1, 2, 4, 8, 16])


@st.composite
def mixers(draw: st.DrawFn) -> dict[str, Any]:
    heads = 2 ** draw(st.integers(0, 6))
    plain = ["gated_delta_net", "kimi_delta", "lightning", "short_convolution", "mamba2", "mamba"]
    kind = draw(st.sampled_from(["attention", "attention", "latent", *plain]))
    if kind == "latent":
        latent = {"kind": "latent", "heads": heads, "kv_lora": 512, "rope_dim": 64, "nope_dim": 128, "v_dim": 96}
        indexed = {"q_lora": 384, "indexer": {"heads": 16, "head_dim": 128, "chosen": 128}}
        shared = {"q_lora": 384, "indexer": indexed["indexer"] | {"shared": True}}
        return latent | draw(st.sampled_from([{}, {"q_lora": 384}, indexed, shared]))
    if kind in plain:
        shapes: dict[str, dict[str, Any]] = {
            "gated_delta_net": {"key_heads": heads, "value_heads": 2 * heads, "key_dim": 64, "value_dim": 128},
            "kimi_delta": {"heads": heads, "head_dim": 64},
            "lightning": {"heads": heads, "head_dim": 64},
            "short_convolution": {"channels": 128 * heads, "conv": 3},
            "mamba2": {"heads": 2 * heads, "head_dim": 64, "state": 128, "groups": draw(st.sampled_from([1, heads]))},
            "mamba": {"inner": 128 * heads, "state": 16, "step_rank": 32},
        }
        return {"kind": kind, "state_dtype": draw(st.sampled_from(["model", "fp32"])), **shapes[kind]}
    names = ("qkv_bias", "output_bias", "sinks", "gate", "head_gate", "shared_kv", "reuses_cache")
    flags = {name: draw(st.booleans()) for name in names}
    return {
        "kind": "attention",
        "heads": heads,
        "kv_heads": 2 ** draw(st.integers(0, heads.bit_length() - 1)),
        "head_dim": draw(st.sampled_from([64, 80, 128])),
        "v_dim": draw(st.sampled_from([None, 96])),
        "q_lora": draw(st.sampled_from([None, 384])),
        "qk_norm": draw(st.sampled_from(["none", "head", "full"])),
        "window": draw(st.sampled_from([None, 128])),
        **flags,
    }


@st.composite
def ffns(draw: st.DrawFn) -> dict[str, Any]:
    width = 64 * draw(st.integers(1, 20))
    if draw(st.booleans()):
        return {"kind": "dense", "intermediate": width, "gated": draw(st.booleans()), "bias": draw(st.booleans())}
    flags = {name: draw(st.booleans()) for name in ("shared_gate", "router_bias", "router_scale", "gated")}
    sizes = {"experts": 32, "chosen": 4, "intermediate": width, "shared_intermediate": draw(st.sampled_from([0, 256]))}
    sizes["zero_experts"] = draw(st.sampled_from([0, 16]))
    latent = draw(st.sampled_from([None, 64]))
    return {"kind": "experts", **sizes, **flags, "latent": latent, "expert_bias": latent is None and flags["gated"]}


@st.composite
def models(draw: st.DrawFn) -> Model:
    paths = [{"kind": "low_rank", "width": 64}, {"kind": "altup", "streams": 4}]
    blocks = {
        name: {"mixer": draw(mixers()), "ffn": draw(ffns()), "norms": draw(st.integers(1, 4))} for name in ("a", "b")
    }
    blocks["a"]["beside"] = tuple(draw(st.sampled_from([[], paths[:1], paths])))
    own = {"vocab": 512, "width": 16, "layers": 16, "streams": draw(st.sampled_from([1, 4]))}
    ends = {name: draw(st.booleans()) for name in ("tied_embeddings", "norm_bias", "head_bias")}
    runs = ({"repeat": draw(st.integers(1, 4)), "of": ("a", "b")}, {"repeat": draw(st.integers(1, 3)), "of": ("a",)})
    sizes = {"hidden": 64 * draw(st.integers(1, 16)), "vocab": draw(st.integers(1000, 5000))}
    parts = {"name": "random", "max_context_tokens": 4096, "blocks": blocks, "layers": runs}
    parts["layer_inputs"] = draw(st.sampled_from([None, own]))
    return Model.from_mapping({**parts, **sizes, **ends}, "random")


ANY_MODEL = models() | st.sampled_from(SHIPPED).map(load_model)


def split(model: Model, **degrees: Any) -> tuple[Layout, Weights]:
    layout = Layout(**degrees)
    try:
        return layout, model.weights(layout)
    except NotModelledError:
        assume(False)
        raise


@given(ANY_MODEL, DEGREES, st.sampled_from([1, 2, 4]), st.booleans())
def test_devices_together_hold_every_weight(model: Model, tp: int, pp: int, whole_experts: bool) -> None:
    layout, one_device = split(model, tp=tp, pp=pp, ep=tp if whole_experts else 1)
    everything = model.weights()
    assert layout.devices * one_device.total >= everything.total
    for part in PARTS:
        assert getattr(one_device, part) <= getattr(everything, part)


@given(ANY_MODEL, DEGREES, st.booleans())
def test_tensor_parallelism_splits_evenly_what_is_not_replicated(model: Model, tp: int, whole_experts: bool) -> None:
    _, one_device = split(model, tp=tp, ep=tp if whole_experts else 1)
    everything = model.weights()
    assert tp * one_device.experts == everything.experts
    mixers = [block.mixer for block in model.blocks.values() if block.mixer]
    latents = [block.ffn for block in model.blocks.values() if isinstance(block.ffn, MixtureOfExperts)]
    even = all(
        isinstance(each, Attention) and each.kv_heads >= tp and not each.q_lora and not each.indexer for each in mixers
    )
    whole = any(block.beside for block in model.blocks.values()) or model.layer_inputs
    if even and not whole and not any(each.latent for each in latents):
        assert tp * one_device.mixer == everything.mixer
        assert tp * one_device.linear == everything.linear
    else:
        assert tp * (one_device.mixer + one_device.linear) >= everything.mixer + everything.linear


@given(ANY_MODEL, DEGREES, st.integers(1, 5000))
def test_cache_is_split_by_heads_replicated_beyond_them_and_never_split_for_mla(
    model: Model, tp: int, tokens: int
) -> None:
    layout, _ = split(model, tp=tp)
    expected = 0.0
    for name in model.layer_names:
        mixer = model.blocks[name].mixer
        if isinstance(mixer, LatentAttention):
            own = mixer.indexer and not mixer.indexer.shared
            index = (mixer.indexer.head_dim + 4) / mixer.indexer.pool if own else 0
            expected += (2 * (mixer.kv_lora + mixer.rope_dim) + index) * tokens
        elif isinstance(mixer, Attention) and not mixer.reuses_cache:
            held = min(tokens, mixer.window) if mixer.window and not mixer.indexer else tokens
            expected += 2 * mixer.indexer.head_dim * tokens if mixer.indexer else 0
            both = mixer.head_dim + (mixer.v_dim or mixer.head_dim)
            expected += 2 * max(1, mixer.kv_heads // tp) * both * held
        elif isinstance(mixer, CompressedAttention) and mixer.ratio:
            expected += (mixer.row_bytes + (132 if mixer.indexer else 0)) * tokens / mixer.ratio
    assert model.cache_bytes(tokens, layout) == expected


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(NotModelledError, match="71 attention heads"):
        load_model("falcon-7b").weights(Layout(tp=2))
    with pytest.raises(NotModelledError, match="10 KV heads"):
        load_model("phi-4").weights(Layout(tp=4))


@given(ANY_MODEL, st.sampled_from(list(FORMATS)))
def test_a_format_covers_what_it_says(model: Model, weight_dtype: str) -> None:
    weights, small = model.weights(), FORMATS[weight_dtype].bits / 8
    rest = FORMATS[FORMATS[weight_dtype].rest or "bf16"].bits / 8
    sizes = {
        "all": (small, small, small, small, small),
        "linear": (small, small, small, small, rest),
        "feed-forward and output": (rest, small, small, small, rest),
        "feed-forward": (rest, rest, small, small, rest),
        "experts": (rest, rest, rest, small, rest),
    }[FORMATS[weight_dtype].covers]
    expected = np.dot(sizes, (weights.mixer, weights.output, weights.linear, weights.experts, weights.other))
    assert Layout(weight_dtype=weight_dtype).weight_bytes(weights) == pytest.approx(expected, rel=1e-12)


def test_formats_by_hand() -> None:
    model = load_model("llama-3.1-8b")
    weights = model.weights()
    mixers, linear = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024), 32 * 3 * 4096 * 14336
    matrices = mixers + linear
    assert weights == Weights(mixer=mixers, linear=linear, other=8_030_261_248 - matrices)
    assert Layout(weight_dtype="fp8").weight_bytes(weights) == matrices + 2 * (8_030_261_248 - matrices)
    assert Layout(weight_dtype="q8_0").weight_bytes(weights) == 8_030_261_248 * 8.5 / 8
    assert Layout(weight_dtype="mxfp4").weight_bytes(weights) == 8_030_261_248 * 2
    small = 2 * (8_030_261_248 - linear) + linear * 4.5 / 8
    assert Layout(weight_dtype="nvfp4-mlp").weight_bytes(weights) == small


def test_a_format_covers_the_output_projection_of_latent_attention_alone() -> None:
    """DeepSeek-R1: 61 layers of 128 heads of 128 numbers by 7,168, in 4.5 bits with its `wo`, else in 16."""
    model = load_model("deepseek-r1")
    whole, alone = (Layout(weight_dtype=each).weight_bytes(model.weights()) for each in ("nvfp4-mlp-wo", "nvfp4-mlp"))
    assert alone - whole == 61 * 128 * 128 * 7168 * (16 - 4.5) / 8
    ops = {op.name: op.format for op in model.ops(Layout(weight_dtype="nvfp4-mlp-wo"))}
    assert (ops["output projection"], ops["query up"], ops["experts up"]) == ("nvfp4-mlp-wo", "bf16", "nvfp4-mlp-wo")
    assert Layout(weight_dtype="nvfp4").weight_bytes(model.weights()) < whole


# ------------------------------------------------------------------------------------------------- laws of the work


def total(ops: tuple[Op, ...], part: str) -> Counts:
    return Counts(*(sum(op.repeats * getattr(op, part)[field] for op in ops) for field in range(len(Counts()))))


def made_of_rows(mixer: CompressedAttention) -> int:
    """Return the columns of what makes rows and keys of an index: two projections, twice as wide where rows overlap."""
    if not mixer.indexer:
        return 2 * mixer.head_dim if mixer.ratio else 0
    return 4 * (mixer.head_dim + mixer.indexer.head_dim) + mixer.indexer.heads


@given(ANY_MODEL, DEGREES, st.booleans(), st.sampled_from(list(FORMATS)))
def test_work_reads_exactly_the_matrices_that_memory_holds(
    model: Model, tp: int, whole_experts: bool, weight_dtype: str
) -> None:
    layout, weights = split(model, tp=tp, ep=tp if whole_experts else 1, weight_dtype=weight_dtype)
    vectors = Layout(weight_dtype=weight_dtype).format_of("other")
    routers = [block.ffn for block in (model.blocks[name] for name in model.layer_names)]
    mixtures = [each for each in routers if isinstance(each, MixtureOfExperts)]
    routed = sum(each.experts + each.zero_experts + each.shared_gate for each in mixtures)
    deltas = [block.mixer for block in (model.blocks[name] for name in model.layer_names)]
    routed += sum(2 * each.value_heads // tp for each in deltas if isinstance(each, GatedDeltaNet))
    routed += sum(made_of_rows(each) for each in deltas if isinstance(each, CompressedAttention))
    if mixing := model.hyper_connections:  # one matrix of all streams around each of two parts of a layer
        streams = mixing.streams
        routed += 2 * len(deltas) * streams * (2 * streams + (0 if mixing.independent else streams**2))
    heads = -(-model.vocab // tp) * model.hidden
    matrices = replace(weights, other=0)
    expected = layout.weight_bytes(matrices) + (routed * model.hidden + heads) * FORMATS[vectors].size_bytes
    ops = model.ops(layout)
    expected += sum(  # routers that are kept wider than the model
        (each.experts + each.zero_experts + each.shared_gate)
        * model.hidden
        * (FORMATS[kept].size_bytes - FORMATS[vectors].size_bytes)
        for each in mixtures
        for kept in [each.router_dtype or vectors]
    )
    read = sum(op.repeats * (op.weight_bytes + op.expert_bytes * (op.experts.total if op.experts else 0)) for op in ops)
    assert read == pytest.approx(expected, rel=1e-12)


def test_flops_per_token_by_hand() -> None:
    # Llama 3.2 1B, 16 layers: q and o 2048 x 2048, k and v 2048 x 512, three of 2048 x 8192; the tied head.
    flops = total(load_model("llama-3.2-1b").ops(), "flops")
    layer = 2 * 2048 * 2048 + 2 * 2048 * 512 + 3 * 2048 * 8192
    assert flops.tokens == 2 * 16 * layer == 1_946_157_056
    assert flops.logits == 2 * 2048 * 128256
    # 32 heads of 64 meet each cached key and value once: 2 products of 2 FLOPs per element.
    assert flops.decode_reads == flops.prefill_pairs == 16 * 4 * 32 * 64


def test_cache_reads_by_hand() -> None:
    # DeepSeek V3: one vector of 512 + 64 per token and layer, whatever the number of heads.
    reads = total(load_model("deepseek-v3").ops(Layout(tp=8)), "cache_bytes")
    assert reads.decode_reads == 61 * 576 * 2
    windowed = total(load_model("gpt-oss-20b").ops(), "cache_bytes")
    assert (windowed.decode_reads, windowed.decode_reads_windowed) == (12 * 2 * 8 * 64 * 2,) * 2


@for_each("name", SHIPPED)
def test_a_token_costs_two_flops_per_weight_that_it_meets(name: str) -> None:
    model = load_model(name)
    flops = total(tuple(op for op in model.ops() if op.rate != "decode_attention"), "flops")
    lookup = ((0 if model.tied_embeddings else model.vocab) + model.learned_positions) * model.hidden
    lookup += model.layer_inputs.vocab * model.layer_inputs.row if model.layer_inputs else 0
    # Mamba has a decay of every channel and state and a convolution of every channel, which no GEMM multiplies.
    mixers = [model.blocks[name].mixer for name in model.layer_names]
    scanned = sum(each.inner * (each.state + each.conv) for each in mixers if isinstance(each, Mamba))
    met = model.active_parameters - lookup - scanned
    # What is left over are vectors: norms, biases, sinks.
    assert 0 <= met - (flops.tokens + flops.logits) / 2 < 0.002 * met


@given(ANY_MODEL, DEGREES, st.booleans())
def test_devices_share_the_flops(model: Model, tp: int, whole_experts: bool) -> None:
    layout, _ = split(model, tp=tp, ep=tp if whole_experts else 1)
    alone, one_device = total(model.ops(), "flops"), total(model.ops(layout), "flops")
    for share, everything in zip(one_device, alone, strict=True):
        assert everything / tp * (1 - 1e-12) <= share <= everything


def test_collectives_appear_with_more_than_one_device() -> None:
    model = load_model("llama-3.1-8b")
    assert not any(op.link_devices > 1 for op in model.ops())
    reduces = [op for op in model.ops(Layout(tp=2)) if op.rate == "all_reduce" and op.repeats > 1]
    assert sum(op.repeats for op in reduces) == 2 * 32
    # Falcon adds the outputs of attention and feed-forward block before it sums them over devices.
    falcon = [op for op in load_model("falcon-40b").ops(Layout(tp=2)) if op.rate == "all_reduce" and op.repeats > 1]
    assert sum(op.repeats for op in falcon) == 60
    sends = [op for op in model.ops(Layout(pp=4)) if op.rate == "send"]
    assert [op.repeats for op in sends] == [3]


# ------------------------------------------------------------------------------------------------------- bad input


GREEDY = {"kind": "experts", "experts": 4, "chosen": 8, "intermediate": 64}
UNEVEN = {"kind": "attention", "heads": 6, "kv_heads": 4, "head_dim": 8}


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"layers": ({"repeat": 1, "of": ("decoders",)},)}, "Nearest: decoder"),
        ({"hiden": 64}, "Nearest: hidden"),
        ({"blocks": {"decoder": {"ffn": GREEDY}}}, "chosen 8"),
        ({"blocks": {"decoder": {"mixer": UNEVEN}}}, "kv_heads 4"),
        ({"published_parameters": 8030261248}, "it has no unit and no source"),
    ],
)
def test_mistakes_in_a_profile_are_named(part: dict[str, Any], named: str) -> None:
    dense = Dense(intermediate=64).model_dump()
    sound = {"name": "x", "hidden": 64, "vocab": 100, "max_context_tokens": 128, "blocks": {"decoder": {"ffn": dense}}}
    sound["layers"] = ({"repeat": 2, "of": ("decoder",)},)
    assert Model.from_mapping(sound, "x.yaml").parameters == 2 * (3 * 64 * 64 + 2 * 64) + 2 * 100 * 64 + 64
    with pytest.raises(ProfileError, match=named):
        Model.from_mapping(sound | part, "x.yaml")


def test_a_file_in_this_folder_is_named_by_its_path(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-moe.yaml").write_text("name: x\n")
    with pytest.raises(ProfileError, match=r"'my-moe': no file and no alias has that name\. Give my-moe.yaml, which"):
        load_model("my-moe")

"""One table of number formats: every spelling of the published tables, in every reader, and what none of them knows."""

import csv
import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.deployment.layouts import default_layout
from simulator.deployment.weight_files import usual_format, weight_format
from simulator.engines.engine import Engine, load_engine
from simulator.errors import InfercastError, NotModelledError, ProfileError
from simulator.models.format_names import cache_format, ending, named_format
from simulator.models.hf_importer import model_from_config
from simulator.models.layout import PARTS, Layout
from simulator.models.model import checkpoint, load_model
from simulator.models.number_formats import FORMATS, number_format
from simulator.profile import find
from simulator.profile_folders import names
from simulator.questions.deployment_question import DeploymentQuestion
from simulator.validation.benchfiles import read_results
from simulator.validation.benchfiles.llama_bench import llama_bench
from simulator.validation.benchfiles.rows import Stated
from simulator.validation.measurements import PUBLISHED, measurement_of
from tests.support.for_each import for_each

LLAMA: dict[str, Any] = {
    **{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"intermediate_size": 128, "vocab_size": 512, "max_position_embeddings": 512, "torch_dtype": "bfloat16"},
}
SPELT = {  # as the published tables write it -> our name
    **{"fp8": "fp8", "fp8?": "fp8", "nvfp4": "nvfp4", "fp4": "nvfp4", "mxfp4": "mxfp4", "MXFP4": "mxfp4"},
    **{"fp16": "fp16", "F16": "fp16", "f16": "fp16", "bf16": "bf16", "bf16?": "bf16", "BF16": "bf16"},
    **{"int8": "int8", "int8_sq": "int8", "bfp8": "bfp8", "bfp8/bfp4 mixed": "bfp8-bfp4"},
    **dict.fromkeys(("int4", "uint4", "int4-awq", "int4-gptq", "int4-awq (w4a16)"), "int4"),
    **{"int4 (MLC q4f16)": "mlc-q4f16", "Q4_K_M (Ollama/llama.cpp default, assumed)": "q4_K_M"},
    **{f"mlx (see model name; {size} MB)": "mlx" for size in ("1770.0", "2871.0", "3048.8", "4577.7")},
    **{f"exl2-{bits}-bpw": f"exl2@{bits}" for bits in ("2.5", "3.0", "4.0", "5.0")},
    **{f"Q{name[1:]}": name for name in FORMATS if name.startswith("q")},
    **{f"IQ{name[2:]}": name for name in FORMATS if name.startswith("iq")},
}
ELSEWHERE = {  # as checkpoints, options and users write it
    **{"mlx-q4": "mlx-q4", "mlx-q8": "mlx-q8", "mlx-q6 g32": "mlx-q6-g32", "4bit": "mlx-q4", "MLX-4bit": "mlx-q4"},
    **{
        "int4-autoround": "int4",
        "int8-w8a8": "int8",
        "W8A8": "int8",
        "GPTQ-Int4": "int4",
        "AWQ": "int4",
        "awq-g32": "int4-g32",
        "GPTQ-Int8": "int8-g128",
        "bnb-4bit": "bnb-nf4-double",
        "unsloth-bnb-4bit": "bnb-nf4-double",
        "int4-AutoRound-awq-sym": "int4",
        "GPTQ-4b-128g": "int4",
        "autoawq": "int4",
        "q4_0-unquantized": "bf16",
        "w-mxfp4-a-fp8": "mxfp4",
        "w_mxfp4_a_mxfp4": "mxfp4-w4a4",
        "W4A8-INT8": "int4-w4a8",
        "QQQ": "int4-w4a8",
    },
    **{"AWQ-4bit": "int4", "GPTQ 4-bit": "int4", "awq_marlin": "int4", "W4A16-G128": "int4", "AWQ (4-bit)": "int4"},
    **{"gptq-4bit-32g-actorder": "int4-g32", "w8a16": "int8-w8a16", "int8 (W8A16)": "int8-w8a16", "nf4": "bnb-nf4"},
    **{"W8A8 (FP8)": "fp8", "FP8 (W8A8)": "fp8", "e4m3": "fp8", "FP8-KV": "fp8", "mxfp8": "mxfp8", "fp4_e2m1": "nvfp4"},
    **{"fp8_per_token_head": "fp8", "int8_per_token_head": "int8", "int4_per_token_head": "int4"},
    **{
        "NVFP4A16": "nvfp4a16",
        "MXFP4-Q8": "mxfp4+mlx-q8",
        "UD-Q4_K_XL": "q4_K_XL",
        "UD-Q4_K_S": "ud-q4_K_S",
        "i1-IQ4_XS": "iq4_XS",
    },
    **{"gguf q8_0": "q8_0", "GGUF-Q4_K_M (4-bit)": "q4_K_M", "IQ4_XS - 4.25 bpw": "iq4_XS", "Q4_K": "q4_K_M"},
    **{"exl2 4.0bpw": "exl2@4.0", "4.5bpw-h6-exl2": "exl2@4.5", "MLX 4bit-DWQ": "mlx-q4", "mlx-bf16": "bf16"},
    **{"fp8_e4m3": "fp8", "FP8-dynamic": "fp8", "half": "fp16", "bfloat16": "bf16", "auto": "", "": ""},
    **{
        "Q6_K_L": "q6_K",
        "Q4_K_L": "q4_K_M",
        "IQ4_KS": "iq4_KS",
        "Q8_0_R8": "q8_0",
        "Q4_0_4_8": "q4_0",
        "Q4KM": "q4_K_M",
    },
    **{"Q4_K_M (imatrix)": "q4_K_M", "Q4_K_M imat": "q4_K_M", "Q4_0 QAT": "q4_0", "4-bit MLX": "mlx-q4", "Q8": "q8_0"},
    **{
        "UD-TQ1_0": "iq1_S",
        "smol-IQ4_KSS": "iq4_KSS",
        "IQ3_S-2.77bpw": "iq3_S",
        "all F32": "fp32",
        "mostly Q4_0": "q4_0",
    },
    **{"fp8_block_scaled": "fp8-block", "FP8 rowwise": "fp8", "FP8-W8A8-dynamic": "fp8", "fp8kv": "fp8"},
    **{"int8 SmoothQuant": "int8", "LLM.int8()": "int8", "bitsandbytes": "bnb-nf4", "INT8 WOQ": "int8-w8a16"},
    **{"INT4 weight-only": "int4", "sym_int4": "int4", "w4a16-gptq": "int4", "W4A16-NVFP4": "nvfp4a16", "none": ""},
    **{"Q4_K - Medium": "q4_K_M", "Q2_K - Medium": "q2_K", "IQ3_S mix": "iq3_M", "mxfp4+Q4_K_M": "mxfp4+q4_K_M"},
}


def published(column: str) -> set[str]:
    cells: set[str] = set()
    for path in PUBLISHED.glob("*.csv.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as table:
            cells |= {row[column] for row in csv.DictReader(table)}
    return cells - {""}


@pytest.mark.parametrize("column", ["weight_dtype", "kv_dtype"])
def test_every_published_spelling_is_known_by_hand(column: str) -> None:
    assert published(column) <= SPELT.keys()


@pytest.mark.parametrize(("text", "name"), [*SPELT.items(), *ELSEWHERE.items()])
def test_a_spelling_is_the_same_format_in_every_reader(text: str, name: str) -> None:
    assert named_format(text) == name
    row = {"hardware": "l40s", "model": "llama-3.1-8b", "metric": "tpot_ms", "value": "9"}
    for column in ("weight_dtype", "kv_dtype"):
        setup = measurement_of(row | {column: text}, "line 2").setup
        assert name in (setup.weight_dtype, setup.cache_dtype)
    if name and name != "mlx":
        model, engine = load_model("llama-3.1-8b"), load_engine("static")
        wanted = model.checkpoint_format(name)
        assert weight_format(text, model, engine) == wanted
        assert default_layout(model, dtypes=(text, "")).weight_dtype == wanted


@pytest.mark.parametrize(
    ("name", "bits"),
    [("int8-g128", 8 + (16 + 8) / 128), ("bnb-nf4", 4 + 0.5), ("bnb-nf4-double", 4 + 0.127)],
)
def test_bits_with_scales_by_hand(name: str, bits: float) -> None:
    """GPTQ: scale and zero for each group; QLoRA, section 3: scales take 0.5 bits of a weight, quantised 0.127."""
    assert number_format(name).bits == pytest.approx(bits, abs=0.001)


@pytest.mark.parametrize(
    ("name", "bits"),
    [("mlx-q4", 4.5), ("mlx-q8", 8.5), ("mlx-q6-g32", 7.0), ("mlx-q4-g128", 4.25), ("exl2@3.5", 3.5), ("bfp8", 8.5)],
)
def test_bits_by_hand(name: str, bits: float) -> None:
    """An fp16 scale and bias for each group: bits + 32 / group (MLX); 8 bits of exponent for 16 numbers (bfp8)."""
    assert number_format(name).bits == bits


def test_four_bits_with_inputs_in_eight_are_multiplied_in_int8_where_a_device_has_it() -> None:
    """int4 alone keeps its inputs in 16 bits: half of the rate, and its weights are unpacked first."""
    formats = {name: number_format(name) for name in ("int4", "int4-w4a8")}
    assert {name: each.compute[0] for name, each in formats.items()} == {"int4": "bf16", "int4-w4a8": "int8"}
    assert {name: each.unpacked_for(each.compute[0]) for name, each in formats.items()} == {
        "int4": True,
        "int4-w4a8": False,
    }


def test_bits_that_a_name_leaves_open_are_asked_for() -> None:
    for name in ("mlx", "exl2"):
        with pytest.raises(ProfileError, match=r"does not say how many bits\. Give"):
            number_format(name)
    with pytest.raises(ProfileError, match=r"groups of 32, 64, 128"):
        number_format("mlx-q4-g48")


@pytest.mark.parametrize(
    "text",
    ["fp4 (mxfp4)", "int4 (Q4_K_M)", "fp8 (int8)", "W4A8", "w4afp8", "hqq", "Q4", "TQ2_0", "IQ4_KT", "mlx-mxfp4"],
)
def test_a_format_of_other_bits_or_kernels_is_no_spelling_of_a_known_one(text: str) -> None:
    with pytest.raises(ProfileError, match="it is not known"):
        named_format(text)


KNOWN_WORDS = {"auto", "half", "awq", "gptq"}
UNKNOWN = st.from_regex(r"[a-z][a-z0-9_.+-]{1,11}", fullmatch=True).filter(lambda text: not _is_known(text))


def _is_known(text: str) -> bool:
    try:
        return bool(named_format(text)) or text in KNOWN_WORDS
    except ProfileError:
        return False


@given(UNKNOWN)
def test_an_unknown_name_is_refused_by_every_reader(text: str) -> None:
    row = {"hardware": "l40s", "model": "llama-3.1-8b", "metric": "tpot_ms", "value": "9"}
    question = DeploymentQuestion("llama-3.1-8b", "l40s")
    test = {"n_prompt": 512, "n_gen": 0, "avg_ts": 1.0, "model_type": f"llama 8B {text}"}
    quantization = {"quant_method": text, "bits": 4}
    readers: list[Any] = [
        lambda: named_format(text),
        lambda: Layout(weight_dtype=text),
        lambda: weight_format(text, load_model("llama-3.1-8b"), load_engine("llama.cpp")),
        lambda: DeploymentQuestion(question.model, question.hardware, weight_dtype=text).deployment(),
        lambda: DeploymentQuestion(question.model, question.hardware, cache_dtype=text).deployment(),
        lambda: measurement_of(row | {"weight_dtype": text}, "line 2"),
        lambda: measurement_of(row | {"kv_dtype": text}, "line 2"),
        lambda: list(llama_bench(test, Stated(model="llama-3.1-8b"))),
        lambda: model_from_config(LLAMA | {"quantization_config": quantization}, "x", "config.json"),
        lambda: checkpoint(f"llama-3.1-8b-{text}"),
    ]
    for read in readers:
        with pytest.raises(ValueError, match=r"(?s).+\. .+"):
            read()


def test_a_format_that_a_result_file_does_not_know_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps([{"n_prompt": 8, "n_gen": 0, "avg_ts": 9.0, "model_type": "llama 8B TQ1_0"}]))
    with pytest.raises(InfercastError, match=r"TQ1_0.*no word of it names a number format.*Give --weight-dtype"):
        read_results(path, Stated(hardware="l40s", model="llama-3.1-8b"))


@for_each("name", names("model_profiles"))
def test_no_name_of_a_profile_hides_a_format(name: str) -> None:
    """A checkpoint's name that ends in a format is read as that format, unless the profile is of that checkpoint."""
    profile = load_model(name)
    for each in (name, *profile.aliases):
        stored = ending(each.rpartition("/")[2])[1]
        assert not stored or number_format(stored).bits == number_format(profile.weight_dtype).bits, each
    assert checkpoint(find("model_profiles", name).stem) == (profile, "")


@pytest.mark.parametrize(
    ("model", "engine", "text", "name"),
    [
        ("gpt-oss-20b", "llama.cpp", "F16", "mxfp4+gguf_f16"),
        ("gpt-oss-20b", "llama.cpp", "Q4_K_M", "mxfp4+q4_K_M"),
        ("gpt-oss-20b", "llama.cpp", "", "mxfp4_MoE"),
        ("gpt-oss-20b", "llama.cpp", "Q8_0", "mxfp4_MoE"),
        ("gpt-oss-20b", "ollama", "", "mxfp4"),
        ("gpt-oss-20b", "vllm", "", "mxfp4"),
        ("llama-3.3-70b", "vllm", "mxfp4", "mxfp4-w4a4"),
        ("gpt-oss-20b", "vllm", "bf16", "bf16"),
        ("llama-3.1-8b", "llama.cpp", "F16", "gguf_f16"),
        ("llama-3.1-8b", "llama.cpp", "", "q4_K_M"),  # -hf without a quantisation
        ("llama-3.1-8b", "llama.cpp", "bf16", "gguf_bf16"),
        ("llama-3.1-8b", "ollama", "", "q4_K_M"),
        ("llama-3.1-8b", "mlx-lm", "", "bf16"),
    ],
)
def test_what_a_name_means_in_the_files_of_an_engine(model: str, engine: str, text: str, name: str) -> None:
    assert weight_format(text, load_model(model), load_engine(engine)) == name
    assert text or usual_format(load_model(model), load_engine(engine)) == name


def test_gpt_oss_as_f16_is_as_large_as_its_file() -> None:
    """unsloth's gpt-oss-20b-F16.gguf has 13.8 GB: experts in mxfp4, all else in 16 bits."""
    model = load_model("gpt-oss-20b")
    layout = Layout(weight_dtype="mxfp4+gguf_f16")
    assert layout.weight_bytes(model.weights(layout)) == pytest.approx(13.8e9, rel=0.02)


@pytest.mark.parametrize(
    ("model", "text", "name"),
    [
        ("qwen3.5-122b-a10b", "UD-Q5_K_XL", "q5_K_XL+q8_0"),  # the usual bits are those of the experts
        ("minimax-m2.5", "UD-Q3_K_S@3.275", "q3_K_S@3.182+q8_0"),
        ("qwen3-30b-a3b", "UD-Q4_K_XL@4.639", "q4_K_XL@4.639"),  # of 2025: experts in q4_K leave too little for q8_0
        ("qwen3-30b-a3b", "Q4_K_M@4.9", "q4_K_M@4.9"),  # not unsloth's
        ("qwen3-30b-a3b", "q4_K_XL@4.6+q4_K_XL@4.6", "q4_K_XL@4.6+q4_K_XL@4.6"),
        ("llama-3.1-8b", "UD-Q4_K_XL", "q4_K_XL"),
        ("llama-3.1-8b", "UD-IQ4_XS@4.4", "iq4_XS@4.4"),
        ("gpt-oss-20b", "UD-Q4_K_XL", "mxfp4+q4_K_XL"),
        ("minimax-m2.5", "UD-IQ1_S@1.1", "iq1_S@1.1"),  # less than q8_0 takes alone
    ],
)
def test_unsloths_mixes_are_those_of_the_routed_experts(model: str, text: str, name: str) -> None:
    profile, engine = load_model(model), load_engine("llama.cpp")
    assert weight_format(text, profile, engine) == name
    assert weight_format(name, profile, engine) == name


@pytest.mark.parametrize("text", ["UD-Q4_K_XL", "UD-Q3_K_M", "UD-Q3_K_M@4"])
@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "llama-3.1-8b"])
def test_a_file_holds_the_same_in_every_engine_that_reads_it(model: str, text: str) -> None:
    here, there = (weight_format(text, load_model(model), load_engine(each)) for each in ("llama.cpp", "vllm"))
    assert here == there


def test_a_mix_has_the_bytes_of_its_file() -> None:
    """Nemotron-3-Super-120B-A12B in UD-Q4_K_XL, 78.02 GiB (kyuz0): up in q4_K, down in q5_1 have 5.25 bits a weight."""
    model = load_model("nemotron-3-super-120b-a12b")
    bits = 8 * 78.02 * 2**30 / model.parameters
    layout = Layout(weight_dtype=weight_format(f"UD-Q4_K_XL@{bits}", model, load_engine("llama.cpp")))
    assert layout.weight_bytes(model.weights(layout)) == pytest.approx(78.02 * 2**30, rel=1e-4)
    assert number_format(layout.format_of("experts")).bits == pytest.approx(5.25, rel=0.03)
    assert layout.format_of("mixer") == "q8_0"


@pytest.mark.parametrize("name", ["q4_K_M+q8_0+q8_0", "fp8+q8_0", "q4_K_M+foo", "q4_K_M+fp8"])
def test_experts_have_one_format_of_gguf_and_all_else_another(name: str) -> None:
    with pytest.raises(ProfileError, match="number format"):
        number_format(name)


def test_experts_in_mxfp4_leave_all_else_to_blocks_of_fp8() -> None:
    layout = Layout(weight_dtype=named_format("mxfp4+fp8-block"))
    formats = {part: layout.format_of(part) for part in PARTS}
    linear = dict.fromkeys(("mixer", "output", "linear"), "fp8-block")
    assert formats == linear | {"experts": "mxfp4+fp8-block", "other": "bf16"}
    assert number_format("mxfp4+fp8-block").bits == 4.25
    with pytest.raises(NotModelledError, match="llama"):
        weight_format("mxfp4+fp8-block", load_model("deepseek-v4-flash"), load_engine("llama.cpp"))


@pytest.mark.parametrize(
    ("text", "engine"),
    [("mlx-q4", "vllm"), ("q4_K_M", "tensorrt-llm"), ("fp8", "llama.cpp"), ("int4", "ollama"), ("q8_0", "mlx-lm")],
)
def test_a_format_that_an_engine_cannot_read_is_refused(text: str, engine: str) -> None:
    loaded: Engine = load_engine(engine)
    with pytest.raises(NotModelledError, match=f"{text} in {loaded.id}: it reads .* files, which have no {text}. Give"):
        weight_format(text, load_model("llama-3.1-8b"), loaded)


@pytest.mark.parametrize(
    ("text", "engine"),
    [("q8_0", "vllm"), ("bnb-nf4", "vllm"), ("fp8-block", "sglang"), ("fp8", "llama.cpp"), ("Q4_K_M", "llama.cpp")],
)
def test_a_cache_in_a_format_of_weights_or_of_other_engines_is_refused(text: str, engine: str) -> None:
    with pytest.raises(NotModelledError, match=r"its caches are .*--cache-dtype"):
        DeploymentQuestion("llama-3.1-8b", "l40s", engine=engine, cache_dtype=text).deployment()


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("unsloth/Qwen3-8B-GGUF", "q4_K_M"),
        ("hf.co/unsloth/Qwen3-8B-GGUF:UD-Q4_K_XL", "q4_K_XL"),
        ("Qwen3-8B-Q5_K_M.gguf", "q5_K_M"),
    ],
)
def test_a_gguf_repository_is_a_model_and_the_file_that_llama_server_fetches(name, stored):
    model, found = checkpoint(name)
    assert (model.id, found) == ("qwen3-8b", stored)


@pytest.mark.parametrize(
    ("name", "model", "stored"),
    [
        ("Qwen/Qwen3-Coder-Next-FP8", "qwen3-next-80b-a3b", "fp8-block"),
        ("Qwen3.6-35B-A3B-FP8", "qwen3.5-35b-a3b", "fp8-block"),
        ("nvidia/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b", "fp8"),
        ("RedHatAI/Qwen3-32B-FP8-dynamic", "qwen3-32b", "fp8"),
        ("zai-org/GLM-4.6-FP8", "glm-4.6", "fp8"),
        ("zai-org/GLM-5.1-FP8", "glm-5", "fp8-block"),
    ],
)
def test_fp8_is_what_its_publisher_calls_so(name, model, stored):
    found, of = checkpoint(name)
    assert (found.id, of) == (model, stored)


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("nvidia/DeepSeek-R1-0528-NVFP4-v2", "nvfp4"),
        ("nvidia/DeepSeek-R1-FP4-v2", "nvfp4"),
        ("amd/Llama-3.3-70B-Instruct-MXFP4-Preview", "mxfp4"),
    ],
)
def test_the_release_of_a_checkpoint_is_no_part_of_its_format(name, stored):
    assert checkpoint(name)[1] == stored


def test_a_gguf_repository_of_a_model_in_mxfp4_has_its_own_format():
    assert [checkpoint(f"ggml-org/gpt-oss-20b-GGUF{file}")[1] for file in ("", ":Q8_0")] == ["", "q8_0"]


def test_a_gguf_file_of_no_known_format_is_no_model():
    with pytest.raises(ProfileError, match="no model profile 'unsloth/Qwen3-8B-GGUF:foo'"):
        checkpoint("unsloth/Qwen3-8B-GGUF:foo")


@pytest.mark.parametrize("text", ["awq", "GPTQ-Int4", "w8a8", "auto-round", "int4_w4a16"])
def test_a_cache_is_in_no_way_to_quantise_weights(text):
    with pytest.raises(ProfileError, match=r"that is a way to quantise weights\. Give the type of its numbers"):
        cache_format(text)
    assert named_format(text)

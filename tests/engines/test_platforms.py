"""Which engine runs on what, in which formats: what documentation says, refused or done where it is not so."""

import pytest

from simulator.deployment.deployment import deploy
from simulator.deployment.layouts import running_layout
from simulator.engines.engine import load_engine, usual_engine
from simulator.errors import NotModelledError
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.model import load_model
from simulator.profile_folders import names
from simulator.questions.deployment_question import DeploymentQuestion
from tests.support.commands import infercast
from tests.support.for_each import for_each
from tests.support.platforms import runs_on


@pytest.mark.parametrize(
    ("engine", "hardware", "because"),
    [
        ("vllm", "m2-ultra", "its port to Metal, vLLM-Metal, is an engine of its own and is not modelled.*llama.cpp"),
        ("vllm", "v100-sxm2-32", r"it needs compute capability 7\.5"),
        ("vllm", "tpu-v6e", "is the engine vllm-tpu.*say vllm-tpu"),
        ("vllm", "gaudi2", "plugins.*say optimum-habana"),
        ("mlx-lm", "h100-sxm", "does not name such devices.*say vllm"),
        ("mlx-lm", "m2-max-cpu", "does not name such devices"),
        ("tensorrt-llm", "mi300x", "does not name such devices"),
        ("tensorrt-llm", "t4", r"it needs compute capability 8\.0"),
        ("transformers-neuronx", "l4", "does not name such devices"),
        ("optimum-habana", "arc-b580", "does not name such devices.*say llama.cpp"),
        ("sglang", "v100-sxm2-32", "compute capability"),
        ("llama.cpp", "tpu-v6e", r"does not name such devices \(vendor Google, accelerator, family tpu\)"),
    ],
)
def test_an_engine_is_refused_by_name_where_it_does_not_run(engine: str, hardware: str, because: str) -> None:
    with pytest.raises(NotModelledError, match=f"{engine}.* on {hardware}: .*{because}"):
        deploy("llama-3.1-8b", hardware, engine)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_no_engine_is_advised_that_does_not_run_there_either(engine: str) -> None:
    with pytest.raises(NotModelledError, match=r"No engine of such devices is modelled; --engine static"):
        deploy("llama-3.1-8b", "sn40l", engine)
    assert deploy("llama-3.1-8b", "sn40l", "static").engine.id == "static-1"


def test_older_versions_run_where_the_next_newer_that_says_so_does() -> None:
    volta = load_hardware("v100-sxm2-32")
    assert runs_on("vllm-0.8", volta)
    assert not runs_on("vllm-0.19", volta)
    assert runs_on("tensorrt-llm-0.8", volta)
    assert not runs_on("tensorrt-llm-0.15", volta)
    assert load_engine("static").platform(volta) is None


@pytest.mark.parametrize(
    ("engine", "hardware", "stored", "advice"),
    [
        ("vllm", "t4", "bf16", "fp16, int8 or int4"),
        ("vllm-0.8", "t4", "fp8", "fp16, int8 or int4"),
        ("vllm", "arc-b580", "fp8", "bf16 or int4"),
        ("vllm", "mi210", "fp8", "bf16 or int8"),
        ("tensorrt-llm", "a100-sxm-80", "fp8", "int8 or int4"),
        ("tensorrt-llm", "h100-sxm", "nvfp4", "fp8 or int4"),
        ("sglang", "t4", "bf16", "fp16 or int4"),
    ],
)
def test_a_format_without_kernels_is_refused_with_what_to_do(engine, hardware, stored, advice) -> None:
    layout = Layout(weight_dtype=stored)
    with pytest.raises(NotModelledError, match=rf"{stored} weights in {engine}.* on {hardware}: .* Give .*{advice}"):
        deploy("llama-3.1-8b", hardware, engine, layout)


def test_a_checkpoint_in_bf16_is_run_in_fp16_before_ampere() -> None:
    """`dtype auto`: "Your device 'Tesla T4' doesn't support torch.bfloat16. Falling back to torch.float16"."""
    model, card, vllm = load_model("llama-3.2-3b"), load_hardware("t4"), load_engine("vllm")
    layout = running_layout(model, card, vllm)
    assert (layout.weight_dtype, layout.cache_dtype, layout.model_dtype) == ("fp16", "fp16", "fp16")
    assert running_layout(model, card, vllm, dtypes=("int4", "fp8")).model_dtype == "fp16"
    assert running_layout(model, load_hardware("l4"), vllm).weight_dtype == "bf16"
    asked = DeploymentQuestion("llama-3.2-3b", "t4", weight_dtype="bf16")
    with pytest.raises(NotModelledError, match="no kernels for them there"):
        asked.deployment()


@pytest.mark.parametrize(
    ("engine", "stored", "cached"),
    [
        ("tensorrt-llm", "fp8", "fp8"),
        ("tensorrt-llm", "fp8-block", "bf16"),
        ("vllm", "nvfp4", "fp8"),
        ("vllm", "fp8", "bf16"),
        ("vllm-0.8", "nvfp4", "bf16"),
        ("sglang", "nvfp4-mlp", "fp8"),
    ],
)
def test_the_cache_is_what_the_checkpoint_asks_for_where_the_engine_heeds_it(engine, stored, cached) -> None:
    profiles = load_model("llama-3.1-8b"), load_hardware("b200-sxm"), load_engine(engine)
    assert running_layout(*profiles, dtypes=(stored, "")).cache_dtype == cached
    assert running_layout(*profiles, dtypes=(stored, "bf16")).cache_dtype == "bf16"


@pytest.mark.parametrize("engine", ["sglang", "sglang-0.5", "tensorrt-llm", "tensorrt-llm-0.8"])
def test_no_cache_in_int4_where_the_engine_has_none(engine: str) -> None:
    profiles = load_model("llama-3.1-8b"), load_hardware("h100-sxm")
    with pytest.raises(NotModelledError, match=r"KV cache in int4 in .*--cache-dtype fp8"):
        running_layout(*profiles, load_engine(engine), dtypes=("", "int4"))
    assert running_layout(*profiles, load_engine("vllm"), dtypes=("", "int4")).cache_dtype == "int4"


def test_experts_are_not_spread_where_the_model_has_none() -> None:
    spread = Layout(8, ep=8)
    with pytest.raises(NotModelledError, match=r"ep 8 for llama-3\.1-8b: the model has no experts"):
        deploy("llama-3.1-8b", "h100-sxm", layout=spread)
    assert deploy("gpt-oss-120b", "h100-sxm", layout=spread).layout.ep == 8


def test_what_is_emulated_is_said() -> None:
    question = ("--model", "llama-3.2-3b", "--hardware", "t4,l4", "--weight-dtype", "fp8,int4")
    said = infercast("estimate", *question).stdout
    assert "fp8 weights are emulated: vllm-0.33 on t4 has no GEMMs in fp8 and multiplies them in fp16." in said
    assert said.count("emulated") == 1


def test_whose_cache_is_fp8_is_said() -> None:
    question = ("--model", "llama-3.1-8b", "--hardware", "b200-sxm", "--weight-dtype", "nvfp4,fp8")
    said = " ".join(infercast("memory", *question).stdout.split())
    assert "fp8 KV cache: NVIDIA's checkpoints in nvfp4 ask for it; for others give --cache-dtype bf16." in said
    assert said.count("fp8 KV cache") == 1


@for_each("device", names("hardware_profiles"))
def test_the_usual_engine_of_a_device_runs_there(device: str) -> None:
    hardware = load_hardware(device)
    if hardware.id == "sn40l":  # SambaNova's own engine is not modelled
        assert not runs_on(usual_engine(hardware), hardware)
    else:
        assert runs_on(usual_engine(hardware), hardware)


def test_usual_engines_by_hand() -> None:
    usual = {
        **dict.fromkeys(("m2-ultra", "m4", "rx-7900-xtx", "strix-halo", "arc-b580", "rpi5", "xeon-8480"), "llama.cpp"),
        **dict.fromkeys(("h100-sxm", "rtx-4090", "mi300x", "t4", "gb10", "max-1550"), "vllm"),
        **{"gaudi3": "optimum-habana", "tpu-v5e": "vllm-tpu", "trainium2": "transformers-neuronx"},
        **{"wormhole-n300": "tt-metal", "v100-sxm2-32": "vllm-0.14"},
    }
    assert {device: usual_engine(load_hardware(device)) for device in usual} == usual
    assert DeploymentQuestion("llama-3.1-8b", "m2-ultra").deployment().engine.engine == "llama.cpp"
    assert deploy("llama-3.1-8b", "h100-sxm").engine.engine == "vllm"


def test_a_cpu_is_no_device_of_an_engine_for_its_vendors_gpus() -> None:
    """Grace is NVIDIA's, Graviton AWS's and Axion Google's: vLLM runs on Arm's cores, engines of their chips do not."""
    for cpu, other in (("grace", "tensorrt-llm"), ("graviton4", "transformers-neuronx"), ("axion", "vllm-tpu")):
        assert runs_on("vllm", load_hardware(cpu))
        assert not runs_on(other, load_hardware(cpu))
    assert not runs_on("vllm", load_hardware("radeon-780m"))


def test_every_vendor_and_family_of_a_preset_is_one_of_a_device() -> None:
    devices = [load_hardware(each) for each in names("hardware_profiles")]
    vendors, families = {each.vendor for each in devices}, {each.family for each in devices}
    for name in names("engines"):
        for platform in load_engine(name).runs_on:
            assert set(platform.vendors) <= vendors
            assert set(platform.families) <= families
            assert any(platform.holds(device) for device in devices)
            assert bool(platform.lacks) == bool(platform.advice)

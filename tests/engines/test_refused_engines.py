"""Engines that are refused by name: for their reason, and no engine of the library or of a published row among them."""

import pytest

from simulator.engines.engine import KIND, engine_of, load_engine
from simulator.engines.refused import refuse_known
from simulator.errors import NotModelledError, ProfileError
from simulator.profile_folders import names
from simulator.validation.measurements import read_published
from tests.support.for_each import for_each


@pytest.mark.parametrize(
    ("name", "because", "remedy"),
    [
        ("NVIDIA Dynamo", "sends requests to replicas", "--router"),
        ("NIM", "by model and device", "Give that engine"),
        ("Triton Inference Server", "serves the engine of its backend", "tensorrt-llm or vllm"),
        ("text-generation-webui", "one of several engines", "llama.cpp"),
        ("ExLlamaV3", "no preset", "exllamav2"),
        ("vLLM-Ascend", "kernels of its own", "calibrate --measured"),
        ("vllm-metal", "kernels of its own", "calibrate --measured"),
        ("LMDeploy PyTorch", "no preset", "TurboMind"),
        ("JetStream", "no preset", "vllm-tpu"),
        ("OpenVINO GenAI", "no preset", "llama.cpp"),
        ("mistral.rs", "no preset", "calibrate --measured"),
        ("KTransformers", "no preset", "calibrate --measured"),
        ("bitsandbytes", "a number format", "--weight-dtype"),
        ("sambaflow", "no engine here", "profiles hardware"),
        ("DeepSeek internal", "nobody else knows", "calibrate --measured"),
        ("vLLM V0", "before 0.8", "vllm-0.5"),
    ],
)
def test_an_engine_that_is_not_modelled_is_refused_for_its_reason(name: str, because: str, remedy: str) -> None:
    for look_up in (load_engine, lambda each: engine_of(each, "")):
        with pytest.raises(NotModelledError, match=because) as refused:
            look_up(name)
        assert refused.value.given == f"engine {name!r}"
        assert remedy in refused.value.remedy


def test_other_unknown_names_get_the_nearest_ones() -> None:
    with pytest.raises(ProfileError, match="no engine profile"):
        load_engine("vllmm")


@for_each("name", names(KIND))
def test_no_name_of_the_library_is_refused(name: str) -> None:
    for each in (name, *load_engine(name).aliases):
        refuse_known(each)


def test_of_published_engines_two_are_refused() -> None:
    refused = set()
    for name in {row.setup.engine for row in read_published()}:
        try:
            refuse_known(name)
        except NotModelledError:
            refused.add(name)
    assert refused == {"sambaflow", "DeepSeek internal"}


def test_what_an_error_tells_to_give_is_there() -> None:
    for each in (
        "vllm",
        "sglang",
        "tensorrt-llm",
        "llama.cpp",
        "exllamav2",
        "lmdeploy",
        "vllm-tpu",
        "vllm-0.5",
        "vllm-0.8",
    ):
        load_engine(each)

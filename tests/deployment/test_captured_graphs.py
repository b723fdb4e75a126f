"""Which steps with prompts a captured CUDA graph launches: vLLM's by sequences, SGLang's in pieces."""

import pytest

from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.layouts import default_layout
from simulator.deployment.settings import Settings
from simulator.deployment.speculation import NGRAM, Speculation
from simulator.models.model import load_model


def asked(model: str, device: str = "h100-sxm", engine: str = "sglang", given: Settings = Settings(), **degrees: int):
    layout = default_layout(load_model(model), **degrees)
    return deploy(model, device, engine, layout, given)


def test_sglang_captures_prompts_as_long_as_a_chunk_from_0_5_10_on():
    new, old = asked("llama-3.1-8b"), asked("llama-3.1-8b", engine="sglang-0.5")
    assert (new.graph_tokens, old.graph_tokens) == (new.max_num_batched_tokens, 0)
    assert asked("deepseek-v3", "h200", tp=8).graph_tokens == 2048
    least_s = [each.step_model().prompt_least_s for each in (new, old)]
    assert least_s[0] == least_s[1] > 0


def test_graphs_in_pieces_are_an_option_of_the_engine():
    given = ("disable_piecewise_cuda_graph=true",), ("piecewise_cuda_graph_max_tokens=512",)
    assert [asked("llama-3.1-8b", given=Settings(changes=each)).graph_tokens for each in given] == [0, 512]


@pytest.mark.parametrize(
    "without",
    [
        asked("llama-3.1-8b", "mi300x"),
        asked("llama-3.1-8b", pp=2),
        asked("deepseek-v3", "b200", dp=8, ep=8),
        asked("deepseek-v3.2", "b200", tp=8),
        asked("gemma-3-12b"),
        asked("qwen3-next-80b-a3b", tp=4),
        asked("deepseek-v3", "b200", tp=8),
        asked("qwen3-235b-a22b", "b200", tp=8),
        asked("llama-3.1-8b", given=Settings(changes=("enable_lora=true",))),
        asked("llama-3.1-8b", given=Settings(speculation=Speculation(NGRAM, 3, (0.5,)))),
    ],
    ids=[
        "AMD",
        "stages",
        "dp",
        "sparse attention",
        "images",
        "gated DeltaNet",
        "experts of DeepSeek",
        "of Qwen 3",
        "adapters",
        "drafts",
    ],
)
def test_what_sglang_does_not_capture_the_host_launches(without: Deployment):
    assert without.engine.graph_pieces
    assert without.graph_tokens == 0

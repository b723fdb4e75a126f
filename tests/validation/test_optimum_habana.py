"""Optimum Habana's reference values: the options that its test passes for each model, and Mixtral's formats."""

import pytest

from simulator.validation.measurements import Setup
from simulator.validation.setups import place

SOURCE = "optimum-habana-ci-baselines"


def rules(model: str, weights: str, *, batch: int = 1, tp: int = 1, **stated: object) -> tuple[str, ...]:
    """Return the engine settings of a row, as the command line takes them."""
    found = place(setup(model, weights, batch=batch, tp=tp, **stated))
    return found.question.changes or ()


def setup(model: str, weights: str, *, batch: int, tp: int, **stated: object) -> Setup:
    """Return a row of the source."""
    return Setup(
        source=SOURCE,
        hardware="Intel Gaudi2",
        model=model,
        engine="optimum-habana",
        engine_version="1.14-1.20",
        weight_dtype=weights,
        cache_dtype=weights,
        devices=tp,
        tp=tp,
        batch=batch,
        regime="fixed_batch",
        output_tokens=100.0,
        **stated,
    )


@pytest.mark.parametrize(
    ("model", "weights", "batch", "tp", "found"),
    [
        ("Llama-2-7b", "bf16", 1, 1, ("reuse_cache=true",)),
        ("Llama-3-70B", "bf16", 1, 8, ()),
        ("Qwen2-7B", "bf16", 256, 1, ()),
        ("starcoder", "bf16", 256, 1, ("bucket_size=128",)),
        ("Llama-2-70b", "fp8", 750, 4, ("bucket_size=128",)),
        ("Mistral-7B-Instruct-v0.2", "fp8", 896, 1, ("reuse_cache=true",)),
        ("Mixtral-8x7B", "fp8", 768, 2, ("reuse_cache=true", "bucket_size=128", "every_expert=true")),
        ("Mixtral-8x7B", "bf16", 1, 1, ()),
        ("DeepSeek-V2-Lite", "bf16", 1, 1, ("every_expert=true",)),
    ],
)
def test_options_are_those_that_the_test_passes_for_a_model(model, weights, batch, tp, found):
    assert rules(model, weights, batch=batch, tp=tp) == found


@pytest.mark.parametrize(("stated", "found"), [("true", ("reuse_cache=true",)), ("false", ())])
def test_a_row_states_whether_the_cache_is_reused_where_the_test_does_both(stated, found):
    assert rules("Llama-2-7b", "bf16", batch=512, engine_settings=(("reuse_cache", stated),)) == found


def test_only_mixtrals_experts_are_in_fp8():
    layout = place(setup("Mixtral-8x7B", "fp8", batch=48, tp=2)).deployment.layout
    assert (layout.weight_dtype, layout.cache_dtype) == ("fp8-experts", "bf16")
    assert place(setup("Llama-2-7b", "fp8", batch=81, tp=1)).deployment.layout.cache_dtype == "fp8"

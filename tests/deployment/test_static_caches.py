"""Caches in shapes that never change: what a decode step reads, what a prompt is padded to; sums for each expert."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.deployment.batches import Batch, decode_counts, prefill_counts
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.estimate import estimate
from simulator.deployment.layouts import default_layout
from simulator.deployment.settings import Settings
from simulator.errors import NotModelledError

BATCH = Batch(4, 100, 300)


def gaudi(*changes: str) -> Deployment:
    """Return Llama-2-7B on Gaudi 2 with some of Optimum Habana's settings."""
    return deploy("llama-2-7b", "gaudi2", "optimum-habana", settings=Settings(changes=changes))


def read(deployment: Deployment) -> list[float]:
    """Return the tokens of one sequence that decode steps read, each once."""
    attended = BATCH.prompt_tokens + np.arange(1.0, BATCH.output_tokens)
    return sorted(set(np.asarray(decode_counts(deployment, BATCH, attended).decode_reads) / BATCH.size))


@pytest.mark.parametrize(
    ("changes", "lengths"),
    [((), [400.0]), (("reuse_cache=true",), [400.0]), (("bucket_size=128",), [128.0, 256.0, 384.0, 400.0])],
)
def test_a_step_reads_the_cache_up_to_the_end_of_its_sequences_or_of_their_bucket(changes, lengths):
    assert read(gaudi(*changes)) == lengths


@pytest.mark.parametrize(
    ("changes", "length"),
    [
        ((), 400),
        (("reuse_cache=true",), 100),
        (("bucket_size=128",), 100),
        (("reuse_cache=false", "bucket_size=128"), 100),
    ],
)
def test_prompts_are_padded_by_what_will_be_generated_unless_the_cache_is_there_before(changes, length):
    counts = prefill_counts(gaudi(*changes), BATCH)
    assert counts.tokens == 4 * length
    assert counts.prefill_pairs == 4 * length * (length + 1) / 2
    assert counts.logits == 4


def test_neither_is_in_the_speed_of_light():
    padded, plain = (estimate(gaudi(*changes), BATCH) for changes in ((), ("reuse_cache=true",)))
    growing = replace(plain.deployment, engine=plain.deployment.engine.model_copy(update={"static_cache": None}))
    assert padded.light == plain.light == estimate(growing, BATCH).light
    assert padded.prefill.light_s == plain.prefill.light_s
    assert padded.expected.ttft_s > 2 * plain.expected.ttft_s
    assert plain.expected.tpot_s > estimate(growing, BATCH).expected.tpot_s


@pytest.mark.parametrize("setting", ["reuse_cache=true", "bucket_size=128"])
def test_an_engine_whose_cache_grows_has_no_such_settings(setting):
    with pytest.raises(NotModelledError, match="grows with its sequences"):
        deploy("llama-2-7b", "h100-sxm", "vllm", settings=Settings(changes=(setting,)))


@pytest.mark.parametrize(("every", "sums"), [("true", 8), ("false", 1)])
def test_each_of_mixtrals_experts_sums_over_devices_where_all_are_computed(every, sums):
    one = deploy("mixtral-8x7b", "gaudi2", "optimum-habana", settings=Settings(changes=(f"every_expert={every}",)))
    ops = {op.name: op for op in replace(one, layout=default_layout(one.model, tp=2)).step_model().ops}
    assert ops["all-reduce after feed-forward"].repeats == 32 * sums
    assert ops["all-reduce after attention"].repeats == 32


def test_experts_that_are_computed_at_once_sum_once():
    """Mixtral in tt-metal: four times the work of the experts that tokens choose, for prompts too."""
    one = deploy("mixtral-8x7b", "wormhole-n150", "tt-metal")
    shipped, light = (
        {op.name: op for op in replace(each, layout=default_layout(one.model, tp=8)).step_model().ops}
        for each in (one, one.at_light)
    )
    assert shipped["all-reduce after feed-forward"].repeats == 32
    assert shipped["experts up"].flops.tokens == pytest.approx(4 * light["experts up"].flops.tokens)

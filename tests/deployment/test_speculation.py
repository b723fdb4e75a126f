"""Speculative decoding: tokens per step, what drafting costs, where it pays; and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cli.answers.technique_notes import technique_notes
from simulator.deployment.batches import Batch
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.estimate import estimate
from simulator.deployment.layouts import default_layout
from simulator.deployment.memory import memory_plan
from simulator.deployment.settings import Settings
from simulator.deployment.speculation import EAGLE, MEDUSA, MTP, NGRAM, Speculation, draft_of
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import load_engine
from simulator.errors import InfercastError, NotModelledError
from simulator.hardware.hardware import load_hardware
from simulator.models.layout import Layout
from simulator.models.model import load_model
from simulator.models.operations import Counts
from simulator.roofline.step_model import SLOPES, Launches, StepModel

H100 = load_hardware("h100-sxm")


def drafted(
    model: str, draft: str, tokens: int = 4, rate: float = 0.7, tp: int = 1, device: str = "h100-sxm"
) -> Deployment:
    layout = default_layout(load_model(model), tp=tp)
    return deploy(model, device, layout=layout, settings=Settings(speculation=Speculation(draft, tokens, (rate,))))


# ---------------------------------------------------------------------------------------------------- tokens per step


@given(st.integers(1, 20), st.floats(0.0, 0.999))
def test_tokens_per_step_are_those_of_leviathan(k, rate):
    expected = (1 - rate ** (k + 1)) / (1 - rate)
    assert Speculation(NGRAM, k, (rate,)).tokens_per_step == pytest.approx(expected)


def test_tokens_per_step_by_position():
    assert Speculation(NGRAM, 3, (1.0,)).tokens_per_step == 4
    assert Speculation(NGRAM, 3, (0.0,)).tokens_per_step == 1
    assert Speculation(NGRAM, 2, (0.8, 0.5)).tokens_per_step == pytest.approx(1 + 0.8 + 0.4)


# ------------------------------------------------------------------------------------------------------------- costs


@pytest.mark.parametrize(("model", "billions"), [("llama-2-7b", 0.24), ("llama-2-13b", 0.37), ("llama-2-70b", 0.99)])
def test_an_eagle_head_has_the_parameters_of_its_paper(model, billions):
    """Trainable parameters of the draft models of EAGLE (arXiv:2401.15077): 0.24B, 0.37B, 0.99B; stored in 16 bits."""
    for weights in ("bf16", "fp8"):
        head = draft_of(Speculation(EAGLE, 3, (0.7,)), load_model(model), Layout(weight_dtype=weights))
        assert head.weight_bytes / 2 / 1e9 == pytest.approx(billions, abs=0.005)
        assert head.cache_bytes_per_token == load_model(model).cache_bytes(1, Layout()) / len(
            load_model(model).layer_names
        )


def test_medusa_has_a_square_and_an_output_layer_for_each_draft_token_and_no_cache():
    """d x d and d x V numbers in each head (arXiv:2401.10774, section 2.1.1)."""
    model = load_model("llama-2-7b")
    one, four = (draft_of(Speculation(MEDUSA, k, (0.7,)), model, Layout()) for k in (1, 4))
    assert one.weight_bytes == 2 * (4096 * 4096 + 4096 * 32_000)
    assert four.weight_bytes == 4 * one.weight_bytes
    assert (one.ops, one.cache_bytes_per_token) == (four.ops, 0.0)
    split = draft_of(Speculation(MEDUSA, 1, (0.7,)), model, Layout(tp=4))
    assert split.weight_bytes == 2 * (4096 * 4096 + 4096 * 32_000 / 4)


def test_heads_leave_less_cache_and_make_longer_steps_the_more_they_compute():
    """Per draft token, Medusa computes d² + d V, EAGLE a block and 2 d² beside its d V."""
    nothing, square, block = (drafted("llama-2-7b", draft) for draft in (NGRAM, MEDUSA, EAGLE))
    steps_s = [estimate(each, Batch(1, 500, 50)).expected.tpot_s for each in (nothing, square, block)]
    assert steps_s == sorted(steps_s)
    assert memory_plan(nothing).num_blocks > max(memory_plan(each).num_blocks for each in (square, block))


def test_a_rejected_draft_costs_the_tokens_that_it_wasted_and_an_accepted_one_saves_steps():
    """N-grams cost nothing to draft: a step verifies 1 + k tokens, whatever comes of it."""
    plain = deploy("llama-3.1-8b", "h100-sxm").step_model()
    none, every = (
        estimate(drafted("llama-3.1-8b", NGRAM, 3, rate), Batch(8, 1000, 2)).expected.tpot_s for rate in (0.0, 1.0)
    )
    step = Counts(1.0, 8.0 * 4, 8.0 * 4, decode_reads=8 * (1001.0 + 3))
    assert none == pytest.approx(float(plain.seconds(step)))
    assert every == pytest.approx(none / 4)


def test_captured_graphs_are_for_twice_the_sequences_with_their_drafts():
    speculation = Speculation(NGRAM, 3, (0.5,))
    found = [
        deploy("llama-3.1-8b", "h100-sxm", settings=Settings(max_num_seqs=8, speculation=each)).graphs.tokens
        for each in (None, speculation)
    ]
    assert found == [2 * 8, 2 * 8 * 4]


@pytest.mark.parametrize(
    ("draft", "device"),
    [(NGRAM, "h100-sxm"), (MTP, "h100-sxm"), ("llama-3.2-1b", "h100-sxm"), ("llama-3.2-1b", "h20-sxm")],
)
@settings(max_examples=25, deadline=None)
@given(decodes=st.integers(0, 64), context=st.integers(1, 4000), prompt=st.integers(0, 500), k=st.integers(1, 6))
def test_the_table_is_the_sum_of_the_ops(draft, device, decodes, context, prompt, k):
    """Also where GEMMs of few rows take as long as those of 101: a prompt's tokens are many (H20)."""
    model = drafted("llama-3.1-8b", draft, k, device=device).step_model()
    model = replace(model, launches=Launches())  # which bounds a whole step
    table = model.table(1000, 64)
    counts = Counts(
        steps=1.0,
        tokens=decodes * (1.0 + k) + prompt,
        logits=decodes * (1.0 + k),
        decode_reads=1.0 * decodes * (context + 1 + k),
        prefill_tokens=1.0 * prompt,
        prefill_pairs=prompt * (prompt + 1) / 2,
    )
    attention = table.slopes @ np.array([getattr(counts, name) for name in SLOPES])
    found = table.token_s[int(counts.tokens)] + table.logit_s[int(counts.logits)] + table.draft_s[decodes] + attention
    assert found == pytest.approx(float(model.seconds(counts)))


def test_a_draft_of_k_tokens_costs_k_steps_of_its_model():
    deployment = drafted("llama-3.1-70b", "llama-3.2-1b", 5, tp=4)
    layout = default_layout(load_model("llama-3.2-1b"), tp=4)
    alone = StepModel(
        load_model("llama-3.2-1b").ops(layout), DeviceKernels(H100, _kernels()), deployment.engine.overheads
    )
    host = deployment.engine.overheads.step_s + 7 * deployment.engine.overheads.sequence_s
    table = deployment.step_model().table(512, 16)
    assert table.draft_s[0] == 0
    assert table.draft_s[7] == pytest.approx(5 * (float(alone.seconds(Counts(1.0, 7.0, 7.0))) - host))


def _kernels():
    return load_engine("vllm").kernels_on(H100)


def test_ngrams_are_free_and_a_head_is_a_layer_a_projection_and_logits():
    model = load_model("llama-3.1-8b")
    layout = Layout()
    assert not draft_of(Speculation(NGRAM, 4, (0.5,)), model, layout).ops
    head = draft_of(Speculation(MTP, 1, (0.5,)), model, layout)
    layer = 2 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14_336 + 2 * 4096)
    assert head.weight_bytes == layer + 2 * 2 * 4096 * 4096
    assert head.cache_bytes_per_token == model.cache_bytes(1) / 32
    assert sum(float(op.flops.logits) for op in head.ops) == 2 * 4096 * 128_256


def test_what_drafts_is_said_and_an_mtp_layer_is_called_a_guess():
    [told] = technique_notes([drafted("llama-3.1-8b", EAGLE)])
    assert told == "eagle drafts 4 tokens, each accepted with 0.7: 2.77 tokens per step and sequence (yours)."
    told, guess = technique_notes([drafted("llama-3.1-8b", MTP, 1)])
    assert told == "mtp drafts 1 token, accepted with 0.7: 1.70 tokens per step and sequence (yours)."
    assert guess.startswith("mtp is a guess: ")


def test_without_speculation_nothing_is_drafted():
    table = deploy("llama-3.1-8b", "h100-sxm").step_model().table(64, 16)
    assert not table.draft_s.any()
    assert len(table.logit_s) == 17


# ---------------------------------------------------------------------------------------------------- where it pays


def test_it_pays_for_few_sequences_and_hurts_many():
    sizes = (1, 8, 64, 512)
    gains = [estimate(drafted("llama-3.1-8b", "llama-3.2-1b"), Batch(each, 256, 128)).speedup for each in sizes]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.2
    assert gains[-1] < 1


def test_what_is_taught_20_to_40_percent_and_2_to_3_times_are_both_true_somewhere():
    """Row 18 of claims.md: it depends on the acceptance, on the draft's size against the model's, and on the batch."""
    large = estimate(drafted("llama-3.1-70b", "llama-3.2-1b", 4, 0.8, tp=4), Batch(1, 512, 128)).speedup
    small = estimate(drafted("llama-3.1-8b", "llama-3.2-1b", 4, 0.65), Batch(1, 512, 128)).speedup
    busy = estimate(drafted("llama-3.1-70b", "llama-3.2-1b", 4, 0.8, tp=4), Batch(128, 512, 128)).speedup
    assert 2 < large < 3
    assert 1.2 < small < 1.4
    assert 1.1 < busy < 1.4


# ---------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("tokens", "rates", "said"),
    [
        (0, (0.5,), "at least one"),
        (3, (0.5, 0.5), "2 acceptance rates"),
        (1, (1.5,), "probability"),
        (2, (), "0 accep"),
        (1, 0.5, r"a tuple of rates, of one for all positions. Give \(0.5,\)"),
        (1, ("0.5",), "probability"),
        ("3", (0.5,), "a whole number of tokens"),
    ],
)
def test_a_draft_that_cannot_be_is_refused(tokens, rates, said):
    with pytest.raises(InfercastError, match=said):
        Speculation(NGRAM, tokens, rates)


def test_a_draft_of_another_family_is_refused():
    with pytest.raises(NotModelledError, match="vocabulary"):
        drafted("llama-3.1-8b", "qwen2.5-0.5b")


@pytest.mark.parametrize("engine", ["static", "naive"])
def test_an_engine_without_continuous_batches_does_not_draft(engine):
    with pytest.raises(NotModelledError, match="policy is"):
        deploy("llama-3.1-8b", "h100-sxm", engine, settings=Settings(speculation=Speculation(NGRAM, 2, (0.5,))))


def test_stages_do_not_draft():
    layout = replace(default_layout(load_model("llama-3.1-8b")), pp=2)
    with pytest.raises(NotModelledError, match="pp 2"):
        deploy("llama-3.1-8b", "h100-sxm", layout=layout, settings=Settings(speculation=Speculation(NGRAM, 2, (0.5,))))

"""Which steps captured CUDA graphs launch: vLLM's by sequences, whole ones of decodes alone, SGLang's in pieces."""

from dataclasses import replace

import numpy as np
import pytest

from simulator.deployment.captured_graphs import capture_sizes
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.layouts import default_layout
from simulator.deployment.settings import Settings
from simulator.deployment.speculation import NGRAM, Speculation
from simulator.models.model import load_model
from simulator.models.operations import Counts
from simulator.roofline.graphs import EVERY_STEP, Launches
from simulator.simulation.engine_loop import simulate
from simulator.simulation.scheduler_limits import limits
from simulator.workloads.workload import Requests


def asked(
    model: str, device: str = "h100-sxm", engine: str = "sglang-0.5.10", given: Settings = Settings(), **degrees: int
):
    layout = default_layout(load_model(model), **degrees)
    return deploy(model, device, engine, layout, given)


def test_sglang_captures_prompts_as_long_as_a_chunk_from_0_5_10_on():
    new, old = asked("llama-3.1-8b"), asked("llama-3.1-8b", engine="sglang-0.5")
    assert (new.graphs.tokens, old.graphs.tokens) == (new.max_num_batched_tokens, 0)
    assert asked("deepseek-v3", "h200", tp=8).graphs.tokens == 2048
    least_s = [each.step_model().launches.prompts.least_s for each in (new, old)]
    assert least_s[0] == least_s[1] > 0


def test_piecewise_graphs_of_sglang_are_for_prompts_alone():
    assert asked("llama-3.1-8b").graphs.decode_piecewise_tokens == 0


def test_piecewise_graphs_are_an_option_of_the_engine():
    given = ("disable_piecewise_cuda_graph=true",), ("piecewise_cuda_graph_max_tokens=512",)
    assert [asked("llama-3.1-8b", given=Settings(changes=each)).graphs.tokens for each in given] == [0, 512]


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
    assert without.engine.graph_capture.piecewise_graphs
    assert without.graphs.tokens == 0


@pytest.mark.parametrize(
    ("model", "device", "degrees", "captured"),
    [
        ("llama-3.1-8b", "rtx-5090", {}, 4096),
        ("llama-3.1-8b", "h100-sxm", {"pp": 2}, 0),
        ("llama-3.1-8b", "mi300x", {}, 0),
        ("qwen3-30b-a3b", "b200", {}, 16_384),
        ("qwen3.5-35b-a3b", "b200", {}, 16_384),
        ("qwen2.5-vl-7b", "h100-sxm", {}, 0),
        ("glm-4.7-flash", "h100-sxm", {}, 8192),
        ("deepseek-v3", "b200", {"tp": 8}, 0),
        ("deepseek-v3.2", "b200", {"tp": 8}, 8192),
        ("kimi-k2.5", "b200", {"tp": 8}, 8192),
        ("kimi-linear-48b-a3b", "h200-sxm", {}, 0),
        ("deepseek-v4-flash", "b200", {"tp": 4}, 0),
    ],
)
def test_breakable_graphs_launch_prompts_of_most_models_from_0_5_15_on(model, device, degrees, captured):
    assert asked(model, device, "sglang-0.5.15", **degrees).graphs.tokens == captured


NGRAM_3 = Speculation(NGRAM, 3, (0.5,))


@pytest.mark.parametrize(
    ("engine", "sequences", "drafts", "tokens"),
    [
        ("vllm-0.14", 16, None, 16),
        ("vllm-0.14", 12, None, 8),  # pull request 57355: 97 to 100 sequences of 100 run in pieces
        ("vllm-0.14", 100, None, 96),
        ("vllm-0.14", 6, None, 4),
        ("vllm-0.14", 264, None, 256),
        ("vllm-0.14", 1024, None, 512),
        ("vllm-0.14", 6, NGRAM_3, 24),
        ("vllm-0.33", 100, None, 100),
        ("vllm-0.33", 1024, None, 512),
    ],
)
def test_whole_graphs_of_decodes_are_of_captured_sizes_up_to_max_num_seqs(engine, sequences, drafts, tokens):
    found = asked("llama-3.1-8b", engine=engine, given=Settings(max_num_seqs=sequences, speculation=drafts))
    assert found.graphs.decode_tokens == tokens


def test_rows_fill_steps_up_to_captured_sizes_of_whole_sequences():
    """Twelve sequences: up to twice as many tokens; six with three drafts each: 4 tokens a sequence, 24 at most."""
    twelve, drafted = (
        asked("qwen3-30b-a3b", engine="vllm-0.14", given=Settings(max_num_seqs=seqs, speculation=drafts))
        for seqs, drafts in ((12, None), (6, NGRAM_3))
    )
    assert twelve.graphs.routed_sizes == (1, 2, 4, 8, 16, 24)
    assert drafted.graphs.routed_sizes == (4, 8, 16, 24)


def test_ranks_of_data_parallel_attention_have_graphs_of_their_own():
    found = asked("deepseek-v3", "h200", "vllm-0.14", Settings(max_num_seqs=12), dp=8, ep=8)
    assert found.graphs.decode_tokens == 8 * 8
    assert found.graphs.routed_sizes[:4] == (8, 16, 32, 64)


def test_a_graph_of_any_decodes_is_taken_where_nothing_else_is_known_or_nothing_is_captured():
    found = [asked("llama-3.1-8b", *each).graphs for each in (("h100-sxm", "tensorrt-llm"), ("xeon-8592", "vllm-0.14"))]
    assert [each.decode_tokens for each in found] == [EVERY_STEP] * 2
    assert [each.routed_sizes for each in found] == [()] * 2


def test_captured_sizes_are_8_apart_and_16_from_256_on():
    sizes = capture_sizes(512).tolist()
    assert sizes[:5] == [1, 2, 4, 8, 16]
    assert sizes[-19:-15] == [240, 248, 256, 272]
    assert (sizes[-1], len(sizes)) == (512, 51)  # "45/51" in start-up logs of 0.17 (vllm-project/recipes 551)


def test_pieces_leave_attention_to_the_host_and_a_graph_for_each_layer():
    """Llama: 32 layers, each a cache write, attention and a graph, and one behind; a prompt has its attention, too."""
    model = asked("llama-3.1-8b", engine="vllm-0.14", given=Settings(max_num_seqs=12)).step_model()
    launch_s = float(model.kernels.fitted.prompt_launch_s)
    assert model.launches.decodes.piecewise_s == pytest.approx((32 * 3 + 1) * launch_s)
    assert model.launches.prompts.piecewise_s == pytest.approx((32 * 4 + 1) * launch_s)
    assert model.launches.prompts.gaps_s == pytest.approx(32 * 10e-6)
    twelve, eight = (Counts(steps=1.0, tokens=n, logits=n, decode_reads=n * 100.0) for n in (12.0, 8.0))
    free = replace(model, launches=Launches())
    assert model.seconds(eight) == free.seconds(eight)
    assert model.seconds(twelve) == pytest.approx(free.seconds(twelve) + 32 * 10e-6)


def test_beyond_its_captured_graphs_vllm_launches_decodes_one_by_one():
    model = asked("llama-3.2-1b", engine="vllm-0.14").step_model()
    decodes = Counts(steps=1.0, tokens=520.0, logits=520.0)
    assert model.seconds(decodes) == pytest.approx(model.launches.decodes.least_s)


@pytest.mark.parametrize(
    ("device", "degrees", "sequences"),
    [
        ("rtx-4080", {}, 8),
        ("rtx-5090", {"tp": 2}, 24),
        ("rtx-5090", {"tp": 4}, 80),
        ("l40s", {}, 32),
        ("h200-sxm", {"tp": 2}, 256),
        ("h200-sxm", {"tp": 4}, 512),
        ("b200-sxm", {}, 512),
    ],
)
@pytest.mark.parametrize("engine", ["sglang-0.5.10", "sglang-0.5"])
def test_sglang_captures_decodes_of_few_sequences_where_memory_is_small(engine, device, degrees, sequences):
    given = Settings(max_num_batched_tokens=4096)
    assert asked("llama-3.1-8b", device, engine, given, **degrees).graphs.decode_tokens == sequences
    drafted = replace(given, speculation=NGRAM_3)
    assert asked("llama-3.1-8b", device, engine, drafted, **degrees).graphs.decode_tokens == sequences * 4


def test_sglang_launches_more_decodes_than_it_captured_one_by_one():
    model = asked("llama-3.1-8b", "rtx-5090").step_model()
    captured, more = (Counts(steps=1.0, tokens=n, logits=n) for n in (24.0, 25.0))
    assert model.seconds(captured) < model.launches.decodes.least_s
    assert model.seconds(more) == pytest.approx(model.launches.decodes.least_s + 25 * model.launches.sequence_s)
    given = Settings(changes=("decode_graph_tokens=32",))
    assert asked("llama-3.1-8b", "rtx-5090", given=given).step_model().seconds(more) < model.launches.decodes.least_s


def trtllm(*changes: str, model: str = "llama-3.1-8b", seqs: int | None = None, **degrees: int) -> Deployment:
    given = Settings(max_num_seqs=seqs, changes=changes)
    return asked(model, engine="tensorrt-llm", given=given, **degrees)


PADDED = ("cuda_graph_config.enable_padding=true",)
LISTED = (*PADDED, "cuda_graph_config.batch_sizes=1+64+128+256+384+512+1024")


@pytest.mark.parametrize(
    ("given", "seqs", "degrees", "sizes"),
    [
        ((), None, {}, (*range(1, 33), 64, 128)),
        (PADDED, None, {}, (1, 2, 4, *range(8, 129, 8))),
        ((*PADDED, "cuda_graph_config.max_batch_size=1000"), None, {}, (1, 2, 4, *range(8, 129, 8), 256, 512, 1000)),
        (LISTED, 400, {}, (1, 64, 128, 256, 384, 400)),
        (LISTED, 384, {}, (1, 64, 128, 256, 384)),
        (("graph_batch_sizes=64+128",), 100, {}, (64,)),
        (LISTED, 400, {"pp": 2}, (1, 64, 128, 200)),
        (("graph_max_batch_size=0",), None, {}, ()),
        ((), 1, {"pp": 2}, (1,)),
    ],
    ids=["default", "padding", "more", "largest batch", "as listed", "no padding", "stages", "every size", "one"],
)
def test_tensorrt_llm_captures_single_batch_sizes(given, seqs, degrees, sizes):
    assert trtllm(*given, seqs=seqs, **degrees).graphs.batch_sizes == sizes


def test_sizes_are_of_sequences_with_their_drafts():
    given = Settings(max_num_seqs=8, speculation=NGRAM_3)
    assert asked("llama-3.1-8b", engine="tensorrt-llm", given=given).graphs.batch_sizes == tuple(range(4, 33, 4))


def test_sizes_are_of_each_data_parallel_rank():
    found = trtllm(*LISTED, model="qwen3-30b-a3b", seqs=400, dp=4, ep=4).graphs.batch_sizes
    assert found == tuple(4 * size for size in (1, 64, 128, 256, 384, 400))


def test_a_batch_of_another_size_is_launched_by_the_host_or_computed_as_the_next_size():
    plain, padded = (trtllm(*given).step_model() for given in ((), PADDED))
    whole = replace(plain, graphs=plain.graphs._replace(batch_sizes=()))
    for sequences in (32.0, 40.0, 100.0, 128.0, 200.0):
        decodes = Counts(steps=1.0, tokens=sequences, logits=sequences)
        work_s, launch_s = (
            whole.seconds(decodes),
            plain.launches.decodes.least_s + sequences * plain.launches.sequence_s,
        )
        assert plain.seconds(decodes) == pytest.approx(work_s if sequences in (32, 128) else max(work_s, launch_s))
        assert padded.seconds(decodes) == pytest.approx(max(work_s, launch_s)) if sequences > 128 else True
    hundred, next_size = (Counts(steps=1.0, tokens=n, logits=n) for n in (100.0, 104.0))
    assert padded.seconds(hundred) == pytest.approx(whole.seconds(next_size))
    prompts = hundred._replace(prefill_tokens=50.0)
    assert padded.seconds(prompts) == whole.seconds(prompts)


def test_a_table_has_what_fills_up_a_graph_and_what_the_host_launches():
    for given in ((), PADDED, LISTED):
        model = trtllm(*given, seqs=300).step_model()
        unlisted = model.graphs._replace(batch_sizes=())
        table, whole = model.table(512, 300), replace(model, graphs=unlisted, launches=Launches())
        for sequences in (8, 33, 100, 290, 300):
            decodes = Counts(steps=1.0, tokens=float(sequences), logits=float(sequences))
            found_s = max(whole.seconds(decodes) + table.decode_graph_s[sequences], table.decode_launch_s[sequences])
            assert found_s == pytest.approx(float(model.seconds(decodes)), rel=1e-9)


def last_step_s(of: Deployment, sequences: int) -> float:
    """The last step of so many prompts of 16 tokens with 8 outputs each, all there at once."""
    lengths = np.full(sequences, 16), np.full(sequences, 8)
    requests = Requests(np.zeros(sequences), *lengths)
    return float(simulate(limits(of, requests), of.step_table(), requests).steps.seconds[-1])


def test_slower_steps_are_launched_by_the_same_graphs():
    plain = deploy("llama-3.1-8b", "h100-sxm")
    table, slower = plain.step_table(), replace(plain, step_factor=1.5).step_table()
    assert slower.graph_tokens == table.graph_tokens == plain.graphs.tokens > 0
    assert slower.prompts.least_s == 1.5 * table.prompts.least_s > 0.0
    assert slower.token_s.tolist() == (1.5 * table.token_s).tolist()


def test_steps_of_the_event_loop_are_filled_up_or_launched_by_the_host():
    plain, padded, whole = (trtllm(*given) for given in ((), PADDED, ("graph_max_batch_size=0",)))
    assert last_step_s(plain, 32) == last_step_s(whole, 32)
    launches = plain.step_model().launches
    assert last_step_s(plain, 40) == pytest.approx(launches.decodes.least_s + 40 * launches.sequence_s)
    assert last_step_s(padded, 40) == last_step_s(whole, 40)
    added_s = last_step_s(padded, 100) - last_step_s(whole, 100)
    assert added_s == pytest.approx(float(padded.step_table().decode_graph_s[100])) and added_s > 0


def test_enforce_eager_is_no_graph_at_all():
    eager, bare = (
        deploy("llama-3.1-8b", "h100-sxm", settings=Settings(changes=changes)).engine.graph_capture
        for changes in (("enforce_eager=true",), ("graph_tokens=0", "decode_graph_tokens=0"))
    )
    assert eager == bare
    assert (eager.graph_tokens, eager.decode_graph_tokens) == (0, 0)

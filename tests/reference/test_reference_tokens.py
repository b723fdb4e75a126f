"""The reference engine computes what Hugging Face computes, and the same tokens however the work is cut up."""

import itertools
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra [reference]")
pytest.importorskip("gguf", reason="needs the extra [reference]")
pytest.importorskip("tokenizers", reason="needs the extra [reference]")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from simulator.calibration.step_log import StepPart  # noqa: E402
from simulator.errors import NotModelledError  # noqa: E402
from simulator.models.hf_importer import model_from_config  # noqa: E402
from simulator.models.model import Model  # noqa: E402
from simulator.reference import attention  # noqa: E402
from simulator.reference.batch import BatchLayout, make_batch  # noqa: E402
from simulator.reference.catalogue import load_checkpoint  # noqa: E402
from simulator.reference.checkpoint import Checkpoint, folder_checkpoint, random_checkpoint, shapes  # noqa: E402
from simulator.reference.clock import RecordedClock  # noqa: E402
from simulator.reference.device import Device  # noqa: E402
from simulator.reference.engine import Executor, engine_limits, random_prompts, serve  # noqa: E402
from simulator.reference.export import export_folder  # noqa: E402
from simulator.reference.gguf_file import found_smollm2  # noqa: E402
from simulator.reference.graphs import DecodeGraphs  # noqa: E402
from simulator.reference.transformer import Build, Transformer  # noqa: E402
from simulator.workloads.workload import Requests  # noqa: E402

torch.set_num_threads(1)  # two threads on a shared machine wait for each other
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]  # those of transformers and of torch's beta operators

SMALL = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}
FAMILIES = {
    "llama": ("LlamaConfig", {"tie_word_embeddings": True}),
    "llama with stretched positions": ("LlamaConfig", {"rope_parameters": LLAMA3, "attention_bias": True}),
    "mistral with a window": ("MistralConfig", {"sliding_window": 16, "head_dim": 16}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "qwen3_moe": ("Qwen3MoeConfig", EXPERTS | {"norm_topk_prob": True}),
    "qwen3_moe not renormalised": ("Qwen3MoeConfig", EXPERTS | {"norm_topk_prob": False}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
}


@pytest.fixture(scope="module")
def smollm2() -> Checkpoint:
    if found_smollm2() is None:
        pytest.skip("SmolLM2's weights are not on this machine; `infercast reference generate` fetches them")
    return load_checkpoint("smollm2-135m")


def executor(checkpoint: Checkpoint, **changes) -> Executor:
    defaults = {"device": Device("cpu", "fp32"), "packed": False, "num_blocks": 60, "block_size": 8}
    return Executor(Transformer(checkpoint, Build(**(defaults | changes))))


def logits_of(engine: Executor, tokens: list[int], chunk: int = 10_000) -> torch.Tensor:
    """The logits of every position, by giving the prompt in chunks and asking for the rows one chunk at a time."""
    engine.known = [tokens]
    rows = []
    transformer = engine.transformer
    for past in range(0, len(tokens), chunk):
        part = StepPart(0, min(chunk, len(tokens) - past), past)
        blocks = engine.pool.grow(0, past + part.new_tokens)
        batch = make_batch([part], tokens[past : past + part.new_tokens], [blocks], engine.layout)
        rows.append(transformer.forward(every_row(batch, part.new_tokens)))
    engine.pool.keep(set())
    return torch.cat(rows)


def every_row(batch, count):
    fields = {name: getattr(batch, name) for name in batch.__dataclass_fields__}
    return type(batch)(**(fields | {"last_rows": torch.arange(count)}))


def theirs(model, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_transformers(family, tmp_path):
    transformers = pytest.importorskip("transformers")
    name, changes = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, name)(**(SMALL | changes))
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    checkpoint = folder_checkpoint(tmp_path)
    tokens = np.random.default_rng(1).integers(0, 128, 50).tolist()
    expected = theirs(model, tokens)
    assert expected.std() > 0.05
    torch.testing.assert_close(logits_of(executor(checkpoint), tokens), expected, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(logits_of(executor(checkpoint), tokens, 7), expected, atol=5e-6, rtol=1e-5)
    torch.testing.assert_close(logits_of(executor(checkpoint), tokens, 1), expected, atol=5e-6, rtol=1e-5)
    assert Transformer(checkpoint, Build(num_blocks=1)).parameters == sum(p.numel() for p in model.parameters())


def test_smollm2_equals_transformers_and_knows_paris(smollm2):
    transformers = pytest.importorskip("transformers")
    model, tokens = hugging_face(transformers, smollm2), smollm2.tokenizer.encode("The capital of France is")
    expected = theirs(model, tokens)
    assert smollm2.tokenizer.decode([int(expected[-1].argmax())]) == " Paris"
    stock = logits_of(executor(smollm2), tokens)
    packed = logits_of(executor(smollm2, packed=True), tokens)
    assert torch.equal(stock, expected)
    assert (packed - expected).abs().max() < 1e-3


def hugging_face(transformers, checkpoint):
    model, mixer = checkpoint.model, checkpoint.model.blocks["decoder"].mixer
    config = transformers.LlamaConfig(
        vocab_size=model.vocab,
        hidden_size=model.hidden,
        intermediate_size=model.blocks["decoder"].ffn.intermediate,
        num_hidden_layers=len(model.layer_names),
        num_attention_heads=mixer.heads,
        num_key_value_heads=mixer.kv_heads,
        max_position_embeddings=model.max_context_tokens,
        tie_word_embeddings=True,
        rms_norm_eps=checkpoint.numerics.norm_epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": checkpoint.numerics.rope_theta},
    )
    found = transformers.LlamaForCausalLM(config).eval()
    names = [name for name, _ in found.named_parameters()]
    found.load_state_dict({name: checkpoint.checked(name) for name in names}, strict=False)
    found.tie_weights()
    return found


def served(engine: Executor, prompts, outputs, arrival_s, budget, seqs=8):
    lengths = [len(each) for each in prompts]
    requests = Requests(np.array(arrival_s, float), np.array(lengths), np.array(outputs))
    return serve(
        engine, engine_limits(engine.transformer, seqs, budget), requests, prompts, RecordedClock(itertools.repeat(1.0))
    )


@pytest.fixture(scope="module")
def tiny() -> Executor:
    return executor(load_checkpoint("random-tiny"))


PROMPTS = [np.random.default_rng(seed).integers(0, 256, size).tolist() for seed, size in enumerate((5, 60, 17, 33, 1))]


@pytest.fixture(scope="module")
def alone(tiny):
    """Each prompt by itself, in one piece."""
    return [served(tiny, [prompt], [20], [0.0], 512).outputs[0] for prompt in PROMPTS]


@settings(max_examples=25, deadline=None)
@given(
    order=st.permutations(range(5)),
    gaps=st.lists(st.integers(0, 4), min_size=5, max_size=5),
    budget=st.integers(8, 64),
    blocks=st.integers(12, 60),
)
def test_tokens_do_not_depend_on_batching(tiny, alone, order, gaps, budget, blocks):
    """Whole or chunked, staggered, in any order, preempted or not: the same tokens, and an empty pool."""
    arrivals = np.cumsum(gaps)
    limits = engine_limits(tiny.transformer, 8, budget)._replace(num_blocks=blocks)
    prompts = [PROMPTS[index] for index in order]
    requests = Requests(arrivals.astype(float), [len(each) for each in prompts], [20] * 5)
    result = serve(tiny, limits, requests, prompts, RecordedClock(itertools.repeat(1.0)))
    assert list(result.outputs) == [alone[index] for index in order]
    assert tiny.pool.free_blocks == tiny.transformer.build.num_blocks
    assert not tiny.pool.held


def test_smollm2_gives_the_same_tokens_whole_chunked_and_mixed(smollm2):
    texts = ["The capital of France is", "Once upon a time, in a small village", "def fibonacci(n):", "2 + 2 ="]
    prompts, engine = [smollm2.tokenizer.encode(text) for text in texts], executor(smollm2, packed=True)
    whole = [served(engine, [each], [12], [0.0], 256).outputs[0] for each in prompts]
    mixed = served(engine, prompts, [12] * 4, [0, 1, 3, 6], 8)
    assert list(mixed.outputs) == whole
    assert smollm2.tokenizer.decode(whole[0]).startswith(" Paris.")
    assert engine.pool.free_blocks == 60


def test_preemption_happens_and_changes_nothing(tiny, alone):
    limits = engine_limits(tiny.transformer, 8, 64)._replace(num_blocks=13)
    lengths = [len(each) for each in PROMPTS]
    requests = Requests(np.zeros(5), lengths, [20] * 5)
    result = serve(tiny, limits, requests, PROMPTS, RecordedClock(itertools.repeat(1.0)))
    assert result.run.preemptions.sum() > 0
    assert list(result.outputs) == alone


def test_the_pool_holds_what_the_scheduler_counts(tiny):
    """The engine's own books equal the scheduler's at the start of every step."""
    seen = []

    def clock(s, _start_s, work):
        work()
        held = sum(len(blocks) for blocks in tiny.pool.held.values())
        seen.append((held, int(s.limits.num_blocks - s.book[0].free_blocks)))
        return 1.0

    requests = Requests(np.arange(5.0), [len(each) for each in PROMPTS], [20] * 5)
    serve(tiny, engine_limits(tiny.transformer, 3, 16)._replace(num_blocks=13), requests, PROMPTS, clock)
    assert len(seen) > 20
    for ours, theirs_ in seen:
        assert ours == theirs_


def test_padding_for_graphs_changes_no_row(tiny):
    """What a CUDA graph would replay: the padded batch, computed without a graph."""
    graphs = DecodeGraphs(tiny.transformer, tiny.layout)
    parts = [StepPart(0, 1, 30), StepPart(1, 1, 7), StepPart(2, 1, 64)]
    tables = [tiny.pool.grow(part.request, part.past_tokens + 1) for part in parts]
    for layer in tiny.transformer.layers:
        layer.cache.keys[1:].normal_()
        layer.cache.values[1:].normal_()
    plain = tiny.transformer.forward(make_batch(parts, [1, 2, 3], tables, tiny.layout))
    padded = graphs.forward(parts, [1, 2, 3], tables)
    tiny.pool.keep(set())
    torch.testing.assert_close(padded, plain, atol=1e-5, rtol=1e-5)
    assert not graphs.takes(parts)  # this model has experts
    assert not graphs.takes([StepPart(0, 4, 0)])


def test_sequences_of_any_lengths_can_be_laid_out_for_one_kernel(tiny, monkeypatch):
    """Where a kernel takes decodes and prompts together: here torch's own attention, sequence by sequence."""

    def each_alone(queries, keys, values, ragged, window):
        found = []
        rows, cached = ragged.query_ends.tolist(), ragged.key_ends.tolist()
        for start, end, first, last in zip(rows, rows[1:], cached, cached[1:], strict=False):
            place, key = torch.arange(last - first)[-(end - start) :, None], torch.arange(last - first)[None]
            mask = (key <= place) & (key > place - (window or 10**6))
            asked, *held = (
                each.transpose(0, 1)[None] for each in (queries[start:end], keys[first:last], values[first:last])
            )
            one = torch.nn.functional.scaled_dot_product_attention(asked, *held, attn_mask=mask, enable_gqa=True)
            found.append(one[0].transpose(0, 1))
            assert end - start <= ragged.most_queries
            assert last - first <= ragged.most_keys
        return torch.cat(found)

    monkeypatch.setattr(attention, "flash_attention", each_alone)
    parts = [StepPart(0, 1, 30), StepPart(1, 1, 7), StepPart(2, 9, 40), StepPart(3, 33, 0)]
    tables = [tiny.pool.grow(row, new + past) for row, new, past in parts]
    for layer in tiny.transformer.layers:
        layer.cache.keys[1:].normal_()
        layer.cache.values[1:].normal_()
    tokens = list(range(44))
    plain = tiny.transformer.forward(make_batch(parts, tokens, tables, tiny.layout))
    together = tiny.transformer.forward(make_batch(parts, tokens, tables, tiny.layout._replace(ragged=True)))
    tiny.pool.keep(set())
    torch.testing.assert_close(together, plain, atol=1e-5, rtol=1e-5)


def test_shapes_hold_on_the_meta_device():
    """As far as a CPU can check a device of another kind: every tensor is made there and the shapes fit."""
    checkpoint = load_checkpoint("random-250m")
    transformer = Transformer(checkpoint, Build(Device("meta", "bf16"), num_blocks=8))
    layout = BatchLayout(16, transformer.windows, "meta")
    batch = make_batch([StepPart(0, 1, 4), StepPart(1, 6, 0)], [0] * 7, [[1], [2]], layout)
    assert transformer.forward(batch).shape == (2, checkpoint.model.vocab)
    assert transformer.embedding.device.type == "meta"


def test_bf16_agrees_with_fp32_as_far_as_it_can(tiny):
    half = executor(load_checkpoint("random-tiny"), device=Device("cpu", "bf16"), packed=True)
    first, second = logits_of(tiny, PROMPTS[1]), logits_of(half, PROMPTS[1]).float()
    assert (first - second).abs().median() < 0.03 * first.std()  # a router may choose another expert


def test_a_folder_round_trips_through_its_index(tmp_path):
    """Weights in several files, and a config that the importer reads."""
    checkpoint = load_checkpoint("random-250m")
    config = SMALL | {"model_type": "llama", "tie_word_embeddings": True, "rms_norm_eps": 1e-5, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = Model.from_mapping(model_from_config(config, "small", "test"), "test")
    source = random_checkpoint(model, seed=3)
    names = list(shapes(model))
    for index, half in enumerate((names[::2], names[1::2])):
        save_file({name: source.tensor(name) for name in half}, tmp_path / f"model-{index}.safetensors")
    read = folder_checkpoint(tmp_path)
    assert read.model.parameters == model.parameters != checkpoint.model.parameters
    assert all(torch.equal(read.checked(name), source.tensor(name)) for name in names)


def test_random_prompts_are_seeded():
    requests = Requests(np.zeros(2), [3, 4], [1, 1])
    assert random_prompts(requests, 50, seed=1) == random_prompts(requests, 50, seed=1)
    assert random_prompts(requests, 50, seed=1) != random_prompts(requests, 50, seed=2)


def test_an_exported_folder_is_the_same_model(tmp_path):
    source = load_checkpoint("random-250m")
    small = source.model.model_copy(
        update={"layers": (source.model.layers[0].model_copy(update={"repeat": 2}),), "vocab": 300}
    )
    written = random_checkpoint(small, seed=5)
    read = folder_checkpoint(export_folder(written, tmp_path / "out"))
    assert read.model.blocks == small.blocks
    assert read.model.parameters == small.parameters
    tokens = [1, 5, 7, 250]
    assert torch.equal(logits_of(executor(read), tokens), logits_of(executor(written), tokens))


def test_only_plain_llamas_are_exported(tmp_path):
    with pytest.raises(NotModelledError, match="only plain Llamas"):
        export_folder(load_checkpoint("random-tiny"), tmp_path)

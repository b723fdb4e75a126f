"""One loop, two clocks: the engine and the simulator take the same steps, and count the same work."""

import importlib
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.oracle.engine import OracleLimits, run_oracle

torch = pytest.importorskip("torch", reason="needs the extra [reference]")
pytest.importorskip("gguf", reason="needs the extra [reference]")
pytest.importorskip("tokenizers", reason="needs the extra [reference]")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from simulator.calibration.step_log import StepPart, read_log  # noqa: E402
from simulator.errors import DoesNotFitError, InfercastError, ProfileError, WorkloadError  # noqa: E402
from simulator.models.layers import Attention  # noqa: E402
from simulator.models.layout import Layout  # noqa: E402
from simulator.models.model import Model, load_model  # noqa: E402
from simulator.models.operations import Counts, Sequence, count  # noqa: E402
from simulator.reference.catalogue import load_checkpoint, shape  # noqa: E402
from simulator.reference.checkpoint import random_checkpoint, shapes  # noqa: E402
from simulator.reference.clock import PredictedClock, RecordedClock, WallClock  # noqa: E402
from simulator.reference.device import Device  # noqa: E402
from simulator.reference.engine import Executor, engine_limits, random_prompts, serve  # noqa: E402
from simulator.reference.gguf_file import stored_name, unpermuted  # noqa: E402
from simulator.reference.transformer import Build, Transformer  # noqa: E402
from simulator.roofline.step_model import StepTable  # noqa: E402
from simulator.simulation.engine_loop import simulate  # noqa: E402
from simulator.workloads.workload import Requests  # noqa: E402

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's beta operators

TABLE = StepTable(
    token_s=1e-3 + 1.1e-5 * np.arange(600),
    logit_s=1e-4 + 1e-6 * np.arange(65),
    slopes=np.array([3e-7, 1e-7, 2e-7, 3e-8, 1e-8]),
)


@pytest.fixture(scope="module")
def tiny() -> Executor:
    build = Build(Device("cpu", "fp32"), packed=False, num_blocks=24, block_size=8)
    return Executor(Transformer(load_checkpoint("random-tiny"), build))


def workload(count_=25, seed=0) -> Requests:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(0.004, count_))
    return Requests(arrivals, rng.integers(1, 90, count_), rng.integers(1, 30, count_))


def steps_of(run) -> list[tuple]:
    names = ("decodes", "prompts", "prompt_tokens", "running", "waiting", "blocks")
    return list(zip(*(run.steps[name].tolist() for name in names), strict=True))


@pytest.mark.parametrize("concurrency", [0, 3])
def test_under_a_predicted_clock_the_engine_is_the_simulator_to_the_bit(tiny, concurrency):
    requests = workload()
    if concurrency:
        requests = Requests(np.zeros(25), requests.prompt_tokens, requests.output_tokens, concurrency)
    limits = engine_limits(tiny.transformer, 6, 48)
    ours = serve(tiny, limits, requests, random_prompts(requests, 256), PredictedClock(TABLE)).run
    theirs = simulate(limits, TABLE, requests)
    assert steps_of(ours) == steps_of(theirs)
    for name in ("scheduled_s", "first_token_s", "finished_s", "stalled_s", "preemptions"):
        assert getattr(ours, name).tobytes() == getattr(theirs, name).tobytes(), name
    for name in ("start_s", "seconds"):
        assert ours.steps[name].tobytes() == theirs.steps[name].tobytes(), name
    assert ours.requests.arrival_s.tobytes() == theirs.requests.arrival_s.tobytes()
    assert ours.preemptions.sum() > 0 or concurrency


def test_measured_step_times_give_the_measured_schedule(tiny):
    """Real time, then the same times in a loop without a model, and in the oracle that shares no code with it."""
    requests = workload(seed=1)
    limits = engine_limits(tiny.transformer, 6, 48)
    real = serve(tiny, limits, requests, random_prompts(requests, 256), WallClock())
    seconds = [step.seconds for step in real.steps]
    assert min(seconds) > 0
    again = serve(NoModel(tiny), limits, requests, [[0] * n for n in requests.prompt_tokens], RecordedClock(seconds))
    assert again.steps == real.steps
    times = iter(seconds)
    rows = list(
        zip(requests.arrival_s.tolist(), requests.prompt_tokens.tolist(), requests.output_tokens.tolist(), strict=True)
    )
    oracle = run_oracle(rows, OracleLimits(6, 48, 24, 8), lambda _batch: next(times))
    assert [step.scheduled for step in oracle.steps] == [tuple(map(tuple, step.parts)) for step in real.steps]
    assert [step.start_s for step in oracle.steps] == [step.start_s for step in real.steps]
    assert [each.finished_s for each in oracle.requests] == real.run.finished_s.tolist()


class NoModel(Executor):
    """An executor that computes nothing."""

    def __init__(self, like: Executor) -> None:
        self.transformer, self.pool, self.layout, self.known = like.transformer, like.pool, like.layout, []

    def execute(self, parts) -> None:
        pass


def test_the_wall_clock_waits_for_arrivals(tiny):
    requests = Requests(np.array([0.0, 0.3]), [4, 4], [2, 2])
    run = serve(tiny, engine_limits(tiny.transformer, 4, 32), requests, [[1] * 4, [2] * 4], WallClock()).run
    assert run.scheduled_s[1] == 0.3
    assert run.first_token_s[1] > 0.3


def test_a_log_survives_its_file(tiny, tmp_path):
    requests = workload(5)
    served = serve(
        tiny, engine_limits(tiny.transformer, 1, 48), requests, random_prompts(requests, 256), PredictedClock(TABLE)
    )
    log = served.log({"engine": "reference"})
    log.write(tmp_path / "log.json")
    read = read_log(tmp_path / "log.json")
    assert [step.parts for step in read.steps] == [step.parts for step in log.steps]
    assert read.limits == log.limits
    assert read.steps[-1].seconds == pytest.approx(log.steps[-1].seconds, abs=1e-6)
    total = sum(float(step.counts().tokens) for step in read.steps)
    assert total == (requests.prompt_tokens + requests.output_tokens - 1).sum()


@pytest.mark.parametrize(
    "name", ["random-250m", "random-moe", "random-tiny", "llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b"]
)
def test_shapes_hold_the_profile_s_parameters(name):
    model = shape(name)
    assert sum(torch.Size(each).numel() for each in shapes(model).values()) == model.parameters


def test_parameters_and_cache_bytes_are_torch_s(tiny):
    model, build = tiny.transformer.model, tiny.transformer.build
    assert tiny.transformer.parameters == model.parameters
    assert tiny.transformer.weight_bytes == 4 * model.parameters
    unwindowed = sum(block.mixer.cache_bytes_per_token(Layout(cache_dtype="fp32")) for block in model.blocks.values())
    cache_bytes = sum(layer.cache.nbytes for layer in tiny.transformer.layers)  # with the null block
    assert cache_bytes == 2 * unwindowed * (build.num_blocks + 1) * build.block_size


def flops(model, batch: list[Sequence]) -> float:
    counts = count(batch, model.span)
    return sum(float(counts.dot(op.flops)) * op.repeats for op in model.ops(Layout()))


def small_engine(name: str, layers: int, known: list[list[int]]) -> tuple[Model, Executor]:
    model = shape(name)
    small = model.model_copy(update={"layers": (model.layers[0].model_copy(update={"repeat": layers}),), "vocab": 512})
    engine = Executor(Transformer(random_checkpoint(small), Build(packed=False, num_blocks=40)))
    engine.known = known
    return small, engine


@pytest.mark.parametrize(("name", "layers", "contexts"), [("random-250m", 2, (64, 160)), ("random-moe", 1, (16, 32))])
def test_flops_of_a_decode_step_are_torch_s(name, layers, contexts):
    """With contexts that fill their blocks, so that nothing is masked: equal to the last FLOP."""
    model, engine = small_engine(name, layers, [[1 + 2 * row] * tokens for row, tokens in enumerate(contexts)])
    with FlopCounterMode(display=False) as counter:
        engine.logits([StepPart(row, 1, tokens - 1) for row, tokens in enumerate(contexts)])
    assert counter.get_total_flops() == flops(model, [Sequence(1, tokens - 1) for tokens in contexts])


def test_flops_of_a_prompt_are_torch_s():
    """Torch counts the whole square of a causal prompt, the profile its lower triangle."""
    model, engine = small_engine("random-250m", 2, [[1] * 100])
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # it does not see the fused kernel
        engine.logits([StepPart(0, 100, 0)])
    mixer = model.blocks["decoder"].mixer
    assert isinstance(mixer, Attention)
    upper_triangle = 2 * 4 * mixer.heads * mixer.head_dim * (100 * 100 - 100 * 101 // 2)
    assert counter.get_total_flops() - upper_triangle == flops(model, [Sequence(100, 0)])


def test_names_and_rows_of_a_gguf_file():
    assert stored_name("model.layers.12.mlp.down_proj.weight") == "blk.12.ffn_down.weight"
    weight = torch.arange(24.0).view(8, 3)
    permuted = weight.reshape(2, 2, 2, 3).swapaxes(1, 2).reshape(8, 3)  # as convert_hf_to_gguf.py does it
    assert torch.equal(unpermuted(permuted, heads=2), weight)


class TestRefusals:
    """Every mistake is answered in three parts."""

    def test_no_cuda(self):
        if torch.cuda.is_available():
            pytest.skip("there is a CUDA device")
        with pytest.raises(InfercastError, match=r"'cuda': torch sees no CUDA device here\. Give --device cpu"):
            Device("cuda")

    def test_unknown_device_and_dtype(self):
        with pytest.raises(InfercastError, match="Nearest: cuda, cpu"):
            Device("cudaa")
        with pytest.raises(InfercastError, match="Nearest: bf16"):
            Device("cpu", "bf17")

    def test_a_model_that_does_not_fit(self):
        with pytest.raises(DoesNotFitError, match=r"Llama.*: it needs .* GiB, .* are free on cpu\. Give a smaller"):
            Transformer(random_checkpoint(load_model("llama-3.1-405b")), Build())

    def test_a_checkpoint_that_disagrees_with_its_profile(self):
        checkpoint = load_checkpoint("random-tiny")
        block = checkpoint.model.blocks["windowed"]
        wider = block.model_copy(update={"ffn": block.ffn.model_copy(update={"intermediate": 160})})
        model = checkpoint.model.model_copy(update={"blocks": checkpoint.model.blocks | {"windowed": wider}})
        with pytest.raises(ProfileError, match=r"gate_proj.*has \(128, 64\), the profile .* says \(160, 64\)"):
            Transformer(replace(checkpoint, model=model), Build(num_blocks=2))

    def test_a_checkpoint_that_lacks_a_weight(self):
        checkpoint = load_checkpoint("random-tiny")
        with pytest.raises(ProfileError, match=r"the profile .* has it, seed 0 has not"):
            replace(checkpoint, tensor=lambda name: {}[name]).checked("model.norm.weight")

    def test_a_request_that_is_too_long(self, tiny):
        requests = Requests(np.zeros(1), [200], [20])
        with pytest.raises(WorkloadError, match=r"the request, rejected: .* KV cache holds \(24 blocks\)"):
            serve(tiny, engine_limits(tiny.transformer, 4, 32), requests, [[0] * 200], RecordedClock([]))

    def test_a_model_of_another_kind(self):
        with pytest.raises(InfercastError, match="the reference engine has no attention that is not grouped-query"):
            load_checkpoint("deepseek-v3")
        with pytest.raises(InfercastError, match="4 norms per block"):
            load_checkpoint("gemma-3-1b")

    def test_an_unknown_name(self):
        with pytest.raises(InfercastError, match=r"Nearest: .*smollm2-135m"):
            load_checkpoint("smollm2-153m")

    def test_an_empty_folder(self, tmp_path):
        with pytest.raises(InfercastError, match=r"config\.json: it cannot be read"):
            load_checkpoint(str(tmp_path))
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(InfercastError, match=r"it holds no \*.safetensors"):
            load_checkpoint(str(tmp_path))

    def test_a_file_that_is_no_gguf(self, tmp_path):
        (tmp_path / "a.gguf").write_bytes(b"nothing of the kind")
        with pytest.raises(InfercastError, match="no readable GGUF file"):
            load_checkpoint(str(tmp_path / "a.gguf"))

    def test_torch_is_missing(self, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "torch" else object())
        for name in [each for each in sys.modules if each.startswith("simulator.reference")]:
            monkeypatch.delitem(sys.modules, name)
        with pytest.raises(InfercastError, match=r"torch not installed\. pip install 'infercast\[reference\]'"):
            importlib.import_module("simulator.reference")

    def test_a_log_that_is_none(self, tmp_path):
        (tmp_path / "log.json").write_text("[]")
        with pytest.raises(ProfileError, match="it is no step log"):
            read_log(tmp_path / "log.json")


def test_counts_of_a_step_are_the_simulator_s():
    steps = [Sequence(1, 10), Sequence(5, 0)]
    assert count(steps) == Counts(1.0, 6.0, 2.0, 11.0, 11.0, 5.0, 15.0, 15.0)

"""Logs of other engines: recorded by the same small loads, predicted from them, and what openvino's adapter infers."""

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra [reference]")
pytest.importorskip("gguf", reason="needs the extra [reference]")
pytest.importorskip("tokenizers", reason="needs the extra [reference]")

from simulator.calibration.comparison import limits_of, replay  # noqa: E402
from simulator.calibration.engine_logs import check_logs  # noqa: E402
from simulator.deployment.deployment import Deployment  # noqa: E402
from simulator.deployment.layouts import default_layout  # noqa: E402
from simulator.engines.engine import load_engine  # noqa: E402
from simulator.errors import InfercastError, ProfileError  # noqa: E402
from simulator.hardware.hardware import load_hardware  # noqa: E402
from simulator.models.model import load_model  # noqa: E402
from simulator.reference import adapter as adapters  # noqa: E402
from simulator.reference.catalogue import load_checkpoint  # noqa: E402
from simulator.reference.clock import PredictedClock  # noqa: E402
from simulator.reference.engine import Executor, engine_limits, serve  # noqa: E402
from simulator.reference.small_loads import Pulse, random_tokens, record  # noqa: E402
from simulator.reference.transformer import Build, Transformer  # noqa: E402
from simulator.roofline.step_model import StepTable  # noqa: E402
from simulator.workloads.workload import Requests  # noqa: E402

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's beta operators
MODEL = load_model("smollm2-135m")


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    layout = default_layout(MODEL, dtypes=("fp32", "fp32"))
    return Deployment(MODEL, load_hardware("xeon-8480"), load_engine("vllm"), layout)


class _Blank(Executor):
    """Gives out cache blocks and computes nothing: under a predicted clock the tokens do not matter."""

    def logits(self, parts):
        for part in parts:
            self.pool.grow(part.request, part.past_tokens + part.new_tokens)
        return torch.zeros(len(parts), 2)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, deployment) -> Path:
    """Logs of an engine whose steps take a third of the roofline's rate, and 2 ms more."""
    folder = tmp_path_factory.mktemp("logs")
    executor = _Blank(Transformer(load_checkpoint("random-tiny"), Build(num_blocks=600)))
    limits = engine_limits(executor.transformer, 16, 256)
    light = deployment.at_light.step_model().table(2048, 16)
    truth = StepTable(3 * light.token_s + 2e-3, 3 * light.logit_s, 3 * light.slopes)

    def engine(requests: Requests, prompts: list[list[int]]):
        return serve(executor, limits, requests, prompts, PredictedClock(truth)).log({"engine": "made-up"})

    with pytest.MonkeyPatch.context() as patched:  # its clock is a table's: how fast the machine is does not matter
        patched.setattr(Pulse, "elsewhere", lambda: Pulse(1.0, 1.0))
        record(engine, folder, load=0.6, count=30, max_tokens=200)
    return folder


def test_small_loads_predict_a_load_that_they_do_not_know(recorded, deployment):
    found = check_logs(recorded, deployment)
    assert found.equal_steps == found.steps
    for kind, tiers in found.step_errors.items():
        assert tiers["calibrated"].median < 0.05, kind
        assert tiers["roofline"].median > 0.5
    for name, seconds in found.measured.items():
        assert found.predicted["calibrated"][name] == pytest.approx(seconds, rel=0.05)


def test_a_folder_without_logs(tmp_path, deployment):
    with pytest.raises(ProfileError, match=r"it holds no mini-00a\.json and load\.json"):
        check_logs(tmp_path, deployment)


class _Handle:
    def __init__(self) -> None:
        self.came = 0

    def can_read(self) -> bool:
        return self.came > 0

    def read(self) -> int:
        self.came, before = 0, self.came
        return before


class _Pipeline:
    """A split-fuse pipeline of its own making: decodes, then prompts, within a budget of 8 tokens."""

    def __init__(self, *_: object) -> None:
        self.rows: list[list] = []

    def add_request(self, _row: int, tokens: SimpleNamespace, wanted: SimpleNamespace) -> _Handle:
        handle = _Handle()
        self.rows.append([tokens.data.shape[1], 0, wanted.max_new_tokens, handle])
        return handle

    def step(self) -> None:
        budget = 8
        for row in [row for row in self.rows if row[0] == row[1]] + [row for row in self.rows if row[0] > row[1]]:
            if row[0] == row[1]:
                budget -= 1
                row[2] -= 1
                row[3].came = 1
            else:
                take = min(budget, row[0] - row[1])
                row[1] += take
                budget -= take
                if row[0] == row[1] and take:
                    row[2] -= 1
                    row[3].came = 1
        self.rows = [row for row in self.rows if row[2] > 0]


@pytest.fixture
def adapter(monkeypatch):
    runtime, genai = ModuleType("openvino"), ModuleType("openvino_genai")
    runtime.Tensor = lambda data: SimpleNamespace(data=data)  # type: ignore[attr-defined]
    genai.__version__ = "0"  # type: ignore[attr-defined]
    for name in ("SchedulerConfig", "GenerationConfig"):
        setattr(genai, name, SimpleNamespace)
    genai.ContinuousBatchingPipeline = _Pipeline  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openvino", runtime)
    monkeypatch.setitem(sys.modules, "openvino_genai", genai)
    monkeypatch.delitem(sys.modules, "simulator.reference.openvino_cpu", raising=False)
    yield importlib.import_module("simulator.reference.openvino_cpu")
    sys.modules.pop("simulator.reference.openvino_cpu", None)


REQUESTS = Requests(np.zeros(4), np.array([3, 13, 1, 6]), np.array([4, 2, 1, 5]))


def test_openvino_steps_are_worked_out_from_its_tokens(adapter):
    """The steps that the adapter infers are those that our scheduler takes under the same rules."""
    log = adapters.step_log_of(adapter.OpenvinoCpu(Path("weights"), 1, 8), REQUESTS, random_tokens(REQUESTS))
    assert [sum(part.new_tokens for part in step.parts) for step in log.steps[:2]] == [8, 8]
    assert limits_of(log).max_num_batched_tokens == 8
    assert replay(log).equal == len(log.steps)
    assert all(each.first_token_s <= each.finished_s for each in log.requests)


def test_a_pipeline_with_other_rules_is_refused(adapter):
    with pytest.raises(InfercastError, match="the adapter's rules say others"):
        adapters.step_log_of(adapter.OpenvinoCpu(Path("weights"), 1, 16), REQUESTS, random_tokens(REQUESTS))

"""Projections with and without oneDNN's order of weights: each dtype takes what works for it, on any machine."""

import os
import platform
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs the extra [reference]")
pytest.importorskip("gguf", reason="needs the extra [reference]")
pytest.importorskip("tokenizers", reason="needs the extra [reference]")

from torch.nn import functional  # noqa: E402

from simulator.calibration.step_log import StepPart  # noqa: E402
from simulator.reference import linear  # noqa: E402
from simulator.reference.catalogue import load_checkpoint  # noqa: E402
from simulator.reference.device import DTYPES, Device  # noqa: E402
from simulator.reference.engine import Executor  # noqa: E402
from simulator.reference.linear import can_pack, make_linear  # noqa: E402
from simulator.reference.transformer import Build, Transformer  # noqa: E402
from tests.support.paths import ROOT  # noqa: E402

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's beta operators
PROMPT = list(range(3, 40))
X86 = platform.machine().lower() in ("x86_64", "amd64")
NO_SUPPORT = RuntimeError("mkldnn_reorder_linear_weight: bf16 path needs the cpu support avx_ne_convert or avx512bw")


@pytest.fixture(autouse=True)
def tried_anew():
    """What can be packed is asked once for each dtype and process: forget it before and after."""
    can_pack.cache_clear()
    yield
    can_pack.cache_clear()


class Packing:
    """In place of oneDNN: takes some dtypes, and fails for the others as a CPU without the instructions does."""

    def __init__(self, takes, error=NO_SUPPORT) -> None:
        self.takes, self.error, self.packed = takes, error, []

    def __call__(self, weight, bias):
        if weight.dtype not in self.takes:
            raise self.error
        self.packed.append(tuple(weight.shape))
        return lambda x: functional.linear(x, weight, bias)


def operands(dtype):
    torch.manual_seed(0)
    return torch.randn(5, 40).to(dtype), torch.randn(24, 40).to(dtype), torch.randn(24).to(dtype)


def logits(dtype_name: str, *, packed: bool) -> torch.Tensor:
    build = Build(Device("cpu", dtype_name), packed=packed, num_blocks=20)
    engine = Executor(Transformer(load_checkpoint("random-tiny"), build))
    engine.known = [list(PROMPT)]
    return engine.logits([StepPart(0, len(PROMPT), 0)])


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_a_projection_is_the_same_in_whatever_order_its_weight_lies(dtype):
    x, weight, bias = operands(dtype)
    expected = functional.linear(x.double(), weight.double(), bias.double())
    for packed in (True, False):
        got = make_linear(weight, bias, packed=packed)(x)
        assert got.dtype == dtype
        tolerance = 8 * torch.finfo(dtype).eps * 40**0.5  # of sums of 40 products
        torch.testing.assert_close(got.double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    "error", [RuntimeError("no support"), NotImplementedError("no kernel"), AttributeError("no operator")]
)
@pytest.mark.parametrize("works", [(), ("fp32",), ("bf16",), ("fp32", "bf16")], ids=str)
def test_each_dtype_takes_what_works_for_it(monkeypatch, works, error):
    packing = Packing([DTYPES[name] for name in works], error)
    monkeypatch.setattr(linear, "_packed", packing)
    for name, dtype in DTYPES.items():
        x, weight, bias = operands(dtype)
        assert can_pack(dtype) == (name in works)
        packing.packed.clear()
        assert torch.equal(make_linear(weight, bias, packed=True)(x), functional.linear(x, weight, bias))
        assert packing.packed == ([(24, 40)] if name in works else [])


def test_what_computes_something_else_is_not_used(monkeypatch):
    monkeypatch.setattr(linear, "_packed", lambda weight, _bias: lambda x: functional.linear(x, weight) + 1)
    x, weight, bias = operands(torch.float32)
    assert torch.equal(make_linear(weight, bias, packed=True)(x), functional.linear(x, weight, bias))


@pytest.mark.parametrize("works", [(), ("fp32",), ("fp32", "bf16")], ids=str)
def test_an_engine_runs_in_every_dtype_whatever_can_be_packed(monkeypatch, works):
    packing = Packing([DTYPES[name] for name in works])
    monkeypatch.setattr(linear, "_packed", packing)
    for name in DTYPES:
        packing.packed.clear()
        assert torch.equal(logits(name, packed=True), logits(name, packed=False))
        assert bool(packing.packed) == (name in works)


@pytest.mark.slow
def test_a_cpu_without_avx512_computes_bf16():
    """OneDNN held to AVX2, in a process of its own: on x86 it then refuses to reorder bf16 as such a CPU does."""
    names = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
    code = (
        "import torch; from simulator.reference.linear import can_pack; print(can_pack(torch.bfloat16))\n"
        "import pytest, sys; sys.exit(pytest.main(['-k', 'bf16_agrees', 'tests/reference/test_reference_tokens.py']))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **names}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("False\n") or not X86

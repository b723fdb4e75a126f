"""Products in llama.cpp as its own test-backend-ops timed them: 4096 x 14336 of 512 tokens."""

import pytest

from simulator.engines.engine import load_engine
from simulator.hardware.hardware import load_hardware
from simulator.models.operations import Counts, Op
from simulator.roofline.roofline import Rates

OUTPUTS, INPUTS, TOKENS = 4096, 14336, 512


def flops_per_s(device: str, engine: str, stored: str) -> float:
    hardware = load_hardware(device)
    rates = Rates(hardware, load_engine(engine).kernels_on(hardware))
    op = Op(name="product", rate="gemm", format=stored, flops=Counts(tokens=2.0 * OUTPUTS * INPUTS), columns=OUTPUTS)
    return 2.0 * OUTPUTS * INPUTS * TOKENS / float(rates.cost(op, Counts(tokens=float(TOKENS))).seconds)


@pytest.mark.parametrize(
    ("device", "engine", "stored", "tera_flops_per_s"),
    [  # pull requests of ggml-org/llama.cpp: 14624, 17879, 14324, 17437, 11595, 12260
        ("mi300x", "llama.cpp-b1500", "fp16", 74.0),
        ("mi300x", "llama.cpp-b6325", "q4_0", 55.6),
        ("rx-7900-xtx", "llama.cpp-b6325", "bf16", 60.0),
        ("rx-7800-xt", "llama.cpp-b6325", "bf16", 31.4),
        ("rx-9070-xt", "llama.cpp-b6325", "bf16", 92.0),
        ("rx-9070-xt", "llama.cpp-b6325", "q5_1", 63.6),
        ("rtx-3090", "llama.cpp-vulkan-b6325", "q4_0", 45.4),
        ("rtx-4070", "llama.cpp-vulkan-b6325", "q4_0", 44.7),
    ],
)
def test_large_products_run_at_the_rates_that_ggml_timed(device, engine, stored, tera_flops_per_s):
    assert flops_per_s(device, engine, stored) / 1e12 == pytest.approx(tera_flops_per_s, rel=0.15)


@pytest.mark.parametrize("engine", ["llama.cpp-vulkan-b1500", "llama.cpp-vulkan-b6325"])
def test_arc_a_has_no_matrix_units_over_vulkan(engine):
    """Its vector units reach 20.7 TFLOP/s in fp16 (clpeak, ggml-org/llama.cpp pull request 17374), XMX 80."""
    assert flops_per_s("arc-a770-16", engine, "q4_0") < 20.7e12
    assert flops_per_s("arc-b580", engine, "q4_0") > 20.7e12

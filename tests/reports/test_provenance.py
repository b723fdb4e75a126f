"""What an answer says it rests on, against what changes it: guesses that stand in Python, and fitted multipliers."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from simulator.cli import build
from simulator.deployment import memory, offload, pipeline_overlap
from simulator.deployment.deployment import Deployment, deploy
from simulator.deployment.layouts import default_layout
from simulator.deployment.memory import memory_plan
from simulator.deployment.offload import Offload
from simulator.deployment.settings import Settings
from simulator.engines.fitted_multipliers import FittedMultipliers
from simulator.hardware import hardware
from simulator.hardware.hardware import load_hardware
from simulator.models import number_formats
from simulator.models.model import load_model
from simulator.models.operations import Counts
from simulator.profile import Figure
from simulator.reports.provenance import figures_behind, fitted_multipliers, memory_basis, rests_on
from simulator.roofline import bandwidth, between_nodes, collectives, decode_attention, gemm, roofline
from simulator.units import GIB

DECODES = [(1.0, n, n, n * 2000.0, n * 1000.0) for n in (1.0, 20.0, 40.0, 200.0)]
PROMPTS = [(1.0, n, 1.0, 0.0, 0.0, n, n * n, n * n / 2) for n in (300.0, 8000.0)]
STEPS = Counts(*np.array([[*row, *[0.0] * (8 - len(row))] for row in (*DECODES, *PROMPTS)]).T)


def asked(
    model: str, device: str, engine: str = "vllm", *, formats: tuple[str, str] = ("", ""), **more: object
) -> Deployment:
    """A deployment; `more` are degrees of its layout and an offload."""
    settings = Settings(offload=more.pop("offload", Offload()))  # type: ignore[arg-type]
    layout = default_layout(load_model(model), dtypes=formats, **more)  # type: ignore[arg-type]
    return deploy(model, device, engine, layout, settings)


LLAMA = asked("llama-3.1-8b", "h100-sxm")
SPLIT = asked("llama-3.1-8b", "rtx-4090", "llama.cpp", pp=2)
PCIE = asked("llama-3.1-8b", "l40s", tp=4)
RANKS = {"dp": 16, "ep": 16}


def seconds(deployment: Deployment) -> list[float]:
    """What a deployment comes to: steps of prompts and decodes, room for sequences, kernels of a split prompt."""
    steps_s = np.broadcast_to(deployment.step_model().seconds(STEPS), STEPS.tokens.shape)
    more = (deployment.step_model().loaded_token_s, pipeline_overlap.kernels_per_layer(deployment))
    return [*steps_s, *more, memory_plan(deployment).max_num_seqs]


IN_PYTHON = [  # the module and the name of a figure, what an answer calls it, one that uses it and one that does not
    (between_nodes, "NETWORK_FRACTION", "fraction of the network", asked("deepseek-v3", "h100-sxm", **RANKS), LLAMA),
    (
        between_nodes,
        "DIRECT_LATENCY_S",
        "latency of an all-to-all",
        asked("deepseek-v3", "h100-sxm", **RANKS),
        asked("llama-3.1-70b", "h100-sxm", tp=16),
    ),
    (
        between_nodes,
        "RELAYED_LATENCY_S",
        "latency of a relayed all-to-all",
        asked("deepseek-v3", "h100-sxm", **RANKS),
        asked("llama-3.1-70b", "h100-sxm", tp=16),
    ),
    (hardware, "NODE_DEVICES", "devices of a node", asked("llama-3.1-70b", "l40s", pp=16), SPLIT),
    (collectives, "SEND_LATENCY_S", "latency of a send", SPLIT, asked("llama-3.1-8b", "h100-sxm", tp=2)),
    (collectives, "LONGER_START_S", "start of a long all-reduce", PCIE, asked("llama-3.1-8b", "l40s", tp=2)),
    (collectives, "LONGER_HOP_S", "hop of a long all-reduce", PCIE, asked("llama-3.1-8b", "h100-sxm", tp=4)),
    (
        collectives,
        "PCIE_FRACTION",
        "fraction of PCIe",
        asked("llama-3.1-8b", "l40s", offload=Offload(weight_bytes=4 * GIB)),
        LLAMA,
    ),
    (
        collectives,
        "PCIE_FRACTION",
        "fraction of PCIe",
        asked("llama-3.1-8b", "l40s", offload=Offload(cache_bytes=4 * GIB)),
        asked("llama-3.1-8b", "l40s"),
    ),
    (
        decode_attention,
        "CONVERSION_FLOPS",
        "FLOPs to convert an fp8 number",
        asked("llama-3-8b", "a100-sxm-40", formats=("fp16", "fp8")),
        asked("llama-3-8b", "h100-sxm", formats=("fp16", "fp8")),
    ),
    (gemm, "EXPERTS_EXPONENT", "exponent of routed experts", asked("mixtral-8x7b", "h100-sxm", tp=2), LLAMA),
    (
        bandwidth,
        "HIGHEST_MEMORY_FRACTION",
        "highest fraction of the bandwidth",
        asked("llama-3.1-8b", "h100-sxm", "tensorrt-llm"),
        asked("llama-3.1-8b", "a100-sxm-80", "transformers"),
    ),
    (pipeline_overlap, "FUSED_KERNELS", "kernels per layer", SPLIT, LLAMA),
    (
        memory,
        "STATE_SHARE",
        "share of the memory for states",
        asked("nemotron-h-8b", "rtx-4090", "sglang-0.5.10"),
        LLAMA,
    ),
]


@pytest.mark.parametrize(
    ("module", "name", "called", "user", "other"), IN_PYTHON, ids=lambda each: each if isinstance(each, str) else ""
)
def test_a_figure_in_python_is_named_where_it_changes_the_answer(module, name, called, user, other, monkeypatch):
    """And only there. Both ways: a figure of a half, and of one and a half."""
    found = [{each.figure: each for each in figures_behind(deployment)} for deployment in (user, other)]
    assert [called in each for each in found] == [True, False]
    figure = getattr(module, name)
    assert (found[0][called].value, found[0][called].source) == (float(figure), figure.source)
    before, changed = [seconds(user), seconds(other)], False
    for factor in (0.5, 1.5):
        for at in {module, between_nodes, collectives, roofline, gemm, decode_attention}:
            if hasattr(at, name):
                monkeypatch.setattr(at, name, Figure(factor * figure, figure.source))
        changed |= seconds(user) != before[0]
        if module is not pipeline_overlap:  # kernels_per_layer is asked only of layers that are split
            assert seconds(other) == before[1]
    assert changed


def test_guesses_in_python_reach_the_line_of_guesses():
    spread = rests_on(figures_behind(IN_PYTHON[0][3]), "guess")
    assert "h100-sxm: elementwise_memory_fraction, elementwise_launch_s, network.latency_s, fraction of" in spread
    assert "kernels per layer" in rests_on(figures_behind(SPLIT), "guess")
    assert "network" not in rests_on(figures_behind(LLAMA), "guess")


def test_a_model_whose_shape_is_recalled_is_a_guess():
    found = [memory_basis(each) for each in (asked("solar-10.7b", "h100-sxm", "vllm"), LLAMA)]
    assert ["shape" in rests_on(each, "guess") for each in found] == [True, False]
    assert all(each.source == LLAMA.model.sources["config"] for each in found[1] if each.figure == "shape")
    assert "shape" in {each.figure for each in found[1]}


def test_the_share_of_states_is_part_of_the_memory_plan_unless_sequences_are_set():
    states = asked("nemotron-h-8b", "rtx-4090", "sglang-0.5.10")
    called = "share of the memory for states"
    given = replace(states, settings=Settings(max_num_seqs=8))
    assert [called in rests_on(memory_basis(each), "guess") for each in (states, given, LLAMA)] == [True, False, False]


@pytest.mark.parametrize(("host", "guessed"), [("", True), ("ryzen-7950x", False)])
def test_the_cpu_beside_a_device_is_a_guess_until_it_is_given(host, guessed):
    split = asked("llama-3.1-8b", "rtx-4090", "llama.cpp", offload=Offload(gpu_layers=20, host=host))
    assert ("ryzen-7950x: " in rests_on(figures_behind(split), "guess")) and offload.HOSTS[
        "consumer-gpu"
    ] == "ryzen-7950x"
    assert any(each.source == offload.HOST_SOURCE for each in figures_behind(split)) is guessed


def test_the_kernels_of_the_cpu_are_part_of_what_layers_on_it_rest_on():
    split = asked("llama-3.1-8b", "rtx-4090", "llama.cpp", formats=("q4_K_M", ""), offload=Offload(gpu_layers=20))
    assert "kernels.unpack_tokens" in rests_on(figures_behind(split), "guess")
    cpu, figure = load_hardware("ryzen-7950x"), split.kernels.fitted.launch  # no shipped kernels of CPUs are fitted
    kernels = tuple(each.with_fitted(memory=figure) if each.covers(cpu) else each for each in split.engine.kernels)
    fitted = replace(split, engine=split.engine.model_copy(update={"kernels": kernels}))
    assert {each.device for each in fitted_multipliers(split)} == {"rtx-4090"}
    assert {each.device for each in fitted_multipliers(fitted)} == {"rtx-4090", "ryzen-7950x"}


@pytest.mark.parametrize(
    ("stored", "device", "guesses"),
    [
        ("q4_K_M", "m2-max-cpu", ["unpacking"]),
        ("q4_0", "m2-max-cpu", []),
        ("q4_K_M", "m2-max", []),
        ("q3_K_M", "m2-max", ["bits"]),
        ("q3_K_M", "m2-max-cpu", ["bits", "unpacking"]),
        ("q3_K_M@3.9", "m2-max", []),
        ("bf16", "m2-max", []),
    ],
)
def test_guessed_sizes_and_unpacking_of_a_format_are_named_where_they_are_used(stored, device, guesses):
    used = figures_behind(asked("llama-3.1-8b", device, "llama.cpp", formats=(stored, "")))
    named = [each.figure for each in used if each.profile == stored and each.source.evidence == "guess"]
    assert named == guesses


def test_every_format_says_where_its_bits_come_from():
    for name, each in number_formats.FORMATS.items():
        assert each.bits.source.text and each.unpacking.source.text, name
        assert each.bits.source.evidence != "guess" or name.removeprefix("ud-") in number_formats.RECALLED_BITS
    assert number_formats.number_format("q4_0@4.9").bits.source.evidence == "given"
    assert number_formats.GGUF.keys() >= number_formats.RECALLED_BITS | number_formats.GUESSED_UNPACKING


@pytest.mark.parametrize(
    ("model", "engine", "rests"),
    [
        ("nemotron-h-8b", "tensorrt-llm", {"rate of the scan of prompts"}),
        ("nemotron-h-8b", "vllm", {"kernels.rules.scan_flops_per_byte"}),
        ("llama-3.1-8b", "tensorrt-llm", set()),
        ("llama-3.1-8b", "vllm", set()),
    ],
)
def test_the_rate_of_a_scan_is_a_guess_where_the_engine_has_no_measured_kernels(model, engine, rests):
    used = {each.figure for each in figures_behind(asked(model, "h100-sxm", engine))}
    assert {each for each in used if "scan" in each} == rests


# -------------------------------------------------------------------------------------------------- fitted multipliers

DEPLOYED = {
    "dense": LLAMA,
    "fp8": asked("llama-3.1-8b", "h200-sxm", formats=("fp8", "fp8"), tp=2),
    "fp8-block experts": asked("deepseek-v3", "h200-sxm", tp=8),
    "int4 on a card": asked("llama-3.1-8b", "rtx-4090", formats=("int4", "")),
    "mxfp4 experts": asked("gpt-oss-20b", "h100-sxm", "tensorrt-llm"),
    "nvfp4": asked("llama-3.1-70b", "b200-sxm", "tensorrt-llm", formats=("nvfp4", "")),
    "heads that read alone": asked("llama-3.1-8b", "mi250", "vllm-0.5", tp=2),
    "eager": asked("llama-2-7b", "a100-sxm-80", "vllm-0.2", tp=2),
    "unfused": asked("llama-3.1-8b", "rtx-4090", "llama.cpp-b1500", formats=("q4_K_M", "")),
    "vector kernels": asked("llama-2-7b", "strix-halo", "llama.cpp", formats=("q4_K_M", "")),
    "vector kernels of 16 bits": asked("llama-2-7b", "strix-halo", "llama.cpp", formats=("gguf_f16", "")),
    "vector kernels of a fast format": asked("llama-2-7b", "strix-halo", "llama.cpp", formats=("q8_0", "")),
    "vector kernels of experts": asked("gpt-oss-20b", "strix-halo", "llama.cpp-vulkan", formats=("mxfp4_MoE", "")),
    "split": SPLIT,
}


def with_multiplier(deployment: Deployment, name: str, factor: float) -> Deployment:
    kernels = deployment.engine.kernels_on(deployment.hardware).of_engine
    changed = kernels.with_fitted(**{name: getattr(kernels.fitted, name) * factor})
    return replace(deployment, engine=deployment.engine.model_copy(update={"kernels": (changed,)}))


@pytest.mark.parametrize("case", DEPLOYED)
def test_the_multipliers_that_are_listed_are_those_that_change_the_time_of_steps(case):
    deployment = DEPLOYED[case]
    listed = {each.name for each in fitted_multipliers(deployment) if each.device != "host"}
    fitted, moved = deployment.engine.kernels_on(deployment.hardware).fitted, set()
    for name in FittedMultipliers.model_fields:
        figure = getattr(fitted, name)
        if figure is not None and figure.source.evidence != "derived":
            others = (with_multiplier(deployment, name, factor) for factor in (0.01, 100.0))
            moved |= {name} if any(seconds(each) != seconds(deployment) for each in others) else set()
    assert listed == moved
    assert listed


@pytest.mark.parametrize("engine", ["vllm-0.33", "transformers", "static"])
def test_host_times_are_listed_where_a_fit_gave_them(engine):
    deployment = asked("llama-3.1-8b", "h100-sxm", engine)
    overheads = deployment.engine.overheads
    named = {each.name: each for each in fitted_multipliers(deployment) if each.device == "host"}
    fitted = {name for name, each in overheads if each.source.evidence in ("fitted", "family")}
    assert named.keys() == fitted
    assert [each.value for each in named.values()] == [float(getattr(overheads, name)) for name in named]


def test_every_multiplier_says_what_it_multiplies_and_where_it_was_fitted():
    for deployment in DEPLOYED.values():
        for each in fitted_multipliers(deployment):
            assert each.multiplies and each.source.text and each.source.evidence in ("fitted", "guess", "family")


ESTIMATE = ("estimate", "--model", "llama-3.1-8b", "--hardware", "h100-sxm,l40s", "--fitted")


def run(*arguments: str) -> str:
    """What the command line prints."""
    result = CliRunner(env={"COLUMNS": "1000"}).invoke(build(arguments), arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_estimate_prints_the_multipliers_under_its_answer():
    text = run(*ESTIMATE)
    assert text.index("One batch alone") < text.index("Fitted multipliers")
    assert "compute fraction of GEMMs" in text
    plain = run(*ESTIMATE[:-1])
    assert text.startswith(plain[: plain.index("Intervals hold")].rstrip())
    assert "Fitted multipliers" not in plain


def test_json_and_csv_have_the_multipliers_too():
    found = json.loads(run(*ESTIMATE, "--format", "json"))
    rows = found["fitted_multipliers"]
    assert len(found["estimates"]) == 2
    expected = [each for name in ("h100-sxm", "l40s") for each in fitted_multipliers(asked("llama-3.1-8b", name))]
    assert [(row["device"], row["multiplier"], row["value"]) for row in rows] == [
        (each.device, each.name, each.value) for each in dict.fromkeys(expected)
    ]
    head, *lines = run(*ESTIMATE, "--format", "csv").splitlines()
    assert head == "engine,device,multiplier,value,multiplies,evidence,source,date"
    assert len(lines) == len(rows)

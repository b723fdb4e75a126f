"""Calibrate, predict and run, end to end on a tiny engine; the real aims only on a machine that is quiet."""

import json
import time

import pytest

torch = pytest.importorskip("torch", reason="needs the extra [reference]")
pytest.importorskip("gguf", reason="needs the extra [reference]")
tokenizers = pytest.importorskip("tokenizers", reason="needs the extra [reference]")

from tokenizers import decoders, models, pre_tokenizers  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from simulator.calibration.comparison import replay, step_errors  # noqa: E402
from simulator.cli import build  # noqa: E402
from simulator.cli.options.reference_options import EngineOptions  # noqa: E402
from simulator.engines.engine import Engine  # noqa: E402
from simulator.errors import InfercastError  # noqa: E402
from simulator.hardware.hardware import Hardware  # noqa: E402
from simulator.plots.check_plots import plot_check  # noqa: E402
from simulator.reference.catalogue import load_checkpoint, shape  # noqa: E402
from simulator.reference.check import TIERS, Checker, Plan, second_process  # noqa: E402
from simulator.reference.checkpoint import random_checkpoint  # noqa: E402
from simulator.reference.device import Device  # noqa: E402
from simulator.reference.engine import Executor  # noqa: E402
from simulator.reference.export import export_folder  # noqa: E402
from simulator.reference.gguf_file import found_smollm2  # noqa: E402
from simulator.reference.step_grid import HELD_OUT, Cell, fitting  # noqa: E402
from simulator.reference.timing import timed  # noqa: E402
from simulator.reference.transformer import Build, Transformer  # noqa: E402

torch.set_num_threads(1)
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of torch's beta operators


@pytest.fixture(autouse=True)
def one_thread():
    """A command without --threads takes the cores that are free: leave one thread behind."""
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def checked():
    said: list[str] = []
    build = Build(Device("cpu", "fp32"), num_blocks=256)
    checker = Checker(load_checkpoint("random-tiny"), build, Plan(requests=12, quick=True), said.append)
    found = checker.check("tiny")
    assert checker.executor.pool.free_blocks == 256
    return found, said


def test_every_tier_predicts_every_cell(checked):
    found, said = checked
    assert {each.cell.kind for each in found.cells} == {"prefill", "decode", "mixed"}
    for each in found.cells:
        assert tuple(each.predicted_s) == TIERS
        assert min(each.predicted_s.values()) > 0
        assert each.measured.seconds > 0
    assert any("GEMM" in each or "products" in each for each in said)


def test_no_held_out_cell_was_used_to_calibrate(checked):
    found, _ = checked
    used = {(counts.tokens, counts.decode_reads, counts.prefill_pairs) for counts, _ in found.calibration}
    for each in HELD_OUT:
        counts = each.counts()
        assert (counts.tokens, counts.decode_reads, counts.prefill_pairs) not in used


def test_calibration_covers_every_kind_of_step(checked):
    found, _ = checked
    prompts, decodes = (
        [getattr(c, name) > 0 for c, _ in found.calibration] for name in ("prefill_tokens", "decode_reads")
    )
    assert {(True, False), (False, True), (True, True)} <= set(zip(prompts, decodes, strict=True))


def test_the_pulse_of_the_machine_is_taken_all_along(checked):
    found, _ = checked
    assert len(found.pulses) == 4
    assert all(min(each.compute_s, each.read_s) > 0 for each in found.pulses)


def test_the_roofline_is_a_bound(checked):
    """No cell beats the measured ceilings."""
    found, _ = checked
    assert all(each.predicted_s["roofline"] < each.measured.seconds for each in found.cells)


def test_the_load_was_run_and_replays(checked):
    load = checked[0].load
    assert load.rate_per_s > 0
    assert load.predicted.keys() == set(TIERS)
    assert all(each > 0 for each in load.measured.values())
    again = replay(load.log)
    assert again.equal == len(again.steps) == len(load.log.steps)


def test_the_result_is_json_and_a_figure(checked):
    plain = checked[0].as_dict()
    assert json.loads(json.dumps(plain))["cells"][0]["predicted_s"].keys() == set(TIERS)
    assert len(plot_check(plain).axes) == len(TIERS)


TINY = ("--checkpoint", "random-tiny", "--blocks", "256")


def run(*arguments: str) -> dict:
    result = CliRunner().invoke(build(arguments), [*arguments, "--format", "json"], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_second_process_times_the_same_cells():
    options = EngineOptions(checkpoint="random-tiny", blocks=40, threads=1)
    engine = Executor(Transformer(load_checkpoint("random-tiny"), Build(num_blocks=40)))
    twins = second_process(options.arguments())
    assert len(twins) == len(fitting(HELD_OUT, engine)) > 0
    assert all(each.seconds > 0 for each in twins)


def test_the_command_shows_every_tier_and_how_many_threads(checked, monkeypatch):
    monkeypatch.setattr(Checker, "check", lambda *_: checked[0])
    monkeypatch.setattr("simulator.reference.threads.free_cores", lambda _: 1)
    monkeypatch.setattr("simulator.reference.cores.usable_cores", lambda: 4)
    found = run("check", *TINY, "--once")
    assert {row["tier"] for row in found["steps"]} == set(TIERS)
    assert [row["metric"] for row in found["latencies"]][:2] == ["TTFT p50", "TTFT p95"]
    spared = "Threads: 1 of 4, as other processes held the other cores. --threads 4 takes all."
    assert spared in found["notes"]
    assert spared not in run("check", *TINY, "--once", "--threads", "1")["notes"]


def test_the_command_writes_profiles_that_load(checked, monkeypatch, tmp_path):
    monkeypatch.setattr(Checker, "calibrate", lambda *_: (checked[0].bench, checked[0].tables))
    found = run("calibrate", *TINY, "--threads", "1", "--name", "tiny", "--out", str(tmp_path))
    assert found["calibration"][0]["device"] == checked[0].bench.device
    assert Hardware.from_yaml(tmp_path / "hardware_profiles" / "tiny.yaml").name == "tiny"
    assert Engine.from_yaml(tmp_path / "engines" / "reference-0.1.yaml").engine == "reference"


def test_text_comes_in_and_goes_out(tmp_path):
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<|endoftext|>"]
    codec = tokenizers.Tokenizer(models.BPE({word: place for place, word in enumerate(words)}, []))
    codec.pre_tokenizer, codec.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    model = shape("random-250m")
    small = {"layers": (model.layers[0].model_copy(update={"repeat": 1}),), "vocab": len(words)}
    folder = export_folder(random_checkpoint(model.model_copy(update=small)), tmp_path / "model")
    codec.save(str(folder / "tokenizer.json"))
    found = run("reference", "generate", "Hello", "world", "--checkpoint", str(folder), "--max-tokens", "3")
    assert [row["prompt"] for row in found["generated"]] == ["Hello", "world"]
    assert all(row["text"] and row["ttft_s"] > 0 and row["tpot_s"] > 0 for row in found["generated"])
    with pytest.raises(InfercastError, match="an empty text: there is nothing to go on from"):
        run("reference", "generate", "", "--checkpoint", str(folder))


def test_timing_repeats_and_takes_the_median():
    calls = []
    timing = timed(lambda: calls.append(time.sleep(0.01)), Device(), least_s=0.01, repeats=4)
    assert len(calls) == 5
    assert 0.01 <= timing.seconds < 0.1


def test_cells_that_do_not_fit_are_left_out():
    engine = Executor(Transformer(load_checkpoint("random-tiny"), Build(num_blocks=40)))
    kept = fitting((Cell(decodes=1, context=100), Cell(decodes=8, context=100), Cell(new=600)), engine)
    assert kept == [Cell(decodes=1, context=100)]


def test_a_load_of_one_is_refused():
    with pytest.raises(InfercastError, match="above 1 every queue grows"):
        Plan(load=1.0)


@pytest.mark.slow
def test_smollm2_is_predicted():
    """The loose gate of CI: 20 % median on held-out steps, 30 % on the median of a whole request.

    A busy machine is tried again, as is one whose speed changed between two pulses; one that stays busy gets a gate
    that neighbours do not move and a wrong term still misses: a factor of two.
    """
    if found_smollm2() is None:
        pytest.skip("SmolLM2's weights are not on this machine; `infercast reference generate` fetches them")
    build, plan = Build(Device("cpu", "bf16")), Plan(requests=12, load=0.5, quick=True)
    for _ in range(2):
        found = Checker(load_checkpoint("smollm2-135m"), build, plan, lambda _: None).check("here")
        contended = any(each.measured.contended for each in found.cells)
        quiet = not (contended or found.load.others_cores > 0.1 or found.drift > 0.1)
        said = [each.predicted_s["calibrated"] for each in found.cells]
        steps = step_errors(said, [each.measured.seconds for each in found.cells]).median
        e2el = abs(found.load.predicted["calibrated"]["e2el_p50_s"] / found.load.measured["e2el_p50_s"] - 1)
        if steps < 0.2 and e2el < 0.3:
            break
    assert steps < (0.2 if quiet else 1.0)
    assert e2el < (0.3 if quiet else 1.0)

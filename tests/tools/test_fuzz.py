"""A little of `make fuzz`: changed files of every kind are read or refused in one line, in this process."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.calibration.step_log import read_log
from simulator.engines.engine import Engine
from simulator.errors import InfercastError
from simulator.hardware.hardware import Hardware
from simulator.models.hf_importer import write_profile
from simulator.models.model import Model
from simulator.validation.benchfiles import Stated, read_results
from simulator.workloads.rate_curves import read_rate_curve
from simulator.workloads.traces import read_trace
from simulator.workloads.workload import WorkloadPreset
from tools.fuzz import fault
from tools.fuzz_targets import OPTIONS, READERS
from tools.mutations import mutated, mutated_words

READ: dict[str, Callable[[Path], object]] = {
    "hardware": Hardware.from_yaml,
    "model": Model.from_yaml,
    "engine": Engine.from_yaml,
    "workload": WorkloadPreset.from_yaml,
    "trace": read_trace,
    "rate curve": read_rate_curve,
    "measurements": lambda path: read_results(path, Stated()),
    "vllm results": lambda path: read_results(path, Stated()),
    "other results": lambda path: read_results(path, Stated()),
    "llama-bench": lambda path: read_results(path, Stated()),
    "config": lambda path: write_profile(path, path.parent / "own", "own", force=True),
    "engine log": read_log,
}
SMALL_BYTES = 30_000


@pytest.mark.parametrize("name", READ)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=False))
def test_a_changed_file_is_read_or_refused(name: str, tmp_path: Path, random: Random) -> None:
    seeds = [each for each in READERS[name].seeds if each.stat().st_size < SMALL_BYTES]
    seed = random.choice(seeds)
    path = tmp_path / seed.name
    text = mutated(seed.read_text(encoding="utf-8"), random)
    path.write_text(text, encoding="utf-8", errors="replace", newline="")
    with contextlib.suppress(InfercastError):
        READ[name](path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["estimate", "memory", "simulate", "closed", "fleet", "cost"])
@settings(max_examples=8, deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_a_changed_command_is_answered_or_refused(name: str, random: Random) -> None:
    assert fault(mutated_words(OPTIONS[name].words, random)) == ""


def test_every_reader_has_a_target_with_files() -> None:
    assert set(READ) <= set(READERS)
    assert [name for name, target in READERS.items() if not target.seeds] == []


def test_a_fault_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(text: str, error: Exception | None = None) -> str:
        def main() -> None:
            print(text)
            if error:
                raise error

        monkeypatch.setattr("tools.fuzz.main", main)
        return fault(["estimate"])

    assert told("TTFT 3 ms") == ""
    assert told("TTFT nan ms") == "nan in the output"
    assert told("", KeyError("x")).startswith("KeyError in test_fuzz.py")
    assert told("", SystemExit(1)) == "exit code 1"  # type: ignore[arg-type]
    assert told("", SystemExit(2)) == "exit code 2 without a message"  # type: ignore[arg-type]

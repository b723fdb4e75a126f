"""For tests and doctests alike: modules that need more than the base, and how many tests were skipped."""

import gc
import os
from importlib.util import find_spec

import pytest

os.environ.setdefault("INFERCAST_DATE", "2026-11-23")  # the day of every question: outputs age no further
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy; on a busy machine its threads wait for each other
collect_ignore = ["simulator/reference/vllm_cpu.py", "simulator/reference/openvino_cpu.py"]
if any(find_spec(name) is None for name in ("torch", "gguf", "safetensors", "tokenizers")):
    collect_ignore_glob = ["simulator/reference/*"]


def pytest_collection_finish() -> None:
    """Take what was imported out of garbage collection, which would look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # by default (700, 10, 10) the rest took 7 s of CPU


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped, 0 on a machine that has everything, and why."""
    skipped = terminalreporter.stats.get("skipped", [])
    terminalreporter.write_line(f"skipped: {len(skipped)}")
    for report in skipped:
        terminalreporter.write_line(f"  {report.nodeid}: {report.longrepr[-1]}")

"""What goes out: files whole or not at all, and a stdout that may be closed, full, gone or of another alphabet."""

import ast
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulator.errors import InfercastError
from simulator.files import write_whole
from tests.support.paths import ROOT

NEW = b"new!" * 500_000


def test_a_file_is_written_with_its_folder_over_another_and_through_a_link(tmp_path: Path) -> None:
    path, link = tmp_path / "new" / "a.txt", tmp_path / "link"
    write_whole(path, "one")
    link.symlink_to(path)
    write_whole(link, "zwei ä")
    assert path.read_text(encoding="utf-8") == "zwei ä"
    assert link.is_symlink()
    assert names(path.parent) == ["a.txt"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


@pytest.mark.parametrize("place", ["/dev/full", "/proc/none/x", "folder", "x" * 300, "file/x", "nul\0l"])
def test_what_cannot_be_written_is_told_and_leaves_nothing(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InfercastError, match=r"^--plot .*: it cannot be written"):
        write_whole(tmp_path / place, "x", "--plot")
    assert names(tmp_path) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "kept"


def test_a_device_stays_one() -> None:
    write_whole(Path(os.devnull), "x")
    assert not Path(os.devnull).is_file()


def test_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    """Here it is a limit on files, which ends a write in the middle as a full disk does."""
    path = tmp_path / "a.bin"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(InfercastError, match=r"--plot .*: it cannot be written \(File too large\)"):
            write_whole(path, NEW, "--plot")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (path.read_text(), names(tmp_path)) == ("old", ["a.bin"])


def test_what_killed_processes_left_is_removed_once_it_is_nobodys(tmp_path: Path) -> None:
    ours, old, new = (tmp_path / f".infercast-{number}.tmp" for number in (os.getpid(), 1, 2))
    for path in (ours, old, new):
        path.write_text("half")
    os.utime(old, (0, 0))
    write_whole(tmp_path / "a.txt", "whole")
    assert names(tmp_path) == [new.name, "a.txt"]


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    """50 times in tools/faults.py, with the commands that write: docs/trust.md."""
    program = f"import pathlib, tools.faults as made; print(made.writer_killed(pathlib.Path({str(tmp_path)!r}), 20))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True)
    times, wrong = ast.literal_eval(done.stdout.decode())
    lost = set(wrong) - {"left over"}  # which is rare, and whole: one moment between two calls of the system
    assert (times, lost) == (20, set())


CACHED = """
from simulator.scheduler.jit import compiled

@compiled
def total(a, b):
    return a + b

print(total(1, 2), sum(total.stats.cache_hits.values()))
"""
SMALL_DISK = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (300, -1)); import sums"


@pytest.mark.slow
def test_machine_code_is_kept_where_it_can_be_and_nowhere_else(tmp_path: Path) -> None:
    """Not where nobody has a home, nor on a full disk, and whole by two first runs at once: the answer is the same."""
    (tmp_path / "sums.py").write_text(CACHED)
    (tmp_path / "small.py").write_text(SMALL_DISK)

    def begun(name: str, home: str) -> subprocess.Popen[str]:
        paths = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": home, "NUMBA_CACHE_DIR": "", "PYTHONDONTWRITEBYTECODE": "1"}
        words = [sys.executable, "-c", f"import {name}"]
        return subprocess.Popen(words, cwd=tmp_path, env={**os.environ, **paths}, stdout=subprocess.PIPE, text=True)

    cases = [("sums", "/dev/null"), ("small", str(tmp_path / "full")), *[("sums", str(tmp_path / "both"))] * 2]
    found = [process.communicate()[0].split() for process in [begun(*case) for case in cases]]
    assert [answer for answer, _ in found] == ["3"] * 4
    assert begun("sums", str(tmp_path / "both")).communicate()[0].split() == ["3", "1"]
    kept = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*.nbc")}
    assert kept == {"both"}


def infercast(*words: str, code: str = "", **streams: object) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **dict.fromkeys(("PYTHONUTF8",), "0")}
    environment |= {name: str(value) for name, value in streams.items() if name.isupper()}
    given = {name: value for name, value in streams.items() if not name.isupper()}
    program = [sys.executable, "-c", f"{code}\nfrom simulator.cli import main\nmain()", *words]
    return subprocess.Popen(program, env=environment, stderr=subprocess.PIPE, **given)  # type: ignore[call-overload]


@pytest.mark.slow
def test_a_result_that_nobody_can_take_ends_in_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        process = infercast("profiles", "hardware", stdout=full)
        assert b"stdout: it cannot be written (No space left on device)" in process.communicate()[1]
        assert process.returncode == 2
    process = infercast("profiles", "hardware", code="import os; os.close(1); import sys; sys.stdout = None")
    assert process.communicate()[1] == b"infercast: error: stdout: it is closed. Send it to a file or to /dev/null.\n"
    assert process.returncode == 2


@pytest.mark.slow
def test_a_reader_that_leaves_ends_it_in_silence() -> None:
    process = infercast("profiles", "hardware", stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.close()
    assert (process.communicate()[1], process.returncode) == (b"", 1)


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}])
def test_every_alphabet_prints(environment: dict[str, str]) -> None:
    out, told = infercast("profiles", "hardware", stdout=subprocess.PIPE, **environment).communicate()
    assert (b"l40s" in out, told) == (True, b"")


LOAD = ("simulate", "--model", "smollm2-135m", "--hardware", "l4", "--isl", "16", "--osl", "8", "--request-rate", "2")


@pytest.mark.slow
def test_without_a_home_it_answers() -> None:
    homeless = {"HOME": "/dev/null", "XDG_CACHE_HOME": "", "NUMBA_CACHE_DIR": "", "NUMBA_DISABLE_JIT": "1"}
    out, told = infercast(*LOAD, "--num-prompts", "5", stdout=subprocess.PIPE, **homeless).communicate()
    assert (b"TTFT" in out, told) == (True, b"")


@pytest.mark.slow
def test_an_interrupt_ends_with_130() -> None:
    ready = "import sys; import simulator.cli; sys.stderr.write('r'); sys.stderr.flush()"
    process = infercast(*LOAD, "--num-prompts", "5000000", code=ready, stdout=subprocess.PIPE)
    assert process.stderr
    process.stderr.read(1)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in told
    assert out == b""

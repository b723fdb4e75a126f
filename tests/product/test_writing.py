"""What goes out: files whole or not at all, and a stdout that may be closed, full, gone or of another alphabet."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from simulator.errors import InfercastError
from simulator.files import write_whole
from tests.support.paths import ROOT

OLD, NEW = b"old" * 500_000, b"new!" * 500_000
WRITER = """
import sys
from pathlib import Path
from simulator.files import write_whole
sys.stdout.write("ready\\n")
sys.stdout.flush()
while True:
    write_whole(Path(sys.argv[1]), b"old" * 500_000)
    write_whole(Path(sys.argv[1]), b"new!" * 500_000)
"""


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


def test_a_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def full(self: Path, _data: bytes) -> int:
        with self.open("wb") as file:
            file.write(b"n")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InfercastError, match="No space left"):
        write_whole(path, "new")
    assert (path.read_text(), names(tmp_path)) == ("old", ["a.txt"])


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path, random, found = tmp_path / "a.bin", Random(1), set()
    path.write_bytes(OLD)
    for _ in range(20):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE)
        assert writer.stdout
        writer.stdout.readline()
        time.sleep(random.random() / 50)
        writer.kill()
        writer.communicate()
        found.add(path.read_bytes())
    assert found == {OLD, NEW}


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

"""Files that no reader may crash on, hang at or unpack without limit: each is refused in three parts."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.calibration.step_log import read_log
from simulator.errors import InfercastError
from simulator.files import MAX_MB_VARIABLE, open_text, parse_json
from simulator.models.hf_importer import write_profile
from simulator.profile import find
from simulator.profile_files import read_yaml
from simulator.validation.benchfiles import Stated, read_results
from simulator.validation.measurements import read_measurements
from simulator.workloads.rate_curves import read_rate_curve
from simulator.workloads.traces import read_trace

READERS: dict[str, Callable[[Path], object]] = {
    "profile": read_yaml,
    "config": lambda path: write_profile(path, path.parent, "hostile"),
    "step log": read_log,
    "results": lambda path: read_results(path, Stated()),
    "measurements": read_measurements,
    "rate curve": read_rate_curve,
    "trace": read_trace,
}
SOUND_ZIP = gzip.compress(b"a,b\n1,2\n" * 1000)
CONTENTS = {
    "empty": b"",
    "half a gzip": SOUND_ZIP[: len(SOUND_ZIP) // 2],
    "broken gzip": SOUND_ZIP[:12] + b"\xff" * 20 + SOUND_ZIP[12:],
    "not UTF-8": b"\xff\xfe\x00\x81" * 50,
    "deep JSON": b'{"a":' + b"[" * 100_000,
    "long number": b'{"a": ' + b"9" * 5000 + b"}",
    "long field": b"window_start_s,relative_request_rate\n0," + b"9" * 200_000,
    "long field of AIPerf": b"Metric,avg\nRequest Latency (ms)," + b"9" * 200_000,
    "bare carriage returns": b"a,b\r1,2\r3,4\r\x00\r",
    "list": b"[1, 2]",
    "a number with a wrong tag": b"a: !!int 0b\n",
    "an unknown truth": b"a: !!bool maybe\n",
    "header only": b"window_start_s,relative_request_rate\n",
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("reader", READERS)
def test_a_hostile_file_is_refused(tmp_path: Path, reader: str, content: str) -> None:
    path = tmp_path / "hostile.csv"
    path.write_bytes(CONTENTS[content])
    with pytest.raises(InfercastError):
        READERS[reader](path)


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_without_a_writer_is_refused(tmp_path: Path, reader: str) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InfercastError, match="no regular file"):
        READERS[reader](tmp_path / "pipe.csv")


@pytest.mark.parametrize("reader", READERS)
def test_a_gzip_bomb_is_refused(tmp_path: Path, reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MAX_MB_VARIABLE, "1")
    path = tmp_path / "bomb.csv.gz"
    given = {"hardware": "l40s", "model": "llama-3.1-8b", "metric": "ttft_ms", "value": "9", "arrived_at": "1"}
    given |= {
        "prompt_tokens": "1",
        "output_tokens": "1",
        "window_start_s": "1",
        "relative_request_rate": "1",
        "source": "x" * 10_000,
    }
    text = ",".join(given) + "\n" + (",".join(given.values()) + "\n") * 110
    path.write_bytes(gzip.compress(text.encode(), 1))
    with pytest.raises(InfercastError, match="more than 1 MB"):
        READERS[reader](path)


def test_the_limit_is_named_and_set_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.csv"
    path.write_bytes(b"x" * 2_000_001)
    with pytest.raises(OSError, match=f"more than 2 MB; {MAX_MB_VARIABLE}"), open_text(path, 2) as file:
        file.read()
    monkeypatch.setenv(MAX_MB_VARIABLE, "3")
    with open_text(path, 2) as file:
        assert len(file.read()) == 2_000_001
    monkeypatch.setenv(MAX_MB_VARIABLE, "9" * 5000)
    with pytest.raises(OSError, match="no whole number of MB"):
        open_text(path)


def test_a_name_longer_than_any_file_is_no_profile() -> None:
    with pytest.raises(InfercastError, match="no model profile"):
        find("model_profiles", "x" * 5000)


def test_numbers_of_64_bits_are_read() -> None:
    assert parse_json("[18446744073709551615]") == [2**64 - 1]


@pytest.mark.parametrize("column", ["batch", "concurrency", "n_gpus"])
def test_a_count_beyond_reason_is_a_flaw_of_its_row(tmp_path: Path, column: str) -> None:
    path = tmp_path / "counts.csv"
    given = {"hardware": "l40s", "model": "llama-3.1-8b", "metric": "ttft_ms", "value": "9", column: "1000000000"}
    path.write_text("\n".join([",".join(given), ",".join(given.values())]) + "\n")
    with pytest.raises(InfercastError, match=f"{column} '1000000000' is more than"):
        read_measurements(path)

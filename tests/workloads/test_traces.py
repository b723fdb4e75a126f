"""Trace files: every spelling that people publish reads alike, every way to spoil one is refused by row and value."""

import gzip
import json
import math
import time
from pathlib import Path
from tempfile import NamedTemporaryFile
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import WorkloadError
from simulator.workloads import traces
from simulator.workloads.trace_columns import AskedColumns
from simulator.workloads.traces import read_trace
from simulator.workloads.workload import Workload

HEADER = "arrival_s,prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
LINE = '{"arrival_s": 0, "input_length": 5, "output_length": 5}\n'
GOOD = {
    "ours.csv": "arrival_s,prompt_tokens,output_tokens\n0,10,1\n0.25,20,2\n1.5,30,3\n",
    "shared.csv": "arrival_s,input_tokens,output_tokens,prefixes\n0,10,1,0 1\n0.25,20,2,0\n1.5,30,3,7\n",
    "plain.csv": "arrival_s, input, output\n 0, 10, 1\n 0.25, 20, 2\n\n 1.5, 30, 3\n\n",
    "azure.csv": "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,10,1\r\n"
    "2023-11-16 18:15:46.9305900,20,2\r\n2023-11-16 18:15:48.1805900,30,3",
    "azure_2024.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-12 00:00:00+00:00,10,1\n"
    "2024-05-12 00:00:00.250000+00:00,20,2\n2024-05-12 00:00:01.500000+00:00,30,3\n",
    "burstgpt.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    '0.0,ChatGPT,10,1,11,"Log, API"\n0.25,GPT-4,20,2,22,API log\n1.5,GPT-4,30,3,33,API log\n',
    "named.csv": "arrival_ms,input_length,output_length\n0,10,1\n250,20,2\n1500,30,3\n",
    "openai.csv": "Start time [s],promptTokens,completion_tokens,total_tokens\n0,10,1,11\n0.25,20,2,22\n1.5,30,3,33\n",
    "epoch.csv": "created_at_us,isl,osl\n1731780000000000,10,1\n1731780000250000,20,2\n1731780001500000,30,3\n",
    "mooncake.jsonl": '{"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [0]}\n'
    '{"timestamp": 250, "input_length": 20, "output_length": 2, "hash_ids": [0, 1]}\n\n'
    '{"timestamp": 1500, "input_length": 30, "output_length": 3, "hash_ids": []}\n',
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("packed", [False, True])
def test_every_spelling_reads_alike(name: str, packed: bool, tmp_path: Path) -> None:
    data = GOOD[name].encode()
    path = tmp_path / (name + ".gz" if packed else name)
    path.write_bytes(gzip.compress(data) if packed else data)
    trace = read_trace(path)
    np.testing.assert_allclose(trace.arrival_s, [0, 0.25, 1.5], rtol=0, atol=1e-12)
    assert trace.prompt_tokens.tolist() == [10, 20, 30]
    assert trace.output_tokens.tolist() == [1, 2, 3]


PLAIN = "at,what,tokens in,tokens out\n0,chat,10,1\n250,chat,20,2\n1500,code,30,3\n"


@pytest.mark.parametrize(("unit", "seconds"), [("ms", 1e-3), ("s", 1.0), ("us", 1e-6), ("ns", 1e-9)])
def test_columns_and_the_unit_of_time_are_as_the_user_says(unit: str, seconds: float, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(PLAIN)
    trace = read_trace(path, AskedColumns.of(f"prompt=tokens in,output=tokens out,time=at:{unit}"))
    np.testing.assert_allclose(trace.arrival_s, np.array([0, 250, 1500]) * seconds, rtol=1e-15)
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([10, 20, 30], [1, 2, 3])


def test_what_the_user_says_goes_before_names_and_publishers(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.jsonl"
    path.write_text(GOOD["mooncake.jsonl"].replace('"output_length"', '"completion_tokens": 7, "output_length"'))
    with pytest.raises(WorkloadError, match="completion_tokens and output_length"):
        read_trace(path)
    trace = read_trace(path, AskedColumns.of("output=completion_tokens,time=timestamp:s"))
    assert trace.arrival_s.tolist() == [0, 250, 1500]
    assert trace.output_tokens.tolist() == [7, 7, 7]
    assert read_trace(path, AskedColumns.of("output=output_length")).arrival_s.tolist() == [0, 0.25, 1.5]


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("prompt", "not ROLE=NAME"),
        ("prompt=", "not ROLE=NAME"),
        ("prompt=a,prompt=b", "named twice"),
        ("prompts=a", "Nearest: prompt."),
        ("time=at:min", "'min' is no unit of time"),
        ("time=at:ms,prompt=token in,output=tokens out", "no such column; Nearest: tokens in"),
    ],
)
def test_columns_that_cannot_be(text: str, because: str, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(PLAIN)
    with pytest.raises(WorkloadError) as caught:
        read_trace(path, AskedColumns.of(text))
    assert because in str(caught.value)
    assert "--trace-columns" in str(caught.value)


def test_azure_ticks_of_100_ns_survive(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(AZURE + "2023-11-16 18:15:46.6805900,1,1\n2023-11-16 18:15:46.6805901,1,1\n")
    assert read_trace(path).arrival_s[1] == pytest.approx(1e-7, rel=1e-9)


BAD = {
    "empty": ("", "it is empty", "Give a file with a line of column names"),
    "blank": ("\n\n", "it is empty", "Give a file with a line of column names"),
    "header only": (HEADER, "no rows", "requests"),
    "header and blanks": (HEADER + "\n\n", "no rows", "requests"),
    "no header": ("0,5,5\n1,5,5\n", "columns 0, 5, 5", "--trace-columns prompt=NAME"),
    "column missing": ("arrival_s,prompt_tokens\n0,5\n", "known to hold the output tokens", "output=NAME"),
    "no unit": ("timestamp,ContextTokens,GeneratedTokens\n0,5,5\n9,5,5\n", "0.1111 requests/s in s, 111 in ms", ":ms"),
    "no Mooncake": ("timestamp,input_length,output_length\n0,5,5\n", "says the unit (1 rows: all at once)", ":s"),
    "two spellings": (
        "arrival_s,prompt_tokens,output_tokens,input_tokens\n0,5,5,5\n",
        "columns prompt_tokens and input_tokens: each may hold the prompt tokens",
        "--trace-columns prompt=NAME",
    ),
    "column twice": ("arrival_s,prompt_tokens,output_tokens,output_tokens\n0,5,5,6\n", "twice", "output=NAME"),
    "unsorted": (HEADER + "0,5,5\n3,5,5\n2.5,5,5\n", "row 3: arrival_s '2.5'", "Sort"),
    "unsorted dates": (AZURE + "2023-11-16,5,5\n2023-11-15,5,5\n", "row 2: TIMESTAMP '2023-11-15'", "Sort"),
    "negative time": (HEADER + "-1,5,5\n0,5,5\n", "row 1: arrival_s '-1'", "Shift"),
    "zero prompt": (HEADER + "0,5,5\n1,0,5\n", "row 2: prompt_tokens '0'", "remove"),
    "zero outputs": (HEADER + "0,5,0\n1,5,5\n2,5,0\n", "row 1: output_tokens '0' (1 more rows like it)", "remove"),
    "negative output": (HEADER + "0,5,-3\n", "row 1: output_tokens '-3'", "remove"),
    "half a token": (HEADER + "0,5,5\n1,5.5,5\n", "row 2: prompt_tokens '5.5'", "remove"),
    "huge": (HEADER + "0,5,1e300\n", "row 1: output_tokens '1e+300'", "remove"),
    "beyond int64": (HEADER + "0,99999999999999999999999,5\n", "row 1: prompt_tokens '999999999", "remove"),
    "late": (HEADER + "0,5,5\n1e300,5,5\n", "row 2: arrival_s '1e+300'", "Shift"),
    "text": (HEADER + "0,5,5\n1,many,5\n", "row 2: prompt_tokens 'many'", "Correct"),
    "nan": (HEADER + "0,5,5\nnan,5,5\n", "row 2: arrival_s 'nan'", "Correct"),
    "inf": (HEADER + "0,5,5\ninf,5,5\n", "row 2: arrival_s 'inf'", "Correct"),
    "empty cell": (HEADER + "0,5,5\n1,,5\n", "row 2: prompt_tokens ''", "Correct"),
    "true": (HEADER + "0,True,5\n1,False,5\n", "row 1: prompt_tokens 'True'", "Correct"),
    "short row": (HEADER + "0,5,5\n1,5\n", "row 2: output_tokens ''", "Correct"),
    "one long row": (HEADER + "0,5,5\n1,5,5,9\n", "row 2: a field beyond the header '9'", "remove"),
    "all rows long": (HEADER + "0,5,5,9\n1,5,5,9\n", "row 1: a field beyond the header '9'", "remove"),
    "all rows much longer": (HEADER + "0,5,5,9,9\n1,5,5,9,9\n", "not CSV", "row per request"),
    "ragged": (HEADER + "0,5,5\n1,5,5,9,9\n", "not CSV", "row per request"),
    "open quote": (HEADER + '0,5,5\n1,"5,5\n', "not CSV", "row per request"),
    "no date": (AZURE + "2023-11-16 18:15:46,5,5\nyesterday,5,5\n", "row 2: TIMESTAMP 'yesterday'", "Correct"),
    "number for a date": (AZURE + "0.5,5,5\n", "times in column 'TIMESTAMP'", "time=TIMESTAMP:s"),
    "date for a number": (HEADER + "2023-11-16,5,5\n", "row 1: arrival_s '2023-11-16'", "Correct"),
    "bad json": (LINE + "{nope\n", "row 2: it is not JSON", "one object per line"),
    "json without key": (LINE + '{"arrival_s": 1, "input_length": 5}\n', "row 2: missing output_length", "Mend"),
    "json list": (LINE + "[1, 2, 3]\n", "row 2: it is not a JSON object", "one object per line"),
    "json deep": (LINE + "[" * 100_000 + "\n", "row 2: it is not JSON", "one object per line"),
    "json text": (LINE + LINE.replace("5", '"x"', 1), "row 2: input_length 'x'", "Correct"),
    "json null": (LINE + LINE.replace("5", "null", 1), "row 2: input_length", "Correct"),
    "json true": (LINE + LINE.replace("5", "true", 1), "row 2: input_length 'True'", "Correct"),
    "json nested": (LINE + LINE.replace("5", "[5]", 1), "row 2: input_length '[5]'", "Correct"),
    "semicolons": (HEADER.replace(",", ";") + "0;5;5\n", "begins with 'arrival_s;prompt", "commas between columns"),
    "json array": (f"[{LINE.strip()}]\n", "neither CSV with commas nor JSON lines", "one JSON object on each line"),
    "json spread over lines": ('{\n"timestamp": 0\n}\n', "row 1: it is not JSON", "one object per line"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("packed", [False, True])
def test_spoilt_traces(case: str, packed: bool, tmp_path: Path) -> None:
    text, part, remedy = BAD[case]
    path = tmp_path / ("t.csv.gz" if packed else "t.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with pytest.raises(WorkloadError) as caught:
        read_trace(path)
    assert path.name in caught.value.given
    assert part in str(caught.value)
    assert remedy in caught.value.remedy


KEYS = ("arrival_s", "input_length", "output_length", "hash_ids")
ODD = [0, 2.5, 1e3, 2**53, 2**70, 10**400, -1, "5", "x", "", True, None, [3], [], {"a": 1}, math.nan]
CELLS = st.tuples(*[st.integers(1, 9)] * 3, st.lists(st.integers(0, 9)))


@given(st.lists(CELLS, min_size=1, max_size=5), st.integers(0, 4), st.integers(0, 3), st.sampled_from([None, *ODD]))
def test_json_is_read_alike_at_once_and_row_by_row(rows: list[tuple[object]], row: int, key: int, odd: object) -> None:
    """At once takes a third of the time, and is for values of one kind; any odd value in one cell."""
    entries = [dict(zip(KEYS, each, strict=True)) for each in sorted(rows)]
    entries[row % len(entries)][KEYS[key]] = odd

    def read() -> list[object]:
        with NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(f" {json.dumps(entry)} \r\n\n" for entry in entries)
            file.flush()
            try:
                found = read_trace(file.name)
            except WorkloadError as error:
                return [str(error).replace(Path(file.name).name, "")]
        return [*(each.tolist() for each in (found.arrival_s, found.prompt_tokens, found.prefixes.ids))]

    at_once = read()
    with patch.object(traces, "_plain", side_effect=ValueError):
        assert at_once == read()


def test_files_that_are_no_text(tmp_path: Path) -> None:
    packed = gzip.compress(GOOD["ours.csv"].encode() * 100)
    spoilt = bytearray(packed)
    spoilt[len(packed) // 2] ^= 0xFF
    contents = {
        "binary.csv": bytes(range(128, 256)) * 40,
        "later.csv": GOOD["ours.csv"].encode() * 3000 + b"\xff\xfe",
        "plain.csv.gz": GOOD["ours.csv"].encode(),
        "cut.csv.gz": packed[: len(packed) // 2],
        "spoilt.csv.gz": bytes(spoilt),
        "no_deflate.csv.gz": packed[:10] + b"\xff" * 50,
        "nul.csv": HEADER.encode() + b"0,\0,5\n",
    }
    (tmp_path / "folder.csv").mkdir()
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    for name in [*contents, "folder.csv", "missing.csv"]:
        with pytest.raises(WorkloadError, match=name):
            read_trace(tmp_path / name)


@settings(max_examples=80)
@given(name=st.sampled_from(sorted(GOOD)), place=st.integers(0, 200), damage=st.binary(max_size=4))
def test_any_damage_is_read_or_refused_never_a_traceback(
    name: str, place: int, damage: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = GOOD[name].encode()
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(data[:place] + damage + data[place + len(damage) :])
    try:
        trace = read_trace(path)
    except WorkloadError as error:
        assert error.given and error.because and error.remedy
    else:
        assert Workload.from_trace(trace).requests().max_total_tokens >= 2


def test_two_hundred_thousand_rows_read_quickly(tmp_path: Path) -> None:
    path, n = tmp_path / "long.csv", 200_000
    pd.DataFrame({"arrival_s": np.arange(n) / 8, "input": 500, "output": 100}).to_csv(path, index=False)
    start = time.process_time()
    assert len(read_trace(path)) == n
    assert time.process_time() - start < 1

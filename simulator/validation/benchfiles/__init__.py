"""Result files of other tools, told apart by their content and turned into rows of measurements.

    read_results(path, Stated(hardware="l40s", engine="vllm", tp=1))

`vllm bench serve | latency | throughput`, SGLang's bench_serving, GuideLLM, AIPerf and GenAI-Perf, llama-bench, and
tables of measurements. Formats and definitions: docs/measurements.md.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from simulator.errors import InfercastError, ProfileError, reason
from simulator.files import parse_json, read_text
from simulator.validation.benchfiles import aiperf, guidellm, llama_bench, serving
from simulator.validation.benchfiles.rows import Cells, Stated, completed
from simulator.validation.measurements import (
    Measurement,
    measurement_of,
    own_columns,
    read_measurements,
    unread_columns,
)

__all__ = ["Stated", "columns_left", "read_results", "stated_in_vain"]
UNSOUND = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, OSError)  # the last: of dates


class Tool(NamedTuple):
    """One format of result files: how to recognise it, and the function from one of its documents to rows."""

    name: str
    tells: Callable[[Mapping[str, Any]], bool]
    rows: Callable[[Mapping[str, Any], Stated], Iterator[Cells]]


TOOLS = (
    Tool("SGLang's bench_serving", serving.is_sglang, serving.sglang),  # before the one it grew from
    Tool("vllm bench serve", serving.is_serve, serving.serve),
    Tool("vllm bench latency", serving.is_latency, serving.latency),
    Tool("vllm bench throughput", serving.is_throughput, serving.throughput),
    Tool("GuideLLM", guidellm.is_guidellm, guidellm.guidellm),
    Tool("AIPerf or GenAI-Perf", aiperf.is_aiperf, aiperf.aiperf),
    Tool("llama-bench", llama_bench.is_llama_bench, llama_bench.llama_bench),
)


def read_results(path: Path, stated: Stated) -> list[Measurement]:
    """Return the measurements in a file of any known format; what is `stated` overrides what the file says.

    In a table of measurements `stated` fills empty cells only. Raises ProfileError for a file of no known format or
    without a figure, and names what is neither in the file nor stated.
    """
    text = _text(path)
    documents = _documents(text, path)
    if documents is None:
        return read_measurements(path, stated.cells())
    rows = [row for run, document in enumerate(documents) for row in _read(document, stated, path, run)]
    if not rows:
        raise ProfileError(str(path), "the file has no figure that is known here", "Give a run that finished requests")
    return rows


def stated_in_vain(path: Path, stated: Stated) -> list[str]:
    """Return what is stated, by column, and changes nothing: in a table of measurements each row states it itself.

    An engine that is stated with its version is not in vain where the version fills a cell.
    """
    if _documents(_text(path), path) is not None:
        return []
    said, own = stated.cells(), own_columns(path)
    versioned = "engine_version" in said and "engine_version" not in own
    return [name for name in said if name in own and not (name == "engine" and versioned)]


def columns_left(path: Path) -> list[str]:
    """Return the columns of a table of measurements that are not read; none of another file."""
    return unread_columns(path) if _documents(_text(path), path) is None else []


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(
            str(path), f"it cannot be read ({reason(error)})", "Give a file of results or a .csv of measurements"
        ) from error


def _documents(text: str, path: Path) -> list[Mapping[str, Any]] | None:
    """Return the runs of a file, as mappings; None for a table of measurements."""
    head = text.lstrip()[:2000]
    if head[:1] in ("{", "["):
        return _objects(text, path)
    line = next((each for each in head.splitlines() if each.strip()), "")
    if line.startswith("Metric,"):
        return _table(lambda whole: [aiperf.from_csv(whole)], text, path)
    if "avg_ts" in line:
        return _table(llama_bench.from_csv, text, path)
    if line.startswith("|") and "t/s" in line:
        return list(llama_bench.from_markdown(text))
    return None


def _table(read: Callable[[str], Iterable[Mapping[str, Any]]], text: str, path: Path) -> list[Mapping[str, Any]]:
    try:
        return list(read(text))
    except csv.Error as error:
        raise ProfileError(str(path), f"it is not CSV ({error})", "Give the file as the tool wrote it") from error


def _objects(text: str, path: Path) -> list[Mapping[str, Any]]:
    """Return the objects of a JSON file, or of a file with one object per line."""
    try:
        whole = parse_json(text)
    except ValueError:
        whole = [_object(line, path, number) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    listed = whole if isinstance(whole, list) else [whole]
    if not all(isinstance(each, dict) for each in listed):
        raise ProfileError(str(path), "it is no list of objects", "Give the file as the tool wrote it")
    return listed


def _object(line: str, path: Path, number: int) -> Any:
    try:
        return parse_json(line)
    except ValueError as error:
        raise ProfileError(
            f"{path} line {number}", f"it is not JSON ({error})", "Give the file as the tool wrote it"
        ) from error


def _read(document: Mapping[str, Any], stated: Stated, path: Path, run: int) -> Iterator[Measurement]:
    tool = next((each for each in TOOLS if each.tells(document)), None)
    if tool is None:
        keys = ", ".join(list(document)[:6])
        because = f"no tool known here writes {keys}" if keys else "it holds nothing"
        raise ProfileError(
            str(path), because, f"Give what one of these wrote: {', '.join(each.name for each in TOOLS)}"
        )
    try:
        for index, cells in enumerate(tool.rows(document, stated)):
            whole = completed(cells, stated, path, tool.name)
            yield measurement_of({name: str(value) for name, value in whole.items()}, f"{path.stem} {run}.{index}")
    except InfercastError:
        raise
    except UNSOUND as error:
        remedy = "Give the file as the tool wrote it"
        raise ProfileError(str(path), f"it is no sound file of {tool.name} ({error!r})", remedy) from error

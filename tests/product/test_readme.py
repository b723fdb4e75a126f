"""README and pages are run: console blocks print what they show, Python works. `--refresh` rewrites what differs."""

import csv
import gzip
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.commands import infercast
from tests.support.pages import BLOCK, PAGES, README, TABLE, TOUR
from tests.support.paths import ROOT

WITH_CODE = (README, TOUR, *PAGES, ROOT / "docs" / "api.md")
ACCURACY, BLIND = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "blind_round_1.md"
RESULTS = ROOT / "tests" / "fixtures" / "bench" / "invented_vllm_serve.json"
FILE = re.compile(r'```\w+ title="(\S+)"\n(.*?)```', re.DOTALL)  # a file that later commands read
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)
SCORE = re.compile(r"^- (.+): (\d+ %) left out, (\d+ %) blind$", re.MULTILINE)
PATIENCE_S = 300
CONSOLE = [(path, match[1]) for path in (README, TOUR) for match in BLOCK.finditer(path.read_text())]
CODE = [(path, match[1]) for path in WITH_CODE for match in PYTHON.finditer(path.read_text())]


def five_commands() -> list[str]:
    """The commands of the README, each on one line."""
    text = "".join(match[1] for match in SHELL.finditer(README.read_text()))
    lines = text.replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if line.startswith("infercast ")]


def toured(command: str) -> bool:
    """Tell whether the tour shows what a command prints, whatever the order of its options."""
    return sorted(shlex.split(command)) in [sorted(shlex.split(each)) for _, each in CONSOLE]


@pytest.fixture(scope="module")
def shell(tmp_path_factory) -> Callable[[Path, str], subprocess.CompletedProcess[str]]:
    """Return what runs a line of shell in a folder: a command alone in this process, a pipe of them in a shell."""
    command = tmp_path_factory.mktemp("bin") / "infercast"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m simulator.cli "$@"\n')
    command.chmod(0o755)
    paths = {"PATH": f"{command.parent}:{os.environ['PATH']}", "INFERCAST_PROFILES": "", "COLUMNS": "80"}

    def run_line(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
        first, *words = shlex.split(line)
        if first == "infercast" and "|" not in words:
            done = infercast(*words, folder=folder, COLUMNS="80")
            return subprocess.CompletedProcess(line, done.returncode, done.stdout + done.stderr)
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        settings = {"cwd": folder, "env": {**os.environ, **paths}, "timeout": PATIENCE_S}
        return subprocess.run(["sh", "-c", line], check=False, **streams, **settings)

    return run_line


def put_files(page: Path, folder: Path) -> None:
    """Write a result file, and the files that a page shows, into a folder."""
    shutil.copy(RESULTS, folder / "results.json")
    for name, text in FILE.findall(page.read_text()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def run(shell, tmp_path_factory) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Return what runs a line of shell in a folder with the files that the tour shows."""
    folder = tmp_path_factory.mktemp("tour")
    put_files(TOUR, folder)
    return partial(shell, folder)


def refreshed(request: pytest.FixtureRequest, path: Path, pattern: re.Pattern[str], text: Callable[..., str]) -> bool:
    """With `--refresh`, replace each match of a pattern in a file by `text` of the match; return whether it did."""
    if request.config.getoption("--refresh"):
        path.write_text(pattern.sub(text, path.read_text()))
    return bool(request.config.getoption("--refresh"))


@pytest.mark.slow
@pytest.mark.parametrize(("path", "command"), CONSOLE, ids=lambda value: getattr(value, "stem", value))
def test_prints_what_it_shows(path, command, run, request):
    printed = run(command).stdout
    assert "Traceback" not in printed

    def block(match: re.Match[str]) -> str:
        return f"```console\n$ {command}\n{printed}```" if match[1] == command else match[0]

    if not refreshed(request, path, BLOCK, block):
        assert printed == next(match[2] for match in BLOCK.finditer(path.read_text()) if match[1] == command)


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_pages_print_what_they_show(path, shell, tmp_path, request):
    """The commands of a page in their order, in a folder of its own: later ones read what earlier ones wrote."""
    put_files(path, tmp_path)
    printed = {match[1]: shell(tmp_path, match[1]).stdout for match in BLOCK.finditer(path.read_text())}
    assert not [text for text in printed.values() if "Traceback" in text]

    def block(match: re.Match[str]) -> str:
        return f"```console\n$ {match[1]}\n{printed[match[1]]}```"

    if not refreshed(request, path, BLOCK, block):
        assert printed == {match[1]: match[2] for match in BLOCK.finditer(path.read_text())}


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [each for each in five_commands() if each.split()[1] != "cost" and not toured(each)]
)
def test_five_commands_run(command, run):
    """The others are run by the tour, and for the README's table."""
    done = run(f"{command} --format csv")
    assert done.returncode == 0, done.stdout
    assert len(list(csv.DictReader(io.StringIO(done.stdout)))) > 0


def test_the_readme_has_five_commands():
    kinds = [shlex.split(command)[1] for command in five_commands()]
    assert kinds == ["compare", "estimate", "simulate", "cost", "validate"]


@pytest.mark.slow
def test_the_table_is_what_cost_answers(run, request):
    command = next(each for each in five_commands() if each.startswith("infercast cost"))
    rows = list(csv.DictReader(io.StringIO(run(f"{command} --format csv").stdout)))
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in aligned([cells_of(row) for row in rows]))
    if not refreshed(request, README, TABLE, lambda match: match[1] + table):
        assert TABLE.search(README.read_text())[2] == table


def cells_of(row: dict[str, str]) -> list[str]:
    """Return a row of the README's table: prices with cents, rates with one digit behind the point, below 10."""

    def spread(key: str, digits: int, most: float = float("inf")) -> str:
        values = [row[key], row[f"{key}_low"], row[f"{key}_high"] or "inf"]  # an end without bound is empty in csv
        if not all(values):
            return "-"
        value, low, high = (f"{float(each):,.{digits if float(each) < most else 0}f}" for each in values)
        return f"{value} ({low}-{high})" if float(values[2]) else "0"

    usd_per_hour = float(row["usd_per_device_hour"])
    figures = spread("usd_per_million_output_tokens", 2), spread("p95_ttft_ms", 0), spread("capacity_per_s", 1, 10)
    return [row["hardware"], f"{usd_per_hour:.2f}", *figures]


def aligned(rows: list[list[str]]) -> list[list[str]]:
    """Pad cells to the widths of the README's heading."""
    heading = next(line for line in README.read_text().splitlines() if line.startswith("| GPU"))
    widths = [len(cell) - 2 for cell in heading.strip("|").split("|")]
    return [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(("path", "code"), CODE, ids=[path.stem for path, _ in CODE])
def test_python(path, code, capsys):
    exec(compile(code, path.name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


@pytest.mark.slow
def test_one_row_has_the_number_of_validate(run):
    """What the tour shows of a row: its command, run by itself, answers what `validate` predicts."""
    predicted = next(csv.DictReader(io.StringIO(run("infercast validate measured.csv --format csv").stdout)))
    alone = re.search(r'^ +"mean_ttft_ms": ([0-9.]+),$', TOUR.read_text(), re.MULTILINE)[1]
    assert float(alone) == float(predicted["predicted"])


def scores(path: Path, column: int) -> dict[str, str]:
    """Return a column of a page's first table with nine columns, by its first."""
    cells = [line.strip("| ").split(" | ") for line in path.read_text().splitlines() if line.startswith("| ")]
    return {row[0]: row[column].strip("*") for row in reversed(cells) if len(row) == len(cells[0])}


def test_scores(request):
    """The README's errors are those of docs/accuracy.md, without the device and model, and of the blind round."""
    left_out, blind = scores(ACCURACY, 3), scores(BLIND, 3)

    def line(match: re.Match[str]) -> str:
        return f"- {match[1]}: {left_out[match[1]]} left out, {blind[match[1]]} blind"

    if not refreshed(request, README, SCORE, line):
        found = list(SCORE.finditer(README.read_text()))
        assert len(found) > 5
        assert [match[0] for match in found] == [line(match) for match in found]


def test_headline():
    """What the README says of the blind round stands there."""
    words, page = " ".join(README.read_text().split()), BLIND.read_text()
    rows, _, median, _, _, inside, *_ = re.search(r"^\| every row \| (.* %) \|$", page, re.MULTILINE)[1].split(" | ")
    by_kind = re.search(r"^\| every row \|.*\) \| (\d+ %) \(.*\) \| (\d+ %) \(.*\) \|$", page, re.MULTILINE)
    dense, experts = by_kind.groups()
    assert f"it is {median} off in the median, and {inside} of rows lie inside their 80 %" in words
    assert f"So scored {rows} published measurements" in words
    assert f"Dense models are {dense} off, mixtures of experts {experts}" in words


def test_counts():
    """The library is as large as the README says."""
    kinds = ("hardware_profiles", "model_profiles", "simulator/engines")
    counts = [len(list((ROOT / kind).glob("*.yaml"))) for kind in kinds]
    words = " ".join(README.read_text().split())
    assert "**{} devices, {} models, {} engine presets**".format(*counts) in words
    prices = list((ROOT / "hardware_profiles" / "prices").glob("*.yaml"))
    assert f"prices of {len(prices)} providers" in words
    rows = 0
    for table in (ROOT / "simulator" / "validation" / "published").glob("*.csv.gz"):
        with gzip.open(table, "rt") as lines:
            rows += sum(1 for _ in csv.DictReader(lines))
    published = f"{rows:,} published"
    assert published in words
    assert published in " ".join(TOUR.read_text().split())


def test_a_terminal_shows_the_readme_well():
    """At most 120 lines of 80 columns; a table's heading is as wide as its rows, so that columns are aligned."""
    lines = README.read_text().splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 80] == []
    assert len({len(line) for line in lines if line.startswith("| ")}) == 1

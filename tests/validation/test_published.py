"""The published measurements that come with infercast: typed from tables of the older schema, nothing lost or moved."""

import csv
import gzip
import io
import re
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator.cli import build
from simulator.validation.measurements import PUBLISHED, READERS, Measurement, read_measurements
from tests.support import measured
from tools.type_measurements import COLUMNS, converted, main

OLDER = Path(__file__).parents[1] / "fixtures" / "older_measurements.csv"  # rows of every source, in the older schema


@pytest.fixture(scope="module")
def published() -> dict[str, Measurement]:
    rows = measured.published()
    assert len({row.id for row in rows}) == len(rows) == 18_066
    return {row.id: row for row in rows}


@pytest.fixture(scope="module")
def cells() -> dict[str, dict[str, str]]:
    files = [gzip.decompress(path.read_bytes()).decode() for path in PUBLISHED.glob("*.csv.gz")]
    return {row["id"]: row for text in files for row in csv.DictReader(io.StringIO(text))}


def test_older_tables_give_the_setups_of_the_typed_ones(published):
    rows = read_measurements(OLDER)
    assert {row.setup.source for row in rows} == {row.setup.source for row in published.values()}
    for row in rows:
        assert row == published[row.id]


def test_a_typed_table_is_made_of_an_older_one(cells, tmp_path):
    with OLDER.open(newline="") as file:
        older = list(csv.DictReader(file))
    for made, row in zip(converted(older), older, strict=True):
        assert made == cells[row["id"]]
        stated = {name: cell for name, cell in row.items() if cell}
        assert {name: re.sub(r"\.0$", "", made[name]) for name in stated} == {
            name: re.sub(r"\.0$", "", cell) for name, cell in stated.items()
        }
    for out in (tmp_path / "a.csv.gz", tmp_path / "b.csv.gz"):
        main(OLDER, out)
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    assert read_measurements(tmp_path / "a.csv.gz") == read_measurements(OLDER)


def test_a_column_that_would_be_lost_is_refused():
    with pytest.raises(ValueError, match="no typed table has: colour"):
        list(converted([{"id": "1", "colour": "red"}]))


def test_a_typed_table_has_every_column_that_is_read():
    assert READERS.keys() | {"id", "metric", "stat", "value", "quality"} <= set(COLUMNS)


def test_every_published_row_can_be_read_and_has_an_address(published, cells):
    assert not [row.id for row in published.values() if row.setup.flaw or row.setup.not_modelled]
    assert {row.quality for row in published.values()} == set("ABCD")
    assert all(row["source_url"] and row["metric"] and row["unit"] for row in cells.values())


def test_setups_are_those_of_the_files_that_the_rows_come_from(cells):
    """Of metadata.json of a second start in fp8 and of a server that needed none, and of deplodock's reports."""
    retried, roomy = cells["HOL-00431"], cells["HOL-00411"]
    assert [(each["kv_dtype"], each["gpu_memory_utilization"]) for each in (retried, roomy)] == [
        ("fp8", "0.95"),
        ("bf16", "0.9"),
    ]
    reports = {row["source_url"]: row for row in cells.values() if row["source"] == "cloudrift-deplodock"}
    cards = {row["hardware"] for url, row in reports.items() if "/Qwen3.6-" in url or "/Qwen3.5/" in url}
    assert cards == {"RTX 4090", "RTX PRO 6000 Blackwell Max-Q"}
    older = {url: row["engine_version"] for url, row in reports.items() if "_2025/" in url}
    assert {version for url, version in older.items() if "/h100_" in url} == {"latest (2025-11)"}
    assert {version for url, version in older.items() if "/h" not in url.split("_2025")[1]} == {"0.11.0"}


def test_the_readme_counts_every_source(published):
    listed = re.findall(r"^\| `(.+?)` \| ([\d,]+) \|", (PUBLISHED / "README.md").read_text(), re.MULTILINE)
    counted = Counter(row.setup.source for row in published.values())
    assert {name: int(many.replace(",", "")) for name, many in listed} == counted


def test_the_command_without_a_file_scores_them(published, monkeypatch):
    some = [published["AIC-00003"], *(row for row in published.values() if row.setup.source == "gpt-fast-readme")]
    monkeypatch.setattr("simulator.cli.commands.validate.read_published", lambda: some)
    found = CliRunner().invoke(build(["validate"]), ["validate", "--format", "csv"], catch_exceptions=False)
    assert [line["id"] for line in csv.DictReader(io.StringIO(found.stdout))] == [row.id for row in some]


def test_what_is_said_of_a_file_needs_one():
    found = CliRunner().invoke(build(["validate"]), ["validate", "--hardware", "l40s", "--cache-dtype", "fp8"])
    assert found.exit_code != 0
    assert "--hardware, --cache-dtype without a FILE" in found.output + str(found.exception)

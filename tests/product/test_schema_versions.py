"""Files of older schemas are read under today's keys, those of newer ones are refused; docs/trust.md lists versions."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from simulator.cli.answers.profile_lint import KINDS, schema
from simulator.errors import ProfileError
from simulator.hardware.hardware import Family, Hardware
from simulator.hardware.prices import PriceList
from simulator.profile import Profile
from simulator.profile_files import read_yaml
from simulator.profile_folders import folders
from simulator.schema_versions import KEY, RENAMED, VERSIONS
from simulator.validation.measurements import read_measurements
from tests.support.paths import ROOT

VERSION_1 = ROOT / "tests" / "fixtures" / "version_1"
ROW = {"hardware": "l40s", "model": "llama-3.1-8b", "metric": "ttft_ms", "value": "21.5"}


def test_what_0_1_0_wrote_is_read() -> None:
    """Its files, of other names for three keys, without a version."""
    family = Family.from_yaml(VERSION_1 / "consumer-gpu.yaml")
    assert (family.achievable.elementwise_memory_fraction, family.achievable.elementwise_launch_s) == (0.7, 2.2e-6)
    offers = PriceList.from_yaml(VERSION_1 / "lambda.yaml").offers
    assert [each.commitment for each in offers] == ["on-demand"] * 4

    measured = dict(read_yaml(folders("hardware_profiles")[0] / "l4.yaml"))
    measured["achievable"] = {"stream_memory_fraction": {"value": 0.7, "guess": "invented"}}
    measured["name"] = "what its calibrate wrote"
    assert Hardware.from_mapping(measured, "own.yaml").achievable.elementwise_memory_fraction == 0.7


@pytest.mark.parametrize(("given", "others"), [({KEY: 2}, {}), ({}, {"elementwise_launch_s": 1})])
def test_an_old_key_is_refused_where_it_is_not_the_old_version_s(given: dict[str, int], others: dict[str, int]) -> None:
    raw = read_yaml(VERSION_1 / "consumer-gpu.yaml")
    raw = {**raw, **given, "achievable": {**raw["achievable"], **others}}
    with pytest.raises(ProfileError, match=r"achievable: key 'stream_launch_s': it is not a known key here\. Near"):
        Family.from_mapping(raw, "own.yaml")


@pytest.mark.parametrize("profile", [each.profile for each in KINDS.values()])
def test_a_newer_file_is_refused_before_anything_of_it_is_read(profile: type[Profile]) -> None:
    latest = VERSIONS[profile.__name__]
    newer = f"own.yaml: schema_version {latest + 1}: it is newer than {latest}, the latest that this infercast reads."
    with pytest.raises(ProfileError, match=re.escape(newer)):
        profile.from_mapping({KEY: latest + 1, "of": "tomorrow"}, "own.yaml")


@pytest.mark.parametrize("given", [0, -1, True, 1.5, "1.0", "", None, 10**12, {"a": 1}])
def test_what_is_no_version_is_refused(given: object) -> None:
    with pytest.raises(ProfileError, match="a version is a whole number from 1 on"):
        Family.from_mapping({KEY: given}, "own.yaml")


@pytest.mark.parametrize("name", KINDS)
def test_the_schema_of_a_kind_allows_its_versions(name: str) -> None:
    of_version = {"$ref": "#/$defs/version", "$defs": {"version": schema(name)["properties"][KEY]}}
    latest = VERSIONS[KINDS[name].profile.__name__]
    for version in range(1, latest + 1):
        jsonschema.validate(version, of_version)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(latest + 1, of_version)


def measured(tmp_path: Path, row: Mapping[str, str]) -> Any:
    path = tmp_path / "own.csv"
    path.write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    return read_measurements(path)[0].setup


def test_words_of_measurements_count_in_version_1_alone(tmp_path: Path) -> None:
    """Which is that of a table that states none, and has not the column that came with version 2."""
    words = {**ROW, "load": "closed loop", "concurrency": "8", "notes": "12 threads"}
    for given, threads in (({}, 12), ({KEY: "1", "regime": ""}, 12), ({KEY: "2"}, 0), ({"regime": "closed_loop"}, 0)):
        assert measured(tmp_path, {**words, **given}).threads == threads
    with pytest.raises(ProfileError, match=r"own.csv, line 2: schema_version 3: it is newer than 2"):
        measured(tmp_path, {**words, KEY: "3"})


def test_the_page_lists_the_versions() -> None:
    page = (ROOT / "docs" / "trust.md").read_text()
    assert {name: int(version) for name, version in re.findall(r"^\| `(\w+)` \|.*\| (\d+) \|", page, re.M)} == VERSIONS
    assert {name for name, _ in RENAMED} | {"Measurement"} == {name for name, latest in VERSIONS.items() if latest > 1}

"""Profiles and their JSON Schemas: current, named on line 1, and met by every shipped file; what lint finds."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from simulator.cli.answers.profile_lint import FIRST_LINE, KINDS, kind, lint, schema
from simulator.profile_files import read_yaml, write_yaml
from simulator.profile_folders import SCHEMA_LINE, folders
from tests.support.for_each import for_each

SHIPPED = {name: folders(one.folder)[-1] for name, one in KINDS.items()}
FILES = [(name, path) for name, folder in SHIPPED.items() for path in sorted(folder.glob("*.yaml"))]


@pytest.mark.parametrize("name", KINDS)
def test_the_shipped_schema_is_current(name):
    written = json.loads((SHIPPED[name] / "schema.json").read_text())
    assert written == schema(name), f"run: infercast profiles {name} --schema > {SHIPPED[name]}/schema.json"
    jsonschema.Draft202012Validator.check_schema(written)


@pytest.mark.slow
@for_each("file", FILES)
def test_every_shipped_file_names_and_meets_its_schema(file):
    name, path = file
    assert path.read_text().partition("\n")[0] == FIRST_LINE
    validator(name).validate(plain(path))


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema(name))


def plain(path: Path) -> Any:
    """A profile as an editor sees it: lists are lists, keys are text."""
    return json.loads(json.dumps(read_yaml(path)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value: 300 GB/s", "value: 300"),  # no unit
        ("value: 300 GB/s", "value: 300 GFLOP/s"),  # a foreign one
        ("value: 300 GB/s", "value: -300 GB/s"),
        ("vendor:", "vender:"),
        ("device_class: datacenter-gpu", "device_class: toaster"),
        ("{value: 300 GB/s, source: ", "{value: 300 GB/s, guess: because, source: "),
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(tmp_path, old, new):
    text = (SHIPPED["hardware"] / "l4.yaml").read_text()
    assert old in text
    path = tmp_path / "l4.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(jsonschema.ValidationError):
        validator("hardware").validate(plain(path))


# -------------------------------------------------------------------------------------------------------------- lint


def test_the_shipped_library_is_clean():
    assert lint() == []


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for one in KINDS.values():
        (tmp_path / one.folder).mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("INFERCAST_PROFILES", str(tmp_path))
    return tmp_path


def edited(own: Path, name: str, file: str, *changes: tuple[str, str], to: str = "mine.yaml") -> Path:
    text = (SHIPPED[name] / file).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path = own / KINDS[name].folder / to
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "file", "change", "message"),
    [
        ("models", "llama-3.1-8b.yaml", ("intermediate: 14336", "intermediate: 14337"), "published are 8,030,261,248"),
        ("models", "llama-3.1-8b.yaml", ("kv_heads: 8", "kv_heads: 4"), "published are 131,072"),
        ("models", "llama-3.1-8b.yaml", ("# yaml", "# yml"), "line 1"),
        ("models", "llama-3.1-8b.yaml", ("of: [decoder]", "of: [encoder]"), "encoder"),
        ("prices", "runpod.yaml", ("hardware: l4,", "hardware: l44,"), "no device has the id 'l44'"),
        ("engines", "vllm-0.33.yaml", ("policy: continuous", "policy: discontinuous"), "policy"),
        ("workloads", "chat.yaml", ("burstiness:", "bursts:"), "bursts"),
    ],
)
def test_lint_finds(own, name, file, change, message):
    path = edited(own, name, file, change, to=file)
    found = [problem for where, problem in lint([name]) if where == path]
    assert any(message in problem for problem in found), found


def test_lint_finds_a_device_that_nobody_measured(own):
    change = ("device_class: cpu", "device_class: integrated-gpu"), ("family: ", "family: my-")
    path = edited(own, "hardware", "rpi5.yaml", *change, to="rpi5.yaml")
    assert lint(["hardware"]) == []  # its class has guesses for all
    folder = own / "hardware_profiles" / "families"
    (folder / "integrated-gpu.yaml").write_text(f"{FIRST_LINE}\nachievable: {{}}\n")
    found = {problem for where, problem in lint(["hardware"]) if where == path}
    assert "no achievable decode_attention, nor has its family or class" in found
    assert any("no achievable gemm for its fp32 peak" in problem for problem in found)


def test_lint_reports_all_mistakes_of_one_file(own):
    path = edited(own, "hardware", "l4.yaml", ("300 GB/s", "300"), ("24 GB", "24"), ("aliases: [", "aliases: [h100, "))
    found = [problem for where, problem in lint(["hardware"]) if where == path]
    assert sum("it has no unit" in problem for problem in found) == 2


def test_lint_finds_an_alias_of_another(own):
    path = edited(own, "hardware", "rpi5.yaml")  # under another name, with the same aliases
    problems = [problem for where, problem in lint(["hardware"]) if where in (path, SHIPPED["hardware"] / "rpi5.yaml")]
    assert any("is taken by mine" in problem for problem in problems)


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(ValueError, match="Nearest: hardware"):
        kind("hardwear")


def test_a_profile_that_calibrate_writes_names_the_shipped_schema(tmp_path):
    shipped = SHIPPED["engines"]
    path = write_yaml(tmp_path / "engines" / "mine-1.yaml", "engines", read_yaml(shipped / "static-1.yaml"))
    first = path.read_text().partition("\n")[0]
    assert first.startswith(SCHEMA_LINE)
    assert (path.parent / first.removeprefix(SCHEMA_LINE)).samefile(shipped / "schema.json")

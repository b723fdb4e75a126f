"""`infercast doctor` finds what is broken, and says how to mend it."""

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from simulator.cli.answers import profile_lint
from simulator.cli.commands import doctor
from simulator.scheduler.jit import cache_folder
from tests.support.commands import infercast


def found(**environment: str) -> tuple[int, dict[str, dict]]:
    done = infercast("doctor", "--format", "json", **environment)
    return done.returncode, {each["what"]: each for each in json.loads(done.stdout)["findings"]}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Problems of the shipped profiles are found in tests/cli/test_profile_lint.py; here are those of sites alone."""
    monkeypatch.setattr(profile_lint, "KINDS", {"sites": profile_lint.KINDS["sites"]})


def test_all_is_well_here():
    code, each = found()
    assert code == 0
    assert {row["state"] for name, row in each.items() if not name.startswith("extra")} == {"ok"}
    assert {"python", "processor", "numba", "machine code", "profiles of sites", "extra reference"} <= each.keys()


def test_a_cache_that_cannot_be_written(tmp_path):
    cache_folder.cache_clear()
    (tmp_path / "file").write_text("")
    try:
        code, each = found(NUMBA_CACHE_DIR=str(tmp_path / "file"))
    finally:
        cache_folder.cache_clear()
    assert code == 1
    assert each["machine code"]["state"] == "BROKEN"
    assert "NUMBA_CACHE_DIR" in each["machine code"]["found"]


def test_a_user_without_a_home(monkeypatch):
    """As containers have them: without a name either."""

    def nameless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    cache_folder.cache_clear()
    monkeypatch.setattr(Path, "home", nameless)
    try:
        code, each = found(NUMBA_CACHE_DIR="", XDG_CACHE_HOME="")
    finally:
        cache_folder.cache_clear()
    assert (code, each["machine code"]["state"]) == (1, "BROKEN")
    assert each["machine code"]["found"].startswith("there is no home: ~; set NUMBA_CACHE_DIR")


def test_a_broken_profile_of_the_user(tmp_path):
    (tmp_path / "hardware_profiles" / "sites").mkdir(parents=True)
    (tmp_path / "hardware_profiles" / "sites" / "mine.yaml").write_text("pue: 0.5")
    code, each = found(INFERCAST_PROFILES=str(tmp_path))
    assert code == 1
    assert "mine.yaml" in each["profiles of sites"]["found"]


def test_what_is_not_installed(monkeypatch):
    """Of what is needed it is broken, of an extra it is missing."""
    known = doctor.version

    def version(name: str) -> str:
        if name in ("numba", "gguf"):
            raise PackageNotFoundError(name)
        return "1" if name in ("torch", "safetensors", "tokenizers") else known(name)

    monkeypatch.setattr(doctor, "version", version)
    code, each = found()
    assert code == 1
    assert each["numba"]["state"] == "BROKEN"
    assert each["extra reference"] == {
        "what": "extra reference",
        "state": "missing",
        "found": "gguf: pip install 'infercast[reference]'",
    }

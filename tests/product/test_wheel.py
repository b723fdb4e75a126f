"""The wheel carries every profile, and works from where it is installed."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT], check=True)
    return next(folder.glob("infercast-*.whl"))


@pytest.mark.slow
def test_holds_every_profile_and_the_published_measurements(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    for kind in ("hardware_profiles", "model_profiles"):
        for path in (ROOT / kind).rglob("*.yaml"):
            assert f"simulator/profiles/{path.relative_to(ROOT)}" in inside
    for kind in ("engines", "workloads"):
        for path in (ROOT / "simulator" / kind).glob("*.yaml"):
            assert f"simulator/{kind}/{path.name}" in inside
    for name in ("measurements.csv.gz", "round2.csv.gz", "README.md"):
        assert f"simulator/validation/published/{name}" in inside


@pytest.mark.slow
def test_works_where_it_is_installed(wheel, tmp_path):
    subprocess.run([*PIP, "install", "--no-deps", "--target", tmp_path, wheel], check=True)
    command = ["cost", "--model", "llama-3.2-1b", "--hardware", "l4", "--isl", "100", "--osl", "10", "--rate", "1"]
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            "import simulator, simulator.cli as cli; print(simulator.__file__); cli.main()",
            *command,
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "INFERCAST_PROFILES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    where, _, printed = done.stdout.partition("\n")
    assert where == str(tmp_path / "simulator" / "__init__.py")
    assert "one copy carries" in printed

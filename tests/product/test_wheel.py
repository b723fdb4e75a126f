"""The wheel carries every profile, and works from where it is installed."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from simulator.hardware.prices import offers
from tests.support.paths import ROOT

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
    assert "simulator/py.typed" in inside
    for path in (ROOT / "simulator" / "html").glob("page.*"):
        assert f"simulator/html/{path.name}" in inside
    for name in ("measurements.csv.gz", "round2.csv.gz", "README.md"):
        assert f"simulator/validation/published/{name}" in inside


PROGRAM = """
import simulator, simulator.cli
from simulator.hardware.prices import offers
print(simulator.__file__)
print(offers("l4")[0].date)
simulator.cli.main()
"""


@pytest.mark.slow
def test_works_where_it_is_installed(wheel, tmp_path):
    """It finds profiles, prices, engines and workloads there; as plain Python, which need not be compiled first."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    command = ["simulate", "--model", "llama-3.2-1b", "--hardware", "l4", "--workload", "chat", "--num-prompts", "5"]
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, *command, "--rate", "1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "INFERCAST_PROFILES": "", "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    where, price, printed = done.stdout.split("\n", 2)
    assert where == str(tmp_path / "simulator" / "__init__.py")
    assert price == offers("l4")[0].date
    assert "TTFT" in printed


SCRIPT = """
from simulator import Batch, ClosedLoop, Fixed, Independent, Scenario, Workload, capacity, deploy, estimate, parse_slo

deployment = deploy("llama-3.1-8b", "h100-sxm")
seconds: float = estimate(deployment, Batch(8, 1024, 128)).expected.ttft_s
load = Workload(ClosedLoop(16), Independent(Fixed(512), Fixed(128)))
found = capacity(Scenario(deployment, load, parse_slo("ttft:500ms")))
print(found.rate_per_s / seconds, found.to_frame())
"""
MISTAKES = """
from simulator import Batch, deploy, estimat
reveal_type(deploy("llama-3.1-8b", 80))
"""


@pytest.mark.slow
def test_a_users_script_is_type_checked(wheel, tmp_path):
    """mypy --strict accepts right code against the installed package, and finds the mistakes in wrong code."""
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    site = next(home.glob("lib/python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    ours = next(each for each in sys.path if each.endswith("site-packages"))
    (site / "dependencies.pth").write_text(f"{ours}\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    check = [sys.executable, "-m", "mypy", "--strict", "--python-executable", home / "bin" / "python"]
    streams = {"cwd": tmp_path, "capture_output": True, "text": True}
    wrong = subprocess.run([*check, "script.py", "mistakes.py"], check=False, **streams).stdout
    assert "script.py" not in wrong
    assert 'has no attribute "estimat"' in wrong
    assert 'Argument 2 to "deploy" has incompatible type "int"' in wrong
    assert 'Revealed type is "simulator.deployment.deployment.Deployment"' in wrong

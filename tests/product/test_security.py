"""docs/security.md: what a file says is never run, and what it holds does no harm on its way out."""

import csv
import io
import shutil
from pathlib import Path

import matplotlib as mpl
import pytest

from simulator.cli.output import Column, Result, View
from simulator.cli.text_layout import Format
from simulator.errors import InfercastError
from simulator.hardware.hardware import load_hardware
from simulator.profile import find
from tests.support.commands import infercast, refused
from tests.support.paths import ROOT

SAFE = ("l40s", "-", "a=b", "", "1.5")
FORMULAS = ("=1+1", "+1", "-1+cmd", "@SUM(A1)", "\t=1", "\r=1")


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_is_text_in_csv(name: str) -> None:
    text = Result({"rows": [{"model": name, "usd": -1.5}]}, []).render(Format.CSV, 80)
    [row] = csv.DictReader(io.StringIO(text, newline=""))
    assert row == {"model": f"'{name}" if name.isprintable() else f" {name[1:]}", "usd": "-1.5"}


def test_other_text_stays_as_it_is_in_csv() -> None:
    text = Result({"rows": [{"model": name, "usd": 1} for name in SAFE]}, []).render(Format.CSV, 80)
    assert [row["model"] for row in csv.DictReader(io.StringIO(text))] == list(SAFE)


def test_text_does_not_steer_a_terminal() -> None:
    hostile = "a\x1b]0;owned\x07\x1b[2J[red]b[/red]\u202e"
    view = View(hostile, [Column("model", "model")], [{"model": hostile}])
    text = Result({}, [view], [hostile]).render(Format.TEXT, 80)
    assert set(text) & set("\x1b\x07\u202e") == set()
    assert "[red]b[/red]" in text  # shown, not obeyed


def test_a_name_is_no_formula_in_a_plot(tmp_path: Path) -> None:
    from simulator.plots.plot_file import save  # noqa: PLC0415  slow to load

    figure = mpl.figure.Figure()
    figure.add_subplot(xscale="log", xlim=(1, 1e4), title=r"a $\input{x}$ b <script>alert(1)</script>")
    save(figure, tmp_path / "a.svg")
    assert "<script>alert" not in (tmp_path / "a.svg").read_text()


def test_a_name_leads_to_no_other_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hardware_profiles").mkdir()
    shutil.copy(ROOT / "hardware_profiles" / "l40s.yaml", tmp_path / "evil.yaml")
    monkeypatch.setenv("INFERCAST_PROFILES", str(tmp_path))
    for name in ("../evil", f"{tmp_path}/evil", "x/../../evil"):
        with pytest.raises(InfercastError, match="no hardware profile"):
            find("hardware_profiles", name)


def test_a_family_leads_to_no_other_folder(tmp_path: Path) -> None:
    text = (ROOT / "hardware_profiles" / "l40s.yaml").read_text()
    family = next(line for line in text.splitlines() if line.startswith("family:"))
    (tmp_path / "mine.yaml").write_text(text.replace(family, f"family: {tmp_path}/other"))
    (tmp_path / "other.yaml").write_text("never: read")
    assert load_hardware(str(tmp_path / "mine.yaml")).id == "mine"


def test_two_engines_that_run_each_others_kernels_are_refused(tmp_path: Path) -> None:
    text = (ROOT / "simulator" / "engines" / "vllm-0.33.yaml").read_text()
    body = "\n".join(line for line in text.split("\nkernels:")[0].splitlines() if not line.startswith("kernels_of"))
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path / f"{name}.yaml").write_text(f"{body}\nkernels_of: {tmp_path}/{other}.yaml\n")
    told = infercast("estimate", "--model", "smollm2-135m", "--hardware", "l4", "--engine", str(tmp_path / "one.yaml"))
    assert told.returncode == 2
    assert told.stderr.startswith("infercast: error: ")


def test_a_tag_of_yaml_makes_no_object(tmp_path: Path) -> None:
    path = tmp_path / "evil.yaml"
    path.write_text("name: !!python/object/apply:os.system ['touch owned']")
    assert "plain values only" in refused("estimate", "--model", str(path), "--hardware", "l4")
    assert shutil.which("touch")
    assert not Path("owned").exists()

"""Commands that run the reference engine: what they need, what they say while they last, and what they print."""

import json
import time
from itertools import pairwise

import pytest

from simulator.cli.options import reference_options
from simulator.cli.options.reference_options import Status, repeat_line, status
from tests.support.commands import Done, in_a_process_of_their_own

EXTRA = ("torch", "gguf", "safetensors", "tokenizers")
BLOCKED = f"""
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRA}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
"""
HELP = {
    ("calibrate",): "--like",
    ("calibrate", "--measured", "x.csv"): "--measured",
    ("check",): "--num-prompts",
    ("reference",): "--max-tokens",
    ("check-log",): "--hardware",
}
NEEDY = (("calibrate", "--out", "out"), ("check",), ("reference", "generate", "Hello"))
MEASURED = ((1, 40.0), (8, 44.0))


# ---------------------------------------------------------------------------------------------- without the extra


@pytest.fixture(scope="module")
def without_the_extra(tmp_path_factory) -> dict[tuple[str, ...], Done]:
    """Commands in a process in which nothing of the extra [reference] can be imported."""
    folder = tmp_path_factory.mktemp("without")
    rows = [f"l40s,llama-3.1-8b,vllm,0.33.0,1,fixed-batch,{batch},512,128,tpot_ms,{ms}" for batch, ms in MEASURED]
    columns = "hardware,model,engine,engine_version,tp,load,batch,input_len,output_len,metric,value"
    (folder / "mine.csv").write_text("\n".join([columns, *rows, ""]))
    measured = ("calibrate", "--measured", str(folder / "mine.csv"), "--out", str(folder), "--format", "json")
    commands = [*((*command, "--help") for command in HELP), *NEEDY, measured]
    done = in_a_process_of_their_own(*commands, before=BLOCKED)
    return dict(zip([*commands[:-1], ("measured",)], done, strict=True))


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help_needs_no_torch(command, without_the_extra):
    done = without_the_extra[*command, "--help"]
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: infercast {command[0]}")
    assert HELP[command] in done.stdout


@pytest.mark.parametrize("command", NEEDY, ids=" ".join)
def test_a_missing_extra_is_one_line_that_names_it(command, without_the_extra):
    done = without_the_extra[command]
    assert (done.returncode, done.stdout) == (2, "")
    missing = "the reference engine: torch, gguf, safetensors, tokenizers not installed"
    assert done.stderr == f"infercast: error: {missing}. pip install 'infercast[reference]'.\n"


def test_calibrating_to_measurements_needs_no_torch(without_the_extra):
    done = without_the_extra["measured",]
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["calibration"][-1]["rows"] == len(MEASURED)


# ------------------------------------------------------------------------------------------- what it does meanwhile


class Afternoon:
    """A clock that a waiting thread moves, with what is done from which second on."""

    def __init__(self, done_s: float, says: dict[float, str]) -> None:
        self.now_s, self.done_s, self.says = 0.0, done_s, says
        self.told = Status("check", lambda: self.now_s)

    def over(self, seconds: float) -> bool:
        end_s = min(self.now_s + seconds, self.done_s)
        for at_s in sorted(each for each in self.says if self.now_s < each <= end_s):
            self.now_s = at_s
            self.told(self.says[at_s])
        self.now_s = end_s
        return end_s == self.done_s


def test_a_line_comes_within_ten_seconds_and_then_every_ten():
    day = Afternoon(95.0, {1.0: "ceilings", 25.0: "the same cells in another process", 90.0: "100 requests"})
    lines = []
    repeat_line(day.told, day.over, lambda line: lines.append((day.now_s, line)))
    times = [0.0, *(at_s for at_s, _ in lines), day.done_s]
    assert times[1] <= 10
    assert max(after - before for before, after in pairwise(times)) <= 10
    assert lines[0] == (2.0, "infercast check: ceilings, for 1 s\n")
    assert lines[3] == (32.0, "infercast check: the same cells in another process, for 7 s\n")
    assert lines[-1] == (92.0, "infercast check: 100 requests, for 2 s\n")


def test_a_short_command_says_nothing():
    day, lines = Afternoon(1.9, {0.1: "generating"}), []
    repeat_line(day.told, day.over, lines.append)
    assert lines == []


def test_lines_go_to_stderr_while_it_lasts_and_no_longer(monkeypatch, capsys):
    monkeypatch.setattr(reference_options, "FIRST_LINE_S", 0.01)
    monkeypatch.setattr(reference_options, "NEXT_LINE_S", 0.01)
    with pytest.raises(ZeroDivisionError), status("check") as told:
        told("waiting for a second process")
        time.sleep(0.3)
        raise ZeroDivisionError
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "infercast check: waiting for a second process, for 0 s\n" in printed.err
    time.sleep(0.1)
    assert capsys.readouterr().err == ""

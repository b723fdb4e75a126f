"""docs/questions.md: each question has one command, and every command answers."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.support.commands import in_a_process_of_their_own
from tests.support.model_configs import sized
from tests.support.paths import ROOT

QUESTIONS = (ROOT / "docs" / "questions.md").read_text()
COMMANDS = re.findall(r"^ +```sh\n +(.*)\n +```", QUESTIONS, re.MULTILINE)
TRACE = "at,in_tokens,out_tokens\n" + "".join(f"{0.2 * each:.1f},{300 + each},{20 + each % 7}\n" for each in range(60))


def test_there_are_25_questions_with_a_command_each():
    numbers = [int(each) for each in re.findall(r"^(\d+)\. \*\*.*\?\*\*", QUESTIONS, re.MULTILINE)]
    assert numbers == list(range(1, 26))
    assert len(COMMANDS) == 25


@pytest.mark.slow
def test_every_command_answers(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "fixtures" / "bench" / "invented_vllm_serve.json", tmp_path / "results.json")
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "config.json").write_text(json.dumps(sized("llama", "32 4096 32 32 11008 32016 16384")))
    (tmp_path / "mine" / "model_profiles").mkdir(parents=True)
    words = [shlex.split(each)[1:] for line in COMMANDS for each in line.split(" && ")]
    done = in_a_process_of_their_own(*words, folder=tmp_path)
    assert [(each.stderr, asked) for each, asked in zip(done, words, strict=True) if each.returncode] == []
    assert all(each.stdout for each in done)
    assert (tmp_path / "pareto.png").stat().st_size > 1000

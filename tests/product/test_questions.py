"""docs/questions.md: every command runs, and its answer holds the words (in bold) that the page tells to read."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.support.commands import infercast
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "questions.md").read_text()
QUESTION = re.compile(r"^### (\d+)\. ([^\n]+)\n\n```sh\n([^\n]+)\n```\n\n(.+?)\n(?=\n|\Z)", re.MULTILINE | re.DOTALL)
FILE = re.compile(r'```(?:csv|json) title="(\S+)"\n(.*?)```', re.DOTALL)
QUESTIONS = QUESTION.findall(PAGE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the page shows, a result file, and a device of one's own: a copy of one that is shipped."""
    found = tmp_path_factory.mktemp("questions")
    for name, text in FILE.findall(PAGE):
        (found / name).write_text(text)
    shutil.copy(ROOT / "tests" / "fixtures" / "bench" / "invented_vllm_serve.json", found / "results.json")
    devices = found / "mine" / "hardware_profiles"
    devices.mkdir(parents=True)
    shipped = (ROOT / "hardware_profiles" / "l40s.yaml").read_text()
    text = re.sub(r"^id: .*$", "id: my-gpu", shipped, flags=re.MULTILINE)
    (devices / "my-gpu.yaml").write_text(re.sub(r"^aliases: .*$", "aliases: []", text, flags=re.MULTILINE))
    return found


def test_the_page_has_25_questions():
    assert [int(number) for number, *_ in QUESTIONS] == list(range(1, 26))


@pytest.mark.slow
@pytest.mark.parametrize(("command", "reading"), [each[2:] for each in QUESTIONS], ids=[each[0] for each in QUESTIONS])
def test_a_question_is_answered(command, reading, folder):
    printed = ""
    for each in command.split(" && "):
        done = infercast(*shlex.split(each)[1:], folder=folder)
        assert done.returncode == 0, done.stderr
        printed += done.stdout
    words = re.findall(r"\*\*([^*]+)\*\*", reading)
    assert words
    for each in words:
        assert " ".join(each.split()) in " ".join(printed.split())

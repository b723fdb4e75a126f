"""What is scored is what users type: the command that is printed for a published row answers as `validate` does.

Rows are drawn anew in every run; SEED=number repeats one.
"""

import json
import math
import os
import random
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import InfercastError
from simulator.questions.batch_question import BatchQuestion
from simulator.validation.commands import row_commands
from simulator.validation.measurements import Measurement, Setup, read_measurements
from simulator.validation.prediction import ask, predict
from tests.support import measured
from tests.support.commands import infercast, printed
from tests.support.measured import setup

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**9))
LINE = re.compile(r"(?P<command>infercast .+?)  # \S+: \S+ .+? = (?:(?P<scale>\S+) x )?(?P<key>\S+)")
Pair = tuple[str, str]  # source and regime


@pytest.fixture(scope="module")
def published() -> dict[Pair, dict[Setup, list[Measurement]]]:
    """The rows of each setup, by source and regime."""
    found: dict[Pair, dict[Setup, list[Measurement]]] = defaultdict(lambda: defaultdict(list))
    for row in measured.published():
        found[row.setup.source, str(row.setup.regime)][row.setup].append(row)
    return found


def answered(command: str) -> dict[str, Any] | str:
    """Return the row that a command prints, or why it refuses."""
    words = shlex.split(command)
    assert words[0] == "infercast"
    done = infercast(*words[1:])
    if done.returncode:
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        return done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    (row,) = found["estimates"] if "estimates" in found else found["simulations"]
    return row


def disagreements(rows: Sequence[Measurement], lines: Iterable[str]) -> list[str]:
    """Run the command of each row; return what is not, to the last digit, what `validate` predicts."""
    told: dict[str, dict[str, Any] | str] = {}
    found = []
    for line, prediction in zip(lines, predict(rows, level=0.8), strict=True):
        wanted = (prediction.value, prediction.low, prediction.high)
        match = LINE.fullmatch(line)
        if match is None:
            assert line == f"# {line[2:].partition(': not predicted: ')[0]}: not predicted: {prediction.reason}", line
            continue
        command, scale, key = match["command"], float(match["scale"] or 1), match["key"]
        if command not in told:
            told[command] = answered(command)
        row = told[command]
        if isinstance(row, str):
            got = (None, None, None) if prediction.reason in row else row
        else:
            values = (row[key], row.get(f"{key}_low"), row.get(f"{key}_high"))
            got = tuple(None if each is None else scale * each for each in values)
        if got != wanted:
            found.append(f"validate: {wanted} {prediction.reason}\ncommand: {got}\n{line}")
    return found


def agree(rows: Sequence[Measurement], least: int) -> None:
    """Require that all commands answer as `validate`, of which there are so many at least."""
    lines = [*row_commands(rows)]
    assert sum(LINE.fullmatch(line) is not None for line in lines) >= least, f"SEED={SEED}"
    wrong = disagreements(rows, lines)
    assert not wrong, f"SEED={SEED}\n" + "\n\n".join(wrong)


def steps(setup: Setup) -> float:
    """Count roughly the steps of an answer: none for a batch, endless for what is not predicted."""
    try:
        asked = ask(setup)
    except InfercastError:
        return math.inf
    question = asked.question
    if isinstance(question, BatchQuestion):
        return 0.0
    ((_, workload),) = question.users.workloads(question.run.shares)
    together = min(workload.arrivals.concurrency or 1, asked.deployment.max_num_seqs)
    return workload.request_count * float(workload.requests().output_tokens.mean()) / together


@pytest.mark.slow
def test_commands_of_batches_and_short_loops_answer_as_validate(published):
    rng, rows = random.Random(SEED), []
    of = {regime: [published[pair] for pair in sorted(published) if pair[1] == regime] for _, regime in published}
    for setups in rng.sample([*of["fixed_batch"], *of["single"]], 20):
        rows += setups[rng.choice(list(setups))]
    for setups in rng.sample(of["closed_loop"], 5):
        rows += setups[min(rng.sample(list(setups), min(8, len(setups))), key=steps)]
    agree(rows, least=20)


@pytest.mark.slow
def test_commands_of_every_source_and_regime_answer_as_validate(published):
    rng, rows = random.Random(SEED), []
    for pair in sorted(published):
        setups = published[pair]
        rows += [row for each in rng.sample(list(setups), min(2, len(setups))) for row in setups[each]]
    agree(rows, least=150)


ROWS = [Measurement(metric, setup(), metric, "mean", 1.0, "A") for metric in ("ttft_ms", "tpot_ms")]


@pytest.mark.parametrize("option", ["--max-num-batched-tokens 1024", "--seed 1", "--interval 0.7"])
def test_a_command_that_asks_something_else_is_found_out(option):
    lines = [*row_commands(ROWS)]
    assert not disagreements(ROWS, lines)
    others = [line.replace(" --format", f" {option} --format", 1) for line in lines]
    assert len(disagreements(ROWS, others)) == len(ROWS)


def test_a_fleet_behind_a_balancer_answers_as_validate():
    balanced = setup(source="cloudrift-deplodock", replicas=2, devices=2, concurrency=8, num_prompts=24)
    rows = [replace(row, setup=balanced) for row in ROWS]
    assert all("--replicas 2 --router least-connections --router-workers 52" in line for line in row_commands(rows))
    agree(rows, least=len(ROWS))


@pytest.mark.slow
def test_a_row_is_one_line_of_shell():
    """With all that a shell would read: the row's id and the key of its metric are a comment."""
    lines = [*row_commands(ROWS)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(lines[0], shell=True, env={**os.environ, "PATH": path}, capture_output=True, check=True)
    assert json.loads(done.stdout)["simulations"][0]["mean_ttft_ms"] == predict(ROWS)[0].value
    assert [line.partition("  # ")[2] for line in lines] == [
        "ttft_ms: ttft_ms mean = mean_ttft_ms", "tpot_ms: tpot_ms mean = mean_tpot_ms",
    ]  # fmt: skip


def test_the_first_token_of_one_prompt_of_a_batch_is_a_question_of_its_own():
    """A source that computed one prompt alone for TTFT, and a whole batch for the rest."""
    batch = setup(regime="fixed_batch", batch=16, prefill_batch=1, concurrency=0)
    rows = [Measurement(metric, batch, metric, "mean", 1.0, "A") for metric in ("ttft_ms", "e2e_latency_ms", "tpot_ms")]
    first, whole, step = row_commands(rows)
    assert "--batch 16" not in first
    assert "--batch 16" in whole
    assert (first.rpartition("= ")[2], step.rpartition("= ")[2]) == ("1000 x ttft_s", "1000 x tpot_s")
    assert not disagreements(rows, row_commands(rows))


def test_a_row_that_is_not_predicted_is_a_comment_with_the_reason():
    rows = [replace(ROWS[0], setup=replace(setup(), **odd)) for odd in ({"model": "Nobody-7B"}, {"input_tokens": 0.0})]
    unknown, unstated = row_commands(rows)
    assert unknown.startswith("# ttft_ms: ttft_ms mean: not predicted: no model profile 'Nobody-7B'")
    assert unstated.startswith("# ttft_ms: ttft_ms mean: not predicted: lengths: the source does not state them")
    assert not disagreements(rows, row_commands(rows))


def test_validate_prints_the_command_of_each_row(tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text(
        "hardware,model,engine,tp,input_len,output_len,regime,batch,concurrency,metric,value\n"
        "h100-sxm,llama-3.1-8b,vllm,1,1024,128,fixed_batch,4,,tpot_ms,10\n"
        "h100-sxm,llama-3.1-8b,vllm,1,1024,128,closed_loop,,8,ttft_ms,90\n"
    )
    assert printed("validate", str(table), "--commands").splitlines() == [*row_commands(read_measurements(table))]

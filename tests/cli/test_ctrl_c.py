"""Ctrl-C keeps what is finished, says what is not, and ends with the code of an interrupt."""

import json

import pytest

from simulator import cli
from simulator.cli import output
from simulator.cli.commands import report
from simulator.questions import cost_question
from simulator.validation import parallel
from tests.support.commands import infercast

COST = ("cost", "--model", "llama-3.1-8b", "--hardware", "h100-sxm,l40s,a100-sxm-80", "--isl", "512", "--osl", "32")
LOAD = ("--rate", "1", "--num-prompts", "100", "--slo", "ttft:2s", "--jobs", "1")  # calls are counted in one process


def interrupted_at(call: int, work):
    """`work`, of which one call is Ctrl-C."""
    calls = 0

    def counted(*arguments, **named):
        nonlocal calls
        calls += 1
        if calls == call:
            raise KeyboardInterrupt
        return work(*arguments, **named)

    return counted


def test_a_sweep_keeps_what_is_finished():
    values, refused = output.tried([lambda: 1, interrupted_at(1, int), lambda: 3])
    assert values == [1]
    assert [str(each).partition(":")[0] for each in refused] == ["2 of 3 cases"]
    with pytest.raises(KeyboardInterrupt):
        output.tried([interrupted_at(1, int), int])


def test_cost_prints_the_deployments_that_it_has(monkeypatch):
    monkeypatch.setattr(cost_question, "answer", interrupted_at(3, cost_question.answer))
    done = infercast(*COST, *LOAD, "--format", "json")
    found = json.loads(done.stdout)
    assert done.returncode == 130
    assert {each["hardware"] for each in found["answers"]} == {"h100-sxm", "l40s"}
    assert found["refused"][-1]["given"] == "1 of 3 cases"


@pytest.mark.slow
def test_a_report_has_the_deployments_that_it_has(monkeypatch, tmp_path):
    monkeypatch.setattr(report, "answer", interrupted_at(2, report.answer))
    done = infercast("report", *COST[1:], *LOAD, "--out", str(tmp_path / "page.html"))
    assert done.returncode == 130
    assert "h100-sxm" in done.stdout
    assert "2 of 3 cases" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_nothing_is_printed_where_nothing_is_finished(monkeypatch):
    monkeypatch.setattr(cost_question, "answer", interrupted_at(1, cost_question.answer))
    done = infercast(*COST, *LOAD)
    assert (done.returncode, done.stdout) == (130, "")


def test_an_interrupt_of_an_import_is_no_traceback(monkeypatch):
    monkeypatch.setattr(cli, "import_module", interrupted_at(1, cli.import_module))
    done = infercast(*COST, *LOAD)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_validate_scores_what_it_has(monkeypatch, tmp_path):
    monkeypatch.setattr(parallel, "GROUP_SETUPS", 1)
    monkeypatch.setattr(parallel, "predict", interrupted_at(2, parallel.predict))
    rows = [f"m{batch},h100-sxm,llama-3.1-8b,bf16,vllm,0.33.0,1,512,128,{batch},tpot_ms,7" for batch in (1, 8)]
    head = "id,hardware,model,weight_dtype,engine,engine_version,tp,input_len,output_len,batch,metric,value"
    (tmp_path / "two.csv").write_text("\n".join([head, *rows]))
    done = infercast("validate", str(tmp_path / "two.csv"), "--format", "json")
    found = json.loads(done.stdout)
    assert done.returncode == 130
    assert found["summary"] == [{"rows": 2, "rows_predicted": 1}]
    assert found["not_covered"] == [{"reason": parallel.INTERRUPTED, "rows": 1}]

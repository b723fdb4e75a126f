"""Mutation tests: are small wrong changes of a module noticed by its tests? The table in docs/trust.md.

    python -m tools.mutate [--count 20] [--only cost/bill.py,..] [--survivors] [--write]

A process imports a module; for each mutant (`mutants.py`) a fork of it takes the changed functions (`adopt.py`) and
runs the tests that tools/mutated_modules.yaml names, until one fails. No file is changed. Compiled functions run as
plain Python. Survivors stand with a reason in tools/survivors.yaml. Results are kept in out/mutants.json, so that a
part can be done again: `--survivors` tries only what survived before; `--count 0` only makes the page.
"""

import argparse
import json
import os
import re
import signal
import traceback
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from tools.adopt import adopt
from tools.mutants import mutants
from tools.trust_page import put, table

ROOT = Path(__file__).parents[1]
RESULTS, REASONS = ROOT / "out" / "mutants.json", ROOT / "tools" / "survivors.yaml"
OUTPUT = ROOT / "out" / "mutant.txt"  # of the tests that ran last
OPTIONS = ["-x", "-m", "not slow", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--hypothesis-profile=unshrunk"]
OPTIONS += ["--tb=line", "--assert=plain"]  # one failure is enough, and it is not explained
SEED = 19
PATIENCE = 1.5, 5.0  # times the CPU seconds of the unchanged module's tests, and seconds more
LONGEST_S = 300.0  # of CPU, and by the clock for a mutant that waits


def main() -> None:
    """Run the mutants and print, or write, what survived."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=20)
    options.add_argument("--only", default="")
    options.add_argument("--survivors", action="store_true")
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    tests: dict[str, list[str]] = yaml.safe_load((ROOT / "tools" / "mutated_modules.yaml").read_text())
    RESULTS.parent.mkdir(exist_ok=True)
    known = _kept() if given.survivors else {}
    for module in (given.only.split(",") if given.only else tests) if given.count else ():
        child = os.fork()  # one for each module: its imports, and whether functions are compiled, are its own
        if not child:
            _leave_with(partial(_keep, module, tests[module], given.count, known.get(module)))
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            print(f"{module}: its tests fail unchanged: {OUTPUT}", flush=True)  # noqa: T201
    text = page(_kept())
    put("mutants", text) if given.write else print(text)  # noqa: T201


def _kept() -> dict[str, Any]:
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}


def _keep(module: str, files: Sequence[str], count: int, again: dict[str, Any] | None) -> int:
    found = survivors(module, files, count, again)
    RESULTS.write_text(json.dumps(_kept() | {module: found}, indent=1))
    return 0


def _leave_with(work: Any) -> None:
    """Leave a forked process with what `work` returns; 1 if it raises."""
    code = 1
    try:
        code = work()
    except Exception:  # noqa: BLE001  a fork must not go on with its parent's work
        traceback.print_exc()
    finally:
        os._exit(code)


def survivors(module: str, files: Sequence[str], count: int, again: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run mutants of one module; return how many there were and the names of those that no test noticed.

    `again`: what this returned before, of which only the survivors are tried.
    """
    path = ROOT / "simulator" / module
    os.environ["NUMBA_DISABLE_JIT"] = str(int("@compiled" in path.read_text()))
    live = import_module(f"simulator.{module.removesuffix('.py').replace('/', '.')}")
    import_module("pytest")  # here, not in every fork
    for each in {each.partition("::")[0] for each in files if each.startswith("tests/")}:
        for name in re.findall(r"^from (simulator[\w.]*) import", (ROOT / each).read_text(), re.MULTILINE):
            import_module(name)  # the tests themselves are left to pytest, which rewrites them
    source, started = path.read_text(), _cpu_s()
    if not _passes(live, source, files, LONGEST_S):
        raise RuntimeError(f"{module}: its tests fail, or take too long, without a change")
    patience_s = PATIENCE[0] * (_cpu_s() - started) + PATIENCE[1]
    chosen, left = mutants(source, again["mutants"] if again else count, f"{SEED} {module}"), []
    for mutant in chosen:
        if again and mutant.name not in again["survivors"]:
            continue
        if survived := _passes(live, mutant.source, files, patience_s):
            left.append(mutant.name)
        print("SURVIVED" if survived else "caught  ", module, mutant.name, flush=True)  # noqa: T201
    return {"mutants": len(chosen), "survivors": left}


def _cpu_s() -> float:
    """CPU seconds of the forks so far: unlike the clock, the same on a busy machine."""
    spent = os.times()
    return spent.children_user + spent.children_system


def _passes(live: Any, source: str, files: Sequence[str], patience_s: float) -> bool:
    """Run the tests in a fork; return whether all pass. One that hangs, or breaks on import, does not."""
    child = os.fork()
    if not child:
        _leave_with(lambda: _test(live, source, files, patience_s))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 4 or code == 5:  # noqa: PLR1714  pytest: bad usage, no tests
        raise RuntimeError(f"pytest found no tests in {', '.join(files)}")
    return code == 0


def _test(live: Any, source: str, files: Sequence[str], patience_s: float) -> int:
    import pytest  # noqa: PLC0415

    signal.setitimer(signal.ITIMER_PROF, patience_s), signal.setitimer(signal.ITIMER_REAL, 10 * LONGEST_S)
    output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1), os.dup2(output, 2)
    adopt(live, source)
    return pytest.main([*OPTIONS, *files])


def page(results: dict[str, Any]) -> str:
    """Return the table of modules, and the survivors with their reasons."""
    reasons = yaml.safe_load(REASONS.read_text()) or {}
    rows, told, everything, missed = [], [], 0, 0
    for module, found in sorted(results.items()):
        count, left = found["mutants"], found["survivors"]
        everything, missed = everything + count, missed + len(left)
        rows.append([module, str(count), f"{1 - len(left) / count:.0%}"])
        for name in left:
            known = reasons.get(module, {})
            reason = known.get(name) or known.get(name.partition(":")[0], "no reason: a test is missing")
            told.append(f"- {module}: `{name}`: {reason}")
    rows.append(["all", str(everything), f"{1 - missed / max(1, everything):.0%}"])
    listed = "\n".join(told) or "None."
    return f"{table(['module', 'mutants', 'caught'], rows)}\n\nWhat survived:\n\n{listed}"


if __name__ == "__main__":
    main()

"""Try changed files and command lines on infercast, and tell which it does not answer as it should.

    python -m tools.fuzz [--seconds 600] [--seed N] [--write] [target ...]

Each answer is a result of finite numbers, or an error of one line, within the target's seconds of CPU and `SPARE_BYTES`
of memory; all else is a finding: its command line and its file are kept in out/fuzz/. Cases run in children that are
forked from a warm process, because a new one takes a second to import. The same seed makes the same cases while files
and changes are the same; without one each target takes the seed after that of its last run in docs/trust.md.
"""

import argparse
import contextlib
import io
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from datetime import date
from pathlib import Path
from random import Random
from typing import NamedTuple, NoReturn

from simulator.cli import main
from tools.fuzz_targets import OPTIONS, TARGETS, Target
from tools.mutations import mutated, mutated_words
from tools.trust_page import put, rows, table

SPARE_BYTES = 500e6
CHUNK = 50  # cases of one child
KEPT = Path("out") / "fuzz"
NOT_FINITE = re.compile(r"\b(?:nan|NaN|inf|Infinity)\b")


class Case(NamedTuple):
    """A command line, and the text of the file that it reads, None without one."""

    words: list[str]
    text: str | None


class TimeoutFault(BaseException):
    """A case that takes too long; no `except Exception` holds it back."""


def case_of(target: Target, folder: Path, random: Random) -> Case:
    """Return a changed case of a target; its file is written into `folder`, which is new."""
    if not target.seeds:
        return Case(mutated_words(target.words, random), None)
    seed = random.choice(list(target.seeds))
    text = mutated(seed.read_text(encoding="utf-8"), random)
    return Case(target.prepared(folder, seed, text), text)


def answer(words: list[str]) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a command line, run in this process. Raises what it lets through."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["infercast", *words]
    os.environ.pop("INFERCAST_PROFILES", None)  # which --profiles leaves behind
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    return code, out.getvalue(), err.getvalue()


def refusal(words: list[str]) -> str:
    """Return the error of a command line, "" where it has an answer."""
    code, _, told = answer(words)
    return told if code else ""


def fault(words: list[str], given: str = "") -> str:
    """Return what is wrong with the answer to a command line; "" for an answer as it should be.

    `given`: the text of its file, where it may say itself what no number of an answer may be.
    """
    try:
        code, out, told = answer(words)
    except BaseException as error:  # noqa: BLE001  that is what is looked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        ours = [each for each in traceback.extract_tb(error.__traceback__) if "/simulator/" in each.filename]
        where = ours[-1] if ours else last
        return f"{type(error).__name__} in {Path(where.filename).name}:{where.lineno} {where.name}: {str(error)[:150]}"
    if code not in (0, 2):
        return f"exit code {code}"
    if code == 2 and not told.rstrip().rpartition("\n")[2]:
        return "exit code 2 without a message"
    if "bug of infercast" in told:
        return "bug: " + told[:150]
    asked_for = NOT_FINITE.search(f"{given} {words}")
    if code == 0 and not asked_for and (found := NOT_FINITE.search(out)):
        return f"{found[0]} in the output"
    return ""


def _overdue(_signal: int, _frame: object) -> NoReturn:
    raise TimeoutFault("too much CPU")


def _bounded() -> None:
    """Bound the memory of this process to what it has and SPARE_BYTES, and the time of a case."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + int(SPARE_BYTES), resource.RLIM_INFINITY))
    signal.signal(signal.SIGPROF, _overdue)


def _child(target: Target, first: int, seed: int, write: int) -> NoReturn:
    """Run a chunk of cases; a line for the beginning of each, and one for each fault."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz"))
    os.chdir(folder)
    _bounded()
    for number in range(first, first + CHUNK):
        os.write(write, f"{number}\t\n".encode())
        case = case_of(target, folder / f"case{number}", Random(f"{seed} {number}"))
        signal.setitimer(signal.ITIMER_PROF, target.cpu_s)
        found = fault(case.words, case.text or "")
        signal.setitimer(signal.ITIMER_PROF, 0)
        shutil.rmtree(folder / f"case{number}", ignore_errors=True)
        if found:
            os.write(write, f"{number}\t{found!r}\n".encode())
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def chunk(target: Target, first: int, seed: int) -> dict[int, str]:
    """Return the faults of CHUNK cases from `first` on by number, found in a child; one that hangs is ended."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        with contextlib.suppress(BaseException):
            _child(target, first, seed, write)
        os._exit(70)
    os.close(write)
    lines, last = "", time.monotonic()
    os.set_blocking(read, False)
    while True:
        with contextlib.suppress(BlockingIOError):
            data = os.read(read, 1 << 16)
            if not data:
                break
            lines, last = lines + data.decode(), time.monotonic()
        if time.monotonic() - last > 12 * target.cpu_s:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    _, status = os.waitpid(child, 0)
    os.close(read)
    told = [line.split("\t", 1) for line in lines.splitlines()]
    found = {int(number): text for number, text in told if text}
    if status and told and int(told[-1][0]) not in found:
        found[int(told[-1][0])] = f"the process ended with status {status} (hung or out of memory)"
    return found


def fuzz(name: str, seconds: float, seed: int) -> tuple[int, Counter[str]]:
    """Return how many cases of a target were tried, and how often each fault was found; the first of a kind is kept."""
    target, found, first = TARGETS[name], Counter[str](), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for number, text in chunk(target, first, seed).items():
            kind = re.sub(r"[\d']+", "#", text)[:110]
            found[kind] += 1
            if found[kind] == 1:
                print(f"{name} {number}: {text}", flush=True)
                _keep(name, target, seed, number, text)
        first += CHUNK
    return first, found


def _warm(name: str, target: Target) -> None:
    """Answer a target as it is, so that children find all imported and compiled; tell of one that fails."""
    with tempfile.TemporaryDirectory() as folder:
        for index, seed in enumerate(target.seeds[:3]):
            words = target.prepared(Path(folder) / str(index), seed, seed.read_text(encoding="utf-8"))
            if told := fault(words) or refusal(words):
                print(f"{name}: the seed {seed.name} itself: {told}")
    if not target.seeds and (told := fault(target.words) or refusal(target.words)):
        print(f"{name} itself: {told}")


def _keep(name: str, target: Target, seed: int, number: int, text: str) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        case = case_of(target, Path(folder) / "case", Random(f"{seed} {number}"))
    kept = KEPT / f"{name.replace(' ', '_')}-{seed}-{number}"
    kept.with_suffix(".txt").write_text(f"{text}\n{case.words!r}\n{case.text}", encoding="utf-8", errors="replace")


def command() -> int:
    """Fuzz the targets that are asked for, and return 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=float, default=600.0, help="for each target")
    parser.add_argument("--seed", type=int, help="of the cases; by default one after the last of a target")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/trust.md")
    asked = parser.parse_args()
    faults, names = 0, asked.targets or [*TARGETS]
    for name in dict.fromkeys([*OPTIONS, *names]):  # a case of any target may need what another one compiles
        _warm(name, TARGETS[name])
    for name in names:
        seed = last_seed(name) + 1 if asked.seed is None else asked.seed
        tried, found = fuzz(name, asked.seconds, seed)
        faults += len(found)
        print(f"{name}: {tried:,} cases, {len(found)} kinds of faults", flush=True)
        if asked.write:
            write_row(name, seed, asked.seconds, tried, len(found))
    return 1 if faults else 0


def last_seed(name: str) -> int:
    """Return the seed of a target's last run, as the table has it; -1 before the first."""
    return next((int(seed) for target, seed, *_ in rows("fuzzing") if target == name), -1)


def write_row(name: str, seed: int, seconds: float, tried: int, kinds: int) -> None:
    """Put what came of a target into the table of docs/trust.md, in place of what it had."""
    known = {row[0]: row for row in rows("fuzzing")}
    known[name] = [name, f"{seed}", f"{seconds:,.0f}", f"{tried:,}", f"{kinds}", date.today().isoformat()]
    heads = ["target", "seed", "seconds", "cases", "kinds of faults", "on"]
    put("fuzzing", table(heads, [known[each] for each in TARGETS if each in known]))


if __name__ == "__main__":
    sys.exit(command())

"""Makes real processes fail in every way that a machine can, and counts what is lost: the table in docs/trust.md.

    python -m tools.faults [--times 50] [--write]

Linux, as root: full disks, and an installation that cannot be written, are mounted in a name space of their own
(`unshare`). About ten minutes.
"""

import argparse
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from simulator.cli import main as infercast
from simulator.files import write_whole
from tools.trust_page import put, table

ROOT = Path(__file__).parents[1]
NOBODY = 65534
SERVED = ("--model", "smollm2-135m", "--hardware", "l4", "--isl", "64", "--osl", "8")
LOAD = ("simulate", *SERVED, "--request-rate", "20", "--num-prompts", "200")
SWEPT = ("simulate", *SERVED, "--request-rate", "5,10,15,20,25", "--num-prompts", "400", "--format", "csv")
LLAMA = {
    **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "vocab_size": 99, "max_position_embeddings": 512, "torch_dtype": "bfloat16"},
}
WRITTEN: dict[str, Callable[[Path], Sequence[str]]] = {  # what -> the command that writes a file
    "a plot": lambda path: (*LOAD, "--plot", f"{path}.svg"),
    "a trace for Perfetto": lambda path: (*LOAD, "--trace-out", f"{path}.json"),
    "a timeline": lambda path: (*LOAD, "--timeline", f"{path}.csv"),
    "a result file": lambda path: (*LOAD, "--save-result", f"{path}.json"),
    "a web page": lambda path: (*LOAD, "--report", f"{path}.html"),
    "a launch file": lambda path: ("launch", *SERVED[:4], "--as", "compose", "--out", f"{path}.yaml"),
    "a profile": lambda path: (
        "import-model",
        f"{path}.config",
        "--force",
        f"--name={path.name}",
        f"--to={path.parent}",
    ),
}
LEFT_OVER = "left over"
RUN, ROUND, MISTAKE = "RUN", 10, 2  # kills before a sweep is let run; exit code of a mistake that is told
FRESH = "HOME=/dev/null XDG_CACHE_HOME= NUMBA_CACHE_DIR= "


class ByShell(NamedTuple):
    """A fault that a line of shell makes (`ran`), and what has to be printed then: a regular expression."""

    shell: str
    expected: str
    words: Sequence[str] = LOAD
    few: bool = False  # machine code is compiled anew, which takes long


IN_SHELL = {
    "stdout on a full disk": ByShell(
        "RUN >/dev/full", "^infercast: error: stdout: it cannot be written .No space left"
    ),
    "stdout closed": ByShell("RUN >&-", "^infercast: error: stdout: it is closed"),
    "a reader that leaves (broken pipe)": ByShell("RUN | true; echo ${PIPESTATUS[0]}", "^1\n$"),
    "`LC_ALL=C`, no UTF-8": ByShell("PYTHONUTF8=0 LC_ALL=C RUN", "TTFT"),
    "interrupted (SIGINT) at a random moment": ByShell(
        "timeout --preserve-status -s INT $((RANDOM % 3 + 2)).$RANDOM RUN; echo $?",
        "^(130\n|$)",
        (*LOAD[:-1], "5000000"),
    ),
    "a file on a full disk (tmpfs of 20 kB), over another": ByShell(
        "unshare -m bash -c 'mount -t tmpfs -o size=20k a HERE; cd HERE; echo old > own.svg; RUN; cat own.svg; ls -A'",
        "--plot HERE/own.svg: it cannot be written .No space left on device.*old\nown.svg\n$",
        (*LOAD, "--plot", "HERE/own.svg"),
    ),
    "no `HOME`": ByShell(f"{FRESH} RUN", "TTFT", few=True),
    "no `HOME`, and a package folder that cannot be written": ByShell(
        f"unshare -m bash -c 'mount --bind -o ro {ROOT} {ROOT} && cd {ROOT} && {FRESH} RUN'", "TTFT", few=True
    ),
    "machine code on a full disk (tmpfs of 400 kB)": ByShell(
        "unshare -m bash -c 'mount -t tmpfs -o size=400k none HERE; XDG_CACHE_HOME=HERE RUN'", "TTFT", few=True
    ),
    "two first runs at once": ByShell(
        "cd HERE; export XDG_CACHE_HOME=$PWD/$RANDOM; RUN > one & RUN > two; wait; cmp one two && cat one",
        "^(?!one).*TTFT",
        few=True,
    ),
}


def in_a_child(work: Callable[[], object]) -> int:
    """Begin some work in a forked process, which prints nothing; return its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        work()
        code = 0
    except SystemExit as left:
        code = int(left.code or 0)
    finally:
        os._exit(code)


def waited(child: int) -> int:
    """Return the exit code of a child, minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def command(words: Sequence[str]) -> None:
    """Run a command line in this process."""
    sys.argv = ["infercast", *words]
    infercast()


def killed(work: Callable[[], object], within_s: float) -> int:
    """Kill a child at a random moment; return how it ended."""
    child = in_a_child(work)
    time.sleep(random.random() * within_s)  # noqa: S311
    os.kill(child, signal.SIGKILL)
    return waited(child)


def judged(folder: Path, target: Path, *whole: bytes) -> list[str]:
    """Return what is wrong in a folder where one file is whole, and nothing is left beside it.

    A file is whole that is as long as one of `whole` and begins and ends like it: results hold the time of day.
    """
    left = list(folder.glob(".infercast-*"))
    ends = {(len(each), each[:4], each[-4:]) for each in whole}
    found = {path.name: path.read_bytes() for path in (target, *left)}
    for path in left:
        path.unlink()
    half = [name for name, each in found.items() if (len(each), each[:4], each[-4:]) not in ends]
    return [*[f"{name} is half a file" for name in half], *[LEFT_OVER for _ in left]]


def writer_killed(folder: Path, times: int) -> tuple[int, list[str]]:
    """Kill a process that writes one file over and over, 2 MB each time."""
    target, old, new = folder / "a.bin", b"old!" * 500_000, b"new!" * 500_000

    def writes() -> None:
        while True:
            write_whole(target, new)
            write_whole(target, old)

    target.write_bytes(old)
    wrong = []
    for _ in range(times):
        killed(writes, 0.05)
        wrong += judged(folder, target, old, new)
    return times, wrong


def command_killed(words_of: Callable[[Path], Sequence[str]], folder: Path, times: int) -> tuple[int, list[str]]:
    """Kill a command at any moment of its run; what it writes was there before."""
    (folder / "own.config").write_text(json.dumps(LLAMA))
    words = words_of(folder / "own")
    target = folder / "own.yaml" if words[0] == "import-model" else Path(words[-1])
    begun = time.monotonic()
    if code := waited(in_a_child(partial(command, words))):
        return 1, [f"{' '.join(words)}: exit code {code}"]
    run_s, new, wrong = time.monotonic() - begun, target.read_bytes(), []
    for _ in range(times):
        target.write_bytes(b"old")
        killed(partial(command, words), run_s)
        wrong += judged(folder, target, b"old", new)
    return times, wrong


def sweep_killed(folder: Path, times: int) -> tuple[int, list[str]]:
    """Kill a sweep again and again, which goes on from its store; the last prints what one that was left alone does."""
    words = (*SWEPT, "--store", str(folder / "own.db"))
    begun = time.monotonic()
    whole, wrong = ran(f"{RUN} 2>/dev/null", SWEPT, folder), []
    run_s = time.monotonic() - begun
    for at in range(1, times + 1):
        killed(partial(command, words), run_s / 2)
        if at % ROUND == 0:
            wrong += [] if ran(f"{RUN} 2>/dev/null", words, folder) == whole else ["another answer after kills"]
            for path in folder.glob("own.db*"):
                path.unlink()
    return times, wrong


def forbidden(folder: Path, times: int) -> tuple[int, list[str]]:
    """Write as another user into a folder, over a file, that is not this user's."""
    target, wrong = folder / "own.yaml", []
    target.write_bytes(b"old")
    folder.chmod(0o755)
    words = WRITTEN["a launch file"](folder / "own")

    def writes() -> None:
        with suppress(SystemExit):
            command((*words[:-1], os.devnull))  # while it may read what it imports
        os.setuid(NOBODY)
        command(words)

    for _ in range(times):
        code = waited(in_a_child(writes))
        wrong += [*judged(folder, target, b"old"), *([] if code == MISTAKE else [f"exit code {code}"])]
    return times, wrong


def ran(shell: str, words: Sequence[str], folder: Path) -> str:
    """Return what a line of shell prints, of both kinds; RUN in it is the command, HERE a folder."""
    line = shell.replace("RUN", f"{sys.executable} -m simulator.cli {shlex.join(words)}").replace("HERE", str(folder))
    streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, env=here, check=False, **streams)  # noqa: S603, S607
    return str(done.stdout)


def told(fault: ByShell, folder: Path, times: int) -> tuple[int, list[str]]:
    """Run a line of shell that has to print what is expected, and no traceback."""
    wrong = []
    for _ in range(times):
        found = ran(fault.shell, fault.words, folder)
        if not re.search(fault.expected.replace("HERE", str(folder)), found, re.DOTALL) or "Traceback" in found:
            wrong.append((found.strip().splitlines() or ["nothing printed"])[-1])
    return times, wrong


def faults() -> dict[str, Callable[[Path, int], tuple[int, list[str]]]]:
    """Return all of them, by what the table calls them."""
    found: dict[str, Callable[[Path, int], tuple[int, list[str]]]] = {
        "killed (SIGKILL) while it writes 2 MB over a file": writer_killed
    }
    found |= {f"killed while it answers and writes {what}": partial(command_killed, of) for what, of in WRITTEN.items()}
    found |= {"killed in a sweep with a store of results": sweep_killed, "a file in another user's folder": forbidden}
    return found | {what: partial(told, fault) for what, fault in IN_SHELL.items()}


def main() -> None:
    """Make every fault; print the table or put it into docs/trust.md."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--times", type=int, default=50)
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    random.seed(1)
    waited(in_a_child(partial(command, LOAD)))  # machine code is there
    rows = []
    for what, fault in faults().items():
        few = 2 if what in IN_SHELL and IN_SHELL[what].few else given.times // 5 if what in IN_SHELL else given.times
        with tempfile.TemporaryDirectory() as folder:
            times, wrong = fault(Path(folder), max(2, few))
        left, lost = wrong.count(LEFT_OVER), [each for each in wrong if each != LEFT_OVER]
        rows.append([what, f"{times}", f"{len(lost)}{': ' if lost else ''}{', '.join(sorted(set(lost)))}", f"{left}"])
        print(rows[-1], flush=True)  # noqa: T201
    if given.write:
        put("faults", table(["what", "how often", "lost", "left over"], rows))


if __name__ == "__main__":
    main()

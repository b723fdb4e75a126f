"""`infercast doctor`: whether all is there that infercast needs, and what may be installed besides."""

import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import typer

from simulator.cli.options.deployment_options import OutputFormat, Profiles, use_profiles
from simulator.cli.output import Column, Result, View, emit
from simulator.cli.text_layout import Format
from simulator.profile_folders import folders, names

OK, BROKEN, MISSING = "ok", "BROKEN", "missing"
OPTIONAL = ("torch", "vllm", "dask", "jinja2")  # looked at where they are there
_NAME = re.compile(r"^[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


class Diagnosis(NamedTuple):
    """What was looked at, how it is, and what was found or is to be done."""

    what: str
    state: str
    found: str


def command(own: Profiles = None, form: OutputFormat = Format.TEXT) -> None:
    """Check this installation: versions, caches, folders of profiles, and which extras are missing.

    The exit code is 1 where something that infercast needs is broken; extras are never needed.
    """
    use_profiles(own)
    found = [*_machine(), *_packages(), _cache(), *_profiles(), *_extras()]
    broken = [each for each in found if each.state == BROKEN]
    said = f"{len(broken)} broken: {', '.join(each.what for each in broken)}." if broken else "Nothing is broken."
    rows = [each._asdict() for each in found]
    emit(Result({"findings": rows}, [View("infercast doctor", COLUMNS, rows)], [said]), form)
    if broken:
        raise typer.Exit(1)


COLUMNS = (Column("what", "", left=True), Column("state", "", left=True), Column("found", "found", left=True))


def _machine() -> Iterator[Diagnosis]:
    yield Diagnosis("infercast", OK, f"{version('infercast')}, in {Path(__file__).parents[2]}")
    yield Diagnosis("python", OK, f"{platform.python_version()} ({sys.executable})")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Diagnosis("processor", OK, f"{_processor()}, {usable} of {os.cpu_count()} cores usable")


def _processor() -> str:
    """Return the name of the processor, as Linux tells it, or else Python."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        told = ""
    named = re.search(r"^model name\s*:\s*(.+)$", told, re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine()


def _packages() -> Iterator[Diagnosis]:
    """Yield the version of each package that infercast needs, and of some that it can use."""
    needed = [name for name, extra in _requirements() if not extra]
    yield from map(_installed, needed)
    yield from (_installed(each) for each in OPTIONAL if each not in needed and find_spec(each) is not None)


def _installed(name: str) -> Diagnosis:
    try:
        return Diagnosis(name, OK, version(name))
    except PackageNotFoundError:
        return Diagnosis(name, BROKEN, f"not installed: pip install {name}")


def _requirements() -> list[tuple[str, str]]:
    """Return every package that infercast names, with the extra that it belongs to; "" for none."""
    stated = [(_NAME.match(each), _EXTRA.search(each)) for each in requires("infercast") or ()]
    return [(name[0], extra[1] if extra else "") for name, extra in stated if name]


def _cache() -> Diagnosis:
    """Say whether machine code can be kept: without, every command compiles the scheduler for seconds."""
    try:
        from simulator.scheduler.jit import cache_folder

        folder = cache_folder()
    except ImportError as error:
        return Diagnosis("machine code", BROKEN, f"numba cannot be imported: {error}")
    except OSError as error:
        remedy = "set NUMBA_CACHE_DIR to a folder that can be written"
        return Diagnosis("machine code", BROKEN, f"{error.strerror}: {error.filename}; {remedy}")
    return Diagnosis("machine code", OK, f"{len(list(folder.glob('**/*.nbc')))} files in {folder}")


def _profiles() -> Iterator[Diagnosis]:
    """Yield the folders of profiles, and the first problem of each kind."""
    from simulator.cli.answers.profile_lint import KINDS, lint

    for name, kind in KINDS.items():
        where = ", ".join(str(each) for each in folders(kind.folder) if each.is_dir())
        problems = lint([name])
        if problems:
            path, problem = problems[0]
            more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
            told = f"{path}: {problem}{more}; infercast profiles --lint lists all"
            yield Diagnosis(f"profiles of {name}", BROKEN, told)
        else:
            yield Diagnosis(f"profiles of {name}", OK, f"{len(names(kind.folder))} in {where}")


def _extras() -> Iterator[Diagnosis]:
    """Yield each extra with what it lacks, and the command that installs it."""
    stated = _requirements()
    for extra in dict.fromkeys(extra for _, extra in stated if extra):
        lacking = [name for name, its in stated if its == extra and not _is_there(name)]
        install = f"{', '.join(lacking)}: pip install 'infercast[{extra}]'"
        yield Diagnosis(f"extra {extra}", MISSING if lacking else OK, install if lacking else "all installed")


def _is_there(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True

"""Runs infercast on processors that this machine is not, emulated by QEMU: a table of docs/trust.md.

    python -m tools.other_processors FOLDER [--uv uv] [--write]

Debian on x86-64, as root. QEMU and Debian's Python for ARM are fetched with apt-get into FOLDER, and unpacked there
without being installed; packages for each processor with uv (pip install uv). Emulated code is ten times as slow: about
ten minutes of CPU for each processor. What is there already is not fetched again.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.trust_page import put, table

ROOT = Path(__file__).parents[1]
ARM_PYTHON = (3, 11)  # of Debian 12
ARM_PACKAGES = (
    *("libc6", "libstdc++6", "libgcc-s1", "zlib1g", "libssl3", "libffi8", "libbz2-1.0", "liblzma5", "libsqlite3-0"),
    *("libexpat1", "libuuid1", "libncursesw6", "libtinfo6", "libreadline8", "libdb5.3", "python3.11"),
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"),
)
OWN_PYTHON = Path(sys.executable).resolve()
TESTED = ("pytest", "hypothesis", "jsonschema")  # what the tests of the scheduler import
ORACLE = ("tests/scheduler/test_oracle.py", "tests/scheduler/test_scheduler.py")
SERVED = "--model llama-3.2-1b --hardware l4 --format json"
CHECKS = {
    "import": ["-c", "import simulator.cli; from simulator import deploy; deploy('gpt2-xl', 'l4')"],
    "estimate": f"-m simulator.cli estimate {SERVED} --batch 8 --isl 512 --osl 64".split(),
    "simulate": f"-m simulator.cli simulate {SERVED} --workload chat --rate 1 --num-prompts 50".split(),
    "scheduler equals the oracle": ["-m", "pytest", "-qp", "no:cacheprovider", "-k", "oracle", *ORACLE],
}
TO_COMPARE = ("estimate", "simulate")


class Processor(NamedTuple):
    """A processor: QEMU's program for it with its options, and uv's name of the platform."""

    program: str
    options: tuple[str, ...]
    platform: str

    @property
    def is_arm(self) -> bool:
        """Whether it runs other machine code than this machine."""
        return self.platform.startswith("aarch64")


PROCESSORS = {
    "ARM (aarch64)": Processor("qemu-aarch64-static", (), "aarch64-manylinux_2_28"),
    "x86-64 with AVX2, without AVX-512 (Haswell)": Processor(
        "qemu-x86_64-static", ("-cpu", "Haswell"), "x86_64-manylinux_2_28"
    ),
    "x86-64 without AVX (Nehalem)": Processor("qemu-x86_64-static", ("-cpu", "Nehalem"), "x86_64-manylinux_2_28"),
}


def fetched(folder: Path) -> None:
    """Fetch and unpack QEMU, and Python for ARM."""
    if not (folder / "qemu").is_dir():
        unpacked(folder / "qemu", ["qemu-user-static"], [])
    if not (folder / "arm").is_dir():
        for each in ("state/lists/partial", "cache/archives/partial"):
            (folder / "apt" / each).mkdir(parents=True, exist_ok=True)
        (folder / "apt" / "status").touch()
        names = {"Architecture": "arm64", "Architectures::": "arm64"}
        settings = [f"APT::{name}={value}" for name, value in names.items()]
        places = {"State": "state", "State::status": "status", "Cache": "cache"}
        settings += [f"Dir::{name}={folder / 'apt' / value}" for name, value in places.items()]
        options = [word for setting in settings for word in ("-o", setting)]
        subprocess.run(["apt-get", *options, "update", "-qq"], check=True)  # noqa: S603, S607
        unpacked(folder / "arm", [f"{name}:arm64" for name in ARM_PACKAGES], options)


def unpacked(place: Path, packages: Sequence[str], options: Sequence[str]) -> None:
    """Download packages of Debian and unpack them into a folder."""
    debs = place.with_name(f"{place.name}-debs")
    debs.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", *options, "download", "-qq", *packages], cwd=debs, check=True)  # noqa: S603, S607
    for deb in sorted(debs.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(deb), str(place)], check=True)  # noqa: S603, S607


def packages_of(processor: Processor, folder: Path, uv: str) -> Path:
    """Install what infercast and its tests need for a platform into a folder; return it."""
    place = folder / processor.platform
    major, minor = ARM_PYTHON if processor.is_arm else sys.version_info[:2]
    options = ["--python-version", f"{major}.{minor}", "--python-platform", processor.platform, "--target", str(place)]
    command = [uv, "pip", "install", "--quiet", *options, "--only-binary", ":all:", "-r", "pyproject.toml", *TESTED]
    if not place.is_dir():
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603
    return place


def ran(words: Sequence[str], packages: Path, emulator: Sequence[str]) -> tuple[str, str]:
    """Run Python with some packages, emulated or not; return what it prints, and its last line where it fails."""
    kept: Mapping[str, str] = {
        **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        **{"PYTHONPATH": f"{packages}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1", "INFERCAST_DATE": "2026-11-23"},
        "XDG_CACHE_HOME": str(packages.with_name(f"{packages.name}-cache")),
    }
    done = subprocess.run([*emulator, *words], cwd=ROOT, env=kept, capture_output=True, text=True, check=False)  # noqa: S603
    last = (done.stderr or done.stdout).strip().splitlines() or ["failed"]
    return done.stdout, last[-1] if done.returncode else ""


def tried(processor: Processor, folder: Path, uv: str, plain: Mapping[str, str]) -> list[str]:
    """Return a cell for each check on a processor; `plain`: what this machine itself prints."""
    packages = packages_of(processor, folder, uv)
    roots = ["-L", str(folder / "arm")] if processor.is_arm else []
    python = folder / "arm" / "usr" / "bin" / "python3.11" if processor.is_arm else OWN_PYTHON
    emulator = [str(folder / "qemu" / "usr" / "bin" / processor.program), *processor.options, *roots, str(python)]
    cells = []
    for name, words in CHECKS.items():
        out, failed = ran(words, packages, emulator)
        same = "the same json" if name in TO_COMPARE and out == plain[name] else "another json"
        cells.append(failed or (same if name in TO_COMPARE else "yes"))
        print(processor.program, name, cells[-1], flush=True)  # noqa: T201
    return cells


def main() -> None:
    """Fetch, run; print the table or put it into docs/trust.md."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--uv", default="uv")
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    folder = given.folder.resolve()
    fetched(folder)
    packages = packages_of(PROCESSORS["x86-64 without AVX (Nehalem)"], folder, given.uv)
    plain = {name: ran(CHECKS[name], packages, [str(OWN_PYTHON)])[0] for name in TO_COMPARE}
    rows = [[name, *tried(each, folder, given.uv, plain)] for name, each in PROCESSORS.items()]
    text = table(["processor, emulated", *CHECKS], rows)
    if given.write:
        put("processors", text)
    print(text)  # noqa: T201


if __name__ == "__main__":
    main()

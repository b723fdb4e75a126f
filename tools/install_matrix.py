"""Installs the wheel into empty environments, with the lowest and the newest dependencies: the table in docs/trust.md.

    python -m tools.install_matrix [--uv uv] [--pythons 3.11,3.12,3.13] [--write]

It needs `uv` (pip install uv), which finds the Pythons of this machine (those of pyenv by PYENV_VERSION=3.11.7:3.12.1),
and a package index. The wheel is built from the sdist, twice, and must be the same both times. Each environment lies in
a temporary folder; commands run in another one, and compile; as root, `simulate` once more without a home in an
environment that nobody can write (Linux). Two minutes of CPU and half a gigabyte for each environment, one at a time.
"""

import argparse
import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.trust_page import put, table

ROOT = Path(__file__).parents[1]
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
SHOWN = ("numpy", "pandas", "pydantic", "pyyaml", "matplotlib", "numba", "typer", "rich", "genai-prices", "jinja2")
SERVED = "--model llama-3.2-1b --hardware l4"
COMMANDS = {
    "import": [
        "python",
        "-c",
        "import simulator, simulator.cli; from simulator import deploy; deploy('gpt2-xl', 'l4')",
    ],
    "estimate": f"infercast estimate {SERVED} --batch 8 --isl 512 --osl 64 --plot out.png".split(),
    "simulate": f"infercast simulate {SERVED} --workload chat --rate 1 --num-prompts 50".split(),
    "cost": f"infercast cost {SERVED} --workload chat --rate 1 --slo ttft:1s,tpot:50ms".split(),
}
READ_ONLY = 'mount --bind -o ro "$1" "$1" && shift && HOME=/dev/null XDG_CACHE_HOME= exec "$@"'
LICENCES = """
import importlib.metadata as m, json
def licence(d):
    told = [c.rpartition(" :: ")[2] for c in d.get_all("Classifier") or [] if c.startswith("License ::")]
    return d["License-Expression"] or ", ".join(told) or (d["License"] or "not said").splitlines()[0]
print(json.dumps({x.metadata["Name"].lower(): [x.version, licence(x.metadata)] for x in m.distributions()}))
"""


def main() -> None:
    """Build, install, run; print the tables or put them into docs/trust.md."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--uv", default="uv")
    options.add_argument("--pythons", default="3.11,3.12,3.13")
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel, same = built(given.uv, Path(folder))
        rows: list[list[str]] = []
        licences: dict[str, list[str]] = {}
        for python in given.pythons.split(","):
            for name, resolution in RESOLUTIONS.items():
                row, found = tried(given.uv, Path(folder) / f"{python}-{name}", wheel, python, resolution)
                rows.append([python, name, *row])
                licences = found or licences
                print(rows[-1], flush=True)  # noqa: T201
                if given.write:
                    put("installs", told(same, rows, licences))
    if not given.write:
        print(told(same, rows, licences))  # noqa: T201


def told(same: bool, rows: Sequence[Sequence[str]], licences: dict[str, list[str]]) -> str:
    """Return what the page says of the environments that were tried."""
    listed = ", ".join(f"{name} ({licence})" for name, (_, licence) in sorted(licences.items()) if name != "infercast")
    return f"""Two builds of the wheel from the sdist are {"equal to the byte" if same else "NOT equal"}.

{table(["Python", "versions", "installed", *COMMANDS, "read-only", "check"], rows)}

What a plain installation brings, and its licences: {listed}."""


def built(uv: str, folder: Path) -> tuple[Path, bool]:
    """Build the sdist, and from it the wheel twice; return the wheel, and whether both are equal."""
    done([uv, "build", "--quiet", "--sdist", "--out-dir", str(folder / "sdist"), str(ROOT)], folder)
    sdist = next((folder / "sdist").glob("*.tar.gz"))
    wheels = []
    for name in ("once", "again"):
        done([uv, "build", "--quiet", "--wheel", "--out-dir", str(folder / name), str(sdist)], folder)
        wheels.append(next((folder / name).glob("*.whl")))
    first, second = (hashlib.sha256(each.read_bytes()).hexdigest() for each in wheels)
    return wheels[0], first == second


def tried(uv: str, place: Path, wheel: Path, python: str, resolution: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return the cells of one environment: versions, each command, the check; and versions and licences by name."""
    elsewhere = place.with_name(f"{place.name}-elsewhere")
    elsewhere.mkdir()
    where = ["--python", str(place / "bin" / "python")]
    failed = done([uv, "venv", "--quiet", "--python", python, str(place)], elsewhere)
    install = [uv, "pip", "install", "--quiet", "--resolution", resolution, *where, str(wheel)]
    failed = failed or done(
        [*install, "--requirements", str(ROOT / "pyproject.toml")], elsewhere
    )  # bounds as of this tree
    if failed:
        return [failed, *("" for _ in COMMANDS), "", ""], {}
    found = subprocess.run([place / "bin" / "python", "-c", LICENCES], capture_output=True, text=True, check=True)  # noqa: S603
    licences: dict[str, list[str]] = json.loads(found.stdout)
    installed = ", ".join(f"{name} {licences[name][0]}" for name in SHOWN if name in licences)
    commands = {name: [str(place / "bin" / first), *rest] for name, (first, *rest) in COMMANDS.items()}
    nobody = ["unshare", "-m", "sh", "-c", READ_ONLY, "sh", str(place), *commands["simulate"]]
    ran = [done(words, elsewhere) or "yes" for words in (*commands.values(), nobody)]
    return [installed, *ran, done([uv, "pip", "check", "--quiet", *where], elsewhere) or "yes"], licences


def done(command: Sequence[str], folder: Path) -> str:
    """Run a command in a folder; return "" if it succeeds, else the last line that it printed."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "INFERCAST", "VIRTUAL"))
    }
    kept |= {"SOURCE_DATE_EPOCH": "1767225600", "XDG_CACHE_HOME": str(folder / "cache"), "MPLBACKEND": "agg"}
    kept |= {"UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv"))}
    ran = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, check=False)  # noqa: S603
    return "" if ran.returncode == 0 else ((ran.stderr or ran.stdout).strip().splitlines() or ["failed"])[-1]


if __name__ == "__main__":
    main()

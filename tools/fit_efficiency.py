"""Fit the few physical parameters of engines and device families to published measurements (tools/fitting.py).

    python -m tools.fit_efficiency                                fit every block, print
    python -m tools.fit_efficiency --block llama.cpp              those whose name starts so
    python -m tools.fit_efficiency --idle                         and list the constants that gain nothing
    python -m tools.fit_efficiency --write                        and put the values into the YAML
    python -m tools.fit_efficiency --left-out left_out.csv        score what a fit has not seen

docs/refitting.md explains it to someone who was not there; `make refit` and `make accuracy` run all of it.
The blocks are in tools/fit_blocks.yaml. No constant belongs to a row or to a (device, model) pair. A fit starts from
its priors; of what the profiles hold only the figures of narrower blocks matter, in the rows that their parents share.
`--block` with `--write` fits a parent without blocks that it does not name, so it may write other values than all do.
`python -m tools.fit_intervals left_out.csv` makes the intervals, `python -m tools.write_accuracy` the page.
"""

import argparse
import math
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from simulator.validation.measurements import read_measurements
from simulator.validation.scores import GRADES
from tools.curves import ROOT, TIMES, Block
from tools.fitting import TABLES, Fit, Fits, effective, fit_all, idle_parameters
from tools.score import score

HELD = "held where its fit began (tools/fit_blocks.yaml): sources left out do not tell it"
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
KERNELS = re.compile(r"^kernels:\n(?:[ #].*\n)*", re.MULTILINE)
Rule = dict[str, Any]
Place = tuple[str, str, str]


def written(fits: Fits) -> None:
    """Put the values of every block into the presets of its engines, each with the sample that it was fitted to."""
    for fit in fits.fits.values():
        block, origin = fit.block, _origin(fit.block, fits)
        values = effective(block, fits.blocks, fits.solved)
        of_all = {k: each for k, each in values.items() if not (k in TIMES and block.families)}  # hosts have no family
        held = {k for k in of_all if k in fits.blocks[origin[k]].held}
        grounds = {k: _ground(k, fits.blocks[origin[k]]) for k in of_all}
        figures = {k: {"value": _written(k, each), **grounds[k]} for k, each in of_all.items()}
        shares = {k: each for k, each in figures.items() if k not in TIMES}
        for preset in block.presets:
            path = ROOT / "simulator" / "engines" / f"{preset}.yaml"
            text = path.read_text()
            for name in dict.fromkeys(origin[k] for k in figures.keys() - held):
                text = _sourced(text, _key(name), _sample(fits, name))
            text = _times(text, figures)
            if shares or fit.block.families:  # else its kernels are another engine's
                text = _ruled(text, fit, shares)
            path.write_text(_without_unused(text))


def _ground(name: str, block: Block) -> dict[str, str]:
    """Return what a value of a block rests on, as a preset has it: its fit, a source of its own, or a guess."""
    if name not in block.held:
        return {"source": _key(block.name)}
    return {"source": block.sources[name]} if name in block.sources else {"guess": HELD}


def _without_unused(text: str) -> str:
    """Leave out the samples of fits that no figure rests on any more."""
    keys = re.findall(r"^  (fit-[a-z0-9-]+): ", text, re.MULTILINE)
    for key in (each for each in keys if not re.search(rf"source: {each}\b(?!-)", text)):
        text = re.sub(rf"^  {key}: .*\n", "", text, flags=re.MULTILINE)
    return text


def _origin(block: Block, fits: Fits) -> dict[str, str]:
    """Return the name of the block that each of a block's values was fitted in: its own, or the nearest parent's."""
    above = _origin(fits.blocks[block.parent], fits) if block.parent else {}
    return {**above, **dict.fromkeys(fits.solved.get(block.name, ()), block.name)}


def _key(name: str) -> str:
    return "fit-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _sample(fits: Fits, name: str) -> str:
    fit = fits.fits[name]
    middle, high = np.quantile(np.abs(np.expm1(fits.errors(name, fits.solved)[fit.seen])), [0.5, 0.9])
    groups = len({fit.curves.rows[at].group for at in fit.seen})
    return (
        f"tools/fit_efficiency.py, {name}: {len(fit.seen)} rows of {groups} (source, device, model) groups,"
        f" median error {middle:.0%}, 90th percentile {high:.0%}"
    )


def _sourced(text: str, key: str, sample: str) -> str:
    """Add or replace a source."""
    line = f'  {key}: {{text: "{sample}", date: {datetime.now(tz=UTC).date()}, evidence: fitted}}'
    if re.search(rf"^  {key}: .*$", text, re.MULTILINE):
        return re.sub(rf"^  {key}: .*$", line, text, flags=re.MULTILINE)
    return text.replace("\nsources:\n", f"\nsources:\n{line}\n", 1)


def _times(text: str, figures: Rule) -> str:
    for name in TIMES & figures.keys():
        text = re.sub(rf"^  {name}: \{{.*\}}", f"  {_part(name, figures[name])}", text, flags=re.MULTILINE)
    return text


def _ruled(text: str, fit: Fit, shares: Rule) -> str:
    """Change or add the kernels of a block's families (engines.kernels.Kernels); the general ones stand last.

    What is added goes on from the kernels that held for them so far: the fit saw their rules and their other figures.
    """
    rules: list[Rule] = yaml.safe_load(text).get("kernels", [])
    families = list(fit.block.families)
    rule = next((each for each in rules if each.get("families", []) == families), None)
    if rule is None:
        known = ({"families": families, **each} for each in rules)
        held = next((each for each in known if set(families) & set(each["families"])), {})
        rule = {**held, "families": families} if families else {}
        rules = [rule, *rules] if families else [*rules, rule]
    seen = (fit.curves.asked[fit.curves.rows[at].id] for at in fit.seen)
    rule["fitted_on"] = sorted({asked.deployment.hardware.family for asked in seen if shares})
    kept = {k: each for k, each in rule.get("fitted", {}).items() if not _of_a_fit(each)}
    rule["fitted"] = {**kept, **{k: each for k, each in shares.items() if "source" in each or k not in kept}}
    return with_kernels(text, rules)


def _of_a_fit(figure: Rule) -> bool:
    """Tell whether a figure is of an earlier fit, so that this one replaces it."""
    return figure.get("guess") == HELD or str(figure.get("source", "")).startswith("fit-")


def with_kernels(text: str, rules: list[Rule]) -> str:
    """Return a preset with other kernels; a comment stays with its line, of the same families and name."""
    found = KERNELS.search(text)
    start, end = found.span() if found else (len(text), len(text))
    before, behind, waiting = dict[Place, list[str]](), dict[Place, str](), list[str]()
    for place, line in _placed(text[start:end].splitlines()):
        if line.lstrip().startswith("#"):
            waiting.append(line)
        else:
            before[place], behind[place], waiting = waiting, line[len(_bare(line)) :], []
    lines = [
        part
        for place, line in _placed(_section(rules))
        for part in (*before.get(place, ()), line + behind.get(place, ""))
    ]
    return text[:start] + "".join(f"{line}\n" for line in (*lines, *waiting)) + text[end:]


def _placed(lines: list[str]) -> Iterator[tuple[Place, str]]:
    """Yield each line of a preset's kernels with its place: the families, `rules` or `fitted`, and the name."""
    families = block = ""
    for line in lines:
        name = _bare(line).lstrip(" -").partition(":")[0]
        if line.startswith("  - "):
            families = _bare(line) if name == "families" else ""
        if name and not line.startswith("      "):
            block = name
        yield (families, block, name), line


def _bare(line: str) -> str:
    """Return a line without the comment behind it."""
    return re.match(r'(?:[^"#]|"[^"]*")*', line)[0].rstrip()  # type: ignore[index]  # it matches nothing, too


def _section(rules: list[Rule]) -> list[str]:
    """Return the kernels of a preset as YAML, a line for each figure."""
    lines = ["kernels:"]
    for each in rules:
        parts = [line for name, value in each.items() for line in _lines(name, value)]
        lines += [f"  {'  ' if index else '- '}{part}" for index, part in enumerate(parts)]
    return lines


def _lines(name: str, value: Any) -> list[str]:
    """Return a part of kernels as YAML: `rules`, `fitted`, and what has several entries are blocks, others a line."""
    if value in ({}, []):
        return []
    if name in ("rules", "fitted"):
        return [f"{name}:", *(f"  {line}" for key, each in value.items() for line in _lines(key, each))]
    if name == "asked_experts":
        return [f"{name}:", *(f"  {line}" for key, each in value.items() for line in _block(key, each))]
    if name in ("expert_padding", "expert_kernels", "gemm_tiles", "gemm_calls", "dense_marlin"):
        return _block(name, value)
    return [_part(name, value)]


def _block(name: str, values: list[Any]) -> list[str]:
    return [f"{name}:", *(f"  - {_flow(each)}" for each in values)]


def _part(name: str, value: Any) -> str:
    return f"{name}: {_flow(value)}"


def _flow(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, dict):
        each = (f'{key}: "{part}"' if key == "guess" else _part(key, part) for key, part in value.items())
        return f"{{{', '.join(each)}}}"
    return str(value)


def _written(name: str, value: float) -> str:
    """Return a figure as a profile has it: times, whose names end so, in a handy unit."""
    if not name.endswith("_s"):
        return _short(value)
    unit = next((each for each in ("s", "ms") if value >= UNITS[each]), "us")
    return f"{_short(value / UNITS[unit])} {unit}"


def _short(value: float) -> str:
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"


def say(line: str) -> None:
    """Print a line at once: a fit takes minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", default=TABLES, help="measurements; none: both tables")
    parser.add_argument("--block", action="append", help="only blocks whose name starts so; may be given again")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--idle", action="store_true", help="list what gains nothing on sources left out")
    parser.add_argument("--left-out", type=Path, help="write the errors of every row by fits without its group")
    given = parser.parse_args()
    rows = [row for file in given.files for row in read_measurements(file) if row.quality in (*GRADES, "")]
    fits = fit_all(rows, say, given.block or ("",))
    if given.write:
        written(fits)
    if given.idle:
        for name in fits.fits:
            say(f"{name}: gains nothing on sources left out: {', '.join(idle_parameters(fits, name)) or '-'}")
    if given.left_out:
        score(fits, given.left_out, say)


if __name__ == "__main__":
    main()

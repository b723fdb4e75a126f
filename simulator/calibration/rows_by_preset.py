"""Which presets a user's rows calibrate, and the question that each row asks of one of them."""

from collections.abc import Sequence
from dataclasses import replace

from simulator.calibration.calibrated_constants import uncalibrated
from simulator.engines.engine import Engine, engine_of, load_engine, usual_engine
from simulator.errors import InfercastError, NotModelledError
from simulator.hardware.hardware import Hardware
from simulator.validation.measurements import Measurement, Setup
from simulator.validation.prediction import Asked, ask


def rows_by_preset(rows: Sequence[Measurement], hardware: Hardware, engine: str = "") -> dict[str, list[Measurement]]:
    """Return the rows by the preset that they calibrate, the one of most rows first.

    A row calibrates the preset that its version or date leads to, as other rows of it are predicted by that one. The
    preset that questions use by default has all rows where none is its own. `engine`: a preset for all rows instead.
    Rows that cannot be asked are with the first, whose calibration says why. Raises NotModelledError for rows of
    several engines.
    """
    target = target_of(rows, hardware, engine)
    if engine:
        return {target.id: list(rows)}
    presets = {setup: _preset_of(setup, hardware, target) for setup in {row.setup for row in rows}}
    found: dict[str, list[Measurement]] = {}
    for row in rows:
        found.setdefault(presets[row.setup], []).append(row)
    refused = found.pop("", [])
    found = dict(sorted(found.items(), key=lambda each: -len(each[1])))
    if found:
        next(iter(found.values())).extend(refused)
    return {**found, target.id: found.get(target.id, list(rows))}


def _preset_of(setup: Setup, hardware: Hardware, target: Engine) -> str:
    """Return the preset of a setup's own version, "" for one that cannot be asked."""
    try:
        return asked_of(setup, hardware, target)[1]
    except InfercastError:
        return ""


def target_of(rows: Sequence[Measurement], hardware: Hardware, engine: str) -> Engine:
    """Return the preset to calibrate: the one given, or the one that questions about the device lead to."""
    if engine:
        return load_engine(engine)
    names = sorted({row.setup.engine for row in rows if not row.setup.flaw} - {""})
    measured = sorted({_engine_named(each) for each in names})
    if len(measured) > 1:
        because = "one preset is calibrated at a time"
        raise NotModelledError(f"rows of {', '.join(measured)}", because, "Give --engine NAME")
    usual = load_engine(usual_engine(hardware))
    return usual if not measured or measured == [usual.engine] else load_engine(measured[0])


def _engine_named(name: str) -> str:
    return engine_of(name, "").engine


def asked_of(setup: Setup, hardware: Hardware, target: Engine) -> tuple[Asked, str]:
    """Return the question about a setup to the preset that is calibrated, and the preset of the setup's own version."""
    own = ask(setup if setup.engine else replace(setup, engine=target.engine, engine_version=target.version))
    found = own.deployment.engine
    if own.deployment.hardware.id != hardware.id:
        raise NotModelledError(setup.hardware, f"it is not {hardware.id}", "Calibrate it on its own")
    if found.engine != target.engine:
        raise NotModelledError(found.id, f"it is not {target.engine}", "Calibrate it on its own")
    at = own
    if found.id != target.id:
        at = ask(replace(setup, engine=target.engine, engine_version=target.version))
    if at.deployment.engine.id != target.id:
        raise NotModelledError(target.id, f"rows of {found.id} cannot be asked of it", "Give another --engine")
    plain = uncalibrated(at.deployment.engine, hardware)
    return at.on(replace(at.deployment, engine=plain)), found.id

"""The file of a calibrated preset: an engine's shipped file with what was measured on one device."""

from pathlib import Path
from typing import Any

from simulator.calibration.user_calibration import Calibration
from simulator.engines.engine import KIND, Engine
from simulator.engines.kernels import CALIBRATED, Kernels
from simulator.engines.overheads import Overheads
from simulator.profile import Figure, Source, Strict, find
from simulator.profile_files import read_yaml, write_yaml
from simulator.schema_versions import KEY, VERSIONS, upgraded


def write_preset(found: Calibration, folder: Path) -> Path:
    """Write the calibrated preset into a folder of profiles, beside what was found on other devices; return its path.

    Constants of the same device that an earlier calibration found there are replaced.
    """
    path = folder / KIND / f"{found.shipped.id}.yaml"
    return write_yaml(path, KIND, preset(found, path if path.is_file() else find(KIND, found.shipped.id)))


def preset(found: Calibration, base: Path) -> dict[str, Any]:
    """Return the mapping of a calibrated preset: the file `base` with kernels of the device's own before the others."""
    raw = upgraded(Engine.__name__, read_yaml(base), str(base))
    sources: dict[str, Any] = dict(raw["sources"])
    written = [_kernels(each, sources) for each in found.own]
    others = [each for each in raw.get("kernels", ()) if not _is_own(each, (found.hardware.id,))]
    return {KEY: VERSIONS[Engine.__name__], **raw, "sources": sources, "kernels": (*written, *others)}


def _kernels(rule: Kernels, sources: dict[str, Any]) -> dict[str, Any]:
    """Return the mapping of kernels with the host times beside them."""
    written = _as_profile(rule.model_copy(update={"overheads": None}), sources)
    return written if rule.overheads is None else written | {"overheads": _times(rule.overheads, sources)}


def _is_own(kernels: dict[str, Any], device: tuple[str, ...]) -> bool:
    """Tell whether an earlier calibration wrote these kernels of a device."""
    return any(kernels.get(name) for name in CALIBRATED) and tuple(kernels.get("devices", ())) == device


def _times(overheads: Overheads, sources: dict[str, Any]) -> dict[str, Any]:
    """Return the mapping of all host times, those at their defaults too."""
    return {name: _figure_as_profile(name, figure, sources) for name, figure in overheads}


def _as_profile(value: Strict, sources: dict[str, Any]) -> dict[str, Any]:
    """Return the mapping of a value beyond its defaults, as a profile has it; adds its sources to `sources`."""
    found = {name: (getattr(value, name), field.default) for name, field in type(value).model_fields.items()}
    return {name: _written(name, each, sources) for name, (each, default) in found.items() if _is_set(each, default)}


def _is_set(value: Any, default: Any) -> bool:
    """Tell whether a value is beyond its default: figures that equal it may have a source of their own."""
    return value is not default if isinstance(value, Figure) else bool(value != default)


def _written(name: str, value: Any, sources: dict[str, Any]) -> Any:
    """Return what a profile has of a field: mappings of figures and of nested values, also within tuples."""
    if isinstance(value, Figure):
        return _figure_as_profile(name, value, sources)
    if isinstance(value, Strict):
        return _as_profile(value, sources)
    if isinstance(value, dict):
        return {key: _written(name, each, sources) for key, each in value.items()}
    return tuple(_written(name, each, sources) for each in value) if isinstance(value, tuple) else value


def _figure_as_profile(name: str, figure: Figure, sources: dict[str, Any]) -> dict[str, Any]:
    """Return the mapping of a figure; names of rates end in bytes_per_s, those of times in _s."""
    value: str | float = float(f"{figure:.4g}")
    if name.endswith("bytes_per_s"):
        value = f"{figure / 1e9:.6g} GB/s"
    elif name.endswith("_s"):
        value = f"{figure * 1e6:.4g} us"
    return {"value": value, "source": _source_key(sources, figure.source)}


def _source_key(sources: dict[str, Any], source: Source) -> str:
    """Return the key of a source in `sources`, adding it where it is not there."""
    whole = source.model_dump()
    for name, each in sources.items():
        if dict(each) == whole:
            return name
    name = next(f"own-{index}" for index in range(1, len(sources) + 2) if f"own-{index}" not in sources)
    sources[name] = whole
    return name

"""Provenance of an answer: every figure that it uses, with its source; its guesses, and its fitted multipliers."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from simulator.deployment import pipeline_overlap
from simulator.deployment.deployment import Deployment
from simulator.deployment.loaded_weights import vision_of
from simulator.deployment.memory import STATE_SHARE, separate_state_bytes
from simulator.deployment.offload import HOST_SOURCE, host_of
from simulator.engines.fitted_multipliers import EXPERTS, FittedMultipliers
from simulator.engines.overheads import NO_TIME, Overheads
from simulator.models.number_formats import number_format
from simulator.models.op_builders import ADAPTER_TRAFFIC, SCAN, SCAN_RATE
from simulator.profile import Evidence, Figure, Source
from simulator.reports.figures_of_ops import (
    DeviceOps,
    constant_figures,
    kernel_figures,
    own_figures,
    rate_figures,
    sourced_figures,
)
from simulator.roofline.collectives import PCIE_FRACTION
from simulator.units import GIB, counted, gibibytes, scaled


class Provenance(NamedTuple):
    """One figure that an answer uses, in SI, and where it comes from.

    `profile`: the device, engine, model or number format that it belongs to. An engine's scheduling rules, and other
    assumptions, have no value.
    """

    profile: str
    figure: str
    value: float | None
    source: Source


class FittedMultiplier(NamedTuple):
    """One fitted number that an answer uses: what it multiplies, or what its seconds are of, and the fit."""

    engine: str
    device: str
    name: str
    value: float
    multiplies: str
    source: Source


def figures_behind(deployment: Deployment) -> list[Provenance]:
    """Return the figures behind the step times and the memory plan of a deployment, each once."""
    hardware, engine = deployment.hardware, deployment.engine
    found: list[Provenance] = []
    for part in _parts(deployment):
        found += _named(part.hardware.id, [*rate_figures(part), *constant_figures(part)])
        found += _named(engine.id, kernel_figures(part))
    if deployment.kernels.fitted.prompt_launch_s:
        found += _named(hardware.id, own_figures(hardware, "host_slowness"))
    found += _named(engine.id, _overheads(deployment))
    found += _named(engine.id, [("traffic of adapters", ADAPTER_TRAFFIC)] if engine.adapters else [])
    found += _named(engine.id, pipeline_overlap.constants(deployment))
    found += [*_offloading(deployment), *_formats(deployment)]
    scans = any(op.name == SCAN for op in deployment.ops)
    if scans and deployment.kernels.rules.scan_flops_per_byte is None:
        found.append(Provenance(deployment.model.id, "rate of the scan of prompts", None, SCAN_RATE))
    found.append(Provenance(engine.id, "scheduling rules", None, engine.rules))
    return list(dict.fromkeys([*found, *memory_basis(deployment)]))


def fitted_multipliers(deployment: Deployment) -> list[FittedMultiplier]:
    """Return the fitted numbers that the step times of a deployment rest on: multipliers, then host times.

    A multiplier that was set by hand is a guess by its source's evidence; a host time that was measured is left out.

    >>> from simulator.deployment.deployment import deploy
    >>> [each.name for each in fitted_multipliers(deploy("llama-3.1-8b", "h100-sxm", "vllm-0.33"))]
    ['compute', 'launch', 'prompt_launch_s', 'request_s']
    """
    found, engine = [], deployment.engine
    for part in _parts(deployment):
        for path, figure in kernel_figures(part):
            *_, kind, name = path.split(".")
            if kind == "fitted" and figure.source != EXPERTS.source:
                what = FittedMultipliers.model_fields[name].description or ""
                found.append(FittedMultiplier(engine.id, part.hardware.id, name, float(figure), what, figure.source))
    for path, figure in _overheads(deployment):
        if figure.source.evidence in ("fitted", "family"):
            name = path.rpartition(".")[2]
            what = Overheads.model_fields[name].description or ""
            found.append(FittedMultiplier(engine.id, "host", name, float(figure), what, figure.source))
    return found


def _named(profile: str, used: Iterable[tuple[str, Figure]]) -> list[Provenance]:
    return [Provenance(profile, path, float(figure), figure.source) for path, figure in used]


def _parts(deployment: Deployment) -> list[DeviceOps]:
    """Return what the device computes of a step and, with layers on the host, what its CPU does."""
    ops = (*deployment.ops, *deployment.draft.ops)
    here, there = (tuple(op for op in ops if op.on_host is away) for away in (False, True))
    parts = [DeviceOps(deployment.kernels, here)]
    if there:
        host = host_of(deployment.hardware, deployment.settings.offload)
        parts.append(DeviceOps(deployment.calibrated_engine.kernels_on(host), there))
    return parts


def _overheads(deployment: Deployment) -> Iterator[tuple[str, Figure]]:
    """Return the figures of the host's times, that of steps without asynchronous scheduling where there are such."""
    idle = "overheads.serial_step_s" if deployment.async_scheduling else ""
    times = sourced_figures(deployment.overheads, "overheads")
    return (each for each in times if each[1].source != NO_TIME.source and each[0] != idle)


def _offloading(deployment: Deployment) -> Iterator[Provenance]:
    """Yield the CPU that a host is taken to have, and what its memory's link reaches for evicted prefixes."""
    hardware, offload = deployment.hardware, deployment.settings.offload
    if any(op.on_host for op in deployment.ops) and not offload.host:
        yield Provenance(host_of(hardware, offload).id, "host", None, HOST_SOURCE)
    if offload.cache_bytes:
        yield from _named(
            hardware.id, [*own_figures(hardware, "pcie_bytes_per_s"), ("fraction of PCIe", PCIE_FRACTION)]
        )


def _formats(deployment: Deployment) -> Iterator[Provenance]:
    """Yield the bits of number formats, where a type's name does not say them, and what unpacking takes on a CPU."""
    layout = deployment.layout
    for name in dict.fromkeys((layout.weight_dtype, layout.cache_dtype)):
        bits = number_format(name).bits
        if bits.source != number_format("fp16").bits.source:
            yield Provenance(name, "bits", float(bits), bits.source)
    for part in _parts(deployment):
        if part.rates.kernels.rules.unpack_tokens:
            for name in dict.fromkeys(op.format for op in part.ops if op.rate == "gemm"):
                unpacking = number_format(name).unpacking
                if unpacking:
                    yield Provenance(name, "unpacking", float(unpacking), unpacking.source)


def memory_basis(deployment: Deployment) -> list[Provenance]:
    """Return the figures behind the memory plan alone; a setting that the user gives is no figure of a profile."""
    hardware, engine, settings, model = deployment.hardware, deployment.engine, deployment.settings, deployment.model
    shape = [Provenance(model.id, "shape", None, each) for key, each in model.sources.items() if key == "config"]
    name = "memory_reported_bytes" if hardware.memory_reported_bytes else "memory_marketed_bytes"
    used = _named(hardware.id, own_figures(hardware, name))
    lora = ("max_lora_rank",) if engine.adapters else ()
    reserve = engine.memory.reserve and engine.memory.reserve.on(hardware)
    memory = engine.memory.model_copy(update={"reserve": reserve})
    rules = [*sourced_figures(memory, "memory"), *own_figures(engine, "block_size", *lora)]
    for setting in ("max_num_seqs", "max_num_batched_tokens"):
        if getattr(settings, setting) is None:
            rule = next(rule for rule in getattr(engine, setting) if rule.holds(hardware))
            rules += sourced_figures(rule.value, setting)
    given = settings.memory_fraction is not None
    idle = ("memory.fraction", "memory.reserve")[: 2 if given else int(reserve is not None)]
    rules = [(path, figure) for path, figure in rules if not path.startswith(idle)]
    if settings.max_num_seqs is None and separate_state_bytes(deployment):
        rules.append(("share of the memory for states", STATE_SHARE))
    vision = _named(model.id, sourced_figures(vision_of(deployment), "vision"))
    return used + shape + vision + _named(engine.id, rules)


def rests_on(used: Iterable[Provenance], evidence: Evidence) -> str:
    """Name the figures of one kind of evidence in a line, parts of a kernel and profiles alike together; "" for none.

    >>> guess = Source(text="", date="", evidence="guess")
    >>> figures = [f"achievable.gemm.bf16.{part}" for part in ("launch_s", "exponent")]
    >>> rests_on([Provenance(device, each, 0.7, guess) for device in ("l4", "t4") for each in figures], "guess")
    'l4, t4: gemm.bf16'
    """
    alike: dict[str, list[str]] = {}
    for profile, parts in _by_profile(used, evidence).items():
        alike.setdefault(", ".join(parts), []).append(profile)
    return "; ".join(f"{', '.join(profiles)}: {parts}" for parts, profiles in alike.items())


def rests_on_in_short(used: Iterable[Provenance]) -> list[str]:
    """Say in a sentence how many figures of which profiles are guesses, and how many are a family's; [] for none.

    >>> guess = Source(text="", date="", evidence="guess")
    >>> rests_on_in_short([Provenance("l4", f"overheads.{each}", 0.7, guess) for each in ("step_s", "hop_s")])
    ['Rests on 2 guesses (l4 2).']
    """
    given = tuple(used)
    guesses, general = (_by_profile(given, kind) for kind in ("guess", "family"))
    number, others = (sum(map(len, each.values())) for each in (guesses, general))
    told = []
    if number:
        listed = ", ".join(f"{profile} {len(parts)}" for profile, parts in guesses.items())
        told.append(f"{number} {'guess' if number == 1 else 'guesses'} ({listed})")
    if others:
        told.append(f"{counted(others, 'figure')} of a device's family")
    return [f"Rests on {' and '.join(told)}."] if told else []


def _by_profile(used: Iterable[Provenance], evidence: Evidence) -> dict[str, list[str]]:
    """Return the keys of the figures of one kind of evidence, each once, by profile."""
    found: dict[str, dict[str, None]] = {}
    for each in used:
        if each.source.evidence == evidence:
            found.setdefault(each.profile, {})[_key(each.figure)] = None
    return {profile: list(keys) for profile, keys in found.items()}


def _key(figure: str) -> str:
    """Shorten the path of a figure to the key of the profile under which it is found."""
    names = figure.split(".")
    if names[0] == "kernels":
        return f"kernels.{names[2]}"
    if names[0] == "achievable":
        return ".".join(names[1:3] if names[1] in ("gemm", "experts") else names[1:2])
    return names[-1] if names[0] in ("memory", "overheads") else figure


UNITS = {
    "flops_per_s": "FLOP/s",
    "bytes_per_s": "B/s",
    "usd_per_hour": "USD/h",
    "usd_per_kwh": "USD/kWh",
    "usd_per_kw_month": "USD/kW/month",
    "usd": "USD",
    "g_per_kwh": "g/kWh",
    "bytes": "B",
    "tokens": "tokens",
    "s": "s",
    "w": "W",
}


def readable(path: str, value: float) -> str:
    """Print a figure in the unit that its dotted path ends in.

    >>> readable("peak_flops_per_s.bf16", 989e12), readable("memory_reported_bytes", 80 * 2**30)
    ('989 TFLOP/s', '85.9 GB = 80.00 GiB')
    """
    for name in reversed(path.split(".")):
        unit = next((unit for suffix, unit in UNITS.items() if name == suffix or name.endswith(f"_{suffix}")), "")
        if unit:
            break
    if unit == "B" and value >= GIB:
        return f"{scaled(value, unit)} = {gibibytes(value)}"
    if unit in ("tokens", "USD/h", "W"):
        return f"{value:,.10g} {unit}"
    return scaled(value, unit) if unit and value else f"{value:,.10g} {unit}".rstrip()

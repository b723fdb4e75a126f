"""Provenance of an answer: every figure that it uses, with its source; its guesses, and its fitted multipliers."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pydantic import BaseModel

from simulator.deployment import pipeline_overlap
from simulator.deployment.deployment import Deployment
from simulator.deployment.loaded_weights import vision_of
from simulator.deployment.memory import STATE_SHARE, separate_state_bytes
from simulator.deployment.offload import HOST_SOURCE, host_of
from simulator.engines.engine import Engine
from simulator.engines.fitted_multipliers import EXPERTS, UNITY, FittedMultipliers
from simulator.engines.overheads import NO_TIME, Overheads
from simulator.hardware.hardware import Hardware
from simulator.models.number_formats import number_format
from simulator.models.op_builders import ADAPTER_TRAFFIC, SCAN, SCAN_RATE
from simulator.models.operations import Op
from simulator.profile import Evidence, Figure, Profile, Source
from simulator.roofline.collectives import LINKED, PCIE_FRACTION
from simulator.roofline.roofline import Rates
from simulator.units import GIB, gibibytes, scaled


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


class _Part(NamedTuple):
    """The ops of a step that one device computes: the device itself, or the CPU of its host."""

    hardware: Hardware
    engine: Engine
    ops: tuple[Op, ...]

    @property
    def rates(self) -> Rates:
        return Rates(self.hardware, self.engine.kernels_on(self.hardware))


def figures(value: object, path: str = "") -> Iterator[tuple[str, Figure]]:
    """Yield every sourced figure inside a profile with its dotted path.

    >>> from simulator.hardware.hardware import load_hardware
    >>> next(figures(load_hardware("h100-sxm").link, "link"))
    ('link.bytes_per_s', 450000000000.0)
    """
    if isinstance(value, Figure):
        yield path, value
        return
    parts: Iterable[tuple[object, object]] = ()
    if isinstance(value, BaseModel):
        parts = ((name, getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, tuple):
        parts = enumerate(value)
    for name, part in parts:
        yield from figures(part, f"{path}.{name}".lstrip("."))


def basis(deployment: Deployment) -> list[Provenance]:
    """Return the figures behind the step times and the memory plan of a deployment, each once."""
    hardware, engine = deployment.hardware, deployment.engine
    found: list[Provenance] = []
    for part in _parts(deployment):
        found += _named(part.hardware.id, [*_rates_of(part), *_constants(part)])
        found += _named(engine.id, _kernels(part))
    if deployment.kernels.fitted.prompt_launch_s:
        found += _named(hardware.id, _of(hardware, "host_slowness"))
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
        for path, figure in _kernels(part):
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


def _parts(deployment: Deployment) -> list[_Part]:
    """Return what the device computes of a step and, with layers on the host, what its CPU does."""
    ops = (*deployment.ops, *deployment.draft.ops)
    here, there = (tuple(op for op in ops if op.on_host is away) for away in (False, True))
    parts = [_Part(deployment.hardware, deployment.engine, here)]
    if there:
        host = host_of(deployment.hardware, deployment.settings.offload)
        parts.append(_Part(host, deployment.engine, there))
    return parts


def _constants(part: _Part) -> Iterator[tuple[str, Figure]]:
    """Yield the figures that stand in Python, not in a profile, each once."""
    yield from dict(constant for op in part.ops for constant in part.rates.constants(op)).items()


def _overheads(deployment: Deployment) -> Iterator[tuple[str, Figure]]:
    times = deployment.overheads
    return (each for each in figures(times, "overheads") if each[1].source != NO_TIME.source)


def _offloading(deployment: Deployment) -> Iterator[Provenance]:
    """Yield the CPU that a host is taken to have, and what its memory's link reaches for evicted prefixes."""
    hardware, offload = deployment.hardware, deployment.settings.offload
    if any(op.on_host for op in deployment.ops) and not offload.host:
        yield Provenance(host_of(hardware, offload).id, "host", None, HOST_SOURCE)
    if offload.cache_bytes:
        yield from _named(hardware.id, [*_of(hardware, "pcie_bytes_per_s"), ("fraction of PCIe", PCIE_FRACTION)])


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


def _kernels(part: _Part) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of an engine's kernels on a device that an op rests on: rules, then fitted multipliers."""
    idle = _idle(part)
    for path, figure in figures(part.rates.kernels, "kernels"):
        name = path.removeprefix("kernels.").removeprefix("rules.").removeprefix("fitted.")
        parts = name.split(".")
        name = ".".join(parts[: 2 if parts[0] == "expert_kernels" else 1])
        if figure.source != UNITY.source and not idle.get(name, False) and not path.startswith("kernels.overheads"):
            yield path, figure


def _idle(part: _Part) -> dict[str, bool]:
    """Tell of the rules and multipliers that only some ops rest on whether none of these does."""
    rates, kernels, ops = part.rates, part.rates.kernels, part.ops
    gemms = [op for op in ops if op.rate == "gemm"]
    own = {op: kernels.experts_of(op.format, part.hardware, op.experts) for op in gemms if op.experts is not None}
    grouped = [op for op, experts in own.items() if experts is None]
    experts = kernels.rules.vector_expert_tokens
    few = [op for op in gemms if rates.unpacks(op.format) and (op.experts is None or experts)]
    late = [op for op in grouped if rates.peak(op.format)[0] == "fp8" and number_format(op.format).scaled_late]
    apart = [op for op in ops if op.heads and kernels.reads_per_head(op)]
    linked = {op.rate for op in ops} & {"all_reduce", "all_to_all"}
    in_node = any(op.rate == "all_reduce" and op.link_devices <= part.hardware.node_devices for op in ops)
    return {
        "link": not linked,
        "split_decode": not any(rates.split_decode(op) for op in ops),
        "gemm_tiles": not any(kernels.tile_rows(op, part.hardware) for op in gemms),
        "chunked_decode": not any(rates.chunked_decode(op) for op in ops),
        **dict.fromkeys(("one_shot_tokens", "reduced_bits"), not in_node),
        "gathers_tokens": "all_to_all" not in linked,
        "experts": not grouped or (kernels.fitted.block_experts is not None and len(late) == len(grouped)),
        "block_experts": not late,
        **{"experts_launch_s": not own, "asked_experts": True},
        **dict.fromkeys(("expert_tile", "expert_tiles", "k_loop_s"), not grouped),
        **{f"expert_kernels.{at}": each not in own.values() for at, each in enumerate(kernels.rules.expert_kernels)},
        **dict.fromkeys(("per_head", "per_head_crowded"), not apart),
        "packed": not any(rates.unpacks(op.format) for op in gemms if not getattr(own.get(op), "memory", None)),
        "unpacks_from_rows": not any(rates.unpacks(op.format) for op in gemms),
        "vector_rows": not few,
        "vector_expert_tokens": not any(op.experts for op in few),
        "vector": all(kernels.unpacks_fast(op.format) for op in few),
        "fast_vector": not any(kernels.unpacks_fast(op.format) for op in few),
        "unpacked": not any(rates.unpacks(op.format) for op in gemms if own.get(op) is None),
        "quantized": not any(
            rates.peak(op.format)[0] in ("fp8", "fp4") and not number_format(op.format).scaled_late for op in gemms
        ),
        "scan_flops_per_byte": not any(op.name == SCAN for op in gemms),
        "unpack_tokens": not any(number_format(op.format).unpacking for op in gemms),
        "half_length": bool(kernels.rules.score_bytes)
        and not any(rates.fuses(op) for op in ops if op.rate == "prefill_attention"),
    }


def memory_basis(deployment: Deployment) -> list[Provenance]:
    """Return the figures behind the memory plan alone; a setting that the user gives is no figure of a profile."""
    hardware, engine, settings, model = deployment.hardware, deployment.engine, deployment.settings, deployment.model
    shape = [Provenance(model.id, "shape", None, each) for key, each in model.sources.items() if key == "config"]
    name = "memory_reported_bytes" if hardware.memory_reported_bytes else "memory_marketed_bytes"
    used = _named(hardware.id, _of(hardware, name))
    lora = ("max_lora_rank",) if engine.adapters else ()
    reserve = engine.memory.reserve and engine.memory.reserve.on(hardware)
    memory = engine.memory.model_copy(update={"reserve": reserve})
    rules = [*figures(memory, "memory"), *_of(engine, "block_size", *lora)]
    for setting in ("max_num_seqs", "max_num_batched_tokens"):
        if getattr(settings, setting) is None:
            rule = next(rule for rule in getattr(engine, setting) if rule.holds(hardware))
            rules += figures(rule.value, setting)
    given = settings.memory_fraction is not None
    idle = ("memory.fraction", "memory.reserve")[: 2 if given else int(reserve is not None)]
    rules = [(path, figure) for path, figure in rules if not path.startswith(idle)]
    if settings.max_num_seqs is None and separate_state_bytes(deployment):
        rules.append(("share of the memory for states", STATE_SHARE))
    vision = _named(model.id, figures(vision_of(deployment), "vision"))
    return used + shape + vision + _named(engine.id, rules)


def _of(profile: Profile, *names: str) -> Iterator[tuple[str, Figure]]:
    for name in names:
        yield from figures(getattr(profile, name), name)


def _rates_of(part: _Part) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of a device's profile that its ops rest on, with their dotted paths."""
    hardware, rates, ops = part.hardware, part.rates, part.ops
    kinds = {op.rate for op in ops}
    gemms = ((rates.peak(op.format)[0], op.experts is not None) for op in ops if op.rate == "gemm")
    multiplied = dict.fromkeys(gemms)  # in order, once each
    yield from _of(hardware, "memory_bytes_per_s")
    attended = [op for op in ops if op.rate.endswith("attention")]
    multiplying = [*(op for op in ops if op.rate == "gemm"), *attended]
    for field, peak in dict.fromkeys((rates.peaks(op.format)[0], rates.peak(op.format)[0]) for op in multiplying):
        yield from figures(getattr(hardware, field)[peak], f"{field}.{peak}")
    for peak, routed in multiplied:
        kind = "experts" if routed and peak in hardware.achievable.experts else "gemm"
        yield from figures(getattr(hardware.achievable, kind).get(peak), f"achievable.{kind}.{peak}")
    if multiplied and rates.kernels.rules.reads_at_best_rate:
        best = hardware.achievable.best_memory_fraction
        yield next(each for each in figures(hardware.achievable, "achievable") if each[1] is best)
    own = hardware.achievable.decode_attention
    read = {rates.cache_figure(own, op) for op in attended if own and op.rate == "decode_attention"}
    unread = {"memory_fraction", "fp8_memory_fraction"} - read
    for kind in ("decode_attention", "prefill_attention", "elementwise"):
        if kind in kinds:
            name = "elementwise_memory_fraction" if kind == "elementwise" else kind
            found = figures(getattr(hardware.achievable, name), f"achievable.{name}")
            yield from (each for each in found if each[0].rpartition(".")[2] not in unread)
    waves = any(rates.fills_tiles(op) for op in ops if op.rate == "gemm")
    if waves:
        yield from figures(hardware.achievable.wave_fraction, "achievable.wave_fraction")
    tiled = waves or any(op.rate == "gemm" and rates.kernels.tile_rows(op, hardware) for op in ops)
    if tiled or any(rates.split_decode(op) for op in attended):
        yield from _of(hardware, "multiprocessors")
    if "all_reduce" in kinds and hardware.node_devices > 1:
        yield from figures(hardware.achievable.all_reduce, "achievable.all_reduce")
        yield from figures(hardware.achievable.ring_all_reduce, "achievable.ring_all_reduce")
    if "all_to_all" in kinds:
        yield from figures(hardware.achievable.all_reduce, "achievable.all_reduce")
    if "host_link" in kinds:
        yield from _of(hardware, "pcie_bytes_per_s")
    if kinds & {*LINKED}:
        yield from _of(hardware, "link" if hardware.link else "pcie_bytes_per_s")
    if any(op.rate in LINKED and op.link_devices > hardware.node_devices for op in ops):
        yield from _of(hardware, "network", "devices_per_node")


def rests_on(used: Iterable[Provenance], evidence: Evidence) -> str:
    """Name the figures of one kind of evidence in a line, parts of a kernel and profiles alike together; "" for none.

    >>> guess = Source(text="", date="", evidence="guess")
    >>> figures = [f"achievable.gemm.bf16.{part}" for part in ("launch_s", "exponent")]
    >>> rests_on([Provenance(device, each, 0.7, guess) for device in ("l4", "t4") for each in figures], "guess")
    'l4, t4: gemm.bf16'
    """
    named: dict[str, dict[str, None]] = {}
    for each in used:
        if each.source.evidence == evidence:
            named.setdefault(each.profile, {})[_key(each.figure)] = None
    alike: dict[str, list[str]] = {}
    for profile, parts in named.items():
        alike.setdefault(", ".join(parts), []).append(profile)
    return "; ".join(f"{', '.join(profiles)}: {parts}" for parts, profiles in alike.items())


def _key(figure: str) -> str:
    """Shorten the path of a figure to the key of the profile under which it is found."""
    names = figure.split(".")
    if names[0] == "kernels":
        return f"kernels.{names[2]}"
    if names[0] == "achievable":
        return ".".join(names[1:3] if names[1] == "gemm" else names[1:2])
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

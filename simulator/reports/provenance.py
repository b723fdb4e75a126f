"""What an answer rests on: every figure of a deployment's profiles that it uses, with its source; the guesses named."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pydantic import BaseModel

from simulator.deployment.deployment import Deployment
from simulator.deployment.offload import host_of
from simulator.engines.engine import Engine
from simulator.engines.kernel_rules import NO_TIME, UNITY
from simulator.hardware.hardware import Hardware
from simulator.models.number_formats import number_format
from simulator.models.op_builders import ADAPTER_TRAFFIC
from simulator.models.operations import Op
from simulator.profile import Evidence, Figure, Profile, Source
from simulator.roofline.roofline import Rates
from simulator.units import GIB, gibibytes, scaled


class Basis(NamedTuple):
    """One figure of one profile, in SI, and where it comes from; an engine's scheduling rules have no value."""

    profile: str
    figure: str
    value: float | None
    source: Source


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


def basis(deployment: Deployment) -> list[Basis]:
    """Return the figures behind the step times and the memory plan of a deployment."""
    hardware, engine = deployment.hardware, deployment.engine
    here, there = (
        [op for op in (*deployment.ops, *deployment.draft.ops) if op.on_host is away] for away in (False, True)
    )
    speeds = [*_speeds(hardware, engine, here)]
    if there:
        speeds += _speeds(host_of(hardware, deployment.settings.offload), engine, there)
    kernels = _kernels(deployment)
    overheads = (each for each in figures(engine.overheads, "overheads") if each[1].source != NO_TIME.source)
    if engine.kernels_on(hardware).prompt_launch_s:
        host = _of(hardware, "host_slowness")
        speeds += [Basis(hardware.id, path, float(figure), figure.source) for path, figure in host]
    lora = (("traffic of adapters", ADAPTER_TRAFFIC),) if engine.adapters else ()
    speeds += [Basis(engine.id, path, float(figure), figure.source) for path, figure in (*kernels, *overheads, *lora)]
    return [*speeds, Basis(engine.id, "scheduling rules", None, engine.rules), *memory_basis(deployment)]


def _kernels(deployment: Deployment) -> Iterator[tuple[str, Figure]]:
    """Yield what an engine's kernels reach of the device's rates, where an op of the model rests on it."""
    ops, kernels = deployment.ops, deployment.engine.kernels_on(deployment.hardware)
    rates = Rates(deployment.hardware, kernels)
    dense = all(op.experts is None for op in ops)
    idle = {
        **dict.fromkeys(
            ("kernels.link", "kernels.one_shot_tokens", "kernels.reduced_bits"),
            all(op.rate != "all_reduce" for op in ops),
        ),
        **{f"kernels.{name}": dense for name in ("experts", "block_experts", "expert_tile")},
        "kernels.least_tile": not any(op.experts and rates.unpacks(op.format) for op in ops),
        "kernels.split_launch": deployment.layout.pp == 1,
        **dict.fromkeys(
            ("kernels.per_head", "kernels.per_head_crowded"),
            not any(op.heads and kernels.reads_per_head(op.cache_format, op.shared_by) for op in ops),
        ),
        "kernels.quantized": not any(
            rates.peak(op.format)[0] in ("fp8", "fp4") and not number_format(op.format).scaled_late
            for op in ops
            if op.rate == "gemm"
        ),
        "kernels.past_16_tokens": deployment.hardware.family != "hopper"
        or not any(op.format == "fp8" and op.experts is None for op in ops),
        "kernels.unpack_tokens": not any(number_format(op.format).unpacking for op in ops),
        **dict.fromkeys(
            ("kernels.packed", "kernels.unpacked"), not any(rates.unpacks(op.format) for op in ops if op.rate == "gemm")
        ),
    }
    for path, figure in figures(kernels, "kernels"):
        if figure.source != UNITY.source and not idle.get(path, False):
            yield path, figure


def memory_basis(deployment: Deployment) -> list[Basis]:
    """Return the figures behind the memory plan alone; a setting that the user gives is no figure of a profile."""
    hardware, engine, settings = deployment.hardware, deployment.engine, deployment.settings
    name = "memory_reported_bytes" if hardware.memory_reported_bytes else "memory_marketed_bytes"
    used = [Basis(hardware.id, path, float(figure), figure.source) for path, figure in _of(hardware, name)]
    lora = ("max_lora_rank",) if engine.adapters else ()
    rules = [*figures(engine.memory, "memory"), *_of(engine, "block_size", *lora)]
    for setting in ("max_num_seqs", "max_num_batched_tokens"):
        if getattr(settings, setting) is None:
            rule = next(rule for rule in getattr(engine, setting) if rule.holds(hardware))
            rules += figures(rule.value, setting)
    if settings.memory_fraction is not None:
        rules = [(path, figure) for path, figure in rules if path != "memory.fraction"]
    return used + [Basis(engine.id, path, float(figure), figure.source) for path, figure in rules]


def _of(profile: Profile, *names: str) -> Iterator[tuple[str, Figure]]:
    for name in names:
        yield from figures(getattr(profile, name), name)


def _speeds(hardware: Hardware, engine: Engine, ops: list[Op]) -> Iterator[Basis]:
    """Yield the figures of a device that some ops rest on, each once."""
    for path, figure in dict(_rates_of(hardware, engine, ops)).items():
        yield Basis(hardware.id, path, float(figure), figure.source)


def _rates_of(hardware: Hardware, engine: Engine, ops: list[Op]) -> Iterator[tuple[str, Figure]]:
    rates = Rates(hardware, engine.kernels_on(hardware))
    kinds = {op.rate for op in ops}
    multiplied = {rates.peak(op.format)[0]: None for op in ops if op.rate == "gemm"}  # in order, once each
    attended = {rates.peak(op.format)[0]: None for op in ops if op.rate.endswith("attention")}
    yield from _of(hardware, "memory_bytes_per_s")
    for peak in multiplied | attended:
        yield from figures(hardware.peak_flops_per_s[peak], f"peak_flops_per_s.{peak}")
    for peak in multiplied:
        yield from figures(hardware.achievable.gemm.get(peak), f"achievable.gemm.{peak}")
    if multiplied and rates.kernels.streams:
        best = hardware.achievable.best_memory_fraction
        yield next(each for each in figures(hardware.achievable, "achievable") if each[1] is best)
    for part in ("decode_attention", "prefill_attention", "stream", "all_reduce"):
        if part in kinds:
            name = "stream_memory_fraction" if part == "stream" else part
            yield from figures(getattr(hardware.achievable, name), f"achievable.{name}")
    if "all_reduce" in kinds:
        yield from figures(hardware.achievable.ring_all_reduce, "achievable.ring_all_reduce")
    if "all_to_all" in kinds:
        yield from figures(hardware.achievable.all_reduce, "achievable.all_reduce")
    if "host_link" in kinds:
        yield from _of(hardware, "pcie_bytes_per_s")
    if kinds & {"send", "all_reduce", "all_to_all"}:
        yield from _of(hardware, "link" if hardware.link else "pcie_bytes_per_s")


def rests_on(used: Iterable[Basis], evidence: Evidence) -> str:
    """Name the figures of one kind of evidence in a line, parts of the same kernel together; "" for none.

    >>> guess = Source(text="", date="", evidence="guess")
    >>> gemm = [Basis("l4", f"achievable.gemm.bf16.{part}", 0.7, guess) for part in ("launch_s", "exponent")]
    >>> rests_on(gemm, "guess")
    'l4: gemm.bf16'
    """
    named: dict[str, dict[str, None]] = {}
    for each in used:
        if each.source.evidence == evidence:
            named.setdefault(each.profile, {})[_part(each.figure)] = None
    return "; ".join(f"{profile}: {', '.join(parts)}" for profile, parts in named.items())


def _part(figure: str) -> str:
    """Shorten the path of a figure to the key of the profile under which it is found."""
    names = figure.split(".")
    if names[0] == "achievable":
        return ".".join(names[1:3] if names[1] == "gemm" else names[1:2])
    return names[-1] if names[0] in ("memory", "overheads") else figure


UNITS = {
    "flops_per_s": "FLOP/s",
    "bytes_per_s": "B/s",
    "usd_per_hour": "USD/h",
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

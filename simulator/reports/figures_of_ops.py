"""Figures of profiles that the ops of a step rest on: a device's rates, an engine's kernels, and Python's own."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel

from simulator.engines.conditions import rule_of
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.fitted_multipliers import UNITY
from simulator.engines.norm_kernels import NormKernels
from simulator.hardware.achievable import PeakName
from simulator.hardware.hardware import Hardware
from simulator.models.number_formats import number_format, type_name
from simulator.models.op_builders import SCAN
from simulator.models.operations import Op
from simulator.profile import Figure, Profile
from simulator.roofline.collectives import LINKED
from simulator.roofline.roofline import Rates
from simulator.roofline.weight_only import vector_rows

DEPTHS = {  # names of a path by which parts of a rule are told apart, where ops rest on one of them and not on others
    "expert_kernels": 2,
    "dense_marlin": 2,
    "gemm_calls": 2,
    "norm_kernels": 2,
    "split_decode.prefill": 3,
    "split_decode.latent": 2,
    "clocked_gemms.own": 3,
}


class DeviceOps(NamedTuple):
    """The ops of a step that one device computes, and its kernels: the device itself, or the CPU of its host."""

    kernels: DeviceKernels
    ops: tuple[Op, ...]

    @property
    def hardware(self) -> Hardware:
        """The device."""
        return self.kernels.hardware

    @property
    def rates(self) -> Rates:
        """Rates of the kernels on it."""
        return Rates(self.kernels)


def sourced_figures(value: object, path: str = "") -> Iterator[tuple[str, Figure]]:
    """Yield every sourced figure inside a profile with its dotted path.

    >>> from simulator.hardware.hardware import load_hardware
    >>> next(sourced_figures(load_hardware("h100-sxm").link, "link"))
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
        yield from sourced_figures(part, f"{path}.{name}".lstrip("."))


def own_figures(profile: Profile, *names: str) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of some fields of a profile, with their dotted paths."""
    for name in names:
        yield from sourced_figures(getattr(profile, name), name)


def kind_of_gemm(op: Op, rates: Rates) -> str:
    """Return the field of Achievable that has the rates of a GEMM."""
    late, name = number_format(op.format).scaled_late, rates.peak(op.format)[0]
    return rates.hardware.achievable.kind_of(name, experts=op.experts is not None, blocks=late)


def rate_figures(part: DeviceOps) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of a device's profile that its ops rest on, with their dotted paths."""
    hardware, rates, ops = part.hardware, part.rates, part.ops
    kinds = {op.rate for op in ops}
    attended = [op for op in ops if op.rate.endswith("attention")]
    scored = (op for op in attended if op.rate == "prefill_attention" and rates.writes_scores(op))
    gemms = [*(op for op in ops if op.rate == "gemm"), *scored]
    multiplied = dict.fromkeys((rates.peak(op.format)[0], kind_of_gemm(op, rates)) for op in gemms)  # in order, once
    yield from own_figures(hardware, "memory_bytes_per_s")
    for field, peak in _peaks(part):
        yield from sourced_figures(getattr(hardware, field)[peak], f"{field}.{peak}")
    starts = "launch_s" if part.kernels.rules.start_s is not None else ""  # in whose place the engine's own stands
    for peak, kind in multiplied:
        found = sourced_figures(getattr(hardware.achievable, kind).get(peak), f"achievable.{kind}.{peak}")
        yield from (each for each in found if each[0].rpartition(".")[2] != starts)
    if multiplied and part.kernels.rules.reads_at_best_rate:
        best = hardware.achievable.best_memory_fraction
        yield next(each for each in sourced_figures(hardware.achievable, "achievable") if each[1] is best)
    own = hardware.achievable.decode_attention
    read = {rates.decoding.cache_figure(own, op) for op in attended if own and op.rate == "decode_attention"}
    unread = {"memory_fraction", "fp8_memory_fraction", "latent_memory_fraction"} - read
    for name in ("decode_attention", "prefill_attention", "elementwise_memory_fraction", "elementwise_launch_s"):
        if name.startswith(tuple(kinds)):
            found = sourced_figures(getattr(hardware.achievable, name), f"achievable.{name}")
            yield from (each for each in found if each[0].rpartition(".")[2] not in unread)
    waves = any(rates.gemms.fills_tiles(rates.peak(op.format)[0], op) for op in ops if op.rate == "gemm")
    if waves:
        yield from sourced_figures(hardware.achievable.wave_fraction, "achievable.wave_fraction")
    tiled = waves or any(op.rate == "gemm" and part.kernels.tile_rows(op) for op in ops)
    if tiled or any(rates.decoding.split(op) for op in attended):
        yield from own_figures(hardware, "multiprocessors")
    strided = any(part.kernels.reread_flops_per_s(op) < math.inf for op in attended)
    yield from own_figures(hardware, *["memory_channels"] * strided)
    if "all_reduce" in kinds and hardware.node_devices > 1:
        yield from sourced_figures(hardware.achievable.all_reduce, "achievable.all_reduce")
        yield from sourced_figures(hardware.achievable.ring_all_reduce, "achievable.ring_all_reduce")
    if kinds & {"all_to_all", "send"}:
        yield from sourced_figures(hardware.achievable.all_reduce, "achievable.all_reduce")
    if "host_link" in kinds:
        yield from own_figures(hardware, "pcie_bytes_per_s")
    if kinds & {*LINKED}:
        yield from own_figures(hardware, "link" if hardware.link else "pcie_bytes_per_s")
    if any(op.rate in LINKED and op.link_devices > hardware.node_devices for op in ops):
        yield from own_figures(hardware, "network", "devices_per_node")


def _peaks(part: DeviceOps) -> dict[tuple[str, PeakName], None]:
    """Return the peaks of a device that its ops rest on, once each, in order: the field of Hardware, and the type."""
    hardware, rates = part.hardware, part.rates
    found: dict[tuple[str, PeakName], None] = {}
    for op in part.ops:
        known = hardware.peak_flops_per_s.keys()
        if op.rate == "gemm" or op.rate.endswith("attention"):
            found[rates.peaks(op.format)[0], rates.peak(op.format)[0]] = None
        unpacked = op.rate == "gemm" and (np.any(part.kernels.unpack_s(op, 1.0)) or rates.clocked(op))
        attended = op.rate == "prefill_attention" and part.kernels.vector_attention_flops_per_s(op)
        few = op.rate == "gemm" and vector_rows(op, part.kernels)
        if few or rates.decoding.converts(op) or unpacked or attended:
            found["peak_flops_per_s", "fp32"] = None
        tiled = part.kernels.decode_padding(op) if op.rate == "decode_attention" else 1.0
        if op.cache_format == "fp8" and tiled > 1.0 and known >= {"fp8", "bf16"}:
            found |= dict.fromkeys([("peak_flops_per_s", "bf16"), ("peak_flops_per_s", "fp8")])
    return found


def kernel_figures(part: DeviceOps) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of an engine's kernels on a device that an op rests on: rules, then fitted multipliers."""
    idle = _idle(part)
    for path, figure in sourced_figures(part.kernels.of_engine, "kernels"):
        name = path.removeprefix("kernels.").removeprefix("rules.").removeprefix("fitted.")
        name = ".".join(name.split(".")[: next((depth for part, depth in DEPTHS.items() if name.startswith(part)), 1)])
        if figure.source != UNITY.source and not idle.get(name, False) and not path.startswith("kernels.overheads"):
            yield path, figure


def _idle(part: DeviceOps) -> dict[str, bool]:
    """Tell of the rules and multipliers that only some ops rest on whether none of these does."""
    rates, kernels, ops = part.rates, part.kernels, part.ops
    gemms = [op for op in ops if op.rate == "gemm"]
    own = {op: kernels.own_experts(op) for op in gemms if op.experts is not None}
    grouped = [op for op, experts in own.items() if experts is None]
    experts = kernels.rules.vector_expert_tokens
    few = [op for op in gemms if rates.unpacks(op.format) and (op.experts is None or experts)]
    late = [op for op in grouped if rates.peak(op.format)[0] == "fp8" and number_format(op.format).scaled_late]
    decoding = [op for op in ops if op.rate == "decode_attention" and op.heads]
    linked = {op.rate for op in ops} & {"all_reduce", "all_to_all"}
    clocked = [op for op in gemms if rates.clocked(op)]
    in_node = any(op.rate == "all_reduce" and op.link_devices <= part.hardware.node_devices for op in ops)
    return {
        "link": not linked,
        "clocked_gemms": not clocked,
        "compute": bool(gemms) and len(clocked) == len(gemms),
        "split_decode": not any(rates.decoding.split(op) for op in ops),
        **_idle_parts(part),
        "state_start_s": not any(op.updates_states for op in ops),
        "gemm_tiles": not any(kernels.tile_rows(op) for op in gemms),
        "sparse_heads": not any(kernels.head_padding(op) > 1.0 for op in ops),
        "chunked_decode": not any(rates.decoding.chunked(op) for op in ops),
        "empty_blocks": not any(rates.decoding.empty(op) for op in decoding),
        **dict.fromkeys(("one_shot_tokens", "reduced_bits"), not in_node),
        "gathers_tokens": "all_to_all" not in linked,
        "experts": not grouped or (kernels.fitted.block_experts is not None and len(late) == len(grouped)),
        "block_experts": not late,
        **{"experts_launch_s": not own, "asked_experts": True, "model_norms": True},
        **dict.fromkeys(
            ("expert_tile", "expert_tiles", "expert_launches", "k_loop_s", "experts_apart_from_tokens"), not grouped
        ),
        **{f"expert_kernels.{at}": each not in own.values() for at, each in enumerate(kernels.rules.expert_kernels)},
        **dict.fromkeys(("per_head", "per_head_crowded"), not any(map(kernels.reads_per_head, decoding))),
        "packed": not any(rates.unpacks(op.format) for op in gemms if not getattr(own.get(op), "memory", None)),
        "unpacks_from_rows": not any(rates.unpacks(op.format) for op in gemms),
        "vector_rows": not few,
        "vector_expert_tokens": not any(op.experts for op in few),
        "vector": all(kernels.unpacks_fast(op.format) for op in few),
        "fast_vector": not any(kernels.unpacks_fast(op.format) for op in few),
        "unpacked": not any(rates.unpacks(op.format) for op in gemms if own.get(op) is None and op not in clocked),
        "quantized": not any(
            rates.peak(op.format)[0] in ("fp8", "fp4") and not number_format(op.format).scaled_late for op in gemms
        ),
        "scan_flops_per_byte": not any(op.name == SCAN for op in gemms),
        "unpack_tokens": part.hardware.device_class != "cpu"
        or not any(number_format(op.format).unpacking for op in gemms),
        "half_length": bool(kernels.rules.score_bytes)
        and not any(rates.fuses(op) for op in ops if op.rate == "prefill_attention"),
    }


def _idle_parts(part: DeviceOps) -> dict[str, bool]:
    """Tell the same of attention of prompts, and of parts of rules: Triton by family, norms, GEMMs by format."""
    kernels, rules, hardware = part.kernels, part.kernels.rules, part.hardware
    triton, normed = rules.split_decode, {op.normed for op in part.ops if op.norms}
    used = triton.prompts(hardware) if triton else None
    latent = any(op.latent_heads and part.rates.decoding.split(op) for op in part.ops)
    gemms = [op for op in part.ops if op.rate == "gemm"]
    marlin, called = {kernels.dense_marlin(op) for op in gemms}, {kernels.gemm_call(op) for op in gemms}
    prefill = triton.prefill.items() if triton else ()
    prompts = [op for op in part.ops if op.rate == "prefill_attention"]
    strided = any(kernels.reread_flops_per_s(op) < math.inf for op in prompts)
    clocks = rules.clocked_gemms.own if rules.clocked_gemms else ()
    clocked = {rule_of(clocks, hardware, type_name(op.format)) for op in gemms}
    return {
        **{f"clocked_gemms.own.{at}": each not in clocked for at, each in enumerate(clocks)},
        **dict.fromkeys(("strided_cache", "reread"), not strided),
        "vector_attention": not any(kernels.vector_attention_flops_per_s(op) for op in prompts),
        "matrix_heads": not any(op.heads and op.shared_by > 1 for op in prompts),
        **{f"split_decode.prefill.{family}": rate is not used for family, rate in prefill},
        "expert_starts": not any(op.experts for op in gemms),
        **dict.fromkeys(("split_decode.latent_copies", "split_decode.latent_parts"), not latent),
        "split_decode.latent_prompts": not any(map(kernels.absorbs_prompts, part.ops)),
        **{f"norm_kernels.{name}": name not in normed for name in NormKernels.model_fields},
        **{f"dense_marlin.{at}": each not in marlin for at, each in enumerate(rules.dense_marlin)},
        **{f"gemm_calls.{at}": each not in called for at, each in enumerate(rules.gemm_calls)},
    }


def constant_figures(part: DeviceOps) -> Iterator[tuple[str, Figure]]:
    """Yield the figures that stand in Python, not in a profile, each once."""
    yield from dict(constant for op in part.ops for constant in part.rates.constants(op)).items()

"""From measured ops of a device to its hardware profile (ceilings, achievable fractions) and an engine preset."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from simulator.calibration.op_tables import OpTables, decode_line, prefill_line
from simulator.day import today
from simulator.engines.engine import Engine
from simulator.errors import ProfileError
from simulator.hardware.hardware import Hardware
from simulator.models.layers import Attention
from simulator.models.model import Model
from simulator.models.op_builders import SINGLE
from simulator.profile_files import refuse_name, write_yaml
from simulator.schema_versions import KEY, VERSIONS
from simulator.units import scaled

GEMMS_PER_LAYER = 4  # the time of a layer's small ops is charged to its GEMMs


@dataclass(frozen=True, slots=True)
class Bench:
    """Measured ceilings of a machine: bytes/s read from memory, FLOP/s by number format; and how steady they were."""

    name: str
    device: str  # as the machine calls it
    kind: str  # cpu or cuda
    dtype: str
    memory_bytes: float
    read_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    spread: float  # relative difference of repeats, and of two processes
    contended: float  # share of the measurements during which other processes used the cores
    software: str


def with_peaks_of(bench: Bench, like: Hardware | None) -> Bench:
    """Return the bench with a profile's data-sheet peaks as its ceilings, so that fitted fractions are of these.

    None leaves the bench as it is. Raises ProfileError where the profile has no peak for the bench's number format.
    """
    if like is None:
        return bench
    if bench.dtype not in like.peak_flops_per_s:
        raise ProfileError(f"{like.id} with {bench.dtype}", "the profile has no peak for it", "Give another --like")
    peaks = {str(name): float(value) for name, value in like.peak_flops_per_s.items()}
    return replace(bench, read_bytes_per_s=float(like.memory_bytes_per_s), flops_per_s=peaks)


@dataclass(frozen=True, slots=True)
class SoftRoofline:
    """Fitted constants of a GEMM's seconds, t = ((F / (c P))^p + (B / (m W))^p)^(1/p) + t0.

    F: FLOPs, P: peak FLOP/s, B: bytes, W: bytes/s. c: `compute_fraction`, m: `memory_fraction`, p: `exponent`, t0:
    `launch_s`. `median_error`: median |relative error| of the fit.
    """

    compute_fraction: float
    memory_fraction: float
    launch_s: float
    exponent: float
    median_error: float


def fit_gemms(bench: Bench, tables: OpTables) -> SoftRoofline:
    """Return the constants that fit the measured GEMMs best: least mean squared logarithm of the ratio, on a grid.

    Every measured GEMM counts alike. Fractions are at most 1.
    """
    size = 4.0 if bench.dtype == "fp32" else 2.0
    rows = [
        (*map(float, key.split("x")), float(tokens), seconds)
        for key, row in tables.gemm.items()
        for tokens, seconds in row.items()
    ]
    inputs, outputs, tokens, seconds = np.array(rows).T
    compute_s = 2 * inputs * outputs * tokens / bench.flops_per_s[bench.dtype]
    memory_s = size * (inputs * outputs + tokens * (inputs + outputs)) / bench.read_bytes_per_s
    fractions = np.linspace(0.1, 1.0, 46)
    best = SoftRoofline(1.0, 1.0, 0.0, 1.45, float("inf"))
    least = float("inf")
    for exponent in (1.0, 1.2, 1.45, 2.0, 3.0, 6.0):
        for launch_s in (0.0, 2e-6, 5e-6, 10e-6, 20e-6):
            computing, moving = ((each[None] / fractions[:, None]) ** exponent for each in (compute_s, memory_s))
            predicted = (computing[:, None] + moving[None]) ** (1 / exponent) + launch_s
            error = np.log(predicted / seconds)
            score = (error**2).mean(axis=-1)
            at = np.unravel_index(int(score.argmin()), score.shape)
            if score[at] < least:
                least, median = float(score[at]), float(np.median(np.abs(error[at])))
                best = SoftRoofline(float(fractions[at[0]]), float(fractions[at[1]]), launch_s, exponent, median)
    return best


def hardware_profile(bench: Bench, tables: OpTables, model: Model, like: Hardware | None = None) -> dict[str, Any]:
    """Return the mapping of a hardware profile; `like`: a profile whose data-sheet peaks replace the measured ceilings.

    Raises ProfileError where the measurements make no sound profile.
    """
    gemms = fit_gemms(bench, tables)
    per_step, per_sequence, per_read = decode_line(tables)
    per_token, per_pair = prefill_line(tables, per_step + per_sequence)
    mixer = next(block.mixer for block in model.blocks.values() if isinstance(block.mixer, Attention))
    size = 4.0 if bench.dtype == "fp32" else 2.0
    read_bytes = 2 * mixer.kv_heads * mixer.head_dim * size
    peak, rest = bench.flops_per_s[bench.dtype], tables.layer_rest
    launch_s = gemms.launch_s + rest[min(rest)] / GEMMS_PER_LAYER
    half_tokens = 2 * per_token / per_pair if per_pair > 0 else 0.0
    attention_share = 4 * mixer.heads * mixer.head_dim / max(per_pair * peak, 1e-30)
    achievable = {
        "gemm": {
            bench.dtype: {
                "compute_fraction": _figure(gemms.compute_fraction),
                "memory_fraction": _figure(gemms.memory_fraction),
                "launch_s": _figure(launch_s, "s"),
                "exponent": _figure(gemms.exponent),
            }
        },
        "decode_attention": {
            "memory_fraction": _fraction(read_bytes / max(per_read, 1e-30) / bench.read_bytes_per_s),
            "launch_s": _figure(per_step, "s"),
        },
        "prefill_attention": {
            "compute_fraction": _fraction(attention_share),
            "half_length_tokens": {"value": f"{half_tokens:.4g} tokens", "source": "fitted"},
        },
        "elementwise_memory_fraction": _fraction(_elementwise_share(bench, tables, model, size)),
    }
    return _profile(bench, achievable, gemms.median_error, like)


def _elementwise_share(bench: Bench, tables: OpTables, model: Model, size: float) -> float:
    """Return the rate at which a layer's other ops move activations, as a share of the rate of reading memory."""
    elementwise = [op for op in model.ops(SINGLE) if op.rate == "elementwise" and op.repeats > 1]
    width = sum(float(op.activation_bytes.tokens) * op.repeats for op in elementwise) / SINGLE.activation_bytes
    tokens = sorted(tables.layer_rest)
    slope_s = (tables.layer_rest[tokens[-1]] - tables.layer_rest[tokens[0]]) / (tokens[-1] - tokens[0])
    return width / len(model.layer_names) * size / max(slope_s, 1e-12) / bench.read_bytes_per_s


def _profile(bench: Bench, achievable: dict[str, Any], error: float, like: Hardware | None) -> dict[str, Any]:
    """Return the mapping of the profile with its sources; `error`: median error of the fit to GEMMs."""
    made = today().isoformat()
    differ = f"repeats and two processes differ by up to {bench.spread:.0%}"
    disturbed = f"others used the cores in {bench.contended:.0%}"
    text = f"infercast calibrate on {bench.device}, {bench.software}; {differ}, {disturbed}"
    profile: dict[str, Any] = {
        KEY: VERSIONS[Hardware.__name__],
        "name": bench.name,
        "vendor": like.vendor if like else bench.device.split(maxsplit=1)[0],
        "family": like.family if like else bench.kind,
        "device_class": like.device_class if like else "cpu" if bench.kind == "cpu" else "datacenter-gpu",
        "notes": "Peaks are measured ceilings." if not like else f"Peaks are those of {like.id}.",
        "sources": {
            "measured": {"text": text, "date": made, "evidence": "measured"},
            "peaks": {"text": f"the profile {like.id}", "date": made, "evidence": "datasheet"}
            if like
            else {"text": f"ceilings: {text}", "date": made, "evidence": "measured"},
            "fitted": {
                "text": f"{text}; soft roofline fitted to its GEMMs: {error:.0%} median error",
                "date": made,
                "evidence": "fitted",
            },
        },
        "memory_marketed_bytes": {"value": f"{bench.memory_bytes / 2**30:.4g} GiB", "source": "measured"},
        "memory_bytes_per_s": {"value": f"{bench.read_bytes_per_s / 1e9:.5g} GB/s", "source": "peaks"},
        "peak_flops_per_s": {
            name: {"value": f"{value / 1e12:.5g} TFLOP/s", "source": "peaks"}
            for name, value in bench.flops_per_s.items()
        },
        "achievable": achievable,
    }
    Hardware.from_mapping(profile, bench.name)
    return profile


def _figure(value: float, unit: str = "") -> dict[str, Any]:
    if unit == "s":
        return {"value": f"{value * 1e6:.4g} us", "source": "fitted"}
    return {"value": round(float(value), 4), "source": "fitted"}


def _fraction(value: float) -> dict[str, Any]:
    return _figure(min(1.0, max(1e-4, value)))


def engine_preset(bench: Bench, tables: OpTables, model: Model) -> dict[str, Any]:
    """Return the mapping of an engine preset with the measured host times, vLLM's rules, and 0.9 of the memory."""
    _, per_sequence, _ = decode_line(tables)
    sequence_s = tables.host_sequence_s + per_sequence * len(model.layer_names)
    made = today().isoformat()
    own = {"text": "simulator/reference: its own rules and defaults", "date": made, "evidence": "derived"}
    measured = {"text": f"infercast calibrate on {bench.device}", "date": made, "evidence": "measured"}
    kernels = sum(op.launches * op.repeats for op in model.ops(SINGLE))
    prompt_launch_s = {"value": f"{tables.prompt_least_s / kernels * 1e6:.4g} us", "source": "measured"}
    return {
        KEY: VERSIONS[Engine.__name__],
        "engine": "reference",
        "version": "0.1",
        "sources": {"own": own, "measured": measured},
        "policy": "continuous",
        "block_size": {"value": 16, "source": "own"},
        "max_num_seqs": ({"value": {"value": 16, "source": "own"}},),
        "max_num_batched_tokens": ({"value": {"value": 256, "source": "own"}},),
        "admit_full_prompt": True,
        "memory": {
            "convention": "of_total",
            "fraction": {"value": 0.9, "source": "own"},
            "context_bytes": {"value": "0 GiB", "source": "own"},
            "graph_bytes": {"value": "0 GiB", "source": "own"},
            "logit_copies": {"value": 1, "source": "own"},
        },
        "overheads": {
            "step_s": {"value": f"{tables.host_s * 1e6:.4g} us", "source": "measured"},
            "sequence_s": {"value": f"{sequence_s * 1e6:.4g} us", "source": "measured"},
            "request_s": {"value": "0 us", "source": "own"},
        },
        **({"kernels": ({"fitted": {"prompt_launch_s": prompt_launch_s}},)} if tables.prompt_least_s else {}),
    }


def write_profiles(
    folder: Path, bench: Bench, tables: OpTables, profiles: Mapping[str, Mapping[str, Any]]
) -> list[Path]:
    """Write profiles by kind ("hardware_profiles/x" -> mapping) and the tables into a user's folder; return the paths.

    Raises ProfileError for a name that cannot be a file's.
    """
    refuse_name(bench.name)
    written = []
    for place, profile in profiles.items():
        path = folder / f"{place}.yaml"
        written.append(write_yaml(path, path.parent.name, profile))
    tables_path = folder / f"{bench.name}.optables.json"
    tables.write(tables_path)
    return [*written, tables_path]


def describe(bench: Bench) -> str:
    """Return the ceilings as one line of text."""
    rates = ", ".join(f"{name} {scaled(value, 'FLOP/s')}" for name, value in bench.flops_per_s.items())
    return f"{bench.device}: reads {scaled(bench.read_bytes_per_s, 'B/s')}, multiplies {rates}"

"""Columns of the lists of `infercast profiles`: the main figures of each kind of profile."""

from collections.abc import Callable, Mapping
from typing import Any

from simulator.cli.numbers import count, number
from simulator.cli.output import Column, Row
from simulator.engines.device_kernels import DeviceKernels
from simulator.engines.engine import Engine
from simulator.hardware.hardware import Family, Hardware
from simulator.hardware.prices import PriceList
from simulator.hardware.purchases import PurchaseList
from simulator.hardware.sites import Site
from simulator.models.model import Model
from simulator.profile import Profile
from simulator.reports.figures_of_ops import sourced_figures
from simulator.roofline.roofline import Rates
from simulator.units import GIB
from simulator.workloads.workload import WorkloadPreset


def _guesses(profile: Profile) -> str:
    """Return how many of a profile's figures are guesses or taken from a related device ("family"), as "3 of 40"."""
    every = [figure.source.evidence for _, figure in sourced_figures(profile)]
    return f"{sum(each in ('guess', 'family') for each in every)} of {len(every)}"


def _hardware(device: Hardware) -> Row:
    half, peak = Rates(DeviceKernels(device)).peak("bf16")
    kernels = device.achievable.gemm.get(half)
    fp8 = device.peak_flops_per_s.get("fp8")
    return {
        "name": device.name,
        "memory_bytes": float(device.memory_bytes),
        "memory_bytes_per_s": float(device.memory_bytes_per_s),
        "half_flops_per_s": float(peak),
        "fp8_flops_per_s": float(fp8) if fp8 else None,
        "link_bytes_per_s": float(device.link.bytes_per_s) if device.link else None,
        "tdp_w": float(device.tdp_w) if device.tdp_w else None,
        "kernels": kernels.compute_fraction.source.evidence if kernels else None,
    }


def _model(model: Model) -> Row:
    return {
        "name": model.name,
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "layers": len(model.layer_names),
        "hidden": model.hidden,
        "max_context_tokens": model.max_context_tokens,
        "cache_bytes_per_token": model.cache_bytes(1),
        "window_tokens": model.span.tokens if model.span else None,
        "weight_dtype": model.weight_dtype,
    }


def _engine(engine: Engine) -> Row:
    return {
        "policy": engine.policy,
        "block_tokens": int(engine.block_size),
        "memory_convention": engine.memory.convention,
        "memory_fraction": float(engine.memory.fraction),
        "guesses": _guesses(engine),
    }


def _prices(prices: PriceList) -> Row:
    dates = sorted({offer.usd_per_hour.source.date for offer in prices.offers} - {"undated"})
    return {
        "provider": prices.provider,
        "offers": len(prices.offers),
        "devices": len({offer.hardware for offer in prices.offers}),
        "from": dates[0] if dates else "undated",
        "to": dates[-1] if dates else "undated",
    }


def _purchases(listed: PurchaseList) -> Row:
    devices = {each.hardware for each in listed.purchases}
    return {"vendor": listed.vendor, "things": len(listed.purchases), "devices": len(devices)}


def _site(site: Site) -> Row:
    optional = site.usd_per_kwh, site.colocation_usd_per_kw_month
    usd_per_kwh, colocation = (None if each is None else float(each) for each in optional)
    return {
        "name": site.name,
        "pue": float(site.pue),
        "grid_g_per_kwh": float(site.grid_g_per_kwh),
        "usd_per_kwh": usd_per_kwh,
        "colocation_usd_per_kw_month": colocation,
    }


def _workload(preset: WorkloadPreset) -> Row:
    return {"description": preset.description, "burstiness": float(preset.burstiness), "guesses": _guesses(preset)}


def _family(family: Family) -> Row:
    parts = {path.removeprefix("achievable.").partition(".")[0] for path, _ in sourced_figures(family)}
    return {"parts": ", ".join(sorted(parts)), "guesses": _guesses(family)}


GUESSES = Column("guesses", "guesses")
HEADLINES: Mapping[type[Profile], tuple[Callable[[Any], Row], tuple[Column, ...]]] = {
    Hardware: (
        _hardware,
        (
            Column("memory_bytes", "GiB", lambda value: f"{value / GIB:,.1f}"),
            Column("memory_bytes_per_s", "GB/s", number(3, 1e-9)),
            Column("half_flops_per_s", "16-bit TFLOP/s", number(3, 1e-12)),
            Column("fp8_flops_per_s", "fp8 TFLOP/s", number(3, 1e-12)),
            Column("link_bytes_per_s", "link GB/s", number(3, 1e-9)),
            Column("tdp_w", "TDP W", count),
            Column("kernels", "kernels", left=True),
        ),
    ),
    Model: (
        _model,
        (
            Column("parameters", "size G", number(3, 1e-9)),
            Column("active_parameters", "active G", number(3, 1e-9)),
            Column("layers", "layers"),
            Column("max_context_tokens", "context", count),
            Column("cache_bytes_per_token", "kB per token", number(3, 1e-3)),
            Column("window_tokens", "window", count),
            Column("weight_dtype", "weights", left=True),
        ),
    ),
    Engine: (
        _engine,
        (
            Column("policy", "policy", left=True),
            Column("block_tokens", "block"),
            Column("memory_convention", "memory", left=True),
            Column("memory_fraction", "fraction", number(2)),
            GUESSES,
        ),
    ),
    PurchaseList: (
        _purchases,
        (Column("vendor", "vendor", left=True), Column("things", "things"), Column("devices", "devices")),
    ),
    Site: (
        _site,
        (
            Column("name", "name", left=True),
            Column("pue", "PUE", number(3)),
            Column("grid_g_per_kwh", "g/kWh", number(3)),
            Column("usd_per_kwh", "$/kWh", number(3)),
            Column("colocation_usd_per_kw_month", "$/kW a month", number(3)),
        ),
    ),
    PriceList: (
        _prices,
        (
            Column("provider", "provider", left=True),
            Column("offers", "offers"),
            Column("devices", "devices"),
            Column("from", "from", left=True),
            Column("to", "to", left=True),
        ),
    ),
    WorkloadPreset: (
        _workload,
        (Column("description", "what", left=True), Column("burstiness", "burstiness", number(2)), GUESSES),
    ),
    Family: (_family, (Column("parts", "parts", left=True), GUESSES)),
}

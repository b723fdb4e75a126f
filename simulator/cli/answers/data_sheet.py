"""Data sheets of `infercast profiles models NAME` and `hardware NAME`: the main figures, and how good they are."""

from collections.abc import Iterator

from simulator.cli.answers.architecture_words import layers_in_words, order_in_words
from simulator.cli.output import Column, Row, View
from simulator.hardware.hardware import Hardware
from simulator.models.layout import Layout
from simulator.models.model import Model
from simulator.profile import Evidence, Figure, Profile
from simulator.reports.figures_of_ops import sourced_figures
from simulator.reports.provenance import Provenance, readable, rests_on
from simulator.units import GIB, gibibytes, scaled

PLAIN = (Column("what", "figure", left=True), Column("value", "value", left=True))
EVIDENCE = (Column("what", "evidence", left=True), Column("value", "figures", left=True))
SOURCED = (*PLAIN, Column("evidence", "evidence", left=True))
Line = tuple[str, str, str]  # what, value, evidence


def sheet(profile: Profile) -> list[View]:
    """Return the tables of a model's or a device's data sheet."""
    if isinstance(profile, Model):
        return _model_sheet(profile)
    return _device_sheet(profile) if isinstance(profile, Hardware) else []


def _rows(lines: Iterator[Line]) -> list[Row]:
    return [{"what": what, "value": value, "evidence": evidence} for what, value, evidence in lines if value]


def _model_sheet(model: Model) -> list[View]:
    layers: list[Row] = [{"what": times, "value": words} for times, words in layers_in_words(model)]
    if order := order_in_words(model):
        layers.append({"what": "", "value": f"in the order {order}"})
    heads = (Column("what", "layers"), Column("value", "each", left=True))
    names = View("Other names", (Column("name", "name", left=True),), [{"name": name} for name in model.aliases])
    return [
        View(f"{model.name} ({model.id})", SOURCED, _rows(_model_lines(model))),
        View(f"{len(model.layer_names)} layers", heads, layers),
        *([names] if model.aliases else []),
    ]


def _model_lines(model: Model) -> Iterator[Line]:
    active, total = model.active_parameters, model.parameters
    published = model.published_parameters
    yield "parameters", f"{total:,}", "derived"
    yield "  published", f"{published:,.0f}" if published else "", published.source.evidence if published else ""
    if active != total:
        yield "  of which a token uses", f"{active:,} ({active / total:.1%})", "derived"
        computed = model.computed_parameters
        yield "    without the embeddings", f"{computed:,}" if computed != active else "", "derived"
    layout = Layout(weight_dtype=model.weight_dtype, model_dtype=model.dtype, cache_dtype=model.dtype)
    weights = model.checkpoint_bytes
    yield f"weights in {model.weight_dtype}", f"{weights:,.0f} bytes = {gibibytes(weights)}", "derived"
    yield from _cache_lines(model, layout)
    yield "context", f"{model.max_context_tokens:,} tokens", ""
    yield "hidden size", f"{model.hidden:,}", ""
    tied = ", tied to the output head" if model.tied_embeddings else ""
    yield "vocabulary", f"{model.vocab:,}{tied}", ""
    if own := model.layer_inputs:
        yield "embeddings of each layer", f"{own.vocab:,} x {own.layers} x {own.width:,}", ""
    if model.vision:
        vision = model.vision.parameters
        yield "vision encoder", f"{vision:,.0f} parameters", vision.source.evidence


def _cache_lines(model: Model, layout: Layout) -> Iterator[Line]:
    """Yield the bytes that one token adds to the KV cache, in full digits, and the states of a sequence."""
    each, published = model.cache_bytes(1, layout), model.published_cache_bytes_per_token
    yield f"KV cache per token, {model.dtype}", f"{each:,.0f} bytes", "derived"
    yield "  published", f"{published:,.0f} bytes" if published else "", published.source.evidence if published else ""
    if span := model.span:
        beyond = model.cache_bytes(span.tokens + 1, layout) - model.cache_bytes(span.tokens, layout)
        yield f"  beyond {span.tokens:,} tokens", f"{beyond:,.0f} bytes", "derived"
    longest = model.cache_bytes(model.max_context_tokens, layout)
    yield "  of a whole context", f"{longest:,.0f} bytes = {gibibytes(longest)}" if longest else "", "derived"
    states = model.state_bytes(layout)
    yield "states per sequence", f"{states:,.0f} bytes" if states else "", "derived"


def _device_sheet(device: Hardware) -> list[View]:
    kernels = [*_kernel_rows(device)]
    quality: list[Row] = [{"what": kind, "value": names} for kind, names in _quality(device)]
    return [
        View(f"{device.name} ({device.id})", SOURCED, _rows(_device_lines(device))),
        View("What kernels reach of the peaks", KERNELS, kernels),
        View("Evidence other than data sheets", EVIDENCE, quality),
    ]


def _sourced(what: str, figure: Figure | None, path: str) -> Line:
    return (what, readable(path, figure), figure.source.evidence) if figure else (what, "", "")


def _device_lines(device: Hardware) -> Iterator[Line]:
    yield "made by", device.vendor, ""
    yield "family", f"{device.family}, {device.device_class}", ""
    marketed, reported = device.memory_marketed_bytes, device.memory_reported_bytes
    yield "memory as sold", f"{scaled(marketed, 'B')}", marketed.source.evidence
    if reported:
        yield "  as the driver reports it", f"{reported / GIB:,.2f} GiB", reported.source.evidence
    yield _sourced("bandwidth", device.memory_bytes_per_s, "bytes_per_s")
    for name, peak in device.peak_flops_per_s.items():
        per_byte = f", {peak / device.memory_bytes_per_s:,.0f} FLOP per byte"
        yield f"peak {name}, dense", scaled(peak, "FLOP/s") + per_byte, peak.source.evidence
    for name, peak in device.vector_flops_per_s.items():
        yield _sourced(f"  vector unit {name}", peak, "flops_per_s")
    yield _sourced("L2 cache", device.l2_cache_bytes, "l2_cache_bytes")
    if link := device.link:
        yield "link", link.name, ""
        yield (
            f"  each way, of {link.devices} devices",
            scaled(link.bytes_per_s, "B/s"),
            link.bytes_per_s.source.evidence,
        )
    yield _sourced("PCIe, each way", device.pcie_bytes_per_s, "bytes_per_s")
    if network := device.network:
        yield "network", network.name, ""
        yield _sourced("  of one device, each way", network.bytes_per_s, "bytes_per_s")
        yield _sourced("  latency of a hop", network.latency_s, "latency_s")
    yield "devices of a server", f"{device.node_devices}", ""
    yield _sourced("power", device.tdp_w, "tdp_w")
    yield "cores", f"{device.cores}" if device.cores else "", ""


KERNELS = (
    Column("what", "kernel", left=True),
    Column("compute", "of compute"),
    Column("memory", "of bandwidth"),
    Column("launch", "launch"),
    Column("evidence", "evidence", left=True),
)


def _kernel_rows(device: Hardware) -> Iterator[Row]:
    reach = device.achievable

    def row(what: str, compute: Figure | None, memory: Figure | None, launch: Figure | None) -> Row:
        shares = {"compute": compute, "memory": memory}
        known = [each.source.evidence for each in (compute, memory, launch) if each is not None]
        return {
            "what": what,
            **{name: f"{share:.0%}" if share else None for name, share in shares.items()},
            "launch": scaled(launch, "s") if launch else None,
            "evidence": ", ".join(dict.fromkeys(known)),
        }

    for name, gemm in ((name, gemm) for name, gemm in reach.gemm.items() if name in device.peak_flops_per_s):
        yield row(f"GEMM {name}", gemm.compute_fraction, gemm.memory_fraction, gemm.launch_s)
    if decode := reach.decode_attention:
        yield row("attention, decode", None, decode.memory_fraction, decode.launch_s)
    if prefill := reach.prefill_attention:
        yield row("attention, prefill", prefill.compute_fraction, None, None)
    if reach.elementwise_memory_fraction:
        yield row("elementwise", None, reach.elementwise_memory_fraction, reach.elementwise_launch_s)


KINDS_OF_EVIDENCE: dict[Evidence, str] = {
    "measured": "measured",
    "fitted": "fitted to measurements",
    "derived": "derived",
    "family": "of a related device",
    "guess": "guessed",
}


def _quality(device: Hardware) -> Iterator[tuple[str, str]]:
    """Yield each kind of evidence but the data sheet, and the figures that rest on it."""
    used = [Provenance(device.id, path, float(figure), figure.source) for path, figure in sourced_figures(device)]
    for evidence, words in KINDS_OF_EVIDENCE.items():
        names = rests_on(used, evidence).partition(": ")[2]
        if names:
            yield words, names

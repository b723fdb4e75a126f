"""Energy and CO2 of a deployment under a load: an estimate of the power from what binds each part of the time."""

from dataclasses import dataclass

from simulator.cost.mean_steps import decode_step, prompt_step
from simulator.deployment.deployment import Deployment
from simulator.hardware.hardware import Hardware
from simulator.hardware.sites import Site
from simulator.profile import Figure, Source
from simulator.reports.report import Report
from simulator.roofline.op_time import RESOURCES, seconds_by_resource


def _figure(value: float, text: str, evidence: str = "measured") -> Figure:
    return Figure(value, Source.model_validate({"text": text, "date": "2026-11-23", "evidence": evidence}))


IDLE_SHARE = _figure(
    0.17,
    "share of the TDP with a model loaded: a CUDA context adds 26 to 66 W to a bare idle GPU on H100, A100 and L40S "
    "(arXiv 2605.23918); that an H100 alone takes 70 W is recalled",
    "guess",
)
MEMORY_SHARE = _figure(0.43, "share of the TDP: decode draws 137 to 300 W of an H200's 700 W (arXiv 2605.11999)")
COMPUTE_SHARE = _figure(
    0.86,
    "share of the TDP: an H100 at 128 sequences draws 600 of 700 W (ML.ENERGY benchmark 3.0, in vLLM semantic router's "
    "docs, fleet-sim/power-model)",
)
HOST_W = _figure(
    150.0, "per device: a server without its 8 GPUs takes 1.2 kW (ecologits 0.11.3, impacts/llm.py)", "derived"
)
HOSTLESS = ("integrated-gpu", "cpu")  # their TDP is that of a whole machine, near enough


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy and CO2 of all instances at a load, with what the data centre adds: estimates.

    `grams_per_million_output_tokens`: of CO2-equivalent.
    """

    watts: float
    kwh_per_million_output_tokens: float
    grams_per_million_output_tokens: float
    output_tokens_per_joule: float


def idle_watts(hardware: Hardware) -> float | None:
    """Return the power of a device that waits, and of its share of a host, in watts; None without a TDP."""
    return hardware.tdp_w * IDLE_SHARE + host_watts(hardware) if hardware.tdp_w else None


def full_watts(hardware: Hardware) -> float | None:
    """Return the power of a device whose arithmetic binds all the time, and of its share of a host; None without a TDP.

    As of training; in watts.
    """
    return hardware.tdp_w * COMPUTE_SHARE + host_watts(hardware) if hardware.tdp_w else None


def host_watts(hardware: Hardware) -> float:
    """Return a device's share of the power of its host, in watts."""
    return 0.0 if hardware.device_class in HOSTLESS else float(HOST_W)


def power_w(deployment: Deployment, report: Report) -> float | None:
    """Return the mean power in watts of a replica that a report is of, an estimate; None for a device without a TDP.

    Its hosts are included, what the data centre adds is not.

    P = n (TDP (s_idle t_idle + s_memory t_memory + s_compute t_compute) + P_host), with n devices and shares t of the
    time by the roofline: of a mean step of decodes and of a mean prompt, each op counts for the resource that binds it.
    A link counts like memory; launches and idle time count as idle.
    """
    hardware = deployment.hardware
    if not hardware.tdp_w:
        return None
    steps = deployment.step_model()
    compute = memory = 0.0
    for counts, share in (
        (decode_step(deployment, report), 1 - report.prompt_share),
        (prompt_step(deployment, report), report.prompt_share),
    ):
        seconds = seconds_by_resource(steps.explain(counts))
        bound = dict(zip(RESOURCES, seconds / seconds.sum(), strict=True))
        compute += report.utilisation * share * bound["compute"]
        memory += report.utilisation * share * (bound["memory"] + bound["link"])
    share = IDLE_SHARE * (1 - compute - memory) + MEMORY_SHARE * memory + COMPUTE_SHARE * compute
    return deployment.devices * (hardware.tdp_w * share + host_watts(hardware))


def busy_watts(deployment: Deployment, report: Report) -> float:
    """Return the power of a replica, in watts, beyond that of its devices when they wait; 0 without a TDP."""
    one_w, idle_w = power_w(deployment, report), idle_watts(deployment.hardware)
    return one_w - deployment.devices * idle_w if one_w is not None and idle_w is not None else 0.0


def instance_watts(deployment: Deployment, report: Report, replicas: int, devices: int | None) -> float | None:
    """Return the power in watts of replicas like that of a report, and of the `devices` beside them, which wait.

    Without what the data centre adds. `devices`: of all instances; None for no more than the replicas have. None
    without a TDP.
    """
    one_w, idle_w = power_w(deployment, report), idle_watts(deployment.hardware)
    if one_w is None or idle_w is None:
        return None
    waiting = devices - replicas * deployment.devices if devices else 0
    return one_w * replicas + idle_w * waiting


def energy(watts: float, output_tokens_per_s: float, site: Site) -> Energy:
    """Return the energy of what takes `watts` at its machines and generates so many tokens/s, in a data centre.

    kWh per million = watts x PUE / 1000 / (tokens/s x 3600) x 10^6, and its CO2 by the grid's intensity. 800 W at 1,000
    tokens/s with the PUE 1.2 of the site:

    >>> from simulator.hardware.sites import load_site
    >>> found = energy(800.0, 1000.0, load_site("usa"))
    >>> round(found.kwh_per_million_output_tokens, 3), round(found.grams_per_million_output_tokens)
    (0.267, 103)
    """
    total_w = watts * site.pue
    kwh = total_w / 1000 / (output_tokens_per_s * 3600) * 1e6
    return Energy(total_w, kwh, kwh * site.grid_g_per_kwh, output_tokens_per_s / total_w)

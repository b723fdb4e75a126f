"""infercast: what LLM inference will take, before anyone rents a device.

Everything public is here and is imported when it is first used, so that `import simulator` stays instant.

>>> import simulator
>>> str(simulator.deploy("llama-3.1-8b", "h100-sxm"))
'llama-3.1-8b (bf16) on h100-sxm'
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any

_ROOMS = {
    "workloads.arrivals": ("ClosedLoop", "OpenLoop"),
    "simulation.autoscaler": ("Autoscaler", "Failure"),
    "simulation.clients": ("Clients",),
    "cost.bill": ("Bill", "bill", "usd_per_million"),
    "deployment.deployment": ("Deployment", "Settings", "default_layout", "deploy"),
    "engines.engine": ("Engine", "load_engine"),
    "errors": ("DoesNotFitError", "InfercastError", "NotModelledError", "ProfileError", "UnitError", "WorkloadError"),
    "reports.latency_breakdown": ("Explanation", "Split", "split"),
    "simulation.fleet": ("Fleet", "Pool", "simulate_fleet"),
    "simulation.fleet_run": ("FleetRun",),
    "hardware.hardware": ("Hardware", "load_hardware"),
    "workloads.lengths": ("Fixed", "Independent", "LogNormal", "Uniform"),
    "deployment.memory": ("MemoryPlan", "memory_plan"),
    "models.model": ("Model", "load_model"),
    "cost.capacity": ("Answer", "Capacity", "answer", "capacity", "compare"),
    "cost.scenario": ("Scenario",),
    "hardware.prices": ("Offer", "cheapest", "load_offers", "own_offer"),
    "reports.perfetto": ("trace", "write_trace"),
    "reports.queueing": ("QueueEstimate", "erlang_c", "m_g_1_wait_s", "m_m_c_wait_s"),
    "workloads.rate_curves": ("RateCurve", "read_rate_curve"),
    "reports.report": ("Report", "summarize"),
    "simulation.routers": ("Router",),
    "cost.service": ("Service", "ServiceReport"),
    "simulation.engine_loop": ("Run",),  # the function has the name of its module, which would hide it
    "reports.slo": ("Slo", "parse_slo"),
    "roofline.step_model": ("StepModel",),
    "reports.timeline": ("Timeline", "timeline_of"),
    "workloads.traces": ("Trace", "read_trace"),
    "models.operations": ("Counts", "Layout", "Op", "Sequence", "count"),
    "workloads.workload": ("Requests", "Workload", "load_workload"),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}
__all__ = sorted(_HOME)  # noqa: PLE0605  a list all the same


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("infercast")
    if name not in _HOME:
        raise AttributeError(f"module 'simulator' has no attribute {name!r}")
    return getattr(import_module(f"simulator.{_HOME[name]}"), name)

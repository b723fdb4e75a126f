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
    "arrivals": ("ClosedLoop", "OpenLoop"),
    "autoscaler": ("Autoscaler", "Failure"),
    "clients": ("Clients",),
    "cost": ("Bill", "bill", "usd_per_million"),
    "deployment": ("Deployment", "Settings", "default_layout", "deploy"),
    "engine": ("Engine", "load_engine"),
    "errors": ("DoesNotFitError", "InfercastError", "NotModelledError", "ProfileError", "UnitError", "WorkloadError"),
    "explain": ("Explanation", "Split", "split"),
    "fleet": ("Fleet", "Pool", "simulate_fleet"),
    "fleetrun": ("FleetRun",),
    "hardware": ("Hardware", "load_hardware"),
    "lengths": ("Fixed", "Independent", "LogNormal", "Uniform"),
    "memory": ("MemoryPlan", "memory_plan"),
    "model": ("Model", "load_model"),
    "plan": ("Answer", "Capacity", "Scenario", "answer", "capacity", "compare"),
    "prices": ("Offer", "cheapest", "load_offers", "own_offer"),
    "perfetto": ("trace", "write_trace"),
    "queueing": ("QueueEstimate", "erlang_c", "m_g_1_wait_s", "m_m_c_wait_s"),
    "rate_curves": ("RateCurve", "read_rate_curve"),
    "report": ("Report", "summarize"),
    "routers": ("Router",),
    "service": ("Service", "ServiceReport"),
    "simulate": ("Run",),  # the function has the name of its module, which would hide it
    "slo": ("Slo", "parse_slo"),
    "steps": ("StepModel",),
    "timeline": ("Timeline", "timeline_of"),
    "traces": ("Trace", "read_trace"),
    "work": ("Counts", "Layout", "Op", "Sequence", "count"),
    "workload": ("Requests", "Workload", "load_workload"),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}
__all__ = sorted(_HOME)  # noqa: PLE0605  a list all the same


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("infercast")
    if name not in _HOME:
        raise AttributeError(f"module 'simulator' has no attribute {name!r}")
    return getattr(import_module(f"simulator.{_HOME[name]}"), name)

"""infercast: what LLM inference will take, before anyone rents a device.

Everything public is here and is imported when it is first used, so that `import simulator` stays instant. Verbs are
functions (`deploy`, `memory_plan`, `estimate`, `simulate`, `sweep`, `capacity`, `compare`, `validate`,
`judge_claims`); what they return has `.to_frame()`.

>>> from simulator import Batch, deploy, estimate
>>> str(deploy("llama-3.1-8b", "h100-sxm"))
'llama-3.1-8b (bf16) on h100-sxm'
>>> estimate(deploy("llama-3.1-8b", "h100-sxm"), Batch(8, 1024, 128)).to_frame().loc["decode", "bound"].mode()[0]
'memory'
"""

from importlib import import_module
from importlib.metadata import version
from typing import Any

_FILES = {
    "claims.verdict": ("judge_claims",),
    "cost.capacity": ("answer", "capacity", "compare"),
    "cost.packing": ("packed",),
    "cost.scenario": ("Scenario", "simulate"),
    "cost.training": ("Training", "training_of"),
    "deployment.batches": ("Batch",),
    "deployment.deployment": ("Settings", "deploy"),
    "deployment.layouts": ("default_layout",),
    "deployment.estimate": ("estimate",),
    "deployment.memory": ("memory_plan",),
    "engines.engine": ("load_engine",),
    "errors": ("InfercastError",),
    "hardware.hardware": ("load_hardware",),
    "hardware.prices": ("Terms", "offers", "own_offer"),
    "models.model": ("load_model",),
    "questions.batch_question": ("BatchQuestion", "BatchSizes"),
    "questions.deployment_question": ("DeploymentQuestion",),
    "questions.load_question": ("LoadQuestion", "RunQuestion", "SloQuestion"),
    "questions.sweep": ("sweep",),
    "questions.workload_question": ("WorkloadQuestion",),
    "reports.slo": ("parse_slo",),
    "validation.scores": ("validate",),
    "workloads.arrivals": ("ClosedLoop", "OpenLoop"),
    "workloads.lengths": ("Fixed", "Independent", "LogNormal"),
    "workloads.traces": ("read_trace",),
    "workloads.workload": ("Workload", "load_workload"),
}
_HOME = {name: file for file, names in _FILES.items() for name in names}
__all__ = sorted(_HOME)  # noqa: PLE0605  a list all the same


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("infercast")
    if name not in _HOME:
        raise AttributeError(f"module 'simulator' has no attribute {name!r}")
    return getattr(import_module(f"simulator.{_HOME[name]}"), name)

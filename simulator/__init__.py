"""infercast: what LLM inference will take, before anyone rents a device.

Everything public is here and is imported when it is first used, so that `import simulator` stays instant. Verbs are
functions (`deploy`, `memory_plan`, `estimate`, `simulate`, `sweep`, `capacity`, `compare`, `validate`,
`judge_claims`); what they return is frozen, has `.to_frame()`, and is shown as a table in notebooks.

>>> from simulator import Batch, deploy, estimate
>>> str(deploy("llama-3.1-8b", "h100-sxm"))
'llama-3.1-8b (bf16) on h100-sxm'
>>> estimate(deploy("llama-3.1-8b", "h100-sxm"), Batch(64, 1024, 128)).to_frame().loc["decode", "bound"].mode()[0]
'memory'
"""

from importlib import import_module
from importlib.metadata import version
from types import FunctionType
from typing import TYPE_CHECKING, Any

from simulator.public import checked

if TYPE_CHECKING:  # what type checkers and editors see
    from simulator.calibration.engine_logs import check_logs
    from simulator.claims.verdict import judge_claims
    from simulator.cost.capacity import answer, capacity, compare
    from simulator.cost.packing import packed
    from simulator.cost.scenario import Scenario, simulate
    from simulator.cost.training import Training, training_of
    from simulator.deployment.batches import Batch
    from simulator.deployment.deployment import deploy
    from simulator.deployment.estimate import estimate
    from simulator.deployment.layouts import default_layout
    from simulator.deployment.memory import memory_plan
    from simulator.deployment.offload_curve import offload_curve
    from simulator.deployment.settings import Settings
    from simulator.deployment.speculation import Speculation
    from simulator.engines.engine import load_engine
    from simulator.errors import InfercastError
    from simulator.hardware.hardware import load_hardware
    from simulator.hardware.prices import Terms, offers, own_offer
    from simulator.models.model import load_model
    from simulator.questions.batch_question import BatchQuestion, BatchSizes
    from simulator.questions.cost_question import CostQuestion
    from simulator.questions.deployment_question import DeploymentQuestion
    from simulator.questions.load_question import LoadQuestion, RunQuestion, SloQuestion
    from simulator.questions.price_question import PriceQuestion
    from simulator.questions.sweep import sweep
    from simulator.questions.workload_question import WorkloadQuestion
    from simulator.reports.slo import parse_slo
    from simulator.validation.scores import validate
    from simulator.workloads.arrivals import ClosedLoop, OpenLoop
    from simulator.workloads.lengths import Fixed, Independent, LogNormal
    from simulator.workloads.traces import read_trace
    from simulator.workloads.workload import SharedPrefix, Workload, load_workload

__version__: str
_FILES = {
    "calibration.engine_logs": ("check_logs",),
    "claims.verdict": ("judge_claims",),
    "cost.capacity": ("answer", "capacity", "compare"),
    "cost.packing": ("packed",),
    "cost.scenario": ("Scenario", "simulate"),
    "cost.training": ("Training", "training_of"),
    "deployment.batches": ("Batch",),
    "deployment.deployment": ("deploy",),
    "deployment.estimate": ("estimate",),
    "deployment.layouts": ("default_layout",),
    "deployment.memory": ("memory_plan",),
    "deployment.offload_curve": ("offload_curve",),
    "deployment.settings": ("Settings",),
    "deployment.speculation": ("Speculation",),
    "engines.engine": ("load_engine",),
    "errors": ("InfercastError",),
    "hardware.hardware": ("load_hardware",),
    "hardware.prices": ("Terms", "offers", "own_offer"),
    "models.model": ("load_model",),
    "questions.batch_question": ("BatchQuestion", "BatchSizes"),
    "questions.cost_question": ("CostQuestion",),
    "questions.deployment_question": ("DeploymentQuestion",),
    "questions.load_question": ("LoadQuestion", "RunQuestion", "SloQuestion"),
    "questions.price_question": ("PriceQuestion",),
    "questions.sweep": ("sweep",),
    "questions.workload_question": ("WorkloadQuestion",),
    "reports.slo": ("parse_slo",),
    "validation.scores": ("validate",),
    "workloads.arrivals": ("ClosedLoop", "OpenLoop"),
    "workloads.lengths": ("Fixed", "Independent", "LogNormal"),
    "workloads.traces": ("read_trace",),
    "workloads.workload": ("SharedPrefix", "Workload", "load_workload"),
}
_HOME = {name: file for file, names in _FILES.items() for name in names}
__all__ = [
    "Batch",
    "BatchQuestion",
    "BatchSizes",
    "ClosedLoop",
    "CostQuestion",
    "DeploymentQuestion",
    "Fixed",
    "Independent",
    "InfercastError",
    "LoadQuestion",
    "LogNormal",
    "OpenLoop",
    "PriceQuestion",
    "RunQuestion",
    "Scenario",
    "Settings",
    "SharedPrefix",
    "SloQuestion",
    "Speculation",
    "Terms",
    "Training",
    "Workload",
    "WorkloadQuestion",
    "answer",
    "capacity",
    "check_logs",
    "compare",
    "default_layout",
    "deploy",
    "estimate",
    "judge_claims",
    "load_engine",
    "load_hardware",
    "load_model",
    "load_workload",
    "memory_plan",
    "offers",
    "offload_curve",
    "own_offer",
    "packed",
    "parse_slo",
    "read_trace",
    "simulate",
    "sweep",
    "training_of",
    "validate",
]

if not TYPE_CHECKING:  # a type checker sees no name that is not there

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return version("infercast")
        if name not in _HOME:
            raise AttributeError(f"module 'simulator' has no attribute {name!r}")
        found = getattr(import_module(f"simulator.{_HOME[name]}"), name)
        return checked(found) if isinstance(found, FunctionType) else found


def __dir__() -> list[str]:
    """Return the public names, for completion."""
    return [*__all__, "__version__"]

"""Options of `infercast compare`: those of deployments, left open, and how much is shown."""

from dataclasses import dataclass
from typing import Annotated

from simulator.cli.options.deployment_options import DP, PP, TP, DeploymentOptions, Option, use_profiles
from simulator.cost.light_bounds import Demand
from simulator.questions.compare_question import ANY, Candidates, CompareQuestion


@dataclass(frozen=True)
class CompareOptions(DeploymentOptions, CompareQuestion):
    """Options for what is compared; whatever is not said is searched."""

    hardware: Annotated[
        str,
        Option(
            "--hardware",
            metavar="NAME,..",
            help="Devices, patterns (h*), classes (cloud, desktop, nvidia, hopper); all is the library.",
        ),
    ] = "all"
    engine: Annotated[
        str, Option("--engine", metavar="NAME,..", help="Engines; auto: the device's usual one; all: all that serve.")
    ] = ANY
    tp: Annotated[str, Option(*TP, metavar="N,..", help="Tensor parallelism; auto: whatever fits.")] = ANY
    pp: Annotated[str, Option(*PP, metavar="N,..", help="Pipeline parallelism; auto: whatever fits.")] = ANY
    ep: Annotated[str, Option("--ep", metavar="N,..", help="Expert parallelism; auto: whatever fits.")] = ANY
    dp: Annotated[str, Option(*DP, metavar="N,..", help="Data-parallel attention; auto: whatever fits.")] = ANY
    weight_dtype: Annotated[
        str,
        Option(
            "--weight-dtype",
            metavar="NAME,..",
            help="Formats of the weights; auto: the checkpoint's, and narrower ones that a device multiplies.",
        ),
    ] = ANY

    def options(self, asked: Demand) -> Candidates:
        """Return all candidates as `CompareQuestion.options` does, after opening the user's own profiles."""
        use_profiles(self.profiles)
        return CompareQuestion.options(self, asked)

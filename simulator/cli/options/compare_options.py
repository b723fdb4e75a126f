"""Options of `infercast compare`: those of deployments, left open, and how much is shown."""

from dataclasses import dataclass
from typing import Annotated

from simulator.cli.options.deployment_options import DP, PP, TP, DeploymentOptions, Option, use_profiles
from simulator.cost.light_bounds import Demand
from simulator.questions.compare_question import ANY, CompareQuestion, Options


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
    pp: Annotated[int, Option(*PP, min=0, help="Pipeline parallelism; 0: whatever fits.")] = 0
    ep: Annotated[int, Option("--ep", min=0, help="Expert parallelism; 0: whatever fits.")] = 0
    dp: Annotated[int, Option(*DP, min=0, help="Data-parallel attention; 0: whatever fits.")] = 0
    weight_dtype: Annotated[
        str,
        Option(
            "--weight-dtype",
            metavar="NAME,..",
            help="Formats of the weights; auto: the checkpoint's, and narrower ones that a device multiplies.",
        ),
    ] = ANY

    def options(self, asked: Demand) -> Options:
        """Return all candidates as `CompareQuestion.options` does, after opening the user's own profiles."""
        use_profiles(self.profiles)
        return CompareQuestion.options(self, asked)

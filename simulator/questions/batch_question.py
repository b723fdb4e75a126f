"""A question about one batch alone: which deployment, how many requests, how long; and its answer."""

from dataclasses import dataclass, field

from simulator.deployment.batches import Batch
from simulator.deployment.deployment import Deployment
from simulator.deployment.estimate import Estimate, estimate
from simulator.questions.deployment_question import DeploymentQuestion
from simulator.questions.words import arguments, whole


@dataclass(frozen=True)
class BatchWords:
    """Sizes and lengths of batches; comma lists make every combination. Options of `infercast estimate`."""

    batch: str = "1"
    input_len: str = "1024"
    output_len: str = "128"
    context_len: int = 0
    replicas: int = 1
    assume_fits: bool = False

    def batches(self) -> list[Batch]:
        """Return every combination, each what one replica has of it."""
        return [
            Batch(max(1, round(size / self.replicas)), prompt, output, self.context_len)
            for prompt in whole(self.input_len, "--input-len")
            for output in whole(self.output_len, "--output-len")
            for size in whole(self.batch, "--batch")
        ]

    def estimate(self, deployment: Deployment, batch: Batch) -> Estimate:
        """Return the answer; InfercastError, too, where a figure of a profile is missing."""
        found = estimate(deployment, batch, assume_fits=self.assume_fits)
        found.expected.e2el_s  # noqa: B018  a figure that is missing is met here, so that a sweep can go on without it
        return found


@dataclass(frozen=True)
class BatchQuestion:
    """What `infercast estimate` is asked."""

    deployment: DeploymentQuestion
    sizes: BatchWords = field(default_factory=BatchWords)

    def command(self) -> list[str]:
        """Return the command line that asks it."""
        return ["infercast", "estimate", *arguments(self.deployment), *arguments(self.sizes)]

"""A question about one batch alone, as `infercast estimate` takes it: deployment, batch size and lengths."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from simulator.deployment.batches import Batch
from simulator.deployment.deployment import Deployment
from simulator.deployment.estimate import Estimate, estimate
from simulator.errors import WorkloadError
from simulator.questions.batch_rows import batch_row
from simulator.questions.case_answer import CaseAnswer
from simulator.questions.deployment_question import DeploymentQuestion
from simulator.questions.identity import identity
from simulator.questions.words import arguments, plain, whole_numbers


@dataclass(frozen=True)
class BatchSizes:
    """Sizes and lengths of batches in tokens, as options of `infercast estimate`; comma lists make every combination.

    `batch` is the size over all `replicas`. `assume_fits`: do not check that memory and context hold the batch, because
    a measurement shows that it runs.

    >>> [str(each) for each in BatchSizes(batch="1,8", input_len="512").batches()]
    ['batch 1 x (512 in + 128 out)', 'batch 8 x (512 in + 128 out)']
    """

    batch: str = "1"
    input_len: str = "1024"
    output_len: str = "128"
    context_len: int = 0
    replicas: int = 1
    assume_fits: bool = False

    def each(self) -> list["BatchSizes"]:
        """Return the sizes and lengths of every combination; raises as `batches` does."""
        return [
            replace(plain(BatchSizes, self), batch=str(size), input_len=str(prompt), output_len=str(output))
            for prompt in whole_numbers(self.input_len, "--input-len")
            for output in whole_numbers(self.output_len, "--output-len")
            for size in whole_numbers(self.batch, "--batch")
        ]

    def batches(self) -> list[Batch]:
        """Return every combination as the batch of one replica.

        Raises InfercastError for a list that holds anything but whole numbers above 0, WorkloadError for a batch that
        is no multiple of the replicas and for a negative `context_len`.
        """
        return [
            Batch(self._share(int(one.batch)), int(one.input_len), int(one.output_len), self.context_len)
            for one in self.each()
        ]

    def _share(self, batch: int) -> int:
        """Return the sequences of each replica."""
        if batch % self.replicas:
            given, because = f"--batch {batch} over {self.replicas} replicas", "they share it evenly"
            raise WorkloadError(given, because, f"Give a multiple of {self.replicas}, or fewer replicas")
        return batch // self.replicas

    def estimate(self, deployment: Deployment, batch: Batch) -> Estimate:
        """Return the estimate of one batch on a deployment.

        Raises DoesNotFitError where memory cannot hold the batch, InfercastError where the engine's limits or the
        context cannot, ProfileError where a figure that it needs is in no profile.
        """
        found = estimate(deployment, batch, assume_fits=self.assume_fits)
        found.expected.e2el_s  # noqa: B018  raises here if a figure is missing, so that a sweep can skip this case
        return found


@dataclass(frozen=True)
class BatchQuestion:
    """All that `infercast estimate` is asked: deployments and batches.

    >>> asked = BatchQuestion(DeploymentQuestion("llama-3.1-8b", "l40s,h100-sxm"), BatchSizes("1,8"))
    >>> [f"{each.deployment.hardware} {each.sizes.batch}" for each in asked.each()]
    ['l40s 1', 'l40s 8', 'h100-sxm 1', 'h100-sxm 8']
    """

    deployment: DeploymentQuestion
    sizes: BatchSizes = field(default_factory=BatchSizes)

    def command(self) -> list[str]:
        """Return the command line that asks this question, as a list of words.

        >>> " ".join(BatchQuestion(DeploymentQuestion("qwen3-32b", "h100-sxm", tp="2"), BatchSizes("8")).command())
        'infercast estimate --model qwen3-32b --hardware h100-sxm --tp 2 --batch 8'
        """
        return ["infercast", "estimate", *arguments(self.deployment), *arguments(self.sizes)]

    def each(self) -> list["BatchQuestion"]:
        """Return a question for every combination of the comma lists, deployments first.

        Raises ProfileError for a name that no profile has, InfercastError for a list that cannot be read.
        """
        self.deployment.choices(), self.sizes.batches()  # refuse at once what no combination can mend
        return [BatchQuestion(one, sizes) for one in self.deployment.each() for sizes in self.sizes.each()]

    @property
    def together(self) -> "BatchQuestion":
        """Itself: it shares no work with others (`SweepQuestion.together`)."""
        return self

    def digests(self) -> Iterator[str]:
        """Yield the digests of the profiles that a question without lists names."""
        return self.deployment.digests()

    def estimate(self) -> Estimate:
        """Return the estimate of a question without lists; raises as `BatchSizes.estimate` does."""
        [batch] = self.sizes.batches()
        return self.sizes.estimate(self.deployment.deployment(), batch)

    def answer(self, level: float = 0.8, *, explain: bool = False) -> CaseAnswer:  # noqa: ARG002  as of every question
        """Return the answer to a question without lists as one row. Raises as `estimate` does."""
        found = self.estimate()
        return CaseAnswer(({**identity(found.deployment), **batch_row(found, level, self.sizes.replicas)},))

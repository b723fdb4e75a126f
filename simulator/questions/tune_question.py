"""Which settings are tried for a deployment, as `infercast tune` takes it: lists restrict, single values are fixed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from simulator.cost.scenario import Scenario
from simulator.cost.tuning import HighestRate, Objective, Point, Throughput
from simulator.errors import InfercastError, WorkloadError
from simulator.questions.deployment_question import SEQS, SHARE, TOKENS, DeploymentQuestion
from simulator.questions.load_question import SloQuestion
from simulator.questions.words import comma_list, probability
from simulator.questions.workload_question import WorkloadQuestion

TP, CACHE, DRAFTS = "--tp", "--cache-dtype", "speculation"
CHUNKS, LONG = "--set chunked_prefill", "--set long_prefill_tokens"
FIELDS = {
    TP: "tp",
    SEQS: "max_num_seqs",
    TOKENS: "max_num_batched_tokens",
    SHARE: "gpu_memory_utilization",
    CACHE: "cache_dtype",
}
LADDERS = {  # values that are tried where the user names none
    SEQS: tuple(str(2**power) for power in range(3, 12)),
    TOKENS: tuple(str(2**power) for power in range(9, 16)),
    SHARE: ("0.95",),  # more leaves no room for what the memory plan does not know
    CHUNKS: ("false",),
    LONG: ("256", "1024"),
    CACHE: ("fp8",),
}
DRAFT_TOKENS = (1, 2, 3, 4, 5, 7)


@dataclass(frozen=True)
class TuneQuestion:
    """All that `infercast tune` is asked: a deployment on `devices` devices, a workload without lists, an SLO, drafts.

    A setting with one value in the deployment's question is fixed, one with several has these alone; others have
    `LADDERS`. `drafts` are NAME:RATE, what may draft and its acceptance rate. `devices` 0: those of one replica.

    >>> asked = DeploymentQuestion("llama-3.1-8b", "l40s", max_num_seqs="64", max_num_batched_tokens="512,4096")
    >>> list(TuneQuestion(asked, WorkloadQuestion(), drafts=("ngram:0.4",), devices=2).coordinates)[:3]
    ['--tp', '--max-num-batched-tokens', '--gpu-memory-utilization']
    """

    deployment: DeploymentQuestion
    users: WorkloadQuestion
    accepted: SloQuestion = field(default_factory=SloQuestion)
    devices: int = 0
    drafts: tuple[str, ...] = ()

    @cached_property
    def coordinates(self) -> Mapping[str, Sequence[str]]:
        """The values that each setting may have, "" for its default."""
        found: dict[str, Sequence[str]] = {TP: ["", *self._degrees]}
        for name, ladder in LADDERS.items():
            given = str(getattr(self.deployment, FIELDS[name])) if name in FIELDS else ""
            if not given or "," in given:
                found[name] = ["", *(comma_list(given, name)[1:] if given else ladder)]
        found[DRAFTS] = ["", *(f"{draft} x {count}" for draft in self._rates for count in DRAFT_TOKENS)]
        return {name: values for name, values in found.items() if len(values) > 1}

    @property
    def fixed(self) -> str:
        """The settings that are given with one value, which stays, as options: they are no defaults."""
        given = {name: str(getattr(self.deployment, FIELDS[name])) for name in LADDERS if name in FIELDS}
        return " ".join(f"{name} {value}" for name, value in given.items() if value and "," not in value)

    @property
    def objective(self) -> Objective:
        """What is most: the rate within the SLO, or output tokens/s of a closed loop or of requests all at once.

        Raises WorkloadError for a rate, which the search finds itself, for lists, and without an SLO for a rate.
        """
        if len(self.users.each()) > 1:
            raise WorkloadError("several loads", "settings are tuned for one", "Give no comma lists of loads")
        if self.users.max_concurrency or self.users.request_rate == "inf":
            return Throughput()
        if self.users.request_rate:
            because = "the highest rate within the SLO is what tune searches"
            given = f"--request-rate {self.users.request_rate} of tune"
            raise WorkloadError(given, because, "Leave it out, or give inf for all requests at once")
        if not self.accepted.slo:
            because = "without a bound no rate is too high"
            raise WorkloadError("tune without --slo", because, "Give, say, --slo ttft:1s,tpot:50ms")
        return HighestRate()

    def scenario(self, point: Point) -> Scenario:
        """Return the scenario of some settings: a replica, and as many as the devices make.

        Raises InfercastError where the devices make no whole number of replicas, or the deployment is impossible.
        """
        deployment = self._asked(point).deployment()
        whole = self.devices or self._asked({}).deployment().devices
        if whole % deployment.devices:
            given = f"{deployment.devices} devices of a replica"
            raise InfercastError(given, f"{whole} devices are no whole number of them", "Give --devices")
        replicas = whole // deployment.devices
        asked = (
            self.users if isinstance(self.objective, Throughput) else replace(self.users, request_rate=self._any_rate)
        )
        ((_, workload),) = asked.workloads(replicas if not asked.trace else 1)
        return Scenario(deployment, workload, self.accepted.value(), replicas=replicas)

    @property
    def _any_rate(self) -> str:
        return "" if self.users.trace else "1"  # the search stretches the gaps

    @property
    def _degrees(self) -> list[str]:
        """Other degrees of tensor parallelism: those that are listed, or the powers of two up to the devices."""
        first, *others = comma_list(self.deployment.tp, TP)
        if others or not self.devices:
            return others
        return [str(2**power) for power in range(self.devices.bit_length()) if str(2**power) != first]

    @cached_property
    def _rates(self) -> dict[str, str]:
        """Acceptance rates of the drafts by name. Raises InfercastError for one without a rate."""
        found = {}
        for each in self.drafts:
            name, colon, rate = each.partition(":")
            if not colon:
                because = "no default acceptance would be honest: it depends on the draft, the model and the text"
                raise InfercastError(f"--draft {each}", because, f"Give, say, --draft {each}:0.6")
            try:
                probability(rate, "--draft")
            except InfercastError as error:
                raise InfercastError(f"--draft {each}", error.because, f"Give, say, --draft {name}:0.7") from None
            found[name] = rate
        return found

    def _asked(self, point: Point) -> DeploymentQuestion:
        """Return the question about some settings; of lists, the first values where a setting is at its default."""
        changes: dict[str, Any] = {}
        for name, attribute in FIELDS.items():
            text = getattr(self.deployment, attribute)
            changes[attribute] = point.get(name) or text.split(",")[0].strip()
        given = [f"{name.split()[1]}={point[name]}" for name in (CHUNKS, LONG) if point.get(name)]
        if given:
            changes["changes"] = (*(self.deployment.changes or ()), *given)
        if point.get(DRAFTS):
            draft, _, count = point[DRAFTS].partition(" x ")
            changes |= {"speculative_model": draft, "acceptance_rate": self._rates[draft]}
            changes["num_speculative_tokens"] = int(count)
        return replace(self.deployment, **changes)

    def flags(self, point: Point) -> list[str]:
        """Return the options of the command line that set a point, as words."""
        words: list[str] = []
        for name, value in point.items():
            if not value:
                continue
            if name == DRAFTS:
                draft, _, count = value.partition(" x ")
                words += ["--speculative-model", draft, "--num-speculative-tokens", count]
                words += ["--acceptance-rate", self._rates[draft]]
            elif name in (CHUNKS, LONG):
                words += ["--set", f"{name.split()[1]}={value}"]
            else:
                words += [name, value]
        return words

"""The cheapest deployments for a load within an SLO: best first, by bounds that are proved safe, then by simulation."""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from simulator.cost.bisection import bisect_first
from simulator.cost.candidate import (
    AnswerLookup,
    BoundedCandidate,
    BoundLookup,
    Candidate,
    LoadLookup,
    Rental,
    TriedReplicas,
    extra_watts,
    learned_of,
)
from simulator.cost.capacity import LIGHTEST_SHARE, Answer
from simulator.cost.energy import idle_watts
from simulator.cost.light_bounds import light_replicas
from simulator.cost.lower_bounds import LowerBounds
from simulator.cost.packing import Packing, replica_size
from simulator.cost.scenario import Scenario
from simulator.cost.spot import Interruptions, is_spot, rented
from simulator.errors import InfercastError
from simulator.executors.executor import TaskExecutor
from simulator.executors.threads import Threads
from simulator.hardware.hardware import Hardware
from simulator.hardware.prices import Offer
from simulator.reports.report import Report
from simulator.reports.slo import Slo
from simulator.workloads.workload import Workload

MOST_REPLICAS = 10_000  # of an answer whose price does not rise with them
ALONE = "even almost alone"  # why no number of replicas keeps the SLO
SAME_PRICE = 1.01  # times the dollars per hour of another
Price = Callable[[Rental], float | None]  # dollars per hour; None: no price
OffersOf = Callable[[Hardware, int], tuple[Offer, ...]]  # of a device, for a replica of so many
Rank = tuple[bool, float, int]  # without a price; $/h, or devices where there is no price; order among equals


class Target(NamedTuple):
    """What is asked of every candidate: a rate in requests/s of all replicas, its requests, the SLO, the price."""

    rate_per_s: float
    workload: Workload
    slo: Slo
    price: Price
    offers: OffersOf = lambda _hardware, _devices: ()  # of a replica, for its bill
    interruptions: Interruptions = Interruptions()  # of spot offers


def priced_target(
    rate_per_s: float, workload: Workload, slo: Slo, offers: OffersOf, interruptions: Interruptions = Interruptions()
) -> Target:
    """Return a target whose price is that of the cheapest whole instances which hold all replicas.

    Of spot offers with the spare ones that `Scenario.packing` rents, of owned ones with their electricity. There is no
    price where nothing is offered that holds a replica, or no spare ones are enough. Each case is looked up once.
    """
    known: dict[tuple[str, int], tuple[Offer, ...]] = {}
    packings: dict[tuple[str, int, int, float], Packing | None] = {}

    def offers_for(hardware: Hardware, devices: int) -> tuple[Offer, ...]:
        if (hardware.id, devices) not in known:
            known[hardware.id, devices] = offers(hardware, devices)
        return known[hardware.id, devices]

    def usd_per_hour(asked: Rental) -> float | None:
        hardware, devices = asked.hardware, asked.devices
        found, size = offers_for(hardware, devices), replica_size(hardware, devices)
        key = (hardware.id, devices, asked.replicas, asked.start_s if is_spot(found) else 0.0)
        if key not in packings:
            try:
                packings[key] = rented(size, asked.replicas, found, interruptions, asked.start_s)
            except InfercastError:  # no offer holds a replica, or no spare ones are enough
                packings[key] = None
        if (packing := packings[key]) is None:
            return None
        return packing.usd_per_hour_at((idle_watts(hardware) or 0.0) * packing.devices + asked.busy_w)

    return Target(rate_per_s, workload, slo, usd_per_hour, offers_for, interruptions)


@dataclass(frozen=True)
class Solution:
    """A candidate with its answer: the least number of replicas that keeps the SLO, and the highest rate of one.

    `busy_w`: power in watts of all of them beyond that of waiting devices; 0 where electricity is in the price.
    """

    candidate: Candidate
    answer: Answer
    usd_per_hour: float | None
    bounds: LowerBounds
    busy_w: float = 0.0

    @property
    def scenario(self) -> Scenario:
        """One replica and the load that was asked about."""
        return self.answer.scenario

    @property
    def replicas(self) -> int:
        """How many of them the asked rate takes."""
        return self.answer.replicas

    @property
    def report(self) -> Report:
        """One replica, simulated at its share."""
        return self.answer.report

    def price(self, load: Target, replicas: int) -> float | None:
        """Return the dollars per hour of so many replicas under the same load; None without a price."""
        return load.price(self.candidate.rental(replicas, self.scenario.start_s, self.busy_w))


@dataclass
class SearchNode:
    """What is known of one candidate so far: more replicas than `low` are needed, `replicas` are enough (0: not known).

    `busy_w`: power in watts of `replicas` beyond that of waiting devices; 0 where electricity is in the price.
    """

    candidate: Candidate
    low: int
    replicas: int = 0
    busy_w: float = 0.0
    step: int = 1
    bounds: LowerBounds | None = None
    answer: Answer | None = None
    error: InfercastError | None = None
    never: str = ""  # why no number of replicas keeps the SLO

    @property
    def is_decided(self) -> bool:
        """Whether the number of replicas is known: one less is too few."""
        return bool(self.replicas) and self.replicas == self.low + 1

    def note(self, tried: TriedReplicas) -> None:
        """Take note of a simulation."""
        assert self.bounds is not None  # noqa: S101  what is simulated was bounded before
        if tried.keeps:
            self.replicas, self.busy_w = tried.replicas, tried.busy_w
        else:
            self.low, self.step = tried.replicas, 2 * self.step
            if tried.share_per_s <= LIGHTEST_SHARE * self.bounds.most_per_s:
                self.never = ALONE

    def settle(self, answer: Answer) -> None:
        """Take note of the highest rate of a replica, by which the asked one may take more of them.

        What was tried before were the asked requests alone, which may be too few for a queue to build up.
        """
        self.answer = answer
        if not answer.replicas:
            self.never = ALONE
        elif answer.replicas > self.replicas:
            self.low, self.replicas = answer.replicas - 1, answer.replicas
            self.busy_w = extra_watts(answer.scenario, answer.report, self.replicas)

    @property
    def is_out(self) -> bool:
        """Whether it cannot run, or keeps the SLO at no load."""
        return self.error is not None or bool(self.never)


@dataclass
class Search:
    """Best-first search: the node whose cost is bounded lowest is expanded next, until it is decided.

    A candidate's bound is the cost of the fewest replicas that are not excluded: by the data sheet (`LightBounds`),
    then by its own steps (`LowerBounds`), then by simulations of the same requests and seed, at rate / replicas.
    More replicas never cost less. What is decided is answered as `cost` answers it (`capacity.answer`), and if that
    takes more replicas it waits for its turn again. So when the lowest bound of all belongs to a candidate that is
    decided, nothing left can cost less, and it is the next best: an exhaustive search finds the same. Of one device
    only the best candidate is an answer, since the others are the same offer with another layout or format.

    `top`: how many answers are wanted. `executor` expands as many nodes side by side as it has workers. `quantile`: of
    the measurements, the share whose steps take less than those searched with. `found` and `least_usd_left` may be read
    at any time.
    """

    load: Target
    candidates: Sequence[Candidate]
    top: int = 5
    executor: TaskExecutor = field(default_factory=Threads)
    quantile: float = 0.5
    found: list[Solution] = field(default_factory=list)
    out: list[SearchNode] = field(default_factory=list)
    same_cost: dict[int, list[Candidate]] = field(default_factory=dict)  # by the place of an answer
    simulated: int = 0
    _known: dict[tuple[str, str], Rank] = field(default_factory=dict)  # least that keeps the SLO, by model and device
    _heap: list[tuple[Rank, int, SearchNode]] = field(default_factory=list)
    _serial: int = 0
    _workload: Workload = field(init=False)

    def __post_init__(self) -> None:
        self._workload = self.load.workload.at_rate(self.load.rate_per_s)  # one object, whose requests are drawn once
        for each in self.candidates:
            self._push(SearchNode(each, light_replicas(each.device_s, each.devices, self.load.rate_per_s) - 1))

    def _push(self, node: SearchNode) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (self.rank(node, node.low + 1), self._serial, node))

    def rank(self, node: SearchNode | Solution, replicas: int) -> Rank:
        """Return what candidates are ordered by: dollars per hour, or devices for those without a price, then ties.

        One that was not built yet is taken to start at once: on spot it needs no more spare replicas then. Replicas
        that were not simulated are taken to wait: owned ones need no more electricity then.
        """
        candidate, start_s = node.candidate, node.bounds.scenario.start_s if node.bounds else 0.0
        busy_w = node.busy_w if replicas == node.replicas else 0.0
        usd = self.load.price(candidate.rental(replicas, start_s, busy_w))
        if usd is None:
            return True, float(candidate.devices * replicas), candidate.order
        return False, usd, candidate.order

    def run(self, progress: Callable[[int, int], None] = lambda _looked, _all: None) -> None:
        """Search to the end. `progress` is called with (candidates that are decided or cut, all candidates)."""
        while self._heap and len(self.found) < self.top:
            wave = list(self._next_wave())
            try:
                for place, learned in self.executor.finished(learned_of, [self._lookup(each) for each in wave]):
                    self._learn(wave[place], learned)
            finally:  # an interrupt leaves a state that can be read
                for each in wave:
                    self._sort_in(each)
            progress(len(self.candidates) - len(self._heap), len(self.candidates))

    @property
    def left(self) -> list[Rank]:
        """Lower bounds on the costs of candidates that are not decided; other layouts of answers are left out."""
        answered = {each.candidate.key for each in self.found}
        return [rank for rank, _, node in self._heap if node.candidate.key not in answered]

    @property
    def least_usd_left(self) -> float:
        """Lower bound on the dollars per hour of what is not decided; infinity where nothing of it has a price."""
        return min((usd for without_price, usd, _ in self.left if not without_price), default=math.inf)

    def _next_wave(self) -> Iterator[SearchNode]:
        """Take answered candidates while they are the best; yield others to learn more of, one per worker."""
        expanding = 0
        while self._heap and expanding < self.executor.width and len(self.found) < self.top:
            entry = heapq.heappop(self._heap)
            node = entry[2]
            if self._is_alike(node.candidate, entry[0]):
                continue
            if node.answer is None:
                expanding += 1
                yield node
            elif expanding:  # it may not be the best: those that are expanded had lower bounds
                heapq.heappush(self._heap, entry)
                return
            else:
                self._take(node, node.answer)

    def _is_alike(self, candidate: Candidate, rank: Rank) -> bool:
        """Whether an answer has the same model and device; those that may cost the same are noted."""
        for place, each in enumerate(self.found):
            if each.candidate.key == candidate.key:
                own = self.rank(each, each.replicas)
                if rank[0] == own[0] and rank[1] <= own[1] * SAME_PRICE:
                    self.same_cost.setdefault(place, []).append(candidate)
                return True
        return False

    def _take(self, node: SearchNode, found: Answer) -> None:
        assert node.bounds  # noqa: S101  a decided candidate was bounded, then simulated
        usd = self.load.price(node.candidate.rental(node.replicas, found.scenario.start_s, node.busy_w))
        self.found.append(Solution(node.candidate, found, usd, node.bounds, node.busy_w))

    def _sort_in(self, node: SearchNode) -> None:
        if node.is_out:
            self.out.append(node)
            return
        self._push(node)
        if node.replicas:
            key, rank = node.candidate.key, self.rank(node, node.replicas)
            self._known[key] = min(rank, self._known.get(key, rank))

    def _lookup(self, node: SearchNode) -> BoundLookup | LoadLookup | AnswerLookup:
        """Return what is to be learnt of a candidate next: bounds, whether some replicas are enough, or its answer.

        First the most that would still be an answer, where others are known to do: if these do not, it is cut. Without
        others the number goes up in growing steps until the SLO is kept. Then what is between is halved.
        """
        load = self.load
        if node.bounds is None:
            offers = load.offers(node.candidate.hardware, node.candidate.devices)
            return BoundLookup(node.candidate, self._workload, load.slo, offers, load.interruptions, self.quantile)
        if node.is_decided:
            return AnswerLookup(node.bounds.scenario, load.rate_per_s)
        replicas = (node.low + node.replicas) // 2 if node.replicas else self._affordable(node) or node.low + node.step
        return LoadLookup(node.bounds.scenario, replicas, load.rate_per_s / replicas)

    def _learn(self, node: SearchNode, learned: BoundedCandidate | TriedReplicas | Answer | InfercastError) -> None:
        if isinstance(learned, InfercastError):
            node.error = learned
        elif isinstance(learned, Answer):
            node.settle(learned)
        elif isinstance(learned, BoundedCandidate):
            node.bounds, node.never = learned.bounds, learned.never
            node.low = max(node.low, math.ceil(self.load.rate_per_s / learned.most_per_s) - 1)
        else:
            self.simulated += 1
            node.note(learned)

    def _affordable(self, node: SearchNode) -> int:
        """Return the most replicas that would still be among the `top` answers; 0 where that is open."""
        limits = sorted(self._known.values())[self.top - 1 : self.top]
        own = self._known.get(node.candidate.key)
        if not (limits := [*limits, *([own] if own else [])]):
            return 0
        low, high = node.low + 1, 2 * (node.low + 1)
        while self.rank(node, high) <= min(limits) and high < MOST_REPLICAS:
            low, high = high, 2 * high
        return bisect_first(lambda replicas: self.rank(node, replicas) > min(limits), low, high) - 1

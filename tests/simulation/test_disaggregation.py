"""Prefill and decode on pools of their own: timetables worked by hand, and what they are in the limit."""

import numpy as np
import pytest

from simulator.deployment.deployment import deploy
from simulator.errors import InfercastError, NotModelledError, WorkloadError
from simulator.roofline.step_model import StepTable
from simulator.scheduler.state import CONTINUOUS, SchedulerLimits
from simulator.simulation.autoscaler import Failure
from simulator.simulation.clients import Clients
from simulator.simulation.disaggregation import CacheLink, cache_bytes
from simulator.simulation.engine_loop import simulate
from simulator.simulation.fleet import Fleet, Pool, simulate_fleet
from simulator.simulation.fleet_run import FleetRun
from simulator.simulation.routers import ROUTERS, Router
from simulator.workloads.workload import Requests
from tests.support.hand_made import SECONDS, TABLE, requests_of

LIMITS = SchedulerLimits(
    policy=CONTINUOUS,
    max_num_seqs=4,
    max_num_batched_tokens=64,
    num_blocks=200,
    block_size=4,
    admit_full_prompt=True,
)
FREE = StepTable(token_s=np.zeros(4096), logit_s=np.zeros(65), slopes=np.zeros(5))
ALONE = LIMITS._replace(max_num_seqs=1)


def split(bytes_of: list[float] | None = None, **changes: object) -> Fleet:
    """A prefill server and a decode server, one request at a time, a second per token; 1 byte/s between them."""
    link = CacheLink(1.0, 0.5, None if bytes_of is None else np.array(bytes_of))
    asked = {"pool": Pool(ALONE, SECONDS), "prefill": Pool(ALONE, SECONDS), "link": link} | changes
    return Fleet(**asked)  # type: ignore[arg-type]


def drawn(count: int = 200) -> Requests:
    rng = np.random.default_rng(0)
    return Requests(np.cumsum(rng.exponential(0.01, count)), rng.integers(1, 40, count), rng.integers(1, 30, count))


def test_two_pools_by_hand():
    """Prefill 0 to 3 and 3 to 5. Transfers: 3 + 0.5 + 4 = 7.5; the link is free then, so 7.5 + 0.5 + 1 = 9.

    Request 0 has two tokens left: 7.5 to 9.5. Request 1 has one left, from 9.5 to 10.5. Request 2 needs no decode.
    """
    asked = requests_of([(0.0, 3, 3), (1.0, 2, 2), (2.0, 1, 1)])
    run = simulate_fleet(split([4.0, 1.0, 9.0]), asked)
    assert run.first_token_s.tolist() == [3, 5, 6]
    assert run.finished_s.tolist() == [9.5, 10.5, 6]
    assert run.replica.tolist() == [1, 1, 0]
    assert run.steps[run.steps.replica == 1].start_s.tolist() == [7.5, 8.5, 9.5]
    assert run.steps.prompt_tokens.sum() == 6 + 2  # and the token that each brings along


def test_a_pool_of_prompts_needs_no_room_for_answers():
    small = ALONE._replace(num_blocks=2)  # of 4 tokens
    asked = requests_of([(0.0, 8, 30)])
    assert simulate_fleet(split([0.0], prefill=Pool(small, SECONDS)), asked).finished_s == [8.5 + 29]
    with pytest.raises(WorkloadError, match=r"9 tokens that the KV cache holds \(2 blocks\) of a prefill replica"):
        simulate_fleet(split([0.0], prefill=Pool(small, SECONDS)), requests_of([(0.0, 9, 1)]))


def test_a_decode_replica_that_dies_sends_its_requests_back_to_prefill():
    """Prefill 0 to 2, transfer to 3.5; at 4 the decoder dies until 5: prefill again 4 to 6, transfer to 7.5."""
    run = simulate_fleet(split([1.0], failures=(Failure(4.0, 1, 1.0),)), requests_of([(0.0, 2, 3)]))
    assert run.first_token_s.tolist() == [6]
    assert run.finished_s.tolist() == [9.5]
    assert run.retries.tolist() == [1]


def test_an_infinite_link_and_free_prefill_are_decode_alone():
    """All that is left is a decode pool whose requests arrive with their caches."""
    asked = drawn()
    lasting = asked.output_tokens > 1
    fleet = Fleet(Pool(LIMITS, TABLE), prefill=Pool(LIMITS, FREE), link=CacheLink(np.inf, 0.0))
    run = simulate_fleet(fleet, asked)
    ready = Requests(
        asked.arrival_s[lasting],
        asked.prompt_tokens[lasting],
        asked.output_tokens[lasting],
        prefilled=np.ones(1, np.bool_),
    )
    alone = simulate(LIMITS, TABLE, ready)
    assert np.array_equal(run.first_token_s, asked.arrival_s)
    assert np.array_equal(run.finished_s[lasting], alone.finished_s)
    assert np.array_equal(run.finished_s[~lasting], asked.arrival_s[~lasting])


def check_conserved(run: FleetRun, asked: Requests) -> None:
    assert sorted(run.row) == list(range(len(asked)))
    assert (run.first_token_s <= run.finished_s).all()
    assert run.steps.blocks.max() <= LIMITS.num_blocks
    prefill = run.steps.replica < 2
    assert run.steps[prefill].decodes.sum() == 0
    if not run.preemptions.any():
        more = (asked.output_tokens - 1).sum() - (asked.output_tokens > 1).sum()
        assert run.steps[~prefill].decodes.sum() == more
        assert run.steps[prefill].prompt_tokens.sum() == asked.prompt_tokens.sum()


@pytest.mark.parametrize("router", ROUTERS)
def test_conservation(router):
    asked = drawn()
    moved = CacheLink(1e6, 1e-3, 1000.0 * asked.prompt_tokens)
    fleet = Fleet(Pool(LIMITS, TABLE, 3), Router(router), prefill=Pool(LIMITS, TABLE, 2), link=moved)
    check_conserved(simulate_fleet(fleet, asked, Clients(timeout_s=1e6)), asked)


def test_a_slower_link_is_never_faster():
    asked = drawn()
    ends = [
        simulate_fleet(
            Fleet(
                Pool(LIMITS, TABLE), prefill=Pool(LIMITS, TABLE), link=CacheLink(rate, 0.0, 100.0 * asked.prompt_tokens)
            ),
            asked,
        ).finished_s.mean()
        for rate in (1e9, 1e6, 1e5)
    ]
    assert ends == sorted(ends)


def test_cache_bytes_of_a_sliding_window_stop_growing():
    """Prompts of two lengths; Llama's grow in proportion, on any number of devices."""
    sizes = cache_bytes(deploy("llama-3.1-8b", "h100-sxm"), np.array([1000, 10, 1000]))
    assert sizes.tolist() == [131072e3, 1310720.0, 131072e3]


def test_what_cannot_be():
    with pytest.raises(InfercastError, match="a link of 0 bytes/s"):
        CacheLink(0.0)
    with pytest.raises(NotModelledError, match="pools of 1 and 2 stages"):
        split(pool=Pool(LIMITS, SECONDS, stages=2))
    with pytest.raises(NotModelledError, match="prefilled requests"):
        asked = Requests(np.zeros(1), np.ones(1), np.full(1, 2), prefilled=np.ones(1, np.bool_))
        simulate_fleet(split(), asked)

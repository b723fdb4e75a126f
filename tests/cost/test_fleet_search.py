"""The searches for fleets by hand: what each fleet serves is given, so that nothing is simulated."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from simulator.cost.fleet_rates import FleetRate, FleetRates
from simulator.errors import WorkloadError
from simulator.simulation.sessions import Sessions

ONE = SimpleNamespace(rate_per_s=1.0)  # capacity of a replica alone
TOLERANCE = 0.004


def rates(limits: Mapping[tuple[int, int], float], link_bytes_per_s: float = 0.0, **fields: Any) -> FleetRates:
    """Return rates of fleets that keep the SLO up to given requests/s: by replicas, and those for prompts alone."""

    class Given(FleetRates):
        def _keeps(self, replicas: int, prefill: int = 0) -> Callable[[float], bool]:
            return lambda rate_per_s: rate_per_s <= limits[replicas, prefill]

    return Given(None, ONE, link_bytes_per_s, **fields)  # type: ignore[arg-type]


def about(rate_per_s: float) -> object:
    return pytest.approx(rate_per_s, rel=TOLERANCE)


def test_up_to_eight_replicas_each_fleet_is_its_own() -> None:
    found = rates({(4, 0): 5.0, (6, 0): 6.5, (7, 0): 9.0, (8, 0): 9.5})
    assert [found.rate_per_s(replicas) for replicas in (1, 7, 8)] == [1.0, about(9.0), about(9.5)]


def test_between_two_sizes_a_replica_serves_what_the_inverse_root_says() -> None:
    """1 / sqrt(12), (14), (16) are 0.2887, 0.2673, 0.25: 14 lie 0.5537 of the way from 1.0 to 1.2 a replica."""
    found = rates({(4, 0): 4.0, (12, 0): 12.0, (16, 0): 1.2 * 16})
    assert found.rate_per_s(14) == about(14 * (1 + 0.5537 * 0.2))


def test_a_fleet_that_serves_less_than_its_replicas_alone_is_found() -> None:
    assert rates({(3, 0): 0.9}).rate_per_s(3) == about(0.9)
    assert rates({(3, 0): 0.7}).rate_per_s(3) == 0.0  # below a quarter of 3 x 1/s


@pytest.mark.parametrize(("turns", "share"), [(1, "25%"), (3, "4%")])
def test_a_refusal_says_the_lowest_share_that_was_tried(turns: int, share: str) -> None:
    with pytest.raises(WorkloadError, match=f"none of up to 4 replicas keeps it at {share} of its replicas' rates"):
        rates({(4, 0): 0.0}, sessions=Sessions(turns=turns)).rate_per_s(8)


def test_sessions_go_where_their_history_is_and_others_where_least_is_to_do() -> None:
    assert rates({}).router == "least-outstanding"
    assert rates({}, sessions=Sessions(turns=3)).router == "prefix-affinity"


def test_two_pools_take_two_replicas() -> None:
    assert (rates({}).least, rates({}, 1e9).least) == (1, 2)


def test_a_fleet_between_two_sizes_is_split_like_the_smaller() -> None:
    found = rates({}, 1e9, _found={12: FleetRate(10.0, 3), 64: FleetRate(50.0, 1)})
    assert found.prefill(15) == 4  # 3 x 15 / 12 = 3.75
    assert found.prefill(70) == 1
    assert rates({}, _found={12: FleetRate(10.0)}).prefill(13) == 0


@pytest.mark.parametrize("enough", [5, 8, 20])
def test_the_fewest_replicas_of_a_rate(enough: int) -> None:
    """1.3 requests/s a replica: 4 serve 5.2, 5 serve 6.5."""
    found = rates({(replicas, 0): 1.3 * replicas for replicas in range(21)})
    assert found.fewest(6.0, enough) == 5


def test_a_split_of_two_has_one_of_each_and_may_serve_less_than_two_alone() -> None:
    found = rates({(2, 0): 100.0, (2, 1): 0.6}, 1e9)
    assert (found.prefill(2), found.rate_per_s(2)) == (1, about(0.6))


@pytest.mark.parametrize(("limits", "best"), [((1.0, 2.0, 3.0), 3), ((3.0, 2.0, 1.0), 1), ((2.0, 2.0, 2.0), 2)])
def test_the_best_split_is_found_by_moving_a_replica_as_long_as_it_helps(limits: tuple[float, ...], best: int) -> None:
    of_four = {(4, prefill): limit for prefill, limit in enumerate(limits, 1)}
    found = rates({(2, 1): 1.0, **of_four}, 1e9)
    assert (found.prefill(4), found.rate_per_s(4)) == (best, about(limits[best - 1]))

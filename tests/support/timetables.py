"""Steps of one second, and what the oracle did in each: for timetables that are worked out by hand."""

from tests.oracle.engine import OracleResult
from tests.oracle.fleet import OracleFleetResult


def one_second(_: list[tuple[int, int]]) -> float:
    return 1.0


def timetable(result: OracleResult) -> list[tuple[tuple[int, int, int], ...]]:
    return [step.scheduled for step in result.steps]


def held(result: OracleResult) -> list[int]:
    return [step.blocks_held for step in result.steps]


def finish(result: OracleResult | OracleFleetResult) -> list[float | None]:
    return [request.finished_s for request in result.requests]

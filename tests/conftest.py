"""What every test may use."""

import math
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import Phase, settings

settings.register_profile("quick", max_examples=25, deadline=None)
settings.register_profile(  # tools/mutate.py: one failure is enough, it is not made smaller
    "unshrunk", settings.get_profile("quick"), phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False
)
settings.load_profile("quick")  # pytest --hypothesis-profile=default: 100 examples each


@pytest.fixture(scope="session", autouse=True)
def _every_json_is_as_its_schema_says() -> Iterator[None]:
    from tests.support.json_schema import every_json_is_checked  # noqa: PLC0415  (what is imported here is measured)

    with every_json_is_checked():
        yield


@pytest.fixture(scope="session", autouse=True)
def _what_takes_long_stays_in_one_process() -> Iterator[None]:
    """A busy machine starts no others, unless a test says start_s=0."""
    from simulator.executors import processes  # noqa: PLC0415  (what is imported here is measured)

    with patch.object(processes, "START_S", math.inf):
        yield


@pytest.fixture(scope="session")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the published request traces of tests/fixtures/traces, in their publishers' columns."""
    from tests.support.traces import restore  # noqa: PLC0415  (pandas is slow to load)

    folder = tmp_path_factory.mktemp("traces")
    restore(folder)
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--refresh` rewrites golden outputs instead of comparing with them."""
    parser.addoption("--refresh", action="store_true", help="rewrite golden outputs (README)")

"""What every test may use."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of facts, traces and measurements beside the checkout; a test that needs it is skipped without."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not beside this checkout")
    return SHARED


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--refresh` rewrites golden outputs instead of comparing with them."""
    parser.addoption("--refresh", action="store_true", help="rewrite golden outputs (README)")

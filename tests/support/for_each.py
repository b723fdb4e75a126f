"""One test for every profile of the library: thousands of tests of a millisecond took longer to start than to run."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps


def for_each(name: str, values: Iterable[object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for each value of an argument, as one test that names every value for which it fails."""
    every = tuple(values)

    def of(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def looped(**fixtures: object) -> None:
            assert every, f"no {name} to test"
            failures = []
            for value in every:
                try:
                    test(**fixtures, **{name: value})
                except Exception as error:  # noqa: BLE001  raised below, with all others
                    error.add_note(f"{name}: {value}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(every)}", failures)

        signature = inspect.signature(test)
        fixtures = [each for each in signature.parameters.values() if each.name != name]
        looped.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return looped

    return of

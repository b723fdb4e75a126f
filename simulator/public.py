"""The gate of the public functions: what callers give is checked by the annotations, and refused in three parts."""

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, wraps
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from simulator.errors import InfercastError, Setting

WORDS = {str: "a text", float: "a number", int: "a whole number", NoneType: "None"}
NUMBERS = {float: Real, int: Integral}  # numpy's, too


@cache  # pickle compares what it finds with what it was given
def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises InfercastError for arguments which its annotations do not allow.

    >>> def double(tokens: int) -> int: return 2 * tokens
    >>> checked(double)("5")
    Traceback (most recent call last):
    simulator.errors.InfercastError: tokens '5': double takes no str for it. Give a whole number.
    """
    signature, hints = inspect.signature(function), cache(lambda: get_type_hints(function))

    @wraps(function)
    def call(*positional: Any, **named: Any) -> Any:
        try:
            given = signature.bind(*positional, **named).arguments
        except TypeError as error:
            takes = ", ".join(signature.parameters)
            raise InfercastError(f"{function.__name__}(..)", str(error), f"It takes {takes}") from None
        for name, value in given.items():
            is_many = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            for each in value if is_many else (value,):
                _refuse(function.__name__, name, each, hints().get(name, Any))
        return function(*positional, **named)

    call.__module__ = "simulator"  # where pickle finds it
    return call


def _refuse(function: str, name: str, value: Any, wanted: Any) -> None:
    if not _fits(value, wanted):
        remedy = f"Give {' or '.join(dict.fromkeys(_words(wanted)))}"
        raise InfercastError(Setting(name, value), f"{function} takes no {type(value).__name__} for it", remedy)


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value may be what an annotation wants; what is no class, or a protocol, is let through."""
    origin = get_origin(wanted) or wanted
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(wanted))
    if origin is Literal:
        return value in get_args(wanted)
    if origin in (Iterable, Sequence):
        if isinstance(value, str) or not isinstance(value, Iterable):
            return False
        return all(_fits(each, *get_args(wanted)) for each in (value if isinstance(value, Collection) else ()))
    if not isinstance(origin, type) or origin in (Any, tuple) or getattr(origin, "_is_protocol", False):
        return True
    return isinstance(value, NUMBERS.get(origin, origin))


def _words(wanted: Any) -> list[str]:
    origin = get_origin(wanted) or wanted
    if origin in (Union, UnionType):
        return [word for each in get_args(wanted) for word in _words(each)]
    if origin is Literal:
        return [repr(each) for each in get_args(wanted)]
    if origin in (Iterable, Sequence):
        return [f"a list, each {' or '.join(_words(*get_args(wanted)))}"]
    return [WORDS.get(origin, f"a {getattr(origin, '__name__', origin)}")]

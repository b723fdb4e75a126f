"""Changes the functions of a module that others have imported already, as if its file had been different."""

import sys
from types import FunctionType, ModuleType
from typing import Any

PLAIN = (int, float, str, tuple, frozenset, dict, list)


def adopt(live: ModuleType, source: str) -> None:
    """Give the functions, methods and plain constants of a module those of another source of it.

    Defaults of functions, dataclasses and named tuples go with them; a Pydantic model keeps those of its fields.

    >>> module = ModuleType("tools.adopt")
    >>> adopt(module, "def f(): return 1")
    >>> kept = module.f
    >>> adopt(module, "def f(): return 2")
    >>> kept()
    2
    """
    fresh = ModuleType(live.__name__)
    fresh.__file__, fresh.__package__ = getattr(live, "__file__", None), live.__name__.rpartition(".")[0]
    exec(compile(source, fresh.__file__ or "source", "exec"), vars(fresh))  # noqa: S102
    _take(live, fresh, live.__name__)


def _take(old: Any, new: Any, module: str) -> None:
    for name, value in list(vars(new).items()):
        was, here = vars(old).get(name), getattr(value, "__module__", module) == module
        if isinstance(value, type) and isinstance(was, type) and here:
            _take(was, value, module)
        elif (to := _function(was)) and (by := _function(value)) and by.__module__ in (module, _maker(old)):
            to.__code__, to.__defaults__, to.__kwdefaults__ = by.__code__, by.__defaults__, by.__kwdefaults__
        elif isinstance(old, ModuleType) and was is None:
            setattr(old, name, value)
        elif _is_other(was, value) and not name.startswith("__"):
            _set_everywhere(old, name, was, was._make(value) if hasattr(was, "_make") else value)


def _maker(of: Any) -> str:
    """Return the module that Python names for `__new__` of a named tuple, where its defaults are."""
    return f"namedtuple_{of.__name__}"


def _is_other(was: object, value: object) -> bool:
    """Whether a constant is another one; by what is printed of it, as a tuple may hold arrays.

    A named tuple of the module has a class of its own in each source.
    """
    alike = type(was) is type(value) or (hasattr(was, "_make") and type(was).__name__ == type(value).__name__)
    return isinstance(value, PLAIN) and alike and repr(was) != repr(value)


def _set_everywhere(old: Any, name: str, was: object, value: object) -> None:
    """Set a constant where it is defined, and where modules have imported it by its name."""
    setattr(old, name, value)
    if isinstance(old, ModuleType):
        for module in list(sys.modules.values()):
            if vars(module).get(name) is was and module.__name__.partition(".")[0] in ("simulator", "tests"):
                setattr(module, name, value)


def _function(value: Any) -> FunctionType | None:
    """Return the function inside of a property, a method of a class, a cache or another wrapper."""
    for _ in range(5):
        if isinstance(value, FunctionType) and not hasattr(value, "__wrapped__"):
            return value
        inner = ("fget", "func", "__func__", "__wrapped__", "wrapped")
        value = next((found for each in inner if (found := getattr(value, each, None)) is not None), None)
    return None

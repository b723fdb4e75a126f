"""Kernels for a test: rules and fitted multipliers by name, each put where it belongs."""

from typing import Any

from simulator.engines.fitted_multipliers import FittedMultipliers
from simulator.engines.kernel_rules import KernelRules
from simulator.engines.kernels import Kernels
from simulator.profile import Figure, Source

BY_HAND = Source(text="by hand", date="", evidence="guess")


def figure(value: float) -> Figure:
    """Return a number with a source."""
    return Figure(value, BY_HAND)


def kernels_with(**given: Any) -> Kernels:
    """Return kernels with some rules and multipliers; numbers become figures, all else is as the device's own."""
    sourced = {name: figure(value) if isinstance(value, float) else value for name, value in given.items()}
    rules = {name: value for name, value in sourced.items() if name in KernelRules.model_fields}
    fitted = {name: value for name, value in sourced.items() if name in FittedMultipliers.model_fields}
    assert given.keys() == rules.keys() | fitted.keys()
    return Kernels(rules=KernelRules(**rules), fitted=FittedMultipliers(**fitted))

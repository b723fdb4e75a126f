"""Kernels for a test: rules and fitted multipliers by name, each put where it belongs."""

from typing import Any

from simulator.engines.fitted_multipliers import FittedMultipliers
from simulator.engines.kernel_rules import KernelRules, RowTile
from simulator.engines.kernels import Kernels
from simulator.profile import Figure, Source

BY_HAND = Source(text="by hand", date="", evidence="guess")


def figure(value: float) -> Figure:
    """Return a number with a source."""
    return Figure(value, BY_HAND)


HOPPERS_TILE = RowTile(families=("hopper",), above_tokens=16, up_to_tokens=64, bytes_per_s=figure(4.8e12))


def kernels_with(**given: Any) -> Kernels:
    """Return kernels with some rules and multipliers; numbers become figures, all else is as the device's own."""
    sourced = {name: figure(value) if isinstance(value, float) else value for name, value in given.items()}
    rules = {name: value for name, value in sourced.items() if name in KernelRules.model_fields and name != "m64_tile"}
    if "m64_tile" in given:
        rules["m64_tile"] = HOPPERS_TILE
    fitted = {name: value for name, value in sourced.items() if name in FittedMultipliers.model_fields}
    assert given.keys() == rules.keys() | fitted.keys()
    return Kernels(rules=KernelRules(**rules), fitted=FittedMultipliers(**fitted))

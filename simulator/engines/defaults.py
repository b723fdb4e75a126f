"""Defaults of an engine's settings by device."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from simulator.hardware.hardware import DeviceClass, Hardware
from simulator.profile import Bytes, Strict, Whole


class Default(Strict):
    """A setting's default on the devices that the conditions name; the first that holds wins.

    `tp_at_least`: devices of a replica without its stages, which share its layers or, by ranks, its sequences.
    """

    value: Whole
    memory_at_least_bytes: Bytes | None = None
    tp_at_least: Annotated[int, Field(ge=1)] = 1
    device_classes: tuple[DeviceClass, ...] = ()
    except_families: tuple[str, ...] = ()

    def holds(self, hardware: Hardware, tp: int = 1) -> bool:
        """Tell whether every condition holds for so many of a device."""
        return (
            hardware.memory_bytes >= (self.memory_at_least_bytes or 0)
            and tp >= self.tp_at_least
            and (not self.device_classes or hardware.device_class in self.device_classes)
            and hardware.family not in self.except_families
        )


def default_of(rules: Iterable[Default], hardware: Hardware, tp: int = 1) -> int | None:
    """Return the first default that holds for so many of a device; None where none does."""
    return next((int(rule.value) for rule in rules if rule.holds(hardware, tp)), None)

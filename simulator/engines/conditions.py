"""On which devices, and for which number formats, a rule of an engine's kernels holds."""

from collections.abc import Iterable
from typing import Annotated, TypeVar, get_args

from pydantic import AfterValidator

from simulator.hardware.achievable import PeakName
from simulator.hardware.hardware import Hardware
from simulator.models.number_formats import number_format
from simulator.profile import Strict


def _known_format(name: str) -> str:
    number_format(name)
    return name


def _known_kind(name: str) -> str:
    return name if name in get_args(PeakName) else _known_format(name)


FormatName = Annotated[str, AfterValidator(_known_format)]
KindName = Annotated[str, AfterValidator(_known_kind)]  # of a format, or of a type that devices multiply


class OnDevices(Strict):
    """Some devices: those of some families, or of these a few by id; none is all."""

    families: tuple[str, ...]
    devices: tuple[str, ...] = ()

    def covers(self, hardware: Hardware) -> bool:
        """Tell whether a device is one of these."""
        family, device = hardware.family, hardware.id
        return family in (self.families or (family,)) and device in (self.devices or (device,))


class OfFormats(OnDevices):
    """Some number formats of weights, on some devices."""

    formats: tuple[FormatName, ...]

    def holds(self, hardware: Hardware, stored: str) -> bool:
        """Tell whether weights in a format on a device are among these."""
        return stored in self.formats and self.covers(hardware)


Rule = TypeVar("Rule", bound=OfFormats)


def rule_of(rules: Iterable[Rule], hardware: Hardware, stored: str) -> Rule | None:
    """Return the first rule that holds for weights in a format on a device; None where none does.

    >>> from simulator.hardware.hardware import load_hardware
    >>> rules = (OfFormats(families=("hopper",), formats=("fp8",)), OfFormats(families=(), formats=("fp8", "int4")))
    >>> h100 = load_hardware("h100-sxm")
    >>> [each and each.formats for each in (rule_of(rules, h100, name) for name in ("fp8", "int4", "bf16"))]
    [('fp8',), ('fp8', 'int4'), None]
    """
    return next((each for each in rules if each.holds(hardware, stored)), None)

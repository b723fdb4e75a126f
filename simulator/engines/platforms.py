"""Which devices an engine runs on, and which number formats its kernels lack there: data of its preset."""

from simulator.engines.conditions import FormatName
from simulator.hardware.hardware import DeviceClass, Hardware
from simulator.profile import Origin, Strict


class Platform(Strict):
    """Devices of which an engine's documentation says the same; the first of a preset that holds is a device's.

    `missing`: why it does not run there; empty: it does. `lacks`: formats of weights that it refuses, `advice` what to
    take for them. `casts`: 16-bit types of a checkpoint in others, where no type is asked for (vLLM: dtype auto).
    `usual`: the engine that users of these devices run where they name none.
    """

    vendors: tuple[str, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    families: tuple[str, ...] = ()
    missing: str = ""
    lacks: tuple[FormatName, ...] = ()
    advice: str = ""
    casts: dict[FormatName, FormatName] = {}
    usual: bool = False
    origin: Origin

    def holds(self, hardware: Hardware) -> bool:
        """Tell whether a device is one of these; a CPU is one only where its class or family is named."""
        if hardware.device_class == "cpu" and not self.device_classes and not self.families:
            return False
        pairs = (
            (hardware.vendor, self.vendors),
            (hardware.device_class, self.device_classes),
            (hardware.family, self.families),
        )
        return all(not known or own in known for own, known in pairs)

"""What kernels reach of the bandwidth of a device: those that read weights or a KV cache, and elementwise ones."""

from simulator.hardware.hardware import Hardware, require
from simulator.profile import Figure, Source

HIGHEST_MEMORY_FRACTION = Figure(
    0.95,
    Source(
        text="an LM head on an RTX 4090; no kernel that reads weights or a KV cache is taken to reach more",
        date="2026-11-21",
        evidence="measured",
    ),
)


def at_most(share: float, measured: float) -> float:
    """Return a fitted share of the bandwidth, `HIGHEST_MEMORY_FRACTION` at most, or what was measured if that is more.

    >>> at_most(1.2, 0.9), at_most(1.2, 0.97), at_most(0.8, 0.9)
    (0.95, 0.97, 0.8)
    """
    return min(share, max(float(HIGHEST_MEMORY_FRACTION), measured))


def elementwise_bytes_per_s(hardware: Hardware) -> float:
    """Return the bytes per second of elementwise kernels: norms, activations, copies, which hardly compute.

    Raises ProfileError where the device's profile has no share of the bandwidth for them.
    """
    require(hardware, "elementwise_memory_fraction")
    return float(hardware.achievable.elementwise_memory_fraction) * hardware.memory_bytes_per_s  # type: ignore[arg-type]

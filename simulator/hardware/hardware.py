"""Every device: data-sheet peaks, how devices are linked, and by which names they are found."""

import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr

from simulator.errors import NotModelledError, ProfileError, Setting
from simulator.files import named_file
from simulator.hardware.achievable import Achievable, PeakName
from simulator.hardware.device_names import branded, counted, spellings, vendor_of
from simulator.hardware.refused import refuse_known
from simulator.profile import (
    Bytes,
    BytesPerS,
    Figure,
    FlopsPerS,
    Positive,
    Profile,
    Seconds,
    Source,
    Strict,
    Watts,
    Whole,
    find,
)
from simulator.profile_folders import folders, names

KIND = "hardware_profiles"
NODE_DEVICES = Figure(
    8.0, Source(text="devices of a server over PCIe, where no link goes further", date="2026-11-21", evidence="guess")
)
DeviceClass = Literal["datacenter-gpu", "workstation-gpu", "consumer-gpu", "integrated-gpu", "accelerator", "cpu"]


class DeviceLink(Strict):
    """The link between the devices of one node, per direction; `devices`: that it connects at most."""

    name: str
    bytes_per_s: BytesPerS
    devices: int


class Network(Strict):
    """The network between nodes: bytes/s of one device, per direction, and the latency of one hop of a short message.

    Where devices of a node share a card, it is the share of each.
    """

    name: str
    bytes_per_s: BytesPerS
    latency_s: Seconds


class Hardware(Profile):
    """One device. Peaks are dense (without sparsity); marketed and reported memory are two figures.

    Rates are in bytes/s and FLOP/s, sizes in bytes, of one device.
    """

    name: str
    vendor: str
    family: str
    device_class: DeviceClass
    aliases: tuple[str, ...] = ()
    notes: str = ""
    seen_as: Annotated[int, Field(gt=0)] = 1  # devices that software sees in a package that measurements count as one
    cores_per_device: Annotated[int, Field(gt=0)] = 1  # that software shards a model over, in one device
    memory_marketed_bytes: Bytes
    memory_reported_bytes: Bytes | None = None
    sold_with_gb: dict[int, Bytes] = {}  # other memories of machines with it, in GB: what the device may use of each
    memory_bytes_per_s: BytesPerS
    peak_flops_per_s: dict[PeakName, FlopsPerS]
    vector_flops_per_s: dict[PeakName, FlopsPerS] = {}  # of its vector units, where the peaks are of others (AMX)
    l2_cache_bytes: Bytes | None = None
    multiprocessors: Whole | None = None  # streaming multiprocessors, compute units
    memory_channels: Whole | None = None  # over which addresses go in turn (StridedCache)
    link: DeviceLink | None = None
    pcie_bytes_per_s: BytesPerS | None = None
    devices_per_node: Whole | None = None  # of a server; None: its family's, its class's, or NODE_DEVICES
    network: Network | None = None  # between nodes; None: that of its family, then of its class
    tdp_w: Watts | None = None
    host_slowness: Positive | None = None  # times as long to launch a kernel as the host of a DGX H100 takes
    cores: Annotated[int, Field(gt=0)] | None = None  # of a CPU: its peaks are those of all of them
    achievable: Achievable = Achievable()
    _machine_gb: int = PrivateAttr(0)

    @property
    def label(self) -> str:
        """The id, and the memory of its machine where a name states another than the profile's; it may be typed.

        >>> load_hardware("M4 Max 64GB").label, load_hardware("M4 Max").label
        ('m4-max-64gb', 'm4-max')
        """
        return f"{self.id}-{self._machine_gb}gb" if self._machine_gb else self.id

    @property
    def memory_bytes(self) -> float:
        """Memory that the driver reports, or the marketed figure where no report was found."""
        return self.memory_reported_bytes or self.memory_marketed_bytes

    @property
    def host_devices(self) -> int:
        """Devices of one host: a container does not reach beyond it, even where their link does."""
        return int(self.devices_per_node or NODE_DEVICES)

    @property
    def node_devices(self) -> int:
        """Devices that reach each other without a network: those of a server, or of a larger domain of the link."""
        return max(self.host_devices, self.link.devices if self.link else 0)

    def nodes(self, devices: int) -> int:
        """Return how many nodes a group of devices takes, each with as many of them.

        NotModelledError where they do not divide evenly: an engine starts as many processes on each node.

        >>> load_hardware("h100-sxm").nodes(16), load_hardware("gb200").nodes(64)
        (2, 1)
        """
        nodes = math.ceil(devices / self.node_devices)
        if devices % nodes:
            given, each = f"{devices} devices of {self.name}", self.node_devices
            because = f"they are one group, and do not divide evenly over {nodes} nodes of up to {each}"
            raise NotModelledError(given, because, f"Give a multiple of {nodes}")
        return nodes


class Family(Profile):
    """Achievable fractions, and the usual server and network, shared by an architecture family or a device class."""

    achievable: Achievable
    devices_per_node: Whole | None = None
    network: Network | None = None


SAME_SIZE = 0.08  # of the memory: 192 GB are 180 usable ones of B200; no two devices of one name are nearer


def device_path(name: str) -> Path:
    """Return the path of a device's profile by id, alias or path, also as vendors, tools and people spell it.

    Around a known name may stand its vendor, words like GeForce, and its memory, which has to be one that it is sold
    with; what says that a card is a laptop's stands anywhere, and a number alone is enough where one device has it.
    Raises ProfileError for a device that the library does not know, and for a number of devices; NotModelledError for
    what is known and has no profile.

    >>> device_path("NVIDIA H200 141GB HBM3e").stem, device_path("Intel(R) Arc(TM) A770 Graphics").stem
    ('h200-sxm', 'arc-a770-16')
    >>> device_path("4090m").stem, device_path("3060 12GB").stem
    ('rtx-4090-laptop', 'rtx-3060-12')
    """
    return _device(name)[0]


def _device(name: str) -> tuple[Path, int]:
    """Return a device's path, and the memory in GB of its machine where the name states another than the profile's."""
    with suppress(ProfileError):
        return find(KIND, name), 0
    several_of = counted(name)
    if several_of and several_of[1] == 1:
        return _device(several_of[0])
    if several_of:
        remedy = f"Give {several_of[0]} and the devices of a replica, say --tp {several_of[1]}"
        raise ProfileError(Setting("hardware", name), "it counts devices", remedy)
    vendor = vendor_of(name)
    is_cpu = bool(re.match(r"cpu\b", name.strip(), re.IGNORECASE))
    is_gpu = bool(re.search(r"\bigpu\b", name, re.IGNORECASE))
    for each, gigabytes in spellings(name):
        if (found := _named(each, vendor)) and not (is_gpu if found.device_class == "cpu" else is_cpu):
            found = _sold_with(found, gigabytes)
            return found.path, _size(found, name, gigabytes)
    several = {found.id: (found, size) for each, size in branded(name) if (found := _named(each, vendor))}
    if any(not size for _, size in several.values()):  # a name with the memory says more than one without
        several = {each: (found, size) for each, (found, size) in several.items() if not size}
    if len(several) > 1:
        remedy = f"Give {' or '.join(several)}"
        raise ProfileError(Setting("hardware", name), "several devices have that number", remedy)
    if several:
        [(found, gigabytes)] = several.values()
        return found.path, _size(found, name, gigabytes)
    refuse_known(name)
    return find(KIND, name), 0


def _named(name: str, vendor: str) -> Hardware | None:
    """Return a device of a vendor, "" for any, by id or alias; None where there is none."""
    with suppress(ProfileError):
        found = Hardware.from_yaml(find(KIND, name))
        return found if vendor in ("", found.vendor.lower()) else None
    return None


def _sold_with(hardware: Hardware, gigabytes: int) -> Hardware:
    """Return the smaller or larger device of its name (M3 Max, 30 cores) that alone is sold with a memory."""
    if not gigabytes or _has(hardware, gigabytes):
        return hardware
    others = (_named(each, "") for each in names(KIND) if re.fullmatch(rf"{re.escape(hardware.id)}-\d+", each))
    fitting = [each for each in others if each and _has(each, gigabytes)]
    return fitting[0] if len(fitting) == 1 else hardware


def _has(hardware: Hardware, gigabytes: int) -> bool:
    own = hardware.memory_marketed_bytes / 1e9
    return abs(gigabytes / own - 1) <= SAME_SIZE or hardware.device_class == "cpu" or gigabytes in hardware.sold_with_gb


def _size(hardware: Hardware, name: str, gigabytes: int) -> int:
    """Return the memory that a name states, 0 for the profile's own; ProfileError if it is not sold with that."""
    own = hardware.memory_marketed_bytes / 1e9
    if not gigabytes or abs(gigabytes / own - 1) <= SAME_SIZE:
        return 0
    if hardware.device_class == "cpu" or gigabytes in hardware.sold_with_gb:
        return gigabytes
    sizes = ", ".join(f"{each:.0f}" for each in sorted({*hardware.sold_with_gb, own}))
    remedy = f"Give {hardware.id}, or a profile of your own"
    raise ProfileError(Setting("hardware", name), f"{hardware.name} has {sizes} GB in this library", remedy)


def _of_size(hardware: Hardware, gigabytes: int) -> Hardware:
    """Return a device of a machine with another memory."""
    reported = hardware.sold_with_gb.get(gigabytes)
    source = reported.source if reported else Source(text="given in the name", date="", evidence="given")
    memory = {"memory_marketed_bytes": Figure(gigabytes * 1e9, source), "memory_reported_bytes": reported}
    found = hardware.model_copy(update={"name": f"{hardware.name}, {gigabytes} GB", **memory})
    found._machine_gb = gigabytes
    return found


def load_hardware(name: str) -> Hardware:
    """Return a device by id, alias or path; what it lacks of fractions and of its node is its family's or its class's.

    Raises ProfileError for a device that the library does not know, with the nearest names.

    >>> load_hardware("h100-sxm").peak_flops_per_s["bf16"]
    989000000000000.0
    """
    path, gigabytes = _device(name)
    hardware = Hardware.from_yaml(path)
    achievable, devices, network = hardware.achievable, hardware.devices_per_node, hardware.network
    for general in (hardware.family, hardware.device_class):
        if at := _family_path(general):
            shared = Family.from_yaml(at)
            achievable = achievable.or_else(shared.achievable)
            devices, network = devices or shared.devices_per_node, network or shared.network
    completed = {"achievable": achievable, "devices_per_node": devices, "network": network}
    found = hardware.model_copy(update=completed)
    return _of_size(found, gigabytes) if gigabytes else found


def _family_path(name: str) -> Path | None:
    paths = (named_file(folder / "families", name) for folder in folders(KIND))
    return next(filter(None, paths), None)


def scaled_peaks(hardware: Hardware, factor: float) -> dict[str, dict[str, float]]:
    """Return a device's peaks times a factor, in FLOP/s by number format, by the fields that have them.

    >>> scaled_peaks(load_hardware("h100-sxm"), 0.5)["peak_flops_per_s"]["bf16"]
    494500000000000.0
    """
    fields = ("peak_flops_per_s", "vector_flops_per_s")
    return {field: {name: peak * factor for name, peak in getattr(hardware, field).items()} for field in fields}


def require(hardware: Hardware, part: str) -> None:
    """Raise ProfileError for a device whose profile, family and class lack a part of `Achievable`."""
    if getattr(hardware.achievable, part) is None:
        raise ProfileError(hardware.name, f"it has no achievable {part}, nor has its family or class", "Add the figure")

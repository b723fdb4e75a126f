"""Spellings of a device's name: what vendors, tools and people put around it, or leave out."""

import re
from collections.abc import Iterator

COUNTED = re.compile(  # 8xH100-SXM5, H100 x8, dual 3090
    r"(?P<many>\d{1,3})\s*[x\u00d7]\s*(?P<device>.+)|(?P<before>.+)\s[x\u00d7]\s?(?P<times>\d{1,3})"
    r"|(?:(?P<two>dual|2s)|quad)\s+(?P<each>.+)",
    re.IGNORECASE,
)
VENDOR = re.compile(r"\s*\b(nvidia|amd|intel|apple|google|aws|tenstorrent)\b(?:\(r\))?[\s_-]*", re.IGNORECASE)
FILLERS = re.compile(  # as nvidia-smi, clinfo and lscpu have it
    r"\((?:r|tm)\)|\b(?:geforce|tesla|instinct|radeon|tensor core|graphics|gpu|oam)\b"
    r"|\b\d\dth gen\b|\b\d+-core processor\b|\b\d+-cores\b|\bprocessor\b|\bcpu(?=\s*(?:@|e\d-))|@\s*[\d.]+\s?ghz"
    r"|\bmac(?:book (?:air|pro)| mini| studio| pro)\b|\bimac\b"
    r"|\b(?:asus|msi|gigabyte|evga|zotac|pny|xfx|asrock|palit|gainward|founders edition|developer kit)\b",
    re.IGNORECASE,
)
SIZED = re.compile(  # RTX 3060 12GB, H100 80GB PCIe, EPYC 9654 1TB
    r"(.+?)[\s_-]*\b(\d+)\s?(Gi?B?|Ti?B)\b(?:[\s_-]*(?:HBM|GDDR|LPDDR)\w*)?(?:[\s_-]+([a-z]\w*))?", re.IGNORECASE
)
LAPTOP = re.compile(r"[\s-]*\(?\b(?:laptop|notebook|mobile)\b\)?(?:\s*gpu)?[\s-]*", re.IGNORECASE)
MOBILE = re.compile(r"((?:[rg]tx\s?)?\d{4}(?:\s?ti)?)m", re.IGNORECASE)  # RTX 4090M
NUMBER = re.compile(r"[a-z]?\d{2,4}[a-z0-9+-]*(?:\s(?:ti|super|xtx?|gre|d|ada|laptop|v\d))*", re.IGNORECASE)
GPUS = ("RTX", "GTX", "Quadro", "Tesla", "RX", "Radeon", "Radeon Pro", "Arc", "Arc Pro")
CPUS = ("Ryzen", "Threadripper", "EPYC", "Xeon", "i9", "i7", "i5", "i3", "Core Ultra")


def vendor_of(name: str) -> str:
    """Return the vendor before a name in small letters, "" where none stands there.

    >>> vendor_of("NVIDIA GeForce RTX 4090"), vendor_of("13th Gen Intel(R) Core(TM) i9-13900K")
    ('nvidia', 'intel')
    """
    vendor = VENDOR.match(name) or VENDOR.match(FILLERS.sub(" ", name).strip())
    return vendor[1].lower() if vendor else ""


def spellings(name: str) -> Iterator[tuple[str, int]]:
    """Yield what a device may be called that is given by a name, and the memory in GB that the name states besides.

    >>> list(spellings("RTX 4090M"))[-1], list(spellings("Laptop RTX 4090 16GB"))[-1]
    (('RTX 4090 Laptop', 0), ('RTX 4090 Laptop', 16))
    """
    without = VENDOR.sub("", name, count=1)
    plain = " ".join(VENDOR.sub("", FILLERS.sub(" ", name).strip(), count=1).split())
    for each in dict.fromkeys((without, plain)):
        yield each, 0
        model, gigabytes = _sized(each)
        if gigabytes:
            yield f"{model} {gigabytes}GB", 0
            yield model, gigabytes
    model, gigabytes = _sized(plain)
    mobile = MOBILE.fullmatch(model)
    if mobile or LAPTOP.search(model):
        desktop = mobile[1] if mobile else LAPTOP.sub(" ", model).strip()
        if gigabytes:
            yield f"{desktop} Laptop {gigabytes}GB", 0
        yield f"{desktop} Laptop", gigabytes


def counted(name: str) -> tuple[str, int] | None:
    """Return the device of a name and how many of it there are; None for a name that counts none.

    >>> counted("8xH100-SXM5"), counted("dual 3090"), counted("6700xt")
    (('H100-SXM5', 8), ('3090', 2), None)
    """
    found = COUNTED.fullmatch(name.strip())
    if not found:
        return None
    many = found["many"] or found["times"]
    return found["device"] or found["before"] or found["each"], int(many) if many else 2 if found["two"] else 4


def _sized(name: str) -> tuple[str, int]:
    """Return a name without the memory that it states, and that in GB; 0 where it states none."""
    if not (sized := SIZED.fullmatch(name)):
        return name, 0
    gigabytes = int(sized[2]) * (1024 if sized[3].lower().startswith("t") else 1)
    return f"{sized[1]} {sized[4]}" if sized[4] else sized[1], gigabytes


def branded(name: str) -> Iterator[tuple[str, int]]:
    """Yield the spellings of a name that is a number alone with each brand before it; none for another name.

    >>> ("RTX 3060", 12) in branded("3060 12GB"), list(branded("a name"))
    (True, [])
    """
    for each, gigabytes in dict.fromkeys(spellings(name)):
        if NUMBER.fullmatch(each):
            yield from ((f"{brand} {each}", gigabytes) for brand in (*GPUS, *CPUS))

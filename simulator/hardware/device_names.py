"""Spellings of a device's name: what vendors, tools and people put around it, or leave out."""

import re
from collections.abc import Iterator

COUNTED = re.compile(  # 8xH100-SXM5, H100 x8, H100x8, H100 (8x), 8 GPUs H100, dual 3090, EPYC 9755 2S
    r"(?P<many>\d{1,3})\s*(?:[x\u00d7*]\s*|gpus?\s+)(?P<device>\D.+|\d{4}.*)"
    r"|(?P<before>.+?)(?:\s[x\u00d7]\s?|\s?\*\s?|\s\(x?(?=\d+(?:\s?(?:x|gpus?))?\)$))(?P<times>\d{1,3})(?:\s?(?:x|gpus?))?\)?"
    r"|(?P<of>.+?)\s(?P<some>\d{1,3})\s?gpus"
    r"|(?!(?:google |cloud )*(?:tpu|v\d(?:e|p|x|litepod)?[ -]))"  # v5e-2x4 is a slice of chips
    r"(?P<glued>.*\d)x(?P<copies>[1-9]|1[0-6])"
    r"|(?:(?P<two>dual|2s)|quad)\s+(?P<each>.+)|(?P<pair>.+?)\s\(?(?:2s|dual[- ]socket)\)?",
    re.IGNORECASE,
)
VENDOR = re.compile(r"\s*\b(nvidia|amd|intel|apple|google|aws|tenstorrent)\b(?:\(r\))?[\s_-]*", re.IGNORECASE)
LOOSE = {  # what a loose reading puts in place of what tables say beside a name, one after the other
    r"_": " ",
    r"\b(?:habana|cloud(?= tpu)|w/|with)(?=\s)": "",
    r"\b(?:fe|suprim|ventus|aorus|tuf|windforce|gaming(?: x)?(?: trio)?|inno3d|galax|colorful)\b": "",
    r"\b(?:sapphire|powercolor|astral)\b(?! rapids)": "",
    r"\bnv(?:link|switch)\b(?: bridged?)?": "",
    r"\b(?:hbm\d?e?|gddr\dx?|lpddr\dx?|unified|memory|vram)\b": "",
    r"\bgen$": "",
    r"(?<=\d )grace (?:hopper|blackwell(?: ultra)?)(?: superchip)?\b": "",
    r"(?<!grace )\b(?:blackwell(?: ultra)?|hopper|ampere|ironwood|trillium)\b": "",
    r"\b(?:kaggle|colab|runpod|lambda|coreweave|gcp|azure)\b": "",
    r"\bxeon 6 (?=\d{4}p)": "xeon ",
    r"\b(?P<device>L\d+S?|A(?:2|10G?|16|30|40)|T4|MI(?:50|60|100|210)|RTX .+?) PCIe\b.*": r"\g<device>",
    r"(?:\bmac(?:book)? (?:air|pro|studio|mini)|\bimac)(?: \d\d(?:\.\d)?(?:\"|\u201d|-?inch)?(?= ))?": "",
    r"^single\b|\bmod(?:ded|ified)?$|\bigpu$": "",
    r"\b(?:[a-z]{1,4}\d\w*\.(?:\d*x?large|metal)\w*|\w\d-(?:standard|highgpu|megagpu|ultragpu)-\w+)$": "",  # g5.xlarge
    r"(?<=\d) HL-\d+\w*$|(?<=\d) (?:radeon )?[678][46-9]0m$": "",  # Gaudi 2 (HL-225H), HX 370 (890M)
}
OF_APPLE = {  # likewise beside the names of Apple's chips
    r"\b\d+-core cpu\b": "",
    r"\b(?P<gb>\d+ ?[gt]b) (?P<cores>\d\d\D*)$": r"\g<cores> \g<gb>",
    r"\b(?:\d+/)?(?P<cores>\d\d)(?:c|[- ]core|(?: gpu)? cores)?(?: gpu)?(?P<gb> \d+ ?[gt]b)?$": (
        r"\g<cores>-core GPU\g<gb>"  # M4 Max 16/40, 80C
    ),
}
OF_CPUS = {  # likewise beside the names of CPUs
    r"^cpu[\s:]+": "",
    r"\b\d+-cores?\b(?: processor)?|\b\d+ (?:cores|threads)\b|\b\d+c\b|\bcpu$": "",
    r"\b(?:rome|milan|genoa|bergamo|turin|(?:sapphire|emerald|granite) rapids)\b(?=.*\d)": "",
    r"(?<=\d)kf\b": "K",  # without its GPU
    r"\b(?:\d+|single|dual|quad)[- ]channel\b|\bddr\d(?:[- ]\d{4})?\b": "",
}
CPU = re.compile(
    r"\b(?:epyc|xeon|ryzen|threadripper|core (?:ultra|i\d)|i\d-\d+|altra|graviton|snapdragon)", re.IGNORECASE
)
APPLE = re.compile(r"\bM\d\b", re.IGNORECASE)
DRIVER = re.compile(r"\s*\((?:radv|llvm|amdvlk|bmg|dg\d|mtl|arl|lnl|ptl)\b[^)]*\)", re.IGNORECASE)  # Vulkan's code name
NOTE = re.compile(r"\s*\(([a-z][a-z .,&'/-]*)\)", re.IGNORECASE)  # words alone
TELLING = re.compile(  # words of a note that make it another device, or part of one
    r"\b(?:pcie|sxm\w*|nvl|oam|laptop|notebook|mobile|max-?q|cpu|gcd|mig|vgpu|half|part|igpu|npu|server|ada)\b",
    re.IGNORECASE,
)
FILLERS = re.compile(  # as nvidia-smi, clinfo and lscpu have it
    r"\((?:r|tm)\)|\b(?:geforce|tesla|instinct|radeon|tensor core|graphics|gpu|oam)\b"
    r"|\b\d\dth gen\b|\b\d+-core processor\b|\b\d+-cores\b|\bprocessor\b|\bcpu(?=\s*(?:@|e\d-))|@\s*[\d.]+\s?ghz"
    r"|\bmac(?:book (?:air|pro)| mini| studio| pro)\b|\bimac\b"
    r"|\b(?:apu|vf)$"
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
    name = DRIVER.sub("", name)
    without, plain = VENDOR.sub("", name, count=1), _without_fillers(name)
    for each in dict.fromkeys((without, plain)):
        yield from _with_memory(each)
    yield from _laptops(plain)
    for loose in _loosely(name):
        for each in (loose, _without_fillers(loose)):
            yield from _with_memory(each)
        yield from _laptops(loose)


def _without_fillers(name: str) -> str:
    return " ".join(VENDOR.sub("", FILLERS.sub(" ", name).strip(), count=1).split())


def _with_memory(name: str) -> Iterator[tuple[str, int]]:
    """Yield a name as it is, and, where it states a memory, with that behind it and without."""
    yield name, 0
    model, gigabytes = _sized(name)
    if gigabytes:
        yield f"{model} {gigabytes}GB", 0
        yield model, gigabytes


def _laptops(plain: str) -> Iterator[tuple[str, int]]:
    """Yield what a laptop's device is called, and its memory, where a name says that it is one."""
    model, gigabytes = _sized(plain)
    mobile = MOBILE.fullmatch(model)
    if mobile or LAPTOP.search(model):
        desktop = mobile[1] if mobile else LAPTOP.sub(" ", model).strip()
        if gigabytes:
            yield f"{desktop} Laptop {gigabytes}GB", 0
        yield f"{desktop} Laptop", gigabytes


def _loosely(name: str) -> Iterator[str]:
    """Yield a name without what tables say beside it: brackets opened, then notes of mere words left out.

    >>> list(_loosely("H100 (PCIe)")), list(_loosely("A100 80GB (a cloud)"))
    (['H100 PCIe'], ['A100 80GB a cloud', 'A100 80GB'])
    """
    notes = NOTE.findall(name)
    without = NOTE.sub("", name) if notes and not any(TELLING.search(each) for each in notes) else name
    seen: dict[str, None] = {}
    for each in (name, without):
        loose = re.sub(r"[()\[\],]+", " ", VENDOR.sub(" ", each, count=1)).strip()
        more = {**(OF_APPLE if APPLE.search(loose) else {}), **(OF_CPUS if CPU.search(each) else {})}
        for pattern, put in {**LOOSE, **more}.items():
            loose = " ".join(re.sub(pattern, put, loose, flags=re.IGNORECASE).split())
        seen[loose] = None
    yield from seen


def counted(name: str) -> tuple[str, int] | None:
    """Return the device of a name and how many of it there are; None for a name that counts none.

    >>> counted("8xH100-SXM5"), counted("dual 3090"), counted("6700xt")
    (('H100-SXM5', 8), ('3090', 2), None)
    >>> counted("NVIDIA GB200 (4x)"), counted("EPYC 9755 2S"), counted("H100*8"), counted("RTX4090x2")
    (('NVIDIA GB200', 4), ('EPYC 9755', 2), ('H100', 8), ('RTX4090', 2))
    >>> counted("H100x1"), counted("V100x8"), counted("v5e-2x4")
    (('H100', 1), ('V100', 8), None)
    """
    found = COUNTED.fullmatch(name.strip())
    if not found:
        return None
    many = found["many"] or found["times"] or found["some"] or found["copies"]
    named = (found[each] for each in ("device", "before", "of", "glued", "each", "pair"))
    device = next(filter(None, named))
    return device, int(many) if many else 2 if found["two"] or found["pair"] else 4


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
            brands = (*GPUS, *CPUS)
            if gigabytes:
                yield from ((f"{brand} {each} {gigabytes}GB", 0) for brand in brands)
            yield from ((f"{brand} {each}", gigabytes) for brand in brands)

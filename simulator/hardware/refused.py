"""Names that people type for hardware and that are no device of the library, and why, in place of near names."""

import re
from functools import cache

from simulator.errors import Setting, refuse_matching
from simulator.hardware.device_names import VENDOR

OWN = "Compare with a device that has an engine here (`infercast profiles hardware`)"
SERVER = "a server of eight; --tp says how many of them a replica takes"
SLICE = "a slice of chips; --tp says how many of them a replica takes"
SYSTEMS = {  # what has devices, and the device to name
    r"g4dn\..+": ("an instance of AWS", "t4"),
    r"g5g\..+": ("an instance of AWS", "t4g"),
    r"g5\..+": ("an instance of AWS", "a10g"),
    r"gr?6\..+": ("an instance of AWS", "l4"),
    r"g6e\..+": ("an instance of AWS", "l40s"),
    r"g7e\..+": ("an instance of AWS", "rtx-pro-6000-server"),
    r"p3\..+": ("an instance of AWS", "v100-sxm2-16"),
    r"p3dn\..+": ("an instance of AWS", "v100-sxm2-32"),
    r"p4d\..+": ("an instance of AWS", "a100-sxm-40"),
    r"p4de\..+": ("an instance of AWS", "a100-sxm-80"),
    r"p5\..+": ("an instance of AWS", "h100-sxm"),
    r"p5en?\..+": ("an instance of AWS", "h200-sxm"),
    r"p6-b200\..+": ("an instance of AWS", "b200-sxm"),
    r"p6-b300\..+": ("an instance of AWS", "b300-sxm"),
    r"(p6e|u-p6e)-gb200.*": ("an instance of AWS", "gb200"),
    r"trn1n?\..+": ("an instance of AWS", "trainium1"),
    r"trn2u?\..+": ("an instance of AWS", "trainium2"),
    r"trn3.*\..+": ("an instance of AWS", "trainium3"),
    r"inf2\..+": ("an instance of AWS", "inferentia2"),
    r"[cmr]6id?n?\..+": ("an instance of AWS", "xeon-8375c"),
    r"[cmr]7i\..+": ("an instance of AWS", "xeon-8488c"),
    r"[cmr]6a\..+": ("an instance of AWS", "epyc-7r13"),
    r"[cmr]7a\..+": ("an instance of AWS", "epyc-9r14"),
    r"[cmr]6gd?n?\..+": ("an instance of AWS", "graviton2"),
    r"[cmr]7gd?n?\..+": ("an instance of AWS", "graviton3"),
    r"[cmr]8gd?n?\..+": ("an instance of AWS", "graviton4"),
    r"a2-(high|mega)gpu-.+": ("an instance of Google Cloud", "a100-sxm-40"),
    r"a2-ultragpu-.+": ("an instance of Google Cloud", "a100-sxm-80"),
    r"a3-(high|mega|edge)gpu-.+": ("an instance of Google Cloud", "h100-sxm"),
    r"a3-ultragpu-.+": ("an instance of Google Cloud", "h200-sxm"),
    r"a4-highgpu-.+": ("an instance of Google Cloud", "b200-sxm"),
    r"a4x-.+": ("an instance of Google Cloud", "gb200"),
    r"g2-standard-.+": ("an instance of Google Cloud", "l4"),
    r"g4-standard-.+": ("an instance of Google Cloud", "rtx-pro-6000-server"),
    r"ct4p-.+": ("an instance of Google Cloud", "tpu-v4"),
    r"ct5lp-.+": ("an instance of Google Cloud", "tpu-v5e"),
    r"ct5p-.+": ("an instance of Google Cloud", "tpu-v5p"),
    r"ct6e-.+": ("an instance of Google Cloud", "tpu-v6e"),
    r"c4a-.+": ("an instance of Google Cloud", "axion"),
    r"(standard-)?nc\d+ads-a100-v4": ("an instance of Azure", "a100-pcie-80"),
    r"(standard-)?nc\d+ads-h100-v5": ("an instance of Azure", "h100-nvl"),
    r"(standard-)?nc\d+as-t4-v3": ("an instance of Azure", "t4"),
    r"(standard-)?nv\d+ad[ms]*-a10-v5": ("an instance of Azure", "a10"),
    r"(standard-)?nd\d+asr-v4": ("an instance of Azure", "a100-sxm-40"),
    r"(standard-)?nd\d+amsr-a100-v4": ("an instance of Azure", "a100-sxm-80"),
    r"(standard-)?nd\d+isr-h100-v5": ("an instance of Azure", "h100-sxm"),
    r"(standard-)?nd\d+isr-h200-v5": ("an instance of Azure", "h200-sxm"),
    r"(standard-)?nd\d+isr-mi300x-v5": ("an instance of Azure", "mi300x"),
    r"(azure-)?nd-?h100-v5": ("an instance of Azure", "h100-sxm"),
    r"(azure-)?nd-?h200-v5": ("an instance of Azure", "h200-sxm"),
    r"(azure-)?nd-?mi300x-v5": ("an instance of Azure", "mi300x"),
    r"(azure-)?nc-?h100-v5": ("an instance of Azure", "h100-nvl"),
    r"(bm|vm)\.gpu\.h100.*": ("an instance of Oracle", "h100-sxm"),
    r"(bm|vm)\.gpu\.h200.*": ("an instance of Oracle", "h200-sxm"),
    r"(bm|vm)\.gpu\.mi300x.*": ("an instance of Oracle", "mi300x"),
    r"(bm|vm)\.gpu\.a10\..*": ("an instance of Oracle", "a10"),
    r"(bm|vm)\.gpu\.a100.*": ("an instance of Oracle", "a100-sxm-80"),
    r"gpu-\d+x-a10": ("an instance of Lambda", "a10"),
    r"gpu-\d+x-a100(-sxm4)?": ("an instance of Lambda", "a100-sxm-40"),
    r"gpu-\d+x-h100-sxm5": ("an instance of Lambda", "h100-sxm"),
    r"gpu-\d+x-h100-pcie": ("an instance of Lambda", "h100-pcie"),
    r"gpu-\d+x-gh200": ("an instance of Lambda", "gh200-96"),
    r"gpu-\d+x-b200(-sxm6)?": ("an instance of Lambda", "b200-sxm"),
    r"(tpu-?)?(v5e|v5litepod)-\d+(x\d+)*": (SLICE, "tpu-v5e"),
    r"(tpu-?)?v6e-\d+(x\d+)*": (SLICE, "tpu-v6e"),
    r"(tpu-?)?v4-\d+(x\d+)*": (SLICE, "tpu-v4"),
    r"(tpu-?)?v5p-\d+(x\d+)*": (SLICE, "tpu-v5p"),
    r"(bm|vm)\.gpu\.b200.*": ("an instance of Oracle", "b200-sxm"),
    r"(bm|vm)\.gpu\.l40s.*": ("an instance of Oracle", "l40s"),
    r"bm\.gpu4\.8": ("an instance of Oracle", "a100-sxm-40"),
    r"a3-(mega|high)": ("an instance of Google Cloud", "h100-sxm"),
    r"a3-ultra": ("an instance of Google Cloud", "h200-sxm"),
    r"dgx-station(-gb300)?|gb300-(desktop-)?superchip": ("a workstation with one GB300", "gb300"),
    r"gb200-nvl4": ("a server of four", "gb200"),
    r"gh200-nvl2": ("a server of two", "gh200-144"),
    r"t3k|(tenstorrent-)?loudbox": ("a machine with four n300 cards", "wormhole-n300"),
    r"sn40l-\d+": ("a node of its chips", "sn40l"),
    r"(intel-)?arc-pro-b60-dual.*": ("a card with two GPUs", "arc-pro-b60"),
    r"(tenstorrent-)?galaxy": ("a machine with 32 of its chips", "wormhole-n150"),
    r"hgx-h20": (SERVER, "h20-sxm"),
    r"(tpu-?)?v?7x?-\d+(x\d+)*": (SLICE, "tpu7x"),
    r"grace-cpu-superchip": ("a board of two", "grace"),
    r"(dgx|hgx)-a100|a100-(dgx|hgx)": (SERVER, "a100-sxm-80"),
    r"(dgx|hgx)-h100|h100-(dgx|hgx)": (SERVER, "h100-sxm"),
    r"(dgx|hgx)-h200|h200-(dgx|hgx)": (SERVER, "h200-sxm"),
    r"(dgx|hgx)-b200|b200-(dgx|hgx)": (SERVER, "b200-sxm"),
    r"(dgx|hgx)-b300|b300-(dgx|hgx)": (SERVER, "b300-sxm"),
}
SEVERAL = {  # names of several devices, which differ
    r"rtx-?4000": "quadro-rtx-4000 (Turing), rtx-4000-ada or rtx-pro-4000 (Blackwell)",
    r"rtx-?5000": "quadro-rtx-5000 (Turing), rtx-5000-ada or rtx-pro-5000 (Blackwell)",
    r"rtx-?6000": "quadro-rtx-6000 (Turing), rtx-6000-ada or rtx-pro-6000-ws (Blackwell)",
    r"a6000-ada.*": "rtx-a6000 (Ampere) or rtx-6000-ada",
    r"titan-?x": "titan-x-pascal or titan-x-maxwell",
    r"jetson-orin|orin": "jetson-orin-nano-super-8, jetson-orin-nx-16 or jetson-agx-orin-64",
    r"(amd-)?(epyc-)?rome": "epyc-7742, epyc-7502 or another of its models",
    r"(amd-)?(epyc-)?milan": "epyc-7763, epyc-7543 or another of its models",
    r"(amd-)?(epyc-)?genoa": "epyc-9654, epyc-9554 or another of its models",
    r"(amd-)?(epyc-)?turin": "epyc-9755, epyc-9575f or another of its models",
    r"(intel-)?(xeon-)?ice-lake": "xeon-8380, xeon-8358 or another of its models",
    r"(intel-)?(xeon-)?sapphire-rapids": "xeon-8480, xeon-8468 or another of its models",
    r"(intel-)?(xeon-)?emerald-rapids": "xeon-8592, xeon-8568y or another of its models",
    r"(intel-)?(xeon-)?granite-rapids": "xeon-6980p, xeon-6787p or another of its models",
    r"(amd-)?(radeon-graphics-)?\(?(radv-)?gfx1151\)?": "strix-halo or radeon-8050s",
    r"(amd-)?(radeon-graphics-)?\(?(radv-)?gfx1150\)?": "radeon-890m or radeon-880m",
    r"(intel\(r\)-)?graphics-\(bmg-g21\)": "arc-b580, arc-b570 or arc-pro-b60",
    r"(amd-)?(instinct-)?mi300": "mi300x or mi300a",
    r"(amd-)?(instinct-)?mi350": "mi350x or mi355x",
    r"gfx942": "mi300x, mi325x or mi300a",
    r"gfx950": "mi350x or mi355x",
    r"gfx90a": "mi250x, mi250 or mi210",
    r"gfx906": "mi50-32, mi60 or radeon-vii",
    r"gfx1100": "rx-7900-xtx, rx-7900-xt or radeon-pro-w7900",
    r"gfx120[01]": "rx-9070-xt, r9700 or rx-9060-xt-16",
    r"pvc|ponte-vecchio": "max-1550 or max-1100",
    r"arrow-lake": "core-ultra-285k or core-ultra-265k (CPUs), or arc-140t (the GPU of a laptop's chip)",
    r"tenstorrent|wormhole|blackhole": "wormhole-n150, wormhole-n300, blackhole-p100 or blackhole-p150",
    r"mac|macbook|macbook-(air|pro)|mac-(mini|studio)|imac": "its chip, say m4-pro; `compare` takes apple, for all",
    r"cpu|cuda|mps|metal|rocm|host": "the chip or the card, say m4-pro, rtx-4090 or ryzen-9950x",
}
REFUSED = {  # why no engine of the library runs there
    r"groq.*|lpu.*": "its weights lie in the SRAM of hundreds of chips, and its compiler is no engine here",
    r"cerebras.*|cs-?[123]|wse-?[123]": "its weights lie in the SRAM of a wafer, and its software is no engine here",
    r"sambanova|sn50|sambanova-sn50": "of its chips the SN40L has a profile, and its software is no engine here",
    r"(graphcore.*|(bow-)?ipu.*)": "its weights lie in SRAM, and its compiler is no engine here",
    r"(huawei-)?(ascend.*|910[abc]\d?|310p\d?|atlas-\d00[a-z]?.*)": "its software, CANN, is no engine here",
    r"(cambricon.*|mlu-?\d+.*)": "its software, Neuware, is no engine here",
    r"(kunlun.*|(biren.*|br10[046])|hygon.*|dcu|iluvatar.*|metax.*|enflame.*|hanguang.*|moore-threads.*|mtt-s\d+.*)": (
        "its software is no engine here"
    ),
    r"(qualcomm-)?(cloud-)?ai-?(100|200|250).*|qaic\d*": "its software, the Cloud AI SDK, is no engine here",
    r"(hailo.*|movidius.*|(google-)?coral.*|edge-tpu|axelera.*|mythic.*|.*\bnpu)": (
        "it multiplies small networks, and no engine here runs on it"
    ),
    r"(etched.*|sohu|d-matrix.*|corsair|furiosa.*|rngd|rebellions.*|taalas.*|lightmatter.*|dojo|mtia.*|maia.*)": (
        "its software is no engine here"
    ),
    r"(tenstorrent-)?grayskull.*": "its software no longer supports it (tt-metal runs on Wormhole and Blackhole)",
    r"tpu-?v[123]|tpu-?v4i": "vLLM on TPUs, its engine here, begins with v4",
    r"(aws-)?inferentia-?1?|inf1(\..+)?": "it has 8 GB of DDR4 and runs no language model; Inferentia2 does",
    r"(nvidia-)?(tesla-|quadro-)?k\d{2,4}m?(-\d+gb)?|gtx-?(6[0-9]0|7[0-46-9]0)(-ti)?|(gtx-)?titan(-black|-z)?": (
        "it is of Kepler or older, for which llama.cpp is no longer built"
    ),
    r".*-mig-.*|.*[-.]\d+g\.\d+gb|(grid|nvidia)-.*-\d+[cq]": "a part of a GPU (MIG, vGPU) is not modelled",
    r"(nvidia-)?cmp-.*": "it is a card for mining, whose multiplications NVIDIA cut, by how much is not known here",
    r"(apple-)?(m4-ultra|m6(-(pro|max|ultra))?)|(geforce-)?rtx-50[578]0(-ti)?-super": (
        "it was not sold when this library was made"
    ),
    r"(iphone|ipad|pixel|galaxy-s|snapdragon-8).*|a1[5789](-pro)?|macbook-neo": (
        "a phone's chip slows down with its heat: not modelled"
    ),
    r"(nvidia-)?b100": "it was announced and hardly sold; its successor has a profile (b200-sxm)",
    r"(nvidia-)?(rubin-cpx|rubin-ultra.*|vr300.*)|(intel-)?(crescent-island|jaguar-shores)|(nvidia-)?b(30a|40)"
    r"|(amd-)?(instinct-)?(mi4(00|30|40)x?|mi5\d\dx?|mi300c|mi350p)": (
        "its data sheet was not at hand when this library was made"
    ),
}
LIMITED = r".+\d\d\dw\)?"  # "RTX 5090 (power limited to 400W)"
_PATTERNS = {
    **{re.compile(at): (f"it is {what}", f"Give {device}") for at, (what, device) in SYSTEMS.items()},
    **{re.compile(at): ("several devices have that name", f"Give {each}") for at, each in SEVERAL.items()},
    re.compile(LIMITED): ("a power limit is not modelled", "Give the device alone; prompts take longer with a limit"),
    **{re.compile(at): (because, OWN) for at, because in REFUSED.items()},
}
COUNT_BEHIND = re.compile(r"(.+?)\s*\((\d+)\s?[x\u00d7]\s?\D.*\)")  # DGX B200 (8x B200)


def device_of(name: str) -> str:
    """Return the device that an instance or a server has, by its name; other names as they are.

    >>> device_of("p5.48xlarge"), device_of("NVIDIA DGX H100"), device_of("L40S")
    ('h100-sxm', 'h100-sxm', 'L40S')
    """
    return _system(name)[1]


def server_of(name: str) -> tuple[str, int] | None:
    """Return the device of a server and how many it has, where a note in brackets counts them; None for other names.

    >>> server_of("NVIDIA DGX B200 (8x B200)"), server_of("DGX B200"), server_of("Galaxy (32x Wormhole)")
    (('b200-sxm', 8), None, None)
    """
    noted = COUNT_BEHIND.fullmatch(name.strip())
    what, device = _system(noted[1]) if noted else ("", "")
    return (device, int(noted[2])) if noted and (what == SERVER or what.startswith("an instance")) else None


@cache
def _system(name: str) -> tuple[str, str]:
    """Return what a name that has devices is, and its device; "" and the name itself for others."""
    plain = re.sub(r"[\s_]+", "-", VENDOR.sub("", name.strip(), count=1).lower())
    return next((found for pattern, found in SYSTEMS.items() if re.fullmatch(pattern, plain)), ("", name))


def refuse_known(name: str) -> None:
    """Raise NotModelledError, which says why, for hardware that is known and no device of the library; else return.

    >>> from simulator.errors import NotModelledError
    >>> try:
    ...     refuse_known("g6.xlarge")
    ... except NotModelledError as error:
    ...     error.because, error.remedy
    ('it is an instance of AWS', 'Give l4')
    """
    noted = COUNT_BEHIND.fullmatch(name.strip())
    plain = noted[1] if noted else name.strip()
    for each in dict.fromkeys((plain, VENDOR.sub("", plain, count=1))):
        refuse_matching(Setting("hardware", name), each, _PATTERNS)

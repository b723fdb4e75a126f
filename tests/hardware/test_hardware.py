"""The device library: complete, equal to the facts it was made from, dense, and strict about its YAML."""

import csv
import math
import re
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from simulator.errors import InfercastError, NotModelledError, ProfileError
from simulator.hardware.hardware import DeviceClass, Family, Hardware, load_hardware
from simulator.hardware.prices import offers
from simulator.hardware.purchases import purchases
from simulator.hardware.refused import REFUSED, SEVERAL, SYSTEMS
from simulator.profile import Figure, find
from simulator.profile_files import read_yaml
from simulator.profile_folders import folders, names
from tests.support.for_each import for_each
from tests.support.measured import published
from tests.support.paths import FIXTURES

DEVICES = names("hardware_profiles")
GEFORCE = "ampere-geforce", "ada-geforce", "blackwell-geforce"  # without peer-to-peer over PCIe
FAMILIES = sorted((folders("hardware_profiles")[-1] / "families").glob("*.yaml"))
FIELDS = (
    ("memory_gb", "memory_marketed_bytes", 1e9),
    ("mem_bw_gbs", "memory_bytes_per_s", 1e9),
    ("l2_mb", "l2_cache_bytes", 1e6),
    ("tdp_w", "tdp_w", 1.0),
)
DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4")
PEAK_COLUMNS = [
    f"{d}_vector_tflops" if d == "fp32" else f"{d}_dense_t{'op' if d == 'int8' else 'flop'}s" for d in DTYPES
]
# hardware.csv carries aiconfigurator's nominal GiB here; nvidia-smi shows less, and the cache lives in what is there.
REPORTED_MIB = {"h100-pcie": 81559, "h200-sxm": 143771, "b200-sxm": 183359, "l4": 23034}
REPORTED_MIB |= {"h100-sxm": 79.22 * 1024, "a100-sxm-80": 79.25 * 1024, "rtx-pro-6000-server": 97252.7}
# hardware.csv has them from a table on the web; cores and the clock that powermetrics shows give 12 to 16 % less.
CORRECTED_PEAKS = {"m3": 3.425e12, "m3-pro": 6.359e12, "m4": 4.04e12, "m4-pro": 8.079e12, "m4-max": 16.16e12}
# What the vendors' pages print with 2:4 sparsity, or with fp16 accumulation on GeForce.
NOT_DENSE = {
    "a100-sxm-80": {"bf16": 624e12, "int8": 1248e12},
    "l4": {"bf16": 242e12, "fp8": 485e12},
    "l40s": {"bf16": 733e12, "fp8": 1466e12},
    "h100-sxm": {"bf16": 1979e12, "fp8": 3958e12, "int8": 3958e12},
    "h100-nvl": {"bf16": 1978.8e12, "fp8": 3341e12},
    "b200-sxm": {"bf16": 4500e12, "fp8": 9000e12, "fp4": 18000e12},
    "rtx-4090": {"fp16": 330.3e12, "fp8": 660.6e12, "int8": 1321e12},
    "rtx-5090": {"fp16": 838e12, "fp4": 3352e12},
    "rtx-pro-6000-ws": {"bf16": 1007.6e12, "fp4": 4030e12},
    "mi300x": {"bf16": 2614e12, "fp8": 5229e12},
    "mi355x": {"fp16": 5000e12, "fp8": 10100e12},
    "mi350x": {"fp16": 4600e12, "fp8": 9200e12},
    "r9700": {"fp16": 383e12, "fp8": 766e12},
    "rx-9070-xt": {"fp16": 389e12, "int8": 779e12},
    "rtx-5080": {"fp16": 450.2e12, "fp4": 1801e12},
    "jetson-thor": {"fp4": 2070e12},
}


def figures(value: object) -> Iterator[Figure]:
    if isinstance(value, Figure):
        yield value
    elif isinstance(value, BaseModel):
        for _, field in value:
            yield from figures(field)
    elif isinstance(value, dict):
        for each in value.values():
            yield from figures(each)


@pytest.fixture(scope="module")
def facts() -> dict[str, dict[str, str]]:
    with (FIXTURES / "facts" / "hardware.csv").open() as lines:
        return {row["id"]: row for row in csv.DictReader(lines)}


def test_figures_equal_the_facts(facts):
    assert set(facts) <= set(DEVICES)
    for device, row in facts.items():
        hardware = load_hardware(device)
        assert hardware.name == row["name"]
        for column, field, scale in FIELDS:
            if row[column]:
                assert getattr(hardware, field) == pytest.approx(float(row[column]) * scale, rel=1e-12), (device, field)
        for column, dtype in zip(PEAK_COLUMNS, DTYPES, strict=True):
            if row[column]:
                expected = CORRECTED_PEAKS.get(device, float(row[column]) * 1e12)
                assert hardware.peak_flops_per_s[dtype] == pytest.approx(expected, rel=1e-12), (device, dtype)
        if row["link_gbs_per_direction"]:
            assert hardware.link.bytes_per_s == float(row["link_gbs_per_direction"]) * 1e9, device


def test_reported_memory_is_the_facts_or_what_the_driver_shows(facts):
    for device, row in facts.items():
        hardware = load_hardware(device)
        if device in REPORTED_MIB:
            assert hardware.memory_bytes == pytest.approx(REPORTED_MIB[device] * 2**20)
            assert hardware.memory_bytes < float(row["memory_bytes_reported"])
        elif row["memory_bytes_reported"]:
            assert hardware.memory_bytes == float(row["memory_bytes_reported"]), device


def test_recalled_figures_are_guesses(facts):
    assert load_hardware("gb10").memory_bytes_per_s.source.evidence == "guess"
    assert load_hardware("h100-nvl").peak_flops_per_s["bf16"].source.evidence == "guess"
    # A profile has no compute units, so a row that recalls only those has nothing to label.
    recalled = {device: row["recalled_fields"].partition(": ")[2] for device, row in facts.items()}
    recalled = {device: fields for device, fields in recalled.items() if fields not in ("", "compute_units")}
    assert len(recalled) > 15
    for device in recalled:
        own = Hardware.from_yaml(find("hardware_profiles", device))
        assert any(figure.source.evidence == "guess" for figure in figures(own)), device


@for_each("device", DEVICES)
def test_every_device_is_complete(device):
    hardware = load_hardware(device)
    achievable = hardware.achievable
    assert hardware.peak_flops_per_s
    assert set(hardware.peak_flops_per_s) <= set(achievable.gemm)
    assert achievable.decode_attention
    assert achievable.prefill_attention
    assert achievable.elementwise_memory_fraction
    assert 2 in achievable.all_reduce
    assert 0 < hardware.memory_bytes <= 1.08 * hardware.memory_marketed_bytes


@for_each("device", DEVICES)
def test_every_figure_has_its_source(device):
    for figure in figures(load_hardware(device)):
        assert figure.source.text
        assert figure.source.date or figure.source.evidence == "guess"


@for_each("device", DEVICES)
def test_rates_are_physical(device):
    hardware = load_hardware(device)
    achievable = hardware.achievable
    attention = (achievable.decode_attention.memory_fraction, achievable.prefill_attention.compute_fraction)
    fractions = [*attention, achievable.elementwise_memory_fraction, achievable.best_memory_fraction]
    for gemm in achievable.gemm.values():
        fractions += [gemm.compute_fraction, gemm.memory_fraction]
        assert gemm.exponent is None or gemm.exponent >= 1
        assert 1e-6 <= gemm.launch_s <= 30e-6
    assert all(0 < fraction <= 1 for fraction in fractions)
    assert 5e-6 <= achievable.decode_attention.launch_s <= 30e-6
    for collective in achievable.all_reduce.values():
        fastest = hardware.link.bytes_per_s if hardware.link else hardware.pcie_bytes_per_s or float("inf")
        assert collective.bus_bytes_per_s < fastest
    if hardware.link and hardware.link.devices >= 8 and 8 in achievable.all_reduce:  # not over PCIe instead
        assert achievable.all_reduce[8].bus_bytes_per_s > 0.1 * hardware.link.bytes_per_s


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: path.stem)
def test_families_and_classes_claim_no_measurement_of_their_members(path):
    evidence = {figure.source.evidence for figure in figures(Family.from_yaml(path))}
    assert evidence <= {"family", "guess"}
    if path.stem in DeviceClass.__args__:
        assert evidence == {"guess"}


def test_every_class_and_no_unused_family_has_a_file():
    classes, stems = set(DeviceClass.__args__), {path.stem for path in FAMILIES}
    assert classes <= stems <= classes | {load_hardware(device).family for device in DEVICES}


def test_aliases_name_one_device_each():
    owner: dict[str, str] = {}
    for device in DEVICES:
        for alias in load_hardware(device).aliases:
            assert owner.setdefault(alias.lower(), device) == device, alias
            assert alias.lower() not in DEVICES or alias.lower() == device, alias


@pytest.mark.parametrize(
    ("given", "device"),
    [
        ("H100", "h100-sxm"),
        ("h100-sxm5", "h100-sxm"),
        ("H100 SXM 80GB", "h100-sxm"),
        ("A100", "a100-sxm-80"),
        ("RTX 4090", "rtx-4090"),
        ("RTX PRO 6000 Blackwell", "rtx-pro-6000-server"),
        ("GB200 NVL72", "gb200"),
        ("DGX Spark (GB10)", "gb10"),
        ("Apple M2 Ultra 76-core GPU 192GB", "m2-ultra"),
        ("AWS Inferentia2 (inf2.48xlarge, 12 chips/24 cores)", "inferentia2"),
        ("H20", "h20-sxm"),
        ("Google TPU7x (Ironwood)", "tpu7x"),
        ("Radeon AI PRO R9700", "r9700"),
        ("RX 9070 XT", "rx-9070-xt"),
        ("RTX 4070 Ti SUPER", "rtx-4070ti-super"),
        ("AMD Radeon RX 6500 XT", "rx-6500-xt"),
        ("AMD Radeon RX 580", "rx-580"),
        ("CPU Raspberry Pi 500+ (BCM2712)", "rpi5"),
        ("NVIDIA H200 141GB HBM3e", "h200-sxm"),
        ("NVIDIA H100-SXM5-80GB", "h100-sxm"),
        ("H100-94G", "h100-nvl"),
        ("B200 192GB", "b200-sxm"),
        ("NVIDIA GH200 120GB", "gh200-96"),
        ("Grace Hopper", "gh200-96"),  # not the CPU
        ("NVIDIA GB10 Grace Blackwell Superchip", "gb10"),
        ("A100-40G", "a100-sxm-40"),
        ("NVIDIA GeForce RTX 4090 24GB", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx-4090-laptop"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("AMD Instinct MI50 32GB", "mi50-32"),
        ("Apple M4 Max 40-core GPU", "m4-max"),
        ("4090m", "rtx-4090-laptop"),
        ("RTX 4090 (laptop)", "rtx-4090-laptop"),
        ("laptop RTX 3080 16GB", "rtx-3080-laptop-16"),
        ("RTX 4090 48GB", "rtx-4090-48"),
        ("3060 12gb", "rtx-3060-12"),
        ("1660 super", "gtx-1660-super"),
        ("6700xt", "rx-6700-xt"),
        ("A770", "arc-a770-16"),
        ("780M", "radeon-780m"),
        ("5800X3D", "ryzen-5800x3d"),
        ("13900k", "core-i9-13900k"),
        ("13th Gen Intel(R) Core(TM) i9-13900K", "core-i9-13900k"),
        ("AMD EPYC 9654 96-Core Processor", "epyc-9654"),
        ("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz", "xeon-e5-2680-v4"),
        ("MacBook Pro M3 Max", "m3-max"),
        ("H100 80GB PCIe", "h100-pcie"),
        ("MSI RTX 4090", "rtx-4090"),
        ("RTX 5000 Ada", "rtx-5000-ada"),
        ("RTX 5000 Ada Laptop", "rtx-5000-ada-laptop"),
        ("Quadro RTX 5000", "quadro-rtx-5000"),
        ("RTX PRO 5000", "rtx-pro-5000"),
        ("1x RTX 4090", "rtx-4090"),
        ("RTX A6000 NVLink", "rtx-a6000"),
        ("H100 (PCIe)", "h100-pcie"),
        ("H100 HBM2e", "h100-pcie"),
        ("A100 80GB (Some Cloud, Inc.)", "a100-sxm-80"),
        ("h100_80gb_hbm3", "h100-sxm"),
        ("NVIDIA L40S PCIe", "l40s"),
        ("M4 Max 14/32", "m4-max-32"),
        ("M3 Ultra 80C", "m3-ultra"),
        ("Apple M3 Ultra 32-core CPU 80-core GPU", "m3-ultra"),
        ('MacBook Pro 14" M4 Pro', "m4-pro"),
        ("4090 48G", "rtx-4090-48"),
        ("RTX 5090 FE", "rtx-5090"),
        ("Habana Gaudi2", "gaudi2"),
        ("AMD EPYC 7763 64-Core", "epyc-7763"),
        ("Ryzen 9 9950X DDR5-6000", "ryzen-9950x"),
        ("CPU Intel Xeon Platinum 8480+", "xeon-8480"),
        ("AMD Radeon VII (RADV VEGA20)", "radeon-vii"),  # as llama.cpp's Vulkan backend prints it
        ("Intel(R) Arc(tm) B580 Graphics (BMG G21)", "arc-b580"),
        ("AMD Instinct MI300X VF", "mi300x"),
        ("MI300A APU", "mi300a"),
        ("Apple M5 Max (40 GPU cores, 128GB)", "m5-max"),
        ("M3 Ultra 256 GB 60-core", "M3 Ultra 60-core GPU 256GB"),
        ("Core Ultra 7 155H iGPU", "arc-graphics-8"),
        ("Ryzen AI 9 HX 370 (890M)", "radeon-890m"),
        ("AWS Trainium2 (trn2.48xlarge)", "trainium2"),
        ("Intel Gaudi 2 (HL-225H)", "gaudi2"),
        ("AMD EPYC Turin 9575F (64C)", "epyc-9575f"),
        ("i5-12600KF", "core-i5-12600k"),
        ("single H100", "h100-sxm"),
    ],
)
def test_names_of_measurements_find_their_device(given, device):
    assert load_hardware(given).name == load_hardware(device).name


@pytest.mark.parametrize(
    ("given", "because"),
    [
        ("8xH100-SXM5", r"it counts devices\. Give H100-SXM5 and the devices of a replica, say --tp 8"),
        ("H20 80GB", "has 96 GB in this library. Give h20-sxm"),
        ("RTX 4090 32GB", "has 24 GB"),
        ("M4 Max 96GB", "has 48, 64, 128 GB"),
        ("7600", "several devices have that number. Give rx-7600 or ryzen-7600"),
        ("dual 3090", r"it counts devices\. Give 3090 and the devices of a replica, say --tp 2"),
        ("H100 x8", r"it counts devices\. Give H100 and the devices of a replica, say --tp 8"),
        ("H100*8", r"it counts devices\. Give H100 and"),
        ("NVIDIA GB200 (4x)", r"it counts devices\. Give NVIDIA GB200 and .* --tp 4"),
        ("EPYC 9755 2S", r"it counts devices\. Give EPYC 9755 and .* --tp 2"),
        ("A100 80GB (CPU offload)", "no file and no alias"),  # a note that makes it another machine
        ("CPU Apple M4 Max", "no file and no alias"),  # not the GPU
        ("NVIDIA M2", "no file and no alias"),
        ("AMD A10", "no file and no alias"),
        ("Ryzen 7 9700X iGPU", "no file and no alias"),  # not the CPU
    ],
)
def test_a_name_that_says_another_device_than_a_known_one_is_refused_by_every_reader(given, because):
    for read in (load_hardware, offers, purchases):
        with pytest.raises(ProfileError, match=because):
            read(given)


@pytest.mark.parametrize(
    ("given", "because", "remedy"),
    [
        ("g6.xlarge", "an instance of AWS", "Give l4"),
        ("Standard_ND96isr_H100_v5", "an instance of Azure", "Give h100-sxm"),
        ("DGX H100", "a server of eight", "Give h100-sxm"),
        ("v5e-8", "a slice of chips", "Give tpu-v5e"),
        ("TPU v6e 2x4", "a slice of chips", "Give tpu-v6e"),
        ("H100 MIG 1g.10gb", "a part of a GPU", "Compare with"),
        ("RTX 5000", "several devices", "rtx-5000-ada"),
        ("AMD Radeon Graphics (RADV GFX1151)", "several devices", "strix-halo"),
        ("H100 HGX", "a server of eight", "Give h100-sxm"),
        ("RTX 5090 (power limited to 400W)", "a power limit", "Give the device alone"),
        ("Groq LPU", "its compiler is no engine here", "Compare with"),
        ("Ascend 910B", "CANN", "Compare with"),
        ("TPU v3", "begins with v4", "Compare with"),
        ("Tesla K80", "Kepler", "Compare with"),
        ("Hailo-8L", "small networks", "Compare with"),
    ],
)
def test_what_is_known_and_no_device_is_refused_with_the_reason(given, because, remedy):
    with pytest.raises(NotModelledError, match=because) as caught:
        load_hardware(given)
    assert remedy in caught.value.remedy


def test_every_device_that_a_refusal_names_is_in_the_library():
    named = [device for _, device in SYSTEMS.values()]
    named += [word for said in SEVERAL.values() for word in re.findall(r"[a-z0-9-]*\d[a-z0-9-]*", said)]
    assert [device for device in named if device not in DEVICES] == []
    for pattern in (*SYSTEMS, *SEVERAL, *REFUSED):
        assert not [device for device in DEVICES if re.fullmatch(pattern, device)], pattern


def test_a_name_may_state_a_memory_that_the_machine_is_sold_with():
    """Metal takes two thirds up to 32 GB and three quarters above; a CPU has whatever its machine has."""
    for given, label, gibibytes in (("M4 Max 64GB", "m4-max-64gb", 48), ("Apple M1 Max 32GB", "m1-max-32gb", 64 / 3)):
        found = load_hardware(given)
        assert found.label == load_hardware(found.label).label == label
        assert found.memory_bytes / 2**30 == pytest.approx(gibibytes)
        assert found.id == load_hardware(found.id).label
    assert load_hardware("EPYC 9654 768GB").memory_bytes == 768e9
    assert load_hardware("M4 Max 128GB").label == "m4-max"


def test_devices_that_only_look_alike_are_not_aliases():
    own = {"RTX 3090 Ti": "rtx-3090ti", "H800": "h800-sxm", "RTX 3080 Ti": "rtx-3080ti", "RTX 4070 Ti": "rtx-4070ti"}
    own |= {"AMD MI250": "mi250", "AMD MI250X (1 GCD)": "mi250x-gcd", "Apple M1 Max 24-core GPU 32GB": "m1-max-24"}
    assert {name: load_hardware(name).id for name in own} == own


@pytest.mark.parametrize(("device", "sparse"), NOT_DENSE.items(), ids=NOT_DENSE)
def test_peaks_are_dense(device, sparse):
    for dtype, flops_per_s in sparse.items():
        assert load_hardware(device).peak_flops_per_s[dtype] < 0.9 * flops_per_s


def test_halving_the_width_at_most_doubles_the_rate_except_int8_on_geforce():
    for device in DEVICES:
        peaks = load_hardware(device).peak_flops_per_s
        # 2,517 and 671 TFLOP/s of AWS's data sheet, 1,260 and 288 PFLOP/s of 72 of NVIDIA's
        fp8 = {"trainium3": 3.76, "vr200": 4.4}.get(device, 2.03)
        for narrow, wide, most in (("fp8", "bf16", fp8), ("fp16", "tf32", 2.03), ("int8", "bf16", 4.01)):
            if narrow in peaks and wide in peaks:
                assert peaks[narrow] <= most * peaks[wide], (device, narrow, wide)


def gemm_share(device: str, dtype: str, tokens: int, value_bytes: float) -> float:
    """Share of the roofline of a product with N = K = 8192, by the equation of `Gemm`."""
    hardware, width = load_hardware(device), 8192
    rates = hardware.achievable.gemm[dtype]
    ideal_compute_s = 2 * tokens * width * width / hardware.peak_flops_per_s[dtype]
    moved_bytes = width * width * value_bytes + tokens * width * (value_bytes + 2)
    ideal_memory_s = moved_bytes / hardware.memory_bytes_per_s
    exponent = rates.exponent or 100.0
    panel_s = 128 * width * value_bytes / (rates.panel_bytes_per_s or math.inf)
    memory_s = max(ideal_memory_s / rates.memory_fraction, panel_s)
    low_s, high_s = sorted((ideal_compute_s / rates.compute_fraction, memory_s))
    seconds = high_s * (1 + (low_s / high_s) ** exponent) ** (1 / exponent) + rates.launch_s
    return max(ideal_compute_s, ideal_memory_s) / seconds


@pytest.mark.parametrize(
    ("device", "dtype", "value_bytes", "tokens", "roofline_share"),
    [  # facts/efficiency.md: share of the roofline that a median GEMM of N, K 4096 to 16384 reaches
        ("h100-sxm", "fp8", 1, 1, 0.63),
        ("h100-sxm", "fp8", 1, 8192, 0.62),
        ("h200-sxm", "bf16", 2, 1, 0.74),
        ("b200-sxm", "bf16", 2, 8192, 0.68),
        ("gb200", "fp8", 1, 1, 0.46),
        ("gb200", "bf16", 2, 1, 0.67),
        ("rtx-pro-6000-server", "fp8", 1, 4096, 0.78),
        ("rtx-pro-6000-server", "fp4", 0.5625, 1, 0.53),  # 0.47 by the 1792 GB/s of the table, not 1597
        ("rtx-pro-6000-server", "bf16", 2, 8192, 0.85),
    ],
)
def test_gemm_rates_give_back_the_measured_shares(device, dtype, value_bytes, tokens, roofline_share):
    assert gemm_share(device, dtype, tokens, value_bytes) == pytest.approx(roofline_share, rel=0.15)


@pytest.mark.parametrize(
    ("device", "sequences", "context_tokens", "share"),
    [  # facts/efficiency.md: share of the memory rate, 8 KV heads of 128 in bf16
        ("rtx-4090", 8, 1024, 0.60),
        ("rtx-4090", 128, 4096, 0.93),
        ("rtx-pro-6000-ws", 128, 4096, 0.82),
    ],
)
def test_decode_attention_gives_back_the_measured_points(device, sequences, context_tokens, share):
    hardware = load_hardware(device)
    rates = hardware.achievable.decode_attention
    cache_bytes = sequences * context_tokens * 2 * 8 * 128 * 2
    seconds = rates.launch_s + cache_bytes / (rates.memory_fraction * hardware.memory_bytes_per_s)
    assert cache_bytes / hardware.memory_bytes_per_s / seconds == pytest.approx(share, rel=0.10)


@pytest.mark.parametrize(
    ("device", "tokens", "flops_per_s"),
    [("rtx-4090", 512, 52e12), ("rtx-4090", 2048, 102e12), ("rtx-pro-6000-ws", 512, 86e12), ("h100-sxm", 4096, 504e12)],
)
def test_prefill_attention_gives_back_the_measured_rates(device, tokens, flops_per_s):
    hardware = load_hardware(device)
    rates = hardware.achievable.prefill_attention
    share = rates.compute_fraction * tokens / (tokens + rates.half_length_tokens)
    assert share * hardware.peak_flops_per_s["bf16"] == pytest.approx(flops_per_s, rel=0.08)


def test_own_figures_come_before_the_familys_and_the_classes(tmp_path, monkeypatch):
    folder = tmp_path / "hardware_profiles"
    folder.mkdir()
    (folder / "mine.yaml").write_text(
        VALID + "achievable:\n  elementwise_memory_fraction: {value: 0.9, source: sheet}\n", encoding="utf-8"
    )
    monkeypatch.setenv("INFERCAST_PROFILES", str(tmp_path))
    achievable = load_hardware("mine").achievable
    assert achievable.elementwise_memory_fraction == 0.9
    assert achievable.gemm["bf16"].launch_s == pytest.approx(3.8e-6)
    assert achievable.gemm["bf16"].launch_s.source.evidence == "family"
    assert achievable.gemm["fp4"].launch_s.source.evidence == "guess"


VALID = """\
name: Mine
vendor: Nobody
family: hopper
device_class: datacenter-gpu
sources:
  sheet: {text: data sheet, date: 2026-11, evidence: datasheet}
memory_marketed_bytes: {value: 80 GB, source: sheet}
memory_bytes_per_s: {value: 864 GB/s, source: sheet}
peak_flops_per_s:
  bf16: {value: 989 TFLOP/s, source: sheet}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("memory_bytes_per_s", "memory_bytes_per_sec", "memory_bytes_per_s"),
        ("{value: 864 GB/s, source: sheet}", "864", "it has no unit and no source"),
        ("864 GB/s", "864", "it has no unit"),
        ("864 GB/s", "864 Gbit/s", "there is no unit 'Gbit/s' here"),
        ("864 GB/s", "-864 GB/s", "finite and not negative"),
        ("864 GB/s", ".nan", "finite, non-negative"),
        ("864 GB/s", "nan GB/s", "finite, non-negative"),
        ("864 GB/s", "inf GB/s", "finite, non-negative"),
        ("864 GB/s", "1e999 GB/s", "finite and not negative"),
        ("864 GB/s", "[864 GB/s]", "not a quantity"),
        ("864 GB/s", "true", "not a quantity"),
        ("GB/s, source: sheet", "GB/s, source: shet", "it is not in sources:. Nearest: sheet"),
        ("GB/s, source: sheet", "GB/s", "one source or is one guess"),
        ("GB/s, source: sheet", "GB/s, source: sheet, guess: both", "one source or is one guess"),
        ("GB/s, source: sheet", "GB/s, sourc: sheet", "no such part"),
        ("evidence: datasheet", "evidence: hearsay", "'datasheet'"),
        ("datacenter-gpu", "big-gpu", "datacenter-gpu"),
        ("  bf16:", "  bf17:", "bf17"),
        ("vendor: Nobody\n", "", "required and missing"),
        ("name: Mine", "name: 5", "valid string"),
        ("name: Mine", "name: Mine\nname: Yours", "given twice"),
        ("name: Mine", "name: &anchor Mine", "anchor"),
        ("name: Mine", "name: !!python/object/apply:os.system [true]", "plain values only"),
        ("name: Mine", "name: " + "[" * 500 + "]" * 500, "nested deeper"),
        ("name: Mine", "name: 'Mine", "not YAML"),
        ("name: Mine", "name: " + "x" * 1_000_001, "holds more than 1 MB"),
        (VALID, "- a list", "mapping"),
        (VALID, "", "mapping"),
    ],
    ids=lambda text: text[:30].strip() or "empty",
)
def test_bad_yaml_is_a_three_part_error(tmp_path, old, new, message):
    path = tmp_path / "mine.yaml"
    assert old in VALID
    path.write_text(VALID.replace(old, new), encoding="utf-8")
    with pytest.raises(InfercastError) as caught:
        load_hardware(str(path))
    error = caught.value
    assert message in str(error)
    assert str(path) in error.given
    assert error.because
    assert error.remedy


def test_an_alias_bomb_is_refused_before_it_grows(tmp_path):
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    (tmp_path / "bomb.yaml").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ProfileError, match="anchor"):
        read_yaml(tmp_path / "bomb.yaml")


def test_a_missing_file_and_an_unknown_name_are_three_part_errors(tmp_path):
    with pytest.raises(ProfileError, match="cannot be read"):
        load_hardware(str(tmp_path / "none.yaml"))
    with pytest.raises(ProfileError, match=r"Nearest: .*l40s"):
        load_hardware("l40x")


def test_every_device_of_the_published_measurements_is_in_the_library():
    """SN40L has no engine, and yet a profile; the names are those of both tables."""
    for name in {row.setup.hardware for row in published()}:
        assert load_hardware(name).id in DEVICES, name


@pytest.mark.parametrize(
    ("device", "dtype", "tera_flops_per_s"),
    [  # torch.mm of square matrices, the best of 1,024 to 10,240 (zzc0721/torch-performance-test-data)
        ("rx-7900-xt", "fp16", 82),
        ("rx-6650-xt", "fp32", 9.4),
        ("rx-9060-xt", "bf16", 66),
        ("arc-a770-16", "bf16", 85),
        ("m3-max", "fp16", 12.8),
        ("v100-pcie-32", "fp16", 84),
        ("p40", "fp32", 10.1),
        ("rtx-2070-super", "fp16", 37),
        ("rtx-5070", "fp16", 67),
        ("rtx-3060-12", "bf16", 25.5),
        ("rtx-4060-laptop", "fp16", 30.8),
        ("rtx-5060-laptop", "fp16", 38),
        ("rtx-3050ti-laptop", "fp16", 18.3),
        ("rtx-5090d-v2", "bf16", 232),
    ],
)
def test_products_of_matrices_run_at_the_rates_that_torch_reaches(device, dtype, tera_flops_per_s):
    hardware = load_hardware(device)
    reached = hardware.peak_flops_per_s[dtype] * hardware.achievable.gemm[dtype].compute_fraction
    assert reached / 1e12 == pytest.approx(tera_flops_per_s, rel=0.12)


def test_geforce_that_accumulates_at_half_rate_is_a_family_apart():
    """Turing's tensor cores: 4 x fp32 in fp16 with fp32 sums on GeForce, 8 x on Quadro, none in GTX 16."""
    ratios = {"rtx-2080ti": 4, "quadro-rtx-6000": 8, "t4": 8, "gtx-1660ti": 2}
    for device, ratio in ratios.items():
        found = load_hardware(device)
        assert found.peak_flops_per_s["fp16"] / found.peak_flops_per_s["fp32"] == pytest.approx(ratio, rel=0.01)
        assert (found.family == "turing-geforce") == (ratio == 4), device


def test_capped_and_cut_devices_share_the_generation_but_not_the_cap():
    """H20: 15 % of the H100's products, 119 % of its bandwidth; A800: two thirds of A100's NVLink."""
    h20, h100, a800, a100 = (load_hardware(each) for each in ("h20", "h100", "a800", "a100"))
    assert h20.peak_flops_per_s["bf16"] / h100.peak_flops_per_s["bf16"] == pytest.approx(0.15, abs=0.001)
    assert h20.memory_bytes_per_s / h100.memory_bytes_per_s == pytest.approx(1.19, abs=0.01)
    assert a800.link.bytes_per_s / a100.link.bytes_per_s == pytest.approx(2 / 3)
    assert a800.peak_flops_per_s == a100.peak_flops_per_s


def test_sums_over_geforce_pass_the_memory_of_the_host():
    """Two RTX 4090 take 12 us for 8 bytes (tinygrad/open-gpu-kernel-modules#17), and no more than PCIe carries."""
    cards = [each for each in map(load_hardware, DEVICES) if each.family in GEFORCE]
    assert len(cards) > 20
    for card in cards:
        bridged = card.link.devices if card.link else 1
        for sums in (each for devices, each in card.achievable.all_reduce.items() if devices > bridged):
            assert sums.latency_s >= 12e-6, card.id
            assert sums.bus_bytes_per_s < (card.pcie_bytes_per_s or math.inf), card.id

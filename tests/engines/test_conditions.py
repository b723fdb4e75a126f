"""On which devices, and for which formats, rules of kernels hold."""

import pytest

from simulator.engines.conditions import OfFormats, OnDevices
from simulator.engines.dense_gemms import GemmTiles
from simulator.engines.kernels import Kernels
from simulator.hardware.hardware import load_hardware
from tests.support.kernels import figure

H100, H20, A100 = (load_hardware(each) for each in ("h100-sxm", "h20-sxm", "a100-sxm-80"))


def covered(rule: OnDevices) -> list[bool]:
    return [rule.covers(each) for each in (H100, H20, A100)]


def test_a_rule_covers_families_or_a_few_of_their_devices():
    assert covered(OnDevices(families=("hopper",))) == [True, True, False]
    assert covered(OnDevices(families=("hopper",), devices=("h20-sxm",))) == [False, True, False]
    assert covered(OnDevices(families=(), devices=("h20-sxm", "a100-sxm-80"))) == [False, True, True]
    assert covered(Kernels()) == [True, True, True]


def test_a_rule_of_formats_holds_for_these_alone():
    tiles = GemmTiles(formats=("fp8", "int4"), families=("hopper",), devices=("h20-sxm",), rows=figure(128.0))
    assert [tiles.holds(H20, each) for each in ("fp8", "int4", "bf16")] == [True, True, False]
    assert not tiles.holds(H100, "fp8")
    with pytest.raises(ValueError, match="fp9"):
        OfFormats(formats=("fp9",), families=())

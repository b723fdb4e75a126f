"""Rows of measurements: what is read from the name of the hardware."""

import pytest

from simulator.validation.measurements import measurement_of


@pytest.mark.parametrize(
    ("hardware", "stated", "device", "devices"),
    [
        ("8x H200 SXM5 141GB", {}, "H200 SXM5 141GB", 8),
        ("8x H100", {"n_gpus": "4"}, "H100", 4),  # a server of eight, of which the run took four
        ("8x H100", {"tp": "2"}, "H100", 2),
        ("p5.48xlarge", {"n_gpus": "8"}, "h100-sxm", 8),
        ("p5.48xlarge", {}, "p5.48xlarge", 1),  # how many of its devices is not said
        ("DGX H100", {"tp": "8"}, "h100-sxm", 8),
        ("NVIDIA DGX B200 (8x B200)", {}, "b200-sxm", 8),
        ("Azure ND H100 v5", {"tp": "8"}, "h100-sxm", 8),
    ],
)
def test_a_number_of_devices_in_their_name_counts_where_no_column_has_it(hardware, stated, device, devices):
    row = {"hardware": hardware, "model": "llama-3.1-8b", "metric": "tpot_ms", "value": "9", **stated}
    setup = measurement_of(row, "line 2").setup
    assert (setup.hardware, setup.devices) == (device, devices)


def test_one_process_over_sockets_is_named_and_not_predicted():
    row = {"hardware": "EPYC 9755 2S", "model": "llama-3.1-8b", "metric": "tg_tok_s", "value": "9"}
    setup = measurement_of(row, "line 2").setup
    assert (setup.hardware, setup.not_modelled) == ("EPYC 9755", "one process over several sockets")


@pytest.mark.parametrize(
    ("settings", "devices"), [("", 16), ("enable_attention_dp=true", 8)], ids=["ranks of their own", "the ranks of tp"]
)
def test_ranks_of_data_parallel_attention_are_devices_where_no_column_counts_them(settings, devices):
    row = {"hardware": "H200", "model": "deepseek-v3", "metric": "tpot_ms", "value": "9", "tp": "8", "dp": "2"}
    assert measurement_of({**row, "engine_settings": settings}, "line 2").setup.devices == devices

"""Prices: every offer that the facts hold for a known device, dated, and the cheapest of a kind."""

import csv
from pathlib import Path

import pytest

from simulator.errors import InfercastError, ProfileError
from simulator.hardware.hardware import load_hardware
from simulator.hardware.prices import KIND, PriceList, cheapest, load_offers, own_offer
from simulator.profile import find, names
from tests.support.paths import FIXTURES

LISTS = names(KIND)
OFFERS = [offer for name in LISTS for offer in PriceList.from_yaml(find(KIND, name)).offers]


@pytest.mark.parametrize("name", LISTS)
def test_every_offer_has_a_device_a_price_and_a_date(name):
    prices = PriceList.from_yaml(find(KIND, name))
    assert prices.provider
    assert prices.offers
    for row in prices.offers:
        assert load_hardware(row.hardware)
        assert 0.1 < row.usd_per_hour / row.devices < 15
        assert row.usd_per_hour.source.date
        assert row.instance


@pytest.fixture(scope="module")
def facts() -> list[dict[str, str]]:
    """The facts' rows for devices that the library knows."""
    with (FIXTURES / "facts" / "prices.csv").open() as lines:
        return list(csv.DictReader(lines))


def test_every_price_of_the_facts_is_there(facts):
    columns = ("usd_per_hour_on_demand", "usd_per_hour_spot")
    expected = [(int(row["gpu_count"]), float(row[column])) for row in facts for column in columns if row[column]]
    assert sorted((offer.devices, float(offer.usd_per_hour)) for offer in OFFERS) == sorted(expected)


def test_only_what_can_be_rented_is_on_demand(facts):
    kinds = [row["price_kind"] for row in facts]
    given = [offer.kind for offer in OFFERS]
    assert given.count("on-demand") == kinds.count("on-demand list price")
    assert given.count("reserved") == sum("reserv" in kind for kind in kinds)
    assert given.count("estimate") == sum("estimate" in kind or "survey" in kind for kind in kinds)


def test_estimates_are_never_picked_as_on_demand():
    assert min(offer.usd_per_device_hour for offer in load_offers("h100-sxm") if offer.kind == "estimate") == 1.30
    assert cheapest("h100-sxm").usd_per_device_hour == 2.69
    assert cheapest("h100-sxm").date == "2026"
    assert cheapest("h100-sxm", "estimate").provider == "SemiAnalysis TCO model"


def test_cheapest_is_by_device_not_by_instance():
    offer = cheapest("rtx-a6000")
    assert (offer.provider, offer.devices, offer.usd_per_device_hour) == ("Massed Compute", 4, 0.625)
    assert cheapest("h100-sxm", "spot").usd_per_device_hour == 1.25
    assert cheapest("inferentia2", "reserved").instance == "inf2.xlarge"


def test_offers_come_cheapest_first_and_know_their_provider():
    offers = load_offers("h100-sxm")
    prices = [offer.usd_per_device_hour for offer in offers]
    assert prices == sorted(prices)
    assert {"Nebius", "RunPod", "AWS", "Massed Compute"} <= {offer.provider for offer in offers}
    assert {offer.hardware for offer in offers} == {"h100-sxm"}


def test_an_alias_finds_the_same_offers():
    assert load_offers("H100") == load_offers("h100-sxm")


def test_no_offer_is_a_three_part_error_that_names_the_flag():
    with pytest.raises(ProfileError, match=r"no price list has it.*--usd-per-hour"):
        cheapest("m4-max")
    with pytest.raises(ProfileError, match=r"have only: estimate.*--usd-per-hour"):
        cheapest("gb300")
    with pytest.raises(ProfileError, match="no hardware profile 'h101'"):
        load_offers("h101")


def test_own_price_is_labelled_as_given():
    offer = own_offer("m4-max", 0.05)
    assert offer.usd_per_device_hour == 0.05
    assert offer.provider == "own price"
    assert offer.usd_per_hour.source.text == "given by the user"
    assert own_offer("h100", 16.0, devices=8).usd_per_device_hour == 2.0


@pytest.mark.parametrize(
    ("usd_per_hour", "devices"), [(-1.0, 1), (float("nan"), 1), (float("inf"), 1), (1.0, 0), (1.0, -2)]
)
def test_an_impossible_own_price_is_refused(usd_per_hour, devices):
    with pytest.raises(ProfileError) as caught:
        own_offer("h100-sxm", usd_per_hour, devices)
    assert caught.value.given.startswith("--usd-per-hour")
    assert caught.value.remedy


MINE = """\
provider: Mine
sources:
  bill: {text: our bill, date: 2026-10, evidence: datasheet}
offers:
  - {hardware: m4-max, devices: 2, instance: two Macs, kind: on-demand, usd_per_hour: {value: 0.5 USD/h, source: bill}}
  - {hardware: m4-max, devices: 1, instance: one Mac, kind: on-demand, usd_per_hour: {value: 0.25 USD/h, source: bill}}
"""


@pytest.fixture()
def own_folder(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "hardware_profiles" / "prices"
    folder.mkdir(parents=True)
    monkeypatch.setenv("INFERCAST_PROFILES", str(tmp_path))
    return folder


def test_the_users_folder_adds_and_replaces_lists(own_folder):
    (own_folder / "mine.yaml").write_text(MINE)
    (own_folder / "nebius.yaml").write_text(MINE.replace("Mine", "Nebius").replace("m4-max", "h100-sxm"))
    assert cheapest("m4-max").provider == "Mine"
    nebius = [offer for offer in load_offers("h100-sxm") if offer.provider == "Nebius"]
    assert [offer.usd_per_device_hour for offer in nebius] == [0.25, 0.25]


def test_a_tie_goes_by_the_providers_name(own_folder):
    (own_folder / "a.yaml").write_text(MINE.replace("Mine", "Zeta"))
    (own_folder / "b.yaml").write_text(MINE.replace("Mine", "Alpha"))
    assert cheapest("m4-max").provider == "Alpha"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hardware: m4-max", "hardware: m4-mox", "m4-max"),
        ("kind: on-demand", "kind: on_demand", "on-demand"),
        ("devices: 2", "devices: 0", "greater than or equal to 1"),
        ("devices: 2", "devices: two", "valid integer"),
        ("value: 0.5 USD/h", "value: 0.5", "no unit"),
        ("value: 0.5 USD/h", "value: 0.5 EUR/h", "not a unit of usd_per_hour"),
        ("value: 0.5 USD/h", "value: -0.5 USD/h", "not negative"),
        ("instance: two Macs", "instances: two Macs", "Nearest: instance"),
        ("devices: 2", "devices: 2, provider: Yours", "it is not a known key here"),
        ("source: bill", "source: bil", "Nearest: bill"),
        ("provider: Mine\n", "", "required and missing"),
    ],
)
def test_a_bad_list_is_a_three_part_error(own_folder, old, new, message):
    assert old in MINE
    (own_folder / "mine.yaml").write_text(MINE.replace(old, new, 1))
    with pytest.raises(InfercastError) as caught:
        load_offers("m4-max")
    assert message in str(caught.value)
    assert caught.value.because
    assert caught.value.remedy

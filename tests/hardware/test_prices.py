"""Prices: dated offers of whole instances, and which of them count."""

import datetime
from pathlib import Path

import pytest

from simulator.day import TODAY
from simulator.errors import InfercastError, ProfileError
from simulator.hardware.hardware import load_hardware
from simulator.hardware.prices import KIND, PriceList, Terms, load_offers, offers, own_offer
from simulator.profile import find
from simulator.profile_folders import names

LISTS = names(KIND)
OFFERS = [offer for name in LISTS for offer in PriceList.from_yaml(find(KIND, name)).offers]


@pytest.mark.parametrize("name", LISTS)
def test_every_offer_has_a_device_a_price_and_a_date(name):
    prices = PriceList.from_yaml(find(KIND, name))
    assert prices.provider
    assert prices.offers
    for row in prices.offers:
        assert load_hardware(row.hardware)
        assert 0.05 < row.usd_per_hour / row.devices < 30
        assert row.usd_per_hour.source.date
        assert row.instance


def test_an_offer_is_a_whole_instance():
    """$44 for eight B200 is no offer of one at $5.5."""
    [b200] = [offer for offer in load_offers("b200-sxm") if offer.provider == "Nebius"]
    assert (b200.devices, b200.usd_per_hour) == (8, 44.0)


@pytest.mark.parametrize("name", ["market-survey", "semianalysis-tco"])
def test_estimates_count_only_for_those_who_name_them(name):
    prices = PriceList.from_yaml(find(KIND, name))
    assert prices.kind == "estimate"
    assert not any(offer.provider == prices.provider for row in prices.offers for offer in offers(row.hardware))
    device = next(row.hardware for row in prices.offers if row.commitment == "on-demand" or name != "market-survey")
    commitment = prices.offers[0].commitment
    assert any(offer.provider == prices.provider for offer in offers(device, Terms(commitment, (prices.provider,))))


def test_what_a_single_host_asked_counts_only_for_those_who_name_it():
    assert "Vast.ai" not in {offer.provider for offer in offers("l40s")}
    assert {offer.provider for offer in offers("l40s", Terms(providers=("vast*",)))} == {"Vast.ai"}


def test_reserved_is_cheaper_than_on_demand():
    """Prices of a year that are older than the on-demand price of the same instance once made them dearer."""
    found = 0
    for device in {offer.hardware for offer in OFFERS}:
        listed = {(each.provider, each.instance): each.usd_per_hour for each in offers(device)}
        for year in offers(device, Terms("reserved")):
            assert year.usd_per_hour < listed[year.provider, year.instance]
            found += 1
    assert found > 10


def test_a_region_and_a_provider_are_globs():
    terms = Terms(providers=("a*",), regions=("us-EAST*",))
    assert {offer.provider for offer in offers("h100-sxm", terms)} == {"AWS"}
    assert offers("h100-sxm", Terms(regions=("mars*",))) == ()


def test_offers_older_than_the_newest_of_the_same_instance_are_not_used(own_folder):
    old = MINE.replace("2026-10", "2025-10").replace("0.5 USD/h", "0.1 USD/h").replace("0.25 USD/h", "0.1 USD/h")
    (own_folder / "a.yaml").write_text(old.replace("commitment: on-demand", "commitment: reserved"))
    (own_folder / "b.yaml").write_text(MINE)
    assert [offer.usd_per_hour for offer in offers("m4-max", Terms(providers=("mine",)))] == [0.5, 0.25]
    assert offers("m4-max", Terms("reserved")) == ()


def test_offers_of_over_two_years_count_where_no_younger_has_as_many_devices(own_folder):
    one, two = MINE.splitlines()[-1], MINE.splitlines()[-2]
    old = MINE.replace("2026-10", "2024-09").replace("0.25 USD/h", "0.1 USD/h").replace("0.5 USD/h", "0.2 USD/h")
    (own_folder / "old.yaml").write_text(old.replace("Mine", "Old"))
    (own_folder / "new.yaml").write_text(MINE.replace(two + "\n", ""))
    found = [(offer.provider, offer.devices) for offer in offers("m4-max", Terms(providers=("old", "mine")))]
    assert found == [("Old", 2), ("Mine", 1)], one


def test_the_day_of_the_question_may_be_given(monkeypatch):
    monkeypatch.setenv(TODAY, "2026-11-23")
    assert Terms().on == datetime.date(2026, 11, 23)
    monkeypatch.setenv(TODAY, "23 November")
    with pytest.raises(InfercastError, match="Give it as 2026-11-23"):
        Terms()


def test_offers_come_cheapest_first_and_know_their_provider():
    found = load_offers("h100-sxm")
    prices = [offer.usd_per_device_hour for offer in found]
    assert prices == sorted(prices)
    assert {"Nebius", "RunPod", "AWS", "Massed Compute"} <= {offer.provider for offer in found}
    assert {offer.hardware for offer in found} == {"h100-sxm"}


def test_an_alias_finds_the_same_offers():
    assert load_offers("H100") == load_offers("h100-sxm")


def test_a_device_without_an_offer_has_none():
    assert offers("rpi5") == ()
    with pytest.raises(ProfileError, match="no hardware profile 'h101'"):
        offers("h101")


def test_own_price_is_labelled_as_given():
    offer = own_offer("m4-max", 0.05)
    assert offer.usd_per_device_hour == 0.05
    assert offer.provider == "own price"
    assert offer.usd_per_hour.source.text == "given by the user"
    assert own_offer("h100", 16.0, devices=8).usd_per_device_hour == 2.0
    assert (offer.commitment, own_offer("h100", 2.0, commitment="spot").commitment) == ("on-demand", "spot")


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
  - {hardware: m4-max, devices: 2, instance: 2x, commitment: on-demand, usd_per_hour: {value: 0.5 USD/h, source: bill}}
  - {hardware: m4-max, devices: 1, instance: 1x, commitment: on-demand, usd_per_hour: {value: 0.25 USD/h, source: bill}}
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
    assert offers("m4-max")[0].provider == "Mine"
    nebius = [offer for offer in load_offers("h100-sxm") if offer.provider == "Nebius"]
    assert [offer.usd_per_device_hour for offer in nebius] == [0.25, 0.25]


def test_a_tie_goes_by_the_providers_name(own_folder):
    (own_folder / "a.yaml").write_text(MINE.replace("Mine", "Zeta"))
    (own_folder / "b.yaml").write_text(MINE.replace("Mine", "Alpha"))
    assert offers("m4-max")[0].provider == "Alpha"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hardware: m4-max", "hardware: m4-mox", "m4-max"),
        ("commitment: on-demand", "commitment: on_demand", "on-demand"),
        ("devices: 2", "devices: 0", "greater than or equal to 1"),
        ("devices: 2", "devices: two", "valid integer"),
        ("value: 0.5 USD/h", "value: 0.5", "no unit"),
        ("value: 0.5 USD/h", "value: 0.5 EUR/h", "there is no unit 'EUR/h' here"),
        ("value: 0.5 USD/h", "value: -0.5 USD/h", "not negative"),
        ("instance: 2x", "instances: 2x", "Nearest: instance"),
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

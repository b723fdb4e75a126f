"""Owned machines: purchase, space, staff and electricity by hand, machines around cards, what is refused."""

import pytest

from simulator import Scenario, Workload, deploy, load_workload, parse_slo
from simulator.cost.bill import HOURS_PER_MONTH
from simulator.cost.capacity import answer
from simulator.cost.energy import HOST_W
from simulator.cost.ownership import DEVICES_SHARE, Owner, owned_offers
from simulator.errors import InfercastError
from simulator.hardware.hardware import load_hardware
from simulator.hardware.purchases import purchases
from simulator.hardware.sites import load_site

US = load_site("us")


def test_an_hour_of_a_server_by_hand():
    """$120,000 over 4 years; 8 x (700 + 150) W of space at $195.94 per kW a month; $500 of wages a month."""
    owner = Owner(US, lifetime_years=4.0, staff_usd_per_month=500.0, usd=120_000.0, devices=8)
    [offer] = owned_offers(load_hardware("h100-sxm"), owner)
    assert (offer.devices, offer.commitment) == (8, "owned")
    space = 195.94 * 8 * (700 + HOST_W) / 1000
    assert offer.usd_per_hour == pytest.approx(120_000 / (4 * 8760) + (space + 500) / HOURS_PER_MONTH)
    assert offer.usd_per_kwh == pytest.approx(0.0929 * 1.2)


def test_electricity_is_paid_by_use():
    chat = load_workload("chat")
    workload = Workload(chat.arrivals(2.0), chat.lengths, 500)
    deployment = deploy("llama-3.1-8b", "h100-sxm")
    offers = owned_offers(deployment.hardware, Owner(US, usd=30_000.0))
    found = answer(Scenario(deployment, workload, parse_slo("ttft:2s"), offers), 2.0)
    electricity = found.watts / 1000 * 0.0929 * 1.2
    assert found.at_load.usd_per_hour == pytest.approx(found.packing.usd_per_hour + electricity)
    assert 0.2 * 0.0929 * 1.2 < electricity < 0.85 * 0.0929 * 1.2


def test_a_card_is_no_machine():
    card = next(each for each in purchases("rtx-pro-6000-ws") if each.condition == "new")
    one, two = owned_offers(load_hardware("rtx-pro-6000-ws"), Owner(US))[:2]
    space = 195.94 * (600 + HOST_W) / 1000 / HOURS_PER_MONTH
    assert one.usd_per_hour - space == pytest.approx(card.usd / DEVICES_SHARE / (5 * 8760))
    assert (two.devices, two.usd_per_hour) == (2, pytest.approx(2 * one.usd_per_hour))


def test_whole_machines_come_before_cards_and_new_before_used():
    assert {offer.devices for offer in owned_offers(load_hardware("b200-sxm"), Owner(US))} == {8}
    assert "new" in owned_offers(load_hardware("h100-sxm"), Owner(US))[0].instance
    assert "used" in owned_offers(load_hardware("l40s"), Owner(US))[0].instance
    assert owned_offers(load_hardware("mi100"), Owner(US)) == ()


def test_the_newest_price_of_a_thing_counts():
    [newest] = [each for each in purchases("gb10") if each.condition == "new"]
    assert (newest.usd, newest.date) == (5400.0, "2026-09")


@pytest.mark.parametrize(
    ("device", "site", "message"),
    [("h100-sxm", "france", "--usd-per-kwh"), ("m4-max", "us", "Add tdp_w")],
)
def test_what_is_not_known_is_refused(device, site, message):
    with pytest.raises(InfercastError, match=message):
        owned_offers(load_hardware(device), Owner(load_site(site)))


def test_a_machine_is_written_off_over_some_time():
    with pytest.raises(InfercastError, match="lifetime_years 0"):
        Owner(US, lifetime_years=0.0)

"""Leases whose brokers exchange among themselves: what the distributor may do while it knows only the sum."""

from __future__ import annotations

from pathlib import Path

import pytest

from distributor.leases import MICRO, NOTHING, Amount, Leases
from srtm.errors import BadInput
from srtm.topic import parse_options
from tests.support.distributor_in_process import Distributor, FakeBroker, settle, spec, total

ENVELOPE = Amount(1_100 * MICRO, 30 * MICRO)
HALF = Amount(550 * MICRO, 15 * MICRO)
LIVE = {"a", "b"}


def pool() -> Leases:
    leases = Leases(ENVELOPE).retargeted(ENVELOPE, {"a": HALF, "b": HALF}).advanced(LIVE, 1)
    return leases.acknowledged("a", 1).acknowledged("b", 1).as_pool()


def test_a_pool_begins_only_with_all_shares_in_force() -> None:
    begun = Leases(ENVELOPE).retargeted(ENVELOPE, {"a": HALF, "b": HALF}).advanced(LIVE, 1)
    assert not begun.acknowledged("a", 1).as_pool().pool
    assert pool().pool == 1


def test_while_it_lasts_nothing_is_issued_and_other_shares_of_its_members_do_not_end_it() -> None:
    leases = pool()
    other = leases.retargeted(ENVELOPE, {"a": Amount(100 * MICRO, MICRO), "b": Amount(MICRO, MICRO)})
    assert other.advanced(LIVE, 5).holdings == leases.holdings
    assert not other.recalling


def test_called_back_nobody_gets_anything_before_all_gave_up_what_they_had() -> None:
    emptied = pool().recalled().advanced(LIVE, 5)
    assert not emptied.pool
    assert all(held.share == NOTHING and held.version == 5 for held in emptied.holdings.values())
    half_way = emptied.acknowledged("a", 5).advanced(LIVE, 6)
    assert half_way.holdings["a"].share == NOTHING  # b may hold all of it
    dealt = half_way.acknowledged("b", 5).advanced(LIVE, 7)
    assert {name: held.share for name, held in dealt.holdings.items()} == {"a": HALF, "b": HALF}


def test_it_goes_on_as_long_as_one_of_its_brokers_is_not_heard() -> None:
    waiting = pool().recalled().advanced({"a"}, 5)
    assert waiting.pool == 1
    assert not waiting.advanced(LIVE, 6).pool


def test_what_a_broker_had_that_died_or_began_anew_may_be_elsewhere_so_the_others_are_asked_first() -> None:
    died = pool().freed("a").advanced({"b"}, 5)
    assert died.holdings["b"].share == NOTHING
    reborn = pool().reissued("a", 5)
    assert reborn.holdings["a"].share == NOTHING
    assert reborn.recalling


def test_other_members_or_another_envelope_end_it() -> None:
    assert pool().retargeted(ENVELOPE, {"a": ENVELOPE}).recalling
    assert pool().retargeted(Amount(MICRO, MICRO * 2), {"a": HALF, "b": HALF}).recalling


def test_of_a_removed_topic_every_broker_may_hold_all() -> None:
    assert all(held.bound == ENVELOPE for held in pool().closed().holdings.values())


def test_a_pool_whose_topic_comes_again_before_its_brokers_heard_that_it_went_is_called_back() -> None:
    again = pool().closed().retargeted(ENVELOPE, {"a": ENVELOPE}).advanced(LIVE, 5)
    again = again.acknowledged("a", 5).advanced(LIVE, 6)
    assert again.outstanding() == ENVELOPE  # b may hold all of it
    dealt = again.acknowledged("b", 5).advanced(LIVE, 7)
    assert dealt.holdings["a"].share == ENVELOPE
    assert not dealt.pool


def test_a_pool_is_over_with_the_last_of_its_brokers() -> None:
    again = pool().closed().freed("a").freed("b").retargeted(ENVELOPE, {"a": ENVELOPE}).advanced(LIVE, 5)
    assert again.holdings["a"].share == ENVELOPE
    assert not again.pool


async def exchanging(path: Path) -> tuple[Distributor, list[FakeBroker]]:
    opened = await Distributor.open(path / "store.sqlite3")
    brokers = await opened.brokers("b1", "b2")
    await opened.submit(spec(burst=30, mode="gdrl"))
    await settle(*brokers)
    await settle(*brokers)
    return opened, brokers


async def test_under_gdrl_brokers_are_told_to_exchange_once_all_shares_are_in_force(tmp_path: Path) -> None:
    opened, brokers = await exchanging(tmp_path)
    told = [broker.topics["cars"].exchange for broker in brokers]
    assert told[0] is not None
    assert told[0].epoch == opened.registry.topics["cars"].leases.pool
    assert set(told[0].members) == {"b1", "b2"}
    await opened.aclose()


async def test_a_switch_to_another_mode_takes_the_shares_back_and_deals_them_anew(tmp_path: Path) -> None:
    opened, brokers = await exchanging(tmp_path)
    await opened.registry.set_options("cars", lambda old: parse_options(old, {"mode": "fitted"}))
    for broker in brokers:
        await broker.sync()
        assert broker.share() == (0.0, 0.0)
        assert broker.topics["cars"].exchange is None
    for _ in range(3):
        await settle(*brokers)
    assert total(*brokers) == (1_100.0, 30.0)
    await opened.aclose()


async def test_a_pool_survives_a_restart_of_the_distributor(tmp_path: Path) -> None:
    opened, _ = await exchanging(tmp_path)
    epoch = opened.registry.topics["cars"].leases.pool
    await opened.aclose()
    again = await Distributor.open(tmp_path / "store.sqlite3")
    assert again.registry.topics["cars"].leases.pool == epoch > 0
    await again.aclose()


async def test_a_broker_that_begins_anew_gets_nothing_until_the_pool_is_dealt_again(tmp_path: Path) -> None:
    opened, (b1, b2) = await exchanging(tmp_path)
    epoch = opened.registry.topics["cars"].leases.pool
    b1.restart()
    await b1.sync()
    assert b1.share() == (0.0, 0.0)
    for _ in range(4):
        await settle(b1, b2)
    assert total(b1, b2) == (1_100.0, 30.0)
    assert opened.registry.topics["cars"].leases.pool > epoch
    await opened.aclose()


def test_a_timed_lease_and_gdrl_do_not_go_together() -> None:
    with pytest.raises(BadInput, match=r"lease: '15s': must be \"keep\" under mode \"gdrl\""):
        spec(mode="gdrl", lease="15s")

"""Leases whose brokers exchange among themselves: what the distributor may do while it knows only the sum."""

from __future__ import annotations

from pathlib import Path

import pytest

from distributor.jobs.penalty_gauge import shares_in_force
from distributor.model.leases import MICRO, NOTHING, Amount, Leases
from distributor.views.metrics import exposition
from srtm.control import TopicReport
from srtm.errors import BadInput
from srtm.topics.spec import parse_options
from tests.support.distributor_in_process import Distributor, FakeBroker, settle, spec, total

ENVELOPE = Amount(1_100 * MICRO, 30 * MICRO)
HALF = Amount(550 * MICRO, 15 * MICRO)
MOST, LEAST = Amount(900 * MICRO, 20 * MICRO), Amount(200 * MICRO, 10 * MICRO)
LIVE = {"a", "b"}


def pool() -> Leases:
    leases = Leases(ENVELOPE).with_target(ENVELOPE, {"a": HALF, "b": HALF}).advanced(LIVE, 1)
    return leases.acknowledged("a", 1).acknowledged("b", 1).as_pool()


def test_a_pool_begins_only_with_all_shares_in_force() -> None:
    begun = Leases(ENVELOPE).with_target(ENVELOPE, {"a": HALF, "b": HALF}).advanced(LIVE, 1)
    assert not begun.acknowledged("a", 1).as_pool().pool
    assert pool().pool == 1


def test_while_it_lasts_nothing_is_issued_and_other_shares_of_its_members_do_not_end_it() -> None:
    leases = pool()
    other = leases.with_target(ENVELOPE, {"a": Amount(100 * MICRO, MICRO), "b": Amount(MICRO, MICRO)})
    assert other.advanced(LIVE, 5).holdings == leases.holdings
    assert not other.recalling


def test_called_back_everybody_keeps_what_it_has_until_all_have_said_how_much_that_is() -> None:
    told = pool().recalled().advanced(LIVE, 5)
    assert all(told.is_recalled(name) and held.version == 5 for name, held in told.holdings.items())
    half_way = told.acknowledged("a", 5, MOST).advanced(LIVE, 6)
    assert half_way.pool
    dealt = half_way.acknowledged("b", 5, LEAST).advanced(LIVE, 7)
    assert not dealt.pool
    assert {name: held.share for name, held in dealt.holdings.items()} == {"a": HALF, "b": LEAST}
    grown = dealt.acknowledged("a", 7).advanced(LIVE, 8)
    assert grown.holdings["b"].share == HALF


def test_what_was_in_flight_when_it_ended_is_dealt_again() -> None:
    told = pool().recalled().advanced(LIVE, 5)
    known = told.acknowledged("a", 5, LEAST).acknowledged("b", 5, LEAST).advanced(LIVE, 6)
    assert known.outstanding() == ENVELOPE


def test_brokers_that_say_they_have_more_than_there_is_get_nothing_until_all_have_given_it_up() -> None:
    told = pool().recalled().advanced(LIVE, 5)
    emptied = told.acknowledged("a", 5, MOST).acknowledged("b", 5, MOST).advanced(LIVE, 6)
    assert not emptied.pool
    assert all(held.share == NOTHING and held.bound == ENVELOPE for held in emptied.holdings.values())
    dealt = emptied.acknowledged("a", 6).acknowledged("b", 6).advanced(LIVE, 7)
    assert {held.share for held in dealt.holdings.values()} == {HALF}


def beside_a_holder_of_nothing() -> Leases:
    """A pool of a and b; c, first on record, has given up all that it had."""
    third = Amount(300 * MICRO, 10 * MICRO)
    leases = Leases(ENVELOPE).with_target(ENVELOPE, {"c": third, "a": third, "b": third}).advanced({*LIVE, "c"}, 1)
    for name in ("c", "a", "b"):
        leases = leases.acknowledged(name, 1)
    leases = leases.with_target(ENVELOPE, {"a": HALF, "b": HALF}).advanced(LIVE, 2).acknowledged("c", 2)
    leases = leases.advanced(LIVE, 3).acknowledged("a", 3).acknowledged("b", 3).as_pool()
    assert (leases.pool, next(iter(leases.holdings.items()))[1].bound) == (3, NOTHING)
    return leases


def test_a_silent_holder_of_nothing_inherits_nothing_and_keeps_no_pool_from_its_end() -> None:
    died = beside_a_holder_of_nothing().freed("b").with_target(ENVELOPE, {"a": ENVELOPE}).advanced({"a"}, 5)
    assert (died.holdings["a"].bound, died.holdings["c"].bound) == (ENVELOPE, NOTHING)
    dealt = died.acknowledged("a", 5, MOST).advanced({"a"}, 6)
    assert (dealt.pool, dealt.holdings["a"].share) == (0, ENVELOPE)


def test_a_pool_is_over_with_its_last_member_though_holders_of_nothing_are_left() -> None:
    left = beside_a_holder_of_nothing().freed("a").freed("b")
    assert (left.pool, left.recalling, left.outstanding()) == (0, False, NOTHING)


def test_a_holder_of_nothing_that_began_anew_and_fell_silent_keeps_no_pool_from_its_end() -> None:
    told = beside_a_holder_of_nothing().reissued("c", 4).recalled().advanced(LIVE, 5)
    assert told.holdings["c"].is_acknowledged
    assert not told.acknowledged("a", 5, MOST).acknowledged("b", 5, LEAST).advanced(LIVE, 6).pool


def test_amounts_that_cannot_be_make_nobody_doubted_who_is_known_to_hold_nothing() -> None:
    leases = beside_a_holder_of_nothing()
    emptied = leases.recalled().advanced(LIVE, 5)
    emptied = emptied.acknowledged("a", 5, MOST).acknowledged("b", 5, MOST).advanced(LIVE, 6)
    assert emptied.holdings["c"] == leases.holdings["c"]
    dealt = emptied.acknowledged("a", 6).acknowledged("b", 6).advanced(LIVE, 7)
    assert {dealt.holdings[name].share for name in LIVE} == {HALF}


def test_it_goes_on_as_long_as_one_of_its_brokers_is_not_heard() -> None:
    waiting = pool().recalled().advanced({"a"}, 5)
    assert not any(map(waiting.is_recalled, LIVE))
    assert all(map(waiting.advanced(LIVE, 6).is_recalled, LIVE))


def test_a_member_that_falls_silent_once_the_recall_was_told_leaves_all_shares_as_they_are_until_it_is_heard() -> None:
    said = pool().recalled().advanced(LIVE, 5).acknowledged("a", 5, MOST)
    later = said.advanced({"a"}, 6)
    assert later == said
    assert all(map(later.is_recalled, LIVE))
    assert {
        name: held.share for name, held in later.acknowledged("b", 5, LEAST).advanced(LIVE, 7).holdings.items()
    } == {
        "a": HALF,
        "b": LEAST,
    }


def test_a_member_that_falls_silent_once_the_recall_was_told_and_is_proven_dead_leaves_its_tokens_to_the_others() -> (
    None
):
    said = pool().recalled().advanced(LIVE, 5).acknowledged("a", 5, LEAST)
    dealt = said.freed("b").with_target(ENVELOPE, {"a": ENVELOPE}).advanced({"a"}, 6)
    assert (dealt.pool, dealt.holdings["a"].share) == (0, ENVELOPE)


def test_what_a_broker_had_that_died_or_began_anew_may_be_elsewhere_so_the_others_are_asked_first() -> None:
    died = pool().freed("a").with_target(ENVELOPE, {"b": ENVELOPE}).advanced({"b"}, 5)
    assert died.outstanding() == ENVELOPE
    assert died.acknowledged("b", 5, MOST).advanced({"b"}, 6).holdings["b"].share == ENVELOPE
    reborn = pool().reissued("a", 5).advanced(LIVE, 6)
    assert reborn.holdings["a"].share == NOTHING
    shrunk = reborn.acknowledged("b", 6, MOST).advanced(LIVE, 7)
    assert {name: held.share for name, held in shrunk.holdings.items()} == {"a": NOTHING, "b": HALF}
    assert shrunk.acknowledged("b", 7).advanced(LIVE, 8).holdings["a"].share == HALF


def test_other_members_or_another_envelope_end_it() -> None:
    assert pool().with_target(ENVELOPE, {"a": ENVELOPE}).recalling
    assert pool().with_target(Amount(MICRO, MICRO * 2), {"a": HALF, "b": HALF}).recalling


def test_a_pool_whose_topic_comes_again_before_its_brokers_heard_that_it_went_is_called_back() -> None:
    again = pool().closed().with_target(ENVELOPE, {"a": ENVELOPE}).advanced(LIVE, 5)
    again = again.acknowledged("a", 5, LEAST).advanced(LIVE, 6)
    assert again.pool  # b may hold the rest
    shrunk = again.acknowledged("b", 5, MOST).advanced(LIVE, 7)
    assert shrunk.holdings["b"].share == NOTHING
    assert shrunk.acknowledged("b", 7).advanced(LIVE, 8).holdings["a"].share == ENVELOPE


def test_a_pool_is_over_with_the_last_of_its_brokers() -> None:
    again = pool().closed().freed("a").freed("b").with_target(ENVELOPE, {"a": ENVELOPE}).advanced(LIVE, 5)
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


async def test_a_switch_to_another_mode_leaves_nobody_without_a_share_at_any_instant(tmp_path: Path) -> None:
    opened, brokers = await exchanging(tmp_path)
    brokers[0].held["cars"], brokers[1].held["cars"] = (900 * MICRO, 20 * MICRO), (150 * MICRO, 9 * MICRO)
    await opened.registry.set_options("cars", lambda old: parse_options(old, {"mode": "fitted"}))
    for _ in range(6):
        for broker in brokers:
            await broker.sync()
            assert broker.topics["cars"].exchange is None
            assert all(min(one.share()) >= 1 for one in brokers)
            assert total(*brokers) <= (1_100.0, 30.0)
            assert sum(one.share()[1] for one in brokers) <= 30.0
    assert total(*brokers) == (1_100.0, 30.0)  # with what was in flight
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


async def test_while_brokers_exchange_metrics_give_what_they_report_and_the_penalty_is_not_known(
    tmp_path: Path,
) -> None:
    opened = await Distributor.open(tmp_path / "store.sqlite3")
    a, b = await opened.brokers("a", "b")
    await opened.submit(spec(burst=30, mode="gdrl"))
    await settle(a, b)
    topic = opened.registry.topics["cars"]
    assert topic.leases.pool
    assert shares_in_force(topic) is None
    a.reports = [TopicReport(topic="cars", share_version=1, rate=700.5, burst=17.0)]
    await a.sync()
    text = b"".join(exposition(opened.registry, opened.syncing)).decode()
    assert 'srtm_share_rate{broker="a",topic="cars"} 700.5' in text
    assert 'srtm_share_burst{broker="a",topic="cars"} 17.0' in text
    assert 'srtm_share_rate{broker="b",topic="cars"} 550.0' in text  # it has not reported: as dealt

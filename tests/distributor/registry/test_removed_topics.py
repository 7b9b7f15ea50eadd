"""Removed topics leave memory and store, once no broker can have anything of them any more."""

from pathlib import Path

import pytest
import trio

from distributor.jobs.promise_watch import PromiseWatch
from distributor.model.cluster import FittingRecord
from distributor.model.state_change import StateChange
from distributor.page.observer import Observer
from distributor.registry.state import REMOVED_KEPT_S
from distributor.storage import cluster_rows, store
from srtm.contracts.contract import read_contract
from srtm.control import TopicReport, UnassignedPublisher
from tests.support.distributor_in_process import Distributor, settle, spec
from tests.support.reachable import paths_to

pytestmark = pytest.mark.usefixtures("no_threads")
_DAY_NS = round(REMOVED_KEPT_S * 1e9)


async def _removed(distributor, *names, **changes):
    (a,) = await distributor.brokers("a")
    for name in names:
        await distributor.submit(spec(name, count=5, **changes))
    await settle(a)
    for name in names:
        await distributor.registry.remove(name, purge=False)
    return a


def _is_later_by(distributor, passed_ns):
    state = distributor.registry.state
    before = state.wall_ns
    state.wall_ns = lambda: before() + passed_ns
    return state


async def _forget(distributor):
    await distributor.registry.maintenance._forget_removed()


async def test_a_topic_is_forgotten_a_day_after_its_removal_in_store_and_memory(tmp_path: Path):
    distributor = await Distributor.open(tmp_path / "store.sqlite3")
    a = await _removed(distributor, "cars", "vans")
    await settle(a)
    _is_later_by(distributor, _DAY_NS - 10**9)
    await _forget(distributor)
    assert set(distributor.registry.topics) == {"cars", "vans"}
    _is_later_by(distributor, 2 * 10**9)
    await _forget(distributor)
    assert (dict(distributor.registry.topics), distributor.registry.decisions) == ({}, {})
    for table in (store.topics, store.publishers, store.places, store.shares, store.decisions, store.fittings):
        assert await distributor.store.rows(table) == []
    stored = await cluster_rows.load(distributor.store)
    assert (stored.topics, stored.decisions) == ({}, {})
    await distributor.submit(spec("cars", count=5))
    await settle(a)
    assert a.share() is not None
    await distributor.aclose()


async def test_nothing_of_a_forgotten_topic_is_left_in_any_table_or_in_memory(distributor, autojump_clock):
    registry, syncing, name = distributor.registry, distributor.syncing, "cars"
    a, b = await distributor.brokers("a", "b")
    observer, watch = Observer(registry, syncing), PromiseWatch(registry, syncing)
    await registry.put_contracts([_contract()])
    await distributor.submit(spec(name, count=80, mode="fitted"))
    await settle(a, b)
    at_b = registry.topic(name).placement.held().index("b")
    a.strangers = [UnassignedPublisher(topic=name, publisher_id=registry.topic(name).spec.publishers.ids[at_b])]
    a.stayed = list(a.strangers)
    a.reports = [TopicReport(topic=name, share_version=0, channels=["archive"], undeclared=5)]
    await settle(a, b)
    await registry.set_misplaced(name, "a", {"b": 100.0})
    fitted = FittingRecord(topic=name, running=False, method="always", rounds_s=1.0, outcome="{}")
    await registry.note_fitting(fitted, decision="fitted")
    await _look(observer, watch)
    tables = {"topics", "publishers", "places", "shares", "decisions", "fittings", "settings"}
    assert await _tables_with(distributor, name) == tables
    assert registry.pins.of(name)
    await registry.remove(name, purge=False)
    syncing.forget_topic(name)  # as the route does
    await settle(a, b)  # they report it, without a limit, for as long as it has messages
    a.reports = []
    await settle(a, b)
    await _look(observer, watch)
    _is_later_by(distributor, 2 * _DAY_NS)
    await trio.sleep(2 * REMOVED_KEPT_S)
    await settle(a, b)
    await _forget(distributor)
    await syncing.histories.answer(0, 0.0)
    syncing.histories._clean()
    await _look(observer, watch)
    observer.events.clear()  # the latest, of whatever topics
    assert await _tables_with(distributor, name) == set()
    assert paths_to([registry, syncing, observer, watch], name) == []
    assert [each.contract.namespace for each in registry.contracts.all()] == ["sensors"]  # it is of no topic


async def test_what_happens_to_a_topic_that_is_made_again_after_it_was_forgotten_is_told(distributor):
    a = await _removed(distributor, "cars")
    observer = Observer(distributor.registry, distributor.syncing)
    await settle(a)
    _is_later_by(distributor, 2 * _DAY_NS)
    await _forget(distributor)
    observer._note_events()
    await distributor.submit(spec("cars", count=5))
    observer._note_events()
    assert [event.topic for event in observer.events if "submitted" in event.lines] == ["cars"]


def _contract():
    return read_contract({"namespace": "sensors", "subject": "*", "policies": [{"name": "p", "rate": 10, "burst": 5}]})


async def _look(observer, watch):
    observer._note_events()
    await observer._look()
    await watch._look()


async def _tables_with(distributor, name):
    """Names of the tables in which a row tells of the topic; settings name it among other words."""
    return {
        table.name
        for table in store.metadata.sorted_tables
        for row in await distributor.store.rows(table)
        if any(name in str(value).split() for value in row.values())
    }


async def test_a_topic_is_kept_while_a_broker_may_hold_its_share(distributor):
    await _removed(distributor, "cars")  # the broker has not said that it dropped it
    _is_later_by(distributor, 2 * _DAY_NS)
    await _forget(distributor)
    assert set(distributor.registry.topics) == {"cars"}


async def test_a_topic_is_kept_until_a_bucket_of_its_name_would_be_full_again(distributor):
    a = await _removed(distributor, "cars", rate=0.001, burst=1000)  # full after about two days
    await settle(a)
    _is_later_by(distributor, _DAY_NS + 10**9)
    await _forget(distributor)
    assert set(distributor.registry.topics) == {"cars"}
    _is_later_by(distributor, 3 * _DAY_NS)
    await _forget(distributor)
    assert distributor.registry.topics == {}


async def test_a_broker_that_was_not_told_of_a_removal_is_told_everything(distributor):
    a = await _removed(distributor, "cars")
    assert "cars" in a.topics
    name = "cars"
    async with distributor.registry.state.writing:
        await distributor.registry.state.commit(StateChange(forgotten_topics=[name]))
    await settle(a)
    assert a.topics == {}

"""Removed topics leave memory and store, once no broker can have anything of them any more."""

from pathlib import Path

import pytest

from distributor.model.state_change import StateChange
from distributor.registry.state import REMOVED_KEPT_S
from distributor.storage import cluster_rows, store
from tests.support.distributor_in_process import Distributor, settle, spec

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

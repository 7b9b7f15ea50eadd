"""A store that an earlier version wrote opens with all that it holds. ``stores/COMMIT.sql``: a dump of one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from distributor.model.broker_lifecycle import BrokerState
from distributor.model.full_brokers import CapacityCaps, traffic_class
from distributor.model.leases import MICRO, Amount
from distributor.storage import cluster_rows
from tests.support.distributor_in_process import Distributor, FakeBroker, settle

pytestmark = pytest.mark.usefixtures("no_threads")

STORES = Path(__file__).parent / "stores"


@pytest.fixture
async def opened(tmp_path: Path):
    path = tmp_path / "store.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.executescript((STORES / "3cf09e8.sql").read_text())
    connection.close()
    distributor = await Distributor.open(path)
    yield distributor
    await distributor.aclose()


async def test_topics_brokers_and_what_was_measured_are_as_they_were(opened) -> None:
    registry = opened.registry
    cars, bikes, vans = (registry.topic(name) for name in ("cars", "bikes", "vans"))
    assert list(registry.state.skips) == [18]
    assert [len(topic.spec.publishers) for topic in (cars, bikes, vans)] == [100, 20, 30]
    assert (cars.placement.brokers, bikes.placement.brokers, vans.placement.brokers) == (
        ("a", "b", "c"),
        ("b",),
        ("c", "a", "b"),
    )
    assert cars.misplaced == {"b": {"a": 20.5}}
    assert bikes.spec.lease == "15s"
    assert registry.topics["old"].purged
    assert registry.pending_removals == {"old"}
    states = {name: registry.broker_state(name) for name in registry.brokers}
    assert (states["e"], states["f"], states["a"]) == (BrokerState.DEAD, BrokerState.DRAINING, BrokerState.EXPECTED)
    assert registry.caps == CapacityCaps().with_caps(cars.spec.slo, traffic_class(cars.spec.publishers), {"a": 560.0})
    assert [figure.mcap for figure in registry.capacities["b"]] == [400.0]
    assert registry.fittings["cars"].method == "sequential"
    assert [decision.lines[0] for decision in registry.decisions["vans"]] == ["submitted", "fitting"]


async def test_shares_go_on_under_their_law(opened) -> None:
    """Also those of a layout whose split no formula makes; and a is still to acknowledge that it has less."""
    cars, vans = (opened.registry.topic(name).leases for name in ("cars", "vans"))
    assert cars.holdings["a"].share.rate < cars.holdings["a"].bound.rate
    assert cars.outstanding() == Amount(1_100 * MICRO, 30 * MICRO)
    assert vans.target["c"] == Amount(108_754_635, 8_471_012)
    brokers = [FakeBroker(name, opened.syncing, mcap=2_000.0, incarnation="2") for name in ("a", "b", "c")]
    await settle(*brokers)
    for name, rate, burst in (("cars", 1_100.0, 30.0), ("vans", 330.0, 30.0), ("bikes", 220.0, 30.0)):
        shares = [broker.share(name) for broker in brokers]
        assert sum(one for one, _ in shares) == pytest.approx(rate)
        assert sum(one for _, one in shares) == pytest.approx(burst)


async def test_what_is_stored_again_is_what_was_read(opened) -> None:
    before = opened.registry.state.topics
    await opened.registry.note("vans", "a line")
    again = await cluster_rows.load(opened.store)
    assert again.topics["vans"].leases == before["vans"].leases
    assert again.topics["vans"].placement.brokers == before["vans"].placement.brokers
    assert again.topics["cars"].misplaced == before["cars"].misplaced


async def test_a_topic_with_a_name_that_is_refused_now_is_there_until_it_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    with sqlite3.connect(path) as connection:
        dump = (STORES / "3cf09e8.sql").read_text()
        connection.executescript(dump.replace("'bikes'", "'..'").replace('"bikes"', '".."'))
    connection.close()
    distributor = await Distributor.open(path)
    assert distributor.registry.topic("..").spec.lease == "15s"
    await distributor.registry.remove("..", purge=False)
    assert distributor.registry.topics[".."].removed
    await distributor.aclose()

"""What is written and read of the cluster state: what has changed, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from distributor.model.cluster import Topic
from distributor.model.state_change import StateChange
from distributor.storage import cluster_rows as records
from distributor.storage import store
from distributor.storage.cluster_rows import Stored
from distributor.storage.topic_rows import text
from srtm.topics.spec import LEAST_LATENCY_MS, LONGEST_LATENCY_MS, TopicSpec, parse_change
from tests.support.distributor_in_process import Distributor, spec

pytestmark = pytest.mark.usefixtures("no_threads")

COUNT = 25_000  # publishers: in three chunks


def large() -> TopicSpec:
    return spec("cars", rate=40_000, burst=100, publishers=[{"count": COUNT, "rate": 1, "id_prefix": "p"}])


def written(old: Topic, new: Topic) -> list[tuple[str, dict[str, object]]]:
    """(table, where) of the columns of publishers."""
    made = records.changes(StateChange(topics=[new]), 2, {old.name: old})
    return [(one.table.name, dict(one.where)) for one in made if one.table in (store.publishers, store.places)]


async def placed(distributor: Distributor) -> Topic:
    await distributor.brokers("a", "b", mcap=20_000.0)
    await distributor.submit(large())
    return distributor.registry.topic("cars")


async def test_of_a_large_topic_only_the_chunk_of_places_is_written_in_which_a_publisher_moves(distributor):
    old = await placed(distributor)
    publisher = old.spec.publishers.ids[12_345]
    to = next(name for name in ("a", "b") if name != old.placement.broker_of(publisher))
    new = replace(old, placement=old.placement.moved({publisher: to}))
    assert written(old, new) == [("places", {"topic": "cars", "chunk": 1})]
    assert written(old, replace(old, version=9)) == []
    changed = parse_change(old.spec, {"remove": ["p0"]})
    other = replace(old, spec=changed, placement=replace(old.placement, publishers=changed.publishers))
    assert written(old, other) == [("publishers", {"topic": "cars"}), ("places", {"topic": "cars"})]


async def test_where_publishers_are_is_stored_and_only_where_somebody_said_so(distributor):
    await distributor.brokers("a", mcap=1_000.0)
    columns = {"ids": ["x", "y"], "rates": [1.0, 1.0]}
    places = {"latitudes": [52.5, None], "longitudes": [-13.25, None]}
    for name, block in (("placed", {**columns, **places}), ("plain", columns)):
        await distributor.submit(spec(name, rate=10, burst=2, publishers=[block]))
    stored = (await records.load(distributor.store)).topics
    assert stored["placed"].spec.publishers == distributor.registry.topic("placed").spec.publishers
    assert stored["placed"].spec.publishers.points_of([0, 1]) == [(52.5, -13.25), None]
    assert stored["plain"].spec.publishers.points is None


async def test_places_that_were_written_in_parts_are_read_as_they_are(distributor):
    topic = await placed(distributor)
    of = topic.spec.publishers.ids
    to = {of[i]: "b" if topic.placement.broker_of(of[i]) == "a" else "a" for i in (0, 9_999, 24_999)}
    await distributor.registry.arrange("cars", topic.assignment_version, topic.placement.moved(to), "moved")
    moved = distributor.registry.topic("cars")
    stored = (await records.load(distributor.store)).topics["cars"]
    assert stored.placement.brokers == moved.placement.brokers
    assert stored.placement.at.tolist() == moved.placement.at.tolist()
    assert stored.spec == moved.spec


class Reads:
    """The store of ``distributor``: numbers of the decisions that were read."""

    def __init__(self, distributor: Distributor, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store, self.decisions = distributor.store, list[int]()
        asked: Callable[..., list[dict[str, object]]] = store.decisions_after

        def read(*what: object) -> list[dict[str, object]]:
            rows = asked(*what)
            self.decisions = [int(str(row["number"])) for row in rows]
            return rows

        monkeypatch.setattr(store, "decisions_after", read)

    async def load(self, known: Stored | None) -> Stored:
        return await records.load(self._store, known)


async def test_whoever_knows_the_log_reads_only_what_has_come_since(distributor, monkeypatch):
    await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await distributor.submit(spec("vans", count=10))
    for line in ("one", "two"):
        await distributor.registry.note("cars", line)
    reads = Reads(distributor, monkeypatch)
    first = await reads.load(None)
    assert sorted(reads.decisions) == [1, 1, 2, 3]
    await distributor.registry.note("cars", "three")
    second = await reads.load(first)
    assert reads.decisions == [4]
    assert second.decisions == distributor.registry.decisions
    await reads.load(second)
    assert reads.decisions == []


async def test_a_log_that_is_shorter_than_what_is_known_of_it_is_another_one_and_read_whole(distributor, monkeypatch):
    await distributor.brokers("a", "b")
    await distributor.submit(spec())
    reads = Reads(distributor, monkeypatch)
    known = await reads.load(None)
    (entry,) = known.decisions["cars"]
    longer = replace(known, decisions={"cars": [entry, replace(entry, number=2)]})
    assert (await reads.load(longer)).decisions == distributor.registry.decisions


async def test_the_log_that_is_known_is_as_short_as_the_one_that_is_kept(distributor, monkeypatch):
    monkeypatch.setattr(records, "DECISIONS_KEPT", 3)
    await distributor.brokers("a", "b")
    await distributor.submit(spec())
    known = await records.load(distributor.store)
    for number in range(4):
        await distributor.registry.note("cars", f"{number}")
    assert (await records.load(distributor.store, known)).decisions == distributor.registry.decisions


async def test_the_fitting_of_a_removed_topic_is_forgotten_with_it(distributor):
    await distributor.brokers("a", "b")
    await distributor.submit(spec())
    fitting = records.FittingRecord(topic="cars", running=False, method="sequential", rounds_s=60.0, outcome="{}")
    await distributor.registry.note_fitting(fitting)
    assert (await records.load(distributor.store)).fittings == {"cars": fitting}
    await distributor.registry.remove("cars", purge=False)
    assert distributor.registry.fittings == {}
    assert (await records.load(distributor.store)).fittings == {}


@pytest.mark.parametrize(("stored_ms", "read_ms"), [(1e13, LONGEST_LATENCY_MS), (1e-9, LEAST_LATENCY_MS), (4.95, 4.95)])
async def test_a_promise_that_was_stored_before_there_were_bounds_is_read_as_the_nearest_within_them(
    distributor, stored_ms, read_ms
):
    topic = await placed(distributor)
    unbounded = replace(topic, spec=replace(topic.spec, slo=replace(topic.spec.slo, latency_ms=stored_ms)))
    await distributor.store.apply(records.changes(StateChange(topics=[unbounded]), 2, {"cars": topic}))
    assert (await records.load(distributor.store)).topics["cars"].spec.slo.latency_ms == read_ms


async def test_a_placement_that_an_older_version_stored_with_shares_is_read(distributor):
    topic = await placed(distributor)
    old = text([[name, 550_000_000, 15_000_000] for name in topic.placement.brokers])
    row = next(one for one in records.changes(StateChange(topics=[topic]), 2, {}) if one.table is store.topics)
    stored = [{**one, "brokers": old} for one in row.rows]
    await distributor.store.apply([replace(row, rows=stored)])
    assert (await records.load(distributor.store)).topics["cars"].placement.brokers == topic.placement.brokers


async def test_an_automatic_burst_of_an_older_version_is_the_rule_of_the_paper_until_it_is_submitted_again(distributor):
    topic = await placed(distributor)
    sized = replace(topic, spec=replace(topic.spec, burst="auto"))
    row = next(one for one in records.changes(StateChange(topics=[sized]), 2, {}) if one.table is store.topics)
    await distributor.store.apply([row])
    assert (await records.load(distributor.store)).topics["cars"].spec.burst == "auto"
    (stored,) = row.rows
    document = json.loads(stored["spec"])
    del document["max_burst_s"]
    await distributor.store.apply([replace(row, rows=[{**stored, "spec": text(document)}])])
    read = (await records.load(distributor.store)).topics["cars"]
    assert (read.spec.burst, read.burst) == ("paper", topic.burst)

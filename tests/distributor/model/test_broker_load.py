"""What brokers have, and what of it is looked at again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distributor.model.broker_load import NO_LOAD, loads_after, loads_of
from distributor.placement import planner
from distributor.registry import topic_table
from srtm.topics.capacity import Class
from srtm.topics.spec import Slo, parse_change
from tests.support.distributor_in_process import Distributor, spec

pytestmark = pytest.mark.usefixtures("no_threads")

SIZED = {"burst": "auto", "publishers": [{"count": 20, "rate": 10, "id_prefix": "p"}], "rate": 400}


async def two_topics(distributor: Distributor) -> None:
    await distributor.brokers("a", mcap=1000.0)
    await distributor.submit(spec("cars", count=20))
    await distributor.submit(spec("vans", count=10, slo={"percentile": 95, "latency_ms": 50}))


async def test_of_a_topic_that_is_placed_anew_nothing_counts_that_it_has_already(distributor):
    await two_topics(distributor)
    load = distributor.registry.loads["a"]
    assert load.allocated == 300.0
    assert (load.allocated_to_others("cars"), load.allocated_to_others("unknown")) == (100.0, 300.0)
    assert list(load.promised(without="cars")) == [(Slo(percentile=95, latency_ms=50), Class(publishers=10))]
    assert len(list(load.promised())) == 2
    assert (NO_LOAD.allocated, list(NO_LOAD.promised())) == (0.0, [])


async def test_loads_follow_every_change_of_a_topic_and_are_looked_at_once_for_it(distributor, monkeypatch):
    await two_topics(distributor)
    made = []
    monkeypatch.setattr(topic_table, "loads_after", lambda *what: made.append(1) or loads_after(*what))
    await distributor.registry.change_publishers("cars", lambda old: parse_change(old, {"remove": ["p0"]}))
    made.clear()
    assert [distributor.registry.loads["a"].allocated for _ in range(3)] == [290.0] * 3
    assert len(made) <= 1
    await distributor.registry.remove("cars", purge=False)
    assert distributor.registry.loads["a"].allocated == 100.0
    await distributor.registry.remove("vans", purge=False)
    assert distributor.registry.loads == {}


async def test_loads_that_were_kept_are_those_of_all_topics_as_they_are(distributor):
    await distributor.brokers("a", "b", mcap=100_000.0)
    registry = distributor.registry

    def check() -> None:
        fresh = loads_of(registry.topics.values())
        assert {name: (one.rates, one.specs) for name, one in registry.loads.items()} == {
            name: (one.rates, one.specs) for name, one in fresh.items()
        }

    for number in range(30):  # more than are followed one by one, where nobody looked meanwhile
        await distributor.submit(spec(f"t{number}", count=2, placement="lb"))
    check()
    kept = registry.loads
    await distributor.submit(spec("t0", count=3, rate=1.5, placement="lb"))
    await distributor.submit(spec("t1", count=1, placement="conc"))
    await registry.remove("t2", purge=False)
    check()
    assert set(kept["a"].rates) == {f"t{number}" for number in range(30)}  # values do not change
    for number in range(30):
        if number != 2:
            await registry.remove(f"t{number}", purge=False)
        check()
    assert registry.loads == {}


class Sizing:
    """Counts how often an automatic burst is worked out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        monkeypatch.setattr(planner, "smallest_burst", self._smallest)
        monkeypatch.setattr(planner, "auto_burst", self._smallest)

    def _smallest(self, *_what: object) -> int:
        self.times += 1
        return 7


@pytest.mark.parametrize("rule", ["auto", "paper"])
@pytest.mark.parametrize(
    ("change", "times"),
    [
        ({"lease": "15s"}, {"auto": 0, "paper": 0}),
        ({"slo": {"percentile": 99, "latency_ms": 9}}, {"auto": 1, "paper": 0}),
        ({"seed": 2}, {"auto": 1, "paper": 0}),
        ({"max_burst_s": 2.0}, {"auto": 1, "paper": 0}),
        ({"slo": {"percentile": 95, "latency_ms": 5}}, {"auto": 1, "paper": 1}),
        ({"rate": 401}, {"auto": 1, "paper": 1}),
        ({"publishers": [{"count": 21, "rate": 10, "id_prefix": "p"}]}, {"auto": 1, "paper": 1}),
    ],
)
async def test_an_automatic_burst_is_worked_out_once_and_only_where_it_may_be_another(
    distributor, monkeypatch, change, times, rule
):
    await distributor.brokers("a", mcap=1000.0)
    sizing = Sizing(monkeypatch)
    topic = await distributor.registry.submit(spec(**{**SIZED, "burst": rule}))
    assert (sizing.times, topic.burst) == (1, 7.0)
    sizing.times = 0
    topic = await distributor.registry.submit(spec(**{**SIZED, "burst": rule, **change}))
    assert (sizing.times, topic.burst, topic.spec.burst) == (times[rule], 7.0, rule)


async def test_a_removed_topic_tells_nothing_of_the_burst_of_its_next_life(distributor, monkeypatch):
    await distributor.brokers("a", mcap=1000.0)
    sizing = Sizing(monkeypatch)
    await distributor.submit(spec(**SIZED))
    await distributor.registry.remove("cars", purge=False)
    topic = await distributor.registry.submit(spec(**SIZED))
    assert (sizing.times, topic.burst) == (2, 7.0)


async def test_an_automatic_burst_that_became_too_small_is_worked_out_anew_with_the_same_file(distributor):
    await distributor.brokers("a", mcap=1000.0)
    publishers = [{"count": 20, "rate": 10, "group_size": 10}]
    sensors = replace(spec(burst="auto", publishers=publishers), rate=300.0)
    registry = distributor.registry
    first = await registry.submit(sensors)
    same = await registry.submit(sensors, services={"a": 15_000, "elsewhere": 9_000_000})
    assert same is first
    slow = {"a": 300_000}
    planned = await registry.dry_run(sensors, slow)
    assert planned.burst > first.burst
    larger = await registry.submit(sensors, services=slow)
    assert (larger.burst, larger.spec) == (planned.burst, sensors)
    assert await registry.submit(sensors, services=slow) is larger
    assert await registry.submit(sensors, services={"a": 15_000}) is larger  # what is more than enough stays
    assert await registry.submit(sensors, services={"a": 10_000_000}) is larger  # no burst would do

"""Series of topics: those whose promise is broken first, as many as the setting says, none of what is removed."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from distributor.config import DistributorConfig
from distributor.views.metrics import exposition
from srtm.errors import BadInput
from tests.support.distributor_in_process import Distributor, spec
from tests.support.topic_reports import period, report


def samples(distributor: Distributor) -> dict[tuple[str, ...], float]:
    """{(name, *labels): value}"""
    text = b"".join(exposition(distributor.registry, distributor.syncing)).decode()
    families = text_string_to_metric_families(text)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def topics(found: dict[tuple[str, ...], float]) -> set[str]:
    return {key[1] for key in found if key[0] == "srtm_topic_slo_seconds"}


@pytest.fixture
async def small(tmp_path):
    opened = await Distributor.open(tmp_path / "store.sqlite3", metrics_topics=2)
    yield opened
    await opened.aclose()


async def test_broken_promises_have_series_before_the_largest_rates(small):
    (broker,) = await small.brokers("a", mcap=9_000.0)
    for name, rate in (("small", 1.0), ("middle", 2.0), ("large", 3.0)):
        await small.submit(spec(name, rate=rate))
    assert topics(samples(small)) == {"middle", "large"}
    broker.reports = [report(period(7.0, 1.0, 1000), topic="small")]
    await broker.sync()
    found = samples(small)
    assert topics(found) == {"small", "large"}
    assert found["srtm_topic_promise_kept", "small"] == 0
    assert found["srtm_topic_slo_ratio", "small"] == 0.99
    assert found["srtm_metrics_left_out", "topic"] == 1
    counts = {verdict: found["srtm_topics", verdict] for verdict in ("kept", "broken", "unknown")}
    assert counts == {"kept": 0, "broken": 1, "unknown": 2}


async def test_what_is_removed_has_no_series(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    for broker in (a, b):
        broker.reports = [report(period(1.0, 1.0, 1000))]
        await broker.settle()
    distributor.registry.state.share_log.counts["cars"] = 3
    distributor.syncing.histories.ignored["a"] = 2
    found = samples(distributor)
    assert (found["srtm_share_changes_total", "cars"], found["srtm_histories_ignored_total", "a"]) == (3, 2)
    await distributor.registry.remove("cars", purge=False)
    distributor.syncing.forget_topic("cars")
    assert not [key for key in samples(distributor) if "cars" in key]
    await a.settle()
    await distributor.registry.declare_dead("a", "1")
    await distributor.registry.forget("a")
    distributor.syncing.forget("a")
    assert not [key for key in samples(distributor) if "a" in key[1:]]


@pytest.mark.parametrize("number", [-1, 1_000_001])
def test_a_number_of_topics_that_makes_no_sense_is_refused(number):
    with pytest.raises(BadInput, match="metrics_topics"):
        DistributorConfig(metrics_topics=number)

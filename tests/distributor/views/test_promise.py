"""The word on a promise where operators and Prometheus see it."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from distributor.sync.service import SyncService
from distributor.views.metrics import exposition
from distributor.views.topic_view import topic_view
from tests.support.distributor_in_process import Distributor, FakeBroker, spec
from tests.support.topic_reports import period, report


async def reporting(distributor: Distributor, access_ms: float, count: int = 1000) -> list[FakeBroker]:
    """Two brokers; messages wait so long for tokens at the first."""
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    a.reports, b.reports = [report(period(access_ms, 1.0, count))], [report(period(1.0, 1.0, count))]
    for broker in (a, b):
        await broker.sync()
    return [a, b]


def metrics(distributor: Distributor) -> dict[str, float]:
    text = b"".join(exposition(distributor.registry, distributor.syncing))
    samples = [sample for family in text_string_to_metric_families(text.decode()) for sample in family.samples]
    return {sample.name: sample.value for sample in samples if sample.name.startswith(("srtm_topic_p", "srtm_topic_s"))}


@pytest.mark.parametrize(
    ("access_ms", "count", "verdict", "gauge"),
    [(1.0, 1000, "kept", 1.0), (7.0, 1000, "broken", 0.0), (7.0, 100, "unknown", math.nan)],
)
async def test_a_topic_shows_whether_its_promise_is_kept(distributor, access_ms, count, verdict, gauge):
    await reporting(distributor, access_ms, count)
    view = topic_view(distributor.registry.topic("cars"), distributor.registry, distributor.syncing)
    assert view.promise == view.promise_last_60s.verdict == verdict
    shown = metrics(distributor)
    assert shown["srtm_topic_promise_kept"] == pytest.approx(gauge, nan_ok=True)
    assert shown["srtm_topic_slo_seconds"] == 0.005


async def test_a_broker_that_is_not_heard_from_has_no_word_in_it(distributor, mock_clock):
    a, b = await reporting(distributor, 7.0)
    mock_clock.jump(distributor.registry.config.liveness_s + 1)
    await b.sync()
    assert distributor.syncing.sessions.promise(distributor.registry.topic("cars")).verdict == "kept"
    await a.sync()
    assert distributor.syncing.sessions.promise(distributor.registry.topic("cars")).verdict == "broken"


async def test_a_standby_does_not_know(distributor):
    await reporting(distributor, 7.0)
    distributor.registry.state.leads = False
    view = topic_view(distributor.registry.topic("cars"), distributor.registry, SyncService(distributor.registry))
    assert (view.promise, view.promise_reason) == ("unknown", "last 60 s: no broker reports the topic")
    assert "srtm_topic_promise_kept" not in metrics(distributor)

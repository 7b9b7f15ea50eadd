"""A measurement on a real broker with real traffic, asked for by a scripted distributor: its counts are what was
sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from srtm.control import (
    DesiredTopic,
    MeasuredTrace,
    MeasurementAnswer,
    MeasurementReport,
    MeasurementRequest,
    Share,
)
from srtm.net.http_server import Response, json_response
from tests.support.broker_process import Subscriber, broker, publish
from tests.support.http_server import serve_http
from tests.support.scripted_distributor import ScriptedDistributor

pytestmark = pytest.mark.slow

MS = 1_000_000
TARGET_NS = 50 * MS
LAB_NS = 20_000
LIMITED = DesiredTopic(
    topic="t", share=Share(version=1, rate=100.0, burst=10.0, full=True), publishers=["p0", "p1"], channels=["c"]
)
REQUEST = MeasurementRequest(
    id="t:1",
    topic="t",
    percentile=99.0,
    target_ns=TARGET_NS,
    share_version=1,
    at_most_ns=60_000 * MS,
    report_ns=50 * MS,
)


class Measurer(ScriptedDistributor):
    """Takes reports; once ``traces``, it wants the trace."""

    def __init__(self) -> None:
        super().__init__(LIMITED)
        self.traces = False
        self.reports: list[MeasurementReport] = []

    def take(self, segments: list[str], body: bytes) -> Response:
        assert segments == ["v1", "brokers", "b1", "measurements", "t:1"]
        report = msgspec.json.decode(body, type=MeasurementReport)
        self.reports.append(report)
        return json_response(MeasurementAnswer(go_on=report.trace is None, trace_wanted=self.traces))

    async def until_reported(self, messages: int) -> None:
        await self.until(lambda: sum(sum(report.count) for report in self.reports) >= messages)

    async def traced(self) -> MeasuredTrace:
        await self.until(lambda: self.reports[-1].trace is not None)
        trace = self.reports[-1].trace
        assert trace is not None
        return trace


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[Measurer, str]]:
    distributor = Measurer()
    async with trio.open_nursery() as nursery:
        yield distributor, f"http://{await serve_http(nursery, distributor.answer)}"
        nursery.cancel_scope.cancel()


async def test_counts_and_trace_are_of_what_was_sent(tmp_path: Path) -> None:
    with trio.fail_after(50):
        async with scripted() as (distributor, url):
            flags = ("--distributor", url, "--mcap", "1000", "--lab-service-time", "20")
            with broker(tmp_path, *flags) as running:
                await distributor.in_force()
                assert distributor.syncs[-1].lab_service_time_ns == LAB_NS
                subscriber = Subscriber(running.tcp, "t", "c")
                distributor.measurements = [REQUEST]
                await distributor.until(lambda: bool(distributor.reports))  # it has begun
                publish(running, "p0", 30)
                publish(running, "p1", 2)
                for _ in range(32):
                    await trio.to_thread.run_sync(subscriber.body)
                await distributor.until_reported(32)
                distributor.traces = True
                trace = await distributor.traced()
                subscriber.close()
    assert [report.sequence for report in distributor.reports] == list(range(1, len(distributor.reports) + 1))
    last = distributor.reports[-1]
    assert (sum(sum(report.count) for report in distributor.reports), last.measured, last.unsent) == (32, 32, 0)
    assert (last.lost, last.lab_service_time_ns, last.others_kept) == (0, LAB_NS, True)
    # Ten tokens were there; then one comes every 10 ms.
    assert [trace.publishers[index] for index in trace.publisher] == ["p0"] * 30 + ["p1"] * 2
    assert trace.access_ns[:30] == [0] * 10 + [10 * MS * number for number in range(1, 21)]
    assert min(trace.processing_ns) >= LAB_NS
    delays = [access + processing for access, processing in zip(trace.access_ns, trace.processing_ns, strict=True)]
    late = sum(sum(report.late) for report in distributor.reports)
    assert late >= sum(delay > TARGET_NS for delay in delays) >= 16 + 2  # the network comes on top
    assert sum(sum(report.latency_ns) for report in distributor.reports) >= sum(delays)
    assert last.access_ns >= max(trace.access_ns)  # the 99th percentile of 32 is the largest


async def test_reports_tell_what_the_network_takes_once_a_client_is_there(tmp_path: Path) -> None:
    def told() -> list[float | None]:
        return [topic.network_ms for sync in distributor.syncs for topic in sync.topics if topic.topic == "t"]

    with trio.fail_after(50):
        async with scripted() as (distributor, url):
            with broker(tmp_path, "--distributor", url, "--mcap", "1000") as running:
                await distributor.in_force()
                assert set(told()) <= {None}
                subscriber = Subscriber(running.tcp, "t", "c")
                await distributor.until(lambda: told()[-1] is not None)
                subscriber.close()
    network_ms = told()[-1]
    assert network_ms is not None
    assert 0 < network_ms < 1000  # loopback, on a machine that may be busy

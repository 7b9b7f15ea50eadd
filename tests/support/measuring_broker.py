"""Simulated brokers that measure as real ones do: every publisher of a topic fires at once, and a broker serves one
message after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import trio

from distributor.jobs.layout_jobs import LayoutJobs
from srtm.control import (
    LatencyMs,
    MeasuredTrace,
    MeasurementReport,
    MeasurementRequest,
    SyncAnswer,
    TopicLatency,
    TopicReport,
)
from tests.support.distributor_in_process import FakeBroker

PERIOD_NS = 5_000_000  # between two firings
SERVICE_NS = 20_000  # of one message


@dataclass
class MeasuringBroker(FakeBroker):
    """``traffic``: topics whose publishers send; ``broken``: topics whose promise is not kept here while others are
    measured; ``backlogs``: {topic: messages that wait for tokens}."""

    layouts: LayoutJobs | None = None
    traffic: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    backlogs: dict[str, int] = field(default_factory=dict)
    silent: bool = False
    measured: list[str] = field(default_factory=list)  # ids
    _wanted: dict[str, MeasurementRequest] = field(default_factory=dict)

    async def sync(self, wait_s: float = 0.0) -> SyncAnswer:
        self.reports = [
            TopicReport(
                topic=name,
                share_version=topic.share.version,
                backlog=self.backlogs.get(name, 0),
                last_60s=self._last_60s(name),
            )
            for name, topic in self.topics.items()
        ]
        answer = await super().sync(wait_s)
        self._wanted = {request.id: request for request in answer.measurements}
        return answer

    def _last_60s(self, name: str) -> TopicLatency:
        heads = len(self.topics[name].publishers)
        if name not in self.traffic or not heads:
            return TopicLatency()
        last_ms = heads * SERVICE_NS / 1e6
        took = LatencyMs(count=1000, p50_ms=last_ms / 2, p95_ms=last_ms, p99_ms=last_ms, p999_ms=last_ms)
        return TopicLatency(access=LatencyMs(count=1000), processing=took, total=took)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                started_s, wanted = trio.current_time(), self._wanted
                news = not (await self.sync(wait_s=1.0)).unchanged
                for id_ in self._wanted.keys() - set(self.measured):
                    self.measured.append(id_)
                    nursery.start_soon(self._measure, id_)
                if not news and wanted == self._wanted:
                    await trio.sleep_until(started_s + 1.0)

    async def _measure(self, id_: str) -> None:
        sequence = 0
        while id_ in self._wanted and (request := self._wanted[id_]).held:
            await trio.sleep(1.0)
            sequence += 1
            assert self.layouts is not None
            await self.layouts.report(self.name, id_, self._report(request, sequence, 0, 0, final=False))
        await trio.sleep(request.after_ns / 1e9)
        began_s, told = trio.current_time(), 0
        while id_ in self._wanted and not self.silent:
            request = self._wanted[id_]
            took_ns = round((trio.current_time() - began_s) * 1e9)
            if took_ns >= request.at_least_ns or request.trace_wanted:
                sequence += 1
                firings = took_ns // PERIOD_NS
                report = self._report(request, sequence, told, firings, final=took_ns >= request.at_most_ns)
                told = firings
                assert self.layouts is not None
                answer = await self.layouts.report(self.name, id_, report)
                if not answer.go_on or report.final:
                    return
            await trio.sleep(request.report_ns / 1e9)

    def _report(
        self, request: MeasurementRequest, sequence: int, told: int, firings: int, *, final: bool
    ) -> MeasurementReport:
        heads = len(self.topics[request.topic].publishers) if request.topic in self.traffic else 0
        late = max(0, heads - request.target_ns // SERVICE_NS)
        new = range(told, firings) if heads else range(0)
        last_ns = heads * SERVICE_NS
        report = MeasurementReport(
            incarnation=self.incarnation,
            sequence=sequence,
            interval=[2 * at for at in new],
            count=[heads for _ in new],
            late=[late for _ in new],
            latency_ns=[heads * last_ns // 2 for _ in new],
            measured=heads * firings,
            processing_ns=last_ns,
            total_ns=last_ns,
            others_kept=not self.broken.intersection(one.topic for one in request.others),
            final=final,
        )
        return msgspec.structs.replace(report, trace=self._trace(request, firings)) if request.trace_wanted else report

    def _trace(self, request: MeasurementRequest, firings: int) -> MeasuredTrace:
        ids = self.topics[request.topic].publishers if request.topic in self.traffic else []
        heads = len(ids)
        gaps = [PERIOD_NS if at == 0 and turn else 0 for turn in range(firings) for at in range(heads)]
        return MeasuredTrace(
            publishers=ids,
            publisher=list(range(heads)) * firings,
            first_ns=1_000_000_000,
            gap_ns=gaps,
            access_ns=[0] * (heads * firings),
            processing_ns=[SERVICE_NS * (at + 1) for at in range(heads)] * firings,
        )

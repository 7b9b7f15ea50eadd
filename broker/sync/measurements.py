"""Runs the measurements that the distributor asks for, each as a task of its own.

A measurement counts once its share is in force and it is not held. It reports until it is told to stop. The promises to
other topics are checked from the beginning. A report that no leader took is sent again; a refusal ends the measurement.
A measurement ends when it is no longer named, and one that has ended does not begin again while it is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

import msgspec
import trio

from broker.sync.measurement_report import (
    NS_PER_S,
    OtherPromises,
    Record,
    Recorder,
    measured_trace,
    report,
    report_of_others,
)
from srtm.control import MeasurementAnswer, MeasurementReport, MeasurementRequest
from srtm.errors import PeerError
from srtm.log import Log
from srtm.net.decode_errors import UNREADABLE
from srtm.net.failover import Distributors

_MIN_PERIOD_NS = 10_000_000  # between two reports


class _Requested:
    """One measurement: its latest request, and the task that runs it."""

    def __init__(self, request: MeasurementRequest) -> None:
        self.request = request
        self.scope = trio.CancelScope()
        self.started = False
        self.stop = trio.Event()  # the trace is wanted
        self.update(request)

    def update(self, request: MeasurementRequest) -> None:
        self.request = request
        if request.trace_wanted:
            self.stop.set()


class Measurements:
    """``applied`` returns {topic: version of the share in force}. ``distributors`` makes connections for one
    measurement."""

    def __init__(
        self,
        name: str,
        incarnation: str,
        lab_service_time_ns: int,
        applied: Callable[[], Mapping[str, int]],
        record: Record,
        distributors: Callable[[], Distributors],
        log: Log,
    ) -> None:
        self._name = name
        self._incarnation = incarnation
        self._lab_service_time_ns = lab_service_time_ns
        self._applied = applied
        self._record = record
        self._distributors = distributors
        self._log = log
        self._requested: dict[str, _Requested] = {}
        self._changed = trio.Event()

    def want(self, requests: Sequence[MeasurementRequest]) -> None:
        """Run these measurements, and no others. Called after every answer to a sync."""
        named = {request.id: request for request in requests}
        for gone in self._requested.keys() - named.keys():
            self._requested.pop(gone).scope.cancel()
        for id_, request in named.items():
            if id_ in self._requested:
                self._requested[id_].update(request)
            else:
                self._requested[id_] = _Requested(request)
        self._changed.set()
        self._changed = trio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                for requested in self._requested.values():
                    if not requested.started:
                        requested.started = True
                        nursery.start_soon(self._run_one, requested)
                await self._changed.wait()

    async def _run_one(self, requested: _Requested) -> None:
        distributors = self._distributors()
        try:
            with requested.scope:
                id_, lab_ns = requested.request.id, self._lab_service_time_ns
                reporter = _Reporter(id_, self._name, self._incarnation, lab_ns, distributors)
                others = OtherPromises(self._record, _now_ns())
                await self._await_turn(requested, others, reporter)
                await self._measure(requested, others, reporter)
        except PeerError as error:
            self._log.warning("a measurement ends", measurement=requested.request.id, reason=error)
        finally:
            await distributors.aclose()

    async def _await_turn(self, requested: _Requested, others: OtherPromises, reporter: _Reporter) -> None:
        """Wait until the measurement is not held, its share is in force, and its buckets had time to fill. Raises
        PeerError."""
        begins_ns = math.inf
        while True:
            request = requested.request
            if begins_ns == math.inf and self._may_begin(request):
                begins_ns = _now_ns() + max(0, request.after_ns)
            if _now_ns() >= begins_ns:
                return
            check_ns = _now_ns() + _period_ns(request) if request.others else math.inf
            with trio.move_on_at(min(begins_ns, check_ns) / NS_PER_S):
                await self._changed.wait()
            if request.others and others.check(request.others, _now_ns()):
                answer = await reporter.report_others(others)
                if not answer.go_on:
                    requested.scope.cancel()

    def _may_begin(self, request: MeasurementRequest) -> bool:
        return not request.held and self._applied().get(request.topic, 0) >= request.share_version

    async def _measure(self, requested: _Requested, others: OtherPromises, reporter: _Reporter) -> None:
        """Raises PeerError: the measurement is not possible here, or the leader refuses a report."""
        request = requested.request
        recorder, began_ns = self._begin(request), _now_ns()
        next_ns = began_ns
        while True:
            next_ns = min(max(next_ns + _period_ns(request), _now_ns()), max(began_ns + request.at_most_ns, _now_ns()))
            await _wait_until(next_ns, requested.stop)
            took_ns = _now_ns() - began_ns
            stop, final = requested.stop.is_set(), took_ns >= request.at_most_ns
            recorder.advance()
            others.check(requested.request.others, _now_ns())
            if not (stop or final or took_ns >= request.at_least_ns or not others.kept):
                continue
            answer = await reporter.report(request, recorder, others, final=final, stop=stop)
            if stop or not answer.go_on:
                return
            if answer.trace_wanted:
                requested.stop.set()
            elif final:
                await requested.stop.wait()

    def _begin(self, request: MeasurementRequest) -> Recorder:
        try:
            return self._record(request.topic, request.target_ns)
        except (ValueError, OverflowError) as error:
            raise PeerError(f"measurement {request.id}: {error}") from None


@dataclass
class _Reporter:
    """Numbers the reports of one measurement, and sends them to the leader."""

    id: str
    broker: str
    incarnation: str
    lab_service_time_ns: int
    distributors: Distributors
    sequence: int = 0

    async def report_others(self, others: OtherPromises) -> MeasurementAnswer:
        """Raises PeerError, as ``report``."""
        self.sequence += 1
        message = report_of_others(others, self.incarnation, self.sequence, self.lab_service_time_ns)
        return await self._post(msgspec.json.encode(message))

    async def report(
        self, request: MeasurementRequest, recorder: Recorder, others: OtherPromises, *, final: bool, stop: bool
    ) -> MeasurementAnswer:
        """Send a report; with ``stop``, also the trace. A trace of a million messages takes a second to encode.
        Raises PeerError."""
        self.sequence += 1
        lab_ns, last = self.lab_service_time_ns, final or stop
        message = report(request, recorder, others, self.incarnation, self.sequence, lab_ns, final=final, last=last)
        if stop:
            return await self._post(await trio.to_thread.run_sync(partial(_with_trace, message, recorder)))
        return await self._post(msgspec.json.encode(message))

    async def _post(self, body: bytes) -> MeasurementAnswer:
        target = f"/v1/brokers/{self.broker}/measurements/{quote(self.id, safe='')}"
        answer = await self.distributors.post(f"measurement {self.id}", target, body)
        try:
            return msgspec.json.decode(answer, type=MeasurementAnswer)
        except UNREADABLE as error:
            raise PeerError(f"{self.distributors.first.base_url}: answer to a measurement: {error}") from None


def _with_trace(message: MeasurementReport, traced: Recorder) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(message, trace=measured_trace(traced)))


def _period_ns(request: MeasurementRequest) -> int:
    return max(request.report_ns, _MIN_PERIOD_NS)


async def _wait_until(at_ns: int, stop: trio.Event) -> None:
    """Returns at ``at_ns``, or once ``stop`` is set."""
    with trio.move_on_at(at_ns / NS_PER_S):
        await stop.wait()


def _now_ns() -> int:
    """By trio's clock, which a test can stop."""
    return round(trio.current_time() * NS_PER_S)

"""The conversation about measurements: each that the distributor wants runs as a task of its own, counts as soon as
its share is in force and it may, and reports until it is told to stop (docs/architecture.md, "A fitting"). The promises
to the topics that are there are watched from its beginning.

A report that no leader has taken is sent again, as it is; one that is refused ends its measurement. One that has ended
is not begun again while it is still named, and one that is no longer named ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

import msgspec
import trio

from broker.sync.measurement_report import NS_PER_S, Others, Record, Recorder, measured_trace, report, report_of_others
from srtm.control import MeasurementAnswer, MeasurementReport, MeasurementRequest
from srtm.errors import PeerError
from srtm.log import Log
from srtm.net.decode_errors import UNREADABLE
from srtm.net.failover import Distributors

_SHORTEST_NS = 10_000_000  # between two reports, whatever is asked for


class _Wanted:
    """One measurement: as asked for last, and the task that runs it."""

    def __init__(self, request: MeasurementRequest) -> None:
        self.request = request
        self.scope = trio.CancelScope()
        self.started = False
        self.stop = trio.Event()  # enough: the trace is wanted
        self.update(request)

    def update(self, request: MeasurementRequest) -> None:
        self.request = request
        if request.trace_wanted:
            self.stop.set()


class Measurements:
    """``applied``: {topic: version of the share in force}. ``distributors``: connections of its own for each."""

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
        self._wanted: dict[str, _Wanted] = {}
        self._changed = trio.Event()

    def want(self, requests: Sequence[MeasurementRequest]) -> None:
        """Every measurement that shall run, after every answer to a sync."""
        named = {request.id: request for request in requests}
        for gone in self._wanted.keys() - named.keys():
            self._wanted.pop(gone).scope.cancel()
        for id_, request in named.items():
            if id_ in self._wanted:
                self._wanted[id_].update(request)
            else:
                self._wanted[id_] = _Wanted(request)
        self._changed.set()
        self._changed = trio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                for wanted in self._wanted.values():
                    if not wanted.started:
                        wanted.started = True
                        nursery.start_soon(self._run_one, wanted)
                await self._changed.wait()

    async def _run_one(self, wanted: _Wanted) -> None:
        distributors = self._distributors()
        try:
            with wanted.scope:
                id_, lab_ns = wanted.request.id, self._lab_service_time_ns
                teller = _Teller(id_, self._name, self._incarnation, lab_ns, distributors)
                others = Others(self._record, _now_ns())
                await self._await_turn(wanted, others, teller)
                await self._measure(wanted, others, teller)
        except PeerError as error:
            self._log.warning("a measurement ends", measurement=wanted.request.id, reason=error)
        finally:
            await distributors.aclose()

    async def _await_turn(self, wanted: _Wanted, others: Others, teller: _Teller) -> None:
        """Until it is held no longer, its share is in force, and its buckets had their time. Raises PeerError."""
        begins_ns = math.inf
        while True:
            request = wanted.request
            if begins_ns == math.inf and self._may_begin(request):
                begins_ns = _now_ns() + max(0, request.after_ns)
            if _now_ns() >= begins_ns:
                return
            looks_ns = _now_ns() + _period_ns(request) if request.others else math.inf
            with trio.move_on_at(min(begins_ns, looks_ns) / NS_PER_S):
                await self._changed.wait()
            if request.others and others.look(request.others, _now_ns()):
                answer = await teller.tell_of_others(others)
                if not answer.go_on:
                    wanted.scope.cancel()

    def _may_begin(self, request: MeasurementRequest) -> bool:
        return not request.held and self._applied().get(request.topic, 0) >= request.share_version

    async def _measure(self, wanted: _Wanted, others: Others, teller: _Teller) -> None:
        """Raises PeerError: what is asked for cannot be, or the leader refuses a report."""
        request = wanted.request
        recorder, began_ns = self._begin(request), _now_ns()
        next_ns = began_ns
        while True:
            next_ns = min(max(next_ns + _period_ns(request), _now_ns()), max(began_ns + request.at_most_ns, _now_ns()))
            await _wait_until(next_ns, wanted.stop)
            took_ns = _now_ns() - began_ns
            stop, final = wanted.stop.is_set(), took_ns >= request.at_most_ns
            recorder.advance()
            others.look(wanted.request.others, _now_ns())
            if not (stop or final or took_ns >= request.at_least_ns or not others.kept):
                continue
            answer = await teller.tell(request, recorder, others, final=final, stop=stop)
            if stop or not answer.go_on:
                return
            if answer.trace_wanted:
                wanted.stop.set()
            elif final:
                await wanted.stop.wait()

    def _begin(self, request: MeasurementRequest) -> Recorder:
        try:
            return self._record(request.topic, request.target_ns)
        except (ValueError, OverflowError) as error:
            raise PeerError(f"measurement {request.id}: {error}") from None


@dataclass
class _Teller:
    """Numbers the reports of one measurement, and brings them to whoever leads."""

    id: str
    broker: str
    incarnation: str
    lab_service_time_ns: int
    distributors: Distributors
    sequence: int = 0

    async def tell_of_others(self, others: Others) -> MeasurementAnswer:
        """Raises PeerError, as ``tell``."""
        self.sequence += 1
        said = report_of_others(others, self.incarnation, self.sequence, self.lab_service_time_ns)
        return await self._post(msgspec.json.encode(said))

    async def tell(
        self, request: MeasurementRequest, recorder: Recorder, others: Others, *, final: bool, stop: bool
    ) -> MeasurementAnswer:
        """``stop``: with the trace. One of a million messages takes a second to put together."""
        self.sequence += 1
        lab_ns, last = self.lab_service_time_ns, final or stop
        said = report(request, recorder, others, self.incarnation, self.sequence, lab_ns, final=final, last=last)
        if stop:
            return await self._post(await trio.to_thread.run_sync(partial(_with_trace, said, recorder)))
        return await self._post(msgspec.json.encode(said))

    async def _post(self, body: bytes) -> MeasurementAnswer:
        target = f"/v1/brokers/{self.broker}/measurements/{quote(self.id, safe='')}"
        answer = await self.distributors.post(f"measurement {self.id}", target, body)
        try:
            return msgspec.json.decode(answer, type=MeasurementAnswer)
        except UNREADABLE as error:
            raise PeerError(f"{self.distributors.first.base_url}: answer to a measurement: {error}") from None


def _with_trace(said: MeasurementReport, traced: Recorder) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(said, trace=measured_trace(traced)))


def _period_ns(request: MeasurementRequest) -> int:
    return max(request.report_ns, _SHORTEST_NS)


async def _wait_until(at_ns: int, stop: trio.Event) -> None:
    """Or until ``stop``."""
    with trio.move_on_at(at_ns / NS_PER_S):
        await stop.wait()


def _now_ns() -> int:
    """Trio's clock: a test holds it still."""
    return round(trio.current_time() * NS_PER_S)

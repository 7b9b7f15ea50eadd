"""The conversation about measurements: each that the distributor wants runs as a task of its own, counts as soon as
its share is in force and it may, and reports until it is told to stop (docs/architecture.md, "A fitting").

A report that no leader has taken is sent again, as it is; one that is refused ends its measurement. One that has ended
is not begun again while it is still named, and one that is no longer named ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from urllib.parse import quote

import msgspec
import trio

from broker.measured import NS_PER_S, Others, Record, Recorder, measured_trace, report
from srtm.control import MeasurementAnswer, MeasurementReport, MeasurementRequest
from srtm.distributors import Distributors
from srtm.errors import PeerError
from srtm.log import Log
from srtm.unreadable import UNREADABLE

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
                await self._measure(wanted, distributors)
        except PeerError as error:
            self._log.warning("a measurement ends", measurement=wanted.request.id, reason=error)
        finally:
            await distributors.aclose()

    async def _measure(self, wanted: _Wanted, distributors: Distributors) -> None:
        """Raises PeerError: what is asked for cannot be, or the leader refuses a report."""
        request = wanted.request
        while self._applied().get(request.topic, 0) < request.share_version:
            await self._changed.wait()
        await trio.sleep(max(0, request.after_ns) / NS_PER_S)
        recorder, began_ns = self._begin(request), _now_ns()
        others, sequence = Others(self._record, began_ns), 0
        period_ns = max(request.report_ns, _SHORTEST_NS)
        next_ns = began_ns
        while True:
            next_ns = min(max(next_ns + period_ns, _now_ns()), max(began_ns + request.at_most_ns, _now_ns()))
            await _wait_until(next_ns, wanted.stop)
            took_ns = _now_ns() - began_ns
            stop, final = wanted.stop.is_set(), took_ns >= request.at_most_ns
            recorder.advance()
            others.look(wanted.request.others, _now_ns())
            if not (stop or final or took_ns >= request.at_least_ns or not others.kept):
                continue
            sequence += 1
            lab_ns, last = self._lab_service_time_ns, final or stop
            said = report(request, recorder, others, self._incarnation, sequence, lab_ns, final=final, last=last)
            answer = await self._post(request.id, said, recorder if stop else None, distributors)
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

    async def _post(
        self, id_: str, said: MeasurementReport, traced: Recorder | None, distributors: Distributors
    ) -> MeasurementAnswer:
        """``traced``: whose trace goes with it. A trace of a million messages takes a second to put together."""
        body = msgspec.json.encode(said)
        if traced is not None:
            body = await trio.to_thread.run_sync(partial(_with_trace, said, traced))
        target = f"/v1/brokers/{self._name}/measurements/{quote(id_, safe='')}"
        answer = await distributors.post(f"measurement {id_}", target, body)
        try:
            return msgspec.json.decode(answer, type=MeasurementAnswer)
        except UNREADABLE as error:
            raise PeerError(f"{distributors.first.base_url}: answer to a measurement: {error}") from None


def _with_trace(said: MeasurementReport, traced: Recorder) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(said, trace=measured_trace(traced)))


async def _wait_until(at_ns: int, stop: trio.Event) -> None:
    """Or until ``stop``."""
    with trio.move_on_at(at_ns / NS_PER_S):
        await stop.wait()


def _now_ns() -> int:
    """Trio's clock: a test holds it still."""
    return round(trio.current_time() * NS_PER_S)

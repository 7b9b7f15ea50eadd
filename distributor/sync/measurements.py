"""The measurements that brokers are asked for, and what comes of them: level-triggered requests down, reports up.

A request is named in every answer to a sync until it is stopped. Each report is checked (``measured``) and handed on
as an event of the fitting that asked; one that comes twice counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec
import trio

from distributor.fitting.events import Event, Recorded
from distributor.sync import measurement_messages as measured
from srtm.control import MeasuredTrace, MeasurementAnswer, MeasurementReport, MeasurementRequest
from srtm.errors import BadInput

_FORGET = MeasurementAnswer(go_on=False)


@dataclass
class _Measurement:
    request: MeasurementRequest
    round: int
    incarnation: str  # of the broker
    positions: Mapping[str, int]  # {publisher id: index in the topic's columns}
    tell: Callable[[Event], None]
    heard_s: float  # trio time of its last report, or of its beginning
    sequence: int = 0


class Measuring:
    """``stir`` wakes the answer that a broker waits for."""

    def __init__(self, stir: Callable[[str], None]) -> None:
        self._stir = stir
        self._running: dict[tuple[str, str], _Measurement] = {}  # {(broker, id): ...}

    def begin(
        self,
        broker: str,
        incarnation: str,
        request: MeasurementRequest,
        round_: int,
        positions: Mapping[str, int],
        tell: Callable[[Event], None],
    ) -> None:
        self._running[broker, request.id] = _Measurement(
            request, round_, incarnation, positions, tell, trio.current_time()
        )
        self._stir(broker)

    def stop(self, broker: str, id_: str, *, trace_wanted: bool) -> None:
        """Without a trace it is over; else once that has come."""
        running = self._running.get((broker, id_))
        if running is None:
            return
        if trace_wanted:
            running.request = msgspec.structs.replace(running.request, trace_wanted=True)
        else:
            del self._running[broker, id_]
        self._stir(broker)

    def stop_all(self, prefix: str, broker: str | None = None) -> None:
        """Those whose ids begin with ``prefix``, on ``broker`` or on all."""
        for name, id_ in [key for key in self._running if key[1].startswith(prefix)]:
            if broker in (None, name):
                self.stop(name, id_, trace_wanted=False)

    def requests(self, broker: str) -> list[MeasurementRequest]:
        return [one.request for (name, _), one in self._running.items() if name == broker]

    def silent_s(self, broker: str, id_: str) -> float | None:
        """For how long it has said nothing; None: it is over."""
        running = self._running.get((broker, id_))
        return None if running is None else trio.current_time() - running.heard_s

    def incarnation(self, broker: str, id_: str) -> str | None:
        """Of the broker that was asked; None: it is over."""
        running = self._running.get((broker, id_))
        return None if running is None else running.incarnation

    async def report(self, broker: str, id_: str, report: MeasurementReport) -> MeasurementAnswer:
        """Raises BadInput."""
        running = self._running.get((broker, id_))
        if running is None or report.incarnation != running.incarnation:
            return _FORGET
        if report.sequence < 1:
            raise BadInput("sequence", report.sequence, "must count from 1")
        if report.sequence > running.sequence:
            if running.request.trace_wanted and report.trace is not None:
                return await self._recorded(broker, id_, running, report.trace, report.lab_service_time_ns)
            running.tell(measured.progress(broker, running.round, report))
            running.sequence, running.heard_s = report.sequence, trio.current_time()
        return MeasurementAnswer(go_on=True, trace_wanted=running.request.trace_wanted)

    async def _recorded(
        self, broker: str, id_: str, running: _Measurement, sent: MeasuredTrace, lab_service_time_ns: int
    ) -> MeasurementAnswer:
        read = partial(measured.trace, sent, running.positions, lab_service_time_ns)
        trace = await trio.to_thread.run_sync(read)  # of a million messages
        if self._running.pop((broker, id_), None) is running:
            running.tell(Recorded(broker=broker, round=running.round, trace=trace))
        self._stir(broker)
        return _FORGET

"""The measurements that brokers are to run, and their reports.

A measurement is named in every answer to a sync until it is stopped. Its reports are checked
(``messages``) and passed on as events of the fitting that asked; a report that arrives twice counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec
import trio

from distributor.fitting.events import Event, Recorded
from distributor.measuring import messages
from srtm.control import MeasuredTrace, MeasurementAnswer, MeasurementReport, MeasurementRequest
from srtm.errors import BadInput

_STOP = MeasurementAnswer(go_on=False)


@dataclass
class _Measurement:
    request: MeasurementRequest
    round: int
    incarnation: str  # of the broker
    positions: Mapping[str, int]  # {publisher id: index in the topic's columns}
    tell: Callable[[Event], None]
    reported_s: float  # trio time of its latest report, or of its beginning
    sequence: int = 0


class Measurements:
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
        """End the measurement: at once, or once its trace has arrived."""
        measurement = self._running.get((broker, id_))
        if measurement is None:
            return
        if trace_wanted:
            measurement.request = msgspec.structs.replace(measurement.request, trace_wanted=True)
        else:
            del self._running[broker, id_]
        self._stir(broker)

    def stop_all(self, prefix: str, broker: str | None = None) -> None:
        """Stop the measurements whose ids begin with ``prefix``, on ``broker`` or (None) on all brokers."""
        for name, id_ in [key for key in self._running if key[1].startswith(prefix)]:
            if broker in (None, name):
                self.stop(name, id_, trace_wanted=False)

    def requests(self, broker: str) -> list[MeasurementRequest]:
        return [measurement.request for (name, _), measurement in self._running.items() if name == broker]

    def silent_s(self, broker: str, id_: str) -> float | None:
        """Time since the latest report; None: the measurement is over."""
        measurement = self._running.get((broker, id_))
        return None if measurement is None else trio.current_time() - measurement.reported_s

    def incarnation(self, broker: str, id_: str) -> str | None:
        """The incarnation of the broker that was asked; None: the measurement is over."""
        measurement = self._running.get((broker, id_))
        return None if measurement is None else measurement.incarnation

    async def report(self, broker: str, id_: str, report: MeasurementReport) -> MeasurementAnswer:
        """Take a report. Raises BadInput."""
        measurement = self._running.get((broker, id_))
        if measurement is None or report.incarnation != measurement.incarnation:
            return _STOP
        if report.sequence < 1:
            raise BadInput("sequence", report.sequence, "must count from 1")
        if report.sequence > measurement.sequence:
            if measurement.request.trace_wanted and report.trace is not None:
                return await self._take_trace(broker, id_, measurement, report.trace, report.lab_service_time_ns)
            measurement.tell(messages.progress(broker, measurement.round, report))
            measurement.sequence, measurement.reported_s = report.sequence, trio.current_time()
        return MeasurementAnswer(go_on=True, trace_wanted=measurement.request.trace_wanted)

    async def _take_trace(
        self, broker: str, id_: str, measurement: _Measurement, sent: MeasuredTrace, lab_service_time_ns: int
    ) -> MeasurementAnswer:
        read = partial(messages.trace, sent, measurement.positions, lab_service_time_ns)
        trace = await trio.to_thread.run_sync(read)  # takes long: a trace may have a million messages
        if self._running.pop((broker, id_), None) is measurement:
            measurement.tell(Recorded(broker=broker, round=measurement.round, trace=trace))
        self._stir(broker)
        return _STOP

"""One topic under its mode: takes in bins, says at which time which shares are to be proposed. Pure: time is told."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from adaptor.observations import BIN_S, Bin, Change, Envelope, Member, Shares
from adaptor.policies.central import central
from adaptor.policies.fitted import HEARING_S, Fitted
from adaptor.policies.proportional import proportional
from srtm.topics.adaptation import LONGEST_S, Adaptation, Mode

_PAUSE_S = 0.2  # between two splits of fitted: brokers report one by one, and every change of shares is told to all
_REFUSED_S = 1.0  # until a proposal that was refused is made again


class Policy:
    """Bins go in once each, in order (``observe``); ``propose`` may be asked at any time."""

    def __init__(self, mode: Mode, settings: Adaptation) -> None:
        self.mode = mode
        self.settings = settings
        self._fitted = Fitted()
        self._bins: dict[str, deque[Bin]] = {}
        self._next_s: float | None = None  # when it may propose again
        self.due_s: float | None = None  # when it is to be asked again, at the latest
        self._asked_s: dict[str, float] = {}  # {broker: when shares were first asked for, others being heard}

    def observe(self, name: str, bins: Sequence[Bin], dispersion: float = 1.0) -> None:
        """Of broker ``name``. ``dispersion``: as declared."""
        if self.mode == "fitted":
            self._fitted.observe(name, bins, dispersion)
            return
        most = max(1, round(min(self.settings.window_s, LONGEST_S) / BIN_S))
        self._bins.setdefault(name, deque(maxlen=most)).extend(bins)

    def note_change(self, name: str, change: Change) -> None:
        """The rate on broker ``name`` has changed, as the engine told: that is answered without a pause."""
        if self.mode == "fitted":
            self._fitted.note_change(name, change)
            self._next_s = None

    def disconnected(self) -> None:
        """Nobody could be heard for a while: who was not heard yet is waited for anew."""
        self._asked_s.clear()

    def forget(self, name: str) -> None:
        """Broker ``name``: it has no part any more, or what is known of it is too old."""
        self._fitted.forget(name)
        self._bins.pop(name, None)
        self._asked_s.pop(name, None)

    def note_answer(self, at_s: float, *, taken: bool) -> None:
        """To what was proposed last. Refused, it is made again after a while."""
        if not taken and self.mode == "fitted":
            self._next_s = self.due_s = at_s + _REFUSED_S

    def rate(self, name: str) -> float:
        """Msg/s that arrive on broker ``name``, as known now."""
        if self.mode == "fitted":
            return self._fitted.rate(name)
        bins = self._bins.get(name, ())
        return sum(one.arrivals for one in bins) / (BIN_S * max(1, len(bins)))

    def propose(self, at_s: float, envelope: Envelope, members: Sequence[Member]) -> Shares | None:
        """New shares, or None while those there serve. Raises BadInput where there are fewer tokens than members."""
        match self.mode:
            case "fitted":
                return self._after_pause(at_s, envelope, members)
            case "proportional" | "central":
                return self._at_interval(at_s, envelope, members)
            case "static" | "gdrl":
                return None

    def _after_pause(self, at_s: float, envelope: Envelope, members: Sequence[Member]) -> Shares | None:
        if self._next_s is not None and at_s < self._next_s:
            self.due_s = self._next_s
            return None
        awaited_s = self._awaited_s(at_s, members)
        self.due_s, self._next_s = awaited_s, at_s + _PAUSE_S
        return self._fitted.propose(
            envelope, members, floor=self.settings.floor / len(members), is_hearing=awaited_s is not None
        )

    def _awaited_s(self, at_s: float, members: Sequence[Member]) -> float | None:
        """Until when brokers that were never heard are waited for, once any other was; None: for nobody."""
        unheard = [member.name for member in members if not self._has_reported(member.name)]
        if len(unheard) == len(members):
            return None
        until = [self._asked_s.setdefault(name, at_s) + HEARING_S for name in unheard]
        return min((until_s for until_s in until if at_s < until_s), default=None)

    def _has_reported(self, name: str) -> bool:
        return self._fitted.has_reported(name) if self.mode == "fitted" else name in self._bins

    def _at_interval(self, at_s: float, envelope: Envelope, members: Sequence[Member]) -> Shares | None:
        if self._next_s is None:
            self._next_s = at_s + self.settings.interval_s
        if at_s < self._next_s or self._awaited_s(at_s, members) is not None:
            return None
        self._next_s += self.settings.interval_s
        if self._next_s <= at_s:  # it was not asked for a while
            self._next_s = at_s + self.settings.interval_s
        seen = [replace(member, bins=list(self._bins.get(member.name, ()))) for member in members]
        window_s, floor = self.settings.window_s, self.settings.floor
        if self.mode == "central":
            return central(envelope, seen, window_s=window_s, floor=floor)
        return proportional(envelope, seen, window_s=window_s, floor=floor, dead_band=self.settings.dead_band)

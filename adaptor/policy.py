"""One topic under its mode: takes in bins, says at which time which shares are to be proposed. Pure: time is told."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from adaptor.observations import BIN_S, Bin, Change, Envelope, Member, Shares
from adaptor.policies.central import central
from adaptor.policies.change_detection import EPISODE_S, LONGEST
from adaptor.policies.fitted import HEARING_S, IDLE_BINS, Fitted
from adaptor.policies.proportional import proportional
from srtm.topics.adaptation import Adaptation, Mode

_MOST_BINS = 6000  # srtm.topics.adaptation.LONGEST_S
_SETTLING_S = 0.05  # traffic that leaves one broker comes to another, and both notice within some slots
_STANDSTILL_S = 1.0  # so long may less come, and nowhere more, before shares follow that
_SURE = 0.1  # of the sum of all rates, which has to be known to within that to say that nothing else moves
_LONGEST_PAUSE_S = 2.0  # between proposals that are refused: somebody else may be at work on the shares for a while
_PAUSE_S = 0.2  # between two splits of fitted: brokers report one by one, and every change of shares is told to all


class Policy:
    """Bins go in once each, in order (``observe``); ``propose`` may be asked at any time.

    After a change that was told (``note_change``) the other brokers are heard out for a moment: what only one side of a
    move says makes shares that are wrong, and are changed again at once. That ends as soon as the sum of all rates is
    again what it was. Where less comes and nowhere more nobody needs another share: what stands still for a moment, a
    network or a machine, goes on as it was."""

    def __init__(self, mode: Mode, settings: Adaptation) -> None:
        self.mode = mode
        self.settings = settings
        self._fitted = Fitted()
        self._bins: dict[str, deque[Bin]] = {}
        self._next_s: float | None = None  # when it may propose again
        self.due_s: float | None = None  # when it is to be asked again, at the latest
        self.is_settling = False  # until then, or until all rates add up again
        self._before: dict[str, float] = {}  # {broker: msg/s, before traffic began to move}
        self._moved_s = float("-inf")  # when that was
        self._ignored_sent: set[str] = set()  # brokers that said so since, or whose bins just had
        self._refusals = 0  # in a row
        self._asked_s: dict[str, float] = {}  # {broker: when shares were first asked for, others being heard}

    def observe(self, name: str, bins: Sequence[Bin], dispersion: float = 1.0, *, is_steady: bool = False) -> None:
        """Of broker ``name``. ``dispersion``: as declared; ``is_steady``: it says that nothing has changed in them."""
        if self.mode == "fitted":
            take = self._fitted.settle if is_steady else self._fitted.observe
            take(name, bins, dispersion)
            return
        self._bins.setdefault(name, deque(maxlen=self.most_bins)).extend(bins)

    @property
    def most_bins(self) -> int:
        """That anything it proposes rests on, of one broker."""
        if self.mode == "fitted":
            return LONGEST
        return min(_MOST_BINS, max(1, round(self.settings.window_s / BIN_S)))

    def note_change(self, name: str, change: Change, at_s: float) -> None:
        """The rate on broker ``name`` has changed, told at ``at_s``."""
        if self.mode != "fitted":
            return
        if at_s >= self._moved_s + EPISODE_S:
            self._before, self._moved_s = self._fitted.former(), at_s
            self._ignored_sent = {one for one, rate in self._before.items() if self._fitted.rate(one) != rate}
        self._ignored_sent.add(name)
        self._fitted.note_change(name, change)
        if not self.is_settling:
            self.is_settling, self.due_s = True, at_s + _SETTLING_S

    def disconnected(self) -> None:
        """Nobody could be heard for a while: who was not heard yet is waited for anew."""
        self._asked_s.clear()

    def forget(self, name: str) -> None:
        """Broker ``name``: it has no part any more, or what is known of it is too old."""
        self._fitted.forget(name)
        self._bins.pop(name, None)
        self._ignored_sent.discard(name)
        self._asked_s.pop(name, None)

    def note_answer(self, at_s: float, *, taken: bool) -> None:
        """To what was proposed last. Refused, it is made again after a pause that grows with each."""
        self._refusals = 0 if taken else self._refusals + 1
        if taken or self.mode != "fitted":
            return
        self._fitted.note_refused()
        self._next_s = at_s + min(_LONGEST_PAUSE_S, _PAUSE_S * 2 ** min(self._refusals - 1, 10))
        self.due_s = self._next_s

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
        if self.is_settling:
            if at_s < (self.due_s or at_s) and not self._is_explained(members):
                return None
            if self._stands_still(at_s):
                self.due_s = self._moved_s + _STANDSTILL_S
                return None
            self.is_settling = False
        elif self._next_s is not None and at_s < self._next_s:
            self.due_s = self._next_s
            return None
        awaited = self._awaited(at_s, members)
        self.due_s = min(awaited.values(), default=None)
        shares = self._fitted.propose(envelope, members, floor=self.settings.floor, awaited=awaited)
        if shares is not None:
            self._next_s = at_s + _PAUSE_S
        return shares

    def _stands_still(self, at_s: float) -> bool:
        """Whether less comes than before, and nowhere more, and has not for long."""
        total = self._fitted.total()
        is_less = total.rate + total.deviation < sum(self._before.values())
        has_risen = any(self._fitted.rate(name) > self._before.get(name, 0.0) for name in self._ignored_sent)
        return is_less and not has_risen and at_s < self._moved_s + _STANDSTILL_S

    def _is_explained(self, members: Sequence[Member]) -> bool:
        """Whether all that has moved was told."""
        if all(one.name in self._ignored_sent for one in members):
            return True
        total = self._fitted.total()
        return abs(total.rate - sum(self._before.values())) <= total.deviation <= _SURE * total.rate

    def _awaited(self, at_s: float, members: Sequence[Member]) -> dict[str, float]:
        """{broker that was never heard: until when it is waited for}, once any other was."""
        unheard = [member.name for member in members if not self._has_reported(member.name)]
        if len(unheard) == len(members):
            return {}
        until = {name: self._asked_s.setdefault(name, at_s) + HEARING_S for name in unheard}
        return {name: until_s for name, until_s in until.items() if at_s < until_s}

    def _has_reported(self, name: str) -> bool:
        """Whether anything was told of that broker that says what comes there (``Fitted.has_reported``)."""
        if self.mode == "fitted":
            return self._fitted.has_reported(name)
        bins = self._bins.get(name, ())
        return len(bins) >= min(self.most_bins, IDLE_BINS) or any(one.demand for one in bins)

    def _at_interval(self, at_s: float, envelope: Envelope, members: Sequence[Member]) -> Shares | None:
        if self._next_s is None:
            self._next_s = at_s + self.settings.interval_s
        if at_s < self._next_s or self._awaited(at_s, members):
            return None
        self._next_s += self.settings.interval_s
        if self._next_s <= at_s:  # it was not asked for a while
            self._next_s = at_s + self.settings.interval_s
        seen = [replace(member, bins=list(self._bins.get(member.name, ()))) for member in members]
        window_s, floor = self.settings.window_s, self.settings.floor
        if self.mode == "central":
            return central(envelope, seen, window_s=window_s, floor=floor)
        return proportional(envelope, seen, window_s=window_s, floor=floor, dead_band=self.settings.dead_band)

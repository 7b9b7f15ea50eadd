"""The layout loop of one topic: who is where. A state machine without sockets and without a clock.

It watches the verdict on the promise. Where that is broken for longer than a grace period, brokers measure the layout
in force and record what arrives. A replay explains why messages are late, and predicts what other layouts would do. The
best is taken if it is better by a margin, judged by what comes, and taken back if it is worse. ``transitions`` has the
states; ``docs/control-loop.md`` draws them.

Under ``always`` a search begins also as soon as a topic is submitted and has traffic, whatever its verdict: the paper's
step 3 by measurement (section 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distributor.fitting.events import Action, Begin, Disturbed, Done, Event, Outcome, Queue, RoundRecord, Seen
from distributor.fitting.layout_search import Search
from distributor.fitting.transitions import SEARCHING, Machine, Rules, State, Trigger

_LONGEST_REST_S = 3600.0
ALWAYS = Rules(always=True)


class LayoutLoop:
    """``handle`` every event, and carry out the actions in order. Times are of one monotonic clock."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.outcome: Outcome | None = None  # of the latest search
        self._asked = False
        self._rest_ns = self._failures = 0
        self._machine = Machine()
        self._search: Search | None = None

    def ask(self) -> None:
        """The topic was submitted or changed, and this loop is new."""
        self._asked = self.rules.always

    @property
    def state(self) -> State:
        """What it is doing."""
        return self._machine.state

    @property
    def is_asked(self) -> bool:
        """Whether a search is to begin with the first message, whatever the verdict."""
        return self._asked

    @property
    def watches(self) -> bool:
        """Whether the verdict on the promise matters now."""
        return self.state not in SEARCHING

    @property
    def rounds(self) -> Sequence[RoundRecord]:
        """What the latest search has measured so far."""
        return self._search.rounds if self._search is not None else ()

    @property
    def full(self) -> Mapping[str, float]:
        """{broker: msg/s that it keeps}, of those that broke the promise of another topic."""
        return self._search.full if self._search is not None else {}

    def handle(self, event: Event, now_ns: int) -> list[Action]:
        """What is to be done now. A search over a recording may take seconds."""
        if isinstance(event, Disturbed):
            self._machine.go(Trigger.DISTURBED, now_ns)
            return []
        if isinstance(event, Seen):
            return self._look(event, now_ns)
        if isinstance(event, Begin):
            if self.state is not State.QUEUED:
                return []
            self._search = Search(self.rules, self._machine, event, now_ns)
            return self._rested(self._search.begin(now_ns), now_ns)
        if self.state not in SEARCHING or self._search is None:
            return []
        return self._rested(self._search.handle(event, now_ns), now_ns)

    def _rested(self, actions: list[Action], now_ns: int) -> list[Action]:
        for action in actions:
            if isinstance(action, Done):
                self.rest(action.report.outcome, now_ns)
        return actions

    def rest(self, outcome: Outcome, now_ns: int) -> None:
        """The search has ended."""
        self.outcome, self._asked = outcome, False
        if outcome is Outcome.NO_TRAFFIC:  # it is searched for when messages come
            self._asked, self._rest_ns = self.rules.always, 0
        else:
            self._failures = 0 if outcome is Outcome.FITS else self._failures + 1
            times = 2 ** max(0, self._failures - 1)
            self._rest_ns = round(min(self.rules.cool_down_s * times, _LONGEST_REST_S) * 1e9)
        self._machine.go(Trigger.ENDED, now_ns)

    def _look(self, seen: Seen, now_ns: int) -> list[Action]:
        passed_ns = now_ns - self._machine.since_ns
        if self.state is State.RESTING and passed_ns >= self._rest_ns:
            self._machine.go(Trigger.RESTED, now_ns)
        is_asked = (self._asked and seen.heard) or seen.short
        is_broken = seen.promise == "broken" and seen.heard  # without messages it is the verdict since submission
        if self.state in (State.WATCHING, State.GRACE):
            if is_asked:
                return self._queue(Trigger.ASKED, now_ns)
            if self.state is State.WATCHING and is_broken:
                self._machine.go(Trigger.BROKEN, now_ns)
            elif self.state is State.GRACE and not is_broken:
                self._machine.go(Trigger.MENDED, now_ns)
            elif self.state is State.GRACE and passed_ns >= self.rules.grace_s * 1e9:
                return self._queue(Trigger.GRACE_OVER, now_ns)
        elif self.state is State.QUEUED and not is_asked and not self._asked and _is_over(seen):
            self._machine.go(Trigger.MENDED, now_ns)
        return []

    def _queue(self, trigger: Trigger, now_ns: int) -> list[Action]:
        self._machine.go(trigger, now_ns)
        return [Queue()]


def _is_over(seen: Seen) -> bool:
    """Whether nobody is late any more. Unknown, with messages, is no news."""
    return seen.promise == "kept" or not seen.heard

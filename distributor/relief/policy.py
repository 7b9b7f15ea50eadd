"""Relief of brokers that break a topic's promise by their load: the fewest publishers move, and placement settles.
Pure; time is a parameter.

A promise that is broken on a broker for longer than the grace begins an episode: a canary moves, is watched, then as
many as the model says (``sizing``), watched again. It ends when the promise is kept; it is rolled back when
another promise breaks where they went, or nothing got better. What keeps this from going round and round: one episode a
topic and a broker at a time, a budget a minute, publishers that were moved stay, brokers that took do not give and the
other way round for a while, and after a failure a pause that doubles.

Access delay is not load: the share is too small, or bursts are too large, and fewer publishers may make it worse. It is
noted, and left to the split and to fitting.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from distributor.relief.sizing import chosen, destination, rate_of, to_shed
from distributor.relief.values import Action, Note, Rules, Shift, Step, TopicView, View

MINUTE_S = 60.0
_SLIGHT = 1.1  # times the promise
_SLIGHT_TIMES = 4  # the grace
_MOST_STEPS = 4  # of an episode, after the canary
_BETTER = 0.2  # of the excess: less is no improvement
_AGAIN_S = 5.0  # between two looks at a delay that falls
_FALLING = 0.95
_LONGEST_WATCH_S = 120.0
_LONGEST_PAUSE_S = 3600.0
_LONGEST_WAIT_S = 300.0  # of an episode for budget


@dataclass
class _Episode:
    source: str
    before_ms: float  # at its last step
    kept: set[tuple[str, str]] = field(default_factory=set)  # {(topic, broker)}: promises, where publishers went to
    moved: dict[str, str] = field(default_factory=dict)  # {publisher: broker}
    steps: int = 0  # after the canary
    is_part: bool = False  # its last step was less than the model wants; an overloaded broker may show no gain yet
    since_s: float | None = None  # everybody has arrived; None: not yet
    waits_since_s: float | None = None  # for budget
    watched: tuple[float, float] | None = None  # when it was judged last, and the delay then, ms

    @property
    def brokers(self) -> set[str]:
        return {self.source, *self.moved.values()}


class Budget:
    """At most ``most`` in any minute."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._spent: deque[tuple[float, int]] = deque()

    def left(self, now_s: float) -> int:
        while self._spent and self._spent[0][0] <= now_s - MINUTE_S:
            self._spent.popleft()
        return max(0, self._most - sum(count for _, count in self._spent))

    def spend(self, count: int, now_s: float) -> None:
        self._spent.append((now_s, count))


class Relief:
    """``look`` regularly; carry out what it says in order, and tell it with ``failed`` what could not be."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.moves = dict.fromkeys(Step, 0)  # publishers, since the start
        self.relieved = self.rolled_back = 0  # episodes
        self._episodes: dict[str, _Episode] = {}  # {topic: ...}
        self._broken_since_s: dict[tuple[str, str], float] = {}  # {(topic, broker): ...}
        self._noted: set[tuple[str, str]] = set()  # of these, what is not ours to mend was told
        self._stay_until_s: dict[tuple[str, str], float] = {}  # {(topic, publisher): ...}
        self._gives_until_s: dict[str, float] = {}  # {broker: it does not take before}
        self._takes_until_s: dict[str, float] = {}
        self._pauses: dict[tuple[str, str], tuple[float, float]] = {}  # {(topic, broker): (until s, length s)}
        self._budget = Budget(rules.moves)
        self._budgets: dict[str, Budget] = {}

    def episode(self, topic: str) -> str | None:
        """What is going on, for people."""
        one = self._episodes.get(topic)
        if one is None:
            return None
        return (
            f"relieving {one.source}: {len(one.moved)} publishers moved to {', '.join(sorted(set(one.moved.values())))}"
        )

    def failed(self, topic: str, now_s: float) -> None:
        """The last shift was not carried out: the topic was changed meanwhile, or those who were to take publishers
        cannot. What was moved before stays where it is."""
        episode = self._episodes.pop(topic, None)
        if episode is not None:
            self._pause(topic, episode.source, now_s)

    def look(self, now_s: float, view: View) -> list[Action]:
        self._forget(now_s, view)
        actions: list[Action] = []
        for name, topic in view.topics.items():
            self._watch(name, topic, now_s, actions)
            if name in self._episodes and not topic.busy:
                self._go_on(name, view, now_s, actions)
            elif topic.busy and name in self._episodes:
                self._episodes[name].since_s = None
        for (name, broker), since_s in sorted(self._broken_since_s.items(), key=lambda one: one[1]):
            if now_s - since_s >= self._grace_s(view.topics[name], broker):
                self._begin(name, broker, view, now_s, actions)
        return actions

    def _forget(self, now_s: float, view: View) -> None:
        for pauses in (self._gives_until_s, self._takes_until_s):
            for broker in [broker for broker, until_s in pauses.items() if until_s <= now_s]:
                pauses.pop(broker)
        self._stay_until_s = {who: until_s for who, until_s in self._stay_until_s.items() if until_s > now_s}
        for name in self._episodes.keys() - view.topics.keys():
            self._episodes.pop(name)
        for name in self._budgets.keys() - view.topics.keys():
            self._budgets.pop(name)
        for by_topic in (self._broken_since_s, self._pauses):
            for key in [key for key in by_topic if key[0] not in view.topics]:
                by_topic.pop(key)
        self._noted = {key for key in self._noted if key[0] in view.topics}

    def _watch(self, name: str, topic: TopicView, now_s: float, actions: list[Action]) -> None:
        """Notes since when promises have been broken; and, once, what is not a matter of load."""
        for broker in {*topic.parts, *(one for known, one in self._broken_since_s if known == name)}:
            key = (name, broker)
            if not topic.is_broken(broker):
                self._broken_since_s.pop(key, None)
                self._noted.discard(key)
                continue
            since_s = self._broken_since_s.setdefault(key, now_s)
            ours = topic.is_processing(broker)
            if not ours and not topic.busy and now_s - since_s >= self.rules.grace_s and key not in self._noted:
                self._noted.add(key)
                actions.append(Note(topic=name, text=_not_ours(topic, broker)))

    def _grace_s(self, topic: TopicView, broker: str) -> float:
        """Placements are made close to the promise: what is just above it may be chance for a while."""
        slight = topic.parts[broker].promised_ms <= _SLIGHT * topic.promise_ms
        return self.rules.grace_s * (_SLIGHT_TIMES if slight else 1)

    # Episodes

    def _begin(self, name: str, broker: str, view: View, now_s: float, actions: list[Action]) -> None:
        topic = view.topics[name]
        until_s, _ = self._pauses.get((name, broker), (0.0, 0.0))
        engaged = {one for episode in self._episodes.values() for one in episode.brokers}
        if topic.busy or name in self._episodes or broker in engaged or now_s < until_s:
            return
        if broker not in view.brokers or not topic.is_processing(broker) or broker in self._takes_until_s:
            return
        episode = _Episode(source=broker, before_ms=topic.parts[broker].promised_ms)
        shift = self._step(name, episode, view, now_s, canary=True)
        if shift is None:
            self._pause(name, broker, now_s)
            actions.append(
                Note(topic=name, text=f"{broker}: {_late(topic, broker)}; no broker can take publishers off it")
            )
            return
        self._episodes[name] = episode
        actions.append(shift)

    def _go_on(self, name: str, view: View, now_s: float, actions: list[Action]) -> None:
        episode, topic = self._episodes[name], view.topics[name]
        gone = [one for one, broker in episode.moved.items() if topic.placement.broker_of(one) != broker]
        if gone or not episode.brokers <= view.brokers.keys():
            self._pause(name, episode.source, now_s)  # others have placed it anew
            self._episodes.pop(name)
            return
        if episode.since_s is None:
            episode.since_s = now_s
        if now_s - episode.since_s < self.rules.observe_s:
            return
        if (harmed := self._harmed(episode, view)) is not None:
            self._roll_back(name, now_s, actions, f"the promise of {harmed} was broken")
        elif not topic.is_broken(episode.source):
            self._end(name, topic, now_s, actions)
        elif episode.steps and self._is_falling(episode, topic, now_s):
            pass  # a queue drains: too early to say
        elif episode.steps and not episode.is_part and not self._is_better(episode, topic):
            self._roll_back(name, now_s, actions, f"it did not help: {_late(topic, episode.source)}")
        elif episode.steps == _MOST_STEPS:
            self._end(name, topic, now_s, actions)
        else:
            self._more(name, episode, view, now_s, actions)

    def _more(self, name: str, episode: _Episode, view: View, now_s: float, actions: list[Action]) -> None:
        topic = view.topics[name]
        if not self._left(name, now_s):
            episode.waits_since_s = episode.waits_since_s or now_s
            if now_s - episode.waits_since_s < _LONGEST_WAIT_S:
                return
        shift = self._step(name, episode, view, now_s, canary=False)
        if shift is not None:
            actions.append(shift)
        elif episode.steps and self._is_better(episode, topic):  # and nobody can take more
            self._end(name, topic, now_s, actions)
        else:
            self._roll_back(name, now_s, actions, "no broker can take the rest")

    def _step(self, name: str, episode: _Episode, view: View, now_s: float, *, canary: bool) -> Shift | None:
        """The next publishers to move, and where to; None: nobody can take any."""
        topic, source = view.topics[name], episode.source
        stays = {publisher for known, publisher in self._stay_until_s if known == name}
        barred = set(self._gives_until_s)
        for other, one in self._episodes.items():
            barred |= one.brokers if other != name else set()
        wanted, most = to_shed(view, topic, source), self._left(name, now_s)
        for part in (1.0, 0.5, 0.25, 0.1):
            who = chosen(topic, source, wanted * part, stays, most)
            broker = destination(view, name, source, rate_of(topic, source, who), barred) if who else None
            if broker is None:
                continue
            episode.is_part = part < 1.0 or len(who) == most
            few = math.ceil(self.rules.canary * len(topic.placement.ids_of.get(source, ())))
            who = who[:few] if canary else who
            episode.kept |= {(one, broker) for one, other in view.topics.items() if not other.is_broken(broker)}
            return self._shift(name, topic, episode, dict.fromkeys(who, broker), now_s, canary=canary)
        return None

    def _shift(
        self, name: str, topic: TopicView, episode: _Episode, to: dict[str, str], now_s: float, *, canary: bool
    ) -> Shift:
        episode.before_ms = topic.parts[episode.source].promised_ms
        episode.moved |= to
        episode.steps += not canary
        episode.since_s = episode.waits_since_s = episode.watched = None
        step = Step.CANARY if canary else Step.REST
        self._spend(name, step, len(to), now_s)
        for publisher in to:
            self._stay_until_s[name, publisher] = now_s + self.rules.publisher_cool_down_s
        there = ", ".join(sorted(set(to.values())))
        reason = f"{episode.source}: {_late(topic, episode.source)}; {len(to)} publishers ({step.value}) go to {there}"
        return Shift(topic=name, step=step, to=to, reason=reason)

    def _harmed(self, episode: _Episode, view: View) -> str | None:
        """Whose promise is broken where publishers have gone, and was not when they came."""
        for broker in sorted(episode.brokers - {episode.source}):
            for name, topic in view.topics.items():
                if (name, broker) in episode.kept and topic.is_broken(broker):
                    return f"topic {name} on {broker}"
        return None

    def _is_falling(self, episode: _Episode, topic: TopicView, now_s: float) -> bool:
        now_ms = topic.parts[episode.source].promised_ms
        at_s, before_ms = episode.watched or (now_s, math.inf)
        if episode.watched is None or now_s - at_s >= _AGAIN_S:
            episode.watched = (now_s, now_ms)
        elif now_s - at_s < _AGAIN_S:
            return True
        return now_ms < _FALLING * before_ms and now_s - (episode.since_s or now_s) < _LONGEST_WATCH_S

    def _is_better(self, episode: _Episode, topic: TopicView) -> bool:
        excess = episode.before_ms - topic.promise_ms
        return topic.parts[episode.source].promised_ms <= episode.before_ms - _BETTER * excess

    def _roll_back(self, name: str, now_s: float, actions: list[Action], why: str) -> None:
        episode = self._episodes.pop(name)
        self.rolled_back += 1
        self._spend(name, Step.BACK, len(episode.moved), now_s)
        self._pause(name, episode.source, now_s)
        reason = f"{episode.source}: {len(episode.moved)} publishers come back: {why}"
        actions.append(
            Shift(topic=name, step=Step.BACK, to=dict.fromkeys(episode.moved, episode.source), reason=reason)
        )

    def _end(self, name: str, topic: TopicView, now_s: float, actions: list[Action]) -> None:
        episode = self._episodes.pop(name)
        until_s = now_s + self.rules.broker_cool_down_s
        self._gives_until_s[episode.source] = until_s
        for broker in episode.brokers - {episode.source}:
            self._takes_until_s[broker] = until_s
        if topic.is_broken(episode.source):
            self._pause(name, episode.source, now_s)
            what = f"better, and no more can be done for now: {_late(topic, episode.source)}"
        else:
            self.relieved += 1
            self._pauses.pop((name, episode.source), None)
            what = f"the promise is kept again, with {len(episode.moved)} publishers less"
        actions.append(Note(topic=name, text=f"{episode.source}: {what}"))

    def _pause(self, name: str, broker: str, now_s: float) -> None:
        _, last_s = self._pauses.get((name, broker), (0.0, 0.0))
        length_s = min(max(2 * last_s, self.rules.broker_cool_down_s), _LONGEST_PAUSE_S)
        self._pauses[name, broker] = (now_s + length_s, length_s)

    def _left(self, name: str, now_s: float) -> int:
        own = self._budgets.setdefault(name, Budget(self.rules.topic_moves))
        return min(own.left(now_s), self._budget.left(now_s))

    def _spend(self, name: str, step: Step, count: int, now_s: float) -> None:
        self.moves[step] += count
        for budget in (self._budget, self._budgets.setdefault(name, Budget(self.rules.topic_moves))):
            budget.spend(count, now_s)


def _late(topic: TopicView, broker: str) -> str:
    part = topic.parts[broker]
    return (
        f"p{topic.percentile:g} {part.promised_ms:.3g} ms (promise {topic.promise_ms:g}; "
        f"access {part.access_ms:.3g}, processing {part.processing_ms:.3g})"
    )


def _not_ours(topic: TopicView, broker: str) -> str:
    return (
        f"{broker}: {_late(topic, broker)}: messages wait for tokens, which fewer publishers need not mend; "
        "another split or fewer brokers may: nobody is moved"
    )

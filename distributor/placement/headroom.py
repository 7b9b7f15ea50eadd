"""The load of every broker, topic by topic, and what the broker could process of each topic. Pure.

It is kept as topics change, so that no answer costs more for a thousand topics than for one.

A topic counts with the rate that it was observed to release on the broker. It counts with the rate that is assigned
there if the difference may be chance, or while nothing was observed. Only released messages count: what exceeds a
topic's share waits or is refused, and must take no room from others. A topic that is silent takes none either. Sums are
of whole micro-messages/s, so that they stay exact however often they change.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from distributor.model.change_log import Changes
from distributor.model.cluster import Broker, Topic
from distributor.model.leases import MICRO
from distributor.placement.share_targets import MIN_SHARE_FRACTION
from srtm.topics.capacity import Capacity, Class, class_of, effective_mcap
from srtm.topics.spec import Slo

# An observed rate counts if chance departs from the assigned one by as much in only one of exp(8) = 2,981 windows. For
# large counts that is four standard deviations.
_RARITY = 8.0
_MIN_CHANGE = 0.1  # of a topic's rate: a smaller change of the observed rate is ignored

_Asked = tuple[Slo, Class]


class Headroom:
    """``note`` every topic that has changed, ``observe`` every broker.

    ``changes``: brokers whose load or promises have changed.
    """

    def __init__(self) -> None:
        self.changes = Changes()
        self._assigned: dict[str, dict[str, int]] = {}  # {topic: {broker: micro-messages/s}}
        self._excess: dict[str, dict[str, int]] = {}  # {broker: {topic: observed less assigned, micro}}
        self._totals: Counter[str] = Counter()  # of both, by broker
        self._asked_of: dict[str, _Asked] = {}  # {topic: its promise and class}
        self._asked: dict[str, Counter[_Asked]] = {}  # {broker: of how many topics}
        self._topics_on: dict[str, dict[str, None]] = {}  # {broker: topics with publishers there}
        self._largest: dict[str, float] = {}  # {broker: rate of the largest topic that was there ever, msg/s}
        self._mcaps: dict[str, tuple[float, Sequence[Capacity], float]] = {}  # {broker: stated, measured, what follows}

    def note_change(self, old: Topic | None, new: Topic) -> None:
        """``new`` replaces ``old``. Most changes are of shares alone, and cost nothing here."""
        if old is None or old.placement is not new.placement or old.spec is not new.spec or old.removed != new.removed:
            self.note(new)

    def note(self, topic: Topic) -> None:
        """Count ``topic`` as it is placed now."""
        assigned = {} if topic.removed else topic.placement.assigned
        new = {broker: round(rate * MICRO) for broker, rate in assigned.items() if rate > 0}
        asked = (topic.spec.slo, class_of(topic.spec.publishers))
        for broker in new:
            self._largest[broker] = max(self._largest.get(broker, 0.0), topic.spec.rate)
        before, was_asked = self._assigned.get(topic.name, {}), self._asked_of.get(topic.name)
        if new == before and asked == was_asked:
            return
        for broker in before:
            self._leave(broker, topic.name, was_asked)
        for broker, micro in new.items():
            self._totals[broker] += micro
            self._asked.setdefault(broker, Counter())[asked] += 1
            self._topics_on.setdefault(broker, {})[topic.name] = None
        brokers = dict.fromkeys([*before, *new])
        for broker in brokers:
            self._totals[broker] -= self._excess.get(broker, {}).pop(topic.name, 0)  # from the assignment before
            self._mcaps.pop(broker, None)
        self.changes.note(brokers)
        if new:
            self._assigned[topic.name], self._asked_of[topic.name] = new, asked
        else:
            self._assigned.pop(topic.name, None)
            self._asked_of.pop(topic.name, None)

    def _leave(self, broker: str, topic: str, asked: _Asked | None) -> None:
        self._totals[broker] -= self._assigned[topic][broker]
        del self._topics_on[broker][topic]
        if asked is not None:
            self._asked[broker][asked] -= 1
            self._asked[broker] += Counter()  # drops those of nobody

    def observe(self, broker: str, rates: Mapping[str, float], span_s: float, topics: Mapping[str, Topic]) -> None:
        """Count what ``broker`` released on average in the last ``span_s``, by topic, msg/s; of other topics: nothing.

        ``topics``: all that are managed.
        """
        before = self._excess.get(broker, {})
        found = {}
        for name in dict.fromkeys([*rates, *self._topics_on.get(broker, ())]):
            assigned = self._assigned.get(name, {}).get(broker, 0)
            excess = round(rates.get(name, 0.0) * MICRO) - assigned
            if abs(excess) <= _noise(topics.get(name), broker, span_s) * MICRO:
                continue
            known = before.get(name, 0)
            found[name] = known if abs(excess - known) <= _MIN_CHANGE * (assigned + known) else excess
        if found == before:
            return
        self._totals[broker] += sum(found.values()) - sum(before.values())
        self._excess[broker] = found
        self.changes.note([broker])

    def forget(self, broker: str) -> None:
        """Drop what was observed of ``broker``."""
        observed = self._excess.pop(broker, {})
        self._totals[broker] -= sum(observed.values())
        if observed:
            self.changes.note([broker])

    def topics_on(self, broker: str) -> Sequence[str]:
        """Topics that have publishers on ``broker``."""
        return list(self._topics_on.get(broker, ()))

    def other_load(self, broker: str, topic: str) -> float:
        """Msg/s of all topics on ``broker`` but ``topic``."""
        own = self._assigned.get(topic, {}).get(broker, 0) + self._excess.get(broker, {}).get(topic, 0)
        return (self._totals[broker] - own) / MICRO

    def leaves_room(self, broker: str, mcap: float) -> bool:
        """Whether ``broker``, which can process ``mcap`` msg/s, could process any of its topics whole besides its load.

        Then its capacity bounds the share of no topic there.
        """
        return mcap - self._totals[broker] / MICRO >= self._largest.get(broker, 0.0)

    def mcap(self, broker: Broker, measured: Sequence[Capacity]) -> float:
        """Msg/s that ``broker`` can process under the hardest of its promises; 0: nothing is known."""
        known = self._mcaps.get(broker.name)
        if known is None or known[0] != broker.mcap or known[1] is not measured:
            found = effective_mcap(broker.mcap, measured, self._asked.get(broker.name, ()))
            known = self._mcaps[broker.name] = (broker.mcap, measured, found)
        return known[2]


def _noise(topic: Topic | None, broker: str, span_s: float) -> float:
    """Msg/s by which declared traffic may depart from its rate in the mean of ``span_s``, by Bernstein's inequality.

    Its root term alone is right for large counts only: rare messages would depart further every few minutes.
    """
    traffic = topic.placement.traffic.get(broker) if topic is not None and not topic.removed else None
    if traffic is None:
        return 0.0
    messages = math.sqrt(2 * _RARITY * traffic.dispersion * traffic.rate * span_s) + _RARITY * traffic.dispersion / 3
    return messages / span_s


def max_rate(topic: Topic, broker: str, mcap: float, other_load: float) -> float:
    """Msg/s of ``topic`` that ``broker`` can process: ``mcap`` minus ``other_load``.

    Never less than its part of the envelope by what is placed there, or than the smallest share: that is what placement
    reserved, and without the slack of r over the rates messages would wait without end.
    """
    load, assigned = topic.placement.publishers.load, topic.placement.assigned.get(broker, 0.0)
    part = max(assigned / load, MIN_SHARE_FRACTION) if load else MIN_SHARE_FRACTION
    return max(mcap - other_load, part * topic.leases.envelope.rate / MICRO)

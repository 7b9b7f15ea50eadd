"""Which version of its desired state each broker is to have, and what has changed since the one that it has.

Observed, not stored: a state that another process handed out is not known here. Its broker is told everything once.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

_STATES_KEPT = 8  # of a broker: answers that were lost, or crossed with its next request


class Differences:
    """Changes of desired states, by broker. Versions only grow."""

    def __init__(self) -> None:
        self._changed: dict[str, dict[str, int]] = {}  # {broker: {topic: version with which it changed last}}
        self._sent: dict[str, tuple[str, list[int]]] = {}  # {broker: (incarnation, states handed out, oldest first)}

    def note(self, broker: str, topics: Iterable[str], version: int) -> None:
        """``broker`` is to be told something new of ``topics`` from ``version`` on."""
        self._changed.setdefault(broker, {}).update(dict.fromkeys(topics, version))

    def hand_out(self, broker: str, incarnation: str, version: int) -> None:
        """This incarnation of ``broker`` gets the state of ``version``."""
        known, sent = self._sent.get(broker, ("", []))
        sent = sent if known == incarnation else []
        if version not in sent:
            self._sent[broker] = (incarnation, [*sent, version][-_STATES_KEPT:])

    def since(self, broker: str, incarnation: str, version: int) -> list[str] | None:
        """Topics that have changed since ``version``. None: this incarnation did not get that state."""
        known, sent = self._sent.get(broker, ("", []))
        if known != incarnation or version not in sent:
            return None
        return [topic for topic, changed in self._changed.get(broker, {}).items() if changed > version]

    def forget_topics(self, names: Iterable[str]) -> None:
        """Tell no broker of these any more. One that did not get their removal is told everything."""
        for broker, changed in self._changed.items():
            last = max((changed.pop(name, 0) for name in names), default=0)
            incarnation, sent = self._sent.get(broker, ("", []))
            self._sent[broker] = (incarnation, [version for version in sent if version >= last])

    def forget(self, broker: str) -> None:
        """Build on no state that ``broker`` got before."""
        self._changed.pop(broker, None)
        self._sent.pop(broker, None)


class DesiredVersions:
    """Versions of all brokers, and a signal for each when there is something to tell it."""

    def __init__(self) -> None:
        self.differences = Differences()
        self._versions: dict[str, int] = {}
        self._changed: dict[str, trio.Event] = {}  # {broker: set when there is something to tell it}

    def reset(self, brokers: Iterable[str], version: int) -> None:
        """Everything was read again: nothing that was told before may be built on."""
        self._versions = dict.fromkeys(brokers, version)
        self.differences = Differences()

    def version(self, broker: str, default: int) -> int:
        """``default``: for a broker that is not known here."""
        return self._versions.get(broker, default)

    def note(self, broker: str, topics: Iterable[str], version: int) -> None:
        """``broker`` is to be told something new of ``topics`` from ``version`` on."""
        self.differences.note(broker, topics, version)
        self._versions[broker] = version

    def add(self, broker: str, version: int) -> bool:
        """Begin to count for ``broker``. False: it was known."""
        is_new = broker not in self._versions
        self._versions.setdefault(broker, version)
        return is_new

    def forget(self, broker: str) -> None:
        """Stop counting for ``broker``."""
        self._versions.pop(broker, None)
        self.differences.forget(broker)

    def changed(self, broker: str) -> trio.Event:
        """Set when there is something to tell ``broker``."""
        return self._changed.setdefault(broker, trio.Event())

    def wake(self, broker: str) -> None:
        """There may be something to tell ``broker``, also what is not in its desired state: a move, a measurement."""
        self._changed.pop(broker, trio.Event()).set()

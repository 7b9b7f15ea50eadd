"""What has changed of the brokers' desired states, and since when: so that a broker need not be told everything again.
Observed, not stored: a state that another process handed out is not known here, and is replaced whole. Pure."""

from __future__ import annotations

from collections.abc import Iterable

_STATES_KEPT = 8  # of a broker: answers that were lost, or crossed with its next request


class Differences:
    """Versions are those of desired states: they only grow."""

    def __init__(self) -> None:
        self._changed: dict[str, dict[str, int]] = {}  # {broker: {topic: version with which it changed last}}
        self._told: dict[str, tuple[str, list[int]]] = {}  # {broker: (incarnation, states handed out, oldest first)}

    def note(self, broker: str, topics: Iterable[str], version: int) -> None:
        """What ``broker`` is to be told of ``topics`` is other from ``version`` on."""
        self._changed.setdefault(broker, {}).update(dict.fromkeys(topics, version))

    def hand_out(self, broker: str, incarnation: str, version: int) -> None:
        """This incarnation is told the state of ``version``."""
        known, told = self._told.get(broker, ("", []))
        told = told if known == incarnation else []
        if version not in told:
            self._told[broker] = (incarnation, [*told, version][-_STATES_KEPT:])

    def since(self, broker: str, incarnation: str, version: int) -> list[str] | None:
        """Topics that are not as in the state of ``version``. None: it was not handed out to this incarnation."""
        known, told = self._told.get(broker, ("", []))
        if known != incarnation or version not in told:
            return None
        return [topic for topic, changed in self._changed.get(broker, {}).items() if changed > version]

    def forget(self, broker: str) -> None:
        """States that it was told before are not to be built on."""
        self._changed.pop(broker, None)
        self._told.pop(broker, None)

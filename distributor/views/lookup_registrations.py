"""What nsqadmin registers at a nsqlookupd: topics and channels before a broker has them, and tombstones.

Kept in memory, as nsqlookupd does. Time is a parameter.
"""

from __future__ import annotations

TOMBSTONE_S = 45.0  # nsqlookupd's default


class LookupRegistrations:
    """Topics and channels that somebody created here, and producers that consumers should not find for a while."""

    def __init__(self) -> None:
        self._channels: dict[str, set[str]] = {}  # {topic: its channels}
        self._tombstones: dict[tuple[str, str], float] = {}  # {(topic, HOST:HTTP_PORT): when it ends, seconds}

    @property
    def topics(self) -> set[str]:
        return set(self._channels)

    def channels(self, topic: str) -> set[str]:
        return set(self._channels.get(topic, ()))

    def create(self, topic: str, channel: str | None = None) -> None:
        created = self._channels.setdefault(topic, set())
        if channel is not None:
            created.add(channel)

    def delete_topic(self, topic: str) -> None:
        self._channels.pop(topic, None)
        for key in [key for key in self._tombstones if key[0] == topic]:
            del self._tombstones[key]

    def delete_channel(self, topic: str, channel: str) -> None:
        self._channels.get(topic, set()).discard(channel)

    def tombstone(self, topic: str, node: str, now_s: float) -> None:
        """Hide ``node``, a broker's HOST:HTTP_PORT, from who looks for ``topic``."""
        self._tombstones = {key: until_s for key, until_s in self._tombstones.items() if until_s > now_s}
        self._tombstones[topic, node] = now_s + TOMBSTONE_S

    def is_tombstoned(self, topic: str, node: str, now_s: float) -> bool:
        return self._tombstones.get((topic, node), now_s) > now_s

"""What nsqadmin registers at a nsqlookupd: topics and channels before a broker has them, and tombstones.

Kept in memory, as nsqlookupd does, up to a bound. Time is a parameter.
"""

from __future__ import annotations

from srtm.errors import BadInput

TOMBSTONE_S = 45.0  # nsqlookupd's default
MOST_TOPICS = 10_000  # as many as a broker lists unless told otherwise
MOST_CHANNELS = 1_000  # of a topic; likewise
MOST_TOMBSTONES = 10_000
_LONGEST_NODE = 300  # a host name has at most 253 characters


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
        """List a topic, and a channel of it. Raises BadInput if there are too many."""
        channels = self._channels.get(topic, set()) | ({channel} if channel is not None else set())
        if topic not in self._channels and len(self._channels) >= MOST_TOPICS:
            raise BadInput("topic", topic, f"must be one of at most {MOST_TOPICS:,} that are listed: delete others")
        if len(channels) > MOST_CHANNELS:
            raise BadInput("channel", channel, f"must be one of at most {MOST_CHANNELS:,} of a topic: delete others")
        self._channels[topic] = channels

    def delete_topic(self, topic: str) -> None:
        self._channels.pop(topic, None)
        for key in [key for key in self._tombstones if key[0] == topic]:
            del self._tombstones[key]

    def delete_channel(self, topic: str, channel: str) -> None:
        self._channels.get(topic, set()).discard(channel)

    def tombstone(self, topic: str, node: str, now_s: float) -> None:
        """Hide ``node``, a broker's HOST:HTTP_PORT, from who looks for ``topic``. Raises BadInput if too many are."""
        if len(node) > _LONGEST_NODE:
            raise BadInput("node", node[:_LONGEST_NODE], f"must have at most {_LONGEST_NODE} characters")
        self._tombstones = {key: until_s for key, until_s in self._tombstones.items() if until_s > now_s}
        if len(self._tombstones) >= MOST_TOMBSTONES and (topic, node) not in self._tombstones:
            raise BadInput("node", node, f"must be one of at most {MOST_TOMBSTONES:,} within {TOMBSTONE_S:g} s")
        self._tombstones[topic, node] = now_s + TOMBSTONE_S

    def is_tombstoned(self, topic: str, node: str, now_s: float) -> bool:
        return self._tombstones.get((topic, node), now_s) > now_s

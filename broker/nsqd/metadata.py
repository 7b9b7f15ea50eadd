"""The list of topics, channels and pause flags that outlives the process, in nsqd's file and format (``nsqd.dat``,
protocol section 11), and the limits that were set by hand, in a key of our own that nsqd skips.

The file is replaced as a whole at every change. ``#ephemeral`` topics and channels are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from broker.runtime.data_directory import replace_file
from broker.snapshot import Snapshot
from srtm.net.json_file import read_json
from srtm.protocol import is_ephemeral, is_name

if TYPE_CHECKING:
    from srtm._native import Engine

FILE_NAME = "nsqd.dat"


class ChannelMetadata(msgspec.Struct, frozen=True):
    """A channel in nsqd's file."""

    name: str
    paused: bool = False


class TopicMetadata(msgspec.Struct, frozen=True):
    """A topic in nsqd's file."""

    name: str
    paused: bool = False
    channels: list[ChannelMetadata] | None = None  # nsqd writes null for none


class BucketSpec(msgspec.Struct, frozen=True):
    """A limit: ``rate`` above 0 msg/s, ``burst`` of at least 1 message."""

    rate: float
    burst: float
    reject: bool = False
    max_backlog: int = 1_000_000
    max_backlog_bytes: int = 1 << 30

    def arguments(self) -> tuple[int, int, bool, int, int]:
        """As the engine takes them: rate and burst in millionths."""
        return round(self.rate * 1e6), round(self.burst * 1e6), self.reject, self.max_backlog, self.max_backlog_bytes


class Metadata(msgspec.Struct, frozen=True):
    """The whole file. ``version`` is that of the nsqd that wrote it. ``buckets``: limits set by hand, by topic, whether
    that exists or not."""

    topics: list[TopicMetadata] | None = []  # nsqd writes null for none
    version: str = "1.3.0"
    buckets: dict[str, BucketSpec] | msgspec.UnsetType = msgspec.UNSET


def from_snapshot(snapshot: Snapshot, version: str, buckets: Mapping[str, BucketSpec]) -> Metadata:
    """The list of every topic and channel that is not ``#ephemeral``, and all ``buckets``."""
    topics = [
        TopicMetadata(
            topic.topic_name,
            topic.paused,
            [ChannelMetadata(c.channel_name, c.paused) for c in topic.channels if not is_ephemeral(c.channel_name)],
        )
        for topic in snapshot.topics
        if not is_ephemeral(topic.topic_name)
    ]
    return Metadata(topics, version, dict(buckets) if buckets else msgspec.UNSET)


def load(directory: Path) -> Metadata:
    """Read the list; an absent file is an empty list. Raises BadInput for a file that is none of nsqd's: to start
    without it would lose its topics."""
    kind: Any = Metadata | None  # nsqd reads null as an empty list
    return read_json(directory / FILE_NAME, kind, "data_path", "nsqd's list of topics in JSON") or Metadata()


def save(directory: Path, metadata: Metadata) -> None:
    replace_file(directory / FILE_NAME, msgspec.json.encode(metadata))


def restore(engine: Engine, metadata: Metadata) -> list[str]:
    """Create the topics and channels of ``metadata``. Their channels are known, so nothing is held.

    Returns invalid names, which are left out, as nsqd does.
    """
    refused = []
    for topic in metadata.topics or []:
        if not is_name(topic.name):
            refused.append(topic.name)
            continue
        engine.create_topic(topic.name)
        for channel in topic.channels or []:
            if not is_name(channel.name):
                refused.append(channel.name)
                continue
            engine.create_channel(topic.name, channel.name)
            if channel.paused:
                engine.pause_channel(topic.name, channel.name, True)
        if topic.paused:
            engine.pause_topic(topic.name, True)
        engine.release_topic(topic.name)
    return refused

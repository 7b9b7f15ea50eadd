"""What anybody may register at the distributor as at nsqlookupd is bounded."""

from __future__ import annotations

import pytest

from distributor.views.lookup_registrations import (
    MOST_CHANNELS,
    MOST_TOMBSTONES,
    MOST_TOPICS,
    TOMBSTONE_S,
    LookupRegistrations,
)
from srtm.errors import BadInput


def test_topics_are_bounded_and_a_deleted_one_makes_room() -> None:
    registered = LookupRegistrations()
    for number in range(MOST_TOPICS):
        registered.create(f"t{number}")
    with pytest.raises(BadInput, match="topic: 'more': must be one of at most 10,000"):
        registered.create("more", "c")
    assert len(registered.topics) == MOST_TOPICS
    registered.create("t0", "c")
    registered.delete_topic("t1")
    registered.create("more", "c")
    assert registered.channels("more") == {"c"}


def test_channels_of_a_topic_are_bounded() -> None:
    registered = LookupRegistrations()
    for number in range(MOST_CHANNELS):
        registered.create("t", f"c{number}")
    with pytest.raises(BadInput, match="channel: 'more': must be one of at most 1,000"):
        registered.create("t", "more")
    registered.create("t", "c0")
    registered.create("other", "more")
    assert len(registered.channels("t")) == MOST_CHANNELS


def test_tombstones_are_bounded_until_they_end() -> None:
    registered = LookupRegistrations()
    for number in range(MOST_TOMBSTONES):
        registered.tombstone("t", f"h:{number}", 0.0)
    with pytest.raises(BadInput, match="node: 'more:1': must be one of at most 10,000"):
        registered.tombstone("t", "more:1", 1.0)
    registered.tombstone("t", "h:0", 1.0)
    registered.tombstone("t", "more:1", TOMBSTONE_S + 0.5)
    assert registered.is_tombstoned("t", "more:1", TOMBSTONE_S + 0.5)
    with pytest.raises(BadInput, match="must have at most 300 characters"):
        registered.tombstone("t", "h" * 301, TOMBSTONE_S + 0.5)

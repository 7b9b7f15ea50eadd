"""Limits that were set by hand. They stay over a restart, and over the deletion of their topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.nsqd.metadata import BucketSpec

if TYPE_CHECKING:
    from srtm._native import Engine


class KeptBuckets:
    """The buckets that ``PUT /v1/topics/NAME/bucket`` has set. ``note_change``: the list on disk is no longer right."""

    def __init__(self, engine: Engine, note_change: Callable[[], None]) -> None:
        self._engine = engine
        self._note_change = note_change
        self._buckets: dict[str, BucketSpec] = {}

    @property
    def all(self) -> Mapping[str, BucketSpec]:
        return self._buckets

    def restore(self, buckets: Mapping[str, BucketSpec], is_managed: Callable[[str], bool]) -> None:
        """Put the last incarnation's buckets in force, each empty: what it had let go last is not known. A topic that
        the distributor manages by now has its share instead."""
        for name, bucket in buckets.items():
            if not is_managed(name):
                self._buckets[name] = bucket
                self._engine.keep_bucket(name, *bucket.arguments())

    def put(self, name: str, bucket: BucketSpec, *, full: bool) -> None:
        """Limit the topic; make it if it is missing. ``full``: a new bucket starts full."""
        self._engine.set_bucket(name, *bucket.arguments(), 0, full)
        self._buckets[name] = bucket
        self._note_change()

    def remove(self, name: str) -> bool:
        """Returns whether the topic had a limit."""
        self.forget(name)
        return self._engine.clear_bucket(name)

    def forget(self, name: str) -> None:
        """The distributor sets this topic's limit from now on."""
        if self._buckets.pop(name, None) is not None:
            self._note_change()

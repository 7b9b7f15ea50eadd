"""What MQTT's subscribers of a broker want of other brokers, and which topics have it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from srtm.topics.mqtt_filters import shared_name


class Interest(msgspec.Struct, frozen=True, kw_only=True):
    """``filters``: those of all subscriptions; None: all messages. ``durable``: one of them is of a session that
    outlives its connection. ``version`` grows with each change. Made by the engine (``Engine.mqtt_interest``)."""

    version: int
    filters: list[str] | None
    durable: bool

    @property
    def is_empty(self) -> bool:
        return self.filters == []


ANY_NAME = "#"


def is_wanted(wanted: Sequence[str] | None, names: Sequence[str]) -> bool:
    """Whether a message may be wanted whose name one of the filters ``names`` matches. ``wanted`` as
    ``Interest.filters``. ``ANY_NAME`` in ``names`` stands for all names, also those that begin with ``$``."""
    if wanted is None:
        return True
    if ANY_NAME in names:
        return bool(wanted)
    return any(shared_name(one, name) is not None for one in wanted for name in names)

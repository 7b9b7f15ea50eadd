"""What MQTT's subscribers of a broker want of other brokers, and which topics have it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from srtm.topics.mqtt_filters import shared_name


class Interest(msgspec.Struct, frozen=True, kw_only=True):
    """``filters``: those of all subscriptions but shared ones; None: all messages. ``groups``: shared subscriptions
    (``$share/GROUP/FILTER``) with a member that is connected. ``durable``: one of the sessions outlives its connection.
    ``version`` grows with each change. Made by the engine (``Engine.mqtt_interest``)."""

    version: int
    filters: list[str] | None
    groups: list[str]
    durable: bool


ANY_NAME = "#"


def all_filters(filters: Sequence[str] | None, groups: Sequence[str]) -> Sequence[str] | None:
    """``filters``, and those of shared subscriptions (``$share/GROUP/FILTER``)."""
    return None if filters is None else [*filters, *(group.split("/", 2)[2] for group in groups)]


def is_wanted(wanted: Sequence[str] | None, names: Sequence[str]) -> bool:
    """Whether a message may be wanted whose name one of the filters ``names`` matches. ``wanted`` as
    ``Interest.filters``. ``ANY_NAME`` in ``names`` stands for all names, also those that begin with ``$``."""
    if wanted is None:
        return True
    if ANY_NAME in names:
        return bool(wanted)
    return any(shared_name(one, name) is not None for one in wanted for name in names)

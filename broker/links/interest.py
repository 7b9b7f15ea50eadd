"""What MQTT's subscribers of a broker want of other brokers, and which topics have it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from srtm.control import LinkRequest
from srtm.topics.mqtt_filters import shared_name


class Interest(msgspec.Struct, frozen=True, kw_only=True):
    """``filters``: those of all subscriptions but shared ones; None: all messages. ``groups``: shared subscriptions
    (``$share/GROUP/FILTER``) with a member that is connected; ``kept``: others that last. ``durable``: one of the
    sessions outlives its connection. ``version`` grows with each change. Made by the engine
    (``Engine.mqtt_interest``)."""

    version: int
    filters: list[str] | None
    groups: list[str]
    kept: list[str]
    durable: bool


ANY_NAME = "#"


def wanted_of(request: LinkRequest) -> Sequence[str] | None:
    """The filters of all subscriptions, also of shared ones (``$share/GROUP/FILTER``); None: all messages."""
    if request.filters is None:
        return None
    return [*request.filters, *(group.split("/", 2)[2] for group in (*request.groups, *request.kept))]


def new_filters(before: Sequence[str] | None, after: Sequence[str] | None) -> Sequence[str] | None:
    """Those of ``after`` that ``before`` does not have."""
    if before is None or after is None:
        return after
    known = set(before)
    return [one for one in after if one not in known]


def is_wanted(wanted: Sequence[str] | None, names: Sequence[str]) -> bool:
    """Whether a message may be wanted whose name one of the filters ``names`` matches. ``wanted`` as
    ``Interest.filters``. ``ANY_NAME`` in ``names`` stands for all names, also those that begin with ``$``."""
    if wanted is None:
        return True
    if ANY_NAME in names:
        return bool(wanted)
    return any(shared_name(one, name) is not None for one in wanted for name in names)

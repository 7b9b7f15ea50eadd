"""Which of several processes that present themselves under one name is the broker. Pure."""

from __future__ import annotations

from collections.abc import Callable

from distributor.model.cluster import Broker
from srtm.errors import Conflict


def check_succession(old: Broker, new: Broker, *, in_use: Callable[[], bool]) -> None:
    """Check that ``new`` may take the place of ``old``. Raises Conflict.

    A later incarnation proves the death of an earlier one only if both need what one process alone can have: the lock
    of a data directory, or a port. ``in_use``: whether ``old`` is alive, or has publishers or tokens.
    """
    if old.dead and new.incarnation == old.incarnation:
        rule = f"this one of broker {old.name} was proven dead, and its tokens are with others: start it again"
        raise Conflict("incarnation", new.incarnation, rule)
    if new.directory != old.directory and old.dead:
        return
    if new.directory == old.directory or new.tcp_address == old.tcp_address:
        if new.incarnation < old.incarnation:
            rule = f"incarnation {old.incarnation} of broker {old.name} came later"
            raise Conflict("incarnation", new.incarnation, rule)
    elif in_use():
        rule = (
            f"another broker named {old.name} ({old.tcp_address}, incarnation {old.incarnation}) is not proven "
            "dead: choose another name, or stop that one and POST its incarnation to .../dead"
        )
        raise Conflict("incarnation", new.incarnation, rule)

"""Which broker of a name counts. Pure."""

from __future__ import annotations

from collections.abc import Callable

from distributor.model.cluster import Broker
from srtm.errors import Conflict


def check_succession(old: Broker, new: Broker, *, in_use: Callable[[], bool]) -> None:
    """``new`` presents itself where ``old`` is known; ``in_use``: whether that is heard from,
    or has publishers or tokens.

    A later incarnation proves the death of an earlier one only where both need what one process can have: the lock of a
    data directory, or a port. Raises Conflict."""
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

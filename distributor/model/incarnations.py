"""Which of several processes that present themselves under one name is the broker. Pure.

A data directory can be copied, and an address given to another machine. Neither proves that the process that had it
before has ended. A claim does (``SyncRequest.claims``): within one running kernel one process alone can hold it.
"""

from __future__ import annotations

from collections.abc import Callable

from distributor.model.cluster import Broker
from srtm.errors import Conflict


def check_succession(old: Broker, new: Broker, *, in_use: Callable[[], bool]) -> None:
    """Check that ``new`` may take the place of ``old``. Raises Conflict.

    It may if somebody has said that ``old`` ended, if ``old`` is not in use, or if ``new`` holds what ``old`` held.
    ``in_use``: whether ``old`` is alive, or has publishers or tokens.
    """
    if new.incarnation == old.incarnation:
        if old.dead:
            rule = f"this one of broker {old.name} was proven dead, and its tokens are with others: start it again"
            raise Conflict("incarnation", new.incarnation, rule)
        if old.claims and new.claims != old.claims:
            rule = f"another process is this one of broker {old.name}, on a copy of its data directory: start it again"
            raise Conflict("incarnation", new.incarnation, rule)
        return
    is_successor = _proves_end(old, new)
    is_of_one_directory = new.directory == old.directory and (is_successor or not (old.claims and new.claims))
    if _came_earlier(new, old) and (is_of_one_directory or (is_successor and not old.dead)):
        rule = f"incarnation {old.incarnation} of broker {old.name} came later"
        raise Conflict("incarnation", new.incarnation, rule)
    if not old.dead and not is_successor and in_use():
        rule = (
            f"another broker named {old.name} ({old.tcp_address}, incarnation {old.incarnation}) is not proven "
            f"dead{_of_a_copy(old, new)}: choose another name, or stop that one and say so by "
            f"`srtm brokers dead {old.name}`"
        )
        raise Conflict("incarnation", new.incarnation, rule)


def _proves_end(old: Broker, new: Broker) -> bool:
    """Whether ``new`` could not run while ``old`` does."""
    if old.claims is None:  # of an earlier version, which said no more
        return new.directory == old.directory or new.tcp_address == old.tcp_address
    return not set(old.claims).isdisjoint(new.claims or ())


def _came_earlier(one: Broker, other: Broker) -> bool:
    """Whether ``one`` began before ``other``: by the clock of the kernel under which both run, else by incarnations.

    These follow the wall clock, which may be set back, and what a data directory remembers, which may be put back.
    """
    boot, since = _since(one)
    other_boot, other_since = _since(other)
    return since < other_since if boot and boot == other_boot else one.incarnation < other.incarnation


def _since(broker: Broker) -> tuple[str, int]:
    """(boot of the kernel, ns since then); ("", 0): it does not say."""
    for claim in broker.claims or ():
        boot, _, since = claim.partition(" since ")
        if since.isdecimal():
            return boot, int(since)
    return "", 0


def _of_a_copy(old: Broker, new: Broker) -> str:
    if new.directory != old.directory:
        return ""
    return " (this one runs on a copy of its data directory, or since the host was started again)"

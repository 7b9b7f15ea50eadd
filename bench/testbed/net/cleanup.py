"""What a testbed leaves when its owner was killed: found by name, and only if that owner is gone."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench.harness.machine.host import PROC
from bench.testbed.net.names import NAMESPACES, Owner, owner_of
from bench.testbed.net.network import remove_namespace
from srtm.errors import Unavailable

_ENDS_WITHIN_S = 10.0


def remove_dead() -> list[str]:
    """Names of what was removed, of owners that live no more. Raises Unavailable."""
    owners = {owner for name in listed() if (owner := owner_of(name)) is not None}
    return [name for owner in sorted(owners, key=_age) if not owner.lives() for name in remove(owner)]


def remove(owner: Owner) -> list[str]:
    """All that is ``owner``'s: what runs in its namespaces is killed first. Raises Unavailable."""
    namespaces = [name for name in listed() if owner_of(name) == owner]
    _kill(_processes_in(namespaces))
    for name in namespaces:
        remove_namespace(name)
    return namespaces


def listed(namespaces: Path = NAMESPACES) -> list[str]:
    try:
        return sorted(entry.name for entry in namespaces.iterdir())
    except FileNotFoundError:  # no namespace was ever given a name
        return []


def _age(owner: Owner) -> tuple[int, int]:
    return owner.started, owner.pid


def _processes_in(namespaces: Sequence[str]) -> Iterator[int]:
    places = set()
    for name in namespaces:
        stat = (NAMESPACES / name).stat()
        places.add((stat.st_dev, stat.st_ino))
    for entry in PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                stat = (entry / "ns" / "net").stat()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it ended meanwhile, or is none of ours
            if (stat.st_dev, stat.st_ino) in places:
                yield int(entry.name)


def _kill(pids: Iterable[int]) -> None:
    """Returns when all have ended. Raises Unavailable."""
    for pid in set(pids) - {os.getpid()}:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            if not select.select([descriptor], [], [], _ENDS_WITHIN_S)[0]:
                raise Unavailable(f"process {pid} of a testbed did not end within {_ENDS_WITHIN_S:g} s")
        except ProcessLookupError:
            continue
        finally:
            os.close(descriptor)

"""Files that a running service reads again when it is told to (SIGHUP): certificates, lists of tokens."""

from __future__ import annotations

from collections.abc import Callable

from srtm.errors import BadInput
from srtm.log import Log


class Renewals:
    """What a service can take anew while it runs."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._takes: list[tuple[str, Callable[[], object]]] = []

    def add(self, what: str, take: Callable[[], object]) -> None:
        """Add a file. ``take`` reads it and puts it in force; if it raises BadInput, the old one must still be."""
        self._takes.append((what, take))

    def take_all(self) -> None:
        """Read everything again. What is bad is logged; the old one stays in force, and the others are still read."""
        for what, take in self._takes:
            try:
                take()
            except BadInput as error:
                self._log.failure("not taken: the old one stays in force", renewed=what, why=error)
            else:
                self._log.info("read again and in force", renewed=what)

"""What a service notes of a change that somebody made. Made by ``srtm.web.auditing``, read by ``srtm audit``."""

from __future__ import annotations

from typing import Any

import msgspec


class PublisherChange(msgspec.Struct, frozen=True):
    """One publisher as it was and is: its rate in msg/s, and what else a topic file says of it."""

    id: str
    before: dict[str, Any] | None  # null: it was not there
    after: dict[str, Any] | None  # null: it is not there any more


class PublisherChanges(msgspec.Struct, frozen=True):
    """How the publishers of a topic changed: how many, and the first of each kind."""

    added: int
    removed: int
    changed: int
    first: list[PublisherChange]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a request changed."""

    subject: str = ""  # "topic NAME", "broker NAME", "contract NAMESPACE PATTERN" and so on; "": nothing with a name
    before: Any = None  # null: it was not there
    after: Any = None  # null: it is not there any more
    publishers: PublisherChanges | None = None  # of a topic; null: they are the same


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change. ``number`` counts up without a gap."""

    number: int = 0
    at: float = 0.0  # unix time, s
    who: str  # the name of the token; "anybody": none was needed
    what: str  # method and path
    source: str  # address of the caller
    subject: str  # and the rest: as of ``Change``
    before: Any = None
    after: Any = None
    publishers: PublisherChanges | None = None

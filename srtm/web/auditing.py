"""Notes every change that comes by HTTP, before its answer goes out: who made it, from where, and what it changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import msgspec
from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from srtm.errors import SrtmError
from srtm.log import Log
from srtm.net.tokens import Tokens, who_asks
from srtm.web.audit_entry import AuditEntry, Change
from srtm.web.browser import authorization

MOST_LISTED = 1_000  # changes of one request, with an entry each

_noted: ContextVar[list[Change] | None] = ContextVar("changes", default=None)

Changes = Callable[[], Awaitable[list[Change]]]  # what a request that was served has changed


def note_change(subject: str, before: Any, after: Any) -> None:
    """Say that the present request has changed ``subject``. Without a request nothing is noted."""
    changes = _noted.get()
    if changes is not None:
        changes.append(Change(subject=subject, before=before, after=after))


class Auditing:
    """Middleware. A change whose note cannot be stored has been made all the same: the log of the service has it.

    ``begin``: called before a request is served; its result afterwards. None: the request's handler calls
    ``note_change`` for what it changes.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: Tokens | None,
        log: Log,
        store: Callable[[list[AuditEntry]], Awaitable[object]],
        begin: Callable[[Scope], Changes | None] = lambda _scope: None,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._log = log
        self._store = store
        self._begin = begin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return await self._app(scope, receive, send)
        changed = self._begin(scope)
        noted: list[Change] = []

        async def note_then_send(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 300:
                await self._note(scope, noted if changed is None else [*noted, *await changed()])
            await send(message)

        mark = _noted.set(noted)
        try:
            await self._app(scope, receive, note_then_send)
        finally:
            _noted.reset(mark)

    async def _note(self, scope: Scope, changes: list[Change]) -> None:
        if not changes:
            return
        query = scope["query_string"].decode("latin-1")
        who = who_asks(self._tokens, authorization(Request(scope)))
        what = f"{scope['method']} {scope['path']}{'?' if query else ''}{query}"
        source = ":".join(str(part) for part in scope.get("client") or ())
        entries = [
            AuditEntry(
                who=who,
                what=what,
                source=source,
                subject=change.subject,
                before=change.before,
                after=change.after,
                publishers=change.publishers,
            )
            for change in _bounded(changes)
        ]
        try:
            await self._store(entries)
        except SrtmError as error:
            said = msgspec.json.encode(entries).decode()
            self._log.failure("a change is not in the audit log", why=error, entries=said)


def _bounded(changes: list[Change]) -> list[Change]:
    """``changes``; of very many the first, and a last one that counts the others."""
    rest = len(changes) - MOST_LISTED
    if rest <= 0:
        return changes
    return [*changes[:MOST_LISTED], Change(subject=f"{rest:,} more")]

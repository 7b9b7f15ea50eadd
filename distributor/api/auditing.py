"""Notes every change that comes by HTTP in the audit log, before its answer goes out, and serves the log."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import msgspec
from fastapi import FastAPI, Query, Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from distributor.registry.registry import Registry
from distributor.storage.audit_log import KEPT, AuditEntry
from distributor.storage.topic_rows import NO_PUBLISHERS
from srtm.errors import BadInput, SrtmError
from srtm.log import Log
from srtm.web.bodies import json_answer
from srtm.web.browser import authorization

_CHANGING = ("POST", "PUT", "PATCH", "DELETE")
# What brokers and adaptors say by the second, and what changes nothing.
_NO_CHANGE = re.compile(
    r"/v1/brokers/[^/]+/(sync|history|measurements/.*)|/v1/shares|/v1/plan|/v1/topics/[^/]+/plan|/v1/topic-files"
    r"|/v1/limit-nodes/[^/]+/[^/]+"
)
_SUBJECT = re.compile(r"/v1/(topic|broker)s/([^/]+)(/.*)?")
_SESSION = "/mqtt/session"  # the query names the client, and nothing that is shown of the broker changes
_CONTRACT = re.compile(r"/v1/contracts/([^/]+)/(.+)")
ANYBODY = "anybody"  # where no token is needed


class Auditing:
    """Middleware. A change whose note cannot be stored has been made all the same: the log of the service has it."""

    def __init__(self, app: ASGIApp, registry: Registry) -> None:
        self._app = app
        self._registry = registry
        self._log = Log("distributor")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _is_change(scope["method"], scope["path"]):
            return await self._app(scope, receive, send)
        subject = _subject(scope)
        before = self._shown(subject)

        async def note_then_send(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 300:
                await self._note(scope, before)
            await send(message)

        return await self._app(scope, receive, note_then_send)

    async def _note(self, scope: Scope, before: Any) -> None:
        subject = _subject(scope)
        after = self._shown(subject)
        ends_session = scope["path"].endswith(_SESSION)
        if before == after and subject is not None and not ends_session:  # the same document again
            return
        entry = AuditEntry(
            who=self._holder(scope),
            what=f"{scope['method']} {scope['path']}{_query(scope) if ends_session else ''}",
            source=":".join(str(part) for part in scope.get("client") or ()),
            subject="" if subject is None else " ".join(subject),
            before=before,
            after=after,
        )
        try:
            await self._registry.audit.note(entry)
        except SrtmError as error:
            self._log.failure("a change is not in the audit log", why=error, entry=msgspec.json.encode(entry).decode())

    def _holder(self, scope: Scope) -> str:
        tokens = self._registry.config.tokens
        return ANYBODY if tokens is None else tokens.holder_name(authorization(Request(scope)) or "")

    def _shown(self, subject: tuple[str, str] | None) -> Any:
        """What the log says of a topic, broker or contract; None: it is not there."""
        kind, name = subject or ("", "")
        if kind == "topic":
            topic = self._registry.topics.get(name)
            if topic is None or topic.removed:
                return None
            document = dataclasses.replace(topic.spec, publishers=NO_PUBLISHERS).to_json()
            return {**document, "version": topic.version, "publishers": len(topic.spec.publishers)}
        if kind == "broker" and name in self._registry.brokers:
            broker = self._registry.brokers[name]
            return {
                "incarnation": broker.incarnation,
                "dead": broker.dead,
                "draining": name in self._registry.draining,
                "mcap": broker.mcap,
                "capacities": [msgspec.to_builtins(each) for each in self._registry.capacities.get(name, ())],
            }
        if kind == "contract":
            contracts = self._registry.contracts.by_key
            return next((each.contract.to_json() for key, each in contracts.items() if " ".join(key) == name), None)
        return None


def add_audit(app: FastAPI, registry: Registry) -> None:
    """Add the middleware and ``GET /v1/audit``."""

    @app.get("/v1/audit")
    async def audit(limit: int = Query(100), topic: str | None = None, broker: str | None = None) -> Response:
        """Who changed what, from where, and what it was before and after; newest first. At most `limit` of the latest
        10,000 changes; of one `topic` or `broker`."""
        if not 1 <= limit <= KEPT:
            raise BadInput("limit", limit, f"must be 1 to {KEPT:,}")
        if topic is not None and broker is not None:
            raise BadInput("broker", broker, "must not be given together with topic")
        subject = f"topic {topic}" if topic is not None else f"broker {broker}" if broker is not None else None
        return json_answer(await registry.audit.latest(limit, subject))

    app.add_middleware(Auditing, registry=registry)


def _is_change(method: str, path: str) -> bool:
    """Whether a request is one that the log has. nsqlookupd's routes change a list in memory alone."""
    return method in _CHANGING and path.startswith("/v1/") and _NO_CHANGE.fullmatch(path) is None


def _query(scope: Scope) -> str:
    return f"?{scope['query_string'].decode('latin-1')}"


def _subject(scope: Scope) -> tuple[str, str] | None:
    """(kind, name) of what a request is about. A topic that is created by POST is named once it is there."""
    created = scope.get("state", {}).get("created_topic")
    if created is not None:
        return "topic", str(created)
    contract = _CONTRACT.fullmatch(scope["path"])
    if contract is not None:
        return "contract", f"{contract[1]} {contract[2]}"
    match = _SUBJECT.fullmatch(scope["path"])
    return None if match is None else (match[1], match[2])

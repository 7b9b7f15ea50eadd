"""What the audit log has of requests: what they are about, before and after. And the route that serves the log."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import msgspec
import trio
from fastapi import FastAPI, Query, Response
from starlette.types import Scope

from distributor.registry.registry import Registry
from distributor.storage.audit_log import KEPT
from distributor.storage.topic_rows import NO_PUBLISHERS
from distributor.views.publisher_changes import publisher_changes
from srtm.errors import BadInput
from srtm.log import Log
from srtm.topics.publishers import Publishers
from srtm.web.audit_entry import Change
from srtm.web.auditing import Auditing, Changes
from srtm.web.bodies import json_answer

_CHANGING = ("POST", "PUT", "PATCH", "DELETE")
# What brokers and adaptors say by the second, and what changes nothing.
_NO_CHANGE = re.compile(
    r"/v1/brokers/[^/]+/(sync|history|measurements/.*)|/v1/shares|/v1/plan|/v1/topics/[^/]+/plan|/v1/(topic|contract)-files"
    r"|/v1/limit-nodes/[^/]+/[^/]+"
)
_SUBJECT = re.compile(r"/v1/(topic|broker)s/([^/]+)(/.*)?")
_SESSION = "/mqtt/session"  # the query names the client, and nothing that is shown of the broker changes
_CONTRACTS = "/v1/contracts"
_CONTRACT = re.compile(r"/v1/contracts/([^/]+)/(.+)")


class Looks:
    """Looks at what a request is about before and after it is served."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def begin(self, scope: Scope) -> Changes | None:
        """Look before a request; the result looks afterwards. None: the request's handler says what it changes."""
        if not _is_change(scope["method"], scope["path"]):
            return _nothing
        if scope["path"] == _CONTRACTS:
            return None  # its handler says which
        subject = _subject(scope)
        before, publishers = self._shown(subject), self._publishers(subject)

        async def changed() -> list[Change]:
            subject = _subject(scope)  # a topic that is created is named once it is there
            after = self._shown(subject)
            if before == after and subject is not None and not scope["path"].endswith(_SESSION):
                return []  # the same document again
            moved = None
            present = self._publishers(subject)
            if publishers is not None and present is not None and present is not publishers:
                moved = await trio.to_thread.run_sync(publisher_changes, publishers, present)
            name = "" if subject is None else " ".join(subject)
            return [Change(subject=name, before=before, after=after, publishers=moved)]

        return changed

    def _publishers(self, subject: tuple[str, str] | None) -> Publishers | None:
        """Those of a topic that is there."""
        kind, name = subject or ("", "")
        topic = self._registry.topics.get(name) if kind == "topic" else None
        return None if topic is None or topic.removed else topic.spec.publishers

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
    log, tokens = registry.audit, registry.config.tokens

    @app.get("/v1/audit")
    async def audit(limit: int = Query(100), topic: str | None = None, broker: str | None = None) -> Response:
        """Who changed what, from where, and what it was before and after; newest first. At most `limit` of the latest
        10,000 changes; of one `topic` or `broker`."""
        if not 1 <= limit <= KEPT:
            raise BadInput("limit", limit, f"must be 1 to {KEPT:,}")
        if topic is not None and broker is not None:
            raise BadInput("broker", broker, "must not be given together with topic")
        subject = f"topic {topic}" if topic is not None else f"broker {broker}" if broker is not None else None
        return json_answer(await log.latest(limit, subject))

    app.add_middleware(Auditing, tokens=tokens, log=Log("distributor"), store=log.note, begin=Looks(registry).begin)


async def _nothing() -> list[Change]:
    return []


def _is_change(method: str, path: str) -> bool:
    """Whether a request is one that the log has. nsqlookupd's routes change a list in memory alone."""
    return method in _CHANGING and path.startswith("/v1/") and _NO_CHANGE.fullmatch(path) is None


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

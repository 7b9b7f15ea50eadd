"""The routes of nsqlookupd 1.3.0, as consumers read and nsqadmin writes them.

What is written is kept in memory, as nsqlookupd does: brokers tell which topics and channels there really are.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import trio
from fastapi import FastAPI, Query, Response

from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from distributor.views import nsqlookupd as lookups
from distributor.views.lookup_registrations import LookupRegistrations
from srtm.concurrency.portions import in_portions
from srtm.errors import Conflict
from srtm.protocol import is_name

_NSQ_HEADERS = {"X-NSQ-Content-Type": "nsq; version=1.0"}
_NSQ_JSON = "application/json; charset=utf-8"

_Name = Annotated[str | None, Query()]


def add_lookup_routes(app: FastAPI, registry: Registry, syncing: SyncService) -> None:
    registered = LookupRegistrations()
    seen = lookups.Lookups(registry, syncing, registered)
    _reads(app, seen)
    _writes(app, seen, registered)


def _reads(app: FastAPI, seen: lookups.Lookups) -> None:
    @app.get("/lookup")
    async def lookup(topic: _Name = None) -> Response:
        """nsqlookupd: the brokers of a topic and its channels."""
        if not topic:
            return _refused("MISSING_ARG_TOPIC")
        found = seen.lookup(topic, trio.current_time())
        return _refused("TOPIC_NOT_FOUND", 404) if found is None else _nsq(found)

    @app.get("/topics")
    async def topics() -> Response:
        """nsqlookupd: all topics."""
        return _nsq(lookups.LookupTopics(topics=seen.topics()))

    @app.get("/channels")
    async def channels(topic: _Name = None) -> Response:
        """nsqlookupd: the channels of a topic."""
        if not topic:
            return _refused("MISSING_ARG_TOPIC")
        return _nsq(lookups.LookupChannels(channels=seen.channels(topic)))

    @app.get("/nodes")
    async def nodes() -> Response:
        """nsqlookupd: all brokers."""
        holders = await in_portions(seen.holders())
        nodes = await in_portions(seen.nodes(holders, trio.current_time()))
        return _nsq(lookups.LookupNodes(producers=nodes))

    @app.get("/info")
    async def info() -> Response:
        """nsqlookupd: its version."""
        return _nsq(lookups.LookupInfo(version=lookups.NSQD_VERSION))

    @app.get("/ping")
    async def ping() -> Response:
        """nsqlookupd: OK."""
        return Response("OK", headers=_NSQ_HEADERS, media_type="text/plain")


def _writes(app: FastAPI, seen: lookups.Lookups, registered: LookupRegistrations) -> None:
    @app.post("/topic/create")
    async def create_topic(topic: _Name = None) -> Response:
        """nsqlookupd: list a topic that no broker has yet."""
        refusal = _bad_topic(topic)
        if refusal is None and topic is not None:
            registered.create(topic)
        return refusal or _done()

    @app.post("/topic/delete")
    async def delete_topic(topic: _Name = None) -> Response:
        """nsqlookupd: forget a topic; brokers that have it keep it. 409 if the topic is managed."""
        if not topic:
            return _refused("MISSING_ARG_TOPIC")
        _refuse_managed(topic, seen)
        registered.delete_topic(topic)
        return _done()

    @app.post("/channel/create")
    async def create_channel(topic: _Name = None, channel: _Name = None) -> Response:
        """nsqlookupd: list a channel, and its topic: a broker that makes the topic makes the channel too."""
        refusal = _bad_topic(topic) or _bad_channel(channel)
        if refusal is None and topic is not None:
            registered.create(topic, channel)
        return refusal or _done()

    @app.post("/channel/delete")
    async def delete_channel(topic: _Name = None, channel: _Name = None) -> Response:
        """nsqlookupd: forget a channel; brokers that have it keep it."""
        refusal = _bad_topic(topic) or _bad_channel(channel)
        if refusal is None and topic is not None and channel is not None:
            if channel not in seen.channels(topic):
                return _refused("CHANNEL_NOT_FOUND", 404)
            registered.delete_channel(topic, channel)
        return refusal or _done()

    @app.post("/topic/tombstone")
    async def tombstone(topic: _Name = None, node: _Name = None) -> Response:
        """nsqlookupd: hide a broker (`node`: HOST:HTTP_PORT) from who looks for a topic, for 45 s. 409 if the topic is
        managed."""
        if not topic or not node:
            return _refused("MISSING_ARG_NODE" if topic else "MISSING_ARG_TOPIC")
        if not is_name(topic):
            return _refused("INVALID_ARG_TOPIC")
        _refuse_managed(topic, seen)
        registered.tombstone(topic, node, trio.current_time())
        return _done()


def _refuse_managed(topic: str, seen: lookups.Lookups) -> None:
    """Raises Conflict: every broker would be told to make a managed topic again."""
    if seen.is_managed(topic):
        raise Conflict("topic", topic, f"is managed here: remove it with `srtm topic remove {topic}`")


def _bad_topic(topic: str | None) -> Response | None:
    if not topic:
        return _refused("MISSING_ARG_TOPIC")
    return None if is_name(topic) else _refused("INVALID_ARG_TOPIC")


def _bad_channel(channel: str | None) -> Response | None:
    if not channel:
        return _refused("MISSING_ARG_CHANNEL")
    return None if is_name(channel) else _refused("INVALID_ARG_CHANNEL")


def _refused(message: str, status: int = 400) -> Response:
    return _nsq(lookups.LookupRefusal(message=message), status)


def _done() -> Response:
    return Response(b"", headers=_NSQ_HEADERS, media_type="text/plain")


def _nsq(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, _NSQ_HEADERS, _NSQ_JSON)

"""nsqd's HTTP routes (protocol section 13), with its order of checks and its refusals ``{"message": "CODE"}``. The
engine serves ``/pub``, ``/mpub`` and ``/ping``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from broker import snapshot
from broker.admin import mqtt_routes
from broker.admin.context import AdminContext
from broker.stats.mqtt_channels import with_mqtt_channels
from broker.stats.stats_json import stats_json
from broker.stats.stats_text import stats_text
from srtm.errors import BadInput
from srtm.net.http_server import BodyTooLarge, Request, Response, Router, json_response, text_response
from srtm.protocol import is_name, is_topic

_NSQ_HEADER = (("X-NSQ-Content-Type", "nsq; version=1.0"),)
_FALSE, _TRUE = ("false", "0"), ("true", "1")
_DONE = Response()


class Refused(Exception):
    """A refusal as nsqd makes it."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.response = json_response({"message": code}, status)


NsqHandler = Callable[..., Awaitable[Response]]  # takes the request, then what its path names


def nsq_answer(handler: NsqHandler) -> NsqHandler:
    """``handler`` with its refusals as answers, and nsqd's header on all of them."""

    async def answer(request: Request, **names: str) -> Response:
        try:
            response = await handler(request, **names)
        except Refused as refused:
            response = refused.response
        return replace(response, headers=response.headers + _NSQ_HEADER)

    return answer


def add_nsqd_routes(router: Router, context: AdminContext) -> None:
    routes = NsqdRoutes(context)
    router.add("GET", "/info", nsq_answer(routes.info))
    router.add("GET", "/stats", nsq_answer(routes.stats))
    for verb in ("create", "delete", "empty", "pause", "unpause"):
        router.add("POST", f"/topic/{verb}", nsq_answer(getattr(routes, f"topic_{verb}")))
        router.add("POST", f"/channel/{verb}", nsq_answer(getattr(routes, f"channel_{verb}")))


class NsqdRoutes:
    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._engine = context.engine
        self._settings = context.settings

    async def info(self, _request: Request) -> Response:
        return json_response(
            {
                "version": self._settings.version,
                "broadcast_address": self._context.broadcast_address,
                "hostname": self._context.hostname,
                "http_port": self._context.http_port,
                "tcp_port": self._context.tcp_port,
                "start_time": self._context.start_wall_ns // 10**9,
                "max_heartbeat_interval": self._settings.max_heartbeat_interval_ms * 10**6,
                "max_output_buffer_size": self._settings.max_output_buffer_size,
                "max_output_buffer_timeout": self._settings.max_output_buffer_timeout_ms * 10**6,
                "max_deflate_level": self._settings.max_deflate_level,
                "topology_zone": self._settings.topology_zone,
                "topology_region": self._settings.topology_region,
            }
        )

    async def stats(self, request: Request) -> Response:
        given = arguments(request)
        return await self._context.make_large(partial(self._stats, given))

    def _stats(self, given: Mapping[str, str]) -> Response:
        topic, channel = given.get("topic", ""), given.get("channel", "")
        include_clients = given.get("include_clients") not in _FALSE
        now = with_mqtt_channels(snapshot.take(self._engine, topic, channel, clients=include_clients))
        service = (self._settings.version, self._context.health(), self._context.start_wall_ns)
        wanted: dict[str, Any] = {
            "topic": topic,
            "channel": channel,
            "include_clients": include_clients,
            "include_mem": given.get("include_mem") not in _FALSE,
        }
        if given.get("format") != "json":
            return text_response(stats_text(now, *service, **wanted))
        wanted["percentiles"] = self._settings.e2e_percentiles
        wanted["contracts"] = snapshot.take_contracts(self._engine)
        if given.get("include_mqtt") in _TRUE:
            wanted["mqtt"] = self._engine.mqtt_sessions(mqtt_routes.MOST)
        return json_response(stats_json(now, *service, **wanted))

    async def topic_create(self, request: Request) -> Response:
        topic = topic_argument(arguments(request))
        self._check_room(topic)
        self._engine.create_topic(topic)
        return _DONE

    async def topic_delete(self, request: Request) -> Response:
        topic = present(arguments(request), "topic")
        if self._context.is_managed(topic):
            raise Refused(409, "TOPIC_MANAGED")  # it would come back without its limit: the distributor removes it
        return self._done(self._engine.delete_topic(topic), "TOPIC_NOT_FOUND")

    async def topic_empty(self, request: Request) -> Response:
        return self._done(self._engine.empty_topic(self._known_name(request)), "TOPIC_NOT_FOUND")

    async def topic_pause(self, request: Request) -> Response:
        return await self._pause_topic(request, True)

    async def topic_unpause(self, request: Request) -> Response:
        return await self._pause_topic(request, False)

    async def _pause_topic(self, request: Request, paused: bool) -> Response:
        topic = present(arguments(request), "topic")
        return await self._kept(self._engine.pause_topic(topic, paused), "TOPIC_NOT_FOUND")

    async def channel_create(self, request: Request) -> Response:
        topic, channel = self._channel(request, must_exist=False)
        self._check_room(topic, channel)
        self._engine.create_channel(topic, channel)
        return _DONE

    def _check_room(self, topic: str, channel: str = "") -> None:
        refusal = self._engine.refusal_to_make(topic, channel)
        if refusal is not None:
            raise Refused(503, refusal)

    async def channel_delete(self, request: Request) -> Response:
        return self._done(self._engine.delete_channel(*self._channel(request)), "CHANNEL_NOT_FOUND")

    async def channel_empty(self, request: Request) -> Response:
        return self._done(self._engine.empty_channel(*self._channel(request)), "CHANNEL_NOT_FOUND")

    async def channel_pause(self, request: Request) -> Response:
        return await self._pause_channel(request, True)

    async def channel_unpause(self, request: Request) -> Response:
        return await self._pause_channel(request, False)

    async def _pause_channel(self, request: Request, paused: bool) -> Response:
        return await self._kept(self._engine.pause_channel(*self._channel(request), paused), "CHANNEL_NOT_FOUND")

    def _done(self, found: bool, otherwise: str) -> Response:
        if not found:
            raise Refused(404, otherwise)
        self._context.note_change()
        return _DONE

    async def _kept(self, found: bool, otherwise: str) -> Response:
        """Answers once the change is on disk, as nsqd: a crash after the answer must not undo a pause."""
        done = self._done(found, otherwise)
        await self._context.write_topics()
        return done

    def _known_name(self, request: Request) -> str:
        """A topic that may be there, under a name that is no longer given to any."""
        topic = present(arguments(request), "topic")
        if not is_name(topic):
            raise Refused(400, "INVALID_TOPIC")
        return topic

    def _channel(self, request: Request, *, must_exist: bool = True) -> tuple[str, str]:
        given = arguments(request)
        topic = present(given, "topic")
        if not is_name(topic):
            raise Refused(400, "INVALID_ARG_TOPIC")
        channel = present(given, "channel")
        if not is_name(channel):
            raise Refused(400, "INVALID_ARG_CHANNEL")
        found = snapshot.find_topic(self._engine, topic)
        if found is None:
            raise Refused(404, "TOPIC_NOT_FOUND")
        if must_exist and all(known.channel_name != channel for known in found.channels):
            raise Refused(404, "CHANNEL_NOT_FOUND")
        return topic, channel


def arguments(request: Request) -> dict[str, str]:
    """The query's arguments. Raises Refused."""
    try:
        return request.arguments()
    except BadInput:
        raise Refused(400, "INVALID_REQUEST") from None


def present(given: dict[str, str], name: str) -> str:
    """Raises Refused if the argument is missing."""
    if name not in given:
        raise Refused(400, f"MISSING_ARG_{name.upper()}")
    return given[name]


def topic_argument(given: dict[str, str]) -> str:
    """A topic's name. Raises Refused."""
    topic = present(given, "topic")
    if not is_topic(topic):
        raise Refused(400, "INVALID_TOPIC")
    return topic


async def read(request: Request, limit_bytes: int, too_big: str) -> bytes:
    """The body. Raises Refused with ``too_big``."""
    try:
        return await request.read_body(limit_bytes)
    except BodyTooLarge:
        raise Refused(413, too_big) from None

"""nsqd's HTTP routes (protocol section 13): its names, its order of checks, its error bodies ``{"message":
"CODE"}``."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from broker import snapshot
from broker.admin_context import AdminContext
from broker.stats import stats_json, stats_text
from srtm.errors import BadInput
from srtm.http_api import BodyTooLarge, Request, Response, Router, json_response, text_response
from srtm.wire import is_name

_NSQ_HEADER = (("X-NSQ-Content-Type", "nsq; version=1.0"),)
_FALSE = ("false", "0")
_OK = text_response("OK")
_DONE = Response()


class Refused(Exception):
    """An answer of nsqd's that is an error; ``headers`` go with it."""

    def __init__(self, status: int, code: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(code)
        self.response = json_response({"message": code}, status, headers)


NsqHandler = Callable[..., Awaitable[Response]]  # takes the request, then what its path names


def nsq_answer(handler: NsqHandler) -> NsqHandler:
    """``handler`` with its refusals as answers and nsqd's header on all of them."""

    async def answer(request: Request, **names: str) -> Response:
        try:
            response = await handler(request, **names)
        except Refused as refused:
            response = refused.response
        return replace(response, headers=response.headers + _NSQ_HEADER)

    return answer


def add_nsqd_routes(router: Router, context: AdminContext) -> None:
    routes = NsqdRoutes(context)
    router.add("GET", "/ping", routes.ping)
    router.add("GET", "/info", nsq_answer(routes.info))
    router.add("GET", "/stats", nsq_answer(routes.stats))
    router.add("POST", "/pub", nsq_answer(routes.pub))
    router.add("POST", "/mpub", nsq_answer(routes.mpub))
    for verb in ("create", "delete", "empty", "pause", "unpause"):
        router.add("POST", f"/topic/{verb}", nsq_answer(getattr(routes, f"topic_{verb}")))
        router.add("POST", f"/channel/{verb}", nsq_answer(getattr(routes, f"channel_{verb}")))


class NsqdRoutes:
    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._engine = context.engine
        self._settings = context.settings

    async def ping(self, _request: Request) -> Response:
        health = self._context.health()
        return text_response(health, 200 if health == "OK" else 500)

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
                "max_deflate_level": 6,
                "topology_zone": "",
                "topology_region": "",
            }
        )

    async def stats(self, request: Request) -> Response:
        given = arguments(request)
        topic, channel = given.get("topic", ""), given.get("channel", "")
        include_clients = given.get("include_clients") not in _FALSE
        now = snapshot.take(self._engine, topic, channel, clients=include_clients)
        service = (self._settings.version, self._context.health(), self._context.start_wall_ns)
        wanted: dict[str, Any] = {
            "topic": topic,
            "channel": channel,
            "include_mem": given.get("include_mem") not in _FALSE,
            "shares": self._settings.e2e_percentiles,
        }
        if given.get("format") != "json":
            return text_response(stats_text(now, *service, **wanted))
        return json_response(stats_json(now, *service, include_clients=include_clients, **wanted))

    async def pub(self, request: Request) -> Response:
        body = await read(request, self._settings.max_msg_size, "MSG_TOO_BIG")
        if not body:
            raise Refused(400, "MSG_EMPTY")
        given = arguments(request)
        topic = topic_argument(given)
        return self._publish(topic, [body], self._defer_ms(given))

    async def mpub(self, request: Request) -> Response:
        body = await read(request, self._settings.max_body_size, "BODY_TOO_BIG")
        given = arguments(request)
        topic = topic_argument(given)
        binary = "binary" in given and given["binary"] not in _FALSE
        limit = self._settings.max_msg_size
        bodies = binary_bodies(body, limit, self._settings.max_body_size) if binary else text_bodies(body, limit)
        if not bodies:
            self._engine.create_topic(topic)
            return _OK
        return self._publish(topic, bodies, 0)

    def _defer_ms(self, given: dict[str, str]) -> int:
        text = given.get("defer", "0")
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text, re.ASCII) or not (
            0 <= int(text) <= self._settings.max_req_timeout_ms
        ):
            raise Refused(400, "INVALID_DEFER")
        return int(text)

    def _publish(self, topic: str, bodies: list[bytes], defer_ms: int) -> Response:
        try:
            outcome, wait_ms = self._engine.publish(topic, bodies, defer_ms)
        except RuntimeError:
            raise Refused(503, "EXITING") from None
        if outcome == "ok":
            return _OK
        if outcome != "rate_limited":
            raise Refused(503, outcome)
        # whole seconds are all that Retry-After can say; the exact time is in a header of ours
        retry_after = (("Retry-After", str(math.ceil(wait_ms / 1000))), ("X-SRTM-Retry-After-Ms", f"{wait_ms:.3f}"))
        raise Refused(429, "RATE_LIMITED", retry_after)

    async def topic_create(self, request: Request) -> Response:
        self._engine.create_topic(topic_argument(arguments(request)))
        return _DONE

    async def topic_delete(self, request: Request) -> Response:
        topic = present(arguments(request), "topic")
        if self._context.is_managed(topic):
            raise Refused(409, "TOPIC_MANAGED")  # it would come back without its limit: the distributor removes it
        return self._done(self._engine.delete_topic(topic), "TOPIC_NOT_FOUND")

    async def topic_empty(self, request: Request) -> Response:
        return self._done(self._engine.empty_topic(topic_argument(arguments(request))), "TOPIC_NOT_FOUND")

    async def topic_pause(self, request: Request) -> Response:
        return self._pause_topic(request, True)

    async def topic_unpause(self, request: Request) -> Response:
        return self._pause_topic(request, False)

    def _pause_topic(self, request: Request, paused: bool) -> Response:
        return self._done(self._engine.pause_topic(present(arguments(request), "topic"), paused), "TOPIC_NOT_FOUND")

    async def channel_create(self, request: Request) -> Response:
        self._engine.create_channel(*self._channel(request, must_exist=False))
        return _DONE

    async def channel_delete(self, request: Request) -> Response:
        return self._done(self._engine.delete_channel(*self._channel(request)), "CHANNEL_NOT_FOUND")

    async def channel_empty(self, request: Request) -> Response:
        return self._done(self._engine.empty_channel(*self._channel(request)), "CHANNEL_NOT_FOUND")

    async def channel_pause(self, request: Request) -> Response:
        return self._done(self._engine.pause_channel(*self._channel(request), True), "CHANNEL_NOT_FOUND")

    async def channel_unpause(self, request: Request) -> Response:
        return self._done(self._engine.pause_channel(*self._channel(request), False), "CHANNEL_NOT_FOUND")

    def _done(self, found: bool, otherwise: str) -> Response:
        if not found:
            raise Refused(404, otherwise)
        self._context.note_change()
        return _DONE

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
    try:
        return request.arguments()
    except BadInput:
        raise Refused(400, "INVALID_REQUEST") from None


def present(given: dict[str, str], name: str) -> str:
    if name not in given:
        raise Refused(400, f"MISSING_ARG_{name.upper()}")
    return given[name]


def topic_argument(given: dict[str, str]) -> str:
    topic = present(given, "topic")
    if not is_name(topic):
        raise Refused(400, "INVALID_TOPIC")
    return topic


async def read(request: Request, limit_bytes: int, too_big: str) -> bytes:
    try:
        return await request.read_body(limit_bytes)
    except BodyTooLarge:
        raise Refused(413, too_big) from None
    except BadInput:
        raise Refused(400, "INVALID_REQUEST") from None


def text_bodies(body: bytes, limit_bytes: int) -> list[bytes]:
    """One message a line; empty lines are none."""
    bodies = [line for line in body.split(b"\n") if line]
    if any(len(line) > limit_bytes for line in bodies):
        raise Refused(413, "MSG_TOO_BIG")
    return bodies


def binary_bodies(body: bytes, limit_bytes: int, max_body_size: int) -> list[bytes]:
    """int32 count, then count times (int32 length, bytes). What follows the last message is ignored, as nsqd does."""
    count = int.from_bytes(body[:4], "big", signed=True)
    if len(body) < 4 or not 1 <= count <= (max_body_size - 4) // 5:
        raise Refused(413, "BAD_BODY")
    bodies, at = [], 4
    for _ in range(count):
        size = int.from_bytes(body[at : at + 4], "big", signed=True)
        message = body[at + 4 : at + 4 + size]
        if not 0 < size <= limit_bytes or len(message) < size:
            raise Refused(413, "BAD_MESSAGE")
        bodies.append(message)
        at += 4 + size
    return bodies

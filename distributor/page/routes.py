"""Routes of the operators' page: the page, lists in screens, the history of a topic, and the stream of what is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import msgspec
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.responses import StreamingResponse

from distributor.page import rows
from distributor.page.mqtt_sessions import add_mqtt_session_routes
from distributor.page.observer import Event, Gone, Observer
from distributor.registry.registry import Registry
from srtm.errors import NotLeader
from srtm.web.bodies import json_answer
from srtm.web.browser import add_page

_STATIC = Path(__file__).parent / "static"
_STREAM = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # a proxy passes each event on at once


class News(msgspec.Struct, kw_only=True):
    """One message of the stream. ``look``: counts up with every look at topics and brokers. ``gone``: of all events
    that are kept, not of these alone."""

    look: int
    promises: dict[str, int]
    states: dict[str, int]
    events: list[Event]
    gone: Gone


def _asked(
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=rows.MOST_ROWS)] = 50,
    sort: str = "",
    descending: bool = False,
    search: str = "",
    only: str = "",
) -> rows.Query:
    return rows.Query(offset=offset, limit=limit, sort=sort, descending=descending, search=search, only=only)


_Asked = Annotated[rows.Query, Depends(_asked)]


def add_page_routes(app: FastAPI, registry: Registry, observer: Observer | None) -> None:
    """``observer`` is None on a standby, which knows nothing of traffic."""
    add_page(app, _STATIC, registry.config.tokens)
    add_mqtt_session_routes(app, registry)

    def leading() -> Observer:
        if observer is None:
            raise NotLeader(registry.leader_url)
        return observer

    @app.get("/v1/overview/topics")
    async def topics(query: _Asked) -> Response:
        """One screen of the list of topics, as they were at most 5 s ago. `sort`: name, promise, latency, rate, demand,
        backlog, publishers or brokers. `only`: kept, broken or unknown."""
        return json_answer(rows.topics_listed(leading().topics, query))

    @app.get("/v1/overview/brokers")
    async def brokers(query: _Asked) -> Response:
        """One screen of the list of brokers, as they were at most 5 s ago. `sort`: name, state, load, mcap, topics,
        backlog or broken. `only`: a state."""
        return json_answer(rows.brokers_listed(leading().brokers, query))

    @app.get("/v1/topics/{name}/history")
    async def history(name: str) -> Response:
        """Latency and load of a topic over the last 15 minutes, in steps of 5 s."""
        return json_answer(leading().history.view(registry.topic(name).name))

    @app.get("/v1/events", include_in_schema=False)
    async def events(request: Request) -> Response:
        """Server-sent events: what is new, each second and at once when it connects. `Last-Event-ID`: the number of the
        last event that was seen."""
        seen = request.headers.get("Last-Event-ID", "")
        stream = _stream(leading(), int(seen) if seen.isascii() and seen.isdigit() else 0)
        return StreamingResponse(stream, media_type="text/event-stream", headers=_STREAM)


async def _stream(observer: Observer, seen: int) -> AsyncGenerator[bytes]:
    """What browsers get. Where nothing is new, a comment keeps the connection."""
    look = -1
    async with aclosing(observer.changes()) as changes:
        async for _ in changes:
            events = [event for event in observer.events if event.number > seen]
            if not events and observer.looks == look:
                yield b":\n\n"
                continue
            seen, look = events[-1].number if events else seen, observer.looks
            yield b"id: %d\ndata: %s\n\n" % (seen, msgspec.json.encode(_news(observer, events)))


def _news(observer: Observer, events: list[Event]) -> News:
    return News(
        look=observer.looks,
        promises=_counts([row.promise for row in observer.topics]),
        states=_counts([row.state for row in observer.brokers]),
        events=events,
        gone=observer.gone(),
    )


def _counts(words: list[str]) -> dict[str, int]:
    return dict(Counter(words))

"""MQTT sessions of a broker: the distributor asks that broker, with the token of whoever asks here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import FastAPI, Query, Request, Response

from distributor.page.asked_brokers import asked
from distributor.page.rows import MOST_ROWS
from distributor.registry.registry import Registry
from srtm.client.broker import BrokerClient
from srtm.control import MqttSession
from srtm.errors import NotFound
from srtm.web.bodies import json_answer

_MOST = 10_000  # that a broker tells at once
_Client = Annotated[str, Query(min_length=1)]


class MqttSessionRows(msgspec.Struct, kw_only=True):
    """One screen of a broker's sessions, by client identifier. ``total``: rows that match; ``all``: what it has.

    ``looked_at``: sessions that were searched; where it is below ``all``, a client is found by its whole identifier.
    """

    total: int
    all: int
    looked_at: int
    rows: Sequence[MqttSession]


def add_mqtt_session_routes(app: FastAPI, registry: Registry) -> None:
    @app.get("/v1/brokers/{name}/mqtt/sessions")
    async def sessions(
        name: str,
        request: Request,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
        search: str = "",
    ) -> Response:
        """One screen of a broker's MQTT sessions, by client identifier. `search`: a part of it. The broker is asked,
        with the token of this request."""
        async with asked(registry, name, request) as client:
            told = await client.mqtt_sessions(_MOST)
            found = [one for one in told.sessions if search in one.client_id]
            if not found and search and told.total > len(told.sessions):
                found = await _exactly(client, search)
        found.sort(key=lambda one: one.client_id)
        rows = found[offset : offset + limit]
        looked_at = len(told.sessions)
        return json_answer(MqttSessionRows(total=len(found), all=told.total, looked_at=looked_at, rows=rows))

    @app.get("/v1/brokers/{name}/mqtt/session")
    async def session(name: str, request: Request, client: _Client) -> Response:
        """The MQTT session of a client at a broker, with its subscriptions."""
        async with asked(registry, name, request) as broker:
            return json_answer(await broker.mqtt_session(client))

    @app.delete("/v1/brokers/{name}/mqtt/session", status_code=204)
    async def end(name: str, request: Request, client: _Client) -> Response:
        """End the MQTT session of a client at a broker, and its connection. What waits for it is dropped."""
        async with asked(registry, name, request) as broker:
            await broker.kick_mqtt(client)
        return Response(status_code=204)


async def _exactly(client: BrokerClient, client_id: str) -> list[MqttSession]:
    try:
        return [await client.mqtt_session(client_id)]
    except NotFound:
        return []

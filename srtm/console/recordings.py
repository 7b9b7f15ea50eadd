"""Fetches the traces of a topic from its brokers, for commands that analyse real arrivals."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import TypeVar

from srtm.client.broker import BrokerClient
from srtm.client.distributor import DistributorClient, Json
from srtm.errors import NotFound
from srtm.net.address import parse_address

_Read = TypeVar("_Read")


async def recorded(
    client: DistributorClient,
    view: Json,
    token: str | None,
    notes: list[str],
    read: Callable[[bytes, Json], _Read],
    size: Callable[[_Read], int],
) -> list[_Read]:
    """Fetch the traces of the topic of ``view``, one a broker, and convert each with ``read(trace, place)``.

    Hosts do not share a clock, so only the host with the most arrivals (by ``size``) counts. ``notes`` receives a line
    for each recording that is left out. Raises Unavailable, PeerError.
    """
    addresses = {broker["name"]: broker["http_address"] for broker in await client.brokers()}
    by_host: dict[str, list[_Read]] = {}
    for place in view["brokers"]:
        if (address := addresses.get(place["broker"])) is None:
            notes.append(f"broker {place['broker']} is not known any more: its arrivals are left out")
        elif (body := await _trace(address, view["name"], token)) is not None:
            host = parse_address("http_address", address)[0]
            by_host.setdefault(host, []).append(read(body, place))
    ranked = sorted(by_host, key=lambda host: -sum(size(recording) for recording in by_host[host]))
    if len(ranked) > 1:
        notes.append(
            f"hosts do not share a clock: only what came to {ranked[0]} is judged, not {', '.join(ranked[1:])}"
        )
    return by_host[ranked[0]] if ranked else []


async def _trace(address: str, topic: str, token: str | None) -> bytes | None:
    """Return a broker's trace of a topic; None if it recorded nothing."""
    async with aclosing(BrokerClient(address, token)) as client:
        try:
            return await client.trace(topic)
        except NotFound:
            return None

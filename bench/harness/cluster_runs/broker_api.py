"""The few routes of a broker's HTTP address that measurements use: a topic's bucket, and what it saw of it."""

from __future__ import annotations

import json
from urllib.parse import quote

import msgspec

from srtm.errors import PeerError
from srtm.net.http_client import HttpClient

ANSWER_WITHIN_S = 10.0
ANSWER_LIMIT_BYTES = 256 << 20


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float


class Periods(msgspec.Struct, frozen=True, kw_only=True):
    since_start: Percentiles


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    access: Periods
    processing: Periods


class BucketState(msgspec.Struct, frozen=True, kw_only=True):
    """What of ``GET /v1/topics/NAME/bucket`` is used here."""

    rate: float  # of its share in force, msg/s
    burst: float
    received: int
    released: int
    delayed: int
    rejected: int
    backlog: int
    timestamp_source: str
    timestamp_bias_max_seconds: float
    merged_read_share: float
    latency: Latency


async def put_bucket(http_address: str, topic: str, rate: float, burst: float) -> None:
    """The topic's limit on a bare broker, excess delayed. Raises Unavailable, PeerError."""
    body = json.dumps({"rate": rate, "burst": burst, "on_excess": "delay"}).encode()
    await request(http_address, "PUT", f"/v1/topics/{topic}/bucket", body)


async def bucket_state(http_address: str, topic: str) -> BucketState:
    """Raises Unavailable, PeerError."""
    return msgspec.json.decode(await request(http_address, "GET", f"/v1/topics/{topic}/bucket"), type=BucketState)


async def create_channel(http_address: str, topic: str, channel: str) -> None:
    """nsqd's routes: the topic, and the channel, so that nothing is published before somebody keeps it."""
    await request(http_address, "POST", f"/topic/create?topic={topic}")
    await request(http_address, "POST", f"/channel/create?topic={topic}&channel={quote(channel)}")


async def pause_channel(http_address: str, topic: str, channel: str) -> None:
    """Its messages wait until it goes on. Raises Unavailable, PeerError."""
    await request(http_address, "POST", f"/channel/pause?topic={topic}&channel={quote(channel)}")


async def request(
    http_address: str,
    method: str,
    target: str,
    body: bytes = b"",
    *,
    within_s: float = ANSWER_WITHIN_S,
    limit_bytes: int = ANSWER_LIMIT_BYTES,
) -> bytes:
    """The answer's body. Raises Unavailable, PeerError (another status than 200)."""
    client = HttpClient(f"http://{http_address}", answer_limit_bytes=limit_bytes)
    try:
        status, answer = await client.request(method, target, body, timeout_s=within_s)
    finally:
        await client.aclose()
    if status != 200:
        raise PeerError(f"{method} {target} on {http_address}: {status} {answer[:200]!r}")
    return answer

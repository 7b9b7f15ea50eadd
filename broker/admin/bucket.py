"""``/v1/topics/NAME/bucket`` and ``/trace``: a topic's token bucket on this broker. It can be set by hand if no
distributor manages the topic."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import msgspec

from broker import snapshot
from broker.admin.context import AdminContext
from broker.leases.lease_holder import MICRO
from broker.nsqd.metadata import BucketSpec
from broker.snapshot import Bucket, Snapshot
from broker.sync.reports import latency_ms
from srtm.errors import BadInput, Conflict, NotFound
from srtm.net.decode_errors import UNREADABLE
from srtm.net.http_server import Request, Response, Router, json_response, text_response
from srtm.net.json_keys import refuse_repeated_keys
from srtm.protocol import checked_name, checked_topic

_BODY_LIMIT_BYTES = 64 * 1024
_MAX_AMOUNT = 1e9  # msg/s or messages: above any network card, and within the engine's integers
_MAX_INT = 2**62
_PIECE = 10_000  # entries of a trace that are encoded in one call
_DEFAULTS = BucketSpec(rate=1, burst=1)
KINDS = ("access", "processing", "consumer_wait", "total")
WINDOWS = ("since_start", "last_60s")


def add_bucket_routes(router: Router, context: AdminContext) -> None:
    routes = BucketRoutes(context)
    router.add("PUT", "/v1/topics/{name}/bucket", routes.put_bucket)
    router.add("GET", "/v1/topics/{name}/bucket", routes.get_bucket)
    router.add("DELETE", "/v1/topics/{name}/bucket", routes.delete_bucket)
    router.add("GET", "/v1/topics/{name}/trace", routes.get_trace)


class BucketRoutes:
    def __init__(self, context: AdminContext) -> None:
        self._engine = context.engine
        self._is_managed = context.is_managed
        self._start_wall_ns = context.start_wall_ns
        self._buckets = context.buckets
        self._write = context.write_topics
        self._make_large = context.make_large

    async def put_bucket(self, request: Request, name: str) -> Response:
        """The bucket gets version 0: any share of a distributor is newer. It is on disk when this is answered."""
        self._refuse_managed(checked_topic("topic", name))
        spec = parse_bucket(await request.read_body(_BODY_LIMIT_BYTES))
        self._refuse_managed(name)  # it may have changed while the body arrived
        old = snapshot.find_topic(self._engine, name)
        self._buckets.put(name, spec, full=name not in self._buckets.all and (old is None or old.bucket is None))
        await self._write()
        return self._show(name)

    async def get_bucket(self, request: Request, name: str) -> Response:
        format_ = request.arguments().get("format", "json")
        if format_ == "hlog":
            return self._show_log(checked_name("topic", name))
        if format_ != "json":
            raise BadInput("format", format_, "must be json or hlog")
        return self._show(checked_name("topic", name))

    async def delete_bucket(self, _request: Request, name: str) -> Response:
        self._refuse_managed(checked_name("topic", name))
        if not self._buckets.remove(name):
            raise NotFound("bucket", name)
        await self._write()
        return json_response({})

    async def get_trace(self, _request: Request, name: str) -> Response:
        return await self._make_large(partial(self._trace, checked_name("topic", name)))

    def _trace(self, name: str) -> Response:
        columns = self._engine.trace(name)
        if columns is None:
            raise NotFound("trace", name)
        return _trace_response(columns)

    def _refuse_managed(self, name: str) -> None:
        if self._is_managed(name):
            raise Conflict("topic", name, "is managed by the distributor: change it there (srtm topic submit)")

    def _show(self, name: str) -> Response:
        now = self._snapshot(name)
        bucket = now.topics[0].bucket
        if bucket is None:
            raise NotFound("bucket", name)
        return json_response(bucket_json(now, bucket, self._is_managed(name)))

    def _show_log(self, name: str) -> Response:
        now = self._snapshot(name)
        histograms = {
            (kind, window): data.decode("ascii")
            for kind in KINDS
            for window in WINDOWS
            if (data := self._engine.histogram(name, kind, window)) is not None
        }
        return text_response(histogram_log(now, self._start_wall_ns, histograms))

    def _snapshot(self, name: str) -> Snapshot:
        """A snapshot of that topic alone. Raises NotFound."""
        now = snapshot.take(self._engine, name)
        if not now.topics:
            raise NotFound("topic", name)
        return now


def parse_bucket(body: bytes) -> BucketSpec:
    """Raises BadInput with the field."""
    try:
        given = msgspec.json.decode(body)
    except UNREADABLE as error:
        raise BadInput("body", body[:80].decode(errors="replace"), f"must be JSON: {error}") from None
    refuse_repeated_keys(body)
    if not isinstance(given, dict):
        raise BadInput("body", given, "must be a JSON object with rate and burst")
    known = ("rate", "burst", "on_excess", "max_backlog", "max_backlog_bytes")
    for key in given:
        if key not in known:
            raise BadInput(key, given[key], f"is not a field of a bucket; these are: {', '.join(known)}")
    on_excess = given.get("on_excess", "delay")
    if on_excess not in ("delay", "reject"):
        raise BadInput("on_excess", on_excess, 'must be "delay" or "reject"')
    return BucketSpec(
        rate=_real(given, "rate", 1 / MICRO, "must be a number of msg/s above 0 (at least 0.000001) and at most 1e9"),
        burst=_real(given, "burst", 1.0, "must be a number of messages from 1 to 1e9"),
        reject=on_excess == "reject",
        max_backlog=_count(given, "max_backlog", _DEFAULTS.max_backlog),
        max_backlog_bytes=_count(given, "max_backlog_bytes", _DEFAULTS.max_backlog_bytes),
    )


def _real(given: Mapping[str, object], name: str, least: float, rule: str) -> float:
    if name not in given:
        raise BadInput(name, None, f"is missing: {rule}")
    value = given[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= _MAX_AMOUNT:
        raise BadInput(name, value, rule)
    return float(value)


def _count(given: Mapping[str, object], name: str, default: int) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_INT:
        raise BadInput(name, value, "must be a whole number, 0 or more")
    return value


def bucket_json(now: Snapshot, bucket: Bucket, managed: bool) -> dict[str, object]:
    """The bucket of the one topic in ``now``. Rates in msg/s, bursts and fills in messages, latencies in ms. The
    accuracy of stamps is that of the whole broker."""
    windows = {window: getattr(now.topics[0].latency, window) for window in WINDOWS}
    return {
        "rate": bucket.rate_micro / MICRO,
        "burst": bucket.burst_micro / MICRO,
        "on_excess": "reject" if bucket.reject else "delay",
        "max_backlog": bucket.max_backlog,
        "max_backlog_bytes": bucket.max_backlog_bytes,
        "managed": managed,
        "version": bucket.version,
        "fill": bucket.fill,
        "received": bucket.received,
        "released": bucket.released,
        "delayed": bucket.delayed,
        "rejected": bucket.rejected,
        "undeclared": bucket.undeclared,
        "backlog": bucket.backlog,
        "largest_backlog": bucket.largest_backlog,
        "lateness_max_ms": bucket.lateness_max_ns / 1e6,
        "timestamp_source": bucket.timestamp_source,
        "timestamp_bias_max_seconds": now.timestamp_bias_max_ns / 1e9,
        "merged_read_share": now.merged_reads / now.publish_reads if now.publish_reads else 0.0,
        "lease_left_seconds": None if bucket.lease_left_ns is None else bucket.lease_left_ns / 1e9,
        "lapses": bucket.lapses,
        "latency": {
            kind: {name: latency_ms(getattr(latencies, kind)) for name, latencies in windows.items()} for kind in KINDS
        },
    }


def histogram_log(now: Snapshot, start_wall_ns: int, histograms: Mapping[tuple[str, str], str]) -> str:
    """HdrHistogram's log format 1.3. The tag is ``KIND.WINDOW``. Values are in ns; Interval_Max is in ms, as the
    format's tools expect."""
    up_s = (now.wall_ns - start_wall_ns) / 1e9
    lines = [
        "#[Latencies of one topic on one SRTM broker, in ns]",
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {start_wall_ns / 1e9:.3f} (seconds since epoch)]",
        f"#[BaseTime: {start_wall_ns / 1e9:.3f} (seconds since epoch)]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    largest_ms = {
        (kind, window): getattr(getattr(topic.latency, window), kind).max_ns / 1e6
        for topic in now.topics
        for kind in KINDS
        for window in WINDOWS
    }
    for (kind, window), encoded in histograms.items():
        length_s = up_s if window == "since_start" else min(up_s, 60.0)
        start_s = up_s - length_s
        largest = largest_ms[kind, window]
        lines.append(f"Tag={kind}.{window},{start_s:.3f},{length_s:.3f},{largest:.3f},{encoded}")
    return "\n".join(lines) + "\n"


def _trace_response(columns: tuple[list[str], bytes, bytes, bytes, bytes, bytes, bytes]) -> Response:
    return Response(200, b"".join(trace_json(*columns)), "application/json; charset=utf-8")


def trace_json(
    publishers: list[str], publisher: bytes, arrival: bytes, due: bytes, released: bytes, sent: bytes, version: bytes
) -> Iterator[bytes]:
    """A JSON object of columns in order of decision, in pieces. Times in ns of CLOCK_MONOTONIC; 0: not yet."""
    yield b'{"publishers":['
    yield from _pieces(publishers)
    columns = {
        "publisher": array("I", publisher),
        "arrival_ns": array("q", arrival),
        "due_ns": array("q", due),
        "released_ns": array("q", released),
        "sent_ns": array("q", sent),
        "share_version": array("q", version),
    }
    for name, column in columns.items():
        yield b'],"%s":[' % name.encode()
        yield from _pieces(column)
    yield b"]}"


def _pieces(values: Sequence[object]) -> Iterator[bytes]:
    """``values`` with commas between them. Each piece takes about a millisecond."""
    for begin in range(0, len(values), _PIECE):
        yield b"," if begin else b""
        yield msgspec.json.encode(list(values[begin : begin + _PIECE]))[1:-1]

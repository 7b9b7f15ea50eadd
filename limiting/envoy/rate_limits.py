"""Requests and responses of ``envoy.service.ratelimit.v3.RateLimitService``, as protocol buffers and as JSON.

Field numbers and names are those of envoyproxy/envoy: ``api/envoy/service/ratelimit/v3/rls.proto`` and
``api/envoy/extensions/common/ratelimit/v3/ratelimit.proto``. Unknown fields are skipped, as protocol buffers ask for.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from limiting.envoy.protobuf import bytes_in, content, fields, number, number_in, text, text_in
from srtm.contracts.envoy import UNITS, RateLimit
from srtm.errors import BadInput

MOST_DESCRIPTORS = 64  # of a request; Envoy makes one for each action of a route
OK, OVER_LIMIT = 1, 2
_CODES = {OK: "OK", OVER_LIMIT: "OVER_LIMIT"}
_LARGEST = 2**32 - 1


class Descriptor(NamedTuple):
    """What a request is charged to. ``hits``: its own addend; None: that of the request."""

    entries: tuple[tuple[str, str], ...]
    hits: int | None = None
    has_limit: bool = False  # it brings a limit of its own


class RateLimitRequest(NamedTuple):
    """A question. ``hits`` 0 is 1."""

    domain: str
    descriptors: tuple[Descriptor, ...]
    hits: int = 0


class Status(NamedTuple):
    """What is said of one descriptor. ``limit`` None: no contract is for it."""

    code: int = OK
    limit: RateLimit | None = None
    name: str = ""
    remaining: int = 0
    reset_ns: int = 0


class RateLimitResponse(NamedTuple):
    """The answer: OVER_LIMIT if that of any descriptor is. ``headers``: for Envoy's client; ``body``: of a refusal."""

    statuses: tuple[Status, ...]
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""

    @property
    def code(self) -> int:
        """The overall code."""
        return OVER_LIMIT if any(status.code == OVER_LIMIT for status in self.statuses) else OK


def read_request(data: bytes) -> RateLimitRequest:
    """Read a RateLimitRequest. Raises PeerError, BadInput."""
    domain, descriptors, hits = "", [], 0
    for field, value in fields(data):
        if field == 1:
            domain = text_in(value)
        elif field == 2:
            descriptors.append(_descriptor(bytes_in(value)))
        elif field == 3:
            hits = number_in(value)
    return _checked(RateLimitRequest(domain, tuple(descriptors), hits))


def _descriptor(data: bytes) -> Descriptor:
    entries: list[tuple[str, str]] = []
    hits, has_limit = None, False
    for field, value in fields(data):
        if field == 1:
            entry = dict(fields(bytes_in(value)))
            entries.append((text_in(entry.get(1, b"")), text_in(entry.get(2, b""))))
        elif field == 2:
            has_limit = True
        elif field == 3:  # a google.protobuf.UInt64Value
            hits = number_in(dict(fields(bytes_in(value))).get(1, 0))
    return Descriptor(tuple(entries), hits, has_limit)


def _checked(request: RateLimitRequest) -> RateLimitRequest:
    if not request.domain:
        raise BadInput("domain", request.domain, "must not be empty")
    if not 1 <= len(request.descriptors) <= MOST_DESCRIPTORS:
        raise BadInput("descriptors", len(request.descriptors), f"must be 1 to {MOST_DESCRIPTORS}")
    if request.hits < 0:
        raise BadInput("hits_addend", request.hits, "must not be below 0")
    for place, descriptor in enumerate(request.descriptors):
        if (descriptor.hits or 0) < 0:
            raise BadInput(f"descriptors[{place}].hits_addend", descriptor.hits, "must not be below 0")
        if not descriptor.entries or not all(key for key, _ in descriptor.entries):
            raise BadInput(f"descriptors[{place}].entries", list(descriptor.entries), "must have one entry, each a key")
        if descriptor.has_limit:
            rule = "is not served: write a contract for the descriptor"
            raise BadInput(f"descriptors[{place}].limit", "(given)", rule)
    return request


def write_response(response: RateLimitResponse) -> bytes:
    """Return a RateLimitResponse as protocol buffers."""
    parts = [number(1, response.code)]
    parts += [content(2, _status(status)) for status in response.statuses]
    parts += [content(3, text(1, name) + text(2, value)) for name, value in response.headers]
    if response.body:
        parts.append(content(5, response.body))
    return b"".join(parts)


def _status(status: Status) -> bytes:
    if status.limit is None:
        return number(1, status.code)
    unit, _ = UNITS.get(status.limit.unit, (0, 0))
    limit = number(1, status.limit.requests_per_unit) + number(2, unit) + text(3, status.name)
    seconds, nanos = divmod(status.reset_ns, 10**9)
    reset = content(4, number(1, seconds) + number(2, nanos))
    return number(1, status.code) + content(2, limit) + number(3, min(status.remaining, _LARGEST)) + reset


class _JsonEntry(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    value: str = ""


class _JsonDescriptor(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    entries: list[_JsonEntry]
    hits_addend: int | str | None = None  # ProtoJSON writes 64 bits as text
    limit: Any = None


class JsonRequest(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """A RateLimitRequest in JSON."""

    domain: str = ""
    descriptors: list[_JsonDescriptor] = []
    hits_addend: int = 0

    def request(self) -> RateLimitRequest:
        """Return the request. Raises BadInput."""
        descriptors = []
        for place, each in enumerate(self.descriptors):
            try:
                hits = None if each.hits_addend is None else int(each.hits_addend)
            except ValueError:
                raise BadInput(f"descriptors[{place}].hitsAddend", each.hits_addend, "must be a whole number") from None
            entries = tuple((entry.key, entry.value) for entry in each.entries)
            descriptors.append(Descriptor(entries, hits, each.limit is not None))
        return _checked(RateLimitRequest(self.domain, tuple(descriptors), self.hits_addend))


def response_json(response: RateLimitResponse) -> dict[str, Any]:
    """Return a response as ProtoJSON has it: what is zero is not there."""
    found: dict[str, Any] = {"overallCode": _CODES[response.code]}
    found["statuses"] = [_status_json(status) for status in response.statuses]
    if response.headers:
        found["responseHeadersToAdd"] = [{"key": name, "value": value} for name, value in response.headers]
    if response.body:
        found["rawBody"] = base64.b64encode(response.body).decode()
    return found


def _status_json(status: Status) -> dict[str, Any]:
    found: dict[str, Any] = {"code": _CODES[status.code]}
    if status.limit is None:
        return found
    limit = {"name": status.name, "requestsPerUnit": status.limit.requests_per_unit, "unit": status.limit.unit}
    found["currentLimit"] = limit
    if status.remaining:
        found["limitRemaining"] = min(status.remaining, _LARGEST)
    found["durationUntilReset"] = f"{status.reset_ns / 10**9:.9f}".rstrip("0").rstrip(".") + "s"
    return found

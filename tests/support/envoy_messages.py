"""Messages of Envoy's rate limit service and of gRPC's health, by the stock ``protobuf`` library: a stranger's codec.

The descriptors are written down here from rls.proto and ratelimit.proto, because generated code fits one version only.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

_TEXT, _BYTES, _MESSAGE = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_BYTES, 11
_U32, _U64, _I32, _I64 = 13, 4, 5, 3

_MESSAGES: dict[str, list[tuple[str, int, int, str | None, bool]]] = {
    "Entry": [("key", 1, _TEXT, None, False), ("value", 2, _TEXT, None, False)],
    "Override": [("requests_per_unit", 1, _U32, None, False), ("unit", 2, _U32, None, False)],
    "UInt64Value": [("value", 1, _U64, None, False)],
    "Descriptor": [
        ("entries", 1, _MESSAGE, "Entry", True),
        ("limit", 2, _MESSAGE, "Override", False),
        ("hits_addend", 3, _MESSAGE, "UInt64Value", False),
    ],
    "Request": [
        ("domain", 1, _TEXT, None, False),
        ("descriptors", 2, _MESSAGE, "Descriptor", True),
        ("hits_addend", 3, _U32, None, False),
    ],
    "RateLimit": [
        ("requests_per_unit", 1, _U32, None, False),
        ("unit", 2, _U32, None, False),
        ("name", 3, _TEXT, None, False),
    ],
    "Duration": [("seconds", 1, _I64, None, False), ("nanos", 2, _I32, None, False)],
    "Status": [
        ("code", 1, _U32, None, False),
        ("current_limit", 2, _MESSAGE, "RateLimit", False),
        ("limit_remaining", 3, _U32, None, False),
        ("duration_until_reset", 4, _MESSAGE, "Duration", False),
    ],
    "Response": [
        ("overall_code", 1, _U32, None, False),
        ("statuses", 2, _MESSAGE, "Status", True),
        ("response_headers_to_add", 3, _MESSAGE, "Entry", True),
        ("raw_body", 5, _BYTES, None, False),
    ],
    "HealthRequest": [("service", 1, _TEXT, None, False)],
    "HealthResponse": [("status", 1, _U32, None, False)],
}


def _classes() -> dict[str, Any]:
    file = FileDescriptorProto(name="stranger.proto", package="stranger", syntax="proto3")
    for message, fields in _MESSAGES.items():
        made = file.message_type.add(name=message)
        for name, number, kind, inner, is_list in fields:
            of = None if inner is None else f".stranger.{inner}"
            made.field.add(name=name, number=number, type=kind, label=3 if is_list else 1, type_name=of)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"stranger.{name}")) for name in _MESSAGES}


MESSAGES = _classes()


def request(domain: str, *descriptors: dict[str, str], hits: int = 0) -> Any:
    """A RateLimitRequest; each descriptor as {key: value}."""
    made = MESSAGES["Request"](domain=domain, hits_addend=hits)
    for descriptor in descriptors:
        entries = [MESSAGES["Entry"](key=key, value=value) for key, value in descriptor.items()]
        made.descriptors.add(entries=entries)
    return made

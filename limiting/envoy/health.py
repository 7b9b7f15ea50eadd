"""The health service of gRPC (``grpc.health.v1.Health``), by which gateways see that the service is there."""

from __future__ import annotations

from limiting.envoy.protobuf import fields, number, text_in

CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
_SERVING, _SERVICE_UNKNOWN = 1, 3


def asked_service(message: bytes) -> str:
    """Return the service that a HealthCheckRequest asks for; "": all. Raises PeerError."""
    return text_in(dict(fields(message)).get(1, b""))


def health(is_known: bool) -> bytes:
    """Return a HealthCheckResponse: a service that is known here serves."""
    return number(1, _SERVING if is_known else _SERVICE_UNKNOWN)

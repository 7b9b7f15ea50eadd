"""The OpenAPI document of a broker's own routes (``/v1/...``, ``/metrics``, ``/healthz``). nsqd documents its own.
Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from broker.nsqd.metadata import BucketSpec
from srtm import control

_REFERENCE = "#/components/schemas/{name}"
_JSON, _TEXT, _PROBLEM = "application/json", "text/plain", "application/problem+json"


class Health(msgspec.Struct):
    status: str
    name: str
    version: str
    accepting: bool
    incarnation: str | msgspec.UnsetType = msgspec.UNSET  # where tokens are required, only to their holders


@dataclass(frozen=True)
class Operation:
    """``answers`` and ``takes`` are types: JSON, ``str`` for text, None for nothing. ``refusals`` are statuses
    besides 401 and 403."""

    summary: str
    answers: Any
    takes: Any = None
    refusals: tuple[int, ...] = ()
    well: int = 200
    query: str = ""


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", "/v1/topics/{name}/trace"): Operation("What arrived, when, from whom.", control.Trace, None, (400, 404)),
    ("GET", "/v1/topics/{name}/bucket"): Operation(
        "The token bucket and its latencies; `hlog`: histograms.", dict[str, Any], None, (400, 404), query="format"
    ),
    ("PUT", "/v1/topics/{name}/bucket"): Operation(
        "Set by hand; 409 where a distributor manages it.", dict[str, Any], BucketSpec, (400, 409, 413)
    ),
    ("DELETE", "/v1/topics/{name}/bucket"): Operation(
        "Take the limit away; 409 where a distributor manages it.", dict[str, Any], None, (400, 404, 409)
    ),
    ("GET", "/v1/drain"): Operation("How far draining has got.", control.DrainProgress),
    ("POST", "/v1/drain"): Operation(
        "Take no new messages, deliver what there is, end; 409 on a member of a cluster.",
        control.DrainProgress,
        None,
        (409,),
        202,
    ),
    ("PUT", "/v1/links/{name}"): Operation(
        "For brokers: what the MQTT subscribers of one want of this one.",
        control.LinkAnswer,
        control.LinkRequest,
        (400, 413),
    ),
    ("POST", "/v1/gdrl/exchange"): Operation(
        "For brokers: tokens among the members of a topic.", control.GdrlAnswer, control.GdrlMessage, (400, 413)
    ),
    ("POST", "/v1/contracts/news"): Operation(
        "For brokers: what clients under replicated contracts took elsewhere.",
        None,
        control.ContractNews,
        (400, 413),
        204,
    ),
    ("GET", "/v1/contracts/overdrawn"): Operation(
        "For brokers that start: by how much subjects of replicated contracts are below zero.", control.Overdrawn
    ),
    ("GET", "/v1/contracts/subjects"): Operation(
        "The subjects of a namespace that were checked most here, by a sample, and what their contracts have left.",
        list[control.ContractSubject],
        None,
        (400,),
        query="namespace",
    ),
    ("GET", "/v1/mqtt/losses"): Operation(
        "What MQTT's clients of each topic lost for excess or want of room, without topics that lost nothing.",
        dict[str, control.MqttLosses],
    ),
    ("GET", "/v1/mqtt/sessions"): Operation(
        "MQTT's sessions, at most `most`.", control.MqttSessions, None, (400,), query="most"
    ),
    ("GET", "/v1/mqtt/session"): Operation(
        "The session of a client, with its filters.", control.MqttSession, None, (400, 404), query="client"
    ),
    ("DELETE", "/v1/mqtt/session"): Operation(
        "End a client's session and connection.", None, None, (400, 404), 204, query="client"
    ),
    ("GET", "/v1/mqtt/retained"): Operation(
        "Retained messages whose names a filter matches.", list[control.MqttRetained], None, (400,), query="filter"
    ),
    ("DELETE", "/v1/mqtt/retained"): Operation(
        "Remove them; the answer names them.", list[control.MqttRetained], None, (400,), query="filter"
    ),
    ("GET", "/metrics"): Operation("For Prometheus.", str),
    ("GET", "/healthz"): Operation("Whether the broker works; 503: it does not.", Health, None, (503,)),
}


def document(version: str) -> dict[str, Any]:
    """OpenAPI 3.1."""
    kinds = [
        kind for operation in OPERATIONS.values() for kind in (operation.answers, operation.takes) if kind is not None
    ]
    kinds.append(control.Problem)
    found, components = msgspec.json.schema_components(kinds, schema_hook=control.schema_of, ref_template=_REFERENCE)
    schemas = dict(zip(map(id, kinds), found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), operation in OPERATIONS.items():
        paths.setdefault(path, {})[method.lower()] = _operation(path, operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "SRTM broker", "version": version},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(path: str, operation: Operation, schemas: dict[int, Any]) -> dict[str, Any]:
    asked = [_parameter("name", "path")] if "{name}" in path else []
    asked += [_parameter(operation.query, "query")] if operation.query else []
    is_open = path == "/healthz"
    answer = {"description": "done", **_content(operation.answers, schemas)}
    made: dict[str, Any] = {
        "summary": operation.summary,
        "parameters": asked,
        "responses": {str(operation.well): answer},
    }
    for status in sorted({*operation.refusals} if is_open else {401, 403, *operation.refusals}):
        refusal = {"$ref": "#/components/schemas/Problem"} if not is_open else schemas[id(operation.answers)]
        media = _JSON if is_open else _PROBLEM
        made["responses"][str(status)] = {"description": "refused", "content": {media: {"schema": refusal}}}
    if operation.takes is not None:
        made["requestBody"] = {"required": True, **_content(operation.takes, schemas)}
    if not is_open:
        made["security"] = [{"token": []}]
    return made


def _parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}


def _content(kind: Any, schemas: dict[int, Any]) -> dict[str, Any]:
    if kind is None:
        return {}
    return {"content": {_TEXT if kind is str else _JSON: {"schema": schemas[id(kind)]}}}

"""The OpenAPI document: FastAPI knows the routes, this module adds what they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from distributor.api.access import is_open, scopes
from distributor.api.bodies import ContractFile, ContractText, TopicFile
from distributor.api.limit_node_routes import LimitNode
from distributor.page.contract_subjects import SubjectRows
from distributor.page.latency_history import HistoryView
from distributor.page.mqtt_sessions import MqttSessionRows
from distributor.page.rows import BrokerRows, TopicRows
from distributor.verdict.why import Why
from distributor.views import broker_view, nsqlookupd, topic_view
from distributor.views.contract_view import ContractRows, ContractView
from srtm import control
from srtm.topics import json_schema as shapes
from srtm.web.audit_entry import AuditEntry

PROBLEM = "application/problem+json"
_JSON = "application/json"
_TEXT = "text/plain"
_REFERENCE = "#/components/schemas/{name}"


class PlanView(msgspec.Struct):
    """What a submission would do; ``distributor.prediction.explanation`` adds keys that explain it."""

    state: Literal["placed", "waiting", "partial"]
    moves: int  # publishers that would go to another broker


class MeasuredPart(msgspec.Struct):
    """What was measured on one broker, at the percentile of the promise."""

    broker: str
    messages: int
    total_ms: float
    access_ms: float
    processing_ms: float
    lab_service_time_ns: int


class FittingView(msgspec.Struct):
    """How a fitting goes on; ``distributor.fitting.summary`` adds keys that explain it."""

    topic: str
    state: Literal["queued", "waiting", "running", "fits", "does not fit", "failed", "off"]
    measured: list[MeasuredPart]
    service_us: dict[str, float]


# {operation: the type of its answer; None: no body; str: text, for people and Prometheus}
ANSWERS: dict[tuple[str, str], Any] = {
    ("POST", "/v1/topics"): topic_view.TopicView,
    ("GET", "/v1/topics"): list[topic_view.TopicView],
    ("PUT", "/v1/topics/{name}"): topic_view.TopicView,
    ("PATCH", "/v1/topics/{name}"): topic_view.TopicView,
    ("GET", "/v1/topics/{name}"): topic_view.TopicView,
    ("DELETE", "/v1/topics/{name}"): None,
    ("GET", "/v1/topics/{name}/document"): dict[str, Any],
    ("GET", "/v1/topics/{name}/history"): HistoryView,
    ("GET", "/v1/topics/{name}/why"): Why,
    ("GET", "/v1/topics/{name}/decisions"): list[topic_view.DecisionView],
    ("GET", "/v1/topics/{name}/fitting"): FittingView,
    ("POST", "/v1/topics/{name}/plan"): PlanView,
    ("POST", "/v1/plan"): PlanView,
    ("POST", "/v1/topic-files"): dict[str, Any],
    ("PATCH", "/v1/topics/{name}/publishers"): topic_view.TopicView,
    ("GET", "/v1/topics/{name}/publishers"): topic_view.PublisherColumns,
    ("GET", "/v1/topics/{name}/publishers/{publisher_id}"): control.Assignment,
    ("GET", "/v1/audit"): list[AuditEntry],
    ("GET", "/v1/brokers"): list[broker_view.BrokerView],
    ("GET", "/v1/brokers/{name}"): broker_view.BrokerView,
    ("DELETE", "/v1/brokers/{name}"): None,
    ("POST", "/v1/brokers/{name}/sync"): control.SyncAnswer,
    ("POST", "/v1/brokers/{name}/history"): None,
    ("POST", "/v1/brokers/{name}/measurements/{id}"): control.MeasurementAnswer,
    ("POST", "/v1/brokers/{name}/drain"): broker_view.BrokerView,
    ("POST", "/v1/brokers/{name}/undrain"): broker_view.BrokerView,
    ("POST", "/v1/brokers/{name}/dead"): None,
    ("GET", "/v1/brokers/{name}/capacity"): broker_view.CapacityView,
    ("PUT", "/v1/brokers/{name}/capacity"): broker_view.CapacityView,
    ("DELETE", "/v1/brokers/{name}/capacity"): None,
    ("PUT", "/v1/shares"): control.ProposalResults,
    ("GET", "/v1/contracts"): list[ContractView],
    ("POST", "/v1/contracts"): list[ContractView],
    ("GET", "/v1/overview/contracts"): ContractRows,
    ("POST", "/v1/contract-files"): dict[str, Any],
    ("GET", "/v1/contracts/{namespace}/{pattern}"): ContractView,
    ("PUT", "/v1/contracts/{namespace}/{pattern}"): ContractView,
    ("DELETE", "/v1/contracts/{namespace}/{pattern}"): None,
    ("GET", "/v1/limit-nodes"): dict[str, dict[str, LimitNode]],
    ("PUT", "/v1/limit-nodes/{cluster}/{name}"): dict[str, str],
    ("DELETE", "/v1/limit-nodes/{cluster}/{name}"): None,
    ("GET", "/v1/overview/topics"): TopicRows,
    ("GET", "/v1/overview/brokers"): BrokerRows,
    ("GET", "/v1/contract-subjects/{namespace}/{pattern}"): SubjectRows,
    ("GET", "/v1/brokers/{name}/mqtt/sessions"): MqttSessionRows,
    ("GET", "/v1/brokers/{name}/mqtt/session"): control.MqttSession,
    ("DELETE", "/v1/brokers/{name}/mqtt/session"): None,
    ("GET", "/v1/history"): control.HistoryAnswer,
    ("GET", "/lookup"): control.Lookup,
    ("GET", "/topics"): nsqlookupd.LookupTopics,
    ("GET", "/channels"): nsqlookupd.LookupChannels,
    ("GET", "/nodes"): nsqlookupd.LookupNodes,
    ("GET", "/info"): nsqlookupd.LookupInfo,
    ("GET", "/ping"): str,
    ("POST", "/topic/create"): None,
    ("POST", "/topic/delete"): None,
    ("POST", "/topic/tombstone"): None,
    ("POST", "/channel/create"): None,
    ("POST", "/channel/delete"): None,
    ("GET", "/healthz"): broker_view.HealthView,
    ("GET", "/metrics"): str,
}

# {operation: the body that is sent, but for documents of operators}
_BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/v1/topic-files"): TopicFile,
    ("POST", "/v1/brokers/{name}/sync"): control.SyncRequest,
    ("POST", "/v1/brokers/{name}/dead"): control.DeadNotice,
    ("POST", "/v1/brokers/{name}/history"): control.HistoryReport,
    ("POST", "/v1/brokers/{name}/measurements/{id}"): control.MeasurementReport,
    ("PUT", "/v1/shares"): control.ShareProposals,
    ("POST", "/v1/contracts"): ContractFile,
    ("POST", "/v1/contract-files"): ContractText,
    ("PUT", "/v1/contracts/{namespace}/{pattern}"): dict[str, Any],
}

# {operation: the body that operators send}
_DOCUMENTS: dict[tuple[str, str], type[BaseModel]] = {
    ("POST", "/v1/topics"): shapes.Topic,
    ("PUT", "/v1/topics/{name}"): shapes.NamedTopic,
    ("PATCH", "/v1/topics/{name}"): shapes.Options,
    ("POST", "/v1/topics/{name}/plan"): shapes.NamedTopic,
    ("POST", "/v1/plan"): shapes.Topic,
    ("PATCH", "/v1/topics/{name}/publishers"): shapes.Change,
    ("PUT", "/v1/brokers/{name}/capacity"): shapes.Capacity,
}

_WHY = {
    400: "the request breaks a rule: `field`, `value` and `rule` say which; nothing was changed",
    401: "the request has no bearer token that is known here",
    403: "the token has another scope",
    404: "there is nothing of that name",
    409: "not possible in the present state; nothing was changed",
    408: "the body did not come in time",
    413: "the body is too large",
    502: "the answer of the broker that was asked cannot be read",
    503: "not now: the store is away, this distributor stands by (`leader`), there is no broker or it does not answer, "
    "or too much is under way (Retry-After)",
}


def describe(app: FastAPI) -> None:
    """Let ``/openapi.json`` describe every answer."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    made = get_openapi(title=app.title, version=app.version, routes=app.routes)
    refer, schemas = _schemas()
    documents, defined = shapes.schemas(_REFERENCE.replace("{name}", "{model}"))
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            key = method.upper(), path
            well = next(status for status in operation["responses"] if status.startswith("2"))
            operation["responses"] = {
                well: _answer(refer, ANSWERS.get(key, dict[str, Any])),
                **_refusals(key, operation),
            }
            if key in _BODIES:
                operation["requestBody"]["content"][_JSON]["schema"] = refer(_BODIES[key])
            elif key in _DOCUMENTS:
                operation["requestBody"]["content"][_JSON]["schema"] = documents[_DOCUMENTS[key]]
            if not is_open(path):
                operation["security"] = [{"token": []}]
                also = [scope for scope in scopes(*key) if scope != "operator"]
                operation["description"] += f"\n\nScopes: {', '.join(['operator', *also])}."
    made["components"] = {
        "schemas": {**schemas, **defined},
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    }
    return made


def _schemas() -> tuple[Callable[[Any], dict[str, Any]], dict[str, Any]]:
    kinds = [kind for kind in ANSWERS.values() if kind is not None]
    kinds += _BODIES.values()
    kinds += [control.Problem, nsqlookupd.LookupRefusal, dict[str, Any]]
    found, components = msgspec.json.schema_components(kinds, schema_hook=control.schema_of, ref_template=_REFERENCE)
    return lambda kind: found[kinds.index(kind)], components


def _answer(refer: Callable[[Any], dict[str, Any]], kind: Any) -> dict[str, Any]:
    if kind is None:
        return {"description": "done"}
    return {"description": "done", "content": {_TEXT if kind is str else _JSON: {"schema": refer(kind)}}}


def _refusals(key: tuple[str, str], operation: dict[str, Any]) -> dict[str, Any]:
    method, path = key
    ours = path.startswith("/v1/")
    statuses = {503}
    statuses |= set() if is_open(path) else {401, 403}
    statuses |= {400} if ours or operation.get("parameters") else set()
    is_of_one = "{name" in path  # or {namespace}
    statuses |= {404} if is_of_one or path in ("/lookup", "/channel/delete") else set()
    statuses |= {409} if (ours and method != "GET") or path in ("/topic/delete", "/topic/tombstone") else set()
    statuses |= {502} if "/mqtt/" in path else set()
    statuses |= {408, 413} if "requestBody" in operation else set()
    return {str(status): _refusal(status, ours) for status in sorted(statuses)}


def _refusal(status: int, ours: bool) -> dict[str, Any]:
    name, media = ("Problem", PROBLEM) if ours or status not in (400, 404) else ("LookupRefusal", _JSON)
    content = {media: {"schema": {"$ref": f"#/components/schemas/{name}"}}}
    return {"description": _WHY[status], "content": content}

"""A distributor that the test plays, for the ``srtm`` command in this process: what it answers is written down here."""

from __future__ import annotations

import json

import httpx

TOPIC = 'name = "roads"\nrate = 100\nburst = 5\n[slo]\npercentile = 99\nlatency_ms = 1\n'
REPORT = {
    "received": 12_345,
    "last_60s": {"access": {"count": 5, "p99_ms": 0.25}, "processing": {"count": 0, "p99_ms": 0.0}},
}
VIEW = {
    "name": "roads",
    "version": 3,
    "placement_version": 21,
    "rate": 100.0,
    "burst": 5.0,
    "lease": "15s",
    "slo": {"percentile": 99.0, "latency_ms": 1.0},
    "publishers": 7,
    "publishers_rate": 90.0,
    "state": "placed",
    "reason": "",
    "channels": [],
    "promise": "kept",
    "promise_reason": "last 60 s: p99 0.25 ms at broker-1, promised 1 ms",
    "brokers": [
        {
            "broker": "broker-1",
            "broker_state": "live",
            "address": "127.0.0.1:4150",
            "publishers": 7,
            "rate_assigned": 90.0,
            "rate": 100.0,
            "burst": 5.0,
            "share_version": 1,
            "applied_version": 1,
            "renewed_s_ago": 0.5,
            "report": REPORT,
        }
    ],
}
DELAYS = {"access_ms": 0.25, "processing_ms": 0.5, "total_ms": 0.625}
PREDICTED = {"method": "simulation", "seconds": 600.0, "messages": 54_000, "seed": 1, "percentile": 99.0, **DELAYS}
PENALTY = {"sum_ms": 81.0, "mean_ms": 0.0015, "p99_ms": 0.125, "one_mean_ms": 0.01, "one_p99_ms": 0.0625}
AFTERWARDS = {"brokers": [{"broker": "broker-1", "rate": 410.0}], "largest_topic": 410.0}
KEPT = {"method": "drawn", "minutes": 100, "kept": 97, "chance": 0.97, "low": 0.93, "high": 0.99}
RARELY_KEPT = {"method": "drawn", "minutes": 20, "kept": 1, "chance": 0.05, "low": 0.01, "high": 0.236}
PLAN = {
    "name": "roads",
    "rate": 100.0,
    "burst": 5.0,
    "slo": {"percentile": 99.0, "latency_ms": 1.0},
    "placement": "srtm",
    "split": "fitted",
    "publishers": 7,
    "publishers_rate": 90.0,
    "k": 1,
    "state": "placed",
    "reason": "7 publishers",
    "reasons": ["7 publishers"],
    "brokers": [
        {
            "broker": "broker-1",
            "publishers": 7,
            "groups": 3,
            "rate_assigned": 90.0,
            "rate": 100.0,
            "burst": 5.0,
            "rate_part": 1.0,
            "burst_part": 1.0,
            "service_us": 15.0,
            "service_known": "assumed",
            "free_afterwards": 410.0,
            **DELAYS,
        }
    ],
    "predicted": PREDICTED,
    "penalty": PENALTY,
    "admitted_afterwards": AFTERWARDS,
    "balanced": {
        "k": 4,
        "state": "placed",
        "predicted": {**PREDICTED, "total_ms": None},
        "penalty": {**PENALTY, "sum_ms": 5400.0},
        "admitted_afterwards": {"brokers": [{"broker": "broker-1", "rate": None}], "largest_topic": None},
    },
    "promise": {"confidence": 95.0, "predicted": True, "kept": KEPT, "one_bucket": KEPT, "even": RARELY_KEPT},
}
NOT_PROMISED = {
    **PLAN,
    "promise": {
        **PLAN["promise"],  # type: ignore[dict-item]
        "predicted": False,
        "kept": RARELY_KEPT,
        "enough": {"rate": 120.0, "burst": 9.0, "limit": None},
    },
}
FITTING = {
    "topic": "roads",
    "state": "fits",
    "method": "sequential",
    "rounds_s": None,
    "started_at": "2026-01-01T00:00:00Z",
    "took_s": 2.5,
    "certain": True,
    "brokers": 1,
    "rounds": [{"brokers": 1, "took_s": 2.0, "measured": []}],
    "measured": [
        {
            "broker": "broker-1",
            "messages": 900,
            "total_ms": 0.75,
            "access_ms": 0.25,
            "processing_ms": 0.5,
            "lab_service_time_ns": 36000,
        },
    ],
    "service_us": {"broker-1": 17.5},
    "missing": None,
    "others_worst_ms": 0.875,
    "explanation": ["fits on 1 broker"],
    "reason": "",
}
BROKER = {
    "name": "broker-1",
    "tcp_address": "127.0.0.1:4150",
    "state": "live",
    "alive": True,
    "mcap": 500.0,
    "allocated": 100.0,
}


class Distributor:
    """Answers from ``answers``, {(method, path): (status, body)}; notes what was asked."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], tuple[int, object]] = {
            ("GET", "/v1/topics"): (200, [VIEW]),
            ("GET", "/v1/topics/roads"): (200, VIEW),
            ("GET", "/v1/topics/roads/fitting"): (200, FITTING),
            ("PUT", "/v1/topics/roads"): (
                200,
                {**VIEW, "explanation": PLAN, "fitting": {**FITTING, "state": "waiting"}},
            ),
            ("DELETE", "/v1/topics/roads"): (204, None),
            ("POST", "/v1/plan"): (200, {**PLAN, "moves": 3}),
            ("GET", "/v1/brokers"): (200, [BROKER]),
        }
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[dict[str, object]] = []
        self.headers: list[httpx.Headers] = []
        self.queries: dict[tuple[str, str], dict[str, str]] = {}  # of the latest

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((request.method, request.url.path))
        self.headers.append(request.headers)
        self.queries[request.method, request.url.path] = dict(request.url.params)
        if request.content:
            self.bodies.append(json.loads(request.content))
        missing = {"title": "not found", "status": 404, "detail": "-", "field": "topic", "value": "nowhere"}
        status, body = self.answers.get((request.method, request.url.path), (404, missing))
        return httpx.Response(status) if body is None else httpx.Response(status, json=body)

    def changed(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path in self.asked if method != "GET"]

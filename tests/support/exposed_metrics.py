"""What ``/metrics`` of each service shows when it has something of everything to show."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import trio
from prometheus_client.parser import text_string_to_metric_families

from distributor.views.metrics import exposition
from limiting.api.parts import Parts
from limiting.api.subject_routes import counts_of, metrics_text
from limiting.config import LimitConfig
from limiting.contract_store import ContractStore
from limiting.nodes.decisions import Decisions
from srtm.contracts.contract import read_contract
from srtm.limiting.limiter import Limiter
from tests.support.broker_admin import Admin
from tests.support.distributor_in_process import Distributor, spec
from tests.support.topic_reports import period, report


@cache
def texts() -> dict[str, str]:
    """{service: its text}"""
    return {"distributor": trio.run(_distributor), "broker": trio.run(_broker), "limit": trio.run(_limit)}


def described() -> dict[str, list[tuple[str, str, str]]]:
    """{service: [(name, type, what it says)]}, names as rules and boards write them."""
    return {
        service: [
            (f"{family.name}_total" if family.type == "counter" else family.name, family.type, family.documentation)
            for family in text_string_to_metric_families(text)
        ]
        for service, text in texts().items()
    }


def series_names() -> set[str]:
    """Every name that a query may ask for."""
    suffixes = {"histogram": ("_bucket", "_count", "_sum")}
    return {
        f"{name}{suffix}"
        for rows in described().values()
        for name, kind, _ in rows
        for suffix in suffixes.get(kind, ("",))
    }


async def _distributor() -> str:
    with tempfile.TemporaryDirectory() as folder:
        opened = await Distributor.open(Path(folder) / "store.sqlite3")
        try:
            a, b = await opened.brokers("a", "b")
            await opened.submit(spec())
            for broker in (a, b):
                broker.reports = [report(period(1.0, 1.0, 1000))]
                await broker.settle()
            return b"".join(exposition(opened.registry, opened.syncing)).decode()
        finally:
            await opened.aclose()


async def _broker() -> str:
    admin = Admin()
    admin.engine.create_channel("cars", "archive")
    admin.engine.set_bucket("cars", 1_500_000, 3_000_000, False, 1, 1, 5, True)
    return (await admin.ask("GET", "/metrics")).body.decode()


async def _limit() -> str:
    decisions = Decisions(Limiter(clocks=lambda: (0, 0)))
    store = ContractStore(decisions)
    policy = {"name": "burst", "rate": 1, "burst": 2}
    store.put_all([read_contract({"namespace": "api", "subject": "*", "policies": [policy]})])
    await decisions.peek("api", "somebody", 1)
    parts = Parts(decisions, store, LimitConfig())
    return metrics_text(parts, list(counts_of(parts))).decode()

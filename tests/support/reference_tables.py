"""The tables of ``docs/reference.md`` that are made from the code.

``python -m tests.support.reference_tables`` writes them into the page; ``tests/test_documents.py`` fails where the page
differs.
"""

from __future__ import annotations

import inspect
import re
import tempfile
import typing
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio
from sqlalchemy import Column

from broker import events
from broker.admin.openapi import OPERATIONS
from broker.config import EngineConfig
from distributor.api.app import make_app
from distributor.storage.store import metadata
from tests.support.distributor_in_process import Distributor
from tests.support.exposed_metrics import described

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A markdown table."""
    header = list(header)
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def one_line(text: str) -> str:
    return " ".join(text.split())


def distributor_routes() -> str:
    """Method, path, scopes and purpose of each route, from the OpenAPI document."""

    async def document() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            opened = await Distributor.open(Path(folder) / "store.sqlite3")
            try:
                return make_app(opened.registry, opened.syncing).openapi()
            finally:
                await opened.aclose()

    rows = []
    for path, operations in trio.run(document)["paths"].items():
        for method, operation in operations.items():
            purpose, _, scopes = operation.get("description", "").partition("\n\nScopes: ")
            queries = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
            route = f"`{method.upper()} {path}`" + "".join(f" `?{name}=`" for name in queries)
            rows.append([route, scopes.strip(".") or "none", one_line(purpose)])
    rows.sort(key=lambda row: row[0].split()[1])
    return table(["route", "scopes", "what it does"], rows)


def broker_routes() -> str:
    """Method, path and purpose of each route of a broker's own."""
    rows = [[f"`{method} {path}`", operation.summary] for (method, path), operation in OPERATIONS.items()]
    return table(["route", "what it does"], sorted(rows, key=lambda row: row[0].split()[1]))


def engine_config() -> str:
    """Key, default and remark of each field of ``EngineConfig``."""
    remarks = dict(re.findall(r"^    (\w+): [^#\n]*  # (.*)$", inspect.getsource(EngineConfig), re.MULTILINE))
    rows = [
        [f"`{field.name}`", f"`{msgspec.json.encode(field.default).decode()}`", remarks.get(field.name, "")]
        for field in msgspec.structs.fields(EngineConfig)
    ]
    return table(["key", "default", "remark"], rows)


def engine_events() -> str:
    """Type, fields and meaning of each event of the engine."""
    rows = []
    for event in typing.get_args(events.Event):
        fields = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(event))
        rows.append([f"`{event.__struct_config__.tag}`", fields, one_line((event.__doc__ or "").replace("``", "`"))])
    return table(["type", "fields", "meaning"], rows)


def store_tables() -> str:
    """Name, key and further columns of each table of the distributor's store."""

    def names(columns: Iterable[Column[Any]]) -> str:
        return ", ".join(f"`{column.name}`" for column in columns)

    rows = [
        [
            f"`{one.name}`",
            names(one.primary_key.columns),
            names(column for column in one.columns if not column.primary_key),
        ]
        for one in metadata.sorted_tables
    ]
    return table(["table", "key", "other columns"], sorted(rows))


def metrics(service: str) -> str:
    """Name, type and meaning of each metric of a service, without those that all have."""
    rows = [
        [f"`{name}`", kind, meaning.removesuffix(".")]
        for name, kind, meaning in described()[service]
        if not name.startswith(("process_", "srtm_build_"))
    ]
    return table(["metric", "type", "meaning"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "distributor-routes": distributor_routes,
    "broker-routes": broker_routes,
    "engine-config": engine_config,
    "engine-events": engine_events,
    "store-tables": store_tables,
    "distributor-metrics": partial(metrics, "distributor"),
    "broker-metrics": partial(metrics, "broker"),
    "limit-metrics": partial(metrics, "limit"),
}


def block(name: str) -> re.Pattern[str]:
    """The table ``name`` in the page, between its markers."""
    return re.compile(rf"(?<=<!-- {name}:begin -->\n\n)(.*?)(?=\n\n<!-- {name}:end -->)", re.DOTALL)


def write_page() -> None:
    text = PAGE.read_text()
    for name, make in TABLES.items():
        made = make()
        text = block(name).sub(lambda _, made=made: made, text)
    PAGE.write_text(text)


if __name__ == "__main__":
    write_page()

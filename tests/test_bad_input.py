"""Bad input, one row a case: its error text and status, by HTTP and by the command line.

Each test checks that nothing changed. ``distributor/test_service.py`` and ``system/test_hostile.py`` send hostile
bytes. ``system/test_topic_submission.py`` sends topic files to real processes.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from distributor.api.app import make_app
from srtm.cli import main
from srtm.client.distributor import DistributorClient
from tests.support.distributor_in_process import Distributor, spec

TOPIC = {"name": "roads", "rate": 100, "burst": 5, "slo": {"percentile": 99, "latency_ms": 1}}
TWICE = [{"ids": ["a", "a"], "rates": [5, 5]}]

BAD_TOPICS: dict[str, tuple[dict[str, Any], str, str]] = {  # what is changed, the field refused, the words
    "a negative rate": ({"rate": -1}, "rate", "rate: -1: must be greater than 0"),
    "a publisher listed twice": ({"publishers": TWICE}, "publishers[0][1].id", "'a': is listed already"),
    "an unknown percentile": (
        {"slo": {"percentile": 42, "latency_ms": 1}},
        "slo.percentile",
        "slo.percentile: 42: must be one of 50, 90, 95, 99, 99.9",
    ),
    "an envelope below its publishers": (
        {"publishers": [{"count": 20, "rate": 10}]},
        "rate",
        "rate: 100.0: must be at least the publishers' rates, which sum to 200 msg/s",
    ),
    "a bad topic name": ({"name": "a b"}, "name", "name: 'a b': must be 1 to 64 of the characters"),
    "a mode that does not exist": ({"mode": "magic"}, "mode", "mode: 'magic': must be 'static', 'prop"),
    "a burst under a message": ({"burst": 0.5}, "burst", "burst: 0.5: must be a number of messages from 1"),
    "an unknown key": ({"brust": 5}, "brust", "brust: 5: no such key; did you mean 'burst'?"),
}


class Service:
    """The distributor in this process, as HTTP and the command line reach it. Each question has a trio run of its own,
    as a command has."""

    def __init__(self, folder: Path) -> None:
        self.opened: Distributor = trio.run(Distributor.open, folder / "store.sqlite3")
        trio.run(self.opened.submit, spec("cars", count=2))
        self.transport = httpx.ASGITransport(make_app(self.opened.registry, self.opened.syncing))

    def state(self) -> tuple[object, ...]:
        registry = self.opened.registry
        return registry.version, dict(registry.topics), dict(registry.brokers), dict(registry.decisions)

    def ask(self, method: str, path: str, body: bytes) -> httpx.Response:
        async def work() -> httpx.Response:
            async with httpx.AsyncClient(transport=self.transport, base_url="http://d") as client:
                return await client.request(method, path, content=body)

        return trio.run(work)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made = Service(tmp_path)
    monkeypatch.setattr(
        "srtm.console.distributor_call.DistributorClient", partial(DistributorClient, transport=made.transport)
    )
    yield made
    trio.run(made.opened.aclose)


@pytest.mark.parametrize("case", BAD_TOPICS)
def test_a_bad_topic_is_refused_by_http_and_by_the_command_line_and_changes_nothing(
    service: Service, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, field, words = BAD_TOPICS[case]
    document = {**TOPIC, **change}
    before = service.state()

    answer = service.ask("POST", "/v1/topics", json.dumps(document).encode())
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert answer.json()["field"] == field
    assert words in answer.json()["detail"]

    file = tmp_path / "bad.toml"
    file.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in document.items()))
    assert main(["topic", "submit", str(file)]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert (said.out, said.err.count("\n"), said.err[:6]) == ("", 1, "srtm: ")

    assert service.state() == before


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


# What its parser cannot bear; tests/srtm/test_toml_text.py has more.
BAD_TOML = ("a = ", "a." * 4_000 + "a = 1", "a = " + "[" * 2_000, "a = " + "9" * 5_000)

DEAD = b'{"incarnation": "1"}'


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field"),
    [
        ("GET", "/v1/brokers/nobody", b"", 404, "broker"),
        ("DELETE", "/v1/brokers/nobody", b"", 404, "broker"),
        ("POST", "/v1/brokers/nobody/dead", DEAD, 404, "broker"),
        ("GET", "/v1/topics/nowhere", b"", 404, "topic"),
        ("DELETE", "/v1/topics/nowhere", b"", 404, "topic"),
        ("PATCH", "/v1/topics/cars/publishers", b'{"remove": ["nobody"]}', 404, "publisher"),
        ("PATCH", "/v1/topics/cars/publishers", b'{"add": [{"id": "p0", "rate": 1}]}', 400, "add[0].id"),
        ("POST", "/v1/topics", b"[" * 100_000, 400, "body"),
        ("PUT", "/v1/topics/roads", b"\xff\xfe", 400, "body"),
        ("POST", "/v1/brokers/a/sync", b'{"incarnation": 5}', 400, "incarnation"),
        *(
            ("POST", path, json.dumps({"text": text}).encode(), 400, field)
            for path in ("/v1/topic-files", "/v1/contract-files")
            for text, field in [*((text, "file") for text in BAD_TOML), ("#" * (5 << 20), "text")]
        ),
    ],
)
def test_what_is_not_there_or_no_document_is_refused_and_changes_nothing(
    service: Service, method: str, path: str, body: bytes, status: int, field: str
) -> None:
    before = service.state()
    answer = service.ask(method, path, body)
    assert answer.status_code == status
    assert answer.json()["field"] == field
    assert service.state() == before


def test_a_store_that_cannot_be_reached_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["distributor", "--http-address", "127.0.0.1:0", "--store", "sqlite:////nowhere/x.sqlite3"]) == 1
    rule = "its directory must exist, and be one in which files can be made"
    said = f"srtm: store sqlite:////nowhere/x.sqlite3: unable to open database file: {rule}\n"
    assert capsys.readouterr().err == said


def test_a_port_in_use_is_said_in_one_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        store = f"sqlite:///{tmp_path / 'store.sqlite3'}"
        assert main(["distributor", "--http-address", f"127.0.0.1:{port}", "--store", store]) == 1
        assert capsys.readouterr().err == f"srtm: http_address: port {port} of 127.0.0.1 is in use by another process\n"
        command = ["up", "--brokers", "1", "--mcap", "5", "--data", str(tmp_path / "data")]
        assert main([*command, "--http-address", f"127.0.0.1:{port}"]) == 1
        assert (
            capsys.readouterr().err
            == f"srtm: http-address: '127.0.0.1:{port}': must be free; something else listens there\n"
        )
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["lock"]

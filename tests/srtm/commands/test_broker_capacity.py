"""``srtm capacity``: a file noted, a broker shown, bad input refused before anything is asked."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import httpx
import pytest

from srtm.cli import main
from srtm.client.distributor import DistributorClient

CAPACITY = {
    "mcap": 500.0,
    "slo": {"percentile": 99, "latency_ms": 1.0},
    "process": "poisson",
    "batch": 1,
    "publishers": 100,
    "measured": "2026-11-21T21:52:18+00:00",
    "source": "bench",
    "machine": {"cores": 2, "kernel": "6.1", "cpu": "Some CPU"},
    "beside": 20.0,
    "limited_by": "broker",
    "lab_service_time_ns": 33000,
    "disturbed": ["throttled by a CPU quota: 0.4 s of 10 s"],
}
VIEW = {"name": "b1", "mcap": 500.0, "mcap_stated": 600.0, "allocated": 90.0, "rcap": 410.0, "capacities": [CAPACITY]}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json=VIEW)

    client = partial(DistributorClient, transport=httpx.MockTransport(answer))
    monkeypatch.setattr("srtm.console.distributor_call.DistributorClient", client)
    monkeypatch.delenv("SRTM_DISTRIBUTOR", raising=False)
    return requests


def test_a_broker_is_shown_with_what_was_measured_how_and_what_is_left(asked, capsys) -> None:
    assert main(["capacity", "show", "b1"]) == 0
    shown = capsys.readouterr().out
    assert "b1: 500 msg/s for what it has, 600 stated; 90 allocated, 410 msg/s are left" in shown
    for part in (
        "p99 <= 1 ms",
        "throttled by a CPU quota: 0.4 s of 10 s",
        "2 cores, Some CPU, 6.1",
        "2026-11-21T21:52",
        "laboratory us",
        " 33 ",
    ):
        assert part in shown


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_file_is_noted_instead_of_measured(asked, tmp_path: Path, wrapped: bool) -> None:
    file = tmp_path / "capacity.json"
    document = {"schema": 1, "result": {"capacities": [CAPACITY]}} if wrapped else CAPACITY
    file.write_text(json.dumps(document))
    assert main(["capacity", "bench", "b1", "--from-file", str(file)]) == 0
    (request,) = asked
    assert (request.method, request.url.path) == ("PUT", "/v1/brokers/b1/capacity")
    assert json.loads(request.content) == CAPACITY


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--slo", "99"], "slo: '99': must be a percentile and a latency, like p99:1ms"),
        (["--process", "bursty"], "process: 'bursty': must be poisson or periodic"),
        (["--most", "nan"], "most: nan: must be from 1 to 1e9 msg/s"),
        (["--from-file", "/nowhere.json"], "from-file: '/nowhere.json': must be a file that can be read"),
    ],
)
def test_bad_input_is_refused_before_anything_is_asked(asked, capsys, arguments: list[str], error: str) -> None:
    assert main(["capacity", "bench", "b1", *arguments]) == 2
    assert error in capsys.readouterr().err
    assert asked == []


@pytest.mark.parametrize(("text", "field"), [("{", "from-file"), ('{"mcap": 5}', "slo"), ("[]", "document")])
def test_a_file_that_is_no_capacity_is_refused(asked, tmp_path: Path, capsys, text: str, field: str) -> None:
    file = tmp_path / "capacity.json"
    file.write_text(text)
    assert main(["capacity", "bench", "b1", "--from-file", str(file)]) == 2
    assert f"srtm: {field}: " in capsys.readouterr().err
    assert asked == []

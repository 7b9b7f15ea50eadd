"""``srtm topic penalty``: the brokers' traces, replayed; distributor and brokers are played."""

from __future__ import annotations

import json
from functools import partial

import httpx
import pytest

from srtm.cli import main
from srtm.client.distributor import DistributorClient
from srtm.errors import NotFound

PLACES = [{"broker": name, "rate": 500.0, "burst": 1.0, "share_version": 7} for name in ("x", "y")]
VIEW = {"name": "roads", "rate": 1000.0, "burst": 2.0, "brokers": PLACES}
BROKERS = [{"name": "x", "http_address": "127.0.0.1:1"}, {"name": "y", "http_address": "127.0.0.1:2"}]


def trace(*arrivals_ms: int) -> bytes:
    arrival_ns = [at * 1_000_000 for at in arrivals_ms]
    return json.dumps({"arrival_ns": arrival_ns, "due_ns": arrival_ns, "share_version": [7] * len(arrival_ns)}).encode()


TRACES = {"127.0.0.1:1": trace(0, 0, 10), "127.0.0.1:2": trace(0, 10), "10.0.0.9:2": trace(0, 10)}


class Broker:
    def __init__(self, address: str, _token: str | None) -> None:
        self.address = address

    async def trace(self, topic: str) -> bytes:
        if self.address not in TRACES:
            raise NotFound("trace", topic)
        return TRACES[self.address]

    async def aclose(self) -> None:
        pass


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    known = [dict(one) for one in BROKERS]

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=known if request.url.path == "/v1/brokers" else VIEW)

    client = partial(DistributorClient, transport=httpx.MockTransport(answer))
    monkeypatch.setattr("srtm.console.distributor_call.DistributorClient", client)
    monkeypatch.setattr("srtm.console.recordings.BrokerClient", Broker)
    return known


def test_the_penalty_is_told_as_sum_mean_and_p99_with_each_broker(brokers, capsys) -> None:
    assert main(["topic", "penalty", "roads"]) == 0
    shown = capsys.readouterr().out
    assert "roads: 5 messages in 0.01 s; DRL penalty: sum 1 ms, 0.2 ms a message; p99 1 ms more than the 1 ms" in shown
    assert "p99 from full buckets ms" in shown


def test_the_result_is_also_there_as_json(brokers, capsys) -> None:
    assert main(["topic", "penalty", "roads", "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert (result["topic"], result["messages"], result["sum_ms"], result["notes"]) == ("roads", 5, 1.0, [])
    assert [one["broker"] for one in result["brokers"]] == ["x", "y"]


def test_brokers_of_another_host_are_left_aside_and_that_is_said(brokers, capsys) -> None:
    brokers[1]["http_address"] = "10.0.0.9:2"
    assert main(["topic", "penalty", "roads"]) == 0
    shown = capsys.readouterr().out
    assert "warning: hosts do not share a clock: only what came to 127.0.0.1 is judged, not 10.0.0.9" in shown


def test_where_nothing_was_recorded_no_penalty_is_told(brokers, capsys) -> None:
    for one in brokers:
        one["http_address"] = "127.0.0.1:9"
    assert main(["topic", "penalty", "roads"]) == 0
    assert capsys.readouterr().out == ("roads: no message is on record: no penalty is known\n")


def test_where_shares_have_just_changed_the_last_minute_is_judged_by_what_was_recorded(
    brokers, capsys, monkeypatch
) -> None:
    """An adaptive mode changes shares all the time: with the shares in force then, x made every message wait 3 ms."""
    waiting = {"arrival_ns": [n * 10**9 for n in range(20)], "share_version": [6] * 19 + [7]}
    monkeypatch.setitem(
        TRACES, "127.0.0.1:1", json.dumps({**waiting, "due_ns": [n * 10**9 + 3 * 10**6 for n in range(20)]}).encode()
    )
    monkeypatch.setitem(TRACES, "127.0.0.1:2", json.dumps({**waiting, "due_ns": waiting["arrival_ns"]}).encode())
    assert main(["topic", "penalty", "roads"]) == 0
    shown = capsys.readouterr().out
    assert "roads: 40 messages in 19 s; DRL penalty: sum 60 ms, 1.5 ms a message; p99 3 ms more" in shown
    assert "warning: shares changed less than 10 s ago: these are the delays as recorded" in shown

"""``srtm topic groups``: what brokers recorded, judged, shown and applied; distributor and brokers are played."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from srtm.cli import main
from srtm.client.distributor import DistributorClient
from srtm.errors import NotFound

IDS = ["a", "b", "c", "d"]


def trace(*senders: str) -> bytes:
    """Of a broker to which ``senders`` sent: a and b at one time, c and d at times of their own."""
    rng = np.random.default_rng(1)
    common = rng.integers(0, 60 * 10**9, 300)
    alone = {"c": rng.integers(0, 60 * 10**9, 300), "d": rng.integers(0, 60 * 10**9, 300)}
    rows = [(int(at), sender) for sender in senders for at in alone.get(sender, common)]
    columns = {"publisher": [IDS.index(sender) for _, sender in rows], "arrival_ns": [at for at, _ in rows]}
    return json.dumps({"publishers": IDS, **columns, "due_ns": []}).encode()


class Cluster:
    """Two brokers with one topic; c and d are declared to fire together, a and b are not."""

    def __init__(self) -> None:
        self.http = {"one": "127.0.0.1:1", "two": "127.0.0.1:2"}
        self.traces: dict[str, bytes] = {"127.0.0.1:1": trace("a", "c"), "127.0.0.1:2": trace("b", "d")}
        self.changes: list[dict[str, Any]] = []
        self.asked = 0  # times for the fleet
        self.later = ["", "", "pair", "pair"]  # what it is the second time
        self.rates = [5.0] * 4

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PATCH":
            self.changes.append(json.loads(request.content))
            return httpx.Response(200, json={})
        if request.url.path.endswith("/publishers"):
            self.asked += 1
        groups, rates = (["", "", "pair", "pair"], [5.0] * 4) if self.asked < 2 else (self.later, self.rates)
        fleet = {"ids": IDS, "groups": groups, "rates": rates, "batches": [1, 2, 1, 1]}
        brokers = [{"name": name, "http_address": address} for name, address in self.http.items()]
        answers: dict[str, Any] = {
            "/v1/topics/roads/publishers": {**fleet, "brokers": [], "processes": ["poisson"] * 4},
            "/v1/topics/roads": {"name": "roads", "brokers": [{"broker": "one"}, {"broker": "two"}]},
            "/v1/brokers": brokers,
        }
        if request.url.path not in answers:
            return httpx.Response(404, json={"title": "not found", "status": 404, "detail": "-", "field": "topic"})
        return httpx.Response(200, json=answers[request.url.path])

    def broker(self, address: str, _token: str | None) -> Broker:
        return Broker(self.traces.get(address))


class Broker:
    def __init__(self, body: bytes | None) -> None:
        self.body = body

    async def trace(self, topic: str) -> bytes:
        if self.body is None:
            raise NotFound("trace", topic)
        return self.body

    async def aclose(self) -> None:
        pass


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    played = Cluster()
    client = partial(DistributorClient, transport=httpx.MockTransport(played.answer))
    monkeypatch.setattr("srtm.console.distributor_call.DistributorClient", client)
    monkeypatch.setattr("srtm.console.recordings.BrokerClient", played.broker)
    monkeypatch.delenv("SRTM_DISTRIBUTOR", raising=False)
    monkeypatch.delenv("SRTM_TOKEN", raising=False)
    return played


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["topic", "groups", "roads", *arguments, "--json", "-"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)["result"]
    return result


def test_declared_and_observed_groups_are_told_and_nothing_is_changed(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "groups", "roads"]) == 0
    shown = capsys.readouterr().out
    assert "4 publishers fired" in shown
    assert "warning: declared group 'pair' does not fire together" in shown
    assert "warning: 2 publishers fire together and are not declared so: a, b" in shown
    assert "4 publishers would be declared anew with --apply" in shown
    assert cluster.changes == []


def test_applying_declares_the_members_anew_with_all_that_they_had(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    result = asked(capsys, "--apply")
    assert result["changes"] == {"a": "observed-1", "b": "observed-1", "c": "", "d": ""}
    (change,) = cluster.changes
    assert sorted(change["remove"]) == IDS
    batched = {"id": "b", "rate": 5.0, "correlation_group": "observed-1", "process": "poisson", "batch": 2}
    assert change["add"][1] == batched


def test_what_somebody_changed_meanwhile_is_left_as_it_is_and_nothing_else_is_undone(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.later, cluster.rates = ["", "", "pair", "other"], [5.0, 50.0, 5.0, 5.0]
    result = asked(capsys, "--apply")
    assert result["changes"] == {"a": "observed-1", "b": "observed-1", "c": ""}
    (change,) = cluster.changes
    assert [(one["id"], one["rate"]) for one in change["add"]] == [("a", 5.0), ("b", 50.0), ("c", 5.0)]
    assert any("1 publishers were changed or removed meanwhile" in warning for warning in result["warnings"])


def test_a_broker_that_recorded_nothing_does_not_matter(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    del cluster.traces["127.0.0.1:2"]
    assert asked(capsys)["publishers"] == 2


def test_clocks_of_two_hosts_are_not_compared(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.http["two"] = "10.0.0.2:2"
    cluster.traces["10.0.0.2:2"] = trace("b")
    result = asked(capsys)
    assert result["observed"] == []
    assert result["warnings"][0] == "hosts do not share a clock: only what came to 127.0.0.1 is judged, not 10.0.0.2"


def test_a_recording_of_ones_own_is_judged_instead(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trace").write_bytes(trace("c", "d"))
    result = asked(capsys, "--trace", str(tmp_path / "trace"))
    assert result["publishers"] == 2


def test_a_recording_that_names_no_publishers_is_refused(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trace.csv").write_text("arrival_ns\n1\n2\n")
    assert main(["topic", "groups", "roads", "--trace", str(tmp_path / "trace.csv")]) == 2
    assert "must name the publisher of each arrival" in capsys.readouterr().err


def test_publishers_are_grouped_by_place_and_what_the_file_does_not_name_stays(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "places.csv"
    file.write_text("a,34.0,-118.0\nb,34.001,-118.0\nc,35.0,-118.0\nz,35.0,-118.0\n")
    result = asked(capsys, "--by-place", str(file), "--apply")
    assert result["groups"] == [{"name": "place-1", "members": ["a", "b"]}]
    assert (result["without_place"], result["not_of_the_topic"]) == (["d"], ["z"])
    assert result["changes"] == {"a": "place-1", "b": "place-1", "c": ""}
    (change,) = cluster.changes
    assert sorted(change["remove"]) == ["a", "b", "c"]
    assert main(["topic", "groups", "roads", "--by-place", str(file), "--within-km", "200"]) == 0
    shown = capsys.readouterr().out
    assert "3 publishers in 1 group within 200 km" in shown
    assert "warning: 1 publisher not in the file: left as declared" in shown
    assert "2 publishers would be declared anew with --apply" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--by-place", "nowhere.csv"], "must be a file that can be read"),
        (["--by-place", "PLACES", "--within-km", "nan"], "must be from 0.000001 to 20,000 km"),
        (["--by-place", "PLACES", "--trace", "x"], "either by place or by time"),
        (["--by-place", "BAD"], "by-place line 2.latitude: '91': must be from -90 to 90 degrees"),
    ],
)
def test_bad_places_are_refused(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    (tmp_path / "PLACES").write_text("a,34,-118\n")
    (tmp_path / "BAD").write_text("id,lat,lon\na,91,0\n")
    there = [str(tmp_path / word) if word.isupper() else word for word in arguments]
    assert main(["topic", "groups", "roads", *there]) == 2
    assert said in capsys.readouterr().err
    assert cluster.changes == []


@pytest.mark.parametrize("arguments", [["nowhere"], ["roads", "--window-ms", "0"], ["roads", "--trace", "nowhere"]])
def test_what_cannot_be_judged_is_bad_input(cluster: Cluster, arguments: list[str]) -> None:
    assert main(["topic", "groups", *arguments]) == 2
    assert cluster.changes == []


@pytest.mark.parametrize("recorded", [None, trace()])
def test_without_traffic_what_is_declared_is_shown_and_that_nothing_was_recorded(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], recorded: bytes | None
) -> None:
    cluster.traces = {} if recorded is None else dict.fromkeys(cluster.traces, recorded)
    assert main(["topic", "groups", "roads", "--apply"]) == 0
    shown = capsys.readouterr().out
    assert "declared groups: 1 (1 unknown)" in shown
    assert "pair" in shown
    assert "nothing was recorded" in shown
    assert cluster.changes == []

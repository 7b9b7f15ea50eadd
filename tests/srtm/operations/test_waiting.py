"""``srtm wait``: what counts as ready, and what is said to be missing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
import trio.testing

from srtm.cli import main
from srtm.client.distributor import DistributorClient
from srtm.cluster.cluster_file import BrokerPlace, ClusterFile, write_cluster
from srtm.errors import BadInput, Unavailable
from srtm.operations.waiting import look_at, missing_brokers, until_ready
from tests.support.played_distributor import Distributor


def broker(name: str, state: str = "live") -> dict[str, object]:
    alive = state in ("live", "draining")
    return {
        "name": name,
        "state": state,
        "alive": alive,
        "dead": state == "dead",
        "draining": state in ("draining", "drained"),
    }


@pytest.fixture(autouse=True)
def asked(distributor: Distributor, monkeypatch: pytest.MonkeyPatch) -> Distributor:
    client = partial(DistributorClient, transport=httpx.MockTransport(distributor.answer))
    monkeypatch.setattr("srtm.operations.waiting.DistributorClient", client)
    return distributor


@pytest.mark.parametrize(
    ("views", "wanted", "count", "missing"),
    [
        ([], [], None, "no broker is live"),
        ([broker("b1")], [], None, ""),
        ([broker("b1"), broker("b2", "dead"), broker("b3", "drained")], [], None, ""),
        ([broker("b1"), broker("b2", "silent")], [], None, "1 of 2 brokers are live; missing: b2"),
        ([broker("b1"), broker("b2", "silent")], [], 1, ""),
        ([broker("b1"), broker("b2", "silent")], [], 2, "1 of 2 brokers are live; b2 is silent"),
        ([broker("b1")], ["b1", "b2"], None, "1 of 2 brokers are live; missing: b2"),
        ([broker("b1"), broker("old", "silent")], ["b1"], None, ""),
        ([broker("b1", "draining")], [], None, "no broker is live; b1 is draining"),
        ([], [], 0, ""),
    ],
)
def test_ready_is_when_no_broker_is_missing(
    views: list[dict[str, object]], wanted: Sequence[str], count: int | None, missing: str
) -> None:
    assert missing_brokers(views, wanted, count) == missing


async def test_what_is_missing_last_is_said_at_the_timeout(autojump_clock: trio.testing.MockClock) -> None:
    async def look() -> tuple[list[str], str]:
        return [], "b2 is silent"

    with pytest.raises(Unavailable, match="not ready within 5 s: b2 is silent"):
        await until_ready(look, 5)
    assert trio.current_time() == pytest.approx(5)


async def test_it_returns_as_soon_as_nothing_is_missing(autojump_clock: trio.testing.MockClock) -> None:
    answers = iter([([], "no broker is live"), (["b1"], "b2"), (["b1", "b2"], "")])

    async def look() -> tuple[list[str], str]:
        return next(answers)

    assert await until_ready(look, 60) == ["b1", "b2"]
    assert trio.current_time() < 1


async def test_with_data_the_brokers_of_the_cluster_file_are_wanted(distributor: Distributor, tmp_path: Path) -> None:
    distributor.answers["GET", "/v1/brokers"] = (200, [broker("broker-1"), broker("gone", "silent")])
    look = partial(look_at, brokers=None, data=tmp_path, urls=None, token=None)
    assert (await look())[1] == f"`srtm up` does not run: {tmp_path}/cluster.json is not there"
    places = [BrokerPlace(name=f"broker-{n}", tcp_address="127.0.0.1:1", http_address="127.0.0.1:2") for n in (1, 2)]
    stopped = ClusterFile(distributor="http://127.0.0.1:4190", brokers=places)
    write_cluster(tmp_path, stopped)
    assert (await look())[1].endswith("cluster.json says that it is stopped")
    write_cluster(tmp_path, ClusterFile(distributor="http://127.0.0.1:4190", brokers=places, pid=1))
    assert (await look())[1] == "1 of 2 brokers are live; missing: broker-2"


async def test_a_token_that_does_not_suffice_is_said_at_once(distributor: Distributor) -> None:
    problem = {"title": "forbidden", "status": 403, "detail": "-", "field": "Authorization", "value": "-", "rule": "no"}
    distributor.answers["GET", "/v1/brokers"] = (403, problem)
    with pytest.raises(BadInput, match="no"):
        await look_at(brokers=None, data=None, urls=None, token=None)


def test_the_command_ends_with_0_when_ready_and_1_after_the_timeout(
    distributor: Distributor, capsys: pytest.CaptureFixture[str]
) -> None:
    distributor.answers["GET", "/v1/brokers"] = (200, [broker("b1")])
    assert main(["wait"]) == 0
    assert capsys.readouterr().out == "ready: b1\n"
    assert main(["wait", "--brokers", "2", "--timeout", "0.1"]) == 1
    assert capsys.readouterr().err == "srtm: not ready within 0.1 s: 1 of 2 brokers are live\n"
    assert main(["wait", "--brokers", "-1"]) == 2

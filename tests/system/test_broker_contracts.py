"""Publishers under contracts, through real processes: submitted at the distributor, enforced by brokers."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from srtm.client.distributor import DistributorClient
from srtm.client.publisher import Publisher
from srtm.cluster.supervisor import Cluster, cluster
from srtm.errors import PublishRefused
from srtm.net.address import parse_peer
from tests.system.running import srtm, topic_file

pytestmark = pytest.mark.slow

CONTRACTS = """
[[contracts]]
namespace = "per-sensor"
subject = "*"
policies = [{ name = "burst", rate = 0.01, burst = 3 }]
"""


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Cluster]:
    with trio.fail_after(60):
        async with cluster(brokers=2, mcap=600, data=tmp_path / "data") as made:
            yield made


async def run(*arguments: str, at: Cluster) -> Any:
    ended = await srtm(*arguments, "--json", "-", distributor=at.distributor)
    assert (ended.returncode, ended.stderr) == (0, b""), ended
    return json.loads(ended.stdout)["result"]


async def submitted(folder: Path, at: Cluster, contracts: str = CONTRACTS) -> None:
    """The contracts and a topic of 10 publishers that are under them, on both brokers."""
    file = folder / "contracts.toml"
    file.write_text(contracts)
    await run("limit", "contract", "submit", str(file), at=at)
    topic = topic_file(folder, "roads", publishers=10, rate_each=90, rate=1000)
    topic.write_text(topic.read_text() + 'contract = "per-sensor"\n')
    assert (await run("topic", "submit", str(topic), at=at))["state"] == "placed"


async def let_through(publisher: Publisher, most: int) -> tuple[int, PublishRefused | None]:
    """How many of ``most`` messages are taken before the first refusal, and that."""
    for number in range(most):
        try:
            await publisher.publish(b"x")
        except PublishRefused as refused:
            return number, refused
    return most, None


def post(address: str, target: str) -> tuple[int, dict[str, str]]:
    connection = HTTPConnection(*parse_peer("address", address), timeout=10)
    try:
        connection.request("POST", target, b"x")
        answer = connection.getresponse()
        answer.read()
        return answer.status, dict(answer.getheaders())
    finally:
        connection.close()


async def test_each_publisher_is_held_to_its_contract_by_nsq_and_http(running: Cluster, tmp_path: Path) -> None:
    await submitted(tmp_path, running)
    for publisher_id in ("roads-0", "roads-9"):
        async with Publisher("roads", publisher_id, distributor=running.distributor) as publisher:
            taken, refused = await let_through(publisher, 5)
        assert taken == 3
        assert refused is not None
        assert refused.retry_after_ms is not None
        assert 90_000 < refused.retry_after_ms <= 100_000
        assert "contract per-sensor" in str(refused)
    place = running.brokers[0]
    answers = [post(place.http_address, "/pub?topic=roads&publisher=undeclared") for _ in range(4)]
    assert [status for status, _ in answers] == [200, 200, 200, 429]
    headers = answers[3][1]
    assert re.fullmatch("9[0-9]|100", headers["Retry-After"])
    assert headers["X-SRTM-Contract"] == "per-sensor"
    async with httpx.AsyncClient(trust_env=False) as http:
        stats = (await http.get(f"http://{place.http_address}/stats?format=json")).json()
        metrics = (await http.get(f"http://{place.http_address}/metrics")).text
    (policy,) = stats["contracts"][0]["policies"]
    assert policy["refused"] >= 1
    assert f'contract_refused_total{{namespace="per-sensor",policy="burst",subject="*"}} {policy["refused"]}' in metrics


async def test_a_contract_changes_live_and_a_shadow_only_counts(running: Cluster, tmp_path: Path) -> None:
    await submitted(tmp_path, running)
    async with (
        DistributorClient(running.distributor) as client,
        Publisher("roads", "roads-1", distributor=running.distributor) as publisher,
    ):
        assert (await let_through(publisher, 9))[0] == 3
        await run("limit", "contract", "set", "per-sensor", "*", "shadow=true", at=running)
        while (await let_through(publisher, 1))[0] == 0:  # noqa: ASYNC110  (another process has it)
            await trio.sleep(0.05)  # the brokers' long poll brings it
        assert await let_through(publisher, 5) == (5, None)
        while sum(one["refused"] for one in (await client.contract("per-sensor", "*"))["counts"]) < 7:  # noqa: ASYNC110
            await trio.sleep(0.05)  # the next report has it
        refused = await srtm("limit", "contract", "remove", "per-sensor", "*", distributor=running.distributor)
        assert refused.returncode == 1
        assert b"topic 'roads'" in refused.stderr


async def test_the_heaviest_subjects_of_a_contract_are_told_by_its_brokers(running: Cluster, tmp_path: Path) -> None:
    await submitted(tmp_path, running)
    near, far = (place.http_address for place in running.brokers)
    for address, name, times in ((near, "one", 300), (far, "one", 200), (far, "two", 150)):
        for _ in range(times):
            post(address, f"/pub?topic=roads&publisher={name}")
    async with httpx.AsyncClient(trust_env=False) as http:
        target = f"{running.distributor}/v1/contract-subjects/per-sensor/*"
        while len((found := (await http.get(target)).json())["asked"]) < 2:  # noqa: ASYNC110  (other processes)
            await trio.sleep(0.05)  # the next reports name the brokers
    one, two = found["rows"]
    assert [(row["subject"], row["brokers"], row["remaining"]) for row in (one, two)] == [
        ("one", 2, {"burst": 0}),
        ("two", 1, {"burst": 0}),
    ]
    assert one["checks"] > two["checks"]
    assert found["silent"] == {}


async def test_a_topic_names_only_contracts_that_are_there(running: Cluster, tmp_path: Path) -> None:
    unknown = topic_file(tmp_path, "parks", publishers=1, rate_each=1, rate=10, more='contracts = { tenant = "acme" }')
    refused = await srtm("topic", "submit", str(unknown), distributor=running.distributor)
    assert refused.returncode == 2
    assert b"contracts.tenant" in refused.stderr
    await submitted(tmp_path, running)
    shown = await run("limit", "contract", "show", at=running)
    assert [(one["namespace"], one["subject"]) for one in shown] == [("per-sensor", "*")]


async def test_a_publisher_of_two_brokers_has_one_replicated_contract(running: Cluster, tmp_path: Path) -> None:
    """It sends 3 times what its contract allows, by turns to both brokers."""
    rate, warm_s, seconds = 50.0, 2.5, 4.0
    policies = f'policies = [{{ name = "burst", rate = {rate}, burst = 20 }}]'
    contracts = f'[[contracts]]\nnamespace = "per-sensor"\nsubject = "*"\nmode = "replicated"\n{policies}\n'
    await submitted(tmp_path, running, contracts)
    clients = [httpx.AsyncClient(base_url=f"http://{place.http_address}", trust_env=False) for place in running.brokers]
    accepted: list[float] = []
    sent: list[float] = []
    async with clients[0], clients[1]:
        began_s = trio.current_time()
        while (now_s := trio.current_time() - began_s) < warm_s + seconds:
            answer = await clients[len(sent) % 2].post("/pub?topic=roads&publisher=moving", content=b"x")
            sent.append(now_s)
            if answer.status_code == 200:
                accepted.append(now_s)
            await trio.sleep(1 / (3 * rate))
    took, offered = (sum(at >= warm_s for at in times) for times in (accepted, sent))  # they know one another by then
    allowed = rate * seconds
    assert took <= allowed + rate * 1.0, "and what one takes while news is on its way, on a busy machine"
    assert took >= 0.8 * min(allowed, offered)

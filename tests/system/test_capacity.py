"""The benchmarking phase on a real broker of a real cluster, of which the laboratory knows what it carries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from srtm.client.distributor import DistributorClient
from srtm.cluster.supervisor import cluster
from srtm.net.http_client import HttpClient
from tests.system.running import srtm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_a_broker_of_1000_msg_s_is_found_to_carry_hardly_more_and_is_left_as_it_was(tmp_path: Path) -> None:
    # A promise so long that only the queue of the virtual server breaks it, whatever else this machine does.
    ask = ["capacity", "bench", "broker-1", "--slo", "p99:400ms", "--seconds", "2", "--most", "8000", "--json", "-"]
    with trio.fail_after(110):
        async with cluster(
            brokers=1, mcap=5000, data=tmp_path / "data", broker_options=["--lab-service-time", "1000"]
        ) as running:
            ended = await srtm(*ask, distributor=running.distributor)
            assert ended.returncode == 0, ended.stderr
            async with DistributorClient(running.distributor) as client:
                known = await client.capacity("broker-1")
            http = HttpClient(f"http://{running.brokers[0].http_address}")
            _, stats = await http.request("GET", "/stats?format=json", timeout_s=5)
            await http.aclose()
    result = json.loads(ended.stdout)["result"]
    assert result["capacities"] == known["capacities"]
    (capacity,) = known["capacities"]
    # Beyond 1,000 msg/s the queue grows by the excess: after 2 s of 1,250 msg/s the last ones wait 400 ms.
    assert 250 <= capacity["mcap"] <= 2000
    assert known["mcap"] == capacity["mcap"]
    assert (capacity["lab_service_time_ns"], capacity["source"]) == (1_000_000, "bench")
    assert capacity["machine"]["cores"] >= 1
    assert json.loads(stats)["topics"] == []

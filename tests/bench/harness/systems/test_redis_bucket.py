"""A bucket in Redis, by its own protocol."""

import pytest
import trio

from bench.harness.systems.peer_servers import ALL, program_path
from bench.harness.systems.redis_bucket import RedisBucket, encoded, measured


def test_a_command_is_an_array_of_bulk_strings_with_their_lengths_in_bytes():
    assert encoded("GET", "kä") == "*2\r\n$3\r\nGET\r\n$3\r\nkä\r\n".encode()


@pytest.mark.slow
@pytest.mark.skipif(program_path("redis-server") is None, reason="redis-server is not installed")
async def test_the_script_delays_exactly_what_finds_no_token_and_its_cost_is_measured(tmp_path):
    def ask(address: str) -> tuple[list[float], list[float], list[float]]:
        with RedisBucket(address, "one", rate=10.0, burst=2.0) as bucket:
            return bucket.decide(5.0, count=4), bucket.decide(5.15), bucket.decide(100.0)

    async with ALL["redis"].start(tmp_path / "redis") as server:
        at_once, later, full = await trio.to_thread.run_sync(ask, server.tcp_address)
        cost = await trio.to_thread.run_sync(measured, server.tcp_address)
    assert at_once == pytest.approx([0.0, 0.0, 0.1, 0.2])
    assert later == pytest.approx([0.15])
    assert full == [0.0]
    assert min(cost.decision_ns, cost.round_trip_ns) > 0

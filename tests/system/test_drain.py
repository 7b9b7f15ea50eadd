"""``srtm drain`` on real processes: a broker leaves, and every message that was accepted is delivered."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from bench.harness.systems.systems import free_addresses
from srtm.client.broker import BrokerClient
from srtm.client.distributor import DistributorClient
from srtm.cluster.supervisor import cluster
from srtm.errors import BadInput
from srtm.topics.file import read_topic_file
from tests.support.broker_process import Process, Subscriber, broker
from tests.support.other_process import WAIT_S
from tests.system.running import Traffic, receiving, srtm, topic_file

pytestmark = pytest.mark.slow


def drain(running: Process, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "srtm", "drain", "--broker", f"127.0.0.1:{running.http}", *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kept", [(), ("--mem-queue-size", "1")], ids=["in-memory", "on-disk"])
def test_a_broker_alone_delivers_what_it_has_refuses_the_rest_and_stops(tmp_path: Path, kept: tuple[str, ...]) -> None:
    with broker(tmp_path, *kept) as running:
        for body in (b"1", b"2", b"3"):
            assert running.ask("POST", "/pub?topic=t", body)[0] == 200
        draining = drain(running)
        assert draining.stderr is not None
        assert draining.stderr.readline() == "b1: 3 messages left (3 queued); topic t has no channel\n"
        status, refusal = running.ask_json("POST", "/pub?topic=t", "4")
        assert (status, refusal["message"]) == (503, "broker b1 is draining: publish to another one")
        subscriber = Subscriber(running.tcp, "t", "c")  # consumers may still come
        assert [subscriber.body() for _ in range(3)] == [b"1", b"2", b"3"]
        said, _ = draining.communicate(timeout=WAIT_S)
        assert (draining.returncode, said) == (0, "b1 is drained and stops\n")
        assert running.wait_ended() == 0
        subscriber.close()
        assert running.has_said("drained")


def test_a_broker_that_requires_tls_is_drained_by_its_https_port(tmp_path: Path) -> None:
    certificates = Path(__file__).resolve().parents[1] / "certificates"
    address = free_addresses()[0]
    flags = ["--https-address", address, "--tls-required", "true"]
    flags += ["--tls-cert", str(certificates / "distributor.pem"), "--tls-key", str(certificates / "distributor.key")]
    with broker(tmp_path, *flags) as running:
        plain = drain(running)
        assert "TLS_REQUIRED" in plain.communicate(timeout=WAIT_S)[1]
        assert plain.returncode == 1
        command = [sys.executable, "-m", "srtm", "drain", "--broker", f"https://{address}"]
        told = [*command, "--ca-file", str(certificates / "distributor.pem")]
        strangers = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert strangers.returncode == 1
        assert "its certificate is from nobody who is trusted here" in strangers.stderr
        drained = subprocess.run(told, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert (drained.returncode, drained.stdout) == (0, "b1 is drained and stops\n")
        assert running.wait_ended() == 0


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:1", "https://127.0.0.1", "https://127.0.0.1:1/path", "https://:4152"])
def test_an_address_that_is_none_is_refused_by_its_name(url: str) -> None:
    with pytest.raises(BadInput, match="broker: "):
        BrokerClient(url)


def test_a_broker_that_is_drained_stops_at_once_when_told_to(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        assert running.ask("POST", "/pub?topic=t", b"1")[0] == 200
        draining = drain(running)
        assert draining.stderr is not None
        assert "1 messages left" in draining.stderr.readline()
        assert running.wait_ended(signal.SIGTERM) == 0
        _, said = draining.communicate(timeout=WAIT_S)
        assert draining.returncode == 1
        assert "ended before it was drained" in said


def test_a_drain_that_takes_too_long_says_what_is_left_and_goes_on(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        assert running.ask("POST", "/pub?topic=t", b"1")[0] == 200
        draining = drain(running, "--timeout", "0.5")
        _, said = draining.communicate(timeout=WAIT_S)
        assert draining.returncode == 1
        assert "not drained within 0.5 s, and draining on: b1: 1 messages left" in said
        assert running.ask_json("GET", "/v1/drain")[1]["state"] == "draining"


async def test_a_member_leaves_under_load_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    file = topic_file(tmp_path, "roads", publishers=8, rate_each=50, rate=1000)
    ended = trio.Event()

    def tell(line: str) -> None:
        assert "stays so: it was asked to" in line
        ended.set()

    with trio.fail_after(55):
        async with (
            cluster(brokers=2, mcap=2000, data=tmp_path / "data", tell=tell) as running,
            DistributorClient(running.distributor) as client,
        ):
            await client.create_or_change_topic("roads", read_topic_file(file))
            (place,) = (await client.topic("roads"))["brokers"]  # the fewest brokers: all of it is on one
            (other,) = [one for one in running.brokers if one.name != place["broker"]]
            ids = [f"roads-{number}" for number in range(1, 9)]
            traffic = Traffic("roads", client)
            async with receiving("roads", running.distributor) as received:
                async with trio.open_nursery() as nursery:
                    for one in ids:
                        nursery.start_soon(traffic.run, one)
                    await traffic.wait_for_more(ids, 10)

                    done = await srtm("drain", place["broker"], distributor=running.distributor)
                    assert (done.returncode, done.stdout) == (0, f"{place['broker']} is drained and stops\n".encode())
                    await ended.wait()  # and it is not started again
                    await traffic.wait_for_more(ids, 5)
                    (now,) = (await client.topic("roads"))["brokers"]
                    nursery.cancel_scope.cancel()
                await received.wait_for([body for bodies in traffic.accepted.values() for body in bodies])
    assert (now["broker"], now["publishers"], now["rate"], now["burst"]) == (other.name, 8, 1000.0, 50.0)
    assert [one.pid for one in running.brokers if one.name == place["broker"]] == [None]
    assert set(received.bodies.values()) == {1}


async def test_a_member_whose_load_nobody_can_take_is_not_drained(tmp_path: Path) -> None:
    file = topic_file(tmp_path, "roads", publishers=8, rate_each=50, rate=1000)
    with trio.fail_after(40):
        async with cluster(brokers=1, mcap=2000, data=tmp_path / "data") as running:
            async with DistributorClient(running.distributor) as client:
                await client.create_or_change_topic("roads", read_topic_file(file))
            refused = await srtm("drain", "broker-1", distributor=running.distributor)
    assert refused.returncode == 1
    assert b"no room for: roads 400 msg/s; --force drains it anyway" in refused.stderr

"""A topic from its file to its messages, through real processes: submitted, placed, published, received, moved,
refused."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from subprocess import PIPE

import httpx
import pytest
import trio

from srtm.client.distributor import DistributorClient
from srtm.client.publisher import Publisher
from srtm.cluster.supervisor import Cluster, cluster
from tests.system.running import publish_all, receiving, srtm, topic_file

pytestmark = pytest.mark.slow


@pytest.fixture
async def two_brokers(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Each may be given 600 msg/s."""
    with trio.fail_after(50):
        async with cluster(brokers=2, mcap=600, data=tmp_path / "data") as running:
            yield running


async def submit(file: Path, running: Cluster) -> dict[str, object]:
    ended = await srtm("topic", "submit", str(file), "--json", "-", distributor=running.distributor)
    assert (ended.returncode, ended.stderr) == (0, b"")
    view: dict[str, object] = json.loads(ended.stdout)["result"]
    return view


async def test_what_its_publishers_send_by_their_brokers_arrives_once_at_the_subscriber(
    two_brokers: Cluster, tmp_path: Path
) -> None:
    file = topic_file(tmp_path, "roads", publishers=10, rate_each=90, rate=1000)  # more than one broker may have
    view = await submit(file, two_brokers)
    assert view["state"] == "placed"
    async with DistributorClient(two_brokers.distributor) as client:
        assigned = await client.publishers("roads")
    assert len(set(assigned["brokers"])) == 2
    addresses = {broker.name: broker.tcp_address for broker in two_brokers.brokers}
    used: dict[str, str] = {}

    async def publish(publisher_id: str) -> None:
        bodies = [f"{publisher_id} {number}".encode() for number in range(20)]
        used[publisher_id] = await publish_all("roads", publisher_id, two_brokers.distributor, bodies)

    async with receiving("roads", two_brokers.distributor) as received:
        async with trio.open_nursery() as nursery:
            for publisher_id in assigned["ids"]:
                nursery.start_soon(publish, publisher_id)
        wanted = [f"{publisher_id} {number}".encode() for publisher_id in assigned["ids"] for number in range(20)]
        await received.wait_for(wanted)
    assert used == {name: addresses[broker] for name, broker in zip(assigned["ids"], assigned["brokers"], strict=True)}
    assert received.bodies == dict.fromkeys(wanted, 1)
    assert set(received.brokers) == set(addresses.values())


async def test_the_same_file_again_changes_nothing_and_what_is_removed_is_gone(
    two_brokers: Cluster, tmp_path: Path
) -> None:
    file = topic_file(tmp_path, "roads", publishers=4, rate_each=10, rate=50)
    first = await submit(file, two_brokers)
    again = await submit(file, two_brokers)
    assert again["version"] == first["version"]
    removed = await srtm("topic", "remove", "roads", distributor=two_brokers.distributor)
    assert (removed.returncode, removed.stdout) == (0, b"removed roads\n")
    shown = await srtm("topic", "show", "roads", distributor=two_brokers.distributor)
    assert (shown.returncode, shown.stderr) == (2, b"srtm: topic 'roads' is not known here\n")


async def until_series(topic: str, running: Cluster, *, are_there: bool) -> None:
    """Until each broker has series of ``topic``, or none has."""
    async with httpx.AsyncClient() as client:
        while True:
            answers = [await client.get(f"http://{broker.http_address}/metrics") for broker in running.brokers]
            if {f'topic="{topic}"' in answer.text for answer in answers} == {are_there}:
                return
            await trio.sleep(0.05)


async def test_a_topic_that_is_removed_leaves_no_series_at_brokers_that_hold_nothing_of_it(
    two_brokers: Cluster, tmp_path: Path
) -> None:
    await submit(topic_file(tmp_path, "roads", publishers=10, rate_each=90, rate=1000), two_brokers)  # both have a part
    await until_series("roads", two_brokers, are_there=True)
    removed = await srtm("topic", "remove", "roads", distributor=two_brokers.distributor)
    assert removed.returncode == 0
    await until_series("roads", two_brokers, are_there=False)


async def test_publishers_whose_assignment_changed_are_told_to_move_and_lose_nothing(
    two_brokers: Cluster, tmp_path: Path
) -> None:
    """One broker is enough at first; the changed file spreads the publishers over both."""
    await submit(topic_file(tmp_path, "roads", publishers=8, rate_each=10, rate=100), two_brokers)
    async with DistributorClient(two_brokers.distributor) as client:
        before = await client.publishers("roads")
        assert len(set(before["brokers"])) == 1
        sent: list[bytes] = []
        arrived: dict[str, str] = {}
        home: dict[str, str] = {}  # known once the topic has changed

        async def publish_until_all_are_home(publisher_id: str) -> None:
            async with Publisher("roads", publisher_id, distributor=client) as publisher:
                number = 0
                while arrived != home:
                    body = f"{publisher_id} {number}".encode()
                    await publisher.publish(body)
                    sent.append(body)
                    number += 1
                    arrived[publisher_id] = publisher.address or ""
                    await trio.sleep(0.02)

        async with receiving("roads", two_brokers.distributor) as received:
            async with trio.open_nursery() as nursery:
                for publisher_id in before["ids"]:
                    nursery.start_soon(publish_until_all_are_home, publisher_id)
                more = 'placement = "lb"'
                await submit(
                    topic_file(tmp_path, "roads", publishers=8, rate_each=10, rate=100, more=more), two_brokers
                )
                home.update(await homes(client, two_brokers))
                assert len(set(home.values())) == 2
            await received.wait_for(sent)
        assert received.bodies == dict.fromkeys(sent, 1)


async def homes(client: DistributorClient, running: Cluster) -> dict[str, str]:
    addresses = {broker.name: broker.tcp_address for broker in running.brokers}
    assigned = await client.publishers("roads")
    return {name: addresses[broker] for name, broker in zip(assigned["ids"], assigned["brokers"], strict=True)}


HEAD = 'name = "bad"\nrate = 100\nburst = 5\n[slo]\npercentile = 99\nlatency_ms = 1\n'
BAD_FILES = {
    "a negative rate": (HEAD.replace("rate = 100", "rate = -1"), "rate: -1"),
    "an unknown percentile": (HEAD.replace("99", "42"), "slo.percentile: 42"),
    "a burst under one message": (HEAD.replace("burst = 5", "burst = 0.5"), "burst: 0.5"),
    "a bad topic name": (HEAD.replace('"bad"', '"a b"'), "name: 'a b'"),
    "an unknown field": (HEAD.replace("burst", "brust = 1\nburst"), "brust: "),
    "a mode that does not exist": (HEAD.replace("[slo]", 'mode = "best"\n[slo]'), "mode: 'best'"),
    "a publisher listed twice": (HEAD + '[[publishers]]\ncsv = "twice.csv"\n', "publishers"),
    "an envelope below its publishers": (HEAD + "[[publishers]]\ncount = 20\nrate = 10\n", "rate: 100"),
}


async def test_a_bad_topic_file_is_refused_by_field_value_and_rule_and_nothing_is_changed(
    two_brokers: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "twice.csv").write_text("id,rate,correlation_group\na,5,\na,5,\n")
    await submit(topic_file(tmp_path, "good", publishers=2, rate_each=10, rate=50), two_brokers)
    before = await srtm("topic", "list", "--json", "-", distributor=two_brokers.distributor)
    for why, (contents, message) in BAD_FILES.items():
        (tmp_path / "bad.toml").write_text(contents)
        ended = await srtm("topic", "submit", str(tmp_path / "bad.toml"), distributor=two_brokers.distributor)
        said = ended.stderr.decode()
        assert ended.returncode == 2, (why, said)
        assert said.startswith(f"srtm: {message}"), (why, said)
        assert said.count("\n") == 1, (why, said)
    after = await srtm("topic", "list", "--json", "-", distributor=two_brokers.distributor)
    assert names_and_versions(after.stdout) == names_and_versions(before.stdout)


def names_and_versions(listed: bytes) -> list[tuple[str, int]]:
    return [(view["name"], view["version"]) for view in json.loads(listed)["result"]]


async def test_lines_published_by_the_command_are_printed_by_the_command(two_brokers: Cluster, tmp_path: Path) -> None:
    await submit(topic_file(tmp_path, "lines", publishers=1, rate_each=10, rate=50), two_brokers)
    lines = b"one\ntwo\n\nthree\n"
    published = await srtm("publish", "lines", "--id", "nobody", distributor=two_brokers.distributor, stdin=lines)
    assert (published.returncode, published.stderr) == (0, b"published 3\n")
    printed = await srtm("subscribe", "lines", "tail", "--count", "3", distributor=two_brokers.distributor)
    assert (printed.returncode, printed.stdout) == (0, b"one\ntwo\nthree\n")


async def test_ctrl_c_ends_a_publish_that_waits_for_lines(two_brokers: Cluster, tmp_path: Path) -> None:
    await submit(topic_file(tmp_path, "lines", publishers=1, rate_each=10, rate=50), two_brokers)
    async with receiving("lines", two_brokers.distributor) as received, trio.open_nursery() as nursery:
        process = await start(nursery, "publish", "lines", "--id", "nobody", "--distributor", two_brokers.distributor)
        assert process.stdin is not None
        await process.stdin.send_all(b"one\n")
        await received.wait_for([b"one"])  # so it waits for the second line now
        await interrupt(process)


async def test_ctrl_c_ends_a_subscribe_that_waits_for_messages(two_brokers: Cluster, tmp_path: Path) -> None:
    await submit(topic_file(tmp_path, "lines", publishers=1, rate_each=10, rate=50), two_brokers)
    await publish_all("lines", "nobody", two_brokers.distributor, [b"one"])
    async with trio.open_nursery() as nursery:
        process = await start(nursery, "subscribe", "lines", "tail", "--distributor", two_brokers.distributor)
        assert process.stdout is not None
        assert await process.stdout.receive_some() == b"one\n"  # so it waits for the second message now
        await interrupt(process)


async def start(nursery: trio.Nursery, *arguments: str) -> trio.Process:
    command = [sys.executable, "-m", "srtm", *arguments]
    run = partial(trio.run_process, command, stdin=PIPE, stdout=PIPE, stderr=PIPE, check=False)
    process: trio.Process = await nursery.start(run)
    return process


async def interrupt(process: trio.Process) -> None:
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 130
    assert process.stderr is not None
    assert await process.stderr.receive_some() == b""

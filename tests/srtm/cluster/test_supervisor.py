"""The supervisor's parts that need no cluster: ports, the cluster file, the lock, one child's life. Whole clusters:
tests/system."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import httpx
import msgspec
import pytest
import trio
import trio.testing

from srtm.client.distributor import DistributorClient
from srtm.cluster.cluster_file import (
    BrokerPlace,
    ClusterFile,
    parse_ports,
    pick_addresses,
    read_cluster,
    write_cluster,
)
from srtm.cluster.ready_file import ReadyFile
from srtm.cluster.supervisor import (
    Child,
    Cluster,
    _is_undrained,
    _kept_addresses,
    _not_ready,
    _tell_of_missing,
    _tell_of_moved,
    cluster,
    keep_logs_short,
)
from srtm.errors import BadInput, Conflict, Unavailable
from srtm.net.address import parse_peer
from srtm.net.http_server import Response
from tests.support.http_server import serve_http

PLACE = BrokerPlace(name="broker-1", tcp_address="127.0.0.1:1", http_address="127.0.0.1:2", pid=5)


def test_picked_addresses_differ_and_lie_below_the_ephemeral_ports() -> None:
    lowest_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    picked = pick_addresses(20, {})
    assert len(set(picked)) == 20
    assert all(parse_peer("address", address)[1] < max(lowest_ephemeral, 11_000) for address in picked)


def test_an_address_that_is_drawn_twice_is_picked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (parse_peer("address", address)[1] for address in pick_addresses(2, {}))
    monkeypatch.setattr("random.SystemRandom.sample", lambda _self, _ports, k: [one, other])
    assert pick_addresses(2, {}) == [f"127.0.0.1:{one}", f"127.0.0.1:{other}"]


def test_kept_addresses_are_used_again_unless_something_listens_there() -> None:
    first, second = pick_addresses(2, {})
    with socket.create_server(parse_peer("address", second)):
        again = pick_addresses(2, {0: first, 1: second})
    assert again[0] == first
    assert again[1] != second
    assert pick_addresses(2, {0: first, 1: second}) == [first, second]


def test_the_lowest_free_of_given_ports_are_picked_and_kept_ones_first() -> None:
    free = sorted(parse_peer("address", address)[1] for address in pick_addresses(3, {}))
    ports = range(free[0], free[2] + 1)
    picked = pick_addresses(2, {1: f"127.0.0.1:{free[0]}"}, ports)
    assert picked[1] == f"127.0.0.1:{free[0]}"
    assert free[0] < parse_peer("address", picked[0])[1] <= free[2]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (port,) = [taken.getsockname()[1]]
        with pytest.raises(Unavailable, match=f"ports: too few are free on 127.0.0.1 in {port} to {port}"):
            pick_addresses(1, {}, range(port, port + 1))


def test_addresses_outside_the_given_ports_are_not_kept() -> None:
    last = ClusterFile(distributor="http://127.0.0.1:3", brokers=[PLACE])
    assert _kept_addresses(last, 1, None) == {0: "127.0.0.1:3", 1: "127.0.0.1:1", 2: "127.0.0.1:2"}
    assert _kept_addresses(last, 1, range(2, 9)) == {0: "127.0.0.1:3", 2: "127.0.0.1:2"}


def test_a_broker_at_another_address_than_last_time_is_told_of() -> None:
    told: list[str] = []
    spoken = msgspec.structs.replace(PLACE, http_address="127.0.0.1:9", mqtt_address="127.0.0.1:7")
    _tell_of_moved([PLACE], [PLACE, spoken], told.append)
    assert told == []
    _tell_of_moved([PLACE], [spoken], told.append)
    assert told == ["broker-1 has 127.0.0.1:9 instead of 127.0.0.1:2, which is taken or outside --ports"]


@pytest.mark.parametrize("text", ["4150", "4170-4150", "0-5", "1-65536", "a-b", "-5", "5-", "1-2-3", "٣-٤"])
def test_what_is_no_range_of_ports_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"ports: .*must be FIRST-LAST, such as 4150-4170"):
        parse_ports(text)
    assert parse_ports("4150-4151") == range(4150, 4152)


async def test_fewer_ports_than_two_a_broker_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="ports: '4150-4152': must be at least 4 ports"):
        async with cluster(brokers=2, mcap=1, data=tmp_path, ports=range(4150, 4153)):
            pytest.fail("it was entered")


def test_a_ready_file_is_there_while_the_cluster_is_ready_and_a_left_one_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    path.write_text("of a run that was killed")
    ready = ReadyFile(path)
    assert path.exists()  # it may be that of another cluster, until the directory is locked
    ready.remove()
    assert not path.exists()
    written = ClusterFile(distributor="http://127.0.0.1:3", brokers=[PLACE])
    with ready.present(written):
        assert msgspec.json.decode(path.read_bytes(), type=ClusterFile) == written
    assert not path.exists()
    with pytest.raises(BadInput, match=r"ready_file: .*must be a file in a directory that exists"):
        ReadyFile(tmp_path / "no" / "ready")


def test_the_cluster_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    assert read_cluster(tmp_path) is None
    written = ClusterFile(distributor="http://127.0.0.1:3", brokers=[PLACE], pid=7, distributor_pid=6)
    write_cluster(tmp_path, written)
    assert read_cluster(tmp_path) == written


def test_a_file_that_is_no_cluster_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("[]")
    with pytest.raises(BadInput, match=r"data: '.*cluster.json': must hold a cluster file"):
        read_cluster(tmp_path)
    assert (tmp_path / "cluster.json").read_text() == "[]"


@pytest.mark.parametrize("address", ["", "host", ":1", "host:", "host:x", "host:65536", "host:-1", "host:²"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match="tcp-address: "):
        parse_peer("tcp-address", address)


@pytest.fixture
def held_directory(tmp_path: Path) -> Iterator[Path]:
    """Locked by a process that is not this one."""
    program = (
        "import fcntl, sys; lock = open(sys.argv[1], 'w'); fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield tmp_path
        holder.kill()


async def test_a_directory_that_another_supervisor_holds_is_refused_and_left_alone(held_directory: Path) -> None:
    with pytest.raises(Conflict, match="is in use by another srtm up"):
        async with cluster(brokers=1, mcap=100, data=held_directory):
            pytest.fail("it was entered")
    assert os.listdir(held_directory) == ["lock"]  # noqa: PTH208 - a directory of this test, no reason for a thread


async def test_a_port_in_use_is_refused_by_name(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Conflict, match=f"http-address: '{address}': must be free"):
            async with cluster(brokers=1, mcap=100, data=tmp_path, http_address=address):
                pytest.fail("it was entered")


def child_running(program: str, data: Path) -> Child:
    child = Child("child", [], data, print)
    child._command = [sys.executable, "-c", program]
    return child


async def status_when_cancelled(child: Child) -> int | None:
    """Of one that has said "up"."""
    process = child.start()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child.run, process)
            assert _first_line(child.log) == "up\n"
            nursery.cancel_scope.cancel()
    return process.returncode


@pytest.mark.slow
async def test_a_child_that_ends_by_itself_is_noticed_with_its_status_and_last_words(tmp_path: Path) -> None:
    child = child_running("print('port in use'); raise SystemExit(3)", tmp_path)
    with trio.fail_after(20):
        await child.run(child.start())
    assert (child.ended, child.last_words(), child.pid) == ("ended with status 3", "port in use", None)


def test_the_last_words_of_a_long_log_are_found_at_its_end(tmp_path: Path) -> None:
    child = child_running("", tmp_path)
    with child.log.open("wb") as log:
        log.truncate(1 << 40)  # sparse: whoever reads all of it ends here
        log.seek(0, os.SEEK_END)
        log.write(b"\nport in use\n")
    assert child.last_words() == "port in use"


async def test_a_log_that_became_long_is_begun_anew_and_the_process_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    monkeypatch.setattr("srtm.cluster.supervisor.LONGEST_LOG_BYTES", 10)
    told: list[str] = []
    child = Child("distributor", [], tmp_path, told.append)
    older = tmp_path / "distributor.log.1"
    with child.log.open("ab", buffering=0) as log:  # as the process has it
        log.write(b"ten bytes\n")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_logs_short, [child])
            await trio.sleep(60)
            assert not older.exists()
            log.write(b"more\n")
            await trio.sleep(60)
            assert (older.read_bytes(), child.log.read_bytes()) == (b"ten bytes\nmore\n", b"")
            log.write(b"new\n")
            assert child.log.read_bytes() == b"new\n"
            nursery.cancel_scope.cancel()
    child.log.unlink()
    child.shorten_log()
    assert told == []
    older.unlink()
    older.mkdir()
    child.log.write_bytes(b"eleven bytes")
    child.shorten_log()
    assert told == [f"{child.log} is long and cannot be begun anew (Is a directory)"]


@pytest.mark.slow
async def test_cancelling_ends_the_child_with_sigterm(tmp_path: Path) -> None:
    program = "import time; print('up', flush=True); time.sleep(60)"
    assert await status_when_cancelled(child_running(program, tmp_path)) == -signal.SIGTERM


@pytest.mark.slow
async def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srtm.cluster.supervisor.STOP_GRACE_S", 0.1)
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    assert await status_when_cancelled(child_running(program, tmp_path)) == -signal.SIGKILL


@pytest.mark.slow
def test_a_child_dies_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    """The supervisor here is a process that starts a child and hangs; the child says its id once its lifeline holds."""
    child = (
        "import os, time; from srtm.cluster import parent_death; parent_death.hold()\n"
        "print(os.getpid(), flush=True); time.sleep(60)"
    )
    supervisor = (
        "import sys, time\nfrom pathlib import Path\nfrom srtm.cluster.supervisor import Child\n"
        f"child = Child('child', [], Path({str(tmp_path)!r}), print)\n"
        f"child._command = [sys.executable, '-c', {child!r}]\n"
        "child.start()\ntime.sleep(60)\n"
    )
    started = subprocess.Popen([sys.executable, "-c", supervisor])
    with started:
        descriptor = os.pidfd_open(int(_first_line(tmp_path / "child.log")))
        started.kill()
        ended, _, _ = select.select([descriptor], [], [], 20)
    os.close(descriptor)
    assert ended


def _first_line(log: Path) -> str:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if log.exists() and (line := log.read_text()).endswith("\n"):
            return line
        time.sleep(0.01)
    pytest.fail(f"nothing came into {log}")


def test_a_child_whose_supervisor_is_already_gone_does_not_stay() -> None:
    program = "from srtm.cluster import parent_death; parent_death.hold(); print('stayed')"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "SRTM_SUPERVISOR_PID": "1"},
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, b"")


class PlayedCluster:
    """A cluster of broker-1 alone; ``answers`` are those of its distributor, to one question after the other."""

    brokers = (PLACE,)

    def __init__(self, **answers: list[tuple[int, object]]) -> None:
        self.told: list[str] = []
        self.tell = self.told.append
        self._answers = {path: iter(each) for path, each in answers.items()}

    def _answer(self, request: httpx.Request) -> httpx.Response:
        status, body = next(self._answers[request.url.path.split("/")[-1].replace("-", "_")])
        return httpx.Response(status, json=body)

    def client(self, timeout_s: float) -> DistributorClient:
        return DistributorClient(transport=httpx.MockTransport(self._answer), timeout_s=timeout_s)


NOT_FOUND = (404, {"title": "not found", "status": 404, "detail": "-", "field": "broker", "value": "broker-1"})
AWAY = (503, {"title": "unavailable", "status": 503, "detail": "the store is away"})


@pytest.mark.parametrize(
    ("answers", "starts_again"),
    [
        ([(200, {"draining": True}), AWAY, (200, {"draining": True}), (200, {"draining": False})], True),
        ([(200, {"draining": False})], False),  # it was stopped, not drained
        ([(200, {"draining": True}), NOT_FOUND], False),
    ],
)
async def test_a_drained_broker_is_started_again_once_its_drain_is_taken_back(
    autojump_clock: trio.testing.MockClock, answers: list[tuple[int, object]], starts_again: bool
) -> None:
    running = PlayedCluster(broker_1=answers)
    assert await _is_undrained(cast(Cluster, running), "broker-1") is starts_again


async def test_brokers_of_an_earlier_run_that_are_not_started_are_told_of() -> None:
    known = [
        {"name": "broker-1", "alive": True, "dead": False},
        {"name": "broker-2", "alive": False, "dead": True},
        {"name": "broker-3", "alive": False, "dead": False},
    ]
    topics = [{"brokers": [{"broker": "broker-3", "publishers": 7}, {"broker": "broker-1", "publishers": 2}]}]
    running = PlayedCluster(brokers=[(200, known)], topics=[(200, topics)])
    await _tell_of_missing(cast(Cluster, running))
    (line,) = running.told
    assert line.startswith("broker-3 is known from an earlier run and is not started; 7 publishers belong there.")


async def test_a_broker_that_still_refuses_messages_is_not_ready() -> None:
    # The distributor has answered its first sync; the answer is not in force there yet.
    said = iter([Response(500, b"it does not know which topics are limited"), Response(200, b"OK")])

    async def ping(_request: object) -> Response:
        await trio.lowlevel.checkpoint()
        return next(said)

    running = PlayedCluster(brokers=[(200, [{"name": "broker-1", "alive": True}])] * 3)
    async with trio.open_nursery() as nursery, running.client(1) as client:
        address = await serve_http(nursery, ping)
        running.brokers = (msgspec.structs.replace(PLACE, http_address=address),)
        assert await _not_ready(cast(Cluster, running), client) == ["broker-1"]
        assert await _not_ready(cast(Cluster, running), client) == []
        running.brokers = (msgspec.structs.replace(PLACE, http_address=pick_addresses(1, {})[0]),)
        assert await _not_ready(cast(Cluster, running), client) == []  # it may speak TLS alone
        nursery.cancel_scope.cancel()

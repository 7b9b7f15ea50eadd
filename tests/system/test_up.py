"""``srtm up`` as its operator meets it: starts, says so, restarts on the same ports, stops clean, is killed, is
refused."""

from __future__ import annotations

import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest

from srtm.cluster.cluster_file import ClusterFile, present_boot, read_cluster, write_cluster
from tests.support.file_modes import OWNER_ALONE, modes, no_umask
from tests.support.ports import pick_addresses, port_of

pytestmark = pytest.mark.slow
PATIENCE_S = 25


@contextmanager
def up(data: Path, address: str, brokers: int = 2, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs ``srtm up``; ready when the block begins, gone when it ends."""
    command = [sys.executable, "-m", "srtm", "up", "--brokers", str(brokers), "--mcap", "500"]
    command += ["--data", str(data), "--http-address", address, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            assert line.startswith(f"ready: distributor http://{address}, broker-1 "), line
            yield process
        finally:
            process.kill()


def state_of(data: Path) -> ClusterFile:
    state = read_cluster(data)
    assert state is not None
    return state


def children_of(state: ClusterFile) -> list[int]:
    return [pid for pid in (state.distributor_pid, *(broker.pid for broker in state.brokers)) if pid is not None]


def wait_gone(pids: list[int]) -> None:
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready, _, _ = select.select([descriptor], [], [], PATIENCE_S)
        os.close(descriptor)
        assert ready, f"process {pid} is still there"


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_stops_everything_and_the_status_says_which(tmp_path: Path, sent: signal.Signals, status: int) -> None:
    (address,) = pick_addresses(1)
    with up(tmp_path, address) as process:
        running = state_of(tmp_path)
        assert running.pid == process.pid
        assert len(children_of(running)) == 3
        process.send_signal(sent)
        assert process.wait(PATIENCE_S) == status
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert not any(exists(pid) for pid in children_of(running))
    stopped = state_of(tmp_path)
    assert (stopped.pid, children_of(stopped)) == (None, [])


def test_a_cluster_whose_host_was_started_again_takes_its_brokers_for_dead(tmp_path: Path) -> None:
    """Else they would be refused: no lock is known to be the one of another kernel."""
    (address,) = pick_addresses(1)
    with up(tmp_path, address, 1) as process:
        promise = {"percentile": 99, "latency_ms": 5}
        topic = {"name": "cars", "rate": 100, "burst": 10, "slo": promise, "publishers": [{"count": 5, "rate": 10}]}
        httpx.post(f"http://{address}/v1/topics", json=topic).raise_for_status()
        first = httpx.get(f"http://{address}/v1/brokers/broker-1").json()["incarnation"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    write_cluster(tmp_path, msgspec.structs.replace(state_of(tmp_path), boot="another"))
    with sqlite3.connect(tmp_path / "store.sqlite3") as store:
        (claims,) = store.execute("SELECT claims FROM brokers").fetchone()
        store.execute("UPDATE brokers SET claims = ?", [claims.replace(present_boot(), "another")])
    store.close()
    with up(tmp_path, address, 1):
        assert httpx.get(f"http://{address}/v1/brokers/broker-1").json()["incarnation"] > first
        httpx.get(f"http://{address}/v1/topics/cars").raise_for_status()


def test_started_again_it_listens_where_it_did(tmp_path: Path) -> None:
    (address,) = pick_addresses(1)
    places = []
    for brokers in (2, 3):
        with up(tmp_path, address, brokers) as process:
            places.append([(one.name, one.tcp_address, one.http_address) for one in state_of(tmp_path).brokers])
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
    assert places[1][:2] == places[0]
    assert len(places[1]) == 3


def test_its_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    (address,) = pick_addresses(1)
    with no_umask(), up(tmp_path, address, 1, "--tokens"):
        found = modes(tmp_path)
    assert found.keys() >= {"cluster.json", "lock", "distributor.log", "broker-1.log", "store.sqlite3", "tokens"}
    assert "broker-1/srtm.incarnation" in found
    assert set(found.values()) == {OWNER_ALONE}


def test_its_ports_are_those_that_are_given_and_scripts_learn_when_it_is_ready(tmp_path: Path) -> None:
    (address,) = pick_addresses(1)
    given = [port_of(each) for each in pick_addresses(20)]
    ready = tmp_path / "ready"
    ports = range(min(given), max(given) + 1)
    with up(
        tmp_path / "data", address, 2, "--ports", f"{ports.start}-{ports.stop - 1}", "--ready-file", str(ready)
    ) as it:
        state = state_of(tmp_path / "data")
        chosen = [int(each.rpartition(":")[2]) for one in state.brokers for each in (one.tcp_address, one.http_address)]
        assert set(chosen) <= set(ports)
        assert [one.name for one in msgspec.json.decode(ready.read_bytes(), type=ClusterFile).brokers] == [
            "broker-1",
            "broker-2",
        ]
        assert run("wait", "--data", str(tmp_path / "data"), "--timeout", "20").returncode == 0
        it.terminate()
        assert it.wait(PATIENCE_S) == 0
    assert not ready.exists()
    waited = run("wait", "--data", str(tmp_path / "data"), "--timeout", "0.2")
    assert (waited.returncode, b"says that it is stopped" in waited.stderr) == (1, True)


def test_with_mqtt_the_line_names_its_ports_which_are_kept_and_without_it_there_are_none(tmp_path: Path) -> None:
    (address,) = pick_addresses(1)
    places = []
    for options in (["--mqtt"], ["--mqtt"], []):
        with up(tmp_path, address, 2, *options) as process:
            places.append(state_of(tmp_path).brokers)
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
    first, second, without = places
    assert [one.mqtt_address for one in second] == [one.mqtt_address for one in first]
    assert len({one.mqtt_address for one in first} - {None}) == 2
    assert [one.mqtt_address for one in without] == [None, None]
    assert [one.tcp_address for one in without] == [one.tcp_address for one in first]


def test_a_second_one_on_the_same_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    (address,) = pick_addresses(1)
    with up(tmp_path, address) as first:
        before = (tmp_path / "cluster.json").read_bytes()
        command = [sys.executable, "-m", "srtm", "up", "--brokers", "1", "--mcap", "5", "--data", str(tmp_path)]
        second = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
        assert second.returncode == 1
        assert second.stderr.decode() == (
            f"srtm: data: {str(tmp_path)!r}: is in use by another srtm up; stop that one or choose another directory\n"
        )
        assert first.poll() is None
        assert (tmp_path / "cluster.json").read_bytes() == before


def test_when_it_is_killed_its_processes_end_too(tmp_path: Path) -> None:
    (address,) = pick_addresses(1)
    with up(tmp_path, address) as process:
        children = children_of(state_of(tmp_path))
        process.kill()
        wait_gone(children)


def test_a_process_that_dies_is_told_on_the_terminal_and_started_again(tmp_path: Path) -> None:
    (address,) = pick_addresses(1)
    with up(tmp_path, address) as process:
        victim = state_of(tmp_path).brokers[0].pid
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        why = f"broker-1 was ended by signal 9 and is started again (see {tmp_path / 'broker-1.log'})"
        assert re.fullmatch(rf"up \d{{4}}-\d\d-\d\dT[\d:.]+Z WARNING: {re.escape(why)}\n", said)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr.read() == b""


def test_a_broker_that_cannot_start_is_said_with_its_last_words(tmp_path: Path) -> None:
    (address,) = pick_addresses(1)
    (tmp_path / "broker-1").write_text("a file where its data directory should be")
    command = [sys.executable, "-m", "srtm", "up", "--brokers", "1", "--mcap", "5", "--data", str(tmp_path)]
    ended = subprocess.run([*command, "--http-address", address], capture_output=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 2
    assert ended.stderr.decode().startswith(f"srtm: data: '{tmp_path}/broker-1': must be a directory")


def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SRTM_")}
    command = [sys.executable, "-m", "srtm", *arguments]
    return subprocess.run(command, capture_output=True, timeout=PATIENCE_S, env=environment, check=False)


def test_with_tokens_each_scope_may_do_its_part_and_strangers_nothing(tmp_path: Path) -> None:
    (address,) = pick_addresses(1)
    url = ["--distributor", f"http://{address}"]
    with up(tmp_path, address, 1, "--tokens"):
        files = {
            whose: ["--token-file", str(tmp_path / f"{whose}.token")] for whose in ("operator", "broker-1", "client")
        }
        assert run("status", *url, *files["operator"]).returncode == 0
        stranger = run("status", *url)
        assert (stranger.returncode, stranger.stdout) == (2, b"")
        assert b"asks for a token that it knows" in stranger.stderr
        client = run("status", *url, *files["client"])
        assert (client.returncode, client.stdout) == (2, b"")
        assert b"the token of 'client' has the scope client; this needs operator" in client.stderr
        # A broker's own HTTP knows operators too.
        (broker,) = state_of(tmp_path).brokers
        drain = run("drain", "--broker", broker.http_address, *files["operator"])
        assert b"is a member of a cluster" in drain.stderr
        assert b"needs operator" in run("drain", "--broker", broker.http_address, *files["client"]).stderr

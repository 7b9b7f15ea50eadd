"""What only real processes show: a subscriber that is stopped, and a disk that is full."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.attacks import MAGIC, command
from bench.systems import free_addresses
from srtm.address import parse_address
from tests.support.other_process import WAIT_S, ask_http, wait_until

pytestmark = pytest.mark.slow
pytest.importorskip("srtm._native", reason="the extension is not built (make build)")

HEARTBEAT = b'{"heartbeat_interval": 1000}'
HIGH_WATER = 1 << 20  # of unsent messages to one consumer
SUBSCRIBER = """
import socket, sys
host, port = sys.argv[1].split(":")
connection = socket.create_connection((host, int(port)))
connection.sendall(bytes.fromhex(sys.argv[2]))
while data := connection.recv(65536):
    if b"_heartbeat_" in data:
        connection.sendall(b"NOP\\n")
    print("read", flush=True)
"""


class Broker:
    """``wrapped``: what starts the command that is given behind it."""

    def __init__(self, folder: Path, data: Path, *options: str, wrapped: Sequence[str] = ()) -> None:
        self.tcp_address, self._http_address = free_addresses()
        self.log = folder / "log"
        arguments = ["-m", "broker", "--name", "b", "--data-path", str(data), *options]
        arguments += ["--tcp-address", self.tcp_address, "--http-address", self._http_address]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*wrapped, sys.executable, *arguments], stderr=log)

    def ping(self) -> str:
        return self.get("/ping")

    def get(self, path: str) -> str:
        port = parse_address("http_address", self._http_address)[1]
        try:
            return ask_http(port, "GET", path)[1].decode()
        except ConnectionRefusedError:
            return ""

    def metric(self, name: str) -> float:
        lines = self.get("/metrics").splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def channel(self, topic: str) -> dict[str, Any]:
        found = json.loads(self.get(f"/stats?format=json&topic={topic}"))["topics"][0]["channels"][0]
        assert isinstance(found, dict)
        return found

    def connect(self, greeting: bytes = MAGIC) -> Connection:
        return Connection(self.tcp_address, greeting)

    def publish(self, topic: str, body: bytes) -> bytes:
        """The answer."""
        with self.connect() as connection:
            connection.send(command(b"PUB " + topic.encode(), body))
            return connection.frame()[1]


class Connection:
    def __init__(self, address: str, greeting: bytes) -> None:
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=WAIT_S)
        self._stream = self._socket.makefile("rb")
        self.address = "{}:{}".format(*self._socket.getsockname())
        self.send(greeting)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frame(self) -> tuple[int, bytes]:
        """Its type and what is in it."""
        size = int.from_bytes(self._stream.read(4), "big")
        frame = self._stream.read(size)
        assert len(frame) == size > 0, "the connection was closed"
        return int.from_bytes(frame[:4], "big"), frame[4:]

    def bodies(self, count: int) -> list[bytes]:
        """So many messages, finished."""
        bodies: list[bytes] = []
        while len(bodies) < count:
            kind, frame = self.frame()
            if kind == 2:
                self.send(b"FIN %b\n" % frame[10:26])
                bodies.append(frame[26:])
            elif frame == b"_heartbeat_":
                self.send(b"NOP\n")
        return bodies


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(stack: ExitStack, folder: Path, data: Path, *options: str, wrapped: Sequence[str] = ()) -> Broker:
    broker = Broker(folder, data, *options, wrapped=wrapped)
    stack.callback(broker.process.wait)
    stack.callback(broker.process.kill)
    wait_until("the broker answers", lambda: broker.ping() != "")
    return broker


def subscription(topic: bytes) -> bytes:
    return MAGIC + command(b"IDENTIFY", HEARTBEAT) + b"SUB %b c\nRDY 2500\n" % topic


def test_a_stopped_subscriber_is_cut_and_told_of_after_its_heartbeat_and_others_get_what_it_had(
    stack: ExitStack, tmp_path: Path
) -> None:
    broker = started(stack, tmp_path, tmp_path)
    asked = [sys.executable, "-c", SUBSCRIBER, broker.tcp_address, subscription(b"t").hex()]
    subscriber = subprocess.Popen(asked, stdout=subprocess.PIPE)
    stack.enter_context(subscriber)
    stack.callback(subscriber.kill)
    assert subscriber.stdout is not None
    assert subscriber.stdout.readline() == b"read\n"
    subscriber.send_signal(signal.SIGSTOP)

    bodies = [b"%06d" % number + b"x" * 50_000 for number in range(400)]
    with broker.connect() as publisher:
        for body in bodies:
            publisher.send(command(b"PUB t", body))
            assert publisher.frame()[1] == b"OK"
    unread = [broker.metric("srtm_broker_unread_bytes")]
    while broker.channel("t")["client_count"]:
        unread.append(broker.metric("srtm_broker_unread_bytes"))
    assert max(unread) <= HIGH_WATER + len(bodies[0]) + 100
    assert broker.metric("srtm_broker_memory_bytes") < 1.1 * sum(map(len, bodies))
    channel = broker.channel("t")
    assert (channel["depth"], channel["in_flight_count"]) == (len(bodies), 0)
    assert broker.metric('srtm_broker_limits_met_total{limit="slow_reader"}') == 1
    wait_until("the log says so", lambda: "a client that reads nothing was cut off" in broker.log.read_text())

    with broker.connect(subscription(b"t")) as other:
        assert sorted(other.bodies(len(bodies))) == bodies
    assert broker.process.poll() is None


def test_a_subscriber_that_is_stopped_without_messages_is_cut_and_told_of_as_silent(
    stack: ExitStack, tmp_path: Path
) -> None:
    broker = started(stack, tmp_path, tmp_path)
    silent = stack.enter_context(broker.connect(subscription(b"t")))
    wait_until("it is cut", lambda: broker.metric('srtm_broker_limits_met_total{limit="silent_client"}') == 1)
    said = "a client that said nothing for two heartbeats was cut off"
    wait_until("the log says so", lambda: said in broker.log.read_text())
    assert silent.address in broker.log.read_text()
    assert broker.ping() == "OK"


SMALL = "640k"  # of the disk
BALLAST_BYTES = 300_000
MOUNT = f'mount -t tmpfs -o size={SMALL} none "$0" && head -c {BALLAST_BYTES} /dev/zero > "$0/ballast" && exec "$@"'


def own_mounts() -> list[str]:
    """What starts a command with mounts of its own. Skips where nobody may have some."""
    for command_line in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        probe = [*command_line, "sh", "-c", "mount -t tmpfs none /tmp"]
        if shutil.which("unshare") and subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return command_line
    pytest.skip("a full disk needs a mount namespace (unshare --mount), which this user may not have")


def test_a_full_disk_is_told_to_the_publisher_and_the_broker_goes_on_when_there_is_room(
    stack: ExitStack, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    wrapped = [*own_mounts(), "sh", "-c", MOUNT, str(disk)]
    options = ["--mem-queue-size", "0", "--max-bytes-per-file", "64k"]
    broker = started(stack, tmp_path, disk, *options, wrapped=wrapped)
    kept: list[bytes] = []
    answer = b"OK"
    for number in range(200):
        body = b"%04d" % number + b"x" * 10_000
        answer = broker.publish("t", body)
        if answer != b"OK":
            break
        kept.append(body)
    assert answer.startswith(b"E_PUB_FAILED PUB failed write "), answer
    assert b"No space left on device" in answer
    assert kept, "the disk had room at first"

    wait_until("it is told", lambda: broker.ping().startswith("NOK - "))
    assert "messages cannot be written" in broker.log.read_text()
    assert broker.publish("memory#ephemeral", b"x") == b"OK", "what needs no disk goes on"
    assert broker.process.poll() is None

    Path(f"/proc/{broker.process.pid}/root{disk}/ballast").unlink()
    body = b"again" + b"x" * 10_000
    wait_until("there is room again", lambda: broker.publish("t", body) == b"OK")
    wait_until("it is well", lambda: broker.ping() == "OK")
    assert "messages can be written again" in broker.log.read_text()
    with broker.connect(subscription(b"t")) as subscriber:
        assert subscriber.bodies(len(kept) + 1) == [*kept, body], "what was acknowledged is there, and nothing else"

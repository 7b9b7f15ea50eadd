"""What only real processes show: a subscriber that is stopped, and a disk that is full."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.comparisons.hostile.attacks import MAGIC, command
from tests.support.broker_process import Process, broker
from tests.support.other_process import WAIT_S, wait_until

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


class Connection:
    def __init__(self, running: Process, greeting: bytes = MAGIC) -> None:
        self._socket = socket.create_connection(("127.0.0.1", running.tcp), timeout=WAIT_S)
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


def publish(running: Process, topic: bytes, body: bytes) -> bytes:
    """The answer."""
    with Connection(running) as connection:
        connection.send(command(b"PUB " + topic, body))
        return connection.frame()[1]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def subscription(topic: bytes) -> bytes:
    return MAGIC + command(b"IDENTIFY", HEARTBEAT) + b"SUB %b c\nRDY 2500\n" % topic


def test_a_stopped_subscriber_is_cut_and_told_of_after_its_heartbeat_and_others_get_what_it_had(
    stack: ExitStack, tmp_path: Path
) -> None:
    running = stack.enter_context(broker(tmp_path))
    asked = [sys.executable, "-c", SUBSCRIBER, f"127.0.0.1:{running.tcp}", subscription(b"t").hex()]
    subscriber = subprocess.Popen(asked, stdout=subprocess.PIPE)
    stack.enter_context(subscriber)
    stack.callback(subscriber.kill)
    assert subscriber.stdout is not None
    assert subscriber.stdout.readline() == b"read\n"
    subscriber.send_signal(signal.SIGSTOP)

    bodies = [b"%06d" % number + b"x" * 50_000 for number in range(400)]
    with Connection(running) as publisher:
        for body in bodies:
            publisher.send(command(b"PUB t", body))
            assert publisher.frame()[1] == b"OK"
    unread = [running.metric("srtm_broker_unread_bytes")]
    while running.topic("t")["channels"][0]["client_count"]:
        unread.append(running.metric("srtm_broker_unread_bytes"))
    assert max(unread) <= HIGH_WATER + len(bodies[0]) + 100
    assert running.metric("srtm_broker_memory_bytes") < 1.1 * sum(map(len, bodies))
    channel = running.topic("t")["channels"][0]
    assert (channel["depth"], channel["in_flight_count"]) == (len(bodies), 0)
    assert running.metric('srtm_broker_limits_met_total{limit="slow_reader"}') == 1
    wait_until("the log says so", lambda: running.has_said("a client that reads nothing was cut off"))

    with Connection(running, subscription(b"t")) as other:
        assert sorted(other.bodies(len(bodies))) == bodies
    assert running.process.poll() is None


def test_a_subscriber_that_is_stopped_without_messages_is_cut_and_told_of_as_silent(
    stack: ExitStack, tmp_path: Path
) -> None:
    running = stack.enter_context(broker(tmp_path))
    silent = stack.enter_context(Connection(running, subscription(b"t")))
    wait_until("it is cut", lambda: running.metric('srtm_broker_limits_met_total{limit="silent_client"}') == 1)
    said = "a client that said nothing for two heartbeats was cut off"
    wait_until("the log says so", lambda: running.has_said(said))
    assert running.has_said(silent.address)
    assert running.ask("GET", "/ping") == (200, b"OK")


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
    running = stack.enter_context(broker(disk, *options, wrapped=wrapped))
    kept: list[bytes] = []
    answer = b"OK"
    for number in range(200):
        body = b"%04d" % number + b"x" * 10_000
        answer = publish(running, b"t", body)
        if answer != b"OK":
            break
        kept.append(body)
    assert answer.startswith(b"E_PUB_FAILED PUB failed write "), answer
    assert b"No space left on device" in answer
    assert kept, "the disk had room at first"

    wait_until("it is told", lambda: running.ask("GET", "/ping")[1].startswith(b"NOK - "))
    wait_until("the log says so", lambda: running.has_said("messages cannot be written"))
    assert publish(running, b"memory#ephemeral", b"x") == b"OK", "what needs no disk goes on"
    assert running.process.poll() is None

    Path(f"/proc/{running.process.pid}/root{disk}/ballast").unlink()
    body = b"again" + b"x" * 10_000
    wait_until("there is room again", lambda: publish(running, b"t", body) == b"OK")
    wait_until("it is well", lambda: running.ask("GET", "/ping") == (200, b"OK"))
    wait_until("it is told", lambda: running.has_said("messages can be written again"))
    with Connection(running, subscription(b"t")) as subscriber:
        assert subscriber.bodies(len(kept) + 1) == [*kept, body], "what was acknowledged is there, and nothing else"

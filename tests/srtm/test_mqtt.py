"""``srtm.mqtt.Publisher`` against a scripted broker: what it says, sends again, waits for, and refuses."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue

import pytest

from srtm.client.handover import READ_S
from srtm.errors import BadInput, Closed, Misuse, NotFound, PublishRefused, Unavailable

pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
from srtm import mqtt

PATIENCE_S = 10.0


class Broker:
    """Accepts connections of 5.0 and answers each PUBLISH as the script says: PUBACK's reason code and properties, or a
    packet that ends the connection, or nothing. ``came``: what was published, with the time."""

    def __init__(self, script: Callable[[int], bytes | None] = lambda _number: b"") -> None:
        self.came: Queue[tuple[bytes, float]] = Queue()
        self.connects: Queue[bytes] = Queue()
        self._script, self._number = script, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                self._serve(connection, stream)

    def _serve(self, connection: socket.socket, stream) -> None:
        while head := stream.read(2):
            body = stream.read(head[1])  # no packet here is longer than 127 bytes
            match head[0] >> 4:
                case 1:
                    self.connects.put(body)
                    connection.sendall(bytes([0x20, 8, 0, 0, 5, 0x27, 0, 0, 0, 100]))  # packets of 100 bytes at most
                case 3:
                    name = int.from_bytes(body[:2], "big")
                    number, payload = body[2 + name : 4 + name], body[5 + name :]
                    self.came.put((payload, time.monotonic()))
                    answer = self._script(self._number)
                    self._number += 1
                    if answer is None:
                        continue
                    if answer[:1] == b"\xe0":
                        connection.sendall(answer)
                        return
                    code, said = (answer or b"\0")[:1], answer[1:]
                    acknowledged = number + code + bytes([len(said)]) + said
                    connection.sendall(bytes([0x40, len(acknowledged)]) + acknowledged)
                case 14:
                    return


def said(name: str, value: str) -> bytes:
    """A User Property."""
    return b"\x26" + b"".join(len(text).to_bytes(2, "big") + text.encode() for text in (name, value))


def because(text: str) -> bytes:
    """A Reason String."""
    return b"\x1f" + len(text).to_bytes(2, "big") + text.encode()


def go_to(address: str) -> bytes:
    """DISCONNECT 0x9C with a Server Reference."""
    reference = b"\x1c" + len(address).to_bytes(2, "big") + address.encode()
    rest = bytes([0x9C, len(reference)]) + reference
    return bytes([0xE0, len(rest)]) + rest


@contextmanager
def broker(script: Callable[[int], bytes | None] = lambda _number: b"") -> Iterator[Broker]:
    running = Broker(script)
    try:
        yield running
    finally:
        running.close()


@contextmanager
def distributor(mqtt_address: str, status: int = 200) -> Iterator[str]:
    """Names that broker to whoever asks."""
    assignment = {"topic": "t", "publisher_id": "p", "declared": True, "broker": "b1", "address": "h:1", "version": 1}
    problem = {"title": "not found", "status": 404, "detail": "not known", "field": "topic", "value": "t"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({**assignment, "mqtt_address": mqtt_address} if status == 200 else problem).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if status == 200 else "application/problem+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def payloads(running: Broker, count: int) -> list[bytes]:
    return [running.came.get(timeout=PATIENCE_S)[0] for _ in range(count)]


def test_it_says_that_it_follows_and_returns_receipts() -> None:
    receipt = b"\0" + said("srtm-wait-ns", "1500000") + said("srtm-fill", "0.25")
    with broker(lambda _: receipt) as there, distributor(there.address) as url:
        with mqtt.Publisher("t", "p", distributor=url) as publisher:
            found = publisher.publish("t", b"x", timeout_s=PATIENCE_S)
            assert (found.wait_ms, found.fill, publisher.address) == (1.5, 0.25, there.address)
        assert said("srtm-follow", "1") in there.connects.get(timeout=PATIENCE_S)
        with pytest.raises(Closed):
            publisher.publish("t", b"x")


def test_a_refusal_says_why_and_when_to_try_again() -> None:
    answers = {0: b"\x97" + because("retry after 40 ms") + said("srtm-retry-ms", "40"), 1: b"\x87", 2: b"\x10"}
    with (
        broker(lambda number: answers[number]) as there,
        distributor(there.address) as url,
        mqtt.Publisher("t", "p", distributor=url) as publisher,
    ):
        with pytest.raises(PublishRefused) as caught:
            publisher.publish("t", b"x", timeout_s=PATIENCE_S)
        assert caught.value.retry_after_ms == 40
        assert str(caught.value) == "Quota exceeded: retry after 40 ms"
        with pytest.raises(PublishRefused, match="Not authorized"):
            publisher.publish("t", b"x", timeout_s=PATIENCE_S)
        assert publisher.publish("t", b"x", timeout_s=PATIENCE_S).wait_ms is None, "nobody wanted it: it was accepted"


def test_what_was_not_acknowledged_goes_to_the_server_that_the_broker_names_in_order_and_not_too_early() -> None:
    with broker() as new:
        script = {0: b"", 1: None, 2: None, 3: go_to(f"not-an-address {new.address}")}
        with (
            broker(lambda number: script[number]) as old,
            distributor(old.address) as url,
            mqtt.Publisher("t", "p", distributor=url) as publisher,
        ):
            publisher.publish("t", b"0", timeout_s=PATIENCE_S)
            assert payloads(old, 1) == [b"0"]
            threads, left_s = [], 0.0
            for number in range(1, 4):
                threads.append(threading.Thread(target=publisher.publish, args=("t", b"%d" % number)))
                threads[-1].start()
                payload, left_s = old.came.get(timeout=PATIENCE_S)
                assert payload == b"%d" % number
            payload, first_s = new.came.get(timeout=PATIENCE_S)
            assert [payload, *payloads(new, 2)] == [b"1", b"2", b"3"]
            for thread in threads:
                thread.join(PATIENCE_S)
            assert publisher.address == new.address
    assert first_s - left_s >= READ_S, "a consumer of both could have read it before those of the old broker"


def test_what_the_broker_would_not_take_is_refused_and_holds_up_nothing() -> None:
    with (
        broker() as there,
        distributor(there.address) as url,
        mqtt.Publisher("t", "p", distributor=url) as publisher,
    ):
        with pytest.raises(PublishRefused, match="101 bytes is longer than the broker takes"):
            publisher.publish("t", b"x" * 90, timeout_s=PATIENCE_S)
        publisher.publish("t", b"x" * 89, timeout_s=PATIENCE_S)
        assert payloads(there, 1) == [b"x" * 89]


def test_a_connection_that_is_lost_is_made_again_where_the_distributor_says() -> None:
    ends = b"\xe0\x00"
    with (
        broker(lambda number: ends if number == 0 else b"") as there,
        distributor(there.address) as url,
        mqtt.Publisher("t", "p", distributor=url) as publisher,
    ):
        publisher.publish("t", b"x", timeout_s=PATIENCE_S)
        assert payloads(there, 2) == [b"x", b"x"]


def test_without_a_broker_that_speaks_mqtt_entering_says_so() -> None:
    with (
        distributor("") as url,
        pytest.raises(Unavailable, match="broker b1 speaks no MQTT"),
        mqtt.Publisher("t", "p", distributor=url, patience_s=0.2),
    ):
        pass
    with distributor("", 404) as url, pytest.raises(NotFound), mqtt.Publisher("t", "p", distributor=url):
        pass


def test_without_paho_the_import_says_what_to_install() -> None:
    code = "import sys; sys.modules['paho.mqtt.client'] = None; import srtm.mqtt"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert "Misuse: srtm.mqtt needs paho-mqtt: pip install 'srtm-messaging[mqtt]'" in ended.stderr


def test_what_cannot_be_published_is_refused_at_once() -> None:
    publisher = mqtt.Publisher("t", "p", distributor="http://127.0.0.1:1")
    with pytest.raises(Misuse):
        publisher.publish("t", b"x")
    names = ("", "a/#", "+", "half a pair: \ud800", "long" * 20_000)
    for name, payload, field in (*((name, b"x", "name") for name in names), ("a", "x", "payload")):
        with pytest.raises(BadInput) as caught:
            publisher.publish(name, payload)  # type: ignore[arg-type]
        assert caught.value.field == field

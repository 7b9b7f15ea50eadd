"""The tests of pynsq's suite that talk to a broker, by what they check (its source package carries none): 16, each with
an nsqd of its own, started with the suite's own words and ended by SIGKILL, in one directory.

Runs with the versions in ``pynsq/requirements.txt``; the certificate is one that a client suite uses (self-signed,
SHA-1, expired).
"""

from __future__ import annotations

import json
import logging
import ssl
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import nsq
from nsq import event, protocol
from tornado.concurrent import Future
from tornado.gen import sleep
from tornado.ioloop import IOLoop

from tests.interop.processes import directory_of_suite, report, run_each, running

WAIT_S = 5.0
PING = "http://127.0.0.1:4151/ping"
CERTIFICATE = directory_of_suite() / "certificate"
TLS = (f"--tls-key={CERTIFICATE / 'server.key'}", f"--tls-cert={CERTIFICATE / 'server.pem'}")
UNVERIFIED: dict[str, Any] = {"tls_v1": True, "tls_options": {"cert_reqs": ssl.CERT_NONE}}
DATA = tempfile.TemporaryDirectory()

Scenario = Callable[[], Awaitable[None]]


def run(scenario: Scenario, *flags: str) -> None:
    with running("nsqd", "--verbose", *flags, ping=PING, directory=Path(DATA.name), hard=True):
        loop = IOLoop()
        loop.make_current()
        try:
            loop.run_sync(scenario, timeout=WAIT_S)
        finally:
            loop.close(all_fds=True)


def topic() -> str:
    topic.number = getattr(topic, "number", 0) + 1  # type: ignore[attr-defined]
    return f"live_{topic.number}"  # type: ignore[attr-defined]


async def opened(**options: Any) -> tuple[nsq.AsyncConn, dict[str, Any]]:
    """A connection that is ready, and the answer to its IDENTIFY."""
    connection = nsq.AsyncConn("127.0.0.1", 4150, **options)
    answer: list[dict[str, Any]] = []
    ready: Future[None] = Future()
    connection.on(event.IDENTIFY_RESPONSE, lambda data, **_: answer.append(data))
    connection.on(event.READY, lambda **_: ready.set_result(None))
    connection.on(event.ERROR, lambda error, **_: None if ready.done() else ready.set_exception(error))
    connection.connect()
    await ready
    return connection, answer[0]


async def asked(connection: nsq.AsyncConn, command: bytes) -> bytes:
    """The response to one command."""
    said: Future[bytes] = Future()

    def note(data: bytes, **_: object) -> None:
        said.set_result(data)

    connection.on(event.RESPONSE, note)
    connection.send(command)
    data = await said
    connection.off(event.RESPONSE, note)
    return data


async def published(name: str, count: int) -> None:
    """Pipelined, on a plain connection."""
    connection, _ = await opened()
    answers: list[bytes] = []
    all_there: Future[None] = Future()

    def note(data: bytes, **_: object) -> None:
        answers.append(data)
        if len(answers) == count:
            all_there.set_result(None)

    connection.on(event.RESPONSE, note)
    for number in range(count):
        connection.send(protocol.pub(name, b"%d" % number))
    await all_there
    assert set(answers) == {b"OK"}, set(answers)
    connection.close()


async def read_all(name: str, count: int, handler_takes_s: float = 0.0, **options: Any) -> None:
    """With a Reader, each message once."""
    seen: list[bytes] = []
    done: Future[None] = Future()

    async def handle(message: nsq.Message) -> bool:
        if handler_takes_s:
            await sleep(handler_takes_s)
        seen.append(message.body)
        if len(seen) == count:
            done.set_result(None)
        return True

    where = {"nsqd_tcp_addresses": ["127.0.0.1:4150"]} if "lookupd_http_addresses" not in options else {}
    reader = nsq.Reader(topic=name, channel="ch", message_handler=handle, **where, **options)
    await done
    await sleep(0.05)  # the last FIN
    reader.close()
    assert sorted(seen, key=int) == [b"%d" % number for number in range(count)]


def test_bad_reader_arguments_are_refused_by_the_client() -> None:
    async def scenario() -> None:
        try:
            nsq.Reader(
                topic="t", channel="ch", message_handler=print, nsqd_tcp_addresses="127.0.0.1:4150", max_in_flight=-1
            )
        except AssertionError:
            return
        raise ValueError("a negative max_in_flight was taken")

    run(scenario, "--snappy", *TLS)


def test_identify_is_answered_with_an_object() -> None:
    async def scenario() -> None:
        _, answer = await opened()
        assert isinstance(answer, dict), answer
        assert answer["max_rdy_count"] == 2500, answer

    run(scenario, "--snappy", *TLS)


def test_identify_grants_what_is_asked_for() -> None:
    async def scenario() -> None:
        options = {"user_agent": "live", "snappy": True, "heartbeat_interval": 10}
        _, answer = await opened(output_buffer_size=4096, output_buffer_timeout=50, **options, **UNVERIFIED)
        assert (answer["snappy"], answer["tls_v1"]) == (True, True), answer
        assert (answer["output_buffer_size"], answer["output_buffer_timeout"]) == (4096, 50), answer

    run(scenario, "--snappy", *TLS)


def test_a_connection_is_upgraded_to_tls_and_snappy() -> None:
    async def scenario() -> None:
        connection, _ = await opened(snappy=True, **UNVERIFIED)
        connection.close()

    run(scenario, "--snappy", *TLS)


def test_a_subscription_is_answered_over_tls_and_snappy() -> None:
    async def scenario() -> None:
        connection, _ = await opened(snappy=True, **UNVERIFIED)
        assert await asked(connection, protocol.subscribe(topic(), "ch")) == b"OK"

    run(scenario, "--snappy", *TLS)


def test_messages_come_over_tls_and_snappy_up_to_the_credit() -> None:
    async def scenario() -> None:
        name = topic()
        await published(name, 5)
        connection, _ = await opened(snappy=True, **UNVERIFIED)
        bodies: list[bytes] = []
        done: Future[None] = Future()

        def note(message: nsq.Message, **_: object) -> None:
            bodies.append(message.body)
            if len(bodies) == 5:
                done.set_result(None)

        connection.on(event.MESSAGE, note)
        assert await asked(connection, protocol.subscribe(name, "ch")) == b"OK"
        connection.send_rdy(5)
        await done
        assert connection.in_flight == 5, connection.in_flight

    run(scenario, "--snappy", *TLS)


def test_a_reader_takes_500_messages_over_tls_and_snappy() -> None:
    async def scenario() -> None:
        name = topic()
        await published(name, 500)
        await read_all(name, 500, max_in_flight=100, snappy=True, **UNVERIFIED)

    run(scenario, "--snappy", *TLS)


def test_a_reader_with_a_slow_handler_takes_20_messages() -> None:
    async def scenario() -> None:
        name = topic()
        await published(name, 20)
        await read_all(name, 20, handler_takes_s=0.1, max_in_flight=10)

    run(scenario, "--snappy", *TLS)


def test_heartbeats_come_every_second() -> None:
    async def scenario() -> None:
        beats: list[object] = []
        twice: Future[None] = Future()

        def note(conn: object) -> None:
            beats.append(conn)
            if len(beats) == 2:
                twice.set_result(None)

        connection, _ = await opened(heartbeat_interval=1)
        connection.on(event.HEARTBEAT, note)
        await twice

    run(scenario, "--snappy", *TLS)


def test_deflate_is_granted() -> None:
    async def scenario() -> None:
        _, answer = await opened(deflate=True, deflate_level=4)
        assert (answer["deflate"], answer["deflate_level"]) == (True, 4), answer

    run(scenario, "--deflate", *TLS)


def test_a_connection_is_upgraded_to_deflate() -> None:
    async def scenario() -> None:
        connection, _ = await opened(deflate=True)
        assert await asked(connection, protocol.pub(topic(), b"x")) == b"OK"

    run(scenario, "--deflate", *TLS)


def test_a_reader_takes_300_messages_over_deflate() -> None:
    async def scenario() -> None:
        name = topic()
        await published(name, 300)
        await read_all(name, 300, max_in_flight=100, deflate=True)

    run(scenario, "--deflate", *TLS)


def test_a_reader_finds_the_broker_by_its_host_name_in_nsqlookupd() -> None:
    async def scenario() -> None:
        name = topic()
        await published(name, 10)
        await read_all(
            name, 10, lookupd_http_addresses=["http://127.0.0.1:4161"], lookupd_poll_interval=1, max_in_flight=5
        )

    command = ("nsqlookupd", "--verbose", "-broadcast-address=127.0.0.1")
    with running(*command, ping="http://127.0.0.1:4161/ping", directory=Path(DATA.name)):
        run(scenario, "-lookupd-tcp-address=127.0.0.1:4160")


class _AuthServer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        grant = {"topic": "^allowed$", "channels": ["^ch$", "^other$"], "permissions": ["subscribe"]}
        known = "secret=opensesame" in self.path
        body = json.dumps({"ttl": 30, "identity": "live", "authorizations": [grant]}).encode()
        self.send_response(200 if known else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Nothing: standard error is for failures."""


@contextmanager
def auth_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _AuthServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_auth_server_is_asked_and_lets_subscribe() -> None:
    async def scenario() -> None:
        connection, answer = await opened(auth_secret="opensesame")
        assert answer["auth_required"] is True, answer
        assert await asked(connection, protocol.subscribe("allowed", "ch")) == b"OK"

    with auth_server() as address:
        run(scenario, f"--auth-http-address={address}")


async def _written(write: Callable[[nsq.Writer, Callable[[object, object], None]], None]) -> object:
    writer = nsq.Writer(["127.0.0.1:4150"])
    while not writer.conns:
        await sleep(0.01)
    said: Future[object] = Future()
    write(writer, lambda _conn, data: said.set_result(data))
    return await said


def test_a_writer_publishes_a_batch_of_one() -> None:
    async def scenario() -> None:
        answer = await _written(lambda writer, callback: writer.mpub(topic(), [b"only"], callback=callback))
        assert answer == b"OK", answer

    run(scenario)


def test_a_writer_publishes_twice_and_is_answered() -> None:
    async def scenario() -> None:
        name = topic()
        for body in (b"first", b"second"):
            answer = await _written(lambda writer, callback, body=body: writer.pub(name, body, callback=callback))  # type: ignore[misc]
            assert answer == b"OK", answer

    run(scenario)


TESTS = [test for name, test in list(globals().items()) if name.startswith("test_")]


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    report(run_each(TESTS))

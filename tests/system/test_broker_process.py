"""One broker as a process, with the real engine: start, HTTP, a bucket, restarts, signals, refusals at start."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from bench.harness.systems.systems import free_addresses
from tests.support.broker_process import Subscriber, broker, process, refused
from tests.support.file_modes import OWNER_ALONE, modes
from tests.support.other_process import WAIT_S, wait_until
from tests.support.ports import free_port

pytestmark = pytest.mark.slow
pytest.importorskip("srtm._native", reason="the extension is not built (make build)")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_stops_when_told_and_says_so(tmp_path: Path, number: int, status: int) -> None:
    with broker(tmp_path) as running:
        assert running.wait_ended(number) == status
        assert all(line.startswith("b1 ") for line in running.lines), running.lines
        assert f"stopping signal={signal.Signals(number).name}" in running.lines[-1]


def test_messages_come_by_http_and_leave_by_the_protocol(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        assert running.ask("POST", "/channel/create?topic=t&channel=c")[0] == 404
        assert running.ask("POST", "/topic/create?topic=t") == (200, b"")
        assert running.ask("POST", "/channel/create?topic=t&channel=c") == (200, b"")
        assert running.ask("POST", "/pub?topic=t", b"one") == (200, b"OK")
        assert running.ask("POST", "/mpub?topic=t", b"two\nthree\n") == (200, b"OK")
        subscriber = Subscriber(running.tcp, "t", "c")
        assert [subscriber.body() for _ in range(3)] == [b"one", b"two", b"three"]
        stats = running.topic("t")
        assert (stats["message_count"], stats["channels"][0]["channel_name"]) == (3, "c")
        assert len(stats["channels"][0]["clients"]) == 1
        subscriber.close()


def test_a_bucket_set_by_hand_limits_and_its_trace_and_histograms_can_be_read(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        spec = {"rate": 100.0, "burst": 2.5}
        status, shown = running.ask_json("PUT", "/v1/topics/t/bucket", spec)
        assert (status, shown["rate"], shown["burst"], shown["managed"]) == (200, 100.0, 2.5, False)
        subscriber = Subscriber(running.tcp, "t", "c")
        assert running.ask("POST", "/mpub?topic=t", b"a\nb\nc\nd") == (200, b"OK")
        assert [subscriber.body() for _ in range(4)] == [b"a", b"b", b"c", b"d"]
        _, shown = running.ask_json("GET", "/v1/topics/t/bucket")
        assert (shown["received"], shown["released"], shown["backlog"]) == (4, 4, 0)
        _, trace = running.ask_json("GET", "/v1/topics/t/trace")
        # 2.5 tokens for four messages at once: two go, the third waits 5 ms, the fourth 15 ms
        delays = [due - arrival for due, arrival in zip(trace["due_ns"], trace["arrival_ns"], strict=True)]
        assert delays == [0, 0, 5_000_000, 15_000_000]
        assert len(trace["publisher"]) == 4
        status, log = running.ask("GET", "/v1/topics/t/bucket?format=hlog")
        assert status == 200
        assert b"Tag=access.since_start," in log
        subscriber.close()


def test_a_rejecting_bucket_tells_http_publishers_when_to_come_back(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        spec = {"rate": 0.1, "burst": 1, "on_excess": "reject"}
        assert running.ask_json("PUT", "/v1/topics/t/bucket", spec)[0] == 200
        assert running.ask("POST", "/pub?topic=t", b"first") == (200, b"OK")
        assert running.ask_json("POST", "/pub?topic=t", "second")[0] == 429
        _, shown = running.ask_json("GET", "/v1/topics/t/bucket")
        assert (shown["received"], shown["released"], shown["rejected"]) == (2, 1, 1)


def test_a_refused_bucket_changes_nothing(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        running.ask_json("PUT", "/v1/topics/t/bucket", {"rate": 5, "burst": 2})
        status, refusal = running.ask_json("PUT", "/v1/topics/t/bucket", {"rate": -5, "burst": 2})
        assert (status, refusal["field"], refusal["value"]) == (400, "rate", -5)
        assert running.ask_json("GET", "/v1/topics/t/bucket")[1]["rate"] == 5


def test_topics_channels_and_pauses_survive_sigkill(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        running.ask("POST", "/topic/create?topic=t")
        running.ask("POST", "/channel/create?topic=t&channel=c")
        running.ask("POST", "/channel/pause?topic=t&channel=c")
        wait_until("it is saved", lambda: {"name": "c", "paused": True} in saved_channels(tmp_path))
        running.process.kill()
        running.process.wait()
        with broker(tmp_path, tcp=running.tcp, http_port=running.http) as again:  # the same ports, at once
            (channel,) = again.topic("t")["channels"]
            assert (channel["channel_name"], channel["paused"]) == ("c", True)


def test_what_it_writes_is_for_its_owner_alone(tmp_path: Path) -> None:
    mqtt = free_port()
    with broker(tmp_path, "--mem-queue-size=0", f"--mqtt-address=127.0.0.1:{mqtt}", umask=0) as running:
        running.ask("POST", "/pub?topic=t", b"to disk")
        with socket.create_connection(("127.0.0.1", mqtt), timeout=WAIT_S) as client:
            stream = client.makefile("rb")
            # A session that is kept subscribes to a/#, and a message is retained, in MQTT 3.1.1.
            client.sendall(b"\x10\x0d\0\x04MQTT\x04\0\0\0\0\x01c\x82\x08\0\x01\0\x03a/#\x01\x33\x06\0\x01a\0\x02x")
            assert stream.read(13) == b"\x20\x02\0\0\x90\x03\0\x01\x01\x40\x02\0\x02"
            stream.close()
        assert running.wait_ended(signal.SIGTERM) == 0
    found = modes(tmp_path)
    kinds = {re.sub(r"[+.][0-9a-f]{6,}", "", name) for name in found}
    assert kinds >= {"nsqd.dat", "srtm.incarnation", "queue/t.meta", "queue/t.seg", "queue/mqtt+state.seg"}
    assert "queue/mqtt+queue.seg" in kinds
    assert set(found.values()) == {OWNER_ALONE}


def saved_channels(data: Path) -> list[object]:
    file = data / "nsqd.dat"
    topics = json.loads(file.read_bytes())["topics"] if file.exists() else []
    return [channel for topic in topics for channel in topic["channels"]]


def test_garbage_on_the_http_port_gets_http_400(tmp_path: Path) -> None:
    with broker(tmp_path) as running, socket.create_connection(("127.0.0.1", running.http), timeout=WAIT_S) as raw:
        raw.sendall(b"  V2IDENTIFY\n\x00\x00\x00\x02{}" + b"x" * 100_000)
        answer = b""
        while part := raw.recv(65536):
            answer += part
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert running.ask("GET", "/ping") == (200, b"OK")


class RawHttp:
    """One kept-alive connection, byte for byte."""

    def __init__(self, address: int | str) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(address if isinstance(address, str) else ("127.0.0.1", address))
        self.stream = self.socket.makefile("rb")

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status = int(self.stream.readline().split()[1])
        headers = {}
        while (line := self.stream.readline().decode().strip()) != "":
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        return status, headers, self.stream.read(int(headers["content-length"]))

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


def test_one_connection_carries_any_number_of_requests_of_both_kinds_in_order(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        client = RawHttp(running.http)
        post = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"
        stats = b"GET /stats?format=json&topic=t HTTP/1.1\r\nHost: x\r\n\r\n"
        for number in range(1, 201):
            client.socket.sendall(post + stats + post + b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.answer()[2] == b"OK"
            status, headers, body = client.answer()
            assert (status, headers["content-type"]) == (200, "application/json; charset=utf-8")
            assert headers["x-nsq-content-type"] == "nsq; version=1.0"
            assert json.loads(body)["topics"][0]["message_count"] == 2 * number - 1  # what came before it, and no more
            assert [client.answer()[2] for _ in range(2)] == [b"OK", b"OK"]
        metrics = running.ask("GET", "/metrics")[1].decode()
        assert "srtm_broker_timestamp_fallbacks_total 0.0" in metrics
        client.close()


def test_https_serves_both_kinds_of_requests_and_tls_required_sends_others_there(tmp_path: Path) -> None:
    certificates = Path(__file__).resolve().parents[1] / "certificates"
    address, _ = free_addresses()
    port = int(address.rpartition(":")[2])
    flags = ["--https-address", address, "--tls-required", "true"]
    flags += ["--tls-cert", str(certificates / "server.pem"), "--tls-key", str(certificates / "server.key")]
    with broker(tmp_path, *flags) as running:
        plain = running.ask("GET", "/stats")
        assert plain == (403, b'{"message": "TLS_REQUIRED", "https_port": %d}' % port)
        context = ssl._create_unverified_context()  # its certificate is an expired one of its own
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=WAIT_S, context=context)
        for method, target, body, expected in (
            ("GET", "/ping", None, b"OK"),
            ("POST", "/pub?topic=t", b"x" * 500_000, b"OK"),
            ("POST", "/topic/pause?topic=t", b"", b""),
            ("POST", "/mpub?topic=t", b"a\nb", b"OK"),
        ):
            connection.request(method, target, body)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, expected)
        connection.close()


def test_a_request_under_way_is_answered_before_the_broker_stops(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        running.ask_json("PUT", "/v1/topics/t/bucket", {"rate": 1e6, "burst": 1e6})
        running.ask("POST", "/mpub?topic=t", b"x\n" * 20_000)
        client = RawHttp(running.http)
        client.socket.sendall(b"GET /v1/topics/t/trace HTTP/1.1\r\nHost: x\r\n\r\n" * 500)  # some seconds of work
        client.answer()
        running.process.send_signal(signal.SIGTERM)
        answers = [client.answer()]
        while "connection" not in answers[-1][1]:
            answers.append(client.answer())
        assert len(answers) < 400
        assert {status for status, _, _ in answers} == {200}
        assert answers[-1][1]["connection"] == "close"
        assert len(json.loads(answers[-1][2])["arrival_ns"]) == 20_000
        assert client.stream.read() == b""
        assert running.wait_ended() == 0
        client.close()


def test_unix_sockets_take_the_place_of_both_ports_and_go_with_the_broker(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("nsq.sock", "http.sock")]
    with process(tmp_path, "--tcp-address", paths[0], "--http-address", paths[1]) as running:
        wait_until("it listens", Path(paths[1]).exists)
        client = RawHttp(paths[1])
        client.socket.sendall(b"GET /info HTTP/1.1\r\nHost: x\r\n\r\n")
        info = json.loads(client.answer()[2])
        assert (info["tcp_port"], info["http_port"]) == (-1, -1)
        client.close()
        assert running.wait_ended(signal.SIGTERM) == 0
        assert not any(Path(path).exists() for path in paths)


@pytest.mark.parametrize(
    "hostile",
    [
        bytes(range(256)) * 20,
        b"GET / HTTP/1.1\r\n\r\n",
        b"  V1",
        b"  V2" + b"x" * 200_000,
        b"  V2IDENTIFY\n\xff\xff\xff\xff{}",
        b"  V2PUB t\n\x7f\xff\xff\xff",
        b"  V2PUB t\n\x00\x00\x00\x00",
        b"  V2MPUB t\n\x00\x00\x00\x08\x7f\xff\xff\xff\x00\x00\x00\x01",
        b"  V2PUB a b\n\x00\x00\x00\x01x",
        b"  V2SUB t#x c\n",
        b"  V2FIN " + b"\xff" * 16 + b"\n",
    ],
)
def test_hostile_bytes_on_the_tcp_port_cost_their_sender_the_connection_and_nobody_else_anything(
    tmp_path: Path, hostile: bytes
) -> None:
    with broker(tmp_path) as running:
        running.ask("POST", "/topic/create?topic=t")
        consumer = Subscriber(running.tcp, "t", "c")
        with socket.create_connection(("127.0.0.1", running.tcp), timeout=WAIT_S) as raw:
            raw.sendall(hostile)
            with suppress(OSError):  # the broker may have been quicker
                raw.shutdown(socket.SHUT_WR)
            while swallowed(raw):
                pass
        running.ask("POST", "/pub?topic=t", b"still here")
        assert consumer.body() == b"still here"
        consumer.close()
        assert running.topic("t")["message_count"] == 1
        running.wait_ended(signal.SIGTERM)
        assert not any("Traceback" in line or "panicked" in line for line in running.lines)


def swallowed(raw: socket.socket) -> bytes:
    try:
        return raw.recv(65536)
    except ConnectionResetError:
        return b""


def test_a_member_that_has_never_synced_refuses_publishes_and_says_why(tmp_path: Path) -> None:
    with broker(tmp_path, "--distributor", f"http://{free_addresses()[0]}") as running:
        status, refusal = running.ask_json("POST", "/pub?topic=t", "x")
        assert status == 503
        assert refusal["message"] == "broker b1 has not synced with the distributor yet"
        assert running.ask_json("GET", "/healthz")[1]["accepting"] is False


@pytest.mark.parametrize("which", ["tcp", "http_port"])
def test_a_port_in_use_is_one_clear_line_and_status_1(tmp_path: Path, which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, lines = refused(process(tmp_path, **{which: port}))
    field = "tcp_address" if which == "tcp" else "http_address"
    assert status == 1
    assert lines == [f"srtm broker: {field}: '127.0.0.1:{port}': the port is in use by another process"]


def test_a_data_directory_in_use_is_one_clear_line_and_status_1(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        status, lines = refused(process(tmp_path))
        assert (status, len(lines)) == (1, 1)
        assert "is in use by another broker" in lines[0]
        assert running.ask("GET", "/ping") == (200, b"OK")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--data-path", "/nonexistent/srtm"], "data_path: '/nonexistent/srtm': must be a directory"),
        (["--tcp-address", "here"], "tcp_address: 'here': must be HOST:PORT"),
        (["--tcp-address", "192.0.2.1:0"], "tcp_address: '192.0.2.1:0': must be an address of this host"),
        (["--http-address", "192.0.2.1:0"], "http_address: '192.0.2.1:0': must be an address of this host"),
        (["--mcap", "-1"], "mcap: -1.0: must be a rate"),
        (["--mcap", "nan"], "mcap: 'nan': must be a finite number"),
        (["--http-idle-timeout", "inf"], "http_idle_timeout: 'inf': must be a finite number"),
        (["--lab-service-time", "-1"], "lab_service_time: -1.0: must be 0 (none) to 1000000 us"),
        (["--distributor", "localhost"], "distributor: 'localhost': must be http://HOST:PORT"),
    ],
)
def test_bad_flags_are_one_clear_line_and_status_2(tmp_path: Path, flags: list[str], said: str) -> None:
    status, lines = refused(process(tmp_path, *flags))
    assert (status, len(lines)) == (2, 1), lines
    assert lines[0].startswith(f"srtm broker: {said}")

"""The server's side of gRPC against h2's client: calls in any pieces, windows, bounds, peers that break the rules."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes
from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from limiting.envoy import http2
from limiting.envoy.grpc_session import LONGEST_MESSAGE, MOST_STREAMS, Call, Code, GrpcSession

METHOD = "/package.Service/Method"
HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", METHOD),
    (":authority", "limit"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


def framed(message: bytes, *, compressed: bool = False, size: int | None = None) -> bytes:
    return struct.pack(">?I", compressed, len(message) if size is None else size) + message


class Client:
    """h2's client and a session, with nothing between them."""

    def __init__(self, window: int | None = None) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        if window is not None:
            self.h2.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = window
            self.h2.local_settings.acknowledge()
        self.h2.initiate_connection()
        self.session = GrpcSession()
        self.events: list[Event] = []
        self.calls: list[Call] = []

    def exchange(self, pieces: Sequence[int] = ()) -> None:
        """Send what there is both ways, until there is nothing more; what we send in ``pieces`` first."""
        while True:
            data = self.h2.data_to_send()
            for size in pieces:
                self.calls += self.session.feed(data[:size])
                data = data[size:]
            if data:
                self.calls += self.session.feed(data)
            back = self.session.outgoing()
            self.events += self.h2.receive_data(back)
            if not back and not self.h2.data_to_send():
                return

    def ask(self, body: bytes, headers: Sequence[tuple[str, str]] = HEADERS) -> int:
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, headers)
        while body:
            size = min(len(body), self.h2.max_outbound_frame_size, self.h2.local_flow_control_window(stream))
            self.h2.send_data(stream, body[:size])
            body = body[size:]
            self.exchange()
        self.h2.end_stream(stream)
        return stream

    def status(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for event in self.events:
            if isinstance(event, ResponseReceived | TrailersReceived):
                found |= {str(name): str(value) for name, value in event.headers}
        return found

    def answers(self, stream: int) -> bytes:
        parts = [event for event in self.events if isinstance(event, DataReceived) and event.stream_id == stream]
        return b"".join(part.data or b"" for part in parts)


@given(st.binary(max_size=200), st.lists(st.integers(1, 60), max_size=8))
@settings(max_examples=60)
def test_a_call_is_answered_in_whatever_pieces_it_comes(message: bytes, pieces: list[int]) -> None:
    client = Client()
    stream = client.h2.get_next_available_stream_id()
    client.h2.send_headers(stream, [*HEADERS, ("authorization", "Bearer t")])
    client.h2.send_data(stream, framed(message), end_stream=True)
    client.exchange(pieces)
    assert client.calls == [Call(stream, METHOD, message, "Bearer t")]
    client.session.answer(stream, b"said")
    client.exchange()
    assert client.answers(stream) == framed(b"said")
    assert client.status() == {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}


def test_calls_of_one_connection_are_answered_in_any_order() -> None:
    client = Client()
    one, other = client.ask(framed(b"1")), client.ask(framed(b"2"))
    client.exchange()
    client.session.answer(other, b"second")
    client.session.answer(one, b"first")
    client.exchange()
    assert (client.answers(one), client.answers(other)) == (framed(b"first"), framed(b"second"))


def test_an_answer_waits_for_the_peers_window() -> None:
    client = Client(window=3)
    stream = client.ask(framed(b""))
    client.exchange()
    client.session.answer(stream, b"x" * 40)
    client.exchange()
    assert client.answers(stream) == framed(b"x" * 40)[:3]
    client.h2.increment_flow_control_window(10, stream)
    client.exchange()
    client.h2.increment_flow_control_window(100, stream)
    client.exchange()
    assert client.answers(stream) == framed(b"x" * 40)
    assert client.status()["grpc-status"] == "0"


def test_an_answer_longer_than_a_frame_is_sent_whole() -> None:
    client = Client()
    client.h2.increment_flow_control_window(100_000)
    stream = client.ask(framed(b""))
    client.h2.increment_flow_control_window(100_000, stream)
    client.exchange()
    client.session.answer(stream, b"x" * 50_000)
    client.exchange()
    assert client.answers(stream) == framed(b"x" * 50_000)
    assert client.status()["grpc-status"] == "0"


def test_a_peer_that_gave_up_is_answered_nothing() -> None:
    client = Client(window=0)
    waits, gone = client.ask(framed(b"")), client.ask(framed(b""))
    client.exchange()
    client.session.answer(waits, b"x")
    for stream in (waits, gone):
        client.h2.reset_stream(stream)
    client.exchange()
    client.session.answer(gone, b"x")
    client.session.refuse(gone, Code.INTERNAL, "late")
    client.exchange()
    assert client.answers(gone) == client.answers(waits) == b""
    assert not client.session.is_closed


@pytest.mark.parametrize("headers", [HEADERS, HEADERS[:4]])
@pytest.mark.parametrize("goes", [lambda h2: h2.reset_stream(1), lambda h2: h2.close_connection()])
def test_a_call_that_comes_with_its_end_is_dropped(
    headers: list[tuple[str, str]], goes: Callable[[H2Connection], None]
) -> None:
    client = Client()
    client.exchange()
    client.h2.send_headers(1, headers)
    goes(client.h2)
    assert client.session.feed(client.h2.data_to_send()) == []


def test_an_answer_of_several_messages_ends_with_the_connection() -> None:
    client = Client()
    stream = client.ask(framed(b""))
    client.exchange()
    client.session.answer(stream, b"serving", is_last=False)
    client.exchange()
    assert client.answers(stream) == framed(b"serving")
    assert "grpc-status" not in client.status()
    client.session.close()
    client.exchange()
    assert any(isinstance(event, ConnectionTerminated) for event in client.events)


def test_a_refusal_is_a_status_with_a_text_for_people() -> None:
    client = Client()
    stream = client.ask(framed(b""))
    client.exchange()
    client.session.refuse(stream, Code.NOT_FOUND, "no 100 % “contract”\n")
    client.exchange()
    status = client.status()
    assert (status["grpc-status"], status["grpc-message"]) == ("5", "no 100 %25 %E2%80%9Ccontract%E2%80%9D%0A")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", Code.INVALID_ARGUMENT),
        (b"\x00\x00", Code.INVALID_ARGUMENT),
        (framed(b"a") + framed(b"b"), Code.INVALID_ARGUMENT),
        (framed(b"abc", size=9), Code.INVALID_ARGUMENT),
        (framed(b"abc", compressed=True), Code.UNIMPLEMENTED),
    ],
)
def test_calls_that_cannot_be_are_refused_and_others_go_on(body: bytes, code: Code) -> None:
    client = Client()
    client.ask(body)
    client.exchange()
    assert client.status()["grpc-status"] == str(int(code))
    stream = client.ask(framed(b"x" * LONGEST_MESSAGE))
    client.exchange()
    assert [call.stream for call in client.calls] == [stream]


def test_a_message_without_end_is_stopped_early() -> None:
    client = Client()
    stream = client.h2.get_next_available_stream_id()
    client.h2.send_headers(stream, HEADERS)
    sent = 0
    while not any(isinstance(event, StreamReset) for event in client.events):
        client.h2.send_data(stream, bytes(8_000))
        sent += 8_000
        client.exchange()
    assert sent <= LONGEST_MESSAGE + 16_000
    assert client.status()["grpc-status"] == "8"
    other = client.ask(framed(b"x"))
    client.exchange()
    assert [call.stream for call in client.calls] == [other]


def test_what_all_messages_need_fits_into_the_window_at_once() -> None:
    client = Client()
    client.exchange()
    streams = [client.h2.get_next_available_stream_id() + 2 * number for number in range(MOST_STREAMS)]
    for stream in streams:
        client.h2.send_headers(stream, HEADERS)
        client.h2.send_data(stream, framed(b"x" * LONGEST_MESSAGE)[:16_000])
        client.exchange()
    for stream in streams:
        client.h2.send_data(stream, framed(b"x" * LONGEST_MESSAGE)[16_000:], end_stream=True)
        client.exchange()
    assert [call.stream for call in client.calls] == streams


def test_a_thousand_calls_leave_nothing_behind() -> None:
    client = Client()
    for _ in range(1_000):
        stream = client.ask(framed(b"x" * 300))
        client.exchange()
        client.session.answer(stream, b"y")
        client.exchange()
        client.events.clear()
    assert len(client.calls) == 1_000
    session = client.session
    assert [*session._requests, *session._unsent, *session._windows, *session._called] == []


def test_what_is_not_grpc_is_refused() -> None:
    client = Client()
    client.ask(b"", [*HEADERS[:4], ("content-type", "text/html")])
    client.exchange()
    assert client.status()[":status"] == "415"
    assert client.calls == []


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 40])
def test_a_peer_that_does_not_speak_http2_is_sent_away(data: bytes) -> None:
    session = GrpcSession()
    assert session.feed(data) == []
    assert session.is_closed
    assert session.outgoing(), "it is told so"


@pytest.mark.parametrize("size", [1, 5, 100])
def test_a_frame_that_is_too_long_is_refused_by_its_head(size: int) -> None:
    session = GrpcSession()
    head = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\x40\x01"
    head += b"\x00\x00\x00\x00\x00\x01"
    pieces = [head[at : at + size] for at in range(0, len(head), size)]
    for piece in pieces[:-1]:
        session.feed(piece)
        assert not session.is_closed
    session.feed(pieces[-1])
    assert session.is_closed


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_whatever_follows_the_preface_ends_at_most_the_connection(data: bytes) -> None:
    client = Client()
    client.exchange()
    session = client.session
    session.feed(data)
    session.outgoing()


class RawClient:
    """A client that writes its frames by hand, also such as h2 would not."""

    def __init__(self) -> None:
        self.session = GrpcSession()
        self.encoder = Encoder()
        self.received = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.received.initiate_connection()
        assert self.session.feed(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0)) == []
        self.session.outgoing()

    def headers(self, stream: int = 1, flags: int = http2.END_HEADERS, extra: Sequence[tuple[str, str]] = ()) -> bytes:
        return http2.frame(http2.HEADERS, flags, stream, self.encoder.encode([*HEADERS, *extra]))

    def call(self, stream: int, message: bytes = b"m") -> bytes:
        return self.headers(stream) + http2.frame(http2.DATA, http2.END_STREAM, stream, framed(message))

    def ends_with(self, data: bytes, code: http2.ErrorCode) -> None:
        """``data`` ends the connection, and the peer is told why."""
        assert self.session.feed(data) == []
        assert self.session.is_closed
        *_, goaway = sent(self.session)
        assert (goaway.kind, int.from_bytes(goaway.payload[4:8], "big")) == (http2.GOAWAY, code)


def sent(session: GrpcSession) -> list[http2.Frame]:
    """The frames that a session has to send."""
    return http2.Frames().feed(http2.PREFACE + session.outgoing())


def test_headers_may_come_in_several_frames_and_padded() -> None:
    client = RawClient()
    block = client.encoder.encode([*HEADERS, ("authorization", "Bearer t")])
    flags = http2.PADDED | http2.HAS_PRIORITY
    data = http2.frame(http2.HEADERS, flags, 1, b"\x02" + bytes(5) + block[:7] + bytes(2))
    data += http2.frame(http2.CONTINUATION, 0, 1, block[7:9])
    data += http2.frame(http2.CONTINUATION, http2.END_HEADERS, 1, block[9:])
    data += http2.frame(http2.DATA, http2.PADDED | http2.END_STREAM, 1, b"\x03" + framed(b"m") + bytes(3))
    assert client.session.feed(data) == [Call(1, METHOD, b"m", "Bearer t")]


def test_headers_of_the_same_bytes_say_what_the_table_says_now() -> None:
    client = RawClient()
    found = []
    for number, extra in enumerate(["one", "one", "one", "other", "other", "other"]):
        stream = 2 * number + 1
        headers = client.headers(stream, extra=[("authorization", extra)])
        data = headers + http2.frame(http2.DATA, http2.END_STREAM, stream, framed(b""))
        found += [call.authorization for call in client.session.feed(data)]
    assert found == ["one", "one", "one", "other", "other", "other"]


def test_a_peer_without_a_table_for_headers_can_read_the_answers() -> None:
    client = Client()
    client.h2.update_settings({SettingCodes.HEADER_TABLE_SIZE: 0})
    for _ in range(2):
        stream = client.ask(framed(b""))
        client.exchange()
        client.session.answer(stream, b"said")
        client.exchange()
        assert client.answers(stream) == framed(b"said")


def test_one_stream_too_many_is_refused_and_the_others_go_on() -> None:
    client = RawClient()
    streams = range(1, 2 * MOST_STREAMS, 2)
    calls = client.session.feed(b"".join(client.call(stream) for stream in streams))
    assert len(calls) == MOST_STREAMS
    assert client.session.feed(client.call(2 * MOST_STREAMS + 1)) == []
    assert [(got.kind, got.stream) for got in sent(client.session)] == [(http2.RST_STREAM, 2 * MOST_STREAMS + 1)]
    client.session.answer(1, b"")
    assert len(client.session.feed(client.call(2 * MOST_STREAMS + 3))) == 1


def test_calls_given_up_count_until_they_are_answered() -> None:
    client = RawClient()
    given_up = http2.frame(http2.RST_STREAM, 0, 1, bytes(4))
    calls: list[Call] = []
    for stream in range(1, 10 * MOST_STREAMS, 2):
        calls += client.session.feed(client.call(stream) + given_up[:5] + stream.to_bytes(4, "big") + bytes(4))
    assert len(calls) == MOST_STREAMS
    for call in calls:
        client.session.answer(call.stream, b"")
    assert len(client.session.feed(client.call(10 * MOST_STREAMS + 1))) == 1


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (http2.frame(http2.DATA, 0, 1, b"x"), http2.ErrorCode.PROTOCOL_ERROR),
        (http2.frame(http2.RST_STREAM, 0, 1, bytes(4)), http2.ErrorCode.PROTOCOL_ERROR),
        (http2.frame(http2.WINDOW_UPDATE, 0, 0, bytes(4)), http2.ErrorCode.PROTOCOL_ERROR),
        (http2.frame(http2.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), http2.ErrorCode.FLOW_CONTROL_ERROR),
        (http2.frame(http2.WINDOW_UPDATE, 0, 0, b"\x01"), http2.ErrorCode.FRAME_SIZE_ERROR),
        (http2.frame(http2.PING, 0, 0, b"short"), http2.ErrorCode.FRAME_SIZE_ERROR),
        (http2.frame(http2.SETTINGS, 0, 0, b"12345"), http2.ErrorCode.FRAME_SIZE_ERROR),
        (http2.frame(http2.SETTINGS, 0, 0, b"\x00\x04\xff\xff\xff\xff"), http2.ErrorCode.FLOW_CONTROL_ERROR),
        (http2.frame(http2.SETTINGS, 0, 3), http2.ErrorCode.PROTOCOL_ERROR),
        (http2.frame(http2.CONTINUATION, 0, 1), http2.ErrorCode.PROTOCOL_ERROR),
        (http2.frame(http2.PUSH_PROMISE, 0, 1, bytes(8)), http2.ErrorCode.PROTOCOL_ERROR),
        (http2.frame(http2.HEADERS, http2.END_HEADERS, 2, b"\x82"), http2.ErrorCode.PROTOCOL_ERROR),
        (http2.frame(http2.HEADERS, http2.END_HEADERS, 0, b"\x82"), http2.ErrorCode.PROTOCOL_ERROR),
        (http2.frame(http2.HEADERS, http2.END_HEADERS, 1, b"\xff\xff\xff"), http2.ErrorCode.COMPRESSION_ERROR),
        (http2.frame(http2.HEADERS, http2.PADDED, 1, b"\x09\x82"), http2.ErrorCode.PROTOCOL_ERROR),
        (http2.frame(http2.HEADERS, 0, 1, b"\x82") + http2.frame(http2.PING, 0, 0, bytes(8)),
         http2.ErrorCode.PROTOCOL_ERROR),
        (http2.frame(http2.HEADERS, 0, 1, b"\x82") + 9 * http2.frame(http2.CONTINUATION, 0, 1, bytes(2_000)),
         http2.ErrorCode.ENHANCE_YOUR_CALM),
    ],
)  # fmt: skip
def test_a_peer_that_breaks_a_rule_of_http2_is_told_which(data: bytes, code: http2.ErrorCode) -> None:
    RawClient().ends_with(data, code)


def test_a_small_block_that_unfolds_to_long_headers_ends_the_connection() -> None:
    client = RawClient()
    client.session.feed(client.headers(1, extra=[("x", "y" * 3_900)]))
    bomb = http2.frame(http2.HEADERS, http2.END_HEADERS, 3, b"\xbe" * 10)  # the entry that was added last, ten times
    client.ends_with(bomb, http2.ErrorCode.COMPRESSION_ERROR)


def test_what_is_sent_beyond_the_window_ends_the_connection() -> None:
    client = RawClient()
    empty = bytes([255]) + bytes(255)  # padding alone: it is never read into a message
    client.session.feed(client.headers(1))
    for _ in range(1_000):
        client.session.feed(http2.frame(http2.DATA, http2.PADDED, 1, empty) * 10)
    assert not client.session.is_closed, "what is read may be sent again"
    client.ends_with(http2.frame(http2.DATA, http2.PADDED, 1, empty) * 10_000, http2.ErrorCode.FLOW_CONTROL_ERROR)


def test_a_ping_is_answered() -> None:
    client = RawClient()
    client.session.feed(http2.frame(http2.PING, 0, 0, b"12345678"))
    assert sent(client.session) == [http2.Frame(http2.PING, http2.ACK, 0, b"12345678")]


def test_a_smaller_window_makes_answers_wait() -> None:
    client = RawClient()
    client.session.feed(client.call(1))
    client.session.feed(http2.frame(http2.SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\x02"))
    client.session.outgoing()
    client.session.answer(1, b"said")
    *_, data = sent(client.session)
    assert data == http2.Frame(http2.DATA, 0, 1, framed(b"said")[:2])
    client.session.feed(http2.frame(http2.SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\xff"))
    _, data, trailers = sent(client.session)
    assert data.payload == framed(b"said")[2:]
    assert (trailers.kind, trailers.flags & http2.END_STREAM) == (http2.HEADERS, http2.END_STREAM)

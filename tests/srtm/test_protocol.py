"""The codec: one table for both directions, any split of the stream, and garbage."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm import protocol as wire
from srtm.errors import BadInput, PeerError

ID = b"0123456789abcdef"


def frame(kind: int, data: bytes) -> bytes:
    return struct.pack(">ii", len(data) + 4, kind) + data


EVENTS = [
    (frame(0, b"OK"), wire.Response(b"OK")),
    (frame(0, b""), wire.Response(b"")),
    (frame(0, b"_heartbeat_"), wire.Heartbeat()),
    (frame(0, b"_move_ 127.0.0.1:4150 7"), wire.Move("127.0.0.1:4150", 7)),
    (frame(0, b"_move_ [::1]:4150 8"), wire.Move("[::1]:4150", 8)),
    (frame(0, b"_left_ t 3"), wire.Left(3)),
    (frame(1, b"E_BAD_TOPIC PUB topic name"), wire.Error("E_BAD_TOPIC", "PUB topic name")),
    (frame(1, b"E_BAD_PROTOCOL"), wire.Error("E_BAD_PROTOCOL", "")),
    (frame(2, struct.pack(">qH", 5, 65535) + ID + b"\0body\n"), wire.Message(5, 65535, ID, b"\0body\n")),
    (frame(2, struct.pack(">qH", 5, 1) + ID), wire.Message(5, 1, ID, b"")),
]
COMMANDS = [
    (wire.pub("t", b"ab"), b"PUB t\n\0\0\0\2ab"),
    (wire.mpub("t", [b"a", b"bc"]), b"MPUB t\n\0\0\0\x0f\0\0\0\2\0\0\0\1a\0\0\0\2bc"),
    (wire.sub("t", "c"), b"SUB t c\n"),
    (wire.rdy(0), b"RDY 0\n"),
    (wire.fin(ID), b"FIN 0123456789abcdef\n"),
    (wire.req(ID, 100), b"REQ 0123456789abcdef 100\n"),
    (wire.touch(ID), b"TOUCH 0123456789abcdef\n"),
    (wire.cls(), b"CLS\n"),
    (wire.nop(), b"NOP\n"),
    (wire.left("t", 3), b"LEFT t 3\n"),
    (wire.auth("eva:ü"), b"AUTH\n\0\0\0\x06eva:\xc3\xbc"),
    (wire.identify({"client_id": "p"}), b'IDENTIFY\n\0\0\0\x11{"client_id":"p"}'),
]


def read_all(reader: wire.EventReader) -> list[wire.Event]:
    events = []
    while (event := reader.next_event()) is not wire.NEED_DATA:
        events.append(event)
    return events


@pytest.mark.parametrize(("written", "expected"), COMMANDS)
def test_commands_are_the_bytes_of_the_protocol(written: bytes, expected: bytes) -> None:
    assert written == expected


@pytest.mark.parametrize(("data", "event"), EVENTS)
def test_each_frame_is_one_event_and_nothing_is_left(data: bytes, event: wire.Event) -> None:
    reader = wire.EventReader()
    reader.receive_data(data + b"\0\0")  # the beginning of the next one
    assert read_all(reader) == [event]


@given(st.lists(st.sampled_from(EVENTS), max_size=8), st.data())
def test_any_split_of_the_stream_gives_the_same_events(
    chosen: list[tuple[bytes, wire.Event]], data: st.DataObject
) -> None:
    stream = b"".join(encoded for encoded, _ in chosen)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=12)))
    reader = wire.EventReader()
    events = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.receive_data(stream[start:end])
        events += read_all(reader)
    assert events == [event for _, event in chosen]


@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_events_or_a_peer_error_and_nothing_else(garbage: bytes) -> None:
    reader = wire.EventReader()
    reader.receive_data(garbage)
    try:
        read_all(reader)
    except PeerError:
        return


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", -1) + b"\0\0\0\0",
        struct.pack(">i", 3) + b"\0\0\0\0",
        struct.pack(">ii", wire.DEFAULT_FRAME_LIMIT_BYTES + 1, 0),
        struct.pack(">ii", 1000, 3),
        b"HTTP/1.1 400 Bad Request\r\n",
        frame(2, b"too short for a message"),
        frame(0, b"_move_ nowhere 1"),
        frame(0, b"_move_ a:1"),
        frame(0, b"_move_ a:1 -1"),
        frame(0, b"_left_ t"),
        frame(0, b"_left_ t -1"),
    ],
)
def test_what_no_broker_sends_is_refused_at_once(garbage: bytes) -> None:
    reader = wire.EventReader()
    reader.receive_data(garbage)
    with pytest.raises(PeerError):
        reader.next_event()


def test_a_frame_at_the_limit_passes_and_one_byte_more_does_not() -> None:
    reader = wire.EventReader(frame_limit_bytes=14)
    reader.receive_data(frame(0, b"x" * 10) + frame(0, b"x" * 11))
    assert reader.next_event() == wire.Response(b"x" * 10)
    with pytest.raises(PeerError, match="15 bytes; 4 to 14"):
        reader.next_event()


@pytest.mark.parametrize(
    ("answer", "receipt"),
    [
        (b"OK", wire.Receipt(None, None)),
        (b"OK wait_ns=1500000 fill=0.25", wire.Receipt(1.5, 0.25)),
        (b"OK wait_ns=0 fill=1 later=x", wire.Receipt(0.0, 1.0)),
    ],
)
def test_a_receipt_says_wait_and_fill_where_the_broker_does(answer: bytes, receipt: wire.Receipt) -> None:
    assert wire.parse_receipt(answer) == receipt


@pytest.mark.parametrize("answer", [b"", b"NO", b"OKAY", b"OK wait_ns=soon"])
def test_any_other_answer_to_a_publish_is_a_peer_error(answer: bytes) -> None:
    with pytest.raises(PeerError):
        wire.parse_receipt(answer)


def test_only_a_rate_limit_says_when_to_try_again_and_keeps_the_connection() -> None:
    limited = wire.Error("E_RATE_LIMITED", "PUB retry after 12.5 ms")
    assert (limited.retry_after_ms, limited.fatal) == (12.5, False)
    failed = wire.Error("E_PUB_FAILED", "PUB failed retry after 12 ms")
    assert (failed.retry_after_ms, failed.fatal) == (None, True)


@pytest.mark.parametrize("name", ["", "a" * 65, "a b", "a\n", "#ephemeral", "a#other", "ä"])
def test_a_name_that_the_protocol_does_not_allow_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"topic: .* must be 1 to 64"):
        wire.checked_name("topic", name)


def test_ephemeral_names_and_all_allowed_characters_pass() -> None:
    assert wire.checked_name("topic", "aZ0._-#ephemeral") == "aZ0._-#ephemeral"


@pytest.mark.parametrize("bodies", [[b""], [b"a", b""], []])
def test_an_empty_message_is_refused_before_anything_is_written(bodies: list[bytes]) -> None:
    with pytest.raises(BadInput, match="must hold at least one"):
        wire.mpub("t", bodies)


def test_an_empty_single_message_is_refused_too() -> None:
    with pytest.raises(BadInput, match="body: b'': must hold at least one byte"):
        wire.pub("t", b"")

"""What counts as the same answer, and which differences are let pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.drop_in.__main__ import groups
from tests.interop.drop_in.comparison import Difference, Kept, Place, differences, judge
from tests.interop.drop_in.kept import KEPT
from tests.interop.drop_in.session import Session
from tests.interop.drop_in.sessions import SESSIONS
from tests.interop.drop_in.snappy_frames import Decoder, block, encode
from tests.interop.drop_in.transcript import Transcript, parse_frame
from tests.interop.drop_in.web import note_answer, text_lines

ID, OTHER = b"0123456789abcdef", b"fedcba9876543210"
NOW_S = 1_700_000_000.0


def message(ident: bytes, attempts: int, body: bytes, instant_s: float = NOW_S) -> bytes:
    head = (2).to_bytes(4, "big") + int(instant_s * 1e9).to_bytes(8, "big") + attempts.to_bytes(2, "big")
    return head + ident + body


def noted(*frames: bytes) -> dict[str, list[str]]:
    transcript = Transcript(now_s=lambda: NOW_S)
    for frame in frames:
        transcript.note_frame("c", parse_frame(frame))
    return transcript.lines


def test_ids_are_told_apart_but_not_told() -> None:
    error = (1).to_bytes(4, "big") + b"E_FIN_FAILED FIN " + OTHER + b" failed"
    assert noted(message(ID, 1, b"x"), message(OTHER, 2, b"y"), message(ID, 3, b"x"), error) == {
        "c": [
            "message ID1 attempts=1 x",
            "message ID2 attempts=2 y",
            "message ID1 attempts=3 x",
            "error E_FIN_FAILED FIN ID2 failed",
        ]
    }


def test_an_instant_that_is_not_now_is_told() -> None:
    assert noted(message(ID, 1, b"x", NOW_S - 7200)) == {"c": ["message ID1 attempts=1 at 1699992800000000000 x"]}


def test_json_is_compared_field_by_field() -> None:
    lines = noted(b'\0\0\0\0{"version":"1.3.0","start_time":1700000001,"tcp_port":77,"list":[{"depth":3}],"none":[]}')
    assert lines == {
        "c": ["response JSON"],
        "c version": ['"1.3.0"'],
        "c start_time": ["now"],
        "c tcp_port": ["PORT"],
        "c list": ["1 of them"],
        "c list.0.depth": ["3"],
        "c none": ["[]"],
    }


def test_an_http_answer_is_its_status_the_headers_that_count_and_its_body() -> None:
    transcript = Transcript()
    head = b"HTTP/1.1 200 OK\r\nDate: today\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert note_answer(transcript, "r", head + b"2\r\nOK\r\n1\r\n!\r\n0\r\n\r\n") == b"OK!"
    assert transcript.lines == {"r": ["200 OK"], "r content-type": ["text/plain"], "r body": ["OK!"]}
    note_answer(transcript, "none", b"")
    assert transcript.lines["none"] == ["closed"]


def test_a_step_on_the_way_can_be_left_out() -> None:
    transcript = Transcript()
    transcript.note_json("a body", b'{"x": 1, "y": [2]}')
    transcript.note("another", "z")
    transcript.forget("a body")
    assert transcript.lines == {"another": ["z"]}


def test_lines_of_stats_have_no_instants_ports_or_sizes() -> None:
    text = "start_time now\nuptime 3s\n   heap_objects\t77\n [V2 h:5] connected: 9s\n[t] depth: 7\n"
    expected = [
        "start_time ...",
        "uptime ...",
        "   heap_objects\tN",
        " [V2 h:PORT] connected: ...",
        "[t] depth: 7",
    ]
    assert text_lines(text) == expected


def test_what_one_side_did_not_answer_differs_too() -> None:
    found = differences("s", {"a": ["1", "2"], "b": ["x"]}, {"a": ["1"], "c": ["y"]})
    assert found == [
        Difference("s", "a", "1 | 2", "1"),
        Difference("s", "b", "x", ""),
        Difference("s", "c", "", "y"),
    ]


KNOWN = Kept("a reason", (Place("s*", "b*", "[1]*", "2"), Place("other", "*", "*", "*")))


def test_only_a_difference_as_it_is_known_is_let_pass() -> None:
    verdict = judge([Difference("s1", "b", "[1] x", "2")], [KNOWN], ["s1"], ["s1", "other"])
    assert (verdict.passes, verdict.kept) == (True, {"a reason": 1})
    verdict = judge([Difference("s1", "b", "[1] x", "3")], [KNOWN], ["s1"], ["s1"])
    assert [difference.ours for difference in verdict.unexplained] == ["3"]


def test_a_known_difference_that_is_gone_is_told_where_all_its_sessions_were_played() -> None:
    verdict = judge([], [KNOWN], ["s1"], ["s1", "other"])
    assert (verdict.passes, verdict.stale) == (False, (KNOWN.places[0],))
    assert judge([], [KNOWN], ["s1"], ["s1", "s2", "other"]).passes


def test_every_difference_that_is_meant_has_its_reason_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
    assert [kept.name for kept in KEPT if f"* **{kept.name}" not in text] == []


def test_sessions_of_the_same_flags_share_a_broker_unless_they_are_alone() -> None:
    async def nothing(_play: object) -> None:
        """A session without a step."""

    one, two, three = (Session(name, nothing, ("-f",)) for name in ("one", "two", "three"))
    alone, other = Session("alone", nothing, ("-f",), alone=True), Session("other", nothing)
    assert groups([one, alone, two, other, three]) == [[one, two, three], [other], [alone]]


def test_no_two_sessions_have_one_name() -> None:
    assert len({session.name for session in SESSIONS}) == len(SESSIONS)


def test_snappy_frames_come_back_whole_also_in_pieces() -> None:
    data = bytes(range(256)) * 300
    decoder = Decoder()
    stream = encode(data) + encode(b"again")
    assert b"".join(decoder.decompress(stream[at : at + 7]) for at in range(0, len(stream), 7)) == data + b"again"


def test_a_compressed_block_is_literals_and_copies() -> None:
    assert block(b"\x0a\x08abc\x0d\x03") == b"abcabcabca"
    assert block(b"\x04\x00a\x0a\x01\x00") == b"aaaa"
    with pytest.raises(ValueError, match="outside"):
        block(b"\x04\x00a\x0a\x05\x00")
    with pytest.raises(ValueError, match="says 9"):
        block(b"\x09\x00a")


def test_a_chunk_with_a_wrong_checksum_is_refused() -> None:
    stream = bytearray(encode(b"data"))
    stream[-1] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        Decoder().decompress(bytes(stream))

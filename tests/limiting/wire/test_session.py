"""Only who has the key is heard, and only what it said, once, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiting.wire.cluster_key import ClusterKey, number_of
from limiting.wire.session import LARGEST_MESSAGE, MAGIC, Session, Side, State
from srtm.errors import BadInput, PeerError

KEY, OTHER = b"k" * 32, b"o" * 32


def pair(keys: tuple[bytes, bytes] = (KEY, KEY), expected: str = "b") -> tuple[Session, Session]:
    caller = Session(Side.CALLER, keys[0], "a", b"1" * 32, expected)
    return caller, Session(Side.CALLED, keys[1], "b", b"2" * 32)


def opened() -> tuple[Session, Session]:
    caller, called = pair()
    proof, _ = caller.feed(called.feed(caller.begin())[0])
    assert caller.is_open
    assert not called.is_open
    called.feed(proof)
    assert (caller.peer, called.peer) == ("b", "a")
    return caller, called


def test_messages_pass_both_ways_once_both_have_proved_the_key() -> None:
    caller, called = opened()
    assert called.feed(caller.seal(b"one") + caller.seal(b"")) == (b"", [b"one", b""])
    assert caller.feed(called.seal(b"two")) == (b"", [b"two"])


@given(st.lists(st.integers(1, 9), max_size=100), st.lists(st.binary(max_size=20), max_size=5))
def test_it_reads_what_comes_in_pieces(sizes: list[int], sent: list[bytes]) -> None:
    caller, called = pair()
    stream, got = caller.begin(), []
    ways = iter(sizes)

    def fed(data: bytes) -> bytes:
        answers = b""
        while data:
            size = next(ways, len(data))
            answer, messages = called.feed(data[:size])
            answers, data = answers + answer, data[size:]
            got.extend(messages)
        return answers

    proof, _ = caller.feed(fed(stream))
    fed(proof + b"".join(caller.seal(message) for message in sent))
    assert got == sent


@pytest.mark.parametrize("keys", [(KEY, OTHER), (OTHER, KEY)])
def test_without_the_key_neither_side_opens(keys: tuple[bytes, bytes]) -> None:
    caller, called = pair(keys)
    answer, _ = called.feed(caller.begin())
    with pytest.raises(PeerError, match="key"):
        caller.feed(answer)
    assert caller.state is State.OVER
    with pytest.raises(PeerError, match="key"):
        called.feed(b"x" * 32)
    with pytest.raises(PeerError, match="not open"):
        called.seal(b"x")


def test_a_proof_of_another_connection_is_none() -> None:
    caller, called = pair()
    proof, _ = caller.feed(called.feed(caller.begin())[0])
    again = Session(Side.CALLED, KEY, "b", b"3" * 32)
    again.feed(caller.begin())
    with pytest.raises(PeerError, match="key"):
        again.feed(proof)


def test_a_called_nodes_own_proof_sent_back_is_none() -> None:
    called = Session(Side.CALLED, KEY, "b", b"2" * 32)
    opening, _ = called.feed(pair()[0].begin())
    with pytest.raises(PeerError, match="key"):
        called.feed(opening[-32:])


@given(st.integers(0, 1_000), st.integers(1, 255))
def test_a_changed_message_ends_the_session(place: int, change: int) -> None:
    caller, called = opened()
    data = bytearray(caller.seal(b"take 5"))
    data[4 + place % (len(data) - 4)] ^= change
    with pytest.raises(PeerError, match="forged"):
        called.feed(bytes(data))
    with pytest.raises(PeerError, match="over"):
        called.feed(b"")


def test_messages_repeated_left_out_or_sent_back_end_the_session() -> None:
    for play in ("repeated", "left out", "sent back"):
        caller, called = opened()
        first, second = caller.seal(b"one"), caller.seal(b"two")
        played = {"repeated": (called, first + first), "left out": (called, second), "sent back": (caller, first)}
        hears, data = played[play]
        with pytest.raises(PeerError, match="forged"):
            hears.feed(data)


def test_messages_are_bounded() -> None:
    caller, called = opened()
    with pytest.raises(PeerError, match="over the"):
        caller.seal(bytes(LARGEST_MESSAGE + 1))
    with pytest.raises(PeerError, match="over the"):
        called.feed((LARGEST_MESSAGE + 1).to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("opening", "why"),
    [
        (b"GET / HTTP/1.1", "no node"),
        (MAGIC + b"\0" + b"n" * 32, "0 bytes"),
        (MAGIC + b"\x01\xff" + b"n" * 32, "no text"),
        (MAGIC + b"\x01b" + b"n" * 32, "this node's name"),
    ],
)
def test_a_bad_opening_is_refused(opening: bytes, why: str) -> None:
    with pytest.raises(PeerError, match=why):
        pair()[1].feed(opening)


def test_the_caller_wants_the_node_it_called() -> None:
    caller, called = pair(expected="c")
    with pytest.raises(PeerError, match="it is b, not c"):
        caller.feed(called.feed(caller.begin())[0])


def test_keys_derive_what_all_nodes_agree_about() -> None:
    one, same, other = ClusterKey(b"x" * 32), ClusterKey(b"x" * 32 + b"\n"), ClusterKey(b"y" * 32)
    assert one.subject("api", "a") == same.subject("api", "a") != other.subject("api", "a")
    assert one.subject("ap", "ia") != one.subject("api", "a")
    assert len(one.group("api", "*")) == 8
    assert number_of("a") == number_of("a") != number_of("b")
    with pytest.raises(BadInput, match="cluster_key_file"):
        ClusterKey(b"short\n")

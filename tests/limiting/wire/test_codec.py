"""Frames survive their bytes, and no bytes make the reader fail in another way than by PeerError."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiting.replication.auto import Confirmed, Demand, Shares
from limiting.replication.gossiped.counter import CounterBucket
from limiting.replication.gossiped.gossip import Delta
from limiting.replication.messages import (
    Ack,
    Answer,
    Ask,
    Close,
    Corrected,
    Correction,
    Hello,
    Increments,
    Release,
    Snapshot,
    SnapshotAsk,
)
from limiting.replication.open_counts import OpenCount
from limiting.replication.refill import Verdict
from limiting.wire.bits import LONGEST_VARINT, Reader
from limiting.wire.codec import decode, encode
from srtm.errors import PeerError

number = st.integers(0, 2**64)
subject = st.binary(min_size=16, max_size=16)
units = st.integers(-(2**100), 2**100)
entries = st.lists(st.tuples(st.tuples(subject, st.integers(0, 7)), units), max_size=5).map(tuple)
sliced = st.lists(
    st.tuples(st.tuples(subject, st.integers(0, 7)) | st.tuples(subject, st.integers(0, 7), number), units), max_size=5
).map(tuple)
keys = st.tuples(subject, st.integers(0, 7))
open_counts = st.builds(OpenCount, number, number)
opened = st.lists(st.tuples(keys, open_counts), max_size=3).map(tuple)
opened_at = st.lists(st.tuples(keys, st.tuples(number, number), open_counts), max_size=3).map(tuple)
verdict = st.builds(Verdict, st.booleans(), st.none() | number)
parts = st.lists(st.tuples(number, number), max_size=3).map(tuple)
counts = st.dictionaries(number, number, max_size=4)
bucket = st.builds(lambda c, limit, at: CounterBucket(c, sum(c.values()), limit, at), counts, number, number)
queue = st.lists(st.tuples(number, number), max_size=4)
FRAMES = st.one_of(
    st.builds(Increments, number, number, number, number, entries),
    st.builds(Ack, number, number, number, number, number),
    st.builds(Hello, number, number, number),
    st.builds(SnapshotAsk, number, number),
    st.builds(Snapshot, number, number, entries),
    st.builds(Increments, number, number, number, number, sliced),
    st.builds(Snapshot, number, number, sliced),
    st.builds(Increments, number, number, number, number, sliced, opened),
    st.builds(Snapshot, number, number, sliced, opened_at),
    st.builds(Ask, number, number, number, subject, number),
    st.builds(Answer, number, number, number, verdict),
    st.builds(Demand, number, st.lists(st.tuples(subject, number), max_size=4).map(tuple)),
    st.builds(Shares, number, subject, number, parts),
    st.builds(Confirmed, number, subject, number),
    st.builds(Delta, number, st.dictionaries(subject, bucket, max_size=3)),
    st.builds(Delta, number, st.dictionaries(subject, queue, max_size=3)),
    st.builds(Correction, number, number, st.binary(min_size=48, max_size=48), number),
    st.builds(Corrected, number, number, number),
    st.builds(Release, number, number, st.binary(min_size=48, max_size=48)),
    st.builds(Close, number, subject),
)


@given(FRAMES)
def test_a_frame_comes_back_from_its_bytes(frame: Increments) -> None:
    assert decode(encode(frame), frame.origin) == frame


@given(FRAMES, st.integers(0, 10_000))
def test_a_part_of_a_frame_is_refused(frame: Increments, place: int) -> None:
    data = encode(frame)
    with pytest.raises(PeerError):
        decode(data[: place % len(data)], 1)
    with pytest.raises(PeerError):
        decode(data + b"\0", 1)


@given(st.binary(max_size=200))
def test_bytes_make_a_frame_or_are_refused(data: bytes) -> None:
    try:
        frame = decode(data, 7)
    except PeerError:
        return
    assert frame.origin == 7
    assert decode(encode(frame), 7) == frame


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ends"),
        (b"\x63", "kind 99"),
        (b"\x01\x01\x01\x01\xff\xff\xff\xff\x0f", "elements follow"),
        (b"\x03" + b"\x80" * LONGEST_VARINT + b"\x01\x01", "more than"),
        (b"\x07\x01\x01\x02\x00", "verdict"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, why: str) -> None:
    with pytest.raises(PeerError, match=why):
        decode(data, 1)


def test_a_count_without_bytes_reserves_no_memory() -> None:
    with pytest.raises(PeerError):
        Reader(b"\xff\xff\xff\x7f" + b"\0" * 100).count(1)


def test_slices_of_windows_and_open_requests_make_frames_of_their_own_kinds_and_others_keep_their_bytes() -> None:
    bucket, slice_of_window = ((b"s" * 16, 0), 5), ((b"s" * 16, 1, 7), 5)
    kinds = [
        encode(frame)[0]
        for entries in ((bucket,), (bucket, slice_of_window))
        for frame in (Increments(1, 1, 1, 1, entries), Snapshot(1, 1, entries))
    ]
    assert kinds == [1, 5, 15, 16]
    count = OpenCount(3, 4)
    opened = Increments(1, 1, 1, 1, (), ((bucket[0], count),)), Snapshot(1, 1, (), ((bucket[0], (1, 1), count),))
    assert [encode(frame)[0] for frame in opened] == [17, 18]
    assert encode(Increments(1, 2, 3, 4, (bucket,))) == b"\x01\x02\x03\x04\x01" + b"s" * 16 + b"\x00\x0a"

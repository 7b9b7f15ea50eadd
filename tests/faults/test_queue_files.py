"""The crash harness's own reading of queue files: whole messages count, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import queue_files

HEADER = b"h" * 36


def record(body: bytes) -> bytes:
    return b"\xf5msg" + (64 + len(body)).to_bytes(4, "little") + b"\0" * 68 + body


@pytest.mark.parametrize("missing", range(1, len(record(b"second")) + 1))
def test_a_message_of_which_the_end_is_missing_is_not_there(missing: int) -> None:
    content = HEADER + record(b"first") + record(b"second")
    assert list(queue_files.bodies(content)) == [b"first", b"second"]
    assert list(queue_files.bodies(content[:-missing])) == [b"first"]


@pytest.mark.parametrize("content", [b"", HEADER, HEADER[:20], HEADER + b"\xf5msg\x3f\0\0\0" + b"\0" * 100])
def test_what_is_no_message_ends_the_reading(content: bytes) -> None:
    assert list(queue_files.bodies(content)) == []
    assert list(queue_files.bodies(HEADER + record(b"x") + content)) == [b"x"]


def test_messages_are_found_by_the_queue_that_their_file_is_of(tmp_path: Path) -> None:
    for name, body in (("t.000001.seg", b"1"), ("t.000002.seg", b"2"), ("t:c.000003.seg", b"3"), ("t:c.meta", b"4")):
        (tmp_path / name).write_bytes(HEADER + 2 * record(body))
    assert queue_files.read(tmp_path) == {"t": {b"1": 2, b"2": 2}, "t:c": {b"3": 2}}

"""What stands in a broker's queue files, read apart from the code that wrote them (``broker/engine/src/disk``): a
witness of what a crash left.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

SEGMENT = re.compile(r"(?P<queue>.+)\.(?P<number>[0-9]{6,})\.seg")

_HEADER = 36  # bytes before the first record
_MARKER = b"\xf5msg"
_LENGTH = slice(4, 8)  # of a record: little-endian, counts what stands behind the checksum
_CHECKSUM_END = 12
_HEAD = 76  # bytes of a record before its body


def bodies(content: bytes) -> Iterator[bytes]:
    """Of a segment's whole records, in order, up to where there is none. Checksums are not looked at: a killed process
    leaves an end that is missing, never one that is wrong.
    """
    at = _HEADER
    while content.startswith(_MARKER, at):
        head = content[at : at + _HEAD]
        end = at + _CHECKSUM_END + int.from_bytes(head[_LENGTH], "little")
        if end < at + _HEAD or end > len(content):
            return
        yield content[at + _HEAD : end]
        at = end


def read(directory: Path) -> dict[str, Counter[bytes]]:
    """{queue: how many of each body} of all segments in ``directory``; a queue is ``TOPIC`` or ``TOPIC:CHANNEL``."""
    found: dict[str, Counter[bytes]] = defaultdict(Counter)
    for file in directory.iterdir():
        if match := SEGMENT.fullmatch(file.name):
            found[match["queue"]].update(bodies(file.read_bytes()))
    return found

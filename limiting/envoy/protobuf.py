"""The wire format of protocol buffers (protobuf.dev/programming-guides/encoding), as far as a few messages need it.

The ``protobuf`` library would need generated code, which is tied to the version of the library.
"""

from __future__ import annotations

from collections.abc import Iterator

from srtm.errors import PeerError

VARINT, I64, LENGTH, I32 = 0, 1, 2, 5
_FIXED = {I64: 8, I32: 4}
_LARGEST = 2**64 - 1
_SMALL = [bytes([value]) for value in range(0x80)]  # varints: most are tags and lengths

Value = int | bytes


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield number and value of each field, in order: an int of a varint, else bytes. Raises PeerError."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise PeerError("the message has a field with the number 0")
        if kind == VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == LENGTH:
            size, at = _varint(data, at)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise PeerError(f"field {number} of the message is of wire type {kind}, which is not read here")
        if size > end - at:
            raise PeerError(f"field {number} of the message ends after the message")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    if at < len(data) and data[at] < 0x80:
        return data[at], at + 1
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _LARGEST:
                break
            return value, at
        shift += 7
        if shift > 63:
            break
    raise PeerError("the message has a number without an end, or of more than 64 bits")


def number_in(value: Value) -> int:
    """Return the value of a field of numbers. Raises PeerError."""
    if isinstance(value, bytes):
        raise PeerError("the message has bytes where there must be a number")
    return value


def bytes_in(value: Value) -> bytes:
    """Return the value of a field of bytes or of a message. Raises PeerError."""
    if not isinstance(value, bytes):
        raise PeerError("the message has a number where there must be text or a message")
    return value


def text_in(value: Value) -> str:
    """Return the value of a field of text. Raises PeerError."""
    try:
        return bytes_in(value).decode()
    except UnicodeDecodeError:
        raise PeerError("the message has a text that is not UTF-8") from None


def varint(value: int) -> bytes:
    """Return a number as a varint."""
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """Return a field with a number; 0 is what is not there."""
    return varint(field << 3 | VARINT) + varint(value) if value else b""


def content(field: int, value: bytes) -> bytes:
    """Return a field with bytes, or with a message, which may be empty."""
    return varint(field << 3 | LENGTH) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    """Return a field with text; an empty one is what is not there."""
    return content(field, value.encode()) if value else b""

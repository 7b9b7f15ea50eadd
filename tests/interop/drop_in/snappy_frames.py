"""Snappy's framing format (framing_format.txt of google/snappy), as far as a client needs it: what is sent goes in
uncompressed chunks, what comes back is decompressed. Pure."""

from __future__ import annotations

import struct

_STREAM = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED, _UNCOMPRESSED = 0x00, 0x01
_LARGEST = 65_536  # bytes of a chunk before compression
_CRC32C = 0x82F63B78
_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (_CRC32C if _byte & 1 else 0)
    _TABLE.append(_byte)


def _masked_checksum(data: bytes) -> bytes:
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    value ^= 0xFFFFFFFF
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def encode(data: bytes) -> bytes:
    """A stream of its own: a new one may begin anywhere."""
    out = [_STREAM]
    for at in range(0, len(data), _LARGEST):
        part = data[at : at + _LARGEST]
        out.append(bytes([_UNCOMPRESSED]) + (len(part) + 4).to_bytes(3, "little") + _masked_checksum(part) + part)
    return b"".join(out)


class Decoder:
    def __init__(self) -> None:
        self._pending = b""

    def decompress(self, data: bytes) -> bytes:
        """What is whole of the stream so far. Raises ValueError."""
        self._pending += data
        out = []
        while len(self._pending) >= 4:
            size = int.from_bytes(self._pending[1:4], "little")
            if len(self._pending) < 4 + size:
                break
            kind, chunk = self._pending[0], self._pending[4 : 4 + size]
            self._pending = self._pending[4 + size :]
            if kind in (_COMPRESSED, _UNCOMPRESSED):
                part = chunk[4:] if kind == _UNCOMPRESSED else block(chunk[4:])
                if _masked_checksum(part) != chunk[:4]:
                    raise ValueError("a chunk's checksum is not its data's")
                out.append(part)
        return b"".join(out)


def block(data: bytes) -> bytes:
    """One compressed block (format_description.txt). Raises ValueError."""
    size, at = _varint(data)
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                length, at = int.from_bytes(data[at : at + extra], "little"), at + extra
            out += data[at : at + length + 1]
            at += length + 1
            continue
        length, offset, at = _copy(data, tag, at)
        if not 0 < offset <= len(out):
            raise ValueError("a copy from outside of the block")
        for _ in range(length):
            out.append(out[-offset])
    if len(out) != size:
        raise ValueError(f"a block of {len(out)} bytes that says {size}")
    return bytes(out)


def _copy(data: bytes, tag: int, at: int) -> tuple[int, int, int]:
    """Length, offset, and where the next element begins."""
    if tag & 3 == 1:
        return (tag >> 2 & 7) + 4, tag >> 5 << 8 | data[at], at + 1
    extra = 2 if tag & 3 == 2 else 4
    return (tag >> 2) + 1, int.from_bytes(data[at : at + extra], "little"), at + extra


def _varint(data: bytes) -> tuple[int, int]:
    value = 0
    for at, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return value, at + 1
    raise ValueError("a length without an end")

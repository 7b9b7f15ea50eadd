"""Frames of HTTP/2 (RFC 9113, sections 3.4, 4 and 6): bytes to frames, and frames to bytes.

A general library takes two thirds of the time of a call here, most of it for what gRPC does not use.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LONGEST_FRAME = 16 << 10  # bytes: what HTTP/2 has without another agreement
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, HAS_PRIORITY = 0x4, 0x8, 0x20
_HEAD = Struct(">HBBBI")  # length (its low 8 bits apart), kind, flags, stream
_HEAD_BYTES = 9
_STREAM_BITS = 2**31 - 1


class ErrorCode(IntEnum):
    """Why a stream or a connection ends (section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    FLOW_CONTROL_ERROR = 3
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Broken(Exception):
    """The peer breaks HTTP/2: the connection ends with ``code``."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Frame(NamedTuple):
    """A received frame."""

    kind: int
    flags: int
    stream: int
    payload: bytes


class Frames:
    """Cuts what a client sends into frames. An overlong one is refused by its head."""

    def __init__(self) -> None:
        self._kept = b""  # the beginning of a frame
        self._preface = PREFACE  # what is still to come of it

    def feed(self, data: bytes) -> list[Frame]:
        """Take in received bytes; return the frames that they complete. Raises Broken."""
        if self._preface:
            expected, data = self._preface[: len(data)], self._after_preface(data)
            self._preface = self._preface[len(expected) :]
        data = self._kept + data
        frames: list[Frame] = []
        at, end = 0, len(data)
        while end - at >= _HEAD_BYTES:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
            size = high << 8 | low
            if size > LONGEST_FRAME:
                raise Broken(ErrorCode.FRAME_SIZE_ERROR)
            begin = at + _HEAD_BYTES
            if end - begin < size:
                break
            at = begin + size
            frames.append(Frame(kind, flags, stream & _STREAM_BITS, data[begin:at]))
        self._kept = data[at:]
        return frames

    def _after_preface(self, data: bytes) -> bytes:
        size = len(self._preface)
        if not self._preface.startswith(data[:size]):
            raise Broken(ErrorCode.PROTOCOL_ERROR)
        return data[size:]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame as bytes."""
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def unpadded(got: Frame) -> bytes:
    """Return what a frame of DATA or HEADERS carries, without padding. Raises Broken."""
    payload = got.payload
    if not got.flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Broken(ErrorCode.PROTOCOL_ERROR)
    return payload[1 : len(payload) - payload[0]]

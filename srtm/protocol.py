"""NSQ's protocol V2 as a client speaks it, without I/O: commands to bytes, bytes to events.

    client -> broker   "  V2" once, then COMMAND words "\\n" [int32 size, body]
    broker -> client   int32 size | int32 type | data (size - 4 bytes)       type 0 response, 1 error, 2 message
    message data       int64 timestamp_ns | uint16 attempts | 16 bytes id | body       all integers big-endian

Commands are answered in order; RDY, FIN, REQ, TOUCH and NOP have no answer unless they fail. SRTM's additions (design
section 11) are the receipt in the answer to a publish, the error E_RATE_LIMITED, the response ``_move_``, and the
command LEFT with the response ``_left_``; a plain nsqd has none of them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from srtm.errors import BadInput, PeerError

MAGIC = b"  V2"
# nsqd's largest message is 1 MiB unless told otherwise; the rest is an operator's margin
DEFAULT_FRAME_LIMIT_BYTES = 16 << 20

_HEAD = struct.Struct(">ii")
_MESSAGE_HEAD = struct.Struct(">qH16s")
_SIZE = struct.Struct(">i")
_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")
NAME_RULE = 'must be 1 to 64 of the characters . _ - A-Z a-z 0-9, and may end in "#ephemeral"'
_RATE_LIMITED = re.compile(r"retry after (\d+(?:\.\d+)?) ms")
# Only these leave the connection open (nsqd's three, and ours).
_NON_FATAL = frozenset({"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED", "E_RATE_LIMITED"})


class NeedData(Enum):
    """What ``EventReader.next_event`` gives where no frame is whole."""

    NEED_DATA = "need data"


NEED_DATA: Final = NeedData.NEED_DATA


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to the oldest command that has none yet."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Error:
    """``code`` is the first word (``E_...``). After a fatal one the broker closes the connection."""

    code: str
    text: str

    @property
    def fatal(self) -> bool:
        return self.code not in _NON_FATAL

    @property
    def retry_after_ms(self) -> float | None:
        """Set for E_RATE_LIMITED: when the topic's bucket will have the tokens."""
        found = _RATE_LIMITED.search(self.text) if self.code == "E_RATE_LIMITED" else None
        return None if found is None else float(found[1])


@dataclass(frozen=True, slots=True)
class Message:
    """``timestamp_ns``: wall clock of the broker when it took the message; ``attempts``: deliveries in this channel,
    this one included."""

    timestamp_ns: int
    attempts: int
    id: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """To be answered with any command, NOP being the usual one, within two intervals."""


@dataclass(frozen=True, slots=True)
class Move:
    """This publisher belongs to the broker at ``address`` (HOST:PORT). Never an answer to a command."""

    address: str
    version: int


@dataclass(frozen=True, slots=True)
class Left:
    """All that was published before LEFT with this number has left to its consumers. Never the next answer to a
    publish."""

    number: int


Event = Response | Error | Message | Heartbeat | Move | Left


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a broker of ours says about an accepted publish; both None from a plain nsqd.

    ``wait_ms``: how long the message waits for its token; ``fill``: of the bucket here, as a fraction of its burst.
    """

    wait_ms: float | None = None
    fill: float | None = None


class EventReader:
    """Bytes in any pieces in, events out. After a PeerError it must not be used again: close the connection."""

    def __init__(self, frame_limit_bytes: int = DEFAULT_FRAME_LIMIT_BYTES) -> None:
        self._buffer = bytearray()
        self._start = 0  # of the first frame not yet read; what is before it is dropped with the next bytes
        self._frame_limit_bytes = frame_limit_bytes

    def receive_data(self, data: bytes | bytearray) -> None:
        del self._buffer[: self._start]
        self._start = 0
        self._buffer += data

    def next_event(self) -> Event | NeedData:
        """Raises PeerError for what no broker sends: an impossible size, an unknown type, a message cut short, a
        malformed move or word that all has left."""
        have = len(self._buffer) - self._start
        if have < _HEAD.size:
            return NEED_DATA
        size, kind = _HEAD.unpack_from(self._buffer, self._start)
        if not 4 <= size <= self._frame_limit_bytes:
            raise PeerError(f"a frame of {size} bytes, where 4 to {self._frame_limit_bytes} are allowed")
        if kind not in _DECODERS:  # before the rest has come: garbage must not make us wait for megabytes
            raise PeerError(f"a frame of unknown type {kind}")
        if have < 4 + size:
            return NEED_DATA
        end = self._start + 4 + size
        data = bytes(memoryview(self._buffer)[self._start + _HEAD.size : end])
        self._start = end
        return _DECODERS[kind](data)


def _response(data: bytes) -> Event:
    if data == b"_heartbeat_":
        return Heartbeat()
    if data.startswith(b"_move_ "):
        return _move(data)
    if data.startswith(b"_left_ "):
        return _left(data)
    return Response(data)


def _move(data: bytes) -> Move:
    words = data.decode("ascii", errors="replace").split(" ")
    if len(words) != 3 or not words[2].isdecimal() or ":" not in words[1]:
        raise PeerError(f"a malformed move: {data[:100]!r}")
    return Move(words[1], int(words[2]))


def _left(data: bytes) -> Left:
    words = data.decode("ascii", errors="replace").split(" ")
    if len(words) != 3 or not words[2].isdecimal():
        raise PeerError(f"a malformed word that all has left: {data[:100]!r}")
    return Left(int(words[2]))


def _error(data: bytes) -> Event:
    code, _, text = data.decode("utf-8", errors="replace").partition(" ")
    return Error(code, text)


def _message(data: bytes) -> Event:
    if len(data) < _MESSAGE_HEAD.size:
        raise PeerError(f"a message frame of {len(data)} bytes, shorter than its own header")
    timestamp_ns, attempts, message_id = _MESSAGE_HEAD.unpack_from(data)
    return Message(timestamp_ns, attempts, message_id, data[_MESSAGE_HEAD.size :])


_DECODERS = {0: _response, 1: _error, 2: _message}


def parse_receipt(data: bytes) -> Receipt:
    """The answer ``OK`` or ``OK wait_ns=N fill=X``; words that we do not know are skipped. Raises PeerError for any
    other answer."""
    words = data.split(b" ")
    if words[0] != b"OK":
        raise PeerError(f"a publish was answered {data[:100]!r}")
    values = dict(word.split(b"=", 1) for word in words[1:] if b"=" in word)
    try:
        wait_ms = float(values[b"wait_ns"]) / 1e6 if b"wait_ns" in values else None
        return Receipt(wait_ms, float(values[b"fill"]) if b"fill" in values else None)
    except ValueError:
        raise PeerError(f"a malformed receipt: {data[:100]!r}") from None


def checked_name(field: str, name: str) -> str:
    """A topic's or channel's name as the protocol allows it. Raises BadInput."""
    if not is_name(name):
        raise BadInput(field, name, NAME_RULE)
    return name


def is_name(text: str) -> bool:
    """Of a topic or channel; the 64 characters include the suffix."""
    return len(text) <= 64 and _NAME.fullmatch(text) is not None


def is_ephemeral(name: str) -> bool:
    """Whether the topic or channel ends with its last consumer: it is in memory only."""
    return name.endswith("#ephemeral")


def identify(settings: Mapping[str, object]) -> bytes:
    return b"IDENTIFY\n" + _sized(msgspec.json.encode(settings))


def pub(topic: str, body: bytes) -> bytes:
    """Raises BadInput for an empty body, which the protocol has no place for."""
    return f"PUB {topic}\n".encode() + _sized(_checked_body(body))


def mpub(topic: str, bodies: Sequence[bytes]) -> bytes:
    """All or nothing. Raises BadInput for no bodies or an empty one."""
    if not bodies:
        raise BadInput("bodies", [], "must hold at least one message")
    packed = _SIZE.pack(len(bodies)) + b"".join(_sized(_checked_body(body)) for body in bodies)
    return f"MPUB {topic}\n".encode() + _sized(packed)


def sub(topic: str, channel: str) -> bytes:
    return f"SUB {topic} {channel}\n".encode()


def rdy(count: int) -> bytes:
    return b"RDY %d\n" % count


def fin(message_id: bytes) -> bytes:
    return b"FIN " + message_id + b"\n"


def req(message_id: bytes, delay_ms: int) -> bytes:
    return b"REQ " + message_id + b" %d\n" % delay_ms


def touch(message_id: bytes) -> bytes:
    return b"TOUCH " + message_id + b"\n"


def cls() -> bytes:
    return b"CLS\n"


def nop() -> bytes:
    return b"NOP\n"


def left(topic: str, number: int) -> bytes:
    """To be answered with ``Left(number)`` once all that was published on this connection has left."""
    return f"LEFT {topic} {number}\n".encode()


def _sized(body: bytes) -> bytes:
    return _SIZE.pack(len(body)) + body


def _checked_body(body: bytes) -> bytes:
    if not body:
        raise BadInput("body", body, "must hold at least one byte")
    return body

"""The client's side of the NSQ protocol V2, without I/O: commands to bytes, bytes to events.

    client -> broker   "  V2" once, then COMMAND words "\\n" [int32 size, body]
    broker -> client   int32 size | int32 type | data (size - 4 bytes)       type 0 response, 1 error, 2 message
    message data       int64 timestamp_ns | uint16 attempts | 16 bytes id | body       all integers big-endian

The broker answers commands in order. RDY, FIN, REQ, TOUCH and NOP have no answer unless they fail. SRTM adds a receipt
in the answer to a publish, the error E_RATE_LIMITED, the response ``_move_``, and the command LEFT with the response
``_left_``. A plain nsqd has none of them.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from srtm.errors import BadInput, PeerError

MAGIC = b"  V2"
# nsqd allows messages of 1 MiB by default; operators may allow larger ones, up to this limit.
DEFAULT_FRAME_LIMIT_BYTES = 16 << 20

_HEAD = struct.Struct(">ii")
_MESSAGE_HEAD = struct.Struct(">qH16s")
_SIZE = struct.Struct(">i")
_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")
NAME_RULE = 'must be 1 to 64 of the characters . _ - A-Z a-z 0-9, and may end in "#ephemeral"'
TOPIC_RULE = f'{NAME_RULE}; not "." or ".."'
_RATE_LIMITED = re.compile(r"retry after (\d+(?:\.\d+)?) ms")
# After these errors the connection stays open: three of nsqd and one of SRTM.
_NON_FATAL = frozenset({"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED", "E_RATE_LIMITED"})


class NeedData(Enum):
    """Type of ``NEED_DATA``, which ``EventReader.next_event`` returns while no frame is complete."""

    NEED_DATA = "need data"


NEED_DATA: Final = NeedData.NEED_DATA


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to the oldest command that has no answer yet."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Error:
    """An error answer; ``code`` is its first word (``E_...``). After a fatal error the broker closes the connection."""

    code: str
    text: str

    @property
    def fatal(self) -> bool:
        """Whether the broker closes the connection after it."""
        return self.code not in _NON_FATAL

    @property
    def retry_after_ms(self) -> float | None:
        """For E_RATE_LIMITED: time until the topic's bucket or the contract has the tokens, ms. Else None."""
        found = _RATE_LIMITED.search(self.text) if self.code == "E_RATE_LIMITED" else None
        return None if found is None else float(found[1])


@dataclass(frozen=True, slots=True)
class Message:
    """A delivered message.

    ``timestamp_ns``: the broker's wall clock when it accepted the message. ``attempts``: deliveries in this channel,
    this one included.
    """

    timestamp_ns: int
    attempts: int
    id: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat. The client must send any command, usually NOP, within two heartbeat intervals."""


@dataclass(frozen=True, slots=True)
class Move:
    """An order to move: this publisher belongs to the broker at ``address`` (HOST:PORT). It answers no command."""

    address: str
    version: int


@dataclass(frozen=True, slots=True)
class Left:
    """All messages published before LEFT with this number are delivered. Never the answer to a publish."""

    number: int


Event = Response | Error | Message | Heartbeat | Move | Left


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an SRTM broker reports about an accepted publish. A plain nsqd reports nothing: both are None.

    ``wait_ms``: how long the message waits for its token, ms. ``fill``: fill of the broker's bucket, as a fraction of
    its burst.
    """

    wait_ms: float | None = None
    fill: float | None = None


class EventReader:
    """Parses bytes, in pieces of any size, into events. After a PeerError close the connection."""

    def __init__(self, frame_limit_bytes: int = DEFAULT_FRAME_LIMIT_BYTES) -> None:
        self._buffer = bytearray()
        self._start = 0  # start of the first unread frame; the bytes before it are dropped with the next input
        self._frame_limit_bytes = frame_limit_bytes

    def receive_data(self, data: bytes | bytearray) -> None:
        """Store bytes that the broker sent."""
        del self._buffer[: self._start]
        self._start = 0
        self._buffer += data

    def next_event(self) -> Event | NeedData:
        """Parse the next event; NEED_DATA if no frame is complete.

        Raises PeerError for a bad size, an unknown frame type, a truncated message, a malformed move or left response.
        """
        have = len(self._buffer) - self._start
        if have < _HEAD.size:
            return NEED_DATA
        size, kind = _HEAD.unpack_from(self._buffer, self._start)
        if not 4 <= size <= self._frame_limit_bytes:
            raise PeerError(f"a frame has {size} bytes; 4 to {self._frame_limit_bytes} are allowed")
        if kind not in _DECODERS:  # checked before the frame is complete: garbage may announce megabytes
            raise PeerError(f"a frame has the unknown type {kind}")
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
        raise PeerError(f"a malformed left response: {data[:100]!r}")
    return Left(int(words[2]))


def _error(data: bytes) -> Event:
    code, _, text = data.decode("utf-8", errors="replace").partition(" ")
    return Error(code, text)


def _message(data: bytes) -> Event:
    if len(data) < _MESSAGE_HEAD.size:
        raise PeerError(f"a message frame has {len(data)} bytes, fewer than its header")
    timestamp_ns, attempts, message_id = _MESSAGE_HEAD.unpack_from(data)
    return Message(timestamp_ns, attempts, message_id, data[_MESSAGE_HEAD.size :])


_DECODERS = {0: _response, 1: _error, 2: _message}


def parse_receipt(data: bytes) -> Receipt:
    """Parse the answer ``OK`` or ``OK wait_ns=N fill=X`` to a publish. Unknown words are skipped.

    Raises PeerError for any other answer.
    """
    words = data.split(b" ")
    if words[0] != b"OK":
        raise PeerError(f"the answer to a publish is {data[:100]!r}, not OK")
    values = dict(word.split(b"=", 1) for word in words[1:] if b"=" in word)
    try:
        wait_ms = float(values[b"wait_ns"]) / 1e6 if b"wait_ns" in values else None
        return Receipt(wait_ms, float(values[b"fill"]) if b"fill" in values else None)
    except ValueError:
        raise PeerError(f"a malformed receipt: {data[:100]!r}") from None


def checked_name(field: str, name: str) -> str:
    """Return ``name`` if it is a valid name of a topic or channel. Raises BadInput."""
    if not is_name(name):
        raise BadInput(field, name, NAME_RULE)
    return name


def checked_topic(field: str, name: str) -> str:
    """Return ``name`` if it is a valid name of a topic. Raises BadInput."""
    if not is_topic(name):
        raise BadInput(field, name, TOPIC_RULE)
    return name


def is_topic(text: str) -> bool:
    """Whether ``text`` is a valid name of a topic: ``.`` and ``..`` end elsewhere wherever a path is shortened."""
    return is_name(text) and text not in (".", "..")


def is_name(text: str) -> bool:
    """Whether ``text`` is a valid name of a topic or channel; its 64 characters include the suffix."""
    return len(text) <= 64 and _NAME.fullmatch(text) is not None


def is_ephemeral(name: str) -> bool:
    """Whether the topic or channel ends with its last consumer: it is in memory only."""
    return name.endswith("#ephemeral")


_LINK_CHANNEL = "srtm.link."


RETAINED_TOPIC = "srtm.retained"  # its links carry what MQTT clients retain; nobody looks it up


def link_channel(broker: str) -> str:
    """The channel that ``broker`` consumes at other brokers, for its MQTT subscribers."""
    channel = f"{_LINK_CHANNEL}{broker}"
    if is_name(channel):
        return channel
    return f"{_LINK_CHANNEL}{hashlib.sha256(broker.encode()).hexdigest()[:40]}"  # its name is too long


def is_link_channel(channel: str) -> bool:
    """Whether the channel is that of a link: no client consumes it, and other brokers have none of that name."""
    return channel.startswith(_LINK_CHANNEL)


def identify(settings: Mapping[str, object]) -> bytes:
    """Encode IDENTIFY with its settings as JSON."""
    return b"IDENTIFY\n" + _sized(msgspec.json.encode(settings))


def auth(secret: str) -> bytes:
    """Encode AUTH. Raises BadInput for an empty secret, which the protocol does not allow."""
    if not secret:
        raise BadInput("secret", secret, "must not be empty")
    return b"AUTH\n" + _sized(secret.encode())


def pub(topic: str, body: bytes) -> bytes:
    """Encode PUB. Raises BadInput for an empty body, which the protocol does not allow."""
    return f"PUB {topic}\n".encode() + _sized(_checked_body(body))


def mpub(topic: str, bodies: Sequence[bytes]) -> bytes:
    """Encode MPUB: the broker accepts all messages or none. Raises BadInput for no bodies or an empty one."""
    if not bodies:
        raise BadInput("bodies", [], "must hold at least one message")
    packed = _SIZE.pack(len(bodies)) + b"".join(_sized(_checked_body(body)) for body in bodies)
    return f"MPUB {topic}\n".encode() + _sized(packed)


def sub(topic: str, channel: str) -> bytes:
    """Encode SUB."""
    return f"SUB {topic} {channel}\n".encode()


def rdy(count: int) -> bytes:
    """Encode RDY: the number of messages that may be in flight."""
    return b"RDY %d\n" % count


def fin(message_id: bytes) -> bytes:
    """Encode FIN."""
    return b"FIN " + message_id + b"\n"


def req(message_id: bytes, delay_ms: int) -> bytes:
    """Encode REQ: deliver the message again after ``delay_ms``."""
    return b"REQ " + message_id + b" %d\n" % delay_ms


def touch(message_id: bytes) -> bytes:
    """Encode TOUCH."""
    return b"TOUCH " + message_id + b"\n"


def cls() -> bytes:
    """Encode CLS: the consumer wants no more messages."""
    return b"CLS\n"


def nop() -> bytes:
    """Encode NOP."""
    return b"NOP\n"


def left(topic: str, number: int) -> bytes:
    """Encode LEFT. The broker answers ``Left(number)`` once it delivered everything published on this connection."""
    return f"LEFT {topic} {number}\n".encode()


def _sized(body: bytes) -> bytes:
    return _SIZE.pack(len(body)) + body


def _checked_body(body: bytes) -> bytes:
    if not body:
        raise BadInput("body", body, "must hold at least one byte")
    return body

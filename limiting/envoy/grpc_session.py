"""One connection of a gRPC server, sans-IO: bytes in, calls out, answers in, bytes out.

It serves calls of one request message (grpc.io: "gRPC over HTTP2"; RFC 9113). A call is there when its message is
complete. What a connection may hold is bounded: its streams, its messages, and what the peer may send before they are
read. Headers of requests are read by ``hpack``; those of answers are constants.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple
from urllib.parse import quote

from hpack import Decoder, Encoder, HPACKError

from limiting.envoy.http2 import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEADERS,
    PING,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Broken,
    ErrorCode,
    Frame,
    Frames,
    frame,
    unpadded,
)

LONGEST_MESSAGE = 16 << 10  # bytes: 16 subjects of the longest kind
MOST_STREAMS = 100  # at once
_LONGEST_HEADERS = 16 << 10
_LONGEST_PART = 16 << 10  # of an answer, in one frame
_PREFIX = struct.Struct(">?I")  # compressed, length
_NUMBER = struct.Struct(">I")
_SETTING = struct.Struct(">HI")
_MOST_CONCURRENT, _INITIAL_WINDOW, _HEADER_LIST_SIZE = 3, 4, 6  # settings
_WINDOW = 65_535  # of a stream and of a connection, bytes, unless somebody says otherwise
_LARGEST_WINDOW = 2**31 - 1
_GIVEN_BACK = _WINDOW // 2  # bytes that are read before the peer hears of it
# All streams together may be about to send their messages, so that none waits for another.
_ROOM = MOST_STREAMS * LONGEST_MESSAGE
_NO_TABLE = b"\x20"  # this side's headers use no table (RFC 7541, section 6.3)


class Code(IntEnum):
    """Status codes of gRPC."""

    OK = 0
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class Call(NamedTuple):
    """A complete call: its stream, method (``/package.Service/Method``), message, and ``authorization``, if given."""

    stream: int
    method: str
    message: bytes
    authorization: str | None


class _Request:
    """A call that is not complete."""

    def __init__(self, method: str, authorization: str | None) -> None:
        self.method = method
        self.authorization = authorization
        self.body = bytearray()


def _block(*headers: tuple[str, str]) -> bytes:
    """Headers as bytes that need no table, and so are the same on all connections."""
    return Encoder().encode([(name, value, True) for name, value in headers])


_HEADERS = ((":status", "200"), ("content-type", "application/grpc"))
_BEGIN = _block(*_HEADERS)
_OK = _block(("grpc-status", "0"))


class GrpcSession:
    """The server's side. After ``feed`` and after each answer ``outgoing`` has what to send."""

    def __init__(self) -> None:
        settings = _SETTING.pack(_MOST_CONCURRENT, MOST_STREAMS) + _SETTING.pack(_HEADER_LIST_SIZE, _LONGEST_HEADERS)
        self._out = [frame(SETTINGS, 0, 0, settings), frame(WINDOW_UPDATE, 0, 0, _NUMBER.pack(_ROOM))]
        self._frames = Frames()
        self._has_settings = False
        self._decoder = Decoder(_LONGEST_HEADERS)
        self._repeated: tuple[bytes, dict[bytes, bytes]] | None = None  # headers that may come again as the same bytes
        self._block: tuple[Frame, bytes] | None = None  # a HEADERS frame that others continue, and its block so far
        self._last = 0  # the latest stream of the peer
        self._windows: dict[int, int] = {}  # of streams that are to be answered: what the peer takes, bytes
        self._requests: dict[int, _Request] = {}
        self._called: set[int] = set()  # given out, and not answered: also such as the peer has given up
        self._unsent: dict[int, tuple[bytes, bool]] = {}  # by stream: what its window does not take, and whether to end
        self._window = self._initial = _WINDOW  # what the peer takes: of all streams, of a new one
        self._room = _WINDOW + _ROOM  # what the peer may send
        self._read = 0  # what it has sent, and may send again
        self._no_table = _NO_TABLE  # before the first headers of this side
        self._calls: list[Call] = []  # that the bytes in hand complete
        self.is_closed = False

    def outgoing(self) -> bytes:
        """Return the bytes to send."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def feed(self, data: bytes) -> list[Call]:
        """Take in received bytes; return the calls that they complete. A peer that breaks HTTP/2 is sent away."""
        try:
            for got in self._frames.feed(data):
                if self.is_closed:
                    break
                self._handle(got)
        except Broken as error:
            self.close(error.code)
            self._calls.clear()
            return []
        if self._read >= _GIVEN_BACK:
            self._out.append(frame(WINDOW_UPDATE, 0, 0, _NUMBER.pack(self._read)))
            self._room += self._read
            self._read = 0
        calls, self._calls = self._calls, []
        return calls

    def _handle(self, got: Frame) -> None:
        if not self._has_settings:
            _require(got.kind == SETTINGS and not got.flags & ACK)
            self._has_settings = True
        if self._block is not None:
            _require(got.kind == CONTINUATION and got.stream == self._block[0].stream)
            self._gather(self._block[0], self._block[1] + got.payload, got.flags)
        elif handler := _HANDLERS.get(got.kind):
            handler(self, got)
        else:  # others ask for nothing: PRIORITY, and GOAWAY, after which a client waits for what is under way
            _require(got.kind not in (PUSH_PROMISE, CONTINUATION))

    def _pong(self, got: Frame) -> None:
        _require(got.stream == 0)
        _require(len(got.payload) == 8, ErrorCode.FRAME_SIZE_ERROR)
        if not got.flags & ACK:
            self._out.append(frame(PING, ACK, 0, got.payload))

    def _give_up(self, got: Frame) -> None:
        _number(got)
        _require(0 < got.stream <= self._last)
        self._forget(got.stream)

    def _set(self, got: Frame) -> None:
        _require(got.stream == 0)
        if got.flags & ACK:
            return
        _require(len(got.payload) % _SETTING.size == 0, ErrorCode.FRAME_SIZE_ERROR)
        for name, value in _SETTING.iter_unpack(got.payload):
            if name == _INITIAL_WINDOW:
                _require(value <= _LARGEST_WINDOW, ErrorCode.FLOW_CONTROL_ERROR)
                for stream in self._windows:
                    self._windows[stream] += value - self._initial
                self._initial = value
        self._out.append(frame(SETTINGS, ACK, 0))
        self._send_unsent()

    def _widen(self, got: Frame) -> None:
        stream, more = got.stream, _number(got) & _LARGEST_WINDOW
        _require(more > 0 and stream <= self._last)
        if stream == 0:
            self._window += more
            _require(self._window <= _LARGEST_WINDOW, ErrorCode.FLOW_CONTROL_ERROR)
        elif stream in self._windows:
            self._windows[stream] += more
            _require(self._windows[stream] <= _LARGEST_WINDOW, ErrorCode.FLOW_CONTROL_ERROR)
        self._send_unsent()

    def _send_unsent(self) -> None:
        for stream in list(self._unsent):
            self._send(stream, *self._unsent.pop(stream))

    # requests

    def _head(self, got: Frame) -> None:
        block = unpadded(got)
        self._gather(got, block[5:] if got.flags & HAS_PRIORITY else block, got.flags)

    def _gather(self, head: Frame, block: bytes, flags: int) -> None:
        """Take in the headers of a stream, once they are complete."""
        _require(len(block) <= _LONGEST_HEADERS, ErrorCode.ENHANCE_YOUR_CALM)
        if not flags & END_HEADERS:
            self._block = head, block
            return
        self._block = None
        headers = self._decoded(block)
        stream = head.stream
        ends = bool(head.flags & END_STREAM)
        if stream > self._last:
            _require(stream % 2 == 1)
            self._last = stream
            self._begin(stream, headers)
        else:
            _require(stream > 0 and (ends or stream not in self._requests))
        if ends:
            self._complete(stream)

    def _decoded(self, block: bytes) -> dict[bytes, bytes]:
        if self._repeated is not None and block == self._repeated[0]:
            return self._repeated[1]
        try:
            headers = dict(self._decoder.decode(block, raw=True))
        except HPACKError:
            raise Broken(ErrorCode.COMPRESSION_ERROR) from None
        # A block of indexed fields alone (RFC 7541, section 6.1) changes no table, so it says the same until one does.
        self._repeated = (block, headers) if block and min(block) >= 0x80 else None
        return headers

    def _begin(self, stream: int, headers: dict[bytes, bytes]) -> None:
        if len(self._windows) + len(self._called - self._windows.keys()) >= MOST_STREAMS:
            self._reset(stream, ErrorCode.REFUSED_STREAM)
            return
        self._windows[stream] = self._initial
        if not headers.get(b"content-type", b"").startswith(b"application/grpc") or headers.get(b":method") != b"POST":
            self._end(stream, _block((":status", "415")))
            return
        authorization = headers.get(b"authorization")
        given = None if authorization is None else authorization.decode("latin-1")
        self._requests[stream] = _Request(headers.get(b":path", b"").decode("latin-1"), given)

    def _take(self, got: Frame) -> None:
        _require(0 < got.stream <= self._last)
        size = len(got.payload)
        self._room -= size
        _require(self._room >= 0, ErrorCode.FLOW_CONTROL_ERROR)
        self._read += size
        request = self._requests.get(got.stream)
        if request is None:  # refused already
            return
        request.body += unpadded(got)
        if len(request.body) > LONGEST_MESSAGE + _PREFIX.size:
            self.refuse(got.stream, Code.RESOURCE_EXHAUSTED, f"a message must be at most {LONGEST_MESSAGE} bytes")
            self._reset(got.stream, ErrorCode.NO_ERROR)  # the peer has more to say, and need not
        elif got.flags & END_STREAM:
            self._complete(got.stream)

    def _complete(self, stream: int) -> None:
        request = self._requests.pop(stream, None)
        if request is None:
            return
        body = request.body
        if len(body) < _PREFIX.size:
            self.refuse(stream, Code.INVALID_ARGUMENT, "the call has no message")
            return
        is_compressed, size = _PREFIX.unpack_from(body)
        if is_compressed:
            self.refuse(stream, Code.UNIMPLEMENTED, "messages must not be compressed")
        elif size != len(body) - _PREFIX.size:
            self.refuse(stream, Code.INVALID_ARGUMENT, "the call must be one message, as long as its prefix says")
        else:
            self._called.add(stream)
            self._calls.append(Call(stream, request.method, bytes(body[_PREFIX.size :]), request.authorization))

    def _forget(self, stream: int) -> None:
        self._windows.pop(stream, None)
        self._requests.pop(stream, None)
        self._unsent.pop(stream, None)

    # answers

    def answer(self, stream: int, message: bytes, *, is_last: bool = True) -> None:
        """Send a message, and end the call if it is the last. The headers go before the first."""
        self._called.discard(stream)
        if stream in self._windows:  # else the peer gave up waiting
            self._out.append(frame(HEADERS, END_HEADERS, stream, self._first() + _BEGIN))
            self._send(stream, _PREFIX.pack(False, len(message)) + message, is_last)

    def _first(self) -> bytes:
        """What the first headers of a connection begin with."""
        found, self._no_table = self._no_table, b""
        return found

    def _send(self, stream: int, data: bytes, is_last: bool) -> None:
        """Send what the peer's window takes, and keep the rest until it takes more."""
        while data and (size := min(self._windows[stream], self._window, _LONGEST_PART, len(data))) > 0:
            self._out.append(frame(DATA, 0, stream, data[:size]))
            self._windows[stream] -= size
            self._window -= size
            data = data[size:]
        if data:
            self._unsent[stream] = data, is_last
        elif is_last:
            self._end(stream, _OK)

    def refuse(self, stream: int, code: Code, text: str) -> None:
        """End a call without a message. The text is for people."""
        self._called.discard(stream)
        if stream in self._windows:
            said = quote(text, safe=" !#$&'()*+,/:;=?@[]~\"<>^`{|}")
            self._end(stream, _block(*_HEADERS, ("grpc-status", str(int(code))), ("grpc-message", said)))

    def _end(self, stream: int, block: bytes) -> None:
        """Send the last headers of a call."""
        self._out.append(frame(HEADERS, END_HEADERS | END_STREAM, stream, self._first() + block))
        self._forget(stream)

    def _reset(self, stream: int, why: ErrorCode) -> None:
        self._out.append(frame(RST_STREAM, 0, stream, _NUMBER.pack(why)))

    def close(self, why: ErrorCode = ErrorCode.NO_ERROR) -> None:
        """Say that the connection ends."""
        if not self.is_closed:
            self.is_closed = True
            self._out.append(frame(GOAWAY, 0, 0, _NUMBER.pack(self._last) + _NUMBER.pack(why)))


_HANDLERS: dict[int, Callable[[GrpcSession, Frame], None]] = {
    HEADERS: GrpcSession._head,
    DATA: GrpcSession._take,
    WINDOW_UPDATE: GrpcSession._widen,
    SETTINGS: GrpcSession._set,
    PING: GrpcSession._pong,
    RST_STREAM: GrpcSession._give_up,
}


def _number(got: Frame) -> int:
    """The one number of a frame. Raises Broken."""
    _require(len(got.payload) == _NUMBER.size, ErrorCode.FRAME_SIZE_ERROR)
    found: int = _NUMBER.unpack(got.payload)[0]
    return found


def _require(holds: bool, code: ErrorCode = ErrorCode.PROTOCOL_ERROR) -> None:
    """Raises Broken."""
    if not holds:
        raise Broken(code)

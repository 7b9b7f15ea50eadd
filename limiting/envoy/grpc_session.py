"""One connection of a gRPC server, sans-IO: bytes in, calls out, answers in, bytes out. HTTP/2 is that of ``h2``.

It serves calls of one request message (grpc.io: "gRPC over HTTP2"). A call is there when its message is complete. What
a connection may hold is bounded: its streams, its messages, and what the peer may send before they are read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple
from urllib.parse import quote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError, StreamClosedError
from h2.settings import SettingCodes, Settings

LONGEST_MESSAGE = 16 << 10  # bytes: 16 subjects of the longest kind
MOST_STREAMS = 100  # at once
_LONGEST_HEADERS = 16 << 10
_LONGEST_FRAME = 16 << 10  # what HTTP/2 has without another agreement
_PREFACE_BYTES, _HEAD_BYTES = 24, 9
_PREFIX = struct.Struct(">?I")  # compressed, length
# What is sent are the few headers below, which need no checks.
_CONFIGURATION = H2Configuration(
    client_side=False, header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
)
_HEADERS = ((":status", "200"), ("content-type", "application/grpc"))


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
    """A call that is not complete. ``unread``: bytes that the peer may send again once it is."""

    def __init__(self, method: str, authorization: str | None) -> None:
        self.method = method
        self.authorization = authorization
        self.body = bytearray()
        self.unread = 0


class _FrameLengths:
    """Follows the lengths of frames. h2 would keep up to 16 MiB of an overlong one before it refuses it."""

    def __init__(self) -> None:
        self._left = _PREFACE_BYTES  # of the frame that comes
        self._head = bytearray()  # of the next one

    def are_allowed(self, data: bytes) -> bool:
        """Take in received bytes; False: a frame is longer than a peer may send."""
        at = 0
        while True:
            skipped = min(self._left, len(data) - at)
            self._left -= skipped
            at += skipped
            if at == len(data):
                return True
            head = data[at : at + _HEAD_BYTES - len(self._head)]
            self._head += head
            at += len(head)
            if len(self._head) == _HEAD_BYTES:
                self._left = int.from_bytes(self._head[:3], "big")
                self._head.clear()
                if self._left > _LONGEST_FRAME:
                    return False


class GrpcSession:
    """The server's side. After ``feed`` and after each answer ``outgoing`` has what to send."""

    def __init__(self) -> None:
        self._h2 = H2Connection(_CONFIGURATION)
        bounds = {
            SettingCodes.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
            SettingCodes.MAX_HEADER_LIST_SIZE: _LONGEST_HEADERS,
        }
        self._h2.local_settings = Settings(client=False, initial_values=bounds)
        self._h2.initiate_connection()
        # All streams together may be about to send their messages, so that none waits for another.
        self._h2.increment_flow_control_window(MOST_STREAMS * LONGEST_MESSAGE)
        self._lengths = _FrameLengths()
        self._requests: dict[int, _Request] = {}
        self._unsent: dict[int, tuple[bytes, bool]] = {}  # by stream: what its window does not take, and whether to end
        self.is_closed = False

    def outgoing(self) -> bytes:
        """Return the bytes to send."""
        return self._h2.data_to_send()

    def feed(self, data: bytes) -> list[Call]:
        """Take in received bytes; return the calls that they complete. A peer that breaks HTTP/2 is sent away."""
        if not self._lengths.are_allowed(data):
            self.close(ErrorCodes.FRAME_SIZE_ERROR)
            return []
        try:
            events = self._h2.receive_data(data)
        except ProtocolError:
            self.is_closed = True  # h2 has the GOAWAY to send
            return []
        calls: list[Call] = []
        for event in events:
            self._handle(event, calls)
        return calls

    def _handle(self, event: Event, calls: list[Call]) -> None:
        if isinstance(event, RequestReceived):
            self._begin(event)
        elif isinstance(event, DataReceived):
            self._take(event)
        elif isinstance(event, StreamEnded):
            request = self._requests.pop(event.stream_id, None)
            if request is not None:
                self._complete(event.stream_id, request, calls)
        elif isinstance(event, StreamReset):
            self._unsent.pop(event.stream_id, None)
            request = self._requests.pop(event.stream_id, None)
            if request is not None:
                self._read(event.stream_id, request.unread)
        elif isinstance(event, WindowUpdated | RemoteSettingsChanged):
            for stream in list(self._unsent):
                self._send(stream, *self._unsent.pop(stream))
        elif isinstance(event, ConnectionTerminated):
            self.is_closed = True

    def _begin(self, event: RequestReceived) -> None:
        headers = dict(event.headers)
        stream = event.stream_id
        if not headers.get(b"content-type", b"").startswith(b"application/grpc") or headers[b":method"] != b"POST":
            self._end(stream, [(":status", "415")])
            return
        authorization = headers.get(b"authorization")
        given = None if authorization is None else authorization.decode("latin-1")
        self._requests[stream] = _Request(headers[b":path"].decode("latin-1"), given)

    def _take(self, event: DataReceived) -> None:
        stream, size = event.stream_id, event.flow_controlled_length or 0
        request = self._requests.get(stream)
        if request is None:  # refused already
            self._read(stream, size)
            return
        request.body += event.data or b""
        request.unread += size
        if len(request.body) > LONGEST_MESSAGE + _PREFIX.size:
            del self._requests[stream]
            self._read(stream, request.unread)
            self.refuse(stream, Code.RESOURCE_EXHAUSTED, f"a message must be at most {LONGEST_MESSAGE} bytes")

    def _read(self, stream: int, size: int) -> None:
        """Let the peer send ``size`` bytes more."""
        if size:
            self._h2.acknowledge_received_data(size, stream)

    def _complete(self, stream: int, request: _Request, calls: list[Call]) -> None:
        self._read(stream, request.unread)
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
            calls.append(Call(stream, request.method, bytes(body[_PREFIX.size :]), request.authorization))

    def answer(self, stream: int, message: bytes, *, is_last: bool = True) -> None:
        """Send a message, and end the call if it is the last. The headers go before the first."""
        if self._begins(stream):
            self._send(stream, _PREFIX.pack(False, len(message)) + message, is_last)

    def _begins(self, stream: int) -> bool:
        try:
            self._h2.send_headers(stream, _HEADERS)
        except (StreamClosedError, ProtocolError):
            return False  # the peer gave up waiting
        return True

    def _send(self, stream: int, data: bytes, is_last: bool) -> None:
        """Send what the peer's window takes, and keep the rest until it takes more."""
        try:
            while data and (window := self._h2.local_flow_control_window(stream)) > 0:
                size = min(window, self._h2.max_outbound_frame_size)
                self._h2.send_data(stream, data[:size])
                data = data[size:]
            if data:
                self._unsent[stream] = data, is_last
            elif is_last:
                self._h2.send_headers(stream, [("grpc-status", "0")], end_stream=True)
        except (StreamClosedError, ProtocolError):
            self._unsent.pop(stream, None)

    def refuse(self, stream: int, code: Code, text: str) -> None:
        """End a call without a message. The text is for people."""
        status = [("grpc-status", str(int(code))), ("grpc-message", quote(text, safe=" !#$&'()*+,/:;=?@[]~\"<>^`{|}"))]
        self._end(stream, [*_HEADERS, *status], resets=code is Code.RESOURCE_EXHAUSTED)

    def _end(self, stream: int, headers: Sequence[tuple[str, str]], *, resets: bool = False) -> None:
        """Send the last headers of a call. ``resets``: the peer has more to say, and need not."""
        try:
            self._h2.send_headers(stream, headers, end_stream=True)
            if resets:
                self._h2.reset_stream(stream, ErrorCodes.NO_ERROR)
        except (StreamClosedError, ProtocolError):
            return  # the peer gave up waiting: its reset may have come with the call

    def close(self, why: ErrorCodes = ErrorCodes.NO_ERROR) -> None:
        """Say that the connection ends."""
        if not self.is_closed:
            self.is_closed = True
            self._h2.close_connection(why)

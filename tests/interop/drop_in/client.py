"""A connection that says what a session tells it to, byte for byte, and notes every frame that comes."""

from __future__ import annotations

import ssl
import zlib
from collections.abc import Callable
from contextlib import suppress

import trio

from tests.interop.drop_in import snappy_frames
from tests.interop.drop_in.transcript import Frame, Transcript, parse_frame

WAIT_S = 15.0  # nsqd looks at a new channel's timeouts after up to 5 s
_CHUNK = 65_536
HEARTBEAT = b"_heartbeat_"


def sized(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def messages(*bodies: bytes) -> bytes:
    """The body of an MPUB."""
    return sized(len(bodies).to_bytes(4, "big") + b"".join(map(sized, bodies)))


class Client:
    """Notes under ``label``. ``heartbeats``: these too."""

    def __init__(self, stream: trio.SocketStream, transcript: Transcript, label: str, heartbeats: bool = False) -> None:
        self._stream: trio.abc.HalfCloseableStream | trio.SSLStream[trio.SocketStream] = stream
        self._socket = stream
        self._transcript = transcript
        self._label = label
        self._heartbeats = heartbeats
        self._received = b""
        self._encode: Callable[[bytes], bytes] = bytes
        self._decode: Callable[[bytes], bytes] = bytes

    async def send(self, data: bytes) -> None:
        """A connection that the broker has ended takes nothing: what it said before is still to be read."""
        try:
            await self._stream.send_all(self._encode(data))
        except trio.BrokenResourceError:
            return

    async def say(self, data: bytes) -> Frame | None:
        """Send, and the next frame."""
        await self.send(data)
        return await self.frame()

    async def frame(self) -> Frame | None:
        """The next frame; None, noted too, at the end of the stream and where nothing came in time."""
        with trio.move_on_after(WAIT_S):
            frame = await self._next()
            if frame is None:
                self._transcript.note(self._label, "closed")
            else:
                self._transcript.note_frame(self._label, frame)
            return frame
        self._transcript.note(self._label, "nothing")
        return None

    async def rest(self) -> None:
        """Everything up to the end of the stream."""
        while await self.frame() is not None:
            pass

    async def quiet(self, seconds: float) -> None:
        """What comes although nothing should."""
        with trio.move_on_after(seconds):
            while True:
                frame = await self._next()
                if frame is None:
                    self._transcript.note(self._label, "closed")
                    return
                self._transcript.note_frame(self._label, frame)
        self._transcript.note(self._label, "quiet")

    async def drain_into(self, take: Callable[[Frame], None], seconds: float) -> None:
        """Frames, without a note, until none has come for so long."""
        while True:
            frame: Frame | None = None
            with trio.move_on_after(seconds):
                frame = await self._next()
            if frame is None:
                return
            take(frame)

    async def finish(self) -> None:
        """Says that nothing more will come, then everything up to the end."""
        with suppress(trio.BrokenResourceError):
            await self._socket.send_eof()
        await self.rest()

    async def abort(self) -> None:
        await trio.aclose_forcefully(self._stream)

    async def start_tls(self, context: ssl.SSLContext) -> str:
        """TLS's version; the reason where the handshake failed (noted)."""
        secure = trio.SSLStream(self._socket, context, server_hostname="localhost", https_compatible=True)
        try:
            await secure.do_handshake()
        except trio.BrokenResourceError:
            self._transcript.note(self._label, "no TLS")
            return ""
        self._stream = secure
        version = secure.version() or ""
        self._transcript.note(self._label, version)
        return version

    def start_deflate(self) -> None:
        out, into = zlib.compressobj(wbits=-15), zlib.decompressobj(wbits=-15)
        self._encode = lambda data: out.compress(data) + out.flush(zlib.Z_SYNC_FLUSH)
        self._decode_from_now(into.decompress)

    def start_snappy(self) -> None:
        self._encode = snappy_frames.encode
        self._decode_from_now(snappy_frames.Decoder().decompress)

    def _decode_from_now(self, decode: Callable[[bytes], bytes]) -> None:
        """What has come behind the answer already is of the new layer."""
        self._decode = decode
        self._received = decode(self._received)

    def stop_encoding(self) -> None:
        """What is sent from now on is no part of a compressed stream."""
        self._encode = bytes

    async def _next(self) -> Frame | None:
        while True:
            if len(self._received) >= 4:
                end = 4 + int.from_bytes(self._received[:4], "big")
                if len(self._received) >= end:
                    frame = parse_frame(self._received[4:end])
                    self._received = self._received[end:]
                    if frame.body != HEARTBEAT or self._heartbeats:
                        return frame
                    continue
            try:
                data = await self._stream.receive_some(_CHUNK)
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            self._received += self._decode(bytes(data))

"""A link inside TLS, to a broker that takes NSQ clients in TLS alone. TLS begins behind an IDENTIFY in clear that says
nothing; all that the engine says, its key too, goes inside. The engine has one end of a pair of sockets, and the bytes
are carried between the other end and TLS here."""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import suppress

import msgspec
import trio

from srtm.errors import PeerError
from srtm.net.decode_errors import UNREADABLE
from srtm.protocol import MAGIC

_IDENTIFY = b'{"feature_negotiation":true,"tls_v1":true}'
_LONGEST_ANSWER = 1 << 16
_CHUNK = 1 << 16


class _Granted(msgspec.Struct):
    tls_v1: bool = False


class SealedLink:
    """Made by ``open_sealed``. The engine gets ``engine_end``; ``carry`` runs until either side ends."""

    def __init__(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        self.engine_end, other = socket.socketpair()
        self.engine_end.setblocking(False)
        self._near = trio.SocketStream(trio.socket.from_stdlib_socket(other))
        self._far = stream

    async def carry(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                # The other broker has the magic, with which the engine begins.
                nursery.start_soon(_pass_on, self._near, self._far, len(MAGIC), nursery.cancel_scope)
                nursery.start_soon(_pass_on, self._far, self._near, 0, nursery.cancel_scope)
        finally:
            with trio.CancelScope(shield=True):
                for end in (self._near, self._far):
                    await trio.aclose_forcefully(end)


async def _pass_on(source: trio.abc.Stream, target: trio.abc.Stream, skip: int, both: trio.CancelScope) -> None:
    """All but the first ``skip`` bytes; the end of one direction is that of both."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while part := await source.receive_some(_CHUNK):
            kept, skip = part[skip:], max(0, skip - len(part))
            if kept:
                await target.send_all(kept)
    both.cancel()


async def open_sealed(host: str, port: int, tls: ssl.SSLContext) -> SealedLink:
    """Connect, and begin TLS. Raises OSError, PeerError."""
    stream = await trio.open_tcp_stream(host, port)
    try:
        sealed = await _begin_tls(stream, host, tls)
    except trio.BrokenResourceError as error:
        await trio.aclose_forcefully(stream)
        raise PeerError(f"{host}:{port}: {error.__cause__ or 'the connection is broken'}") from None
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return SealedLink(sealed)


async def _begin_tls(stream: trio.SocketStream, host: str, tls: ssl.SSLContext) -> trio.SSLStream[trio.SocketStream]:
    await stream.send_all(MAGIC + b"IDENTIFY\n" + struct.pack(">I", len(_IDENTIFY)) + _IDENTIFY)
    try:
        granted = msgspec.json.decode(await _answer(stream), type=_Granted)
    except UNREADABLE as error:
        raise PeerError(f"{host}: answer to IDENTIFY: {error}") from None
    if not granted.tls_v1:
        raise PeerError(f"{host} has no TLS")
    sealed = trio.SSLStream(stream, tls, server_hostname=host, https_compatible=True)
    await sealed.do_handshake()
    await _answer(sealed)
    return sealed


async def _answer(stream: trio.abc.ReceiveStream) -> bytes:
    """The data of the next frame, a response. Raises PeerError."""
    size, kind = struct.unpack(">II", await _exactly(stream, 8))
    if not 4 <= size <= _LONGEST_ANSWER:
        raise PeerError(f"a frame of {size} bytes is no answer of a broker")
    data = await _exactly(stream, size - 4)
    if kind != 0:
        raise PeerError(f"refused: {data.decode(errors='replace')}")
    return data


async def _exactly(stream: trio.abc.ReceiveStream, count: int) -> bytes:
    read = b""
    while len(read) < count:
        part = await stream.receive_some(count - len(read))
        if not part:
            raise PeerError("the other broker has ended the connection")
        read += part
    return read

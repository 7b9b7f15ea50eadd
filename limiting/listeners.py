"""Listens for connections that are not HTTP, and bounds how many there are at once, also of one address.

Reads the first bytes and sends answers, as all protocols do.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Awaitable, Callable

import trio

from srtm.log import Log
from srtm.net.address import format_address
from srtm.web.listener_places import Places, host_of
from srtm.web.serving import bound

_HANDSHAKE_S = 10.0
FIRST_S = 10.0  # for the first bytes: a connection that says nothing takes a place from others


class Door:
    """Where clients of one protocol come in. ``tls``: None: in clear.

    ``refusal`` returns what one too many is told, for the reason.
    """

    def __init__(
        self,
        option: str,
        most: int,
        serve: Callable[[trio.abc.Stream], Awaitable[None]],
        refusal: Callable[[str], bytes] = lambda _why: b"",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._option = option
        self._serve = serve
        self._refusal = refusal
        self._tls = tls
        self._places = Places(most)

    async def listen(self, address: str, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Starts with the address, its port the real one. Raises BadInput, Unavailable."""
        with bound(address, self._option) as listener:
            name = format_address(*listener.getsockname()[:2])
            sockets = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
            task_status.started(name)
            await trio.serve_listeners(self._accept, [sockets])

    async def _accept(self, stream: trio.SocketStream) -> None:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a client whose host is gone leaves its place
        await self.admit(stream)

    async def admit(self, stream: trio.abc.Stream) -> None:
        """Serve one connection, or refuse it."""
        with self._places.taken(host_of(stream)) as refusal:
            if refusal is not None:
                await self._refuse(stream, f"{refusal} (most_connections)")
                return
            try:
                secured = await self._secured(stream)
                if secured is not None:
                    await self._serve(secured)
            except Exception as error:  # noqa: BLE001 - a bug must cost one connection, not the service
                Log("limit").failure("a connection failed because of a bug", listener=self._option, error=repr(error))
            finally:
                await trio.aclose_forcefully(stream)

    @property
    def connections(self) -> int:
        """How many there are."""
        return self._places.connections

    async def _secured(self, stream: trio.abc.Stream) -> trio.abc.Stream | None:
        """The stream in TLS, where that is asked for. None: the handshake failed."""
        if self._tls is None:
            return stream
        secured = trio.SSLStream(stream, self._tls, server_side=True, https_compatible=True)
        with trio.move_on_after(_HANDSHAKE_S) as handshake:
            try:
                await secured.do_handshake()
            except trio.BrokenResourceError:
                return None
        return None if handshake.cancelled_caught else secured

    async def _refuse(self, stream: trio.abc.Stream, why: str) -> None:
        told = self._refusal(why)
        try:
            if told and self._tls is None:
                with trio.move_on_after(1):
                    await stream.send_all(told)
        except trio.BrokenResourceError:
            return
        finally:
            await trio.aclose_forcefully(stream)


async def receive_first(stream: trio.abc.Stream, most: int) -> bytes:
    """Return the first bytes of a connection; b"": it ended, or sent nothing for 10 s.

    Raises trio.BrokenResourceError.
    """
    with trio.move_on_after(FIRST_S):
        return bytes(await stream.receive_some(most))
    return b""


async def send_soon(stream: trio.abc.Stream, answers: bytes) -> None:
    """Send at once what the socket takes: that saves a turn of the event loop, a tenth of a round trip.

    Raises trio.BrokenResourceError.
    """
    sent = 0
    if isinstance(stream, trio.SocketStream):
        try:
            sent = os.write(stream.socket.fileno(), answers)
        except BlockingIOError:
            pass
        except OSError as error:
            raise trio.BrokenResourceError from error
    if sent < len(answers):
        await stream.send_all(answers[sent:])

"""One NSQ connection of a client to a broker: it identifies itself, answers heartbeats, and reports every end.

Writing never waits: ``write`` queues bytes, and one task sends the whole queue in one call. So an answer to a heartbeat
never waits behind bytes that the broker does not read. The caller bounds the queue (outstanding publishes, RDY).
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc
import msgspec

from srtm import protocol
from srtm.errors import PeerError, Unavailable
from srtm.net.address import parse_peer
from srtm.version import __version__

HEARTBEAT_MS = 10_000
_SILENCE_S = 2.5 * HEARTBEAT_MS / 1000  # two heartbeats missed, and half an interval for the network
_OPEN_TIMEOUT_S = 5.0  # from the first packet to the answer to IDENTIFY
_RECEIVE_BYTES = 64 * 1024

Connect = Callable[[str], Awaitable[anyio.abc.ByteStream]]  # by HOST:PORT; raises OSError


class ConnectionLost(Unavailable):
    """The connection ended or could not be opened. Try again, perhaps at another broker."""


class Settings(msgspec.Struct, frozen=True):
    """The part of a broker's answer to IDENTIFY that a client needs. A plain nsqd does not send ``srtm``."""

    max_rdy_count: int = 2500
    srtm: dict[str, object] | None = None

    @property
    def answers_left(self) -> bool:
        """Whether the broker answers the command LEFT."""
        return self.srtm is not None and self.srtm.get("left") is True


class Connection:
    """An open connection, made by ``open_connection``. One task reads (``next_event``), another runs ``send_queued``.

    ``address``: the broker's HOST:PORT, as dialled.
    """

    def __init__(self, stream: anyio.abc.ByteStream, address: str) -> None:
        self.address = address
        self.settings = Settings()
        self.lost = False
        self._stream = stream
        self._reader = protocol.EventReader()
        self._queued = bytearray()
        self._wake = anyio.Event()

    def write(self, data: bytes) -> None:
        """Queue bytes for sending, in order. A lost connection drops them."""
        if not self.lost:
            self._queued += data
            self._wake.set()

    async def send_queued(self) -> None:
        """Send queued bytes until the connection is lost. The reading task then gets ConnectionLost."""
        try:
            while not self.lost:
                await self._wake.wait()
                self._wake = anyio.Event()
                data, self._queued = self._queued, bytearray()
                await self._stream.send(bytes(data))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.lost = True
            await anyio.aclose_forcefully(self._stream)

    async def next_event(self) -> protocol.Event:
        """Wait for the next event other than a heartbeat; heartbeats are answered. Raises ConnectionLost, PeerError."""
        while True:
            event = self._read()
            if event is protocol.NEED_DATA:
                await self._receive()
            elif isinstance(event, protocol.Heartbeat):
                self.write(protocol.nop())
            else:
                return event

    def _read(self) -> protocol.Event | protocol.NeedData:
        try:
            return self._reader.next_event()
        except PeerError as error:
            raise PeerError(f"{self.address} broke the NSQ protocol: {error}") from error

    async def aclose(self) -> None:
        """Close the connection at once; queued bytes are dropped."""
        self.lost = True
        self._wake.set()
        await anyio.aclose_forcefully(self._stream)

    async def _receive(self) -> None:
        try:
            with anyio.move_on_after(_SILENCE_S):
                self._reader.receive_data(await self._stream.receive(_RECEIVE_BYTES))
                return
        except anyio.EndOfStream:
            raise ConnectionLost(f"{self.address} closed the connection") from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ConnectionLost(f"{self.address} broke the connection") from error
        raise ConnectionLost(f"{self.address} sent nothing for {_SILENCE_S:g} s")


async def open_connection(
    tasks: anyio.abc.TaskGroup, address: str, client_id: str, connect: Connect, auth: bytes | None = None
) -> Connection:
    """Connect to a broker, identify as ``client_id``, and send queued bytes from a task in ``tasks``.

    ``auth``: the command AUTH; None: none is sent. Raises ConnectionLost, PeerError (no NSQ broker answers at
    ``address``, or it refuses the secret).
    """
    with anyio.move_on_after(_OPEN_TIMEOUT_S):
        try:
            stream = await connect(address)
        except OSError as error:
            raise ConnectionLost(f"{address} cannot be reached: {error.strerror or error}") from error
        connection = Connection(stream, address)
        try:
            tasks.start_soon(connection.send_queued)
            connection.write(protocol.MAGIC + protocol.identify(_introduction(client_id)))
            connection.settings = _accepted(await connection.next_event(), address)
            if auth is not None:
                connection.write(auth)
                _check_authorized(await connection.next_event(), address)
        except BaseException:
            await connection.aclose()
            raise
        return connection
    raise ConnectionLost(f"{address} did not answer within {_OPEN_TIMEOUT_S:g} s")


async def dial(address: str) -> anyio.abc.ByteStream:
    """Open a TCP connection that sends every packet at once (no delay). Raises OSError, BadInput."""
    host, port = parse_peer("address", address)
    return await anyio.connect_tcp(host, port)


def _introduction(client_id: str) -> dict[str, object]:
    return {
        "client_id": client_id,
        "hostname": socket.gethostname(),
        "user_agent": f"srtm/{__version__}",
        "feature_negotiation": True,
        "heartbeat_interval": HEARTBEAT_MS,
        "output_buffer_size": -1,  # by default nsqd delays a single message by 250 ms
        "srtm": {"v": 1, "receipts": True, "left": True},
    }


def _check_authorized(answer: protocol.Event, address: str) -> None:
    if isinstance(answer, protocol.Error):
        raise PeerError(f"{address} refused AUTH: {answer.code} {answer.text}")
    if not isinstance(answer, protocol.Response):
        raise PeerError(f"{address} answered AUTH with {answer}")


def _accepted(answer: protocol.Event, address: str) -> Settings:
    if isinstance(answer, protocol.Error):
        raise PeerError(f"{address} refused IDENTIFY: {answer.code} {answer.text}")
    if not isinstance(answer, protocol.Response):
        raise PeerError(f"{address} answered IDENTIFY with {answer}")
    try:
        return msgspec.json.decode(answer.data, type=Settings)
    except msgspec.DecodeError as error:
        raise PeerError(f"{address} answered IDENTIFY with {answer.data[:100]!r}") from error

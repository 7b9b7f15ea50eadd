"""One connection of a client to one broker: introduces itself, keeps the heartbeat, and turns every way to die into
``LinkLost``.

Writing never waits: ``write`` queues and ``pump`` (one task) sends, everything queued in one call. So an answer to a
heartbeat cannot stand behind a send that the broker does not take because it waits for us to read. What bounds the
queue is the caller's business (outstanding publishes, RDY).
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable

import msgspec
import trio

from srtm import protocol as wire
from srtm.errors import PeerError, Unavailable
from srtm.net.address import parse_peer
from srtm.version import __version__

HEARTBEAT_MS = 10_000
_SILENCE_S = 2.5 * HEARTBEAT_MS / 1000  # two heartbeats missed, and half of one for the network
_OPEN_TIMEOUT_S = 5.0  # from the first packet to the answer to IDENTIFY
_RECEIVE_BYTES = 64 * 1024

Connect = Callable[[str], Awaitable[trio.abc.Stream]]  # by HOST:PORT; raises OSError


class LinkLost(Unavailable):
    """The connection is gone, or never came to be. Try again, perhaps elsewhere."""


class Settings(msgspec.Struct, frozen=True):
    """Of a broker's answer to IDENTIFY, what a client needs. ``srtm`` is None from a plain nsqd."""

    max_rdy_count: int = 2500
    srtm: dict[str, object] | None = None

    @property
    def tells_left(self) -> bool:
        """Whether it may be asked if what was published has left."""
        return self.srtm is not None and self.srtm.get("left") is True


class Link:
    """Made by ``open_link``. One task reads (``next_event``), ``pump`` writes; ``address`` is the broker's, as
    dialled."""

    def __init__(self, stream: trio.abc.Stream, address: str) -> None:
        self.address = address
        self.settings = Settings()
        self.lost = False
        self._stream = stream
        self._reader = wire.EventReader()
        self._queued = bytearray()
        self._wake = trio.Event()

    def write(self, data: bytes) -> None:
        """Queue for sending, in order. On a lost link: nothing."""
        if not self.lost:
            self._queued += data
            self._wake.set()

    async def pump(self) -> None:
        """Sends what is queued until the link is lost; the reader then hears of it."""
        try:
            while not self.lost:
                await self._wake.wait()
                self._wake = trio.Event()
                data, self._queued = self._queued, bytearray()
                await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.lost = True
            await trio.aclose_forcefully(self._stream)

    async def next_event(self) -> wire.Event:
        """The next thing that concerns the caller; heartbeats are answered here. Raises LinkLost, PeerError."""
        while True:
            event = self._read()
            if event is wire.NEED_DATA:
                await self._receive()
            elif isinstance(event, wire.Heartbeat):
                self.write(wire.nop())
            else:
                return event

    def _read(self) -> wire.Event | wire.NeedData:
        try:
            return self._reader.next_event()
        except PeerError as error:
            raise PeerError(f"{self.address} sent what no broker sends: {error}") from error

    async def aclose(self) -> None:
        self.lost = True
        self._wake.set()
        await trio.aclose_forcefully(self._stream)

    async def _receive(self) -> None:
        try:
            with trio.fail_after(_SILENCE_S):
                data = await self._stream.receive_some(_RECEIVE_BYTES)
        except trio.TooSlowError:
            raise LinkLost(f"{self.address} has been silent for {_SILENCE_S:g} s") from None
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise LinkLost(f"{self.address} broke the connection") from error
        if not data:
            raise LinkLost(f"{self.address} closed the connection")
        self._reader.receive_data(data)


async def open_link(nursery: trio.Nursery, address: str, client_id: str, connect: Connect) -> Link:
    """Connected, introduced as ``client_id`` and pumping in ``nursery``. Raises LinkLost; PeerError where no broker
    answers there."""
    with trio.move_on_after(_OPEN_TIMEOUT_S):
        try:
            stream = await connect(address)
        except OSError as error:
            raise LinkLost(f"{address} cannot be reached: {error.strerror or error}") from error
        link = Link(stream, address)
        try:
            nursery.start_soon(link.pump)
            link.write(wire.MAGIC + wire.identify(_introduction(client_id)))
            link.settings = _accepted(await link.next_event(), address)
        except BaseException:
            await link.aclose()
            raise
        return link
    raise LinkLost(f"{address} did not answer within {_OPEN_TIMEOUT_S:g} s")


async def dial(address: str) -> trio.abc.Stream:
    """TCP, every packet sent at once. Raises OSError, BadInput."""
    host, port = parse_peer("address", address)
    stream = await trio.open_tcp_stream(host, port)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def _introduction(client_id: str) -> dict[str, object]:
    return {
        "client_id": client_id,
        "hostname": socket.gethostname(),
        "user_agent": f"srtm/{__version__}",
        "feature_negotiation": True,
        "heartbeat_interval": HEARTBEAT_MS,
        "output_buffer_size": -1,  # nsqd would hold a lone message back for 250 ms
        "srtm": {"v": 1, "receipts": True, "left": True},
    }


def _accepted(answer: wire.Event, address: str) -> Settings:
    if isinstance(answer, wire.Error):
        raise PeerError(f"{address} refused us: {answer.code} {answer.text}")
    if not isinstance(answer, wire.Response):
        raise PeerError(f"{address} answered IDENTIFY with {answer}")
    try:
        return msgspec.json.decode(answer.data, type=Settings)
    except msgspec.DecodeError as error:
        raise PeerError(f"{address} answered IDENTIFY with {answer.data[:100]!r}") from error

"""Discovery by nsqlookupd: this broker registers its topics, and asks for the channels of new ones (protocol section
15).

Registration is level-triggered: after every change and reconnection, the wanted registrations are compared with those
sent on this connection. ``AnswerReader`` and the ``encode_*`` functions do no I/O.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import quote

import msgspec
import trio

from broker.runtime.wakeup import Wakeup
from broker.snapshot import Snapshot
from srtm.concurrency.backoff import Backoff
from srtm.errors import PeerError, SrtmError
from srtm.log import Log
from srtm.net.address import format_address, parse_peer
from srtm.net.decode_errors import UNREADABLE
from srtm.net.http_client import HttpClient
from srtm.protocol import RETAINED_TOPIC, is_ephemeral, is_link_channel, is_name

MAGIC = b"  V1"
PING_PERIOD_S = 15.0
ANSWER_TIMEOUT_S = 1.0
MAX_ANSWER_BYTES = 1 << 20
_PORTION = 100  # channels that are made before other tasks run


@dataclass(frozen=True, order=True)
class Registration:
    """A topic, or a channel of one."""

    topic: str
    channel: str = ""  # "": the topic itself


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """This broker, with nsqlookupd's names."""

    broadcast_address: str
    hostname: str
    http_port: int
    tcp_port: int
    version: str
    topology_region: str = ""
    topology_zone: str = ""


class PeerInfo(msgspec.Struct, frozen=True):
    """What nsqlookupd says of itself in its answer to IDENTIFY."""

    broadcast_address: str
    http_port: int


def registrations(snapshot: Snapshot, only: Collection[str] | None = None) -> set[Registration]:
    """All topics, or those in ``only``, with their channels."""
    topics = [topic for topic in snapshot.topics if only is None or topic.topic_name in only]
    topics = [topic for topic in topics if topic.topic_name != RETAINED_TOPIC]
    found = {Registration(topic.topic_name) for topic in topics}
    channels = [(topic.topic_name, channel.channel_name) for topic in topics for channel in topic.channels]
    return found | {Registration(*one) for one in channels if not is_link_channel(one[1])}


def encode_identify(identity: Identity) -> bytes:
    body = msgspec.json.encode(identity)
    return b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body


def encode_changes(sent: set[Registration], wanted: set[Registration]) -> list[tuple[bytes, Registration]]:
    """The commands that lead from ``sent`` to ``wanted``. Channels are removed before their topic, and added after
    it."""
    gone = [(_command(b"UNREGISTER", entry), entry) for entry in sorted(sent - wanted, reverse=True)]
    return gone + [(_command(b"REGISTER", entry), entry) for entry in sorted(wanted - sent)]


def _command(word: bytes, entry: Registration) -> bytes:
    return b" ".join([word, entry.topic.encode(), entry.channel.encode()]).rstrip() + b"\n"


class AnswerReader:
    """Splits a byte stream into nsqlookupd's answers: int32 size, data; no frame type."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The answers that are complete now. Raises PeerError."""
        self._buffer += data
        answers = []
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big", signed=True)
            if not 0 <= size <= MAX_ANSWER_BYTES:
                raise PeerError(f"nsqlookupd: answer of {size} bytes")
            if len(self._buffer) < 4 + size:
                break
            answers.append(bytes(self._buffer[4 : 4 + size]))
            del self._buffer[: 4 + size]
        return answers


Connect = Callable[[str], Awaitable[trio.abc.Stream]]  # by HOST:PORT; raises OSError


async def dial(address: str) -> trio.abc.Stream:
    return await trio.open_tcp_stream(*parse_peer("lookupd_tcp_address", address))


@dataclass(eq=False)
class LookupClient:
    """The connection to one nsqlookupd. ``wanted()`` returns the registrations; it is called after every
    ``changed.set()``."""

    address: str
    identity: Identity
    wanted: Callable[[], set[Registration]]
    log: Log
    connect: Connect
    changed: Wakeup = field(default_factory=Wakeup)
    http_url: str | None = field(default=None, init=False)  # None: not connected
    _trouble: str = field(default="", init=False)

    async def run(self) -> None:
        """Until cancelled. Reconnects, and then registers everything anew."""
        backoff = Backoff(first_s=0.25, longest_s=PING_PERIOD_S)
        while True:
            try:
                stream = await self._open()
                async with stream:
                    await self._converse(_Conversation(stream), backoff)
            except (OSError, trio.TooSlowError, trio.BrokenResourceError, trio.ClosedResourceError, PeerError) as error:
                self.http_url = None
                self._report_trouble(str(error) or type(error).__name__)
            await trio.sleep(backoff.next_s())

    async def _open(self) -> trio.abc.Stream:
        with trio.fail_after(ANSWER_TIMEOUT_S):
            return await self.connect(self.address)

    async def _converse(self, conversation: _Conversation, backoff: Backoff) -> None:
        info = await conversation.identify(self.identity)
        self.http_url = f"http://{format_address(info.broadcast_address, info.http_port)}"
        self._report_trouble("")
        backoff.reset()
        sent: set[Registration] = set()
        ping_at = trio.current_time() + PING_PERIOD_S
        while True:
            for command, entry in encode_changes(sent, self.wanted()):
                await conversation.ask(command)
                sent ^= {entry}
            with trio.move_on_at(ping_at):
                await self._wait_changed(conversation)
            if trio.current_time() >= ping_at:  # nsqlookupd counts no other command as a sign of life
                await conversation.ask(b"PING\n")
                ping_at = trio.current_time() + PING_PERIOD_S

    async def _wait_changed(self, conversation: _Conversation) -> None:
        """Raises BrokenResourceError or PeerError as soon as the connection ends or sends anything."""
        trouble: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_changed, nursery.cancel_scope)
            trouble = await conversation.wait_trouble()
            nursery.cancel_scope.cancel()
        if trouble is not None:
            raise trouble

    async def _cancel_when_changed(self, scope: trio.CancelScope) -> None:
        await self.changed.wait()
        scope.cancel()

    def _report_trouble(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            self.log.warning("nsqlookupd lost", address=self.address, reason=trouble)
        if not trouble:
            self.log.info("registered with nsqlookupd", address=self.address)
        self._trouble = trouble


class _Conversation:
    """Sends one command at a time; each is answered within ``ANSWER_TIMEOUT_S``."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._reader = AnswerReader()

    async def identify(self, identity: Identity) -> PeerInfo:
        """Raises PeerError for an answer that cannot be read."""
        answer = await self._exchange(MAGIC + encode_identify(identity))
        try:
            return msgspec.json.decode(answer, type=PeerInfo)
        except UNREADABLE:
            raise PeerError(f"nsqlookupd answered IDENTIFY with {answer[:100]!r}") from None

    async def ask(self, command: bytes) -> None:
        """Returns when the answer is OK. Raises PeerError for another one."""
        answer = await self._exchange(command)
        if answer != b"OK":
            raise PeerError(f"nsqlookupd answered {command.decode().strip()!r} with {answer[:100]!r}")

    async def wait_trouble(self) -> Exception:
        """Between two commands only the end of the connection is expected. Returns what happened."""
        try:
            data = await self._stream.receive_some(1024)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            return error
        if data:
            return PeerError(f"nsqlookupd said {bytes(data[:100])!r} unasked")
        return trio.BrokenResourceError("nsqlookupd closed the connection")

    async def _exchange(self, command: bytes) -> bytes:
        with trio.fail_after(ANSWER_TIMEOUT_S):
            await self._stream.send_all(command)
            while True:
                data = await self._stream.receive_some(65536)
                if not data:
                    raise trio.BrokenResourceError("nsqlookupd closed the connection")
                answers = self._reader.feed(bytes(data))
                if answers:
                    return answers[0]


class Nsqlookupds:
    """The nsqlookupds in use. They may change while ``run`` runs."""

    def __init__(
        self,
        addresses: Sequence[str],
        identity: Identity,
        wanted: Callable[[], set[Registration]],
        log: Log,
        connect: Connect | None = None,
    ) -> None:
        self._make = partial(LookupClient, identity=identity, wanted=wanted, log=log, connect=connect or dial)
        self._clients = {address: self._make(address) for address in addresses}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._changed = Wakeup()

    @property
    def addresses(self) -> list[str]:
        return list(self._clients)

    @property
    def http_urls(self) -> list[str]:
        """Of connected nsqlookupds."""
        return [client.http_url for client in self._clients.values() if client.http_url is not None]

    def note_change(self) -> None:
        for client in self._clients.values():
            client.changed.set()

    def use(self, addresses: Sequence[str]) -> None:
        """Use ``addresses`` from now on: connect to new ones, leave the others. Raises BadInput."""
        for address in addresses:
            parse_peer("nsqlookupd_tcp_addresses", address)
        known = self._clients
        self._clients = {address: known.get(address) or self._make(address) for address in addresses}
        self._changed.set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                for address in self._scopes.keys() - self._clients.keys():
                    self._scopes.pop(address).cancel()
                for address in self._clients.keys() - self._scopes.keys():
                    self._scopes[address] = trio.CancelScope()
                    nursery.start_soon(self._run_client, self._clients[address], self._scopes[address])
                await self._changed.wait()

    async def _run_client(self, client: LookupClient, scope: trio.CancelScope) -> None:
        with scope:
            await client.run()


class _Channels(msgspec.Struct, frozen=True):
    channels: list[str] = []


async def known_channels(
    topic: str, clients: Iterable[HttpClient], timeout_s: float, most: int, log: Log, take: Callable[[str], object]
) -> None:
    """Pass the lasting channels of ``topic`` that nsqlookupds and distributors know to ``take``, as each answers, and
    at most ``most`` of each. Failures, and missing answers when this is cancelled, are logged."""

    async def ask(client: HttpClient) -> None:
        reason = "no answer in time"
        try:
            channels = await fetch_channels(client, topic, timeout_s)
            for number, channel in enumerate(channels[:most]):
                if number % _PORTION == 0:
                    await trio.lowlevel.checkpoint()
                take(channel)
            reason = f"it names {len(channels)} channels, over the limit of {most}" if len(channels) > most else ""
        except SrtmError as error:
            reason = str(error)
        finally:
            if reason:
                log.warning("channels of a new topic not learned", topic=topic, url=client.base_url, reason=reason)

    async with trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(ask, client)


async def fetch_channels(client: HttpClient, topic: str, timeout_s: float) -> Sequence[str]:
    """Raises Unavailable, PeerError."""
    try:
        status, body = await client.request("GET", f"/channels?topic={quote(topic, safe='')}", timeout_s=timeout_s)
        if status == 404:
            return []
        if status != 200:
            raise PeerError(f"{client.base_url}: /channels answered {status}")
        channels = msgspec.json.decode(body, type=_Channels).channels
        return [channel for channel in channels if is_name(channel) and not is_ephemeral(channel)]
    except UNREADABLE as error:
        raise PeerError(f"{client.base_url}: /channels: {error}") from None
    finally:
        await client.aclose()

"""The conversation with one other broker: tells it what MQTT's subscribers here want, and keeps a link open to each
topic there that has it."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
import trio

from broker.links.interest import Interest
from broker.links.sealed_link import open_sealed
from broker.runtime.wakeup import Wakeup
from srtm.concurrency.backoff import Backoff
from srtm.concurrency.outage import Outage
from srtm.control import LinkAnswer, LinkRequest
from srtm.errors import PeerError, SrtmError
from srtm.log import Log
from srtm.net.address import format_address, parse_peer
from srtm.net.decode_errors import UNREADABLE
from srtm.net.http_client import HttpClient
from srtm.net.problem_json import refusal

if TYPE_CHECKING:
    from broker.links.link_numbers import LinkNumbers
    from srtm._native import Engine

PERIOD_S = 1.0  # topics there that are new are found so soon
_ANSWER_TIMEOUT_S = 2.0
_CONNECT_TIMEOUT_S = 2.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0


class _TlsRequired(msgspec.Struct):
    """As nsqd answers in clear where TLS is required."""

    message: str
    https_port: int


def _https_of(base_url: str, body: bytes) -> str | None:
    """Where a broker that refuses HTTP in clear takes it; None: it refuses something else."""
    try:
        refused = msgspec.json.decode(body, type=_TlsRequired)
    except UNREADABLE:
        return None
    host = urlsplit(base_url).hostname
    is_it = refused.message == "TLS_REQUIRED" and refused.https_port > 0 and base_url.startswith("http:")
    return f"https://{format_address(host, refused.https_port)}" if is_it and host else None


class RemoteBroker:
    """``run`` it once; ``wake`` it when the interest has changed. ``interest`` gives what is wanted now, and
    ``note_told`` is called when that broker knows more, or cannot be told. ``address``: of its HTTP in clear."""

    def __init__(
        self,
        own_name: str,
        name: str,
        address: str,
        engine: Engine,
        numbers: LinkNumbers,
        interest: Callable[[], Interest],
        note_told: Callable[[], None],
        log: Log,
        connect: Callable[[str], HttpClient],
        tls: Callable[[], ssl.SSLContext],
    ) -> None:
        self._own_name = own_name
        self._name = name
        self._address = address
        self._client = connect(address)
        self._engine = engine
        self._numbers = numbers
        self._interest = interest
        self._note_told = note_told
        self._log = log
        self._connect = connect
        self._tls = tls
        self._woken = Wakeup()
        self._links: dict[str, trio.CancelScope] = {}  # {topic: around its link}
        self._answer: LinkAnswer | None = None
        self._trouble: str | None = None
        self._nonce = secrets.token_hex(8)  # marks of an earlier incarnation may be on their way
        self.told = 0  # version of the interest that it knows
        self._conversation = trio.Lock()  # held from a question to what follows from its answer
        self._leaves = False
        self.left = trio.Event()  # it knows that this broker leaves
        self.is_lost = False  # it did not answer last: nobody waits for it
        self._has_left = False  # what it does not answer any more is no trouble
        self._has_started = False  # since it was asked last: its links have ended
        self._returned = trio.Event()  # it answers again

    def wake(self) -> None:
        self._woken.set()

    def note_started(self) -> None:
        """That broker has started anew: it is asked at once, and its links are opened then."""
        self._has_started, self._has_left = True, False
        self._woken.set()

    def note_left(self) -> None:
        """That broker has said that it is not coming back: its links end as planned."""
        self._has_left = True

    def leave(self) -> None:
        """Nothing here wants anything any more: that broker is told so, and sets ``left``."""
        self._leaves = True
        self._woken.set()

    async def run(self) -> None:
        """Until cancelled; then its links are closed."""
        backoff = Backoff(first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    try:
                        async with self._conversation:
                            await self._tell(nursery)
                    except SrtmError as error:
                        self._note_trouble(str(error))
                        if self._client.base_url.startswith("https:"):  # it may take HTTP in clear now
                            await self._use(self._address)
                        pause_s = backoff.next_s()
                    else:
                        self._note_trouble(None)
                        backoff.reset()
                        pause_s = PERIOD_S
                    with trio.move_on_after(pause_s):
                        await self._woken.wait()
        finally:
            with trio.CancelScope(shield=True):
                await self._client.aclose()

    async def _tell(self, nursery: trio.Nursery) -> None:
        """Raises Unavailable, PeerError."""
        interest = self._interest()
        mark = f"{self._nonce} {interest.version}"  # ``ConsumingBrokers`` knows incarnations by the first word
        request = LinkRequest(
            sender=self._own_name,
            filters=interest.filters,
            groups=interest.groups,
            kept=interest.kept,
            durable=interest.durable,
            leaves=self._leaves,
            mark=mark,
        )
        status, body = await self._ask(request)
        if status == 403 and (https := _https_of(self._client.base_url, body)):
            await self._use(https)
            status, body = await self._ask(request)
        if status != 200:
            raise refusal(self._client.base_url, status, body)
        try:
            answer = msgspec.json.decode(body, type=LinkAnswer)
        except UNREADABLE as error:
            raise PeerError(f"{self._client.base_url}: answer about links: {error}") from None
        self._answer = answer
        if request.leaves:
            self.left.set()
        if not answer.marks:
            self._note_known(interest.version)
        for topic in answer.topics:
            if topic not in self._links:
                self._links[topic] = trio.CancelScope()
                nursery.start_soon(self._keep_link, topic)
        for topic in self._links.keys() - set(answer.topics):
            self._links.pop(topic).cancel()

    async def _use(self, address: str) -> None:
        """Ask there from now on. Raises BadInput."""
        await self._client.aclose()
        self._client = self._connect(address)

    async def _ask(self, request: LinkRequest) -> tuple[int, bytes]:
        target, body = f"/v1/links/{self._own_name}", msgspec.json.encode(request)
        return await self._client.request("PUT", target, body, timeout_s=_ANSWER_TIMEOUT_S)

    def _note_mark(self, mark: str) -> None:
        """All that was retained there when it learned of a version of the interest is here."""
        nonce, _, version = mark.partition(" ")
        if nonce == self._nonce and version.isdecimal():
            self._note_known(int(version))

    def _note_known(self, version: int) -> None:
        self.told = max(self.told, version)
        self._note_told()

    async def _keep_link(self, topic: str) -> None:
        """Open a link, and another one when it has ended, until the topic is not wanted any more."""
        backoff, outage = Backoff(first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S), Outage()
        with self._links[topic]:
            while True:
                begun_s = trio.current_time()
                try:
                    reason = await self._hold_link(topic)
                except trio.TooSlowError:
                    reason = f"no connection within {_CONNECT_TIMEOUT_S:g} s"
                except (OSError, SrtmError) as error:
                    reason = str(error)
                if trio.current_time() - begun_s > _LONGEST_PAUSE_S:
                    backoff.reset()
                    outage.ends()
                async with self._conversation:  # its answer may be that the topic is not wanted any more
                    pass
                if outage.is_news(reason):
                    tell = self._log.info if self._has_left else self._log.warning
                    tell("a link has ended", broker=self._name, topic=topic, reason=reason)
                with trio.move_on_after(backoff.next_s()):
                    await self._returned.wait()
                    backoff.reset()

    async def _hold_link(self, topic: str) -> str:
        """Returns when the link has ended, and why. Raises OSError, BadInput, trio.TooSlowError."""
        answer = self._answer
        assert answer is not None  # it named the topic
        host, port = parse_peer("tcp_address", answer.tcp_address)
        if not answer.tls:
            with trio.fail_after(_CONNECT_TIMEOUT_S):
                stream = await trio.open_tcp_stream(host, port)
            return await self._hold_socket(topic, answer, stream.socket.detach())
        with trio.fail_after(_CONNECT_TIMEOUT_S):
            sealed = await open_sealed(host, port, self._tls())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sealed.carry)
            try:
                reason = await self._hold_socket(topic, answer, sealed.engine_end.detach())
            except (OSError, SrtmError) as error:
                reason = str(error)
            nursery.cancel_scope.cancel()
        return reason

    async def _hold_socket(self, topic: str, answer: LinkAnswer, fd: int) -> str:
        number, ended = self._numbers.take(self._note_mark)
        try:
            # From here on the engine owns the socket.
            self._engine.open_link(
                number,
                fd,
                answer.tcp_address,
                self._own_name,
                self._name,
                answer.key,
                topic,
                answer.channel,
                answer.ready,
            )
            return await ended.wait()
        finally:
            self._numbers.give_back(number)
            if not ended.is_over:
                self._engine.close_link(number)

    def _note_trouble(self, trouble: str | None) -> None:
        """Log each reason once."""
        if trouble is None and (self.is_lost or self._has_started):
            self._has_started = False
            self._returned.set()
            self._returned = trio.Event()
        self.is_lost = trouble is not None
        if trouble is not None and trouble != self._trouble:
            tell = self._log.info if self._has_left else self._log.warning
            tell("another broker does not know what is wanted here", broker=self._name, reason=trouble)
        self._trouble = trouble
        self._note_told()

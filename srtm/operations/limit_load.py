"""``srtm limit bench``: how many checks a running service decides, and how late its answers are.

Open loop: each check has an instant by a plan of random gaps (exponential, so a Poisson process), and its latency
counts from there. A service that falls behind is asked all the same, so waiting hides nothing. Each connection has one
check under way; the checks of a busy one wait their turn.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from random import Random
from typing import NamedTuple, Protocol
from urllib.parse import quote, urlsplit

import trio

from srtm.client.distributor import checked_url
from srtm.client.limit_service import DEFAULT_URL, URL_VARIABLE
from srtm.concurrency.failures import lone_failure
from srtm.errors import BadInput, PeerError, Unavailable
from srtm.net.address import parse_peer
from srtm.net.tls_trust import ca_file, trouble, trusting

_READ_BYTES = 64 << 10
ANSWERED_WITHIN_S = 10.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Answer(NamedTuple):
    """An answer that is complete: its bytes, and whether it allowed the check. None: it was an error."""

    size: int
    allowed: bool | None


class Wire(Protocol):
    """How checks are asked."""

    @property
    def scheme(self) -> str:
        """Of its URLs, in TLS."""

    @property
    def hello(self) -> bytes:
        """What is sent first on a connection, and answered; b"": nothing."""

    def request(self, subject: str) -> bytes:
        """The bytes of a check of one token."""

    def answer(self, received: bytes) -> Answer | None:
        """The first answer in ``received``. None: it is not complete. Raises PeerError."""


@dataclass(frozen=True)
class OverHttp:
    """The form for gateways, GET: 200 and 429 are decisions, all else is an error."""

    authority: str
    namespace: str
    token: str | None = field(default=None, repr=False)
    hello: bytes = b""
    scheme: str = "https"

    def request(self, subject: str) -> bytes:
        secret = "" if self.token is None else f"Authorization: Bearer {self.token}\r\n"
        target = f"/limit/v1/check?namespace={quote(self.namespace)}&subject={quote(subject)}&status=429"
        return f"GET {target} HTTP/1.1\r\nHost: {self.authority}\r\n{secret}\r\n".encode()

    def answer(self, received: bytes) -> Answer | None:
        end = received.find(b"\r\n\r\n")
        if end < 0:
            return None
        length, status = _LENGTH.search(received, 0, end), received[9:12]
        if length is None or not received.startswith(b"HTTP/1.1 "):
            raise PeerError("the service's answer is none of HTTP/1.1 with a length")
        size = end + 4 + int(length[1])
        return Answer(size, {b"200": True, b"429": False}.get(status)) if len(received) >= size else None


@dataclass(frozen=True)
class OverResp:
    """``CL.THROTTLE`` with a limit of its own: ``burst`` + 1 at once, ``count`` in ``period_s``."""

    burst: int = 15
    count: int = 30
    period_s: int = 60
    token: str | None = field(default=None, repr=False)
    scheme: str = "rediss"

    @property
    def hello(self) -> bytes:
        return b"" if self.token is None else _command("AUTH", self.token)

    def request(self, subject: str) -> bytes:
        return _command("CL.THROTTLE", subject, str(self.burst), str(self.count), str(self.period_s))

    def answer(self, received: bytes) -> Answer | None:
        end = received.find(b"\r\n")
        if end < 0:
            return None
        if received[:1] in b"-+":
            return Answer(end + 2, None)
        if not received.startswith(b"*5\r\n"):
            raise PeerError("the service's answer is none of CL.THROTTLE")
        lines = received.split(b"\r\n", 6)
        return None if len(lines) < 7 else Answer(len(received) - len(lines[6]), lines[1] == b":0")


def _command(*words: str) -> bytes:
    return "".join([f"*{len(words)}\r\n", *(f"${len(word.encode())}\r\n{word}\r\n" for word in words)]).encode()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """``rate``: checks a second; ``subjects``: how many, asked in random order."""

    rate: float
    seconds: float
    connections: int = 16
    subjects: int = 1_000
    seed: int = 1

    def instants(self) -> Iterator[float]:
        """When checks are due, s after the start."""
        random = Random(self.seed)
        gaps = iter(lambda: random.expovariate(self.rate), None)
        return takewhile(lambda instant: instant < self.seconds, accumulate(gaps))


@dataclass
class Heard:
    """What was answered. ``latencies_s``: of decisions, since they were due; ``late_s``: how late this side sent."""

    allowed: int = 0
    refused: int = 0
    errors: int = 0
    latencies_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    took_s: float = 0.0

    def to_json(self) -> dict[str, float | int]:
        """The figures, ms and checks a second."""
        found = {f"p{part:g}_ms": 1e3 * quantile(self.latencies_s, part / 100) for part in (50, 99, 99.9)}
        decisions = self.allowed + self.refused
        return {
            "decisions": decisions,
            "decisions_per_second": decisions / self.took_s,
            "allowed": self.allowed,
            "refused": self.refused,
            "errors": self.errors,
            **found,
            "max_ms": 1e3 * max(self.latencies_s, default=0.0),
            "sent_late_p99_ms": 1e3 * quantile(self.late_s, 0.99),
        }


def quantile(values: Sequence[float], part: float) -> float:
    """The least value that ``part`` of all do not exceed; 0 of none."""
    return sorted(values)[max(0, -(-round(part * 10_000) * len(values) // 10_000) - 1)] if values else 0.0


async def bench_service(
    url: str | None, resp: str | None, namespace: str, token: str | None, plan: Plan
) -> dict[str, float | int]:
    """Measure the service at ``url``, or at ``resp`` by the Redis protocol: HOST:PORT, in TLS rediss://HOST:PORT.

    Raises BadInput, Unavailable, PeerError.
    """
    if resp is not None:
        scheme, _, address = resp.rpartition("://")
        if scheme not in ("", "redis", "rediss"):
            raise BadInput("resp", resp, "must be HOST:PORT, redis://HOST:PORT, or rediss://HOST:PORT for TLS")
        host, port = parse_peer("resp", address)
        secured = trusting(ca_file()) if scheme == "rediss" else None
        return (await offered(host, port, OverResp(token=token), plan, secured)).to_json()
    parts = urlsplit(checked_url("url", url or os.environ.get(URL_VARIABLE, "") or DEFAULT_URL, DEFAULT_URL))
    tls = trusting(ca_file()) if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    return (await offered(parts.hostname or "", port, OverHttp(parts.netloc, namespace, token), plan, tls)).to_json()


async def offered(host: str, port: int, wire: Wire, plan: Plan, tls: ssl.SSLContext | None = None) -> Heard:
    """Ask by the plan, and return what was heard. Raises Unavailable, PeerError."""
    heard = Heard()
    checks = list(plan.instants())
    random = Random(plan.seed)
    subjects = [f"bench-{random.randrange(plan.subjects)}" for _ in checks]
    async with AsyncExitStack() as open_links:
        links = [await _connected(host, port, wire, tls, open_links) for _ in range(plan.connections)]
        begun = trio.current_time()
        with lone_failure():
            async with trio.open_nursery() as nursery:
                for number, link in enumerate(links):
                    mine = slice(number, None, plan.connections)
                    asked = list(zip(checks[mine], subjects[mine], strict=True))
                    nursery.start_soon(_ask, link, wire, begun, asked, heard)
        heard.took_s = max(plan.seconds, trio.current_time() - begun)
    return heard


async def _connected(
    host: str, port: int, wire: Wire, tls: ssl.SSLContext | None, open_links: AsyncExitStack
) -> trio.abc.Stream:
    try:
        link: trio.abc.Stream = await trio.open_tcp_stream(host, port)
    except OSError as error:
        raise Unavailable(f"{host}:{port} does not take a connection: {error.strerror or error}") from error
    open_links.push_async_callback(trio.aclose_forcefully, link)
    if tls is not None:
        link = await _secured(link, tls, wire, host, port)
    if wire.hello:
        await _answered(link, wire, bytearray(), wire.hello)  # of a wrong token: then every check is an error
    return link


async def _secured(link: trio.abc.Stream, tls: ssl.SSLContext, wire: Wire, host: str, port: int) -> trio.abc.Stream:
    secured = trio.SSLStream(link, tls, server_hostname=host, https_compatible=True)
    try:
        with trio.fail_after(ANSWERED_WITHIN_S):
            await secured.do_handshake()
    except (trio.BrokenResourceError, trio.TooSlowError) as error:
        raise Unavailable(f"{host}:{port} {trouble(f'{wire.scheme}://{host}:{port}', error)}") from error
    return secured


async def _ask(
    link: trio.abc.Stream, wire: Wire, begun: float, checks: Sequence[tuple[float, str]], heard: Heard
) -> None:
    received = bytearray()
    for instant, subject in checks:
        due = begun + instant
        free = trio.current_time()
        await trio.sleep_until(due)
        heard.late_s.append(trio.current_time() - max(due, free))
        with trio.move_on_after(ANSWERED_WITHIN_S) as scope:
            answer = await _answered(link, wire, received, wire.request(subject))
        if scope.cancelled_caught:
            raise Unavailable(f"the service gave no answer within {ANSWERED_WITHIN_S:g} s")
        _note(heard, answer, trio.current_time() - due)


def _note(heard: Heard, answer: Answer, latency_s: float) -> None:
    if answer.allowed is None:
        heard.errors += 1
        return
    heard.latencies_s.append(latency_s)
    if answer.allowed:
        heard.allowed += 1
    else:
        heard.refused += 1


async def _answered(link: trio.abc.Stream, wire: Wire, received: bytearray, request: bytes) -> Answer:
    try:
        await link.send_all(request)
        while True:
            answer = wire.answer(bytes(received)) if received else None
            if answer is not None:
                del received[: answer.size]
                return answer
            more = await link.receive_some(_READ_BYTES)
            if not more:
                break
            received += more
    except trio.BrokenResourceError:
        pass
    raise Unavailable("the service closed the connection")

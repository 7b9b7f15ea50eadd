"""nsqd's HTTP auth servers: what they are asked when a client sends AUTH, or CONNECT by MQTT, and which answers count
(protocol section 12). The engine judges what an answer allows."""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlencode

import msgspec

from broker.config import AuthAddress
from broker.events import AuthAsked
from srtm.errors import PeerError, SrtmError, Unavailable
from srtm.net.decode_errors import UNREADABLE
from srtm.net.http_client import HttpClient

_ANSWER_LIMIT_BYTES = 1 << 20
_HEADERS = (("Accept", "application/vnd.nsq; version=1.0"),)


class Authorization(msgspec.Struct, frozen=True):
    """What is allowed where: ``topic`` and ``channels`` are patterns."""

    topic: str
    channels: list[str] | None = None
    permissions: list[Literal["subscribe", "publish"]] | None = None


class Answer(msgspec.Struct, frozen=True):
    """An auth server's answer. The engine reads it, as JSON."""

    ttl: Annotated[int, msgspec.Meta(gt=0)]  # seconds
    identity: str = ""
    identity_url: str = ""
    authorizations: list[Authorization] | None = None


class _TlsHint(msgspec.Struct, frozen=True):
    https_port: Annotated[int, msgspec.Meta(ge=1, le=65535)]


def encode_question(question: AuthAsked, path: str, method: str) -> tuple[str, bytes]:
    """Request target and body. The question is in the query (``get``), or in JSON as lists of one value (``post``)."""
    fields = {
        "common_name": question.common_name,
        "remote_ip": question.remote_ip,
        "secret": question.secret,
        "tls": "true" if question.tls else "false",
    }
    fields |= {name: value for name in ("username", "client_id") if (value := getattr(question, name))}  # MQTT's alone
    if method == "get":
        return f"{path}?{urlencode(fields)}", b""
    secret = question.secret.decode(errors="replace")
    return path, msgspec.json.encode({name: [value] for name, value in {**fields, "secret": secret}.items()})


def normalize(body: bytes) -> bytes:
    """The answer as the engine takes it: without unknown fields, null lists empty. Raises PeerError."""
    try:
        answer = msgspec.json.decode(body, type=Answer)
    except UNREADABLE as error:
        raise PeerError(f"not an authorization: {error}") from None
    rules = [
        {"topic": rule.topic, "channels": rule.channels or [], "permissions": rule.permissions or []}
        for rule in answer.authorizations or []
    ]
    return msgspec.json.encode({**msgspec.structs.asdict(answer), "authorizations": rules})


@dataclass(frozen=True)
class AuthServers:
    """``tls`` makes the TLS context when it is first needed: loading the system's certificates takes a while."""

    addresses: Sequence[AuthAddress]
    method: str = "get"
    connect_timeout_s: float = 2.0
    request_timeout_s: float = 5.0
    tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
    draw: Callable[[int], int] = random.randrange

    async def ask(self, question: AuthAsked) -> bytes:
        """The first usable answer, beginning with a random server. Raises Unavailable if there is none."""
        start = self.draw(len(self.addresses))
        reasons = []
        for address in [*self.addresses[start:], *self.addresses[:start]]:
            try:
                return normalize(await self._ask(address, question))
            except SrtmError as error:
                reasons.append(str(error))
        raise Unavailable("; ".join(reasons))

    async def _ask(self, address: AuthAddress, question: AuthAsked) -> bytes:
        status, body = await self._exchange(address, question)
        if status == 403 and not address.tls:
            hint = _tls_hint(body)
            if hint is not None:
                address = AuthAddress(address.host, hint, address.path, tls=True)
                status, body = await self._exchange(address, question)
        if status != 200:
            raise PeerError(f"{address.base_url}: status {status}")
        return body

    async def _exchange(self, address: AuthAddress, question: AuthAsked) -> tuple[int, bytes]:
        target, body = encode_question(question, address.path, self.method)
        try:
            tls = self.tls() if address.tls else None
        except OSError as error:  # the CA file is missing or bad
            raise Unavailable(f"{address.base_url}: no TLS: {error}") from None
        client = HttpClient(
            address.base_url,
            tls=tls,
            headers=_HEADERS,
            connect_timeout_s=self.connect_timeout_s,
            answer_limit_bytes=_ANSWER_LIMIT_BYTES,
        )
        try:
            return await client.request(self.method.upper(), target, body, timeout_s=self.request_timeout_s)
        finally:
            await client.aclose()


def _tls_hint(body: bytes) -> int | None:
    """The port in the answer of a server that accepts https only."""
    try:
        return msgspec.json.decode(body, type=_TlsHint).https_port
    except UNREADABLE:
        return None

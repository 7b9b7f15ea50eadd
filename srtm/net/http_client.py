"""One kept-alive HTTP/1.1 connection to one SRTM service, on trio and h11.

Brokers use it because they must start at once: httpx takes 0.1 s to import.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

import h11
import trio

from srtm.errors import BadInput, PeerError, Unavailable
from srtm.net.address import format_address, resolvable
from srtm.net.tls_trust import no_answer, trouble
from srtm.net.tokens import OwnToken, checked_token, shown

Connect = Callable[[], Awaitable[trio.abc.Stream]]


class HttpClient:
    """An HTTP client for one task at a time.

    ``base_url``: ``http://HOST:PORT``, or ``https://HOST:PORT`` with ``tls``. Raises BadInput for any other URL.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: OwnToken | None = None,
        tls: ssl.SSLContext | None = None,
        headers: Sequence[tuple[str, str]] = (),
        connect: Connect | None = None,
        connect_timeout_s: float = 1.0,
        answer_limit_bytes: int = 256 * 1024 * 1024,  # a desired state with a million publishers has about 20 MB
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._host, self._port = parse_http_url("url", base_url, "https" if tls else "http")
        self._tls = tls
        self._headers = [("Host", format_address(self._host, self._port)), *headers]
        self._token = token
        if token is not None:
            checked_token("token", shown(token))
        self._connect = connect or self._connect_tcp
        self._connect_timeout_s = connect_timeout_s
        self._answer_limit_bytes = answer_limit_bytes
        self._stream: trio.abc.Stream | None = None
        self._h11 = h11.Connection(h11.CLIENT)
        self._answer_begun = False

    async def request(self, method: str, target: str, body: bytes = b"", *, timeout_s: float) -> tuple[int, bytes]:
        """Send a request and return the answer's status and body.

        Raises Unavailable (no connection, no answer within ``timeout_s``), PeerError (the answer is no HTTP). If the
        server closed the connection meanwhile, the request is sent again once: it must be safe to repeat. After an
        error or a cancellation the next request opens a new connection.
        """
        finished = False
        try:
            with trio.fail_after(timeout_s):
                answer = await self._request(method, target, body)
            finished = True
            return answer
        except trio.TooSlowError:
            raise Unavailable(f"{self.base_url}: no answer within {timeout_s:g} s") from None
        except h11.RemoteProtocolError as error:
            if self._answer_begun:
                raise PeerError(f"{self.base_url}: {error}") from error
            raise PeerError(f"{self.base_url} {no_answer(self.base_url)}") from error
        except (OSError, trio.BrokenResourceError) as error:
            raise Unavailable(f"{self.base_url} {trouble(self.base_url, error)}") from error
        finally:
            if not finished:
                await self._abandon()

    async def aclose(self) -> None:
        """Close the connection at once, without notice to the server; also inside a cancelled scope."""
        await self._abandon()

    async def _request(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        reused = self._stream is not None
        try:
            return await self._exchange(method, target, body)
        except (trio.BrokenResourceError, h11.RemoteProtocolError):
            if not reused or self._answer_begun:
                raise
        await self._abandon()
        return await self._exchange(method, target, body)

    async def _exchange(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        self._answer_begun = False
        stream = self._stream or await self._open()
        headers = [*self._headers, ("Content-Length", str(len(body)))]
        if self._token is not None:
            headers.append(("Authorization", f"Bearer {shown(self._token)}"))
        if body:
            headers.append(("Content-Type", "application/json"))
        out = self._h11.send(h11.Request(method=method, target=target, headers=headers)) or b""
        out += self._h11.send(h11.Data(data=body)) or b""
        await stream.send_all(out + (self._h11.send(h11.EndOfMessage()) or b""))
        answer = await self._read_answer(stream)
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
        else:
            await self._abandon()
        return answer

    async def _read_answer(self, stream: trio.abc.Stream) -> tuple[int, bytes]:
        status, body = 0, bytearray()
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                data = bytes(await stream.receive_some(65536))
                self._answer_begun = self._answer_begun or bool(data)
                self._h11.receive_data(data)
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > self._answer_limit_bytes:
                    raise h11.RemoteProtocolError(f"answer over {self._answer_limit_bytes} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return status, bytes(body)

    async def _open(self) -> trio.abc.Stream:
        try:
            with trio.fail_after(self._connect_timeout_s):
                stream = await self._connect()
        except trio.TooSlowError:
            raise OSError(f"no connection within {self._connect_timeout_s:g} s") from None
        self._stream, self._h11 = stream, h11.Connection(h11.CLIENT)
        return stream

    async def _connect_tcp(self) -> trio.abc.Stream:
        stream = await trio.open_tcp_stream(self._host, self._port)
        if self._tls is None:
            return stream
        return trio.SSLStream(stream, self._tls, server_hostname=self._host, https_compatible=True)

    async def _abandon(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await trio.aclose_forcefully(stream)


def parse_http_url(field: str, url: str, scheme: str = "http") -> tuple[str, int]:
    """Return host and port of ``http://HOST:PORT``. Raises BadInput."""
    rule = f"must be {scheme}://HOST:PORT"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadInput(field, url, rule) from None
    if parts.scheme != scheme or not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise BadInput(field, url, rule)
    return resolvable(field, url, parts.hostname), port or (443 if scheme == "https" else 80)

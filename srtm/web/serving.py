"""Serves an ASGI application with hypercorn, on a socket that is bound before, until it is cancelled."""

from __future__ import annotations

import errno
import logging
import socket
import ssl
import traceback
from collections.abc import Callable

import trio
from hypercorn.config import Config
from starlette.types import ASGIApp

from srtm.concurrency.background import background_nursery
from srtm.errors import BadInput, Unavailable
from srtm.log import Log
from srtm.net.address import parse_address
from srtm.net.renewals import Renewals
from srtm.net.tokens import Tokens, read_text
from srtm.web.fronted import Front, serve_fronted
from srtm.web.request_log import RequestLog

_GRACE_S = 1.0  # for requests under way to end
_BACKLOG = 4096  # a fleet that lost its server connects at once; the kernel may have a lower bound


class Certificate:
    """PEM files of a certificate and its key. None: HTTP in clear."""

    def __init__(self, certificate: str | None = None, key: str | None = None) -> None:
        self.certificate = certificate
        self.key = key
        self._served: list[ssl.SSLContext] = []

    def serve_by(self, context: ssl.SSLContext) -> None:
        """Note a context of connections; ``renew`` gives it another certificate."""
        self._served.append(context)

    def context(self, *protocols: str) -> ssl.SSLContext | None:
        """Return a context for connections that are not HTTP/1.1, with names for ALPN. None: in clear.

        ``renew`` gives it another certificate.
        """
        if self.certificate is None:
            return None
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.load_cert_chain(self.certificate, self.key)
        if protocols:
            made.set_alpn_protocols(list(protocols))
        self.serve_by(made)
        return made

    def renew(self) -> None:
        """Read the files again: connections that begin from now on get what they hold.

        Raises BadInput; then the old certificate stays.
        """
        self.check()
        for context in self._served:
            context.load_cert_chain(self.certificate or "", self.key)

    def check(self) -> None:
        """Raises BadInput, before the server fails with a message that names no option."""
        if self.certificate is None:
            return
        for option, name in (("tls_cert", self.certificate), ("tls_key", self.key)):
            read_text(option, name or "")
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                self.certificate, self.key, password=lambda: ""
            )
        except (ssl.SSLError, ValueError) as error:
            why = getattr(error, "reason", None) or str(error)
            rule = f"must be a certificate in PEM that fits its key, without a passphrase ({why})"
            raise BadInput("tls_cert", self.certificate, rule) from None


def add_renewals(renewals: Renewals, certificate: Certificate, tokens: Tokens | None) -> None:
    """Add the files of a service that it can read again."""
    if certificate.certificate is not None:
        renewals.add("certificate", certificate.renew)
    if tokens is not None and tokens.is_of_file:
        renewals.add("tokens", tokens.renew)


async def serve_app(
    app: ASGIApp,
    listener: socket.socket,
    certificate: Certificate,
    log: Log,
    ready: Callable[[], None],
    front: Front | None = None,
) -> None:
    """Serve until cancelled. Requests under way have a second to end then. ``ready`` is called when it answers.

    ``front``: gets each connection first.
    """
    stop = trio.Event()
    async with background_nursery() as nursery:
        nursery.start_soon(_set_when_cancelled, stop)
        await nursery.start(_run_hypercorn, RequestLog(app, log), listener, certificate, log, stop, front)
        ready()
        await trio.sleep_forever()


async def _set_when_cancelled(stop: trio.Event) -> None:
    try:
        await trio.sleep_forever()
    finally:
        stop.set()


async def _run_hypercorn(
    app: ASGIApp,
    listener: socket.socket,
    certificate: Certificate,
    log: Log,
    stop: trio.Event,
    front: Front | None,
    *,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    """Serve until ``stop``, then for the grace at most. Shielded, so that requests under way may end."""
    config = _Config()
    config.certificate = certificate
    config.bind = [f"fd://{listener.detach()}"]  # bound already, so that a port in use is reported by option
    config.certfile, config.keyfile = certificate.certificate, certificate.key
    config.alpn_protocols = ["http/1.1"]
    config.graceful_timeout = _GRACE_S
    config.backlog = _BACKLOG
    config.errorlog = logging.Logger("hypercorn.error", logging.WARNING)
    config.errorlog.addHandler(_ToLog(log))
    with trio.CancelScope(shield=True):
        await serve_fronted(app, config, front, stop, log, task_status=task_status)


class _ToLog(logging.Handler):
    """Writes what hypercorn logs as lines of ``log``, tracebacks in one line."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        say = self._log.failure if record.levelno >= logging.ERROR else self._log.warning
        trace = {} if record.exc_info is None else {"traceback": "".join(traceback.format_exception(*record.exc_info))}
        say(record.getMessage(), **trace)


class _Config(Config):
    """Settings of hypercorn that keep the context of its connections, for renewed certificates."""

    certificate: Certificate

    def create_ssl_context(self) -> ssl.SSLContext | None:
        context = super().create_ssl_context()
        if context is not None:
            self.certificate.serve_by(context)
        return context


def bound(address: str, option: str = "http_address") -> socket.socket:
    """A listening socket. ``option`` has its address. Raises BadInput, Unavailable."""
    host, port = parse_address(option, address)
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Unavailable(f"{option}: port {port} of {host} is in use by another process") from None
        raise BadInput(option, address, f"must be an address of this host ({error.strerror})") from None

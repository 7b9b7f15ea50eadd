"""The distributor as a service: the store, the registry, and HTTP around them.

With SQLite it leads from start to end. With PostgreSQL it leads for a term whenever ``leadership.election`` says so,
and stands by between terms; each term begins with the state in the store.

When it is cancelled it takes no new requests, gives those under way a second to end, and closes the store. Brokers keep
their shares.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as serve_asgi
from starlette.types import ASGIApp

from distributor.config import DistributorConfig
from distributor.leadership.election import Election
from distributor.leadership.leader import leader_app
from distributor.leadership.postgres_lock import PostgresLock
from distributor.leadership.roles import Roles
from distributor.registry.registry import Registry
from distributor.storage.store import Store
from srtm.concurrency.background import background_nursery
from srtm.errors import BadInput, Unavailable
from srtm.log import Log
from srtm.net.address import format_address, parse_address
from srtm.net.tokens import read_text

_GRACE_S = 1.0  # for long polls of brokers to end
_BACKLOG = 4096  # a fleet that lost its broker connects at once; the kernel may have a lower bound


class BoundAddresses(NamedTuple):
    """The address that is listened on, as HOST:PORT with the real port."""

    http: str


async def serve(
    config: DistributorConfig, *, task_status: trio.TaskStatus[BoundAddresses] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run a distributor until cancelled. It has started when HTTP answers.

    Raises BadInput (a bad address or store URL), Unavailable (the port is in use, the store cannot be opened, or
    another distributor uses it as SQLite).
    """
    _check_certificate(config)
    with bound(config.http_address) as listener:
        address = format_address(*listener.getsockname()[:2])
        store = await Store.open(config.store)
        try:
            async with background_nursery() as nursery:
                app = await _make_app(store, config, address, nursery)
                await _serve_http(app, listener, config, lambda: _ready(address, config, task_status))
        finally:
            await store.aclose()


async def _make_app(store: Store, config: DistributorConfig, address: str, nursery: trio.Nursery) -> ASGIApp:
    """The application, once it is known who leads. Its tasks run in ``nursery``."""
    url, log = f"{_scheme(config)}://{advertised_address(config, address)}", Log("distributor")
    if store.database.is_shared:
        roles = Roles(store, config, Election(partial(PostgresLock, store.database)), url, log)
        nursery.start_soon(roles.run)
        await roles.decided.wait()
        return roles.front_door
    registry = await Registry.load(store, config)
    app, tasks = leader_app(registry, url)
    for task in (registry.run, *tasks):
        nursery.start_soon(task)
    return app


def advertised_address(config: DistributorConfig, address: str) -> str:
    """HOST:PORT at which others reach what is bound to ``address``."""
    host, port = parse_address("http_address", address)
    if config.broadcast_address is not None:
        host = config.broadcast_address
    elif host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    return format_address(host, port)


def _scheme(config: DistributorConfig) -> str:
    return "http" if config.tls_cert is None else "https"


def _ready(address: str, config: DistributorConfig, task_status: trio.TaskStatus[BoundAddresses]) -> None:
    Log("distributor").info("ready", **{_scheme(config): address})
    task_status.started(BoundAddresses(address))


def _check_certificate(config: DistributorConfig) -> None:
    """Raises BadInput, before the server fails with a message that names no option."""
    if config.tls_cert is None:
        return
    for option, name in (("tls_cert", config.tls_cert), ("tls_key", config.tls_key)):
        read_text(option, name or "")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            config.tls_cert, config.tls_key, password=lambda: ""
        )
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error)
        rule = f"must be a certificate in PEM that fits its key, without a passphrase ({why})"
        raise BadInput("tls_cert", config.tls_cert, rule) from None


async def _serve_http(
    app: ASGIApp, listener: socket.socket, settings: DistributorConfig, ready: Callable[[], None]
) -> None:
    """Serve until cancelled."""
    stop = trio.Event()
    async with background_nursery() as nursery:
        nursery.start_soon(_set_when_cancelled, stop)
        await nursery.start(_run_hypercorn, app, listener, settings, stop)
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
    settings: DistributorConfig,
    stop: trio.Event,
    *,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    """Serve until ``stop``, then for the grace at most. Shielded, so that requests under way may end."""
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]  # bound already, so that a port in use is reported by option
    config.certfile, config.keyfile = settings.tls_cert, settings.tls_key
    config.alpn_protocols = ["http/1.1"]
    config.graceful_timeout = _GRACE_S
    config.backlog = _BACKLOG
    config.loglevel = "WARNING"
    with trio.CancelScope(shield=True):
        await serve_asgi(cast(Any, app), config, shutdown_trigger=stop.wait, task_status=task_status)


def bound(http_address: str) -> socket.socket:
    """A listening socket. Raises BadInput, Unavailable."""
    host, port = parse_address("http_address", http_address)
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Unavailable(f"http_address: port {port} of {host} is in use by another process") from None
        raise BadInput("http_address", http_address, f"must be an address of this host ({error.strerror})") from None

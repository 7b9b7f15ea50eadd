"""Clients that say AUTH: the auth servers are asked (``auth``), the engine is told; the connection waits meanwhile,
nobody else does."""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING

import trio

from broker.config import BrokerConfig, parse_auth_address
from broker.events import AuthAsked
from broker.nsqd.auth_servers import AuthServers
from srtm.errors import SrtmError, Unavailable
from srtm.log import Log

if TYPE_CHECKING:
    from srtm._native import Engine

_AT_ONCE = 64
# That wait for one of these: a storm of clients at a dead auth server must not take the memory of all.
_MOST_WAITING = 4096


class Authorizing:
    """``answer`` any number of questions at once; some are asked at a time, the others wait."""

    def __init__(self, engine: Engine, servers: AuthServers, log: Log) -> None:
        self._engine = engine
        self._servers = servers
        self._log = log
        self._limit = trio.CapacityLimiter(_AT_ONCE)

    async def answer(self, question: AuthAsked) -> None:
        """The engine has its answer when this returns, if the connection still waits: of a server, or a refusal."""
        answer = None
        try:
            if self._limit.statistics().tasks_waiting >= _MOST_WAITING:
                raise Unavailable(f"{_MOST_WAITING} others wait already")
            async with self._limit:
                if not self._engine.awaits_authorization(question.connection):
                    return  # it did not wait for its turn
                answer = await self._servers.ask(question)
        except SrtmError as error:
            self._log.warning("no authorization", client=question.remote_ip, reason=error)
        refused = self._engine.set_authorization(question.connection, answer)
        if refused is not None:
            self._log.warning("an authorization is refused", client=question.remote_ip, reason=refused)


def auth_servers(config: BrokerConfig) -> AuthServers:
    return AuthServers(
        [parse_auth_address("auth_http_address", address) for address in config.auth_http_addresses],
        config.auth_http_request_method,
        config.http_client_connect_timeout_ms / 1000,
        config.http_client_request_timeout_ms / 1000,
        partial(ssl.create_default_context, cafile=config.tls_root_ca_file or None),
    )

"""Answers AUTH and MQTT's CONNECT: asks the auth servers and tells the engine. Only that connection waits."""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING

import trio

from broker.config import BrokerConfig, parse_auth_address
from broker.events import AuthAsked
from broker.nsqd.auth_servers import AuthServers
from srtm.concurrency.repeats import Repeats
from srtm.errors import SrtmError, Unavailable
from srtm.log import Log

if TYPE_CHECKING:
    from srtm._native import Engine

_MAX_ASKED = 64  # questions under way at one time
_MAX_WAITING = 4096  # for one of these: clients at a dead auth server must not take all memory


class Authorizer:
    """Takes any number of questions at once; some are asked at a time, the others wait."""

    def __init__(self, engine: Engine, servers: AuthServers, log: Log) -> None:
        self._engine = engine
        self._servers = servers
        self._log = log
        self._limit = trio.CapacityLimiter(_MAX_ASKED)
        self._failures = Repeats()

    async def answer(self, question: AuthAsked) -> None:
        """Returns when the engine has an answer or a refusal, or when the connection no longer waits."""
        answer = None
        try:
            if self._limit.statistics().tasks_waiting >= _MAX_WAITING:
                raise Unavailable(f"{_MAX_WAITING} others wait already")
            async with self._limit:
                if not self._engine.awaits_authorization(question.connection):
                    return  # it has gone
                answer = await self._servers.ask(question)
        except SrtmError as error:
            self._report("no authorization", question, error)
        refused = self._engine.set_authorization(question.connection, answer)
        if refused is not None:
            self._report("an authorization is refused", question, refused)

    def _report(self, what: str, question: AuthAsked, reason: object) -> None:
        """Clients may fail as often as they like: one line in a while names the latest, and how many there were."""
        times = self._failures.note(trio.current_time())
        if times:
            self._log.warning(what, client=question.remote_ip, reason=reason, times=times)


def auth_servers(config: BrokerConfig) -> AuthServers:
    return AuthServers(
        [parse_auth_address("auth_http_address", address) for address in config.auth_http_addresses],
        config.auth_http_request_method,
        config.http_client_connect_timeout_ms / 1000,
        config.http_client_request_timeout_ms / 1000,
        partial(ssl.create_default_context, cafile=config.tls_root_ca_file or None),
    )

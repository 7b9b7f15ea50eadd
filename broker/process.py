"""A broker as a process: signals, and the exit status."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator

import trio

from broker.config import BrokerConfig
from broker.service import log_of, serve
from srtm.errors import SrtmError
from srtm.log import Log
from srtm.net.hangup import renew_at_hangup
from srtm.net.renewals import Renewals
from srtm.net.tokens import FromFile


def run(config: BrokerConfig) -> int:
    """Run a broker until it is drained (0), SIGTERM (0) or SIGINT (130). Returns the exit status.

    Raises SrtmError if the broker cannot start or go on.
    """
    try:
        return trio.run(_serve_until_signal, config)
    except BaseExceptionGroup as group:
        refusals, bugs = group.split(SrtmError)
        if refusals is None or bugs is not None:
            raise
        raise _first_leaf(refusals) from None


def _first_leaf(error: BaseException) -> BaseException:
    """The first error of a group. One failure ends a broker; failures in the same moment say no more."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _serve_until_signal(config: BrokerConfig) -> int:
    ended_by: list[int] = []
    renewals = renewals_of(config)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            if renewals is not None:
                await nursery.start(renew_at_hangup, renewals)
            serving = trio.CancelScope()
            nursery.start_soon(_end_by_signal, signals, ended_by, serving, log_of(config))
            with serving:
                await serve(config, renewals)
            nursery.cancel_scope.cancel()
    return 128 + signal.SIGINT if ended_by[:1] == [signal.SIGINT] else 0


def renewals_of(config: BrokerConfig) -> Renewals | None:
    """The files that a running broker reads again. None: it has none, and SIGHUP ends it as nsqd."""
    tokens = (config.tokens is not None and config.tokens.is_of_file) or isinstance(config.token, FromFile)
    has_files = tokens or config.tls_cert or config.asks_clients or config.mqtt_acl_file or config.ca_file
    return Renewals(log_of(config)) if has_files else None


async def _end_by_signal(signals: AsyncIterator[int], ended_by: list[int], serving: trio.CancelScope, log: Log) -> None:
    """Reads later signals, too: unread, they would end the process with another status."""
    async for number in signals:
        if not ended_by:
            log.info("stopping", signal=signal.Signals(number).name)
        ended_by.append(number)
        serving.cancel()

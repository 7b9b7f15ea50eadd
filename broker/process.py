"""A broker as a process: what ends it, and what its exit status says."""

from __future__ import annotations

import signal

import trio

from broker.config import BrokerConfig
from broker.service import log_of, serve
from srtm.errors import SrtmError


def run(config: BrokerConfig) -> int:
    """A broker as a process: until it is drained (0), SIGTERM (0) or SIGINT (130). Raises SrtmError where it cannot
    start or go on."""
    try:
        return trio.run(_serve_until_signal, config)
    except BaseExceptionGroup as group:
        refusals, bugs = group.split(SrtmError)
        if refusals is None or bugs is not None:
            raise
        raise _first_leaf(refusals) from None


def _first_leaf(error: BaseException) -> BaseException:
    """One failure ends a broker; what fails with it in the same moment says no more."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _serve_until_signal(config: BrokerConfig) -> int:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_serve_to_the_end, config, nursery.cancel_scope)
            async for number in signals:
                log_of(config).info("stopping", signal=signal.Signals(number).name)
                nursery.cancel_scope.cancel()
                return 0 if number == signal.SIGTERM else 128 + number
    return 0


async def _serve_to_the_end(config: BrokerConfig, waiting: trio.CancelScope) -> None:
    await serve(config)
    waiting.cancel()

"""Where more brokers come from when a fitting runs out of them: nobody, a local process, or the operator's command.

A scaler starts what it is asked for and returns; that the brokers are there is seen by their first sync, not here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import trio

from distributor.config import DistributorConfig
from distributor.fitting.events import Scaler
from srtm.cluster.cluster_file import pick_addresses
from srtm.cluster.supervisor import Child, keep_running
from srtm.errors import Unavailable
from srtm.log import Log

_COMMAND_TAKES_AT_MOST_S = 120.0
_ENDS_WITHIN_S = 5.0  # once it is told to
_PREFIX = "scaled-"
_DRAINED = "srtm.drained"  # in the directory of a broker that is not to be started again


class Scaling(Protocol):
    """``ask`` for ``brokers`` more; raises Unavailable where none will come. ``run`` looks after what was started."""

    async def ask(self, brokers: int) -> None: ...

    async def run(self) -> None: ...


class NoScaler:
    """Nobody is asked: what is missing is said."""

    async def ask(self, brokers: int) -> None:
        """Raises Unavailable."""
        raise Unavailable(f"{brokers} more brokers are wanted, and no scaler is configured (--scaler)")

    async def run(self) -> None:
        """Nothing to look after."""


class CommandScaler:
    """The operator's own shell command, with ``$SRTM_BROKERS`` in its environment: how many."""

    def __init__(self, command: str) -> None:
        self._command = command

    async def ask(self, brokers: int) -> None:
        """Returns when the command has ended. Raises Unavailable: it failed, or takes too long."""
        told = {**os.environ, "SRTM_BROKERS": str(brokers)}
        with trio.move_on_after(_COMMAND_TAKES_AT_MOST_S) as scope:
            ended = await trio.run_process(
                self._command,
                shell=True,
                check=False,
                env=told,
                stdin=b"",
                start_new_session=True,  # so that what it has started can be ended with it
                deliver_cancel=_end_group,
            )
            if ended.returncode != 0:
                raise Unavailable(f"the scaler's command ended with status {ended.returncode}")
        if scope.cancelled_caught:
            raise Unavailable(f"the scaler's command did not end within {_COMMAND_TAKES_AT_MOST_S:g} s")

    async def run(self) -> None:
        """Nothing to look after."""


async def _end_group(process: trio.Process) -> None:
    """The shell, and whatever of it runs; cancelled as soon as the shell has ended."""
    os.killpg(process.pid, signal.SIGTERM)
    await trio.sleep(_ENDS_WITHIN_S)
    os.killpg(process.pid, signal.SIGKILL)


class Members(Protocol):
    """What a scaler asks of the cluster."""

    def typical_mcap(self) -> float:
        """Msg/s that the next broker may be given; 0: not stated."""

    def is_draining(self, broker: str) -> bool:
        """Whether it is taken out of service."""


class ProcessScaler:
    """Brokers as processes of this distributor, on loopback, restarted when they crash. They end with it, and come back
    with it, but for those that were drained: each has its directory in ``folder``."""

    def __init__(self, folder: Path, distributor: str, members: Members, log: Log, options: Sequence[str] = ()) -> None:
        """``options``: more for each ``srtm broker``."""
        self._folder = folder
        self._distributor = distributor
        self._members = members
        self._log = log
        self._options = options
        self._send, self._receive = trio.open_memory_channel[Child](1024)

    async def ask(self, brokers: int) -> None:
        """Raises Unavailable: a directory cannot be made, or there is no port."""
        taken = [int(path.name.removeprefix(_PREFIX)) for path in self._known()]
        first = max(taken, default=0) + 1
        for child in self._children([self._folder / f"{_PREFIX}{first + at}" for at in range(brokers)]):
            self._send.send_nowait(child)

    async def run(self) -> None:
        """Until cancelled; then its processes end."""
        async with trio.open_nursery() as nursery:
            for child in self._children([path for path in self._known() if not (path / _DRAINED).exists()]):
                nursery.start_soon(self._keep_running, child)
            async for child in self._receive:
                nursery.start_soon(self._keep_running, child)

    def _known(self) -> list[Path]:
        found = self._folder.glob(f"{_PREFIX}*/") if self._folder.is_dir() else iter(())
        return sorted(path for path in found if path.is_dir() and path.name.removeprefix(_PREFIX).isdigit())

    def _children(self, paths: Sequence[Path]) -> list[Child]:
        """Raises Unavailable."""
        addresses = pick_addresses(2 * len(paths), {})  # at once: none is picked twice
        return [self._child(*one) for one in zip(paths, addresses[::2], addresses[1::2], strict=True)]

    def _child(self, path: Path, tcp_address: str, http_address: str) -> Child:
        """Raises Unavailable."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(f"a broker's directory {path} cannot be made ({error.strerror})") from None
        mcap = self._members.typical_mcap()
        arguments = [
            "broker",
            *("--name", path.name, "--data-path", str(path)),
            *("--tcp-address", tcp_address, "--http-address", http_address),
            *("--distributor", self._distributor),
            *(("--mcap", f"{mcap:g}") if mcap else ()),
            *self._options,
        ]
        return Child(path.name, arguments, self._folder, lambda line: self._log.warning(line))

    async def _keep_running(self, child: Child) -> None:
        await keep_running(
            child,
            lambda: self._log.info("a broker is started", broker=child.name, log=child.log),
            partial(self._goes_on, child),
        )

    async def _goes_on(self, child: Child) -> bool:
        self._log.warning("a broker ended", broker=child.name, how=child.ended)
        if child.stays_ended and self._members.is_draining(child.name):
            try:
                (self._folder / child.name / _DRAINED).touch()
            except OSError as error:
                self._log.warning("a drained broker will be started again", broker=child.name, reason=error)
        return not child.stays_ended


def scaling_of(config: DistributorConfig, distributor: str, members: Members, log: Log) -> Scaling:
    """``distributor``: where brokers that are started find it."""
    if config.scaler is Scaler.COMMAND:
        return CommandScaler(config.scaler_command)
    if config.scaler is Scaler.PROCESS:
        return ProcessScaler(config.scaler_data, distributor, members, log, config.scaler_options)
    return NoScaler()

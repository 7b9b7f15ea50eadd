"""Programs on the hosts of a testbed, for as long as a block runs: started by the main thread, ended by signal."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from bench.harness.machine.checkout import ROOT
from bench.testbed.net.layout import Host
from bench.testbed.owner import LiveTestbed, environment
from srtm.errors import Unavailable

_ENDS_WITHIN_S = 10.0


class Program:
    """``log``: what it says on standard error; standard input and output are pipes to here."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._log = log
        assert process.stdin is not None
        assert process.stdout is not None
        self._input = trio.lowlevel.FdStream(os.dup(process.stdin.fileno()))
        self._output = trio.lowlevel.FdStream(os.dup(process.stdout.fileno()))
        process.stdin.close()
        process.stdout.close()

    async def send_last(self, data: bytes = b"") -> None:
        """Then its standard input is at its end."""
        await self._input.send_all(data)
        await self._input.aclose()

    async def started(self, word: bytes, within_s: float) -> None:
        """Once it has said ``word``. Raises Unavailable."""
        with trio.move_on_after(within_s):
            if await self.read(len(word)) == word:
                return
            raise Unavailable(f"{self.name} did not start: {self.last_words()}")
        raise Unavailable(f"{self.name} did not start within {within_s:g} s: {self.last_words()}")

    async def read(self, size: int) -> bytes:
        """Exactly so much. Raises Unavailable if it ends before."""
        data = b""
        while len(data) < size:
            part = await self._output.receive_some(size - len(data))
            if not part:
                raise Unavailable(f"{self.name} ended: {self.last_words()}")
            data += part
        return data

    async def read_all(self) -> bytes:
        """Until it has ended. Raises Unavailable if it failed, or closed its output and does not end."""
        data = b"".join([part async for part in self._output])
        await self._ended()
        if self._process.returncode != 0:
            raise Unavailable(f"{self.name} ended with status {self._process.returncode}: {self.last_words()}")
        return data

    def refuse_end(self) -> None:
        """Raises Unavailable if it has ended."""
        if self._process.poll() is not None:
            raise Unavailable(f"{self.name} ended: {self.last_words()}")

    def last_words(self) -> str:
        return self._log.read_text(errors="replace").strip()[-500:] or "it said nothing"

    async def end(self) -> None:
        """By SIGKILL: what it holds is nobody's. Raises Unavailable if that does not end it; the pipes are closed."""
        self._process.kill()
        try:
            await self._ended()
        finally:
            await self._input.aclose()
            await self._output.aclose()

    async def _ended(self) -> None:
        """Raises Unavailable."""
        if self._process.poll() is not None:
            return
        descriptor = os.pidfd_open(self.pid)
        try:
            with trio.move_on_after(_ENDS_WITHIN_S) as waiting:
                await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        if waiting.cancelled_caught:
            raise Unavailable(f"{self.name} did not end within {_ENDS_WITHIN_S:g} s: {self.last_words()}")
        self._process.wait()


@asynccontextmanager
async def running(
    there: LiveTestbed, host: Host, name: str, command: Sequence[str], logs: Path
) -> AsyncIterator[Program]:
    """While the block runs. From the main thread."""
    log = logs / f"{name}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(  # noqa: ASYNC220 - its death signal comes when the thread that forks ends
            there.command(host, command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(),
            cwd=ROOT,
            process_group=0,  # a terminal's Ctrl-C is for the owner, who ends the others
        )
    program = Program(name, process, log)
    try:
        yield program
    finally:
        with trio.CancelScope(shield=True):
            await program.end()

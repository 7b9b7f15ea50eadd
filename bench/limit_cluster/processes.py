"""Processes of ``srtm`` by name: started, waited for by what they answer, and killed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import trio

from srtm.errors import Unavailable

START_S = 60.0  # six processes at once take 20 s where two processors have other work too
_POLL_S = 0.05


class Processes:
    """``folder``: for their logs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, trio.Process] = {}

    async def run(self, name: str, *arguments: str) -> None:
        """Start ``srtm ARGUMENTS`` as the process ``name``."""
        with self._log(name).open("ab") as log:
            command = [sys.executable, "-m", "srtm", *arguments]
            self._processes[name] = await trio.lowlevel.open_process(command, stdout=log, stderr=log)

    async def until(self, name: str, url: str, is_so: Callable[[Any], bool]) -> None:
        """Wait until the JSON at ``url`` of the process ``name`` is as it should be. Raises Unavailable."""
        with trio.move_on_after(START_S):
            async with httpx.AsyncClient(trust_env=False) as client:
                while self._processes[name].returncode is None:
                    try:
                        answer = await client.get(url)
                        if answer.status_code == httpx.codes.OK and is_so(answer.json()):
                            return
                    except httpx.TransportError:
                        pass
                    await trio.sleep(_POLL_S)
        log = self._log(name).read_text(errors="replace")[-2_000:]
        raise Unavailable(f"{name} has ended, or is not as it should be after {START_S:g} s; its log:\n{log}")

    async def kill(self, name: str) -> None:
        """End a process at once."""
        process = self._processes.pop(name)
        process.kill()
        await process.wait()

    async def stop(self) -> None:
        """End all processes at once."""
        for name in list(self._processes):
            await self.kill(name)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

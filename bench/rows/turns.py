"""One sample of every system after the other; a system that fails makes a sample that does not count."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from bench.comparison import Round, Sample, Turn
from bench.systems import System, floor, nsqd, nsqd_in_place
from srtm.errors import SrtmError

Start = Callable[..., AbstractAsyncContextManager[System]]
SYSTEMS: Mapping[str, Start] = {"srtm": nsqd_in_place, "nsqd": nsqd, "floor": floor}


def started(system: str, folder: Path, *options: str) -> AbstractAsyncContextManager[System]:
    """A fresh process with an empty data folder. ``options``: nsqd's; the floor has none."""
    return SYSTEMS[system](folder, *options) if system != "floor" else floor(folder)


def in_turn(
    systems: tuple[str, ...], sample: Callable[[str, Turn, Path], Awaitable[Sample]]
) -> Callable[[], Callable[[Turn], Awaitable[Round]]]:
    """The ``begin`` of a row that remembers nothing: ``sample(system, turn, folder)`` for each system."""

    async def measure(turn: Turn) -> Round:
        return [await _one(system, turn) for system in systems]

    async def _one(system: str, turn: Turn) -> Sample:
        try:
            return await sample(system, turn, turn.folder / system)
        except SrtmError as error:
            return Sample(system, {}, [str(error)])

    return lambda: measure

"""One sample of every system after the other; a system that fails makes a sample that does not count.

A sample that the machine spoilt (the generator was late) is taken again at once, a few times, rather than with all the
others of its round. One with a fault of the system is never taken again: it stands.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from bench.harness.results.comparison import Begin, Round, Sample, Turn
from bench.harness.systems.systems import System, floor, nsqd, nsqd_in_place
from srtm.errors import SrtmError


def started(system: str, turn: Turn, folder: Path, *options: str) -> AbstractAsyncContextManager[System]:
    """A fresh process with an empty data folder. ``options``: nsqd's; the floor has none."""
    if system == "floor":
        return floor(folder)
    return nsqd(folder, *options) if system == "nsqd" else nsqd_in_place(folder, *options, build=turn.build)


TRIES = 4
FAULTS = ("lost", "duplicates", "garbled")  # counted in a sample: whoever has any is judged by it


def in_turn(sample: Callable[[str, Turn, Path], Awaitable[Sample]]) -> Begin:
    """The ``begin`` of a row that remembers nothing: ``sample(system, turn, folder)`` for each system."""

    async def measure(systems: Sequence[str], turn: Turn) -> Round:
        return [await _first_that_counts(system, turn) for system in systems]

    async def _first_that_counts(system: str, turn: Turn) -> Sample:
        for number in range(TRIES):
            taken = await _one(system, turn, turn.folder / f"{system}-{number}")
            if not _spoilt(taken):
                break
        return taken

    async def _one(system: str, turn: Turn, folder: Path) -> Sample:
        try:
            return await sample(system, turn, folder)
        except SrtmError as error:
            return Sample(system, {}, [str(error)])

    return lambda systems: partial(measure, systems)


def _spoilt(taken: Sample) -> bool:
    """By something else than the system, which has values then, and no faults in them."""
    return bool(taken.reasons and taken.values) and not any(taken.values.get(fault) for fault in FAULTS)

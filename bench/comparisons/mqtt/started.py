"""A fresh broker that speaks MQTT, and what the rows ask of the load generator.

A system is named as in a table: ``srtm`` or ``mosquitto``, perhaps with a dash and a word behind it that the row
understands; the floor shows what generator and machine allow.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

import msgspec
import trio

from bench.comparisons.rows import steady
from bench.harness.load.workload import Plan
from bench.harness.results.comparison import Turn
from bench.harness.systems.peer_servers import mosquitto, our_mqtt
from bench.harness.systems.systems import System, floor
from srtm.errors import Unavailable

_T = TypeVar("_T")
OURS, THEIRS, FLOOR = "srtm", "mosquitto", "floor"
MOSQUITTO = (
    "Mosquitto with set_tcp_nodelay true, and both with 2,500 messages in flight: the generator's NSQ subscribers "
    "have as many."
)


def started(
    name: str, turn: Turn, folder: Path, *options: str, durable: bool = False
) -> AbstractAsyncContextManager[System]:
    """A fresh process with an empty data folder. ``options``: of our broker. ``durable``: Mosquitto has a disk, too."""
    if name == FLOOR:
        return floor(folder)
    if name.startswith(THEIRS):
        return mosquitto(folder, persistent=durable)
    return our_mqtt(folder, *options, build=turn.build)


async def in_thread(work: Callable[[System], _T], system: System) -> _T:
    """What ``work`` finds with blocking clients of ``system``. Raises Unavailable where one of them is cut off."""
    try:
        return await trio.to_thread.run_sync(work, system)
    except OSError as error:
        raise Unavailable(f"a client was cut off: {error}") from error


def plan(address: str, turn: Turn, publishers: int, *, qos: int, durable: bool = False) -> Plan:
    """Publishers at 10 msg/s each (Poisson, 100 bytes), one subscriber, both with that quality of service."""
    return msgspec.structs.replace(steady.plan(address, turn, publishers), protocol="mqtt", qos=qos, durable=durable)

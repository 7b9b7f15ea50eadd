"""Waits for a topic's fitting and shows it to people."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import trio
from rich.console import Console

from srtm.client.distributor import DistributorClient, Json
from srtm.console.output import table
from srtm.control import FITTING_ENDED
from srtm.text import plural

_POLL_S = 0.5
_NO_TRAFFIC_S = 30.0  # without a message for so long, nobody waits on


class Fitting(StrEnum):
    """The methods of fitting topics to brokers."""

    SEQUENTIAL = "sequential"
    PAPER = "paper"
    OFF = "off"


class ScalerKind(StrEnum):
    """How more brokers are requested."""

    PROCESS = "process"
    COMMAND = "command"
    NONE = "none"


async def wait_fitted(client: DistributorClient, name: str, tell: Callable[[str], object]) -> Json:
    """Wait until the fitting of topic ``name`` ends, or waits 30 s for a message, and return its state.

    ``tell`` receives a line for people whenever the state changes.
    """
    last_line, waits_since_s = "", trio.current_time()
    while True:
        found = await client.fitting(name)
        if found["state"] != "waiting":
            waits_since_s = trio.current_time()
        line = _progress(found)
        if line != last_line:
            last_line = line
            tell(line)
        if found["state"] in FITTING_ENDED or trio.current_time() - waits_since_s >= _NO_TRAFFIC_S:
            return found
        await trio.sleep(_POLL_S)


def show_fitting(found: Json, console: Console) -> None:
    """Print the state of a fitting."""
    if found["state"] == "off":
        return
    console.print(_progress(found), soft_wrap=True)
    for line in found["explanation"]:
        console.print(f"  {line}", soft_wrap=True)
    if found["measured"]:
        columns = ["broker", "messages", "total ms", "access ms", "processing ms", "took us a message", "laboratory us"]
        rows = [_row(broker, found["service_us"]) for broker in found["measured"]]
        console.print(table("", columns, rows, left=1))
    if found["others_worst_ms"]:
        console.print(f"  worst second of the topics that were there: {found['others_worst_ms']:.3g} ms")


def _row(broker: Json, service_us: Json) -> list[object]:
    """Return a table row. ``service_us``: {broker: recorded service time of a message, us}."""
    laboratory = broker["lab_service_time_ns"] / 1e3 or None
    delays = [broker[f"{part}_ms"] for part in ("total", "access", "processing")]
    return [broker["broker"], broker["messages"], *delays, service_us.get(broker["broker"]), laboratory]


def _progress(found: Json) -> str:
    rounds = len(found["rounds"])
    parts = [f"fitting ({found['method']}): {found['state']}", f"{rounds} {plural(rounds, 'round')}"]
    parts += [f"{found['took_s']:.3g} s"] if found["took_s"] is not None else []
    parts += [found["reason"]] if found["reason"] else []
    return ", ".join(parts)

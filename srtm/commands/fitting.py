"""Waits for the verdict on a topic's promise, and shows searches for layouts to people."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import trio
from rich.console import Console

from srtm.client.distributor import DistributorClient, Json
from srtm.console.output import table
from srtm.text import figure, plural

_POLL_S = 0.5
_TRAFFIC_S = 60.0  # the verdict is on so much of it
_LONGEST_WAIT_S = 90.0


class Fitting(StrEnum):
    """When a layout is searched for."""

    ON_BREACH = "on-breach"
    ALWAYS = "always"
    SEQUENTIAL = "sequential"  # the name of ``always`` until it was one of two
    PAPER = "paper"
    OFF = "off"


class ScalerKind(StrEnum):
    """How more brokers are requested."""

    PROCESS = "process"
    COMMAND = "command"
    NONE = "none"


async def wait_judged(client: DistributorClient, name: str, tell: Callable[[str], object]) -> Json:
    """Wait for the first verdict on 60 s of traffic of topic ``name``, 90 s at most, and return the topic.

    ``tell`` receives a line for people whenever the state changes.
    """
    began_s, traffic_s, last_line = trio.current_time(), trio.current_time(), ""
    while True:
        view, found = await client.topic(name), await client.fitting(name)
        now_s = trio.current_time()
        if not view["promise_last_60s"]["messages"]:
            traffic_s = now_s
        line = f"promise {view['promise']}: {view['promise_reason']}; {_progress(found)}"
        if line != last_line:
            last_line = line
            tell(line)
        is_judged = view["promise_last_60s"]["verdict"] != "unknown" and now_s - traffic_s >= _TRAFFIC_S
        if is_judged or now_s - began_s >= _LONGEST_WAIT_S:
            return {**view, "fitting": found}
        await trio.sleep(_POLL_S)


def show_fitting(found: Json, console: Console) -> None:
    """Print the state of a fitting."""
    if found["state"] in ("off", "watching"):
        return
    console.print(_progress(found), soft_wrap=True)
    for line in found["explanation"]:
        console.print(f"  {line}", soft_wrap=True)
    if found["measured"]:
        columns = ["broker", "messages", "total ms", "access ms", "processing ms", "took us a message", "laboratory us"]
        rows = [_row(broker, found["service_us"]) for broker in found["measured"]]
        console.print(table("", columns, rows, left=1))
    if found["others_worst_ms"]:
        console.print(f"  worst second of the topics that were there: {figure(found['others_worst_ms'])} ms")


def _row(broker: Json, service_us: Json) -> list[object]:
    """Return a table row. ``service_us``: {broker: recorded service time of a message, us}."""
    laboratory = broker["lab_service_time_ns"] / 1e3 or None
    delays = [broker[f"{part}_ms"] for part in ("total", "access", "processing")]
    return [broker["broker"], broker["messages"], *delays, service_us.get(broker["broker"]), laboratory]


def _progress(found: Json) -> str:
    rounds = len(found["rounds"])
    parts = [f"fitting ({found['method']}): {found['state']}", f"{rounds} {plural(rounds, 'round')}"]
    parts += [f"{figure(found['took_s'])} s"] if found["took_s"] is not None else []
    parts += [phase] if (phase := found.get("phase")) and found["state"] == "running" else []
    parts += [found["reason"]] if found["reason"] else []
    return ", ".join(parts)

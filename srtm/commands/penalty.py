"""``srtm topic penalty``: computes a topic's DRL penalty from the arrivals that its brokers recorded."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from srtm.client.distributor import DistributorClient, Json
from srtm.console.distributor_call import ask_distributor
from srtm.console.output import DistributorOption, JsonOption, TokenOption, number, show, table
from srtm.console.recordings import recorded
from srtm.units import to_micro

if TYPE_CHECKING:
    from srtm.analysis.drl_penalty import RecordedPenalty, Recording


def penalty(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Show a topic's DRL penalty.

    It is the access delay of the shares minus that of one bucket, for recorded arrivals. It covers the time since the
    last change of shares that all brokers have recorded (a million messages each).
    """
    found, notes = ask_distributor(distributor, token, partial(_penalty, name, token))
    result = {"topic": name, **asdict(found), "notes": notes}
    show("topic penalty", result, json_file, partial(_show, name, found, notes))


async def _penalty(name: str, token: str | None, client: DistributorClient) -> tuple[RecordedPenalty, list[str]]:
    from srtm.analysis.drl_penalty import recorded_penalty

    notes: list[str] = []
    view = await client.topic(name)
    recordings = await recorded(client, view, token, notes, _recording, lambda recording: len(recording.arrival_ns))
    whole = (to_micro(view["rate"], "rate"), to_micro(view["burst"], "burst"))
    return recorded_penalty(recordings, *whole), notes


def _recording(body: bytes, place: Json) -> Recording:
    from srtm.analysis.drl_penalty import recording_of

    share = (round(place["rate"] * 1e6), round(place["burst"] * 1e6))
    return recording_of(body, place["broker"], place["share_version"], share)


def _show(name: str, found: RecordedPenalty, notes: list[str], console: Console) -> None:
    def ms(value: float) -> str:
        return f"{number(value)} ms"

    for note in notes:
        console.print(f"warning: {note}", soft_wrap=True)
    if not found.messages:
        console.print(f"{name}: no message is on record since its shares changed last: no penalty is known")
        return
    console.print(
        f"{name}: {found.messages:,} messages in {found.seconds:,.3g} s; DRL penalty: sum {ms(found.sum_ms)}, "
        f"{ms(found.mean_ms)} a message; p99 {ms(found.p99_ms)} more than the {ms(found.one_p99_ms)} of one bucket",
        soft_wrap=True,
    )
    columns = ["broker", "messages", "p99 from full buckets ms", "p99 as recorded ms"]
    rows = [
        [broker.broker, broker.messages, broker.replayed_p99_ms, broker.recorded_p99_ms] for broker in found.brokers
    ]
    if rows:
        console.print(table("", columns, rows))

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
from srtm.errors import BadInput
from srtm.text import figure
from srtm.units import to_micro

if TYPE_CHECKING:
    from srtm.analysis.drl_penalty import RecordedPenalty, Recording

_LEAST_S = 10.0  # since the shares changed: of less, the last ``_WINDOW_S`` say more
_WINDOW_S = 60.0


def penalty(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Show a topic's DRL penalty.

    It is the access delay of the shares minus that of one bucket, for recorded arrivals. It covers the time since the
    last change of shares that all brokers have recorded (a million messages each). If that is less than 10 s, it covers
    the last 60 s, with the delays that the shares of that time gave.
    """
    found, notes = ask_distributor(distributor, token, partial(_penalty, name, token))
    result = {"topic": name, **asdict(found), "notes": notes}
    show("topic penalty", result, json_file, partial(_show, name, found, notes))


async def _penalty(name: str, token: str | None, client: DistributorClient) -> tuple[RecordedPenalty, list[str]]:
    from srtm.analysis.drl_penalty import recorded_penalty

    notes: list[str] = []
    view = await client.topic(name)
    recordings = await recorded(client, view, token, notes, _recordings, lambda each: len(each[1].arrival_ns))
    whole = (to_micro(view["rate"], "rate"), to_micro(view["burst"], "burst"))
    try:
        found = recorded_penalty([since_change for since_change, _ in recordings], *whole)
    except BadInput:  # the recordings since the change have no time in common
        found = None
    if found is not None and found.seconds >= _LEAST_S:
        return found, notes
    lately = recorded_penalty([window for _, window in recordings], *whole)
    if found is not None and lately.messages <= found.messages:
        return found, notes
    return lately, [*notes, f"shares changed less than {figure(_LEAST_S, 6)} s ago: these are the delays as recorded"]


def _recordings(body: bytes, place: Json) -> tuple[Recording, Recording]:
    """Return what came since the share changed, and what came lately."""
    from srtm.analysis.drl_penalty import recording_of, window_of

    share, broker = (round(place["rate"] * 1e6), round(place["burst"] * 1e6)), place["broker"]
    return recording_of(body, broker, place["share_version"], share), window_of(body, broker, _WINDOW_S)


def _show(name: str, found: RecordedPenalty, notes: list[str], console: Console) -> None:
    def ms(value: float) -> str:
        return f"{number(value)} ms"

    for note in notes:
        console.print(f"warning: {note}", soft_wrap=True)
    if not found.messages:
        console.print(f"{name}: no message is on record: no penalty is known")
        return
    console.print(
        f"{name}: {found.messages:,} messages in {figure(found.seconds)} s; DRL penalty: sum {ms(found.sum_ms)}, "
        f"{ms(found.mean_ms)} a message; p99 {ms(found.p99_ms)} more than the {ms(found.one_p99_ms)} of one bucket",
        soft_wrap=True,
    )
    columns = ["broker", "messages", "p99 from full buckets ms", "p99 as recorded ms"]
    rows = [
        [broker.broker, broker.messages, broker.replayed_p99_ms, broker.recorded_p99_ms] for broker in found.brokers
    ]
    if rows:
        console.print(table("", columns, rows))

"""``srtm drain``: takes a broker out of service without losing a message."""

from __future__ import annotations

import sys
from contextlib import aclosing
from functools import partial
from typing import Annotated

import msgspec
import typer

from srtm.client.broker import BrokerClient
from srtm.client.distributor import DistributorClient
from srtm.console.distributor_call import ask_distributor
from srtm.console.draining import watch
from srtm.console.output import DistributorOption, JsonOption, TokenOption, show
from srtm.console.running import run_trio
from srtm.control import DrainProgress
from srtm.errors import BadInput, Unavailable


def drain(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A broker of the cluster.")] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            metavar="HOST:PORT",
            help="A broker without a distributor: its HTTP address, or the URL of its HTTP or HTTPS port.",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Wait no longer; the broker drains on.")] = 600.0,
    force: Annotated[bool, typer.Option("--force", help="Drain even if the others cannot carry its load.")] = False,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Take a broker out of service. Its publishers move, its messages are delivered, and it stops."""
    if not timeout > 0:
        raise BadInput("timeout", timeout, "must be above 0 s")
    if name is not None and broker is None:
        ask_distributor(distributor, token, partial(_drain_member, name, force, timeout))
    elif broker is not None and name is None:
        name = run_trio(partial(_drain_alone, broker, token, timeout))
    else:
        raise BadInput("NAME", name, "must be given, or else --broker HOST:PORT: one of the two")
    result = {"broker": name, "state": "drained"}
    show("drain", result, json_file, lambda console: console.print(f"{name} is drained and stops"))


async def _drain_alone(address: str, token: str | None, timeout_s: float) -> str:
    """Drain a broker without a distributor and return its name."""
    async with aclosing(BrokerClient(address, token)) as client:
        begun = await client.begin_drain()
        await watch(client.drain_progress, timeout_s, _tell)
    return begun.broker


async def _drain_member(name: str, force: bool, timeout_s: float, client: DistributorClient) -> None:
    if (await client.drain_broker(name, force=force))["state"] == "drained":  # long since
        return
    last = DrainProgress(broker=name, state="draining")

    async def look() -> DrainProgress:
        nonlocal last
        try:
            view = await client.broker(name)
        except Unavailable:  # no distributor answers; the broker waits for one, too
            return last
        last = msgspec.convert(view["drain"], DrainProgress | None) or last
        if view["dead"] and last.state != "drained":
            raise Unavailable(f"broker {name} is proven dead")
        return last

    await watch(look, timeout_s, _tell)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

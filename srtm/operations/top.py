"""``srtm top``: the overview in a terminal, drawn anew each second until ``q`` or Ctrl-C."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated

import trio
import typer
from rich.console import Console
from rich.live import Live

from srtm.client.distributor import DistributorClient, Json
from srtm.concurrency.background import background_nursery
from srtm.console.distributor_call import ask_distributor
from srtm.console.output import DistributorOption, JsonOption, TokenOption, people_console, show
from srtm.console.overview import screen
from srtm.errors import BadInput, Unavailable

_EACH_S = 1.0
_WITHIN_S = 5.0  # of each question
_MOST = 500  # rows of each list, as many as the distributor answers at once
_QUIT = b"qQ"


def top(
    once: Annotated[
        bool, typer.Option("--once", help="Print it once. So it is where the output is no terminal.")
    ] = False,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Show topics and brokers, those in trouble first, anew each second. q ends it."""
    if json_file is not None and not once:
        raise BadInput("json", json_file, "needs --once: without it the overview is drawn until q")
    console = people_console()
    if once or not console.is_interactive:
        found = ask_distributor(distributor, token, partial(_overview, _MOST), timeout_s=_WITHIN_S)
        show(
            "top",
            found,
            json_file,
            lambda console: console.print(screen(**found, foot="", width=console.width, height=None)),
        )
    else:
        ask_distributor(distributor, token, partial(_watch, console), timeout_s=_WITHIN_S)


async def _overview(height: int, client: DistributorClient) -> dict[str, Json]:
    rows = min(max(height, 1), _MOST)
    return {"topics": await client.overview("topics", rows), "brokers": await client.overview("brokers", rows)}


async def _watch(console: Console, client: DistributorClient) -> None:
    """Draw until ``q``. What was known stays on the screen while no distributor answers."""
    found = await _overview(console.height, client)  # who is not allowed, or nobody at all, is told without a screen
    foot = _foot(client, None)
    with _single_keys(), Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        async with background_nursery() as nursery:
            nursery.start_soon(_quit_at_key, nursery.cancel_scope)
            while True:
                size = console.size
                live.update(screen(**found, foot=foot, width=size.width, height=size.height), refresh=True)
                await trio.sleep(_EACH_S)
                try:
                    found, foot = await _overview(console.height, client), _foot(client, None)
                except Unavailable as trouble:
                    foot = _foot(client, trouble)


def _foot(client: DistributorClient, trouble: Unavailable | None) -> str:
    return f"{client.urls[0]}, q: quit" if trouble is None else f"as it was: {trouble}"


async def _quit_at_key(scope: trio.CancelScope) -> None:
    """Cancel when the person presses ``q``, or closes the terminal's input."""
    if not sys.stdin.isatty():
        return
    while True:
        await trio.lowlevel.wait_readable(sys.stdin)
        keys = os.read(sys.stdin.fileno(), 64)
        if not keys or any(key in _QUIT for key in keys):
            scope.cancel()
            return


@contextmanager
def _single_keys() -> Iterator[None]:
    """In the block a key is read without Enter and is not shown."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)

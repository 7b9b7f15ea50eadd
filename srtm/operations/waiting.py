"""``srtm wait``: returns once a cluster is ready, or says what is missing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import trio
import typer

from srtm.client.distributor import DistributorClient, Json
from srtm.cluster.cluster_file import FILE_NAME, read_cluster
from srtm.concurrency.backoff import Backoff
from srtm.console.output import DistributorOption, JsonOption, TokenOption, show
from srtm.console.running import run_trio
from srtm.errors import BadInput, SrtmError, Unavailable
from srtm.net.tokens import OPERATOR, read_token
from srtm.text import figure

_FIRST_CHECK_S, _LAST_CHECK_S = 0.05, 0.5  # between two questions: whoever starts a cluster cannot notify us
_CALL_S = 2.0  # the longest wait for one answer


def wait(
    brokers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Live brokers to wait for. Default: those of --data, else one."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Wait for the cluster that `srtm up --data DIR` runs.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="S", help="Seconds to wait.")] = 60.0,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Wait until a cluster is ready: a distributor leads, and no broker is missing.

    Status 1 if it is not within the timeout; what is missing is said.
    """
    if brokers is not None and brokers < 0:
        raise BadInput("brokers", brokers, "must be 0 or more")
    if not 0 <= timeout <= 86_400:
        raise BadInput("timeout", timeout, "must be 0 to 86,400 s")
    look = partial(look_at, brokers=brokers, data=data, urls=distributor, token=token)
    live = run_trio(partial(until_ready, look, timeout))
    result = {"ready": True, "live": live}
    show("wait", result, json_file, lambda console: console.print(f"ready: {', '.join(live)}", soft_wrap=True))


Look = Callable[[], Awaitable[tuple[list[str], str]]]  # names of the live brokers; what is missing, or ""


async def until_ready(look: Look, timeout_s: float) -> list[str]:
    """Ask ``look`` until nothing is missing, and return the live brokers. Raises Unavailable after ``timeout_s``."""
    checks, missing = Backoff(_FIRST_CHECK_S, _LAST_CHECK_S), "no answer yet"
    with trio.move_on_after(timeout_s):
        while True:
            live, missing = await look()
            if not missing:
                return live
            await trio.sleep(checks.next_s())
    raise Unavailable(f"not ready within {figure(timeout_s, 6)} s: {missing}")


async def look_at(
    *, brokers: int | None, data: Path | None, urls: Sequence[str] | None, token: str | None
) -> tuple[list[str], str]:
    """Return the live brokers of a cluster, and what is missing. Raises BadInput (a token that does not allow it)."""
    wanted: list[str] = []
    if data is not None:
        running = read_cluster(data)
        if running is None or running.pid is None:
            why = "is not there" if running is None else "says that it is stopped"
            return [], f"`srtm up` does not run: {data / FILE_NAME} {why}"
        wanted = [place.name for place in running.brokers]
        urls = urls or [running.distributor]
        token = token or _token_of(data)
    try:
        async with DistributorClient(urls, token=token, timeout_s=_CALL_S) as client:
            views = await client.brokers()
    except BadInput:
        raise
    except SrtmError as error:
        return [], str(error)
    return live_brokers(views), missing_brokers(views, wanted, brokers)


def live_brokers(views: Sequence[Json]) -> list[str]:
    """Return the names of the brokers that are heard from and take publishers."""
    return [view["name"] for view in views if view["alive"] and not view["draining"]]


def missing_brokers(views: Sequence[Json], wanted: Collection[str], count: int | None) -> str:
    """Return which brokers are missing, for people; "" if none is.

    ``count`` must live; None: all of ``wanted``. None are wanted by name: all that the distributor knows and that are
    neither dead nor drained, at least one.
    """
    live = live_brokers(views)
    if count is not None:
        return "" if len(live) >= count else f"{len(live)} of {count} brokers are live{_which(views)}"
    known = [view["name"] for view in views if not (view["dead"] or view["draining"])]
    expected = set(wanted or known)
    absent = sorted(expected - set(live))
    if absent:
        return f"{len(live)} of {len(expected)} brokers are live; missing: {', '.join(absent)}"
    return "" if live else f"no broker is live{_which(views)}"


def _which(views: Sequence[Json]) -> str:
    states = [f"{view['name']} is {view['state']}" for view in views if not view["alive"] or view["draining"]]
    return f"; {', '.join(states)}" if states else ""


def _token_of(data: Path) -> str | None:
    """Return the operator's token that ``srtm up --tokens`` made; None: it made none."""
    path = data / f"{OPERATOR}.token"
    return read_token("data", str(path)) if path.exists() else None

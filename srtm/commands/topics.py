"""``srtm topic ...`` and ``srtm status``: an operator's calls to the distributor."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated

import trio
import typer
from rich.console import Console

from srtm.client.distributor import DistributorClient, Json
from srtm.commands.fitting import Fitting, show_fitting, wait_judged
from srtm.console.distributor_call import ask_distributor
from srtm.console.output import DistributorOption, JsonOption, TokenOption, people_console, show
from srtm.console.plans import is_promised, show_plan
from srtm.console.topic_tables import show_status, show_topic, show_topics, show_why
from srtm.control import FITTING_ENDED
from srtm.errors import BadInput
from srtm.operations.topic_documents import with_changes
from srtm.topics.adaptation import MODES
from srtm.topics.file import read_topic_file, topic_name

_WATCH_S = 2.0
_CONFIDENCE = 95.0  # minutes of 100
_PREDICTED_WITHIN_S = 120.0
app = typer.Typer(no_args_is_help=True, help="Topics: plan, submit, show, change, remove.", rich_markup_mode=None)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE.toml")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME")]
ConfidenceOption = Annotated[
    float,
    typer.Option(min=50.0, max=99.0, metavar="PERCENT", help="Minutes of 100 that are to keep the promise, surely."),
]


@app.command()
def submit(
    file: FileArgument,
    fitting: Annotated[
        Fitting | None, typer.Option(help="When a layout is searched for. Default: the distributor's.")
    ] = None,
    rounds_s: Annotated[float | None, typer.Option(help="Length of a round of --fitting paper, s.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the verdict on 60 s of traffic, 90 s at most; status 1: not kept.")
    ] = False,
    confidence: ConfidenceOption = _CONFIDENCE,
    require_promise: Annotated[
        bool, typer.Option("--require-promise", help="Store nothing unless the promise is predicted; status 1 then.")
    ] = False,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> int:
    """Create a topic, or change it to match the file.

    Submitting the same file again changes nothing, but with --fitting the topic is fitted again.
    """
    document = read_topic_file(file)
    name = topic_name(document)

    def ask_slowly(question: Callable[[DistributorClient], Awaitable[Json]]) -> Json:
        return _ask_slowly(distributor, token, question)

    if require_promise:
        planned = ask_slowly(lambda client: client.plan(document, confidence=confidence))
        if not is_promised(planned):
            show("topic submit", planned, json_file, partial(_show_refused, planned))
            return 1

    async def ask(client: DistributorClient) -> Json:
        method = None if fitting is None else fitting.value
        view = await client.create_or_change_topic(
            name, document, fitting=method, rounds_s=rounds_s, confidence=confidence
        )
        if not wait:
            return view
        return {**view, **await wait_judged(client, name, lambda line: print(line, file=sys.stderr, flush=True))}

    view = ask_slowly(ask)
    show("topic submit", view, json_file, partial(_show_submitted, view, file))
    return _status_of(view, waited=wait)


@app.command()
def plan(
    file: FileArgument,
    confidence: ConfidenceOption = _CONFIDENCE,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> int:
    """Show what submitting the file would do now. Changes nothing.

    Status 1: somebody has no place, or the promise is not predicted with the confidence.
    """
    document = read_topic_file(file)
    planned = _ask_slowly(distributor, token, lambda client: client.plan(document, confidence=confidence))
    show("topic plan", planned, json_file, partial(show_plan, planned))
    return 0 if is_promised(planned) else 1


def _ask_slowly(
    urls: list[str] | None, token: str | None, question: Callable[[DistributorClient], Awaitable[Json]]
) -> Json:
    """Ask what takes seconds, and show on a terminal that it is under way."""
    people = Console(stderr=True)
    with people.status("placing the topic and drawing minutes of its traffic") if people.is_terminal else nullcontext():
        return ask_distributor(urls, token, question, timeout_s=_PREDICTED_WITHIN_S)


@app.command("list")
def list_topics(distributor: DistributorOption = None, token: TokenOption = None, json_file: JsonOption = None) -> None:
    """List all topics."""
    views = ask_distributor(distributor, token, lambda client: client.topics())
    show("topic list", views, json_file, partial(show_topics, views))


@app.command("show")
def show_one(
    name: NameArgument,
    check: Annotated[bool, typer.Option("--check", help="End with status 1 if the promise is broken.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every 2 s, until Ctrl-C.")] = False,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> int:
    """Show a topic: whether its promise is kept, its shares, its delays over the last minute, and what waits."""

    async def ask(client: DistributorClient) -> Json:
        return {**await client.topic(name), "fitting": await client.fitting(name)}

    if watch:
        if check or json_file is not None:
            raise BadInput("watch", None, "shows the topic until Ctrl-C: it goes with neither --check nor --json")
        ask_distributor(distributor, token, partial(_watch, ask))
    view = ask_distributor(distributor, token, ask)
    show("topic show", view, json_file, partial(_show_topic, view))
    return 1 if check and view["promise"] == "broken" else 0


async def _watch(ask: Callable[[DistributorClient], Awaitable[Json]], client: DistributorClient) -> None:
    """Show a topic until cancelled."""
    while True:
        view, console = await ask(client), people_console()
        console.clear()  # where it is a terminal
        _show_topic(view, console)
        sys.stdout.flush()
        await trio.sleep(_WATCH_S)


@app.command("why")
def why(
    name: NameArgument,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Say why a topic is late: the cause, its figures, and what to do."""
    found = ask_distributor(distributor, token, lambda client: client.why(name))
    show("topic why", found, json_file, partial(show_why, found))


@app.command("set")
def set_options(
    name: NameArgument,
    rate: Annotated[float | None, typer.Option(metavar="RATE", help="r, msg/s. Publishers are placed anew.")] = None,
    burst: Annotated[str | None, typer.Option(metavar="BURST", help="b, messages, or auto.")] = None,
    slo: Annotated[str | None, typer.Option(metavar="pP:Lms", help="The promise, such as p99:5ms.")] = None,
    on_excess: Annotated[str | None, typer.Option(metavar="WHAT", help="delay or reject.")] = None,
    lease: Annotated[str | None, typer.Option(metavar="TIME", help="keep, or how long a share lasts: 15s.")] = None,
    mode: Annotated[str | None, typer.Option(metavar="MODE", help=f"{', '.join(MODES)}.")] = None,
    split: Annotated[
        str | None, typer.Option(metavar="SPLIT", help="fitted or proportional: split by the declared rates.")
    ] = None,
    window_s: Annotated[float | None, typer.Option(help="History that counts, s (proportional, central).")] = None,
    interval_s: Annotated[float | None, typer.Option(help="Time between updates, s (proportional, central).")] = None,
    floor: Annotated[float | None, typer.Option(help="Smallest share, as a fraction of the topic's bucket.")] = None,
    dead_band: Annotated[float | None, typer.Option(help="Smallest change, as a fraction of the share.")] = None,
    partners: Annotated[str | None, typer.Option(help="random or ring (gdrl).")] = None,
    indicator: Annotated[str | None, typer.Option(help="slack or fill: what brokers equalize (gdrl).")] = None,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Change a running topic. Publishers stay where they are, unless its rate, burst, promise or lease changes."""
    adaptation = _given(
        window_s=window_s,
        interval_s=interval_s,
        floor=floor,
        dead_band=dead_band,
        partners=partners,
        indicator=indicator,
    )
    options = _given(mode=mode, split=split, adaptation=adaptation or None)
    envelope = _given(rate=rate, burst=_burst(burst), slo=_slo(slo), on_excess=on_excess, lease=lease)
    if not options and not envelope:
        raise BadInput("topic set", None, "needs what to change, such as --mode; --help lists all options")

    async def ask(client: DistributorClient) -> Json:
        if not envelope:
            return await client.set_options(name, options)
        document = with_changes(await client.document(name), {**options, **envelope})
        return await client.create_or_change_topic(name, document)

    view = ask_distributor(distributor, token, ask)
    show("topic set", view, json_file, partial(_show_topic, view))


def _burst(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text  # a rule, such as auto; the distributor knows which there are


def _slo(text: str | None) -> Json | None:
    if text is None:
        return None
    from srtm.topics.capacity import parse_slo

    promise = parse_slo(text)
    return {"percentile": promise.percentile, "latency_ms": promise.latency_ms}


def _given(**values: object) -> Json:
    return {key: value for key, value in values.items() if value is not None}


@app.command()
def remove(
    name: NameArgument,
    purge: Annotated[bool, typer.Option("--purge", help="Also delete its queued messages.")] = False,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> None:
    """Remove a topic's placement and rate limit. Its queued messages stay, unless --purge is given."""
    ask_distributor(distributor, token, lambda client: client.remove_topic(name, purge=purge))
    result = {"removed": name, "purged": purge}
    show("topic remove", result, json_file, lambda console: console.print(f"removed {name}"))


def status(distributor: DistributorOption = None, token: TokenOption = None, json_file: JsonOption = None) -> None:
    """Show all brokers and topics."""

    async def ask(client: DistributorClient) -> dict[str, list[Json]]:
        return {"brokers": await client.brokers(), "topics": await client.topics()}

    result = ask_distributor(distributor, token, ask)
    show("status", result, json_file, partial(show_status, result))


def _status_of(view: Json, *, waited: bool) -> int:
    """Return the exit status of a submission: 1 if the topic is not placed, or the verdict is not that it is kept."""
    kept = not waited or view["promise_last_60s"]["verdict"] == "kept"
    return 0 if view["state"] == "placed" and kept else 1


def _show_refused(planned: Json, console: Console) -> None:
    show_plan(planned, console)
    console.print("nothing was stored: the promise is not predicted (--require-promise)", soft_wrap=True)


def _show_topic(view: Json, console: Console) -> None:
    show_topic(view, console)
    if "fitting" in view:
        show_fitting(view["fitting"], console)


def _show_submitted(view: Json, file: Path, console: Console) -> None:
    _show_topic(view, console)
    show_plan(view["explanation"], console)
    if not is_promised(view["explanation"]):
        console.print("warning: stored, but the promise is not predicted with that confidence", soft_wrap=True)
    if "fitting" in view and view["fitting"]["state"] not in (*FITTING_ENDED, "watching"):
        console.print(
            "This is the placement by rates; whether it keeps the promise is not measured yet, a search is to come. "
            f"`srtm topic show {view['name']}` says how far it is, `srtm topic submit {file} --wait` waits for it.",
            soft_wrap=True,
        )

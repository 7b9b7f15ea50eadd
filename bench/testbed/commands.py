"""``srtm bench testbed ...``: options, tables and exit status."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import trio
import typer
from rich.console import Console

from bench.console.options import RunsJsonOption
from bench.harness.load.run_files import keep_beside
from bench.harness.machine import namespaces as own_network
from bench.harness.results.page import Table
from bench.harness.results.results import Results, write_results
from bench.testbed.net.capabilities import Means, means
from bench.testbed.net.cleanup import remove_dead
from bench.testbed.net.layout import SETTINGS, Layout, Link, hosts
from bench.testbed.net.names import NAMESPACES
from bench.testbed.outcome import curves, judged, outcome, shown
from bench.testbed.owner import LiveTestbed, live_testbed
from bench.testbed.session import Session, Traffic, run_session
from srtm.console.running import run_service, run_trio

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="The paper's seven hosts as network namespaces of this machine (needs root).",
)

BrokersOption = Annotated[int, typer.Option(help="Hosts with a broker.")]
PublishersOption = Annotated[int, typer.Option(help="Hosts with publishers.")]
SubscribersOption = Annotated[int, typer.Option(help="Hosts with subscribers.")]
DelayOption = Annotated[float, typer.Option(help="Of every host's link, one way.")]
JitterOption = Annotated[float, typer.Option(help="Up to so much more, evenly drawn for each packet.")]
LossOption = Annotated[float, typer.Option(help="Part of the packets, 0 to 1.")]
HostOption = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="HOST:NAME=VALUE", help=f"Of one host or role: {', '.join(SETTINGS)}; repeatable."),
]
SeedOption = Annotated[int, typer.Option(help="Of the traffic, and of what the links do.")]


@app.command("probe")
def probe() -> int:
    """What this machine can do for a testbed. Status 0 if there can be one."""
    found = means()
    _print(Table(header=["what", "how"], rows=_means_rows(found)).markdown)
    return 1 if found.lacking else 0


@app.command("clean")
def clean() -> int:
    """Remove what testbeds left whose owner is dead: namespaces, and what still runs in them."""
    removed = remove_dead()
    for name in removed:
        _print(f"removed {name}")
    _print(f"{len(removed)} removed")
    return 0


@app.command("up")
def up(
    brokers: BrokersOption = 2,
    publishers: PublishersOption = 2,
    subscribers: SubscribersOption = 2,
    delay_ms: DelayOption = 0.0,
    jitter_ms: JitterOption = 0.0,
    loss: LossOption = 0.0,
    host: HostOption = None,
    seed: SeedOption = 1,
) -> int:
    """The hosts and their network alone, until Ctrl-C; prints how to reach each."""
    link = Link(delay_ms=delay_ms, jitter_ms=jitter_ms, loss=loss)
    layout = hosts(brokers=brokers, publishers=publishers, subscribers=subscribers, link=link, each=host or ())
    with live_testbed(layout, means(), seed, _print) as there:
        _print(Table(header=["host", "address", "reach it with"], rows=_reach_rows(there)).markdown)
        _print(there.uses)
        return run_service(trio.sleep_forever)


@app.command("run")
def run(
    brokers: BrokersOption = 2,
    publishers: PublishersOption = 2,
    subscribers: SubscribersOption = 2,
    delay_ms: DelayOption = 0.0,
    jitter_ms: JitterOption = 0.0,
    loss: LossOption = 0.0,
    host: HostOption = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="Measured part.")] = Traffic.seconds,
    count: Annotated[int, typer.Option(min=1, help="Publishers, on all their hosts together.")] = Traffic.publishers,
    rate: Annotated[float, typer.Option(min=0.01, help="Msg/s of each.")] = Traffic.rate,
    batch: Annotated[int, typer.Option(min=1, help="Messages sent at once.")] = Traffic.batch,
    group_size: Annotated[int, typer.Option(min=1, help="Publishers that fire together.")] = Traffic.group_size,
    process: Annotated[Literal["poisson", "periodic"], typer.Option(help="Of each group.")] = "poisson",
    promise_ms: Annotated[float, typer.Option(min=0.01, help="p99, one way.")] = Traffic.promise_ms,
    seed: SeedOption = 1,
    json_file: RunsJsonOption = None,
) -> int:
    """Services on their hosts, a topic with the paper's envelope, its traffic; one-way latency by parts, a verdict.

    Less than a minute besides what is measured. Status 0 if the run counts and the promise is kept on every broker.
    """
    link = Link(delay_ms=delay_ms, jitter_ms=jitter_ms, loss=loss)
    layout = hosts(brokers=brokers, publishers=publishers, subscribers=subscribers, link=link, each=host or ())
    traffic = Traffic(
        publishers=count,
        rate=rate,
        batch=batch,
        group_size=group_size,
        process=process,
        promise_ms=promise_ms,
        seconds=seconds,
        seed=seed,
    )
    started = time.time()
    tell = partial(_print, stderr=json_file == "-")
    session, uses = run_on(layout, traffic, seed, tell)
    found = outcome(session, traffic)
    verdict = judged(found, traffic, uses)
    tell(shown(found, verdict, uses))
    settings = {**verdict.settings, "hosts": [asdict(one) for one in layout.hosts]}
    results = Results.of_verdicts("bench testbed run", [verdict], seed=seed, started=started, settings=settings)
    write_results(json_file, results)
    keep_beside(json_file, "testbed", results, curves(session, traffic))
    return 0 if verdict.reached else 1


def run_on(layout: Layout, traffic: Traffic, seed: int, tell: Callable[[str], object]) -> tuple[Session, str]:
    """A testbed for this run alone, and how it does what ``layout`` asks for. Raises Unavailable, PeerError,
    BadInput."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="srtm-testbed-")))
        there = stack.enter_context(live_testbed(layout, means(), seed, tell))
        stack.enter_context(own_network.visiting(there.namespace(layout.control)))
        return run_trio(partial(run_session, there, traffic, folder, tell)), there.uses


def _means_rows(found: Means) -> list[list[str]]:
    return [
        ["namespaces, veth, bridge", "missing: " + ", ".join(found.lacking) if found.lacking else "yes"],
        ["delay, jitter, loss", found.lateness or "nothing: no netem (module sch_netem), no /dev/net/tun"],
    ]


def _reach_rows(there: LiveTestbed) -> list[list[str]]:
    return [
        [host.name, host.address, f"nsenter --net={NAMESPACES / there.owner.name(host.name)} COMMAND"]
        for host in there.layout.hosts
    ]


def _print(line: object, *, stderr: bool = False) -> None:
    Console(highlight=False, stderr=stderr).print(line, soft_wrap=True, markup=False)

"""``srtm bench ...``: options and exit status; the measuring is elsewhere."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.commands import adaptation as adaptation_commands
from bench.commands import figures as figure_commands
from bench.commands import peers as peer_commands
from bench.commands import results as results_commands
from bench.comparisons.hostile.attack_runs import HostileOptions, hostile
from bench.comparisons.hostile.attacks import ATTACKS
from bench.comparisons.rows.row_runs import RowOptions
from bench.comparisons.tables.compare import compare
from bench.comparisons.tables.document import RowTable
from bench.comparisons.tables.mqtt import MQTT
from bench.comparisons.tables.nsqd import NSQD
from bench.console.options import DocumentOption, RunsJsonOption, SeedOption, console, saying
from bench.experiments.table1.fitted_rows import Table1Options, table1
from bench.experiments.table1.rows import PAPER_S
from bench.experiments.table1.virtual import table1_virtual
from bench.harness.machine.checkout import Build, other_build
from bench.harness.results.publish import RESULTS
from bench.harness.results.sources import source_commit
from bench.scenarios.declared import Judged, TopicRunOptions, judge, run_topic, show_judged
from bench.scenarios.file import read_scenario
from bench.scenarios.run import prepare, run_scenario, show, write
from bench.testbed.commands import app as testbed
from srtm.client.distributor import DistributorClient
from srtm.console.distributor_call import ask_distributor
from srtm.console.options import add_trust
from srtm.console.output import DistributorOption, JsonOption, TokenOption, people_width
from srtm.console.output import show as show_result
from srtm.console.running import run_trio
from srtm.errors import BadInput

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="Measure: what must be reached, and beside nsqd.",
)

app.add_typer(adaptation_commands.app)
app.add_typer(figure_commands.app)
app.add_typer(testbed, name="testbed")
app.add_typer(peer_commands.app)
app.add_typer(results_commands.app)


@app.callback()
def begin() -> None:
    source_commit()


AgainstOption = Annotated[
    Path | None,
    typer.Option(
        metavar="CHECKOUT",
        help="Another checkout of this project, built with `make build`: this build beside that one, in alternation.",
    ),
]


PairsOption = Annotated[int, typer.Option(min=1, help="Rounds: one run of each system in turn.")]
RowSecondsOption = Annotated[float, typer.Option(min=2.0, help="Measured part of a run; some rows take half of it.")]


def _compared(table: RowTable, options: RowOptions) -> int:
    """The exit status."""
    verdicts = run_trio(partial(compare, table, options, console(options.json_file)))
    return 0 if all(verdict.reached for verdict in verdicts) else 1


def _build(against: Path | None) -> Build | None:
    return None if against is None else other_build(against)


@app.command("run")
def bench_run(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The scenario: docs/benchmarking.md.")],
    seed: Annotated[int | None, typer.Option(help="Instead of the file's.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Measured part, instead of the file's duration_s.")] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where FILE.json, .hlog and .hgrm go.")] = Path(),
) -> int:
    """A scenario of your own: open loop against any NSQ broker, latency from the intended instants.

    Says first how long it will take. Status 0 if the run is valid and keeps its promise (if it has one), 1 if the
    promise is broken, 3 if the run is not valid.
    """
    scenario = read_scenario(file, seed=seed, seconds=seconds)
    wide = Console(highlight=False, width=people_width())
    prepare(out)
    outcome = run_trio(partial(run_scenario, scenario, wide))
    show(outcome, write(outcome, out), wide)
    return outcome.exit_status


@app.command("topic")
def bench_topic(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    seconds: Annotated[float, typer.Option(min=1.0, max=3600.0, help="Measured part, s.")] = TopicRunOptions.seconds,
    warmup_s: Annotated[float, typer.Option(min=0.0, max=600.0, help="Sent before it, s.")] = TopicRunOptions.warmup_s,
    body_bytes: Annotated[
        int, typer.Option("--size", min=32, max=1_000_000, help="Of a message, bytes.")
    ] = TopicRunOptions.body_bytes,
    seed: SeedOption = TopicRunOptions.seed,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also if the topic has channels: their consumers get these messages.")
    ] = False,
    distributor: DistributorOption = None,
    token: TokenOption = None,
    json_file: JsonOption = None,
) -> int:
    """Send what a topic declares to its own cluster, and judge its promise. Publishers follow placement and moves.

    Open loop: latency counts from the intended instants. Takes some 40 seconds. Status 0: the promise is kept, 1: it is
    broken, 3: not valid.
    """
    options = TopicRunOptions(seconds=seconds, warmup_s=warmup_s, seed=seed, body_bytes=body_bytes, anyway=anyway)
    say = saying(json_file)

    async def run(client: DistributorClient) -> Judged:
        return judge(name, *await run_topic(client, name, options, say), options)

    judged = ask_distributor(distributor, token, run)
    show_result("bench topic", judged.result, json_file, partial(show_judged, judged))
    return judged.exit_status


@app.command("nsqd")
def bench_nsqd(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help=f"Of: {', '.join(NSQD.rows)}. Default: all.")
    ] = None,
    pairs: PairsOption = RowOptions.pairs,
    seconds: RowSecondsOption = RowOptions.seconds,
    seed: SeedOption = RowOptions.seed,
    against: AgainstOption = None,
    document: DocumentOption = False,
    json_file: RunsJsonOption = None,
) -> int:
    """In nsqd's place beside the real nsqd 1.3.0 (`make peers`) and a bare epoll loop (`make floor`).

    The same load in turns: all rows of the table, in about an hour, or those named. Status 0 if everything asked of
    them is reached. With --against: if every median ratio new / old is at most 1.05, or its interval includes 1.
    """
    where = RESULTS if document else None
    return _compared(NSQD, RowOptions(names or (), pairs, seconds, seed, json_file, where, _build(against)))


@app.command("mqtt")
def bench_mqtt(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help=f"Of: {', '.join(MQTT.rows)}. Default: all.")
    ] = None,
    pairs: PairsOption = RowOptions.pairs,
    seconds: RowSecondsOption = RowOptions.seconds,
    seed: SeedOption = RowOptions.seed,
    against: AgainstOption = None,
    document: DocumentOption = False,
    json_file: RunsJsonOption = None,
) -> int:
    """By the MQTT port beside Debian's Mosquitto (and `make floor`): load, cost, memory, fan-out, a million
    subscriptions, 100,000 retained messages, and two brokers with a link between them.

    The same load in turns: all rows of the table, in about an hour, or those named. Status 0 if everything asked of
    them is reached. With --against: if every median ratio new / old is at most 1.05, or its interval includes 1.
    """
    where = RESULTS if document else None
    return _compared(MQTT, RowOptions(names or (), pairs, seconds, seed, json_file, where, _build(against)))


@app.command("table1")
def bench_table1(
    rows: Annotated[
        str, typer.Option(metavar="N,N", help="Group sizes of the rows that are fitted our way.")
    ] = ",".join(map(str, PAPER_S)),
    paper_rows: Annotated[
        str, typer.Option(metavar="N,N", help="Those fitted as in the paper besides; not with --virtual.")
    ] = "",
    rounds_s: Annotated[float, typer.Option(min=1.0, help="Round of the paper's way.")] = Table1Options.rounds_s,
    after_s: Annotated[float, typer.Option(min=2.0, help="Measured afterwards.")] = Table1Options.after_s,
    brokers: Annotated[int, typer.Option(min=1, help="In the cluster.")] = Table1Options.brokers,
    lab_service_time: Annotated[float, typer.Option(metavar="US", help="Of a broker.")] = Table1Options.service_us,
    promise_ms: Annotated[float, typer.Option(min=0.1, help="p99 of the topic.")] = Table1Options.promise_ms,
    seed: SeedOption = Table1Options.seed,
    realtime: Annotated[
        bool, typer.Option("--realtime", help="Reactors and generator before all ordinary work; needs CAP_SYS_NICE.")
    ] = False,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Simulated brokers in virtual time, every row also as in the paper.")
    ] = False,
    directory: Annotated[
        Path | None, typer.Option(help="For each row; table1 if not given; not with --virtual.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the rows that are there, of the same commit, changes and settings.")
    ] = False,
    document: DocumentOption = False,
    json_file: RunsJsonOption = None,
) -> int:
    """Table 1 of the paper on real brokers: how long fitting takes, and whether the promise is kept afterwards.

    A minute and a half a row; a row of --paper-rows takes what the paper took. Status 0 if every row fits, in a
    twentieth of the paper's time, and keeps its promise. In virtual time, where it
    must also be on no more brokers than the paper's way, what is found does not decide the status.
    """
    if directory is not None and virtual:
        raise BadInput("directory", str(directory), "must not be given with --virtual, which keeps no rows")
    options = Table1Options(
        rows=_groups("rows", rows),
        paper_rows=_groups("paper-rows", paper_rows),
        rounds_s=rounds_s,
        after_s=after_s,
        brokers=brokers,
        service_us=lab_service_time,
        promise_ms=promise_ms,
        realtime=realtime,
        seed=seed,
        directory=directory or Table1Options.directory,
        resume=resume,
        json_file=json_file,
        document=RESULTS if document else None,
    )
    show = saying(json_file)
    if virtual:
        table1_virtual(options, show)
        return 0
    return 0 if run_trio(partial(table1, options, show)) else 1


def _groups(field: str, text: str) -> list[int]:
    sizes = {str(group): group for group in PAPER_S}
    for part in filter(None, text.split(",")):
        if part.strip() not in sizes:
            raise BadInput(field, text, f"must be of {', '.join(sizes)}, separated by commas")
    return list(dict.fromkeys(sizes[part.strip()] for part in text.split(",") if part))


@app.command("hostile")
def bench_hostile(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help=f"Of: {', '.join(ATTACKS)}. Default: all.")
    ] = None,
    pairs: Annotated[
        int, typer.Option(min=1, help="Rounds: quiet, under attack, and beside the control.")
    ] = HostileOptions.pairs,
    seconds: Annotated[float, typer.Option(min=2.0, help="Measured part of a run.")] = HostileOptions.seconds,
    seed: SeedOption = HostileOptions.seed,
    realtime: Annotated[
        bool, typer.Option("--realtime", help="Generator before all ordinary work; needs CAP_SYS_NICE.")
    ] = HostileOptions.realtime,
    against: AgainstOption = None,
    document: DocumentOption = False,
    json_file: RunsJsonOption = None,
) -> int:
    """A calm flow while somebody else attacks the broker: all attacks, in some 40 minutes, or those named.

    Status 0 if no attack doubles the p99 that it has beside a process that burns as much processor. With --against: if
    p99 under attack is at most three times that, or 1 ms, or no worse than the other build's.
    """
    where = RESULTS if document else None
    options = HostileOptions(names or (), pairs, seconds, seed, json_file, where, _build(against), realtime)
    verdicts = run_trio(partial(hostile, options, console(json_file)))
    return 0 if all(verdict.reached for verdict in verdicts) else 1


add_trust(app)

"""``srtm bench ...``: options and exit status; the measuring is elsewhere."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.checks.measures.arrival import ArrivalOptions, arrival
from bench.checks.measures.reach import MEASURES, ReachOptions, reach
from bench.commands import adaptation as adaptation_commands
from bench.commands import figures as figure_commands
from bench.commands import peers as peer_commands
from bench.comparisons.hostile.attacks import ATTACKS
from bench.comparisons.hostile.compare import HostileOptions, hostile
from bench.comparisons.nsqd.compare import ROWS, compare
from bench.comparisons.rows.row_runs import RowOptions
from bench.console.options import RunsJsonOption, SeedOption, console, saying
from bench.console.selection import chosen
from bench.demo.many_runs import DemoRunsOptions, demo_runs
from bench.experiments.gdrl.real import GdrlRealOptions, gdrl_real, reached_really
from bench.experiments.gdrl.simulated import GdrlOptions, gdrl, reached
from bench.experiments.placement.run import WORKLOADS
from bench.experiments.placement.run_all import PlacementOptions, placement
from bench.experiments.splits import SplitsOptions, no_worse, splits
from bench.experiments.table1.rows import PAPER_S
from bench.experiments.table1.run_all import Table1Options, table1
from bench.experiments.table1.virtual import table1_virtual
from bench.harness.machine import namespaces as own_network
from bench.harness.results.document import ADAPTATION, PERFORMANCE, PLACEMENT, README
from bench.harness.results.results import source_commit
from bench.scenarios.file import read_scenario
from bench.scenarios.run import prepare, run_scenario, show, write
from bench.testbed.commands import app as testbed
from srtm.console.output import JsonOption, people_width, refuse_unwritable
from srtm.console.running import run_trio
from srtm.errors import BadInput
from srtm.topics.adaptation import Indicator

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


@app.callback()
def begin() -> None:
    source_commit()


DocumentOption = Annotated[bool, typer.Option("--document", help="Write the figures into docs/performance.md.")]


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


@app.command("nsqd")
def bench_nsqd(
    names: Annotated[list[str] | None, typer.Argument(metavar=f"[{'|'.join(ROWS)}]...")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="Rounds: one run of each system in turn.")] = RowOptions.pairs,
    seconds: Annotated[
        float, typer.Option(min=2.0, help="Measured part of a run; some rows take half of it.")
    ] = RowOptions.seconds,
    seed: SeedOption = RowOptions.seed,
    document: DocumentOption = False,
    json_file: RunsJsonOption = None,
) -> int:
    """In nsqd's place beside the real nsqd 1.3.0 (`make peers`) and a bare epoll loop (`make floor`).

    The same load in turns: all rows of the table, in about an hour, or those named. Status 0 if everything asked of
    them is reached.
    """
    options = RowOptions(names or (), pairs, seconds, seed, json_file, PERFORMANCE if document else None)
    verdicts = run_trio(partial(compare, options, console(json_file)))
    return 0 if all(verdict.reached for verdict in verdicts) else 1


@app.command("reach")
def bench_reach(
    names: Annotated[list[str] | None, typer.Argument(metavar=f"[{'|'.join(MEASURES)}]...")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Short runs: a smoke test, no figures for documents.")] = False,
    seed: SeedOption = ReachOptions.seed,
    split_seconds: Annotated[
        float, typer.Option(min=1.0, help="Measured part of each run of the split.")
    ] = ReachOptions.split_seconds,
    document: DocumentOption = False,
    json_file: RunsJsonOption = None,
) -> int:
    """What this project must reach: all, in some forty minutes (nearly all of them for split), or those named.

    Status 0 if all of them are reached.
    """
    options = ReachOptions(
        names or (),
        quick,
        seed,
        split_seconds,
        json_file,
        PERFORMANCE if document else None,
    )
    verdicts = run_trio(partial(reach, options, console(json_file)))
    return 0 if all(verdict.reached for verdict in verdicts) else 1


@app.command("splits")
def bench_splits(
    seconds: Annotated[float, typer.Option(min=1.0, help="Of traffic in a recording.")] = SplitsOptions.seconds,
    runs: Annotated[int, typer.Option(min=1, help="Recordings of each kind.")] = SplitsOptions.runs,
    seed: SeedOption = SplitsOptions.seed,
    document: Annotated[bool, typer.Option("--document", help="Write the table into docs/placement.md.")] = False,
    json_file: JsonOption = None,
) -> int:
    """What splitting one bucket over two unequal brokers costs: proportional, fitted. A simulation of
    some minutes.

    Status 0 if the fitted split is nowhere worse than the proportional one.
    """
    options = SplitsOptions(seconds, runs, seed, json_file, PLACEMENT if document else None)
    found = splits(options, saying(json_file))
    return 0 if no_worse(found) else 1


@app.command("gdrl")
def bench_gdrl(
    runs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With random partners; on a ring three at most.",
            show_default=f"{GdrlOptions.runs}; with --real {GdrlRealOptions.runs}, the most there",
        ),
    ] = None,
    largest: Annotated[
        int | None, typer.Option(min=4, help="Number of brokers, up to 1,024; not with --real.", show_default="1024")
    ] = None,
    real: Annotated[bool, typer.Option("--real", help="Six broker processes, random partners, instead.")] = False,
    indicator: Annotated[
        Indicator | None,
        typer.Option(help="What those brokers go by; only with --real.", show_default=GdrlRealOptions.indicator),
    ] = None,
    seed: SeedOption = GdrlOptions.seed,
    document: Annotated[bool, typer.Option("--document", help="Write the table into docs/adaptation.md.")] = False,
    json_file: JsonOption = None,
) -> int:
    """How many rounds of GDRL brokers need to agree: random partners, ring, as printed. A simulation of
    some minutes, unless --real.

    Status 0 if random partners reach what they must and the printed formula diverges.
    """
    where, show = ADAPTATION if document else None, saying(json_file)
    if real:
        by = indicator or GdrlRealOptions.indicator
        options = GdrlRealOptions(_real_runs(runs, largest), seed, json_file, where, by)
        return 0 if reached_really(run_trio(partial(gdrl_real, options, show))) else 1
    if indicator is not None:
        raise BadInput("indicator", indicator, "must not be given without --real: the simulation has both")
    sizes = tuple(size for size in GdrlOptions.sizes if largest is None or size <= largest)
    return 0 if reached(gdrl(GdrlOptions(sizes, runs or GdrlOptions.runs, seed, json_file, where), show)) else 1


def _real_runs(runs: int | None, largest: int | None) -> int:
    if largest is not None:
        raise BadInput("largest", largest, "must not be given with --real, which has six brokers")
    if runs is not None and runs > GdrlRealOptions.runs:
        raise BadInput("runs", runs, f"must be at most {GdrlRealOptions.runs} with --real")
    return runs or GdrlRealOptions.runs


@app.command("placement")
def bench_placement(
    names: Annotated[list[str] | None, typer.Argument(metavar=f"[{'|'.join(WORKLOADS)}]...")] = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="Measured part of each run.")] = PlacementOptions.seconds,
    quick: Annotated[bool, typer.Option("--quick", help="2 s runs of 200 publishers: a smoke test.")] = False,
    publishers: Annotated[
        int | None, typer.Option(min=100, max=20_000, help="Of 10 msg/s each [default: the most that can be sent for].")
    ] = None,
    seed: SeedOption = PlacementOptions.seed,
    png: Annotated[Path | None, typer.Option(help="Where the pictures go (also ...-latencies.png).")] = None,
    document: Annotated[bool, typer.Option("--document", help="Write the table into docs/placement.md.")] = False,
    json_file: RunsJsonOption = None,
) -> int:
    """lb, conc, maxmin and srtm for the four workloads of the paper, on six real brokers: all, or those named.

    A quarter of an hour. Status 0 if all runs count, nothing was lost, and SRTM's DRL penalty is nowhere above lb's.
    """
    options = PlacementOptions(
        workloads=chosen("workload", names or (), WORKLOADS),
        seconds=2.0 if quick else seconds,
        seed=seed,
        publishers=200 if quick else publishers,
        json_file=json_file,
        png=png,
        document=PLACEMENT if document else None,
    )
    refuse_unwritable("png", None if png is None else str(png))
    missing = run_trio(partial(placement, options, saying(json_file)))
    for reason in missing:
        saying(json_file)(f"failed: {reason}")
    return 1 if missing else 0


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
        bool, typer.Option("--resume", help="Keep the rows that are there, of the same sources and settings.")
    ] = False,
    document: Annotated[bool, typer.Option("--document", help="Write the table into docs/evaluation.md.")] = False,
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
        document=document,
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


@app.command("demo-runs")
def bench_demo_runs(
    runs: Annotated[int, typer.Option(min=10, help="Each with traffic of its own.")] = DemoRunsOptions.runs,
    seconds: Annotated[float, typer.Option(min=1.0, help="Of traffic in a run.")] = DemoRunsOptions.seconds,
    document: Annotated[bool, typer.Option("--document", help="Write the table into README.md.")] = False,
    json_file: JsonOption = None,
) -> int:
    """Many runs of the demo, so that its one sample is seen among others. A simulation of a minute.

    Status 0 if srtm waits less than lb in nine of ten.
    """
    options = DemoRunsOptions(runs, seconds, json_file, README if document else None)
    found = demo_runs(options, saying(json_file))
    return 0 if found.less >= 0.9 * runs else 1


@app.command("arrival")
def bench_arrival(
    rounds: Annotated[int, typer.Option(min=1, help="Of twenty messages, with each clock and lateness.")] = 50,
    document: DocumentOption = False,
    json_file: JsonOption = None,
) -> int:
    """The arrival times that a broker notes, against the truth, in network namespaces of their own (needs root).

    Some twenty seconds. Status 0 if the packet clock is exact and the kernel's error within its bound.
    """
    own_network.check_privileges()
    own_network.enter()
    options = ArrivalOptions(rounds, json_file, PERFORMANCE if document else None)
    return 0 if run_trio(partial(arrival, options, console(json_file))).reached else 1


@app.command("hostile")
def bench_hostile(
    names: Annotated[list[str] | None, typer.Argument(metavar=f"[{'|'.join(ATTACKS)}]...")] = None,
    pairs: Annotated[
        int, typer.Option(min=1, help="Rounds: quiet, under attack, and beside the control.")
    ] = HostileOptions.pairs,
    seconds: Annotated[float, typer.Option(min=2.0, help="Measured part of a run.")] = HostileOptions.seconds,
    seed: SeedOption = HostileOptions.seed,
    realtime: Annotated[
        bool, typer.Option("--realtime", help="Generator before all ordinary work; needs CAP_SYS_NICE.")
    ] = HostileOptions.realtime,
    document: DocumentOption = False,
    json_file: RunsJsonOption = None,
) -> int:
    """A calm flow while somebody else attacks the broker: all attacks, in some 25 minutes, or those named.

    Status 0 if no attack doubles the p99 that it has beside a process that burns as much processor.
    """
    options = HostileOptions(names or (), pairs, seconds, seed, json_file, PERFORMANCE if document else None, realtime)
    verdicts = run_trio(partial(hostile, options, console(json_file)))
    return 0 if all(verdict.reached for verdict in verdicts) else 1

"""``srtm bench hostile``: what one hostile client does to the others' p99.

A calm flow, 1,000 msg/s from 100 publishers to one subscriber, in turn alone, under attack, and beside a process that
takes as much processor as the attacker did and leaves the broker alone, each time on a fresh broker. The attackers are
a process of their own that lets all others go first and stays off the processors of the broker's engine
(``bench.harness.machine.affinity``): otherwise it would take them from broker and generator. What it still takes, in
system calls that are not interrupted and in the caches, no limit of a broker can prevent: so an attack is held against
the burning process, not against silence.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec
import trio
from rich.console import Console

from bench.comparisons.builds import NEW, OLD, in_order, not_worse, refuse_document
from bench.comparisons.hostile.attacker import BURN, UNDER_WAY
from bench.comparisons.hostile.attacks import ATTACKS
from bench.comparisons.hostile.flood import Target
from bench.comparisons.rows import steady
from bench.comparisons.rows.row_runs import RowOptions, measure, show
from bench.console.selection import chosen
from bench.harness.load.run import RunResult, run_plan
from bench.harness.load.workload import Plan
from bench.harness.machine import softirqs
from bench.harness.machine.affinity import keep_attacker_apart, keep_engine_apart, may_be_apart
from bench.harness.machine.checkout import ROOT, THIS, Build
from bench.harness.results.comparison import (
    Begin,
    Bound,
    Figure,
    Measured,
    NoneOf,
    Ratio,
    Round,
    Row,
    Sample,
    Turn,
    ratios,
    values,
)
from bench.harness.results.intervals import interval
from bench.harness.results.page import Items, Page, Table
from bench.harness.results.provenance import Origin
from bench.harness.results.publish import Stored, refuse_unpublishable, store
from bench.harness.results.results import Results, write_results
from bench.harness.results.sources import PRODUCT
from bench.harness.results.verdict import Check, Verdict
from bench.harness.systems.systems import bare_broker, cpu_s, free_addresses
from srtm.concurrency.background import background_nursery
from srtm.errors import BadInput, SrtmError, Unavailable

BLOCK, MQTT_BLOCK = "hostile", "mqtt-hostile"
MQTT = "mqtt-"  # what names of attacks on the MQTT port begin with
MOST_MIB = 1_500.0  # of the broker: a default of 1 GiB for messages, and what else there is
QUIET, ATTACKED, BURNING = "quiet", "attacked", "burning"
SYSTEMS = (QUIET, ATTACKED, BURNING)
PUBLISHERS = 100  # at 10 msg/s
MOST = 2.0  # times the p99 beside a burning process
AGAINST = (NEW, OLD, BURNING)
AGAINST_MOST, AGAINST_MS = 3.0, 1.0
BOUND = f"{AGAINST_MOST:g}x, or {AGAINST_MS:g} ms"
CERTIFICATES = ROOT / "tests" / "certificates"
STARTS_WITHIN_S = 60.0
SPARE_S = 60.0  # the attack outlives the run, and ends by itself if nobody ends it
APART = " The attacker has a processor of its own, the broker's engine and the generator the others."
REALTIME = " The generator goes before all ordinary work of the machine (`--realtime`)."
CLAIM = f"Under each attack the p99 of others is within {MOST:g}x of that beside a process as busy as the attacker."
MQTT_CLAIM = (
    f"Under each attack the p99 of others is within {AGAINST_MOST:g}x of that beside a process as busy as the "
    f"attacker, or within {AGAINST_MS:g} ms, and the broker's memory below {MOST_MIB:,.0f} MiB."
)
CONDITIONS = (
    "p99 of 1,000 msg/s{flow} from 100 publishers to one subscriber, under attack by somebody else. Judged is its "
    "ratio to the p99 beside a process that takes as much processor as the attacker and leaves the broker alone. "
    "The attacker shares the machine with broker and generator, and what that costs no broker can prevent. Beside it "
    "stands the ratio to the quiet p99."
)


@dataclass(frozen=True)
class HostileOptions(RowOptions):
    """``realtime``: the generator alone goes before all ordinary work. Under ``chrt`` all of it would; a broker that is
    busy for a second is stopped then by what the kernel keeps for ordinary work, and its threads do not give way to
    each other."""

    pairs: int = 4
    seconds: float = 4.0
    realtime: bool = False

    @property
    def settings(self) -> dict[str, object]:
        return {**super().settings, "realtime": self.realtime}


@dataclass(frozen=True)
class Bounded:
    """p99 under attack is at most max(3x beside a burning process, 1 ms)."""

    key: str = "p99_ms"

    def check(self, rounds: Sequence[Round], samples: Sequence[Sample]) -> Check:  # noqa: ARG002
        beside = interval(ratios(rounds, self.key, ATTACKED, BURNING))
        kept = interval(values(rounds, ATTACKED, self.key)).median <= _most_ms(rounds, self.key)
        return Check("p99, attacked / burning", beside.text(".3g", "x"), f"at most {BOUND}", kept)

    def mark(self, rounds: Sequence[Round]) -> None:
        """Nothing is drawn."""


def _most_ms(rounds: Sequence[Round], key: str) -> float:
    return max(AGAINST_MOST * interval(values(rounds, BURNING, key)).median, AGAINST_MS)


@dataclass(frozen=True)
class BoundedOrNoWorse:
    """p99 under attack is at most max(3x beside a burning process, 1 ms), or no worse than the old build's."""

    key: str = "p99_ms"

    def check(self, rounds: Sequence[Round], samples: Sequence[Sample]) -> Check:  # noqa: ARG002
        attacked, most_ms = interval(values(rounds, NEW, self.key)), _most_ms(rounds, self.key)
        beside = interval(ratios(rounds, self.key, NEW, OLD))
        measured = f"{attacked.text('.3g', ' ms')}, new / old {beside.text('.3g', 'x')}"
        kept = attacked.median <= most_ms or not_worse(beside)
        return Check("p99 under attack", measured, f"at most {most_ms:.3g} ms, or no worse than the old build", kept)

    def mark(self, rounds: Sequence[Round]) -> None:
        """Nothing is drawn."""


@dataclass
class Doing:
    """What the attacker says."""

    pid: int = 0
    total: int = 0
    under_way: trio.Event = field(default_factory=trio.Event)
    _changed: trio.Event = field(default_factory=trio.Event)

    def note(self, total: int) -> None:
        self.total = total
        self._changed.set()
        self._changed = trio.Event()

    def cpu_s(self) -> float:
        """Raises Unavailable where it is gone."""
        return cpu_s(self.pid, "the attacker")

    async def progress(self, more: int) -> None:
        """Until that much more is done."""
        goal = self.total + more
        while self.total < goal:
            await self._changed.wait()


def row_of(attack: str, *, realtime: bool = False, against: Build | None = None) -> Row:
    row = Row(
        name=attack,
        claim=(ATTACKS[attack].__doc__ or attack).split("\n", 1)[0],
        systems=SYSTEMS,
        figures=(
            Figure("p50_ms", "p50, ms", 3),
            Figure("p99_ms", "p99, ms", 3),
            Figure("p999_ms", "p99.9, ms", 3),
            Figure("lateness_p99_ms", "generator's lateness p99, ms", 3),
            Figure("work_per_s", "attacker's bytes or connections a second", 0),
            Figure("attacker_cpu", "processors that the attacker took", 2),
            Figure("resident_mib", "the broker's memory, MiB", 0),
        ),
        targets=(
            NoneOf("lost", "messages lost", SYSTEMS),
            NoneOf("refused", "messages refused", SYSTEMS),
            *(
                (Bounded(), Bound("resident_mib", "the broker's memory", MOST_MIB, "MiB", ours=ATTACKED))
                if attack.startswith(MQTT)
                else (Ratio("p99_ms", "p99", BURNING, at_most=MOST, ours=ATTACKED),)
            ),
        ),
        begin=_each(partial(_round, attack, realtime)),
    )
    if against is None:
        return row
    faults = tuple(NoneOf(key, f"messages {key}", (NEW,)) for key in ("lost", "refused"))
    begin = _each(partial(_round_against, attack, realtime, against))
    return replace(row, systems=AGAINST, targets=(*faults, BoundedOrNoWorse()), begin=begin)


def _each(one_round: Callable[[Turn], Awaitable[Round]]) -> Begin:
    return lambda _systems: one_round


async def _round_against(attack: str, realtime: bool, old: Build, turn: Turn) -> Round:
    """Both builds under attack, and this one beside a process that burns what the attacker took from it."""
    builds = {NEW: THIS, OLD: old}
    sample = partial(_sample, mqtt=attack.startswith(MQTT), realtime=realtime)
    samples = {name: await sample(name, attack, replace(turn, build=builds[name])) for name in in_order(turn)}
    share = samples[NEW].values.get("attacker_cpu", 0.0)
    return [samples[NEW], samples[OLD], await sample(BURNING, f"{BURN}{share:.3f}", turn)]


async def _round(attack: str, realtime: bool, turn: Turn) -> Round:
    sample = partial(_sample, turn=turn, mqtt=attack.startswith(MQTT), realtime=realtime)
    quiet = await sample(QUIET, None)
    attacked = await sample(ATTACKED, attack)
    share = attacked.values.get("attacker_cpu", 0.0)
    return [quiet, attacked, await sample(BURNING, f"{BURN}{share:.3f}")]


async def _sample(system: str, attack: str | None, turn: Turn, *, mqtt: bool, realtime: bool) -> Sample:
    """``mqtt``: the flow is of MQTT, QoS 1."""
    https, mqtt_address = free_addresses()
    tls = ["--tls-cert", str(CERTIFICATES / "server.pem"), "--tls-key", str(CERTIFICATES / "server.key")]
    ports = ["--https-address", https, "--mqtt-address", mqtt_address]
    try:
        async with bare_broker(turn.folder / system, *tls, *ports, build=turn.build) as broker:
            flow = mqtt_plan(mqtt_address, turn) if mqtt else plan(broker.tcp_address, turn)
            sent = partial(run_plan, flow, realtime=realtime, apart=True)
            keep_engine_apart(broker.pid)
            if attack is None:
                return sample_of(system, await sent(name=system), resident_bytes=broker.resident_bytes())
            target = Target(broker.tcp_address, broker.http_address, https, mqtt_address)
            async with attacking(attack, target, turn.seconds) as doing:
                work, used, began = doing.total, doing.cpu_s(), trio.current_time()
                result = await sent(name=f"{system} {attack}")
                elapsed_s = trio.current_time() - began
                work_per_s, cpu = (doing.total - work) / elapsed_s, (doing.cpu_s() - used) / elapsed_s
                return sample_of(system, result, work_per_s, cpu, resident_bytes=broker.resident_bytes())
    except BadInput:
        raise  # all other samples would break the same rule
    except SrtmError as error:
        return Sample(system, {}, [str(error)])


def plan(address: str, turn: Turn) -> Plan:
    return msgspec.structs.replace(steady.plan(address, turn, publishers=PUBLISHERS), topic="calm")


def mqtt_plan(address: str, turn: Turn) -> Plan:
    return msgspec.structs.replace(plan(address, turn), protocol="mqtt", qos=1)


def sample_of(
    system: str, result: RunResult, work_per_s: float = 0.0, attacker_cpu: float = 0.0, *, resident_bytes: int
) -> Sample:
    """Where the generator was late under attack, the run counts: latency includes that, which errs against us. What the
    attack is held against must be clean."""
    keys = ("p50_ms", "p99_ms", "p999_ms", "lost", "refused", "lateness_p99_ms")
    values = {key: getattr(result, key) for key in keys} | {
        "work_per_s": work_per_s,
        "attacker_cpu": attacker_cpu,
        "resident_mib": resident_bytes / 2**20,
    }
    return Sample(system, values, result.reasons if system == BURNING or not result.received else [])


@asynccontextmanager
async def attacking(attack: str, target: Target, seconds: float) -> AsyncIterator[Doing]:
    """Under way for as long as the block lasts. Raises Unavailable where it does not get there."""
    arguments = [attack, target.tcp, target.http, target.https, target.mqtt, f"{seconds + SPARE_S}"]
    command = [sys.executable, "-m", "bench.comparisons.hostile.attacker", *arguments]
    doing = Doing()
    async with background_nursery() as nursery:
        start = partial(trio.run_process, command, stdout=subprocess.PIPE, check=False, cwd=ROOT, deliver_cancel=_kill)
        process: trio.Process = await nursery.start(start)
        doing.pid = process.pid
        keep_attacker_apart(process.pid)
        nursery.start_soon(_listen, process, doing)
        with trio.move_on_after(STARTS_WITHIN_S):
            await doing.under_way.wait()
        if not doing.under_way.is_set():
            raise Unavailable(f"the attack {attack} did not get under way within {STARTS_WITHIN_S:g} s")
        yield doing


async def _kill(process: trio.Process) -> None:
    process.kill()


async def _listen(process: trio.Process, doing: Doing) -> None:
    assert process.stdout is not None
    buffer = b""
    async for data in process.stdout:
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            if line.decode() == UNDER_WAY:
                doing.under_way.set()
            else:
                doing.note(int(line))


async def hostile(options: HostileOptions, console: Console) -> list[Verdict]:
    """All chosen attacks, one after the other, shown as they end. Raises BadInput where the kernel would be flooded and
    not the broker."""
    if options.against is not None:
        refuse_document(options.document)
    refuse_unpublishable(options.document)
    refuse_starved_softirqs(realtime=options.realtime)
    names, started = chosen("attack", options.names, ATTACKS), time.time()
    verdicts: list[Verdict] = []
    outcomes: list[Measured] = []
    for name in names:
        row = row_of(name, realtime=options.realtime, against=options.against)
        verdict, outcome = await measure(row, options, console)
        verdicts.append(verdict)
        outcomes.append(outcome)
        show(console, outcome)
    settings = options.settings
    results = Results.of_verdicts("bench hostile", verdicts, seed=options.seed, started=started, settings=settings)
    if options.document is not None:
        origin = Origin.here(started)
        for judged in (NSQ_PAGE, MQTT_PAGE):
            if mine := [outcome for outcome in outcomes if outcome.name.startswith(MQTT) is (judged is MQTT_PAGE)]:
                page = page_of(judged, mine, origin, realtime=options.realtime)
                store(options.document, judged.block, Stored(page=page, results=results))
    write_results(options.json_file, results)
    return verdicts


def refuse_starved_softirqs(*, realtime: bool) -> None:
    """Raises BadInput where this process, or a generator in real time, goes before what the packets of a flood leave to
    do (``bench.harness.machine.softirqs``)."""
    if softirqs.are_behind(raised=int(realtime)):
        rule = (
            "must be above that of broker (under chrt) and generator (with --realtime), or all packets wait for it "
            "in a flood (chrt -r -p 12 PID)"
        )
        raise BadInput("priority of ksoftirqd", "lower", rule)


@dataclass(frozen=True)
class Judged:
    """A page of attacks that are judged alike. ``within``: the bound, as its column is called."""

    block: str
    title: str
    claim: str
    flow: str
    within: str


NSQ_PAGE = Judged(BLOCK, "Beside a hostile client", CLAIM, "", f"within {MOST:g}x")
MQTT_PAGE = Judged(MQTT_BLOCK, "Beside a hostile MQTT client", MQTT_CLAIM, " of MQTT, QoS 1,", f"within {BOUND}")


def page_of(judged: Judged, outcomes: Sequence[Measured], origin: Origin, *, realtime: bool = False) -> Page:
    """A line an attack, then what it does."""
    header = [
        "attack",
        "p99 quiet, ms",
        "burning, ms",
        "attacked, ms",
        "attacked / burning",
        judged.within,
        "attacked / quiet",
        "work a second",
        "broker's memory, MiB",
    ]
    table = Table(header=header, rows=[_line(outcome) for outcome in outcomes])
    about = Items(items=[f"{outcome.name}: {outcome.claim}" for outcome in outcomes])
    rounds = min((outcome.rounds for outcome in outcomes), default=0)
    seconds = min((outcome.seconds for outcome in outcomes), default=0.0)
    runs = f"At least {rounds} rounds of {seconds:g} s runs in turn; medians with their intervals."
    runs += APART if may_be_apart() else ""
    runs += REALTIME if realtime else ""
    within = sum(outcome.reached for outcome in outcomes)
    return Page(
        title=judged.title,
        claim=judged.claim,
        verdict=f"{judged.block}: {within} of {len(outcomes)} attacks {judged.within}.",
        body=[CONDITIONS.format(flow=judged.flow), table, about, runs],
        sources=[*PRODUCT, "bench/comparisons/hostile"],
        origin=origin,
    )


def _line(outcome: Measured) -> list[str]:
    cells = {figure.label: figure for figure in outcome.figures}
    p99, work = cells.get("p99, ms"), cells.get("attacker's bytes or connections a second")
    check = next((check for check in outcome.checks if check.what.startswith("p99")), None)
    if p99 is None or work is None or check is None:
        return [outcome.name, "", "", "", outcome.line, "**no**", "", "", ""]
    kept = "yes" if outcome.reached else "**no**"
    p99_ms = [p99.cell(system) for system in (QUIET, BURNING, ATTACKED)]
    beside_quiet = p99.systems[ATTACKED].median / p99.systems[QUIET].median
    quiet = f"{beside_quiet:.2g}x" + (" (under 2x)" if beside_quiet < MOST else "")
    memory = cells["the broker's memory, MiB"].cell(ATTACKED)
    return [outcome.name, *p99_ms, check.measured, kept, quiet, f"{work.systems[ATTACKED].median:,.0f}", memory]

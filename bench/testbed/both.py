"""``srtm bench testbed both``: the same traffic over plain links, and over links that are late and lose packets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.experiments.lab.layouts import residual
from bench.harness.load.run_files import Keeper, runs_of
from bench.harness.machine import namespaces as own_network
from bench.harness.results.document import EVALUATION, markdown_table, refuse_without_block
from bench.harness.results.publish import hand_over
from bench.harness.results.results import Results
from bench.harness.results.verdict import Check, Verdict, none_of
from bench.simulation.calibration import calibrated
from bench.simulation.traffic import Fleet
from bench.testbed.net.capabilities import means
from bench.testbed.net.layout import Layout, Link, hosts
from bench.testbed.outcome import HEADER, Outcome, curves, outcome
from bench.testbed.owner import live_testbed
from bench.testbed.session import Session, Traffic, run_session
from srtm.console.running import run_trio

BLOCK = "testbed"
CLAIM = (
    "Messages are as late as links, bucket and broker make them, each told apart; links do what is asked of them, and "
    "what they lose is sent again."
)
PLAIN, EMULATED = Link(), Link(delay_ms=2.0, jitter_ms=0.5, loss=0.001)
LINKS = (PLAIN, EMULATED)
_BETWEEN = 2  # links from host to host
_BESIDE_MS = 0.5  # that a link may add to what is asked, at the median

Tell = Callable[[str], object]


@dataclass(frozen=True)
class BothOptions:
    seconds: float = 20.0
    seed: int = 1
    json_file: str | None = None
    document: bool = False

    @property
    def traffic(self) -> Traffic:
        return Traffic(seconds=self.seconds, seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One run. ``bucket``: of the topic; ``uses``: how links are made so; ``left``: ``capacity_left``."""

    link: Link
    found: Outcome
    bucket: str
    uses: Sequence[str]
    left: float

    @property
    def name(self) -> str:
        link = self.link
        if not link.is_emulated:
            return "plain"
        return f"{link.delay_ms:g} to {link.delay_ms + link.jitter_ms:g} ms late, {100 * link.loss:g} % lost"

    @property
    def means(self) -> str:
        return f"{self.name}: {', '.join(self.uses)}"

    def checks(self) -> list[Check]:
        """Of links: what datagrams beside the traffic had, at the median; and whether all parts are there."""
        whole, link = self.found.parts[-1], self.link
        least_ms, most_ms = (_BETWEEN * (link.delay_ms + more_ms) for more_ms in (0.0, link.jitter_ms))
        checks = [none_of(f"{self.name}: messages lost", self.found.lost)]
        for way, took_ms in (("to", whole.to_p50_ms), ("from", whole.from_p50_ms)):
            bound = f"{least_ms:g} to {most_ms + _BESIDE_MS:g} ms"
            kept = least_ms <= took_ms <= most_ms + _BESIDE_MS
            checks.append(Check(f"{self.name}: network {way} the broker, p50", f"{took_ms:.3g} ms", bound, kept))
        parts_ms = whole.to_p50_ms + whole.inside_p50_ms + whole.from_p50_ms
        beside = Check(
            f"{self.name}: one-way p50 beside its parts",
            f"{whole.p50_ms:.3g} and {parts_ms:.3g} ms",
            f"{_BESIDE_MS:g} ms apart at most",
            abs(whole.p50_ms - parts_ms) <= _BESIDE_MS,
        )
        return [*checks, beside]

    def cells(self) -> list[str]:
        found = self.found
        lost = f"{found.datagrams_lost:,} of {found.datagrams:,}"
        late = f"{found.lateness_p99_ms:.3g}"
        return [self.name, *found.parts[-1].cells()[1:], late, lost, f"{self.left:,.0f}"]


def both(options: BothOptions, tell: Tell) -> Verdict:
    """Raises Unavailable, PeerError, BadInput."""
    document = EVALUATION if options.document else None
    refuse_without_block(document, BLOCK)
    started, lines = time.time(), []
    keeper = None if (folder := runs_of(options.json_file)) is None else Keeper(folder)
    for link in LINKS:
        session, uses = run_on(hosts(link=link), options.traffic, options.seed, tell)
        lines.append(line_of(link, session, uses, options.traffic))
        if keeper is not None:
            results = results_of(judged(lines[-1:], options), options, started)
            keeper.write(lines[-1].name, results, curves(session, options.traffic))
    verdict = judged(lines, options)
    text = markdown(lines, verdict, options.traffic)
    tell(text)
    results = results_of(verdict, options, started)
    hand_over(text, results, block=BLOCK, document=document, json_file=options.json_file, data=True)
    return verdict


def run_on(layout: Layout, traffic: Traffic, seed: int, tell: Tell) -> tuple[Session, list[str]]:
    """A testbed for this run alone, and how it does what ``layout`` asks for. Raises Unavailable, PeerError,
    BadInput."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="srtm-testbed-")))
        there = stack.enter_context(live_testbed(layout, means(), seed, tell))
        stack.enter_context(own_network.visiting(there.namespace(layout.control)))
        return run_trio(partial(run_session, there, traffic, folder, tell)), list(there.uses)


def line_of(link: Link, session: Session, uses: Sequence[str], traffic: Traffic) -> Line:
    view = session.view
    bucket = f"r = {view['rate']:,.6g}, b = {view['burst']:.6g}"
    found = outcome(session, traffic)
    return Line(link=link, found=found, bucket=bucket, uses=uses, left=capacity_left(found, traffic))


def capacity_left(found: Outcome, traffic: Traffic) -> float:
    """Msg/s of such traffic that the brokers could take beside this and process within the promise, all of them
    together: simulated, of the calibrated broker."""
    fleet = Fleet(
        count=traffic.publishers,
        rate=traffic.rate,
        batch=traffic.batch,
        group_size=traffic.group_size,
        process=traffic.process,
    )
    loads = [part.messages / traffic.seconds for part in found.parts[:-1]]
    promise_ns, machine = round(traffic.promise_ms * 1_000_000), calibrated().machine
    return residual(fleet, traffic.placement, loads, machine=machine, slo_ns=promise_ns, brokers=len(loads))


def judged(lines: Sequence[Line], options: BothOptions) -> Verdict:
    """What the bucket makes of p99 is the price of two brokers, and no matter of links: shown, not judged."""
    return Verdict(
        BLOCK,
        CLAIM,
        [check for line in lines for check in line.checks()],
        [
            {**row, "name": f"{line.name}: {row['name']}", "capacity_left": line.left}
            for line in lines
            for row in line.found.rows()
        ],
        {**asdict(options.traffic), "links": [asdict(line.link) for line in lines], "bucket": lines[0].bucket},
        [f"{line.name}: {reason}" for line in lines for reason in line.found.reasons],
    )


def results_of(verdict: Verdict, options: BothOptions, started: float) -> Results:
    return Results.of_verdicts(
        "bench testbed both", [verdict], seed=options.seed, started=started, settings=verdict.settings
    )


def markdown(lines: Sequence[Line], verdict: Verdict, traffic: Traffic) -> str:
    header = ["every link", *HEADER[1:], "generator late, p99", "datagrams lost", "capacity left, msg/s"]
    table = markdown_table(header, [line.cells() for line in lines])
    checks = markdown_table(["checked", "found", "must be", ""], [check.cells for check in verdict.checks])
    brokers = len(lines[0].found.parts) - 1
    how = (
        f"{traffic.publishers:,} publishers of {traffic.rate:g} msg/s, {traffic.process}, brokers: {brokers}, "
        f"{lines[0].bucket}; one run of {traffic.seconds:g} s each; seed {traffic.seed}; ms. A way from host to host "
        f"has two links. Capacity left: what the brokers could still process within {traffic.promise_ms:g} ms, "
        f"simulated with the calibrated machine's service times. {'; '.join(line.means for line in lines)}."
    )
    return "\n\n".join([f"Claim: {CLAIM}", how, table, checks, f"{verdict.line}."])

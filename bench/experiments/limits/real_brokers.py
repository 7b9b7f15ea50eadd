"""Six real brokers hold one contract. At each, one client of the same name publishes three times what that allows:
undisturbed, with a wire of 50 ms, and while brokers are killed, cut off and come back. A checker merges what they took.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.experiments.limits.real_nodes import (
    BURST,
    CALM_S,
    CUT_S,
    LOAD,
    NAMES,
    RATE,
    enough_refused,
    outcome,
    panel,
)
from bench.harness.results.verdict import Check, at_most
from bench.limit_cluster.brokers import TOPIC, Brokers, brokers
from bench.limit_cluster.clients import publish
from bench.limit_cluster.merged import Cut, Decision, Judged, judge

SECONDS = 14.0
CONTRACTS = [
    {
        "namespace": "api",
        "subject": "*",
        "mode": "replicated",
        "policies": [{"name": "burst", "rate": RATE, "burst": BURST}],
    }
]
ROUND_S = 0.05  # between two looks of a broker at what it took
PAUSE_S, ANSWER_S = 1.0, 0.5  # after a cut: a broker tries again within this, and may wait for an answer until then
_PROBE_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Case:
    """``wire_ms``: one way; ``disturbed``: one broker is killed and starts again, then another is cut off."""

    wire_ms: int = 0
    disturbed: bool = False

    @property
    def nodes(self) -> str:
        return "one killed, one cut off for 2 s; both back" if self.disturbed else "undisturbed"


CASES = (Case(), Case(wire_ms=50), Case(disturbed=True), Case(wire_ms=50, disturbed=True))


@dataclass(frozen=True, kw_only=True)
class Run:
    """``delay_s``: the longest that news may have been on its way, by the round trips that were measured meanwhile."""

    judged: Judged
    delay_s: float


def figure(effort: Effort) -> Figure:
    rows = []
    for case in CASES:
        rows.append(row(case, run(case)))
        effort.step(f"wire {case.wire_ms} ms, {case.nodes}: {rows[-1]['above']:.3g} above")
    return Figure(
        rows=rows,
        panels=[panel(rows)],
        checks=checks(rows),
        conditions=f"{len(NAMES)} brokers and a distributor on one machine, one publisher's name, r = {RATE}/s, "
        f"b = {BURST}, a client at each broker that publishes {LOAD * RATE} times a second for {SECONDS:g} s "
        "or until all are back, by HTTP",
    )


def run(case: Case, names: str = NAMES, seconds: float = SECONDS) -> Run:
    return trio.run(_run, case, names, seconds)


async def _run(case: Case, names: str, seconds: float) -> Run:
    found: list[Decision] = []
    cuts: list[Cut] = []
    kills: list[float] = []
    trips: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with brokers(Path(folder), names, CONTRACTS, case.wire_ms / 1_000) as running:
            until = trio.current_time() + seconds
            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(_publish, running.url(name), name, found)
                nursery.start_soon(_probe, running, trips)
                if case.disturbed:
                    await _disturb(running, names, cuts, kills)
                    await trio.sleep(CALM_S)
                await trio.sleep_until(until)
                nursery.cancel_scope.cancel()
    # A take waits for the next round, then until the news before it is answered, then for its own way.
    delay_s = ROUND_S + 2 * max(trips)
    lost = sum(
        one.allowed and one.node == names[1] and kill - delay_s <= one.answered <= kill
        for one in found
        for kill in kills
    )
    return Run(
        judged=judge(found, RATE, BURST, nodes=len(names), delay_s=delay_s, cuts=cuts, kills=kills, lost=lost),
        delay_s=delay_s,
    )


async def _publish(url: str, name: str, found: list[Decision]) -> None:
    await publish(url, name, LOAD * RATE, math.inf, found, topic=TOPIC)


async def _probe(running: Brokers, trips: list[float]) -> None:
    while True:
        trips.append(await running.round_trip_s())
        await trio.sleep(_PROBE_S)


async def _disturb(running: Brokers, names: str, cuts: list[Cut], kills: list[float]) -> None:
    killed, apart = names[1], names[2]
    await trio.sleep(CALM_S)
    begun = trio.current_time()
    kills.append(begun)
    await running.kill(killed)
    await running.start(killed)
    await running.holds(killed)
    cuts.append(Cut(killed, begun, trio.current_time() + PAUSE_S + ANSWER_S))
    await trio.sleep(CALM_S)
    begun = trio.current_time()
    running.cut(apart)
    await trio.sleep(CUT_S)
    running.heal()
    cuts.append(Cut(apart, begun, trio.current_time() + PAUSE_S + ANSWER_S))


def row(case: Case, run: Run) -> Row:
    return {**outcome(case.wire_ms, case.nodes, run.judged), "delay_ms": run.delay_s * 1_000}


def checks(rows: Sequence[Row]) -> list[Check]:
    unexplained = max(one["unexplained"] for one in rows)
    return [
        at_most("above b + r dt + what the others took within the delay", unexplained, 0, "tokens"),
        enough_refused(rows),
    ]


EXPERIMENT = Experiment(
    name="real-brokers",
    title="One contract on six real brokers",
    claim="While brokers are killed, cut off and come back, a replicated contract lets through at most b + r dt and "
    "what the other brokers took within the delay of news, and refuses at least 90 % of what one bucket refuses.",
    columns={
        "wire, ms": "wire_ms",
        "brokers": "nodes",
        "publishes": "requests",
        "let through": "let",
        "refused": "refused",
        "one bucket refuses": "central",
        "of it, %": "refused_percent",
        "tokens above (r, b), worst": "above",
        "delay of news, measured, ms": "delay_ms",
        "of them beyond the law": "unexplained",
    },
    run=figure,
    how="Measured",
    runs=f"one run of {SECONDS:g} s or more each",
    sources=("broker", "distributor", "limiting/core", "bench/limit_cluster", "bench/experiments/limits", "srtm"),
    full=Effort(seconds=0.0, repetitions=1),
)

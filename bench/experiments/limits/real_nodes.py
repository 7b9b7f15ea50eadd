"""Six real nodes hold one limit, with one client at each that asks for three times the limit: undisturbed, with a wire
of 50 ms, and while nodes are killed, cut off and come back. A checker merges what they let through.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import trio

from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check, at_most
from bench.limit_cluster.clients import ask
from bench.limit_cluster.merged import Cut, Decision, Judged, judge, longest_request_s
from bench.limit_cluster.nodes import LimitNodes, limit_nodes
from limiting.replication.node import SECOND_NS
from limiting.replication.replicated import LINKED_WITHIN_NS

NAMES = "abcdef"
RATE, BURST, LOAD = 10, 60, 3  # a client asks LOAD * RATE times a second
SECONDS = 14.0
FRAME_S = 0.005
LINKED_WITHIN_S = LINKED_WITHIN_NS / SECOND_NS
TOLD_S = 0.3  # after a cut: what was held back, and that the bench sees the link a poll later
CALM_S, CUT_S = 2.0, 2.0
CONTRACTS = f"""
[[contracts]]
namespace = "api"
subject = "*"
policies = [{{name = "burst", rate = {RATE}, burst = {BURST}}}]
"""
REPLICATED, EXACT = "replicated", "exact"


@dataclass(frozen=True, kw_only=True)
class Case:
    """``wire_ms``: one way; ``disturbed``: one node is killed and starts again, then another is cut off for a while."""

    mode: str
    wire_ms: int = 0
    disturbed: bool = False

    @property
    def nodes(self) -> str:
        return "one killed, one cut off for 2 s; both back" if self.disturbed else "undisturbed"


CASES = (
    Case(mode=REPLICATED),
    Case(mode=REPLICATED, wire_ms=50),
    Case(mode=REPLICATED, disturbed=True),
    Case(mode=REPLICATED, wire_ms=50, disturbed=True),
    Case(mode=EXACT),
)


def figure(effort: Effort) -> Figure:
    rows = []
    for case in CASES:
        rows.append(row(case, run(case)))
        effort.step(f"{case.mode}, wire {case.wire_ms} ms, {case.nodes}: {rows[-1]['above']:.3g} above")
    return Figure(
        rows=rows,
        panels=[panel(rows)],
        checks=checks(rows),
        conditions=f"{len(NAMES)} processes on one machine, one subject, r = {RATE}/s, b = {BURST}, a client at each "
        f"node that asks {LOAD * RATE} times a second for {SECONDS:g} s or until all are back, by HTTP",
    )


class Run(NamedTuple):
    """``settled``: the instant from which all nodes decide again, s; ``decisions``: what each was asked."""

    judged: Judged
    decisions: list[Decision]
    settled: float


def run(case: Case) -> Judged:
    return trio.run(run_nodes, case, NAMES, SECONDS).judged


async def run_nodes(case: Case, names: str, seconds: float) -> Run:
    found: list[Decision] = []
    cuts: list[Cut] = []
    kills: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with limit_nodes(Path(folder), names, CONTRACTS, case.mode, case.wire_ms / 1_000) as nodes:
            until = trio.current_time() + seconds
            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(ask, nodes.url(name), name, LOAD * RATE, math.inf, found)
                if case.disturbed:
                    await _disturb(nodes, cuts, kills)
                    await trio.sleep(CALM_S)
                await trio.sleep_until(until)
                nursery.cancel_scope.cancel()
    delay = delay_s(case, found)
    judged = judge(found, RATE, BURST, nodes=len(names), delay_s=delay, cuts=cuts, kills=kills)
    return Run(judged, found, max((cut.end for cut in cuts), default=0.0))


def delay_s(case: Case, found: Sequence[Decision]) -> float:
    """Of news from one node to another, in addition to what a request took.

    One loop answers requests and tells news at a node. The node that tells and the one that hears may each be as late
    as with the longest request, of which ``judge`` counts one.
    """
    return FRAME_S + case.wire_ms / 1_000 + longest_request_s(found)


async def _disturb(nodes: LimitNodes, cuts: list[Cut], kills: list[float]) -> None:
    killed, apart = nodes.names[1], nodes.names[2]
    await trio.sleep(CALM_S)
    kills.append(trio.current_time())
    await nodes.kill(killed)
    begun = trio.current_time()
    await nodes.start(killed)
    await nodes.linked()
    linked = trio.current_time()
    if linked - begun > LINKED_WITHIN_S:  # it has refused so long; from then on it is alone
        cuts.append(Cut(killed, begun, linked + TOLD_S))
    await trio.sleep(CALM_S)
    begun = trio.current_time()
    nodes.cut(apart)
    await trio.sleep(CUT_S)
    nodes.heal()
    await nodes.linked()
    cuts.append(Cut(apart, begun, trio.current_time() + TOLD_S))


def row(case: Case, judged: Judged) -> Row:
    return {"mode": case.mode, **outcome(case.wire_ms, case.nodes, judged)}


def outcome(wire_ms: int, nodes: str, judged: Judged) -> Row:
    return {
        "wire_ms": wire_ms,
        "nodes": nodes,
        "requests": judged.requests,
        "let": judged.allowed,
        "refused": judged.refused,
        "central": judged.refused_centrally,
        "refused_percent": judged.refused_percent,
        "above": judged.excess,
        "unexplained": max(0.0, judged.unexplained),
    }


def checks(rows: Sequence[Row]) -> list[Check]:
    replicated = [one for one in rows if one["mode"] == REPLICATED]
    exact = [one for one in rows if one["mode"] == EXACT]
    unexplained = max(one["unexplained"] for one in replicated)
    return [
        at_most("replicated: above b + r dt + what the others took within the delay", unexplained, 0, "tokens"),
        enough_refused(rows),
        at_most("exact: above (r, b)", max(one["above"] for one in exact), 1, "tokens"),
    ]


def enough_refused(rows: Sequence[Row]) -> Check:
    least = min(one["refused_percent"] for one in rows)
    return Check("refused of the centralized, least", f"{least:.4g} %", "at least 90 %", least >= 90)


def panel(rows: Sequence[Row]) -> Panel:
    places = [float(number) for number in range(1, len(rows) + 1)]
    values = {"above (r, b), worst": "above", "of it, beyond the law": "unexplained"}
    series = [Series(label=label, x=places, y=[one[key] for one in rows]) for label, key in values.items()]
    return Panel(title="Above one bucket", x_label="row of the table", y_label="tokens", series=series, slo_ms=None)


EXPERIMENT = Experiment(
    name="real-nodes",
    title="One limit on six real nodes",
    claim="While nodes are killed, cut off and come back, replicated lets through at most b + r dt and what the other "
    "nodes took within the delay of news, and refuses at least 90 % of what one bucket refuses. Exact is never above.",
    columns={
        "mode": "mode",
        "wire, ms": "wire_ms",
        "nodes": "nodes",
        "requests": "requests",
        "let through": "let",
        "refused": "refused",
        "one bucket refuses": "central",
        "of it, %": "refused_percent",
        "tokens above (r, b), worst": "above",
        "of them beyond the law": "unexplained",
    },
    run=figure,
    how="Measured",
    runs=f"one run of {SECONDS:g} s each",
    sources=("limiting", "bench/limit_cluster", "bench/experiments/limits", "srtm"),
    full=Effort(seconds=0.0, repetitions=1),
)

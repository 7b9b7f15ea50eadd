"""One hot subject on 30 nodes: what deciding alone lets through above the limit while news is on its way, what frames
and shares do about it, and how often ``exact`` must ask. In virtual time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check, at_most
from bench.limiting.hot_subject import BURST_S, HotSubject, Logged, MakeNode, Outcome, auto, replicated
from bench.limiting.request_sets import NODES
from limiting.replication.gossiped.gossip import MS

RATE, SECONDS = 10_000, 4.0
EXACT_SECONDS = 1.0  # ten bursts: every request is a message or more
LOADS = (0.9, 1.1, 3.0, 20.0)
FRAME_MS, OTHER_FRAMES_MS = 5, (1, 20)
WIRES_MS = (1, 50)
BETAS = (Fraction(1, 10), Fraction(1, 4), Fraction(2, 5))
EXACT_LOADS = (0.3, 1.1)
REPLICATED, AUTO, EXACT = "replicated", "auto", "exact"


@dataclass(frozen=True, kw_only=True)
class Case:
    """``beta``: of ``exact``; ``frame_ms``: in which news waits, of the others."""

    mode: str
    load: float
    wire_ms: int
    frame_ms: int = 0
    beta: Fraction | None = None


def cases() -> list[Case]:
    found = [
        Case(mode=mode, load=load, wire_ms=wire_ms, frame_ms=FRAME_MS)
        for mode in (REPLICATED, AUTO)
        for wire_ms in WIRES_MS
        for load in LOADS
    ]
    found += [Case(mode=REPLICATED, load=3.0, wire_ms=1, frame_ms=frame_ms) for frame_ms in OTHER_FRAMES_MS]
    return found + [Case(mode=EXACT, load=load, wire_ms=1, beta=beta) for beta in BETAS for load in EXACT_LOADS]


def figure(effort: Effort) -> Figure:
    rows = []
    for case in cases():
        rows.append(row(case, run(case, effort.seed)))
        effort.step(f"{case.mode}, {case.load:g} times the rate, wire {case.wire_ms} ms: {rows[-1]['above']:g} above")
    return Figure(
        rows=rows,
        panels=[
            _panel(rows, "above", "Above (r, b), worst instant", "tokens (log scale)"),
            _panel(rows, "above_later", "Above (r, b), after two seconds", "tokens (log scale)"),
            _panel(rows, "entries", "What a node says", "increments/s (log scale)"),
            _panel(rows, "let_percent", "Let through", "part of the centralized (%, log scale)"),
        ],
        checks=checks(rows),
        conditions=f"{NODES} nodes, r = {RATE:,} tokens/s, b = {RATE * BURST_S:,.0f}, Poisson requests of one token",
    )


def run(case: Case, seed: int) -> Outcome:
    seconds = SECONDS if case.beta is None else EXACT_SECONDS
    subject = HotSubject(RATE, case.load, case.wire_ms * MS, seconds, seed)
    return subject.run(_make(case, subject))


def _make(case: Case, subject: HotSubject) -> MakeNode:
    if case.beta is not None:
        beta = case.beta
        return lambda name, peers, refill: Logged(subject.log, name, peers, [refill], 0, beta=beta)
    if case.mode == AUTO:
        return auto(case.frame_ms * MS, case.wire_ms * MS)
    return replicated(case.frame_ms * MS)


def row(case: Case, found: Outcome) -> Row:
    return {
        "mode": case.mode if case.beta is None else f"{case.mode}, beta {float(case.beta):g}",
        "load": case.load,
        "frame_ms": case.frame_ms or None,
        "wire_ms": case.wire_ms,
        "asked": found.asked,
        "let_percent": 100 * found.let / found.central,
        "above": found.above,
        "above_later": found.above_later,
        "on_its_way": case.load * RATE * (case.frame_ms + case.wire_ms) / 1_000,
        "entries": found.entries,
        "frames": found.frames,
        "alone_percent": 100 * found.alone,
    }


def checks(rows: Sequence[Row]) -> list[Check]:
    ours = [one for one in rows if one["mode"] == REPLICATED]
    framed = [one for one in ours if one["frame_ms"] == FRAME_MS]
    hot = [one for one in rows if one["mode"] == AUTO]
    exact = [one for one in rows if one["mode"].startswith(EXACT)]
    most = max(one["above"] / one["on_its_way"] for one in ours)
    near = max(one["above"] for one in framed if one["load"] < 2 and one["wire_ms"] == 1)
    by_frame = {one["frame_ms"]: one["entries"] for one in ours if one["load"] == 3 and one["wire_ms"] == 1}
    bound = (NODES - 1) * 1_000 / FRAME_MS
    let_least = min(one["let_percent"] for one in hot)
    least = min(one["let_percent"] for one in exact)
    return [
        at_most("replicated: above, of what is asked within frame and wire", 100 * most, 100, "%"),
        at_most("replicated: above, near its limit, wire 1 ms", near, 0, "tokens"),
        at_most("replicated: said by a node, frames of 5 ms", max(one["entries"] for one in framed), bound, "/s"),
        Check(
            "replicated: said with frames of 1, 5 and 20 ms, 3 times the rate",
            ", ".join(f"{by_frame[frame_ms]:,.0f}/s" for frame_ms in sorted(by_frame)),
            "less than half of it with 5 ms",
            by_frame[FRAME_MS] < by_frame[1] / 2,
        ),
        at_most("auto: above, after two seconds", max(one["above_later"] for one in hot), 0, "tokens"),
        Check("auto: let through of the centralized, least", f"{let_least:.3g} %", "at least 90 %", let_least >= 90),
        at_most("exact: above", max(one["above"] for one in exact), 0, "tokens"),
        Check("exact: let through of the centralized, least", f"{least:.3g} %", "at least 95 %", least >= 95),
    ]


def _panel(rows: Sequence[Row], field: str, title: str, y_label: str) -> Panel:
    series = []
    for mode in (REPLICATED, AUTO):
        for wire_ms in WIRES_MS:
            here = [one for one in rows if (one["mode"], one["wire_ms"], one["frame_ms"]) == (mode, wire_ms, FRAME_MS)]
            label = f"{mode}, wire {wire_ms} ms"
            series.append(Series(label=label, x=[one["load"] for one in here], y=[one[field] for one in here]))
    return Panel(title=title, x_label="load (times r)", y_label=y_label, series=series, slo_ms=None, x_log=True)


EXPERIMENT = Experiment(
    name="hot-subject",
    title="One hot subject on many nodes",
    claim="Deciding alone, nodes let through above (r, b) at most what is asked while news is on its way. Frames of "
    "5 ms bound what they say, whatever comes. Auto gives a hot subject shares within two seconds, and is never above "
    "from then on. Exact is never above, and asks the owner more often the smaller its beta.",
    columns={
        "mode": "mode",
        "load, times r": "load",
        "frame, ms": "frame_ms",
        "wire, ms": "wire_ms",
        "asked": "asked",
        "let through, of the centralized, %": "let_percent",
        "tokens above, worst": "above",
        "after 2 s": "above_later",
        "asked within frame and wire": "on_its_way",
        "increments a node, 1/s": "entries",
        "frames a node, 1/s": "frames",
        "decided without asking, %": "alone_percent",
    },
    run=figure,
    runs=f"one run of {SECONDS:g} s each, {EXACT_SECONDS:g} s of exact",
    sources=("limiting", "bench/limiting", "bench/experiments/limits", "srtm/token_bucket"),
    full=Effort(seconds=0.0, repetitions=1),
)

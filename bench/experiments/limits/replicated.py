"""The data sets A to D of the CRDT thesis, on its counter, its queue with both extensions, and on ``replicated``: what
is refused beside a centralized limiter, what nodes say and keep, and how long until they agree. In virtual time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from random import Random

from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check
from bench.limiting.designs import DESIGNS, Design
from bench.limiting.request_sets import BURST, NODES, RATE_PART, SETS, RequestSet
from bench.limiting.runs import Outcome, Run, centralized

RUNS = {"A": 3, "C": 3}  # of the sets that take a minute each; of the others as many as asked for
COUNTER, BOTH, OURS, OURS_LATE = "counter", "queue + both", "replicated", "replicated, 50 ms wire"
PARTS = {"limited": ("B extreme", "B substantial"), "barely": ("B barely even", "B barely late")}
PICTURED = ("B extreme", "B substantial", "B barely late")
INTERVALS_MS = (300, 450, 900)

# What the thesis prints (chapter 5): parts refused of the centralized; memory and bytes as ratios to the counter's.
THESIS = {
    ("A", COUNTER): "95.7 % refused (Fig. 5.1, its service's parameters)",
    ("A", "queue + LINF"): "memory 82 % of the queue's, bytes 131 % of the counter's",
    ("A", "queue + frequency"): "bytes 343 % of the counter's",
    ("A", BOTH): "memory 76 % of queue + frequency",
    ("B extreme", COUNTER): "96.9 % refused",
    ("B extreme", BOTH): "99.7 % refused; memory 798 %, bytes 883 % of the counter's",
    ("B substantial", COUNTER): "96.4 % refused",
    ("B substantial", BOTH): "98.6 % refused; memory 513 %, bytes 495 % of the counter's",
    ("B barely even", COUNTER): "10 % refused",
    ("B barely even", BOTH): "80 % refused; memory 427 %, bytes 215 % of the counter's",
    ("B barely late", COUNTER): "10 % refused",
    ("B barely late", BOTH): "80 % refused; memory 427 %, bytes 215 % of the counter's",
    ("B not limited", "queue + frequency"): "memory 90 %, bytes 23 % of the counter's",
    ("C", BOTH): "memory 13.6 %, bytes 100 % of the counter's",
    ("D 300", "queue"): "refuses (Fig. 5.15)",
    ("D 450", "queue"): "refuses later (Fig. 5.15)",
    ("D 900", "queue"): "refuses nobody (Fig. 5.15)",
}


def figure(effort: Effort) -> Figure:
    rows = []
    for name, make in SETS.items():
        seeds = list(islice(effort.seeds(), RUNS.get(name)))
        sets = [make(Random(seed)) for seed in seeds]
        refused = sum(map(centralized, sets))
        for design in DESIGNS:
            outcomes = [Run(design, requests, seed).outcome() for requests, seed in zip(sets, seeds, strict=True)]
            rows.append(row(name, design, sets, outcomes, refused))
            effort.step(f"{name}, {design.name}: {rows[-1]['refused']:g} refused, {rows[-1]['payload_kb']:.4g} KB")
    beside_the_counter(rows)
    return Figure(
        rows=rows,
        panels=[*(_panel(rows, name) for name in PICTURED), _intervals(rows)],
        checks=checks(rows),
        conditions=f"{NODES} nodes, c = {BURST} (A: 100, D: 5), r = {RATE_PART:g} c/s, gossip every 300 ms, no wire "
        f"delay where none is named; {RUNS['A']} runs of A and C",
    )


def row(name: str, design: Design, sets: Sequence[RequestSet], outcomes: Sequence[Outcome], central: int) -> Row:
    """Means of the runs; of set C for each user."""
    runs, users = len(outcomes), sets[0].users if name == "C" else 1
    refused = sum(one.refused for one in outcomes)
    converged = [one.converged_s for one in outcomes if one.converged_s is not None]
    return {
        "set": name,
        "traffic": sets[0].name,
        "design": design.name,
        "requests": sum(len(one.requests) for one in sets) / runs,
        "central": central / runs,
        "refused": refused / runs,
        "refused_percent": 100 * refused / central if central else None,
        "above": max(one.above for one in outcomes),
        "payload_kb": sum(one.payload_b for one in outcomes) / runs / users / 1_000,
        "headers_kb": sum(one.header_b for one in outcomes) / runs / users / 1_000,
        "memory_b": sum(one.memory_b for one in outcomes) / runs / users,
        "converged_s": sum(converged) / runs if len(converged) == runs else None,
        "thesis": THESIS.get((name, design.name)),
    }


def beside_the_counter(rows: Sequence[Row]) -> None:
    """Payload and memory as parts of the counter's on the same requests, into each row."""
    counters = {one["set"]: one for one in rows if one["design"] == COUNTER}
    for one in rows:
        counter = counters[one["set"]]
        one["payload_percent"] = 100 * one["payload_kb"] / counter["payload_kb"]
        one["memory_percent"] = 100 * one["memory_b"] / counter["memory_b"]


def checks(rows: Sequence[Row]) -> list[Check]:
    """What ``replicated`` must reach, and what of the thesis comes out in kind."""
    by = {(one["set"], one["design"]): one for one in rows}
    above = max(one["above"] for one in rows if one["design"] == OURS)
    found = [Check("replicated: tokens above (r, b), worst", f"{above:g}", "0", above <= 0)]
    for name in PARTS["limited"]:
        part = by[name, OURS]["refused_percent"]
        found.append(_refusals(name, OURS, part, "100 % ± 1", abs(part - 100) <= 1))
    for name in PARTS["barely"]:
        part = by[name, OURS]["refused_percent"]
        found.append(_refusals(name, OURS, part, "at least 95 %", part >= 95))
        late = by[name, OURS_LATE]["refused_percent"]
        found.append(_refusals(name, OURS_LATE, late, "at least 90 %", late >= 90))
    for name in dict.fromkeys(one["set"] for one in rows):
        bound = 50 if name == "B extreme" else 25
        ours = by[name, OURS]
        found.append(_part(f"{name}: payload of the counter's", ours["payload_percent"], bound))
        found.append(_part(f"{name}: memory of the counter's", ours["memory_percent"], 2.5))
    return [*found, *_of_the_thesis(by)]


def _of_the_thesis(by: dict[tuple[str, str], Row]) -> list[Check]:
    barely = [by["B barely late", design]["refused_percent"] for design in (COUNTER, BOTH)]
    memory = by["C", BOTH]["memory_percent"]
    seldom = [by[f"D {interval}", "queue"]["refused"] for interval in INTERVALS_MS]
    return [
        Check(
            "thesis: barely limited, counter and queue + both",
            f"{barely[0]:.3g} and {barely[1]:.3g} % refused",
            "10 and 80 %, each ± 15",
            abs(barely[0] - 10) <= 15 and abs(barely[1] - 80) <= 15,
        ),
        Check("thesis: C, memory of the counter's", f"{memory:.3g} %", "at most 20 % (there 13.6)", memory <= 20),
        Check(
            "thesis: D, refused by the queue at 300, 450 and 900 ms",
            ", ".join(f"{one:.3g}" for one in seldom),
            "fewer at longer intervals, 0 at 900 ms",
            seldom[0] >= seldom[1] > seldom[2] == 0,
        ),
    ]


def _refusals(name: str, design: str, part: float, bound: str, kept: bool) -> Check:
    return Check(f"{name}: {design}, refused of the centralized", f"{part:.4g} %", bound, kept)


def _part(what: str, part: float, bound: float) -> Check:
    return Check(f"{what}, replicated", f"{part:.3g} %", f"at most {bound:g} %", part <= bound)


def _panel(rows: Sequence[Row], name: str) -> Panel:
    here = [one for one in rows if one["set"] == name]
    return Panel(
        title=here[0]["traffic"],
        x_label="refused of the centralized (%)",
        y_label="payload of all nodes (KB, log scale)",
        series=[
            Series(
                label=f"{one['design']}: {one['memory_b']:,.0f} B a node",
                x=[one["refused_percent"]],
                y=[one["payload_kb"]],
                marks_only=one["design"] == OURS_LATE,
            )
            for one in here
        ],
        slo_ms=None,
    )


def _intervals(rows: Sequence[Row]) -> Panel:
    """The thesis's Fig. 5.15."""
    by = {(one["set"], one["design"]): one for one in rows}
    series = [
        Series(label=design, x=list(INTERVALS_MS), y=[by[f"D {ms}", design]["refused"] for ms in INTERVALS_MS])
        for design in (COUNTER, "queue", BOTH, OURS)
    ]
    central = [by[f"D {ms}", COUNTER]["central"] for ms in INTERVALS_MS]
    series.append(Series(label="centralized", x=list(INTERVALS_MS), y=central, marks_only=True))
    return Panel(
        title="D: one request every 0.9 s, one token a second",
        x_label="gossip interval (ms)",
        y_label="refused of 111 (log scale)",
        series=series,
        slo_ms=None,
    )


EXPERIMENT = Experiment(
    name="replicated",
    title="Replicated limits on the data sets of the CRDT thesis",
    claim="Replicated refuses what a centralized limiter does, is never above (r, b) without wire delay, and says and "
    "keeps a fraction of what the thesis's designs do. The thesis's own figures come out in kind: its queue with "
    "frequency analysis refuses where the counter does not, at many times its memory, and at a seventh of it for users "
    "below their limit.",
    columns={
        "traffic": "traffic",
        "design": "design",
        "refused, centralized": "central",
        "refused": "refused",
        "of the centralized, %": "refused_percent",
        "tokens above (r, b), worst": "above",
        "payload, KB": "payload_kb",
        "of the counter's, %": "payload_percent",
        "headers, KB": "headers_kb",
        "memory a node, B": "memory_b",
        "of the counter's memory, %": "memory_percent",
        "agreed after, s": "converged_s",
        "the thesis": "thesis",
    },
    run=figure,
    runs="{repetitions} runs of each set",
    sources=("limiting", "bench/limiting", "bench/experiments/limits", "srtm/token_bucket"),
    full=Effort(seconds=0.0),
)

"""Fig. 9a, 9b: correlation. Max-Min (blind) against SRTM (every group spread) over group sizes; 1,000 publishers of
10 msg/s in batches of 10, members of a group at the same instants. Each on the fewest that do, or on the best."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.experiments.figure import Effort, Experiment, Figure, Panel, Row, Series, lines, parts_of
from bench.experiments.layouts import (
    BROKERS,
    MACHINE,
    PAPER,
    SLO_NS,
    Result,
    attempts,
    buckets,
    envelope,
    fewest,
    mcap,
    ms,
)
from bench.traffic import Fleet
from bench.verdict import Check

PROCESSES = {"9a": "poisson", "9b": "periodic"}
GROUP_SIZES = (1, 5, 10, 15, 20, 25, 30)
COLUMNS = {
    "placement": "strategy",
    "brokers": "brokers",
    "worst broker's p99, ms": "worst_p99_ms",
    "deviation, ms": "p99_deviation_ms",
    "access p99, ms": "access_p99_ms",
    "runs that keep 1 ms": "kept",
    "capacity left, msg/s": "residual",
    "bucket": "bucket",
}


def figure(effort: Effort) -> Figure:
    parts = effort.of(PROCESSES)
    fleets = [fleet_of(process, size) for process in parts.values() for size in GROUP_SIZES]
    rows = [
        one
        for part, process in parts.items()
        for size in GROUP_SIZES
        for one in rows_of(part, fleet_of(process, size), size, effort)
    ]
    return Figure(
        rows=rows,
        panels=[_panel(part, rows) for part in parts],
        checks=checks(rows),
        conditions=f"{buckets(fleets)}; {MACHINE}",
    )


def fleet_of(process: str, group_size: int, noise_ns: int = 0) -> Fleet:
    return Fleet(count=1_000, process=process, batch=10, group_size=group_size, noise_ns=noise_ns)


def rows_of(part: str, fleet: Fleet, x: float, effort: Effort) -> list[Row]:
    """SRTM and Max-Min, each on the fewest brokers that do, or on the best."""
    effort.step(f"Fig. {part}, {x:g}")
    return [
        row(part, fleet, x, name, [fewest(attempts(fleet, name, effort.seconds, seed), 1) for seed in effort.seeds()])
        for name in ("srtm", "maxmin")
    ]


def row(part: str, fleet: Fleet, x: float, strategy: str, found: Sequence[Result]) -> Row:
    p99 = [ms(one.worst.p99_ns) for one in found]
    return {
        "part": part,
        "process": fleet.process,
        "x": x,
        "strategy": strategy,
        "brokers": statistics.mode(one.k for one in found),
        "worst_p99_ms": statistics.fmean(p99),
        "p99_deviation_ms": statistics.pstdev(p99),
        "p99_ms": statistics.fmean(ms(one.pooled.p99_ns) for one in found),
        "access_p99_ms": statistics.fmean(ms(one.worst.access_p99_ns) for one in found),
        "kept": sum(one <= ms(SLO_NS) for one in p99),
        "runs": len(p99),
        "residual": BROKERS * mcap(PAPER, fleet.process, fleet.batch) - fleet.load,
        "bucket": envelope(fleet).text,
    }


def of(rows: Sequence[Row], part: str, strategy: str) -> list[Row]:
    return [row for row in rows if (row["part"], row["strategy"]) == (part, strategy)]


def checks(rows: Sequence[Row]) -> list[Check]:
    found = []
    for part in parts_of(rows):
        srtm, blind = (of(rows, part, one) for one in ("srtm", "maxmin"))
        kept = sum(row["worst_p99_ms"] <= ms(SLO_NS) for row in srtm)
        found.append(
            Check(f"{part}: group sizes for which SRTM keeps 1 ms", f"{kept}", f"{len(srtm)}", kept == len(srtm))
        )
        grows = [row["brokers"] for row in srtm]
        found.append(
            Check(
                f"{part}: brokers of SRTM",
                ", ".join(map(str, grows)),
                "never fewer for larger groups",
                grows == sorted(grows),
            )
        )
        worse = all(b["worst_p99_ms"] >= s["worst_p99_ms"] for s, b in zip(srtm[1:], blind[1:], strict=True))
        text = (
            f"{blind[-1]['worst_p99_ms']:.3g} against {srtm[-1]['worst_p99_ms']:.3g} ms for groups of {GROUP_SIZES[-1]}"
        )
        found.append(Check(f"{part}: Max-Min against SRTM", text, "never better", worse))
    return found


def _panel(part: str, rows: Sequence[Row]) -> Panel:
    return Panel(
        title=f"Fig. {part}: {PROCESSES[part]}",
        x_label="publishers in a group",
        y_label="worst broker's p99 (ms, log scale)",
        series=series(rows, part),
    )


def series(rows: Sequence[Row], part: str) -> list[Series]:
    labels = {"maxmin": "Max-Min", "srtm": "SRTM"}
    return lines([row for row in rows if row["part"] == part], labels, "x", "worst_p99_ms")


EXPERIMENT = Experiment(
    name="fig09",
    title="Correlation: Max-Min against SRTM",
    claim="SRTM keeps the SLO up to groups of 30; Max-Min is forced onto fewer brokers.",
    columns={"figure": "part", "group": "x", **COLUMNS},
    run=figure,
    parts={f"fig0{part}": part for part in PROCESSES},
)

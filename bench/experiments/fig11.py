"""Fig. 11: imprecise correlation. Groups of 25 whose firings are spread evenly over 0 to 16 ms; else as in Fig. 9."""

from __future__ import annotations

from collections.abc import Sequence

from bench.experiments.fig09 import COLUMNS, fleet_of, of, rows_of, series
from bench.experiments.figure import Effort, Experiment, Figure, Panel, Row
from bench.experiments.layouts import MACHINE, buckets
from bench.verdict import Check

PROCESSES = {"11a": "poisson", "11b": "periodic"}
SPREAD_MS = (0, 1, 2, 4, 8, 16)
GROUP_SIZE = 25


def figure(effort: Effort) -> Figure:
    fleets = [
        (part, spread_ms, fleet_of(process, GROUP_SIZE, spread_ms * 1_000_000))
        for part, process in PROCESSES.items()
        for spread_ms in SPREAD_MS
    ]
    rows = [row for part, spread_ms, fleet in fleets for row in rows_of(part, fleet, spread_ms, effort)]
    return Figure(
        rows=rows,
        panels=[
            Panel(
                title=f"Fig. {part}: {process}",
                x_label="a group's firings are spread over (ms)",
                y_label="worst broker's p99 (ms, log scale)",
                series=series(rows, part),
            )
            for part, process in PROCESSES.items()
        ],
        checks=checks(rows),
        conditions=f"{buckets([fleet for *_, fleet in fleets])}; {MACHINE}",
    )


def checks(rows: Sequence[Row]) -> list[Check]:
    found = []
    for part in PROCESSES:
        srtm, blind = of(rows, part, "srtm"), of(rows, part, "maxmin")
        gains = [b["worst_p99_ms"] >= s["worst_p99_ms"] for s, b in zip(srtm, blind, strict=True)]
        small = [gain for gain, spread_ms in zip(gains, SPREAD_MS, strict=True) if spread_ms <= 4]
        found.append(
            Check(f"{part}: SRTM no worse than Max-Min up to 4 ms", f"{sum(small)} of {len(small)}", "all", all(small))
        )
        brokers = srtm[0]["brokers"], srtm[-1]["brokers"]
        found.append(
            Check(
                f"{part}: brokers of SRTM, 0 against 16 ms",
                f"{brokers[0]} and {brokers[1]}",
                "fewer",
                brokers[1] < brokers[0],
            )
        )
    return found


EXPERIMENT = Experiment(
    name="fig11",
    title="Imprecise correlation: groups of 25, spread over an interval",
    claim="The gain stays at noise of a few percent of the interval; latency and brokers both fall as it grows.",
    columns={"figure": "part", "spread, ms": "x", **COLUMNS},
    run=figure,
)

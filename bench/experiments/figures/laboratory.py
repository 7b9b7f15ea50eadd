"""The one number that was chosen: what a message takes of the laboratory's server, by what the paper's text says of its
brokers. Each of its sentences bounds it: checked for ``LAB_US``, and shown for a little less and more beside it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.experiments.figures.fig09 import fleet_of
from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.experiments.lab.layouts import LAB_US, SLO_NS, Kind, Result, broker_of, mcap, ms, run
from bench.experiments.lab.points import bucket_of
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check
from bench.simulation.brokers import Machine
from bench.simulation.traffic import Fleet

TRIED_US = (LAB_US - 1, LAB_US, LAB_US + 1)
OVERLOADED = 60_000.0  # msg/s of 6,000 publishers overload one broker and not two (Fig. 6b)
CARRIED = 80_000.0  # msg/s in batches of 10 are on a broker (Fig. 8)
KEPT = (75_000.0, 90_000.0)  # by one in batches of 10: two carry 8,000 and 10,000 publishers beside 10,000 and 40,000
ONE_BROKER, TWO_BROKERS = 5, 10  # publishers in a group (Table 1)


def figure(effort: Effort) -> Figure:
    rows = [_row(lab_us, broker_of(lab_us), effort) for lab_us in TRIED_US]
    return Figure(
        rows=rows,
        panels=[_panel(rows)],
        checks=checks(next(row for row in rows if row["lab_us"] == LAB_US)),
        conditions="the calibrated broker without the stops of its machine",
    )


def _row(lab_us: float, machine: Machine, effort: Effort) -> Row:
    effort.step(f"laboratory, {lab_us:g} us a message")
    crowd = round(OVERLOADED / 10)
    one, two = (_runs(size, machine, effort) for size in (ONE_BROKER, TWO_BROKERS))
    return {
        "lab_us": lab_us,
        "single": machine.capacity(1, crowd),
        "single_halved": 2 * machine.capacity(1, crowd // 2),
        "batches": machine.capacity(10, round(CARRIED / 10)),
        "kept": mcap(Kind.of(Fleet(count=1, batch=10)), machine=machine),
        "one_broker_ms": _p99_ms(one),
        "two_brokers_ms": _p99_ms(two),
        **bucket_of([*one, *two]),
    }


def _runs(group_size: int, machine: Machine, effort: Effort) -> list[Result]:
    """Of 1,000 publishers in groups of so many, on one broker."""
    return [run(fleet_of("poisson", group_size), "srtm", 1, effort.seconds, seed, machine) for seed in effort.seeds()]


def _p99_ms(found: Sequence[Result]) -> float:
    return statistics.fmean(ms(one.worst.p99_ns) for one in found)


def checks(row: Row) -> list[Check]:
    least, most = KEPT
    return [
        Check(
            "what one broker, and two, take of 6,000 publishers' single messages",
            f"{row['single']:,.0f} and {row['single_halved']:,.0f} msg/s",
            f"below and above {OVERLOADED:,.0f} msg/s",
            row["single"] < OVERLOADED < row["single_halved"],
        ),
        Check(
            "what one broker takes in batches of 10",
            f"{row['batches']:,.0f} msg/s",
            f"above {CARRIED:,.0f} msg/s",
            row["batches"] > CARRIED,
        ),
        Check(
            "what one broker keeps within 1 ms in batches of 10",
            f"{row['kept']:,.0f} msg/s",
            f"{least:,.0f} to {most:,.0f} msg/s",
            least <= row["kept"] <= most,
        ),
        Check(
            f"p99 of groups of {ONE_BROKER} and of {TWO_BROKERS} on one broker",
            f"{row['one_broker_ms']:.3g} and {row['two_brokers_ms']:.3g} ms",
            "within 1 ms and above it",
            row["one_broker_ms"] <= ms(SLO_NS) < row["two_brokers_ms"],
        ),
    ]


def _panel(rows: Sequence[Row]) -> Panel:
    x = [row["lab_us"] for row in rows]
    bounds = Series(label="asked by the text", x=[LAB_US, LAB_US], y=list(KEPT), marks_only=True)
    kept = Series(label="kept within 1 ms", x=x, y=[row["kept"] for row in rows])
    taken = Series(label="taken", x=x, y=[row["batches"] for row in rows])
    return Panel(
        title="One broker, batches of 10",
        x_label="us a message of the laboratory's server",
        y_label="load (msg/s, log scale)",
        series=[kept, taken, bounds],
        slo_ms=None,
    )


EXPERIMENT = Experiment(
    name="laboratory",
    title="What the paper's text says of one broker",
    claim="One service time agrees with all that the text says of the paper's brokers.",
    columns={
        "us a message": "lab_us",
        "single messages of 6,000 publishers, msg/s": "single",
        "on two brokers, msg/s": "single_halved",
        "batches of 10, msg/s": "batches",
        "of these within 1 ms, msg/s": "kept",
        "groups of 5, p99, ms": "one_broker_ms",
        "groups of 10, p99, ms": "two_brokers_ms",
        "bucket of the groups": "bucket",
    },
    run=figure,
)

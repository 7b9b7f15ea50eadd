"""Table 1 of the paper in virtual time: the same fittings over simulated brokers, both ways beside each other.

The arithmetic of the fittings is the distributor's own; the brokers are exact buckets and single servers
(``bench.virtual_fleet``). What a real machine adds (moves that take longer, stalls) is not here: ``table1`` has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.document import markdown_table, write_block
from bench.experiments.table1 import (
    BATCH,
    BURST,
    ENVELOPE,
    PAPER_S,
    PART,
    PERCENTILE,
    PUBLISHERS,
    RATE_PER_S,
    Table1Options,
    claim_of,
    settings_of,
)
from bench.provenance import provenance
from bench.results import Results, write_results
from bench.virtual_fleet import Fleet, firings, grouped_demand
from distributor.allocation import Demand
from distributor.fitting import Fitting
from distributor.fitting_events import AnyFitting, Report, Task
from distributor.paper_fitting import PaperFitting

BLOCK = "table1-virtual"
_LONGEST_ROUNDS = 40  # of the paper's way in any row, with room
_LONGEST_S = 900.0  # of ours


@dataclass(frozen=True)
class VirtualRow:
    """One row fitted one way."""

    group: int
    method: str  # "sequential" | "paper"
    report: Report
    worst_p99_ms: float  # of any broker, over the time afterwards
    promise_ms: float

    @property
    def took_s(self) -> float:
        return self.report.took_ns / 1e9

    @property
    def brokers(self) -> int:
        return len(self.report.layout.brokers)

    def row(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "method": self.method,
            "fits": self.report.fits,
            "certain": self.report.certain,
            "took_s": self.took_s,
            "paper_s": PAPER_S[self.group],
            "rounds": len(self.report.rounds),
            "brokers": self.brokers,
            "worst_p99_ms": self.worst_p99_ms,
            "rounds_s": [(one.ended_ns - one.started_ns) / 1e9 for one in self.report.rounds],
        }


def reached(ours: VirtualRow, papers: VirtualRow) -> bool:
    """Whether ours fits in a twentieth of the printed time, on no more brokers than the paper's way, and both keep the
    promise afterwards."""
    kept = all(one.report.fits and one.worst_p99_ms <= one.promise_ms for one in (ours, papers))
    return kept and ours.took_s <= PAPER_S[ours.group] / PART and ours.brokers <= papers.brokers


def table1_virtual(options: Table1Options, show: Callable[[str], None]) -> bool:
    """Every row both ways; shown, and written where asked for. Whether all are reached."""
    started = time.time()
    pairs = []
    for group in options.rows:
        pairs.append((fit_virtually(group, "sequential", options), fit_virtually(group, "paper", options)))
        show(_line(*pairs[-1]))
    claim = claim_of(options).replace("end to end over", "in virtual time over")
    text = f"{claim}\n\n{markdown(pairs, options)}"
    show(text)
    if options.document is not None:
        write_block(options.document, BLOCK, f"{text}\n\n{provenance(started)}")
    if options.json_file is not None:
        rows = [one.row() for pair in pairs for one in pair]
        settings = {"virtual": True, **settings_of(options)}
        results = Results.of("bench table1", rows, seed=options.seed, started=started, settings=settings)
        write_results(options.json_file, results)
    return all(reached(*pair) for pair in pairs)


def fit_virtually(group: int, method: str, options: Table1Options) -> VirtualRow:
    demand = grouped_demand(PUBLISHERS, group, RATE_PER_S, ENVELOPE, BURST)
    longest_s = _LONGEST_ROUNDS * options.rounds_s if method == "paper" else _LONGEST_S
    groups, fires_per_s = -(-PUBLISHERS // group), RATE_PER_S / BATCH
    traffic = firings(groups, fires_per_s, "staggered", longest_s + options.after_s, options.seed)
    service_ns, target_ns = round(options.service_us * 1e3), round(options.promise_ms * 1e6)
    brokers = {f"broker-{at}": service_ns for at in range(1, options.brokers + 1)}
    fleet = Fleet(demand, BATCH, traffic, brokers, percentile=PERCENTILE, target_ns=target_ns)
    report = fleet.fit(_fitting(method, demand, target_ns, fleet, options))
    after = fleet.measured(report.layout, options.after_s) if report.fits else {}
    worst_ns = max((one.total_ns for one in after.values()), default=0)
    return VirtualRow(group, method, report, worst_ns / 1e6, options.promise_ms)


def _fitting(method: str, demand: Demand, target_ns: int, fleet: Fleet, options: Table1Options) -> AnyFitting:
    task = Task(demand=demand, percentile=PERCENTILE, target_ns=target_ns)
    if method == "paper":
        return PaperFitting(task, fleet.capacities, round_ns=round(options.rounds_s * 1e9))
    return Fitting(task, fleet.capacities)


def markdown(pairs: Sequence[tuple[VirtualRow, VirtualRow]], options: Table1Options) -> str:
    header = ["groups of", "paper, s", "a twentieth, s", "ours, s", "rounds", "brokers", "p99 afterwards, ms"]
    header += [f"its way here (rounds of {options.rounds_s:g} s), s", "rounds", "brokers", "p99 afterwards, ms"]
    rows = [
        [f"{ours.group}", f"{PAPER_S[ours.group]}", f"{PAPER_S[ours.group] / PART:.3g}", *_cells(ours), *_cells(papers)]
        for ours, papers in pairs
    ]
    return markdown_table(header, rows)


def _cells(one: VirtualRow) -> list[str]:
    took = f"{one.took_s:,.1f}" + ("" if one.report.fits else " (no fit)")
    return [took, f"{len(one.report.rounds)}", f"{one.brokers}", f"{one.worst_p99_ms:.3g}"]


def _line(ours: VirtualRow, papers: VirtualRow) -> str:
    return (
        f"groups of {ours.group}: {ours.took_s:.1f} s on {ours.brokers} brokers, as in the paper {papers.took_s:.0f} s "
        f"on {papers.brokers} ({PAPER_S[ours.group]} s printed)"
    )

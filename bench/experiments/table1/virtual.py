"""Table 1 of the paper in virtual time: the same fittings over simulated brokers, both ways beside each other.

The arithmetic of the fittings is the distributor's own; the brokers are exact buckets and single servers
(``bench.simulation.fleet``). What a real machine adds (moves that take longer, stalls) is not here: ``table1`` has it.

The paper's way stops a search where the p99 is anywhere in 80..100 % of the promise. Where one member of a group more
makes that a fifth longer, few numbers of publishers are inside, and each broker is left short of the last one: its way
is shown on faster brokers too, on which it takes the paper's brokers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bench.experiments.table1.fitted_rows import Table1Options, settings_of
from bench.experiments.table1.rows import (
    BATCH,
    ENVELOPE,
    PAPER,
    PERCENTILE,
    PUBLISHERS,
    RATE_PER_S,
    SEQUENTIAL,
    Row,
    burst_of,
)
from bench.experiments.table1.view import Shown, conditions_of, line, show_and_write
from bench.harness.results.publish import refuse_unpublishable
from bench.simulation.fleet import Fleet, firings, fits_from, grouped_demand
from distributor.fitting.events import Begin, Report, Task
from distributor.fitting.layout_loop import ALWAYS, LayoutLoop
from distributor.fitting.paper import PaperFitting
from distributor.fitting.search import proportional
from srtm.errors import BadInput

BLOCK = "table1-virtual"
FASTER = 8 / 9  # service time of the brokers aside, as a part of the others'
_LONGEST_ROUNDS = 40  # of the paper's way in any row, with room
_LONGEST_S = 900.0  # of ours


def table1_virtual(options: Table1Options, show: Callable[[str], None]) -> bool:
    """Every row all ways; shown, and written where asked for. Whether all are reached. Raises BadInput."""
    _check(options)
    started, rows = time.time(), []
    faster = replace(options, service_us=FASTER * options.service_us)
    for group in options.rows:
        ours, papers = fit_virtually(group, SEQUENTIAL, options), fit_virtually(group, PAPER, options)
        rows += [ours, papers, replace(fit_virtually(group, PAPER, faster), aside=True)]
        show("\n".join(map(line, rows[-3:])))
    settings = {**settings_of(options), "virtual": True}
    conditions = conditions_of(settings, "in virtual time")
    shown = Shown(name=BLOCK, conditions=conditions, rows=rows, settings=settings, seed=options.seed, started=started)
    return show_and_write(shown, show, options.json_file, options.document)


def _check(options: Table1Options) -> None:
    options.check()
    if options.paper_rows:
        text = ",".join(map(str, options.paper_rows))
        raise BadInput("paper-rows", text, "must not be given with --virtual, which takes the paper's way for all rows")
    if options.realtime:
        raise BadInput("realtime", "true", "must be false with --virtual: no machine takes part")
    if options.resume:
        raise BadInput("resume", "true", "must be false with --virtual, which takes no minute")
    refuse_unpublishable(options.document)


def fit_virtually(group: int, method: str, options: Table1Options) -> Row:
    demand = grouped_demand(PUBLISHERS, group, RATE_PER_S, ENVELOPE, burst_of(group))
    longest_s = _LONGEST_ROUNDS * options.rounds_s if method == PAPER else _LONGEST_S
    groups, fires_per_s = -(-PUBLISHERS // group), RATE_PER_S / BATCH
    traffic = firings(groups, fires_per_s, "staggered", longest_s + options.after_s, options.seed)
    service_ns, target_ns = round(options.service_us * 1e3), round(options.promise_ms * 1e6)
    brokers = {f"broker-{at}": service_ns for at in range(1, options.brokers + 1)}
    fleet = Fleet(demand, BATCH, traffic, brokers, percentile=PERCENTILE, target_ns=target_ns)
    task = Task(demand=demand, percentile=PERCENTILE, target_ns=target_ns)
    report = _fit(fleet, Begin(task=task, brokers=fleet.capacities, split=proportional), method, options)
    return _row(group, method, report, _worst_p99_ms(fleet, report, options.after_s), options)


def _fit(fleet: Fleet, begin: Begin, method: str, options: Table1Options) -> Report:
    if method == PAPER:
        paper = PaperFitting(round_ns=round(options.rounds_s * 1e9))
        return fleet.fit(paper, paper.handle(begin, fleet.now_ns))
    loop = LayoutLoop(ALWAYS)
    return fleet.fit(loop, fits_from(loop, begin, fleet.now_ns))


def _worst_p99_ms(fleet: Fleet, report: Report, after_s: float) -> float | None:
    """Of the layout that was found, if any was."""
    found = fleet.measured(report.layout, after_s).values() if report.fits else ()
    heard = bool(found) and all(one.count for one in found)
    return max(one.total_ns for one in found) / 1e6 if heard else None


def _row(group: int, method: str, report: Report, worst_p99_ms: float | None, options: Table1Options) -> Row:
    at = report.layout.placement
    publishers = np.bincount(at[at >= 0], minlength=len(report.layout.brokers))
    return Row(
        group=group,
        method=method,
        state="fits" if report.fits else "does not fit",
        certain=report.certain,
        took_s=report.took_ns / 1e9,
        rounds=tuple((len(one.layout.brokers), (one.ended_ns - one.started_ns) / 1e9) for one in report.rounds),
        assigned=tuple((RATE_PER_S * publishers).tolist()),
        worst_p99_ms=worst_p99_ms,
        service_us=options.service_us,
        promise_ms=options.promise_ms,
    )

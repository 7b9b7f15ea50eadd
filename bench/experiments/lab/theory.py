"""What real brokers did, beside what is said of them: the simulator's p99s, in all and of access and processing apart,
and Eq. (1)'s mean. A row for each run of a point, and one that stands for them all: one run on a machine that others
use too says little."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median_high, median_low

from bench.experiments.lab.figure import Row
from bench.experiments.lab.layouts import Envelope, ms
from bench.harness.results.batch_means import controlled_mean_of, mean_of
from bench.harness.results.verdict import Check
from bench.simulation.brokers import Machine, Tail, worst
from bench.simulation.calibration import CLOSE, apart
from bench.simulation.recorded import Recorded
from bench.simulation.traffic import Fleet
from srtm.token_bucket.poisson import delayed_part, exact_mean_delay_s
from srtm.token_bucket.replay import access_delays
from srtm.units import MICRO

KINDS = {"": "p99", "access_": "access p99", "processing_": "processing p99"}
CLOSELY = 0.05  # of a mean
_OF_MEANT = ("meant_mean_ms", "exact_mean_ms", "controlled_mean_ms", "controlled_half_ms", "closely_s")


def tails(recorded: Recorded, machine: Machine, seed: int) -> Row:
    """Of the broker with the largest p99, measured, and what the simulator has for the access and the processing of the
    same; ``simulated_p99_ms`` is of the broker with the largest, simulated."""
    replayed = recorded.replayed(machine, seed)
    seen = [Tail.of([part.measured]) for part in recorded.parts]
    at = max(range(len(seen)), key=lambda part: seen[part].p99_ns)
    measured, same, largest = seen[at], Tail.of([replayed[at]]), worst(replayed)
    return {
        "p99_ms": ms(measured.p99_ns),
        "simulated_p99_ms": ms(largest.p99_ns),
        "off": apart(largest.p99_ns, measured.p99_ns),
        "access_p99_ms": ms(measured.access_p99_ns),
        "simulated_access_p99_ms": ms(same.access_p99_ns),
        "access_off": apart(same.access_p99_ns, measured.access_p99_ns),
        "processing_p99_ms": ms(measured.processing_p99_ns),
        "simulated_processing_p99_ms": ms(same.processing_p99_ns),
        "processing_off": apart(same.processing_p99_ns, measured.processing_p99_ns),
    }


def close_enough(rows: Sequence[Row]) -> list[Check]:
    """Of all points."""
    found = []
    for kind, what in KINDS.items():
        near = sum(row[f"{kind}off"] <= CLOSE for row in rows)
        bound = f"{len(rows)}, within {100 * CLOSE:g} %"
        found.append(Check(f"points whose {what} the simulator told", f"{near}", bound, near == len(rows)))
    return found


def means(runs: Sequence[Recorded], fleet: Fleet, bucket: Envelope, seconds: float) -> Row:
    """The mean access delay over all ``runs`` of a point, and Eq. (1)'s. ``meant_mean_ms``: of the same messages, had
    each arrived when it was meant to be sent; ``controlled_mean_ms``: the mean with what these had by chance taken off,
    as far more messages would show it; None where Eq. (1) says nothing, or not of one bucket. ``closely_s``: of
    measuring, until that is known as closely as ``CLOSELY`` of Eq. (1)."""
    parts = [part.measured.access_ns for run in runs for part in run.parts]
    mean = mean_of(parts)
    brokers = len(runs[0].parts)
    theory = theory_ms(fleet, bucket, brokers)
    row: Row = {
        "access_mean_ms": mean.value / 1e6,
        "access_mean_half_ms": mean.half / 1e6,
        "access_seen": mean.seen,
        "theory_mean_ms": theory,
    }
    meant = [run.intended_ns for run in runs if run.intended_ns is not None]
    if theory is None or brokers != 1 or len(meant) < len(runs):
        return {**row, **dict.fromkeys(_OF_MEANT)}
    delays = [access_delays(one, bucket.rate_micro, bucket.burst_micro) for one in meant]
    exact_s = exact_mean_delay_s(fleet.load, bucket.rate_micro / MICRO, bucket.burst_micro // MICRO)
    controlled = controlled_mean_of(parts, delays, expected=exact_s * 1e9)
    half_ms = controlled.half / 1e6
    return {
        **row,
        "meant_mean_ms": mean_of(delays).value / 1e6,
        "exact_mean_ms": exact_s * 1e3,
        "controlled_mean_ms": controlled.value / 1e6,
        "controlled_half_ms": half_ms,
        "closely_s": len(runs) * seconds * (half_ms / (CLOSELY * theory)) ** 2,
    }


def theory_ms(fleet: Fleet, bucket: Envelope, k: int) -> float | None:
    """``eq1_ms``; None where messages depend on each other."""
    if (fleet.process, fleet.batch, fleet.group_size) != ("poisson", 1, 1):
        return None
    return eq1_ms(fleet, bucket, k)


def eq1_ms(fleet: Fleet, bucket: Envelope, k: int) -> float:
    """Eq. (1) for each of ``k`` equal parts of independent Poisson messages; of a token at least."""
    load, rate, burst = (value / k for value in (fleet.load, bucket.rate_micro / MICRO, bucket.burst_micro / MICRO))
    return 1_000 * _delayed_part(load / rate, max(1.0, burst)) / (2 * (rate - load))


def _delayed_part(ratio: float, burst: float) -> float:
    """P(U > b - 1) for any ``burst`` >= 1, by the law of M/D/1 in which every term is positive (Franx 2001): with
    k - 1 <= x < k, P(U <= x) is the chance that at most k - j are there, if j come in the k - x to come."""
    free = burst - 1
    most = math.floor(free) + 1
    come = ratio * (most - free)
    chances = (math.exp(-come) * come**j / math.factorial(j) for j in range(most))
    return 1.0 - sum(chance * (1.0 - delayed_part(ratio, most - j + 1)) for j, chance in enumerate(chances))


def medians(rows: Sequence[Row]) -> Row:
    """The run with the median p99, but each p99, measured and simulated, and by how much the simulated one is off in a
    run the median of all runs: of an even number the lower p99, and the larger distance. Beside them between which
    p99s the runs are, and in how many all three are close."""
    ordered = sorted(rows, key=lambda row: row["p99_ms"])
    found = {**ordered[(len(rows) - 1) // 2]}
    for kind in KINDS:
        found |= {key: median_low([row[key] for row in rows]) for key in (f"{kind}p99_ms", f"simulated_{kind}p99_ms")}
        found[f"{kind}off"] = median_high([row[f"{kind}off"] for row in rows])
    lowest, highest = ordered[0]["p99_ms"], ordered[-1]["p99_ms"]
    close = sum(all(row[f"{kind}off"] <= CLOSE for kind in KINDS) for row in rows)
    spread = f"{lowest:.3g} to {highest:.3g}" if len(rows) > 1 else ""
    return {**found, "p99_of_runs": spread, "close_runs": f"{close} of {len(rows)}"}

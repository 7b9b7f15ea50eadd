from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.experiments.lab.figure import Row
from bench.experiments.lab.layouts import Envelope
from bench.experiments.lab.theory import close_enough, eq1_ms, means, medians, tails
from bench.simulation.brokers import Ints, Machine, Share
from bench.simulation.calibration import CLOSE
from bench.simulation.recorded import Part, Recorded
from bench.simulation.traffic import SECOND_NS, Fleet
from srtm.token_bucket.poisson import mean_delay_s
from srtm.token_bucket.replay import access_delays
from srtm.units import MICRO

FLEET = Fleet(count=1_000)
RATE = 11_000 * MICRO
MACHINE = Machine(message_ns=10_000)


def part_of(arrival_ns: Ints, share: Share, processing_ns: int = 10_000) -> Part:
    access_ns = access_delays(arrival_ns, *share)
    return Part(
        share=share,
        batch=1,
        publishers=1_000,
        arrival_ns=arrival_ns,
        access_ns=access_ns,
        processing_ns=np.full_like(access_ns, processing_ns),
        first=0,
    )


def poisson(seconds: float, seed: int) -> Ints:
    instants = FLEET.arrivals(np.zeros(FLEET.count, dtype=np.int64), 1, seconds, np.random.default_rng(seed))[0]
    return instants - instants[0]


def recorded(parts: list[Part], intended_ns: Ints | None = None) -> Recorded:
    return Recorded(parts=parts, cpu_us=1.0, reasons=[], intended_ns=intended_ns)


def test_access_and_processing_are_told_apart_of_the_broker_that_is_worst() -> None:
    quiet, busy = part_of(poisson(2.0, 1), (RATE, 90 * MICRO)), part_of(poisson(2.0, 2), (RATE, MICRO), 200_000)
    row = tails(recorded([quiet, busy]), MACHINE, seed=1)
    assert row["access_p99_ms"] == row["simulated_access_p99_ms"] > 0.5
    assert row["access_off"] == 0.0
    assert row["processing_p99_ms"] == 0.2
    assert row["processing_off"] == pytest.approx(1 - row["simulated_processing_p99_ms"] / 0.2)
    assert row["off"] < CLOSE < row["processing_off"], "together they hide what apart they show"


def test_each_kind_has_a_check_of_its_own() -> None:
    rows = [
        {"off": 0.0, "access_off": 0.0, "processing_off": 0.2},
        {"off": 0.1, "access_off": 0.0, "processing_off": 0},
    ]
    checks = {check.what: (check.measured, check.kept) for check in close_enough(rows)}
    assert checks == {
        "points whose p99 the simulator told": ("2", True),
        "points whose access p99 the simulator told": ("2", True),
        "points whose processing p99 the simulator told": ("1", False),
    }


def test_the_mean_of_all_runs_stands_beside_eq_1_with_what_the_planned_instants_would_have_given() -> None:
    bucket = Envelope(rate_micro=RATE, burst_micro=MICRO)
    runs = []
    for seed in (1, 2, 3):
        meant = poisson(20.0, seed)
        late = np.sort(meant + np.where(np.arange(len(meant)) % 100 < 30, 2_000_000, 0))  # some bunched together
        runs.append(recorded([part_of(late, (RATE, MICRO))], meant + 5 * SECOND_NS))
    row = means(runs, FLEET, bucket, 20.0)
    assert row["theory_mean_ms"] == pytest.approx(0.4545, abs=1e-4)
    assert row["meant_mean_ms"] == pytest.approx(row["theory_mean_ms"], rel=0.1)
    assert row["access_mean_ms"] > row["meant_mean_ms"] + row["access_mean_half_ms"]
    late_ms = row["access_mean_ms"] - row["meant_mean_ms"]
    assert row["controlled_mean_ms"] - row["exact_mean_ms"] == pytest.approx(late_ms), "lateness is not chance"
    assert row["controlled_half_ms"] < 0.5 * row["access_mean_half_ms"]
    wanted = 60 * (row["controlled_half_ms"] / (0.05 * row["theory_mean_ms"])) ** 2
    assert row["closely_s"] == pytest.approx(wanted)


def test_nothing_is_meant_where_eq_1_says_nothing_or_the_instants_were_not_kept() -> None:
    bucket = Envelope(rate_micro=RATE, burst_micro=MICRO)
    run = recorded([part_of(poisson(1.0, 1), (RATE, MICRO))])
    assert means([run], FLEET, bucket, 1.0)["meant_mean_ms"] is None
    grouped = means([run], replace(FLEET, batch=10), bucket, 1.0)
    assert grouped["theory_mean_ms"] is grouped["meant_mean_ms"] is grouped["closely_s"] is None
    assert grouped["access_mean_ms"] > 0


def run(seed: int, p99_ms: float, processing_p99_ms: float) -> Row:
    return {
        "seed": seed,
        "p99_ms": p99_ms,
        "simulated_p99_ms": 2.2,
        "off": abs(2.2 - p99_ms) / p99_ms,
        "access_p99_ms": p99_ms / 2,
        "simulated_access_p99_ms": p99_ms / 2,
        "access_off": 0.0,
        "processing_p99_ms": processing_p99_ms,
        "simulated_processing_p99_ms": 0.5,
        "processing_off": abs(0.5 - processing_p99_ms) / processing_p99_ms,
    }


def test_medians_over_all_runs_stand_for_a_point_each_kind_apart() -> None:
    runs = [run(0, 3.0, 0.5), run(1, 1.0, 0.4), run(2, 2.0, 5.0)]
    row = medians(runs)
    assert (row["seed"], row["p99_ms"], row["p99_of_runs"]) == (2, 2.0, "1 to 3")
    assert (row["processing_p99_ms"], row["processing_off"]) == (0.5, pytest.approx(0.25)), "a stop is not the point's"
    assert (row["access_p99_ms"], row["access_off"]) == (1.0, 0.0)
    assert row["off"] == pytest.approx(0.8 / 3), "of the runs' own distances the median"
    assert row["close_runs"] == "0 of 3"
    assert medians(runs[:2])["p99_ms"] == 1.0
    assert medians(runs[:2])["off"] == pytest.approx(1.2), "of two the larger"
    alone = medians(runs[2:])
    assert (alone["p99_of_runs"], alone["processing_off"]) == ("", pytest.approx(0.9))
    assert medians([run(0, 2.2, 0.5), run(1, 2.2, 5.0)])["close_runs"] == "1 of 2"


def test_eq_1_takes_the_parts_of_a_burst_as_they_are() -> None:
    bucket = Envelope(rate_micro=RATE, burst_micro=25 * MICRO)
    found = [eq1_ms(FLEET, bucket, k) for k in range(1, 7)]
    assert found == pytest.approx([0.005195, 0.1085, 0.3558, 0.7013, 1.1085, 1.5555], rel=1e-3)
    # Of whole parts it is the formula for whole bursts.
    assert found[4] == pytest.approx(1e3 * mean_delay_s(2_000, 2_200, 5))


def test_a_part_between_two_whole_bursts_waits_as_long_as_buckets_do() -> None:
    bucket = Envelope(rate_micro=RATE, burst_micro=5 * MICRO // 2)  # 2.5 tokens
    delays = access_delays(poisson(60.0, 4), bucket.rate_micro, bucket.burst_micro)
    assert delays.mean() / 1e6 == pytest.approx(eq1_ms(FLEET, bucket, 1), rel=0.05)

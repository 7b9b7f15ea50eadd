from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.experiments.lab.layouts import (
    LAB_US,
    PAPER,
    Envelope,
    Kind,
    Result,
    by_rate,
    drawn,
    envelope,
    fewest,
    loads_of,
    mcap,
    placed,
    residual,
    run,
    split,
)
from bench.simulation.brokers import Delays, Machine, Tail, simulate
from bench.simulation.calibration import calibrated
from bench.simulation.traffic import Fleet
from srtm.units import MICRO

GROUPED = Fleet(count=120, batch=10, group_size=12)


def heads(placement: np.ndarray, k: int) -> list[int]:  # type: ignore[type-arg]
    return np.bincount(placement, minlength=k).tolist()


@pytest.mark.parametrize("strategy", ["lb", "conc", "maxmin", "srtm"])
def test_on_idle_brokers_every_strategy_gives_equal_parts(strategy: str) -> None:
    assert heads(placed(GROUPED, strategy, 4, seed=3), 4) == [30, 30, 30, 30]


def test_only_srtm_spreads_every_group() -> None:
    def largest(strategy: str) -> int:
        placement = placed(GROUPED, strategy, 4, seed=3)
        return max(max(heads(placement[GROUPED.groups == group], 4)) for group in range(10))

    assert largest("srtm") == 3
    assert largest("maxmin") > 3


def test_beside_existing_load_conc_levels_totals_and_maxmin_the_parts_of_the_topic() -> None:
    before = [0.0, 300.0, 600.0]
    assert heads(placed(GROUPED, "conc", 3, 1, before), 3) == [70, 40, 10]
    assert heads(placed(GROUPED, "maxmin", 3, 1, before), 3) == [40, 40, 40]


def test_no_broker_is_filled_above_its_capacity_while_another_has_room() -> None:
    assert heads(placed(GROUPED, "maxmin", 3, 1, [0.0, 300.0, 600.0], most=700.0), 3) == [70, 40, 10]
    assert sum(heads(placed(GROUPED, "maxmin", 2, 1, [600.0, 600.0], most=700.0), 2)) == 120


def test_shares_sum_to_the_bucket_and_follow_the_rates() -> None:
    bucket = envelope(GROUPED)
    placement = np.array([0] * 90 + [2] * 30)
    shares = split(GROUPED, placement, 3, bucket)
    assert shares[1] == (0, 0)
    assert [sum(column) for column in zip(*shares, strict=True)] == [bucket.rate_micro, bucket.burst_micro]
    assert shares[0][0] == 3 * shares[2][0]


def test_the_bucket_is_that_of_section_6() -> None:
    bucket = envelope(Fleet(count=1_000))
    assert bucket.rate_micro == 11_000 * MICRO
    assert 23 * MICRO <= bucket.burst_micro <= 27 * MICRO  # 25 by Eq. (1)


@pytest.mark.parametrize("fleet", [Fleet(count=100, batch=10), Fleet(count=120, batch=10, group_size=30)])
def test_one_bucket_delays_nothing_at_p99_of_the_traffic_it_was_sized_for_and_one_token_less_does(fleet: Fleet) -> None:
    bucket = envelope(fleet, 20.0, seed=3)

    def access_p99_ns(burst_micro: int) -> int:
        everybody = np.zeros(fleet.count, dtype=np.int64)
        shares = [(bucket.rate_micro, burst_micro)]
        return Tail.of(simulate(fleet, everybody, shares, PAPER, seconds=20.0, seed=3)).access_p99_ns

    assert access_p99_ns(bucket.burst_micro) == 0 < access_p99_ns(bucket.burst_micro - MICRO)


def test_periodic_publishers_are_measured_with_the_phases_that_they_were_profiled_with() -> None:
    periodic = Fleet(count=10, process="periodic")
    assert drawn(periodic, 7) == replace(periodic, phase_seed=7)
    assert drawn(GROUPED, 7) == GROUPED


def result(k: int, p99_ns: int) -> Result:
    delays = Delays(access_ns=np.array([p99_ns]), processing_ns=np.array([0]))
    bucket = Envelope(rate_micro=11 * MICRO, burst_micro=10 * MICRO)
    return Result(k=k, bucket=bucket, loads=[10.0], parts=[delays], pooled=Tail.of([delays]), worst=Tail.of([delays]))


def test_a_broker_that_got_nobody_is_not_used() -> None:
    found = run(GROUPED, "conc", 3, 5.0, 1, before=[Fleet(count=load) for load in (10, 20, 900)])
    assert [len(part.access_ns) > 0 for part in found.parts] == [True, True, False]
    assert found.used == found.parts[:2]
    assert sum(found.loads) == GROUPED.load
    assert found.loads[2] == 0


def test_what_is_there_already_counts_in_a_brokers_capacity() -> None:
    machine = Machine(message_ns=0, firing_ns=100_000)
    alone = mcap(Kind.of(Fleet(count=1)), machine=machine, seconds=2.0)
    beside = mcap(Kind.of(Fleet(count=1)), Fleet(count=200), machine, seconds=2.0)
    assert beside == pytest.approx(alone, rel=0.03)


def test_a_broker_that_no_load_leaves_within_the_slo_keeps_nothing() -> None:
    slow = Machine(message_ns=0, firing_ns=2_000_000)
    assert mcap(Kind.of(Fleet(count=1)), machine=slow, seconds=2.0) == 0
    assert mcap(Kind.of(Fleet(count=1)), Fleet(count=20), slow, seconds=2.0) == 200


def test_a_part_under_srtm_has_an_equal_part_of_every_group_and_else_what_chance_leaves() -> None:
    fleet = Fleet(count=600, process="periodic", batch=10, group_size=12, noise_ns=5, phase_seed=9)
    even, blind = Kind.of(fleet, "srtm", 5), Kind.of(fleet, "maxmin", 5)
    assert (even.one.group_size, even.scattered) == (3, 1)
    assert (blind.one.group_size, blind.scattered) == (12, 5)
    assert Kind.of(fleet, "srtm", 12).one.group_size == 1
    assert Kind.of(fleet, "srtm", 1) == Kind.of(fleet, "maxmin", 1)
    assert Kind.of(replace(fleet, group_size=1), "maxmin", 5).scattered == 1

    drawn_fleet, placement = blind.drawn(load=10_000.0)
    members = np.bincount(drawn_fleet.groups[placement == 0])
    assert (placement == 0).sum() == pytest.approx(1_000, rel=0.1)
    assert members.max() > 12 / 5 > members.min()


BROKER = Machine(message_ns=1_000, firing_ns=0, lab_ns=9_000)


def left(strategy: str, k: int, fleet: Fleet = GROUPED, before: tuple[Fleet, ...] = ()) -> float:
    placement = placed(fleet, strategy, k, 1, [other.load for other in before])
    return residual(fleet, strategy, loads_of(fleet, placement, k), before, BROKER)


@pytest.mark.slow
def test_what_brokers_could_still_take_is_what_each_keeps_of_such_traffic_less_what_it_has() -> None:
    alone = Fleet(count=1_000)
    keeps = mcap(Kind.of(alone), machine=BROKER)
    assert left("lb", 1, alone) == left("lb", 6, alone) == pytest.approx(6 * keeps - 10_000)
    beside = mcap(Kind.of(alone), alone, BROKER)
    assert left("conc", 2, alone, (alone,)) == pytest.approx(beside + 5 * keeps - 20_000)


@pytest.mark.slow
def test_a_broker_with_more_than_it_keeps_leaves_nothing_and_takes_nothing_from_the_others() -> None:
    many = Fleet(count=20_000)
    assert left("lb", 1, many) == pytest.approx(5 * mcap(Kind.of(many), machine=BROKER))


@pytest.mark.slow
def test_groups_that_are_spread_over_more_brokers_leave_more_and_more_where_nobody_is_blind() -> None:
    together, spread, blind = (left(*one) for one in (("srtm", 1), ("srtm", 4), ("maxmin", 4)))
    assert together < blind < spread


def test_the_fewest_brokers_that_keep_the_slo_are_taken_and_else_the_best() -> None:
    by_k = {1: 3_000_000, 2: 900_000, 3: 100_000}
    assert fewest(lambda k: result(k, by_k[k]), 1, 3).k == 2
    assert fewest(lambda k: result(k, by_k[k] * 100), 1, 3).k == 3


def test_brokers_are_counted_by_the_room_that_they_have() -> None:
    assert by_rate(80.0, [50.0, 20.0, 10.0, 5.0]) == 3
    assert by_rate(80.1, [50.0, 20.0, 10.0, 5.0]) == 4
    assert by_rate(1_000.0, [50.0, 20.0]) == 2


def test_the_papers_brokers_are_as_its_text_has_them() -> None:
    assert PAPER.capacity(batch=1, publishers=6_000) < 60_000  # Fig. 6b, k = 1
    assert PAPER.capacity(batch=10, publishers=8_000) > 80_000  # Fig. 8, what broker 6 has already


def test_the_brokers_of_the_figures_are_the_calibrated_ones_without_the_stops_of_their_machine() -> None:
    whole = calibrated().laboratory(LAB_US)
    assert replace(PAPER, paths=whole.paths) == whole
    for ours, all_of_it in ((PAPER.paths.single, whole.paths.single), (PAPER.paths.batched, whole.paths.batched)):
        assert ours.at_once == tuple(sorted(all_of_it.at_once)[: len(ours.at_once)])
        assert ours.waited == tuple(sorted(all_of_it.waited)[: len(ours.waited)])
        assert len(ours.at_once) == len(ours.waited) == 0.99 * len(all_of_it.waited)

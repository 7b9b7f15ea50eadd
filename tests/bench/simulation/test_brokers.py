from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.simulation.brokers import Delays, Machine, Tail, simulate, worst
from bench.simulation.traffic import SECOND_NS, Fleet
from distributor.prediction.replay import sojourn_ns
from srtm._native import Station
from srtm.token_bucket.replay import NEVER_NS, access_delays
from srtm.units import MICRO

ONE = np.zeros(1_000, dtype=np.int64)
PLENTY = (10**9 * MICRO, 10**6 * MICRO)

arrivals = st.lists(st.integers(0, 5_000_000), min_size=1, max_size=60).map(np.cumsum)


def passed(station: Station, arrival_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    access, processing = station.run(np.ascontiguousarray(arrival_ns, dtype=np.int64).data)
    return np.frombuffer(access, dtype=np.int64), np.frombuffer(processing, dtype=np.int64)


@given(arrivals, st.integers(0, 3_000), st.integers(0, 20), st.integers(0, 3_000_000))
def test_a_station_delays_as_the_replay_and_one_server_do(
    arrival_ns: np.ndarray,  # type: ignore[type-arg]
    rate: int,
    burst: int,
    service_ns: int,
) -> None:
    access_ns, processing_ns = passed(Station(rate * MICRO, burst * MICRO, [service_ns]), arrival_ns)
    expected = access_delays(arrival_ns, rate * MICRO, burst * MICRO)
    assert np.array_equal(access_ns, expected)
    let_go = expected != NEVER_NS
    due_ns = arrival_ns[let_go] + expected[let_go]
    assert np.array_equal(processing_ns[let_go], sojourn_ns(due_ns, np.full(len(due_ns), service_ns)))


@given(arrivals, st.integers(1, 59))
def test_a_station_fed_in_two_stretches_is_the_same_as_in_one(
    arrival_ns: np.ndarray,  # type: ignore[type-arg]
    cut: int,
) -> None:
    whole = passed(Station(500 * MICRO, 3 * MICRO, [1, 2_000, 900_000], 2, seed=5), arrival_ns)
    station = Station(500 * MICRO, 3 * MICRO, [1, 2_000, 900_000], 2, seed=5)
    parts = [passed(station, arrival_ns[:cut]), passed(station, arrival_ns[cut:])]
    for column in (0, 1):
        assert np.array_equal(whole[column], np.concatenate([part[column] for part in parts]))


@pytest.mark.parametrize(
    ("service_ns", "servers", "field"), [([], 1, "service_ns"), ([-1], 1, "service_ns"), ([1], 0, "servers")]
)
def test_a_station_that_makes_no_sense_is_refused_by_name(service_ns: list[int], servers: int, field: str) -> None:
    with pytest.raises(ValueError, match=f"{field}: "):
        Station(MICRO, MICRO, service_ns, servers)


def test_one_server_of_poisson_messages_waits_as_long_as_theory_says() -> None:
    """Pollaczek and Khinchine: with constant service times s, the mean wait is s * rho / (2 (1 - rho))."""
    machine = Machine(message_ns=50_000)
    (part,) = simulate(Fleet(count=1_000), ONE, [PLENTY], machine, seconds=100.0, seed=1)
    expected_ns = 50_000 * 0.5 / (2 * (1 - 0.5)) + 50_000
    assert part.processing_ns.mean() == pytest.approx(expected_ns, rel=0.03)
    assert (part.access_ns == 0).all()


def test_a_message_takes_longer_alone_than_in_a_batch_and_among_many_connections() -> None:
    machine = Machine(message_ns=10_000, firing_ns=5_000, connection_ns=2.0)
    assert machine.mean_ns(batch=1, publishers=1_000) == 17_000
    assert machine.mean_ns(batch=10, publishers=1_000) == 12_500
    assert machine.capacity(batch=1, publishers=0) == pytest.approx(SECOND_NS / 15_000)


def test_load_that_was_there_shares_the_servers_and_not_the_bucket() -> None:
    fleet, machine = Fleet(count=1_000), Machine(message_ns=50_000)
    alone = simulate(fleet, ONE, [PLENTY], machine, seconds=20.0, seed=1)
    beside = simulate(fleet, ONE, [PLENTY], machine, seconds=20.0, seed=1, before=[Fleet(count=800)])
    assert len(alone[0].access_ns) == len(beside[0].access_ns)
    assert (beside[0].access_ns == alone[0].access_ns).all()
    assert Tail.of(beside).processing_p99_ns > 2 * Tail.of(alone).processing_p99_ns


def test_the_laboratorys_server_follows_the_brokers_own() -> None:
    """Twice as long as theirs, it alone makes messages wait: what they took before comes on top."""
    fleet, own = Fleet(count=1_000), Machine(message_ns=20_000)
    (behind,) = simulate(fleet, ONE, [PLENTY], replace(own, lab_ns=40_000), seconds=20.0, seed=1)
    (alone,) = simulate(fleet, ONE, [PLENTY], Machine(message_ns=40_000), seconds=20.0, seed=1)
    assert np.array_equal(behind.processing_ns, alone.processing_ns + 20_000)
    assert replace(own, lab_ns=40_000).capacity(batch=1, publishers=0) == 25_000


def test_load_that_was_there_goes_through_the_laboratory_too() -> None:
    fleet, lab = Fleet(count=1_000), Machine(message_ns=0, lab_ns=50_000)
    same = Machine(message_ns=50_000)
    one, other = (
        simulate(fleet, ONE, [PLENTY], machine, seconds=5.0, seed=1, before=[Fleet(count=800)])[0]
        for machine in (lab, same)
    )
    assert np.array_equal(one.processing_ns, other.processing_ns)


def test_the_start_of_a_run_is_not_counted() -> None:
    fleet = Fleet(count=1_000, process="periodic")
    (part,) = simulate(fleet, ONE, [PLENTY], Machine(message_ns=1), seconds=10.0, seed=1)
    assert len(part.access_ns) == 90_000


def test_the_worst_broker_is_the_one_with_the_largest_p99_and_an_idle_one_is_none() -> None:
    slow, fast = (Delays(access_ns=np.full(10, ns), processing_ns=np.zeros(10, dtype=np.int64)) for ns in (9, 1))
    assert worst([fast, Delays(), slow]).p99_ns == 9
    assert worst([Delays()]).count == 0


def test_a_message_that_no_token_comes_for_takes_for_ever() -> None:
    (part,) = simulate(Fleet(count=1_000), ONE, [(0, 0)], Machine(message_ns=1), seconds=1.0, seed=1)
    assert Tail.of([part]).p50_ns == Station.NEVER_NS

from __future__ import annotations

import numpy as np
import pytest

from bench.simulation.traffic import SECOND_NS, Fleet

EVERYBODY_ON_ONE = 1


def on_one(fleet: Fleet, seconds: float = 20.0, seed: int = 1) -> np.ndarray:  # type: ignore[type-arg]
    placement = np.zeros(fleet.count, dtype=np.int64)
    return fleet.arrivals(placement, EVERYBODY_ON_ONE, seconds, np.random.default_rng(seed))[0]


FLEETS = [
    Fleet(count=60, rate=10, process=process, batch=batch, group_size=group_size, noise_ns=noise_ns)
    for process in ("poisson", "periodic")
    for batch in (1, 10)
    for group_size, noise_ns in ((1, 0), (7, 0), (7, 5_000_000))
]


@pytest.mark.parametrize("fleet", FLEETS, ids=str)
def test_a_fleet_sends_its_rate_in_order_within_the_time(fleet: Fleet) -> None:
    arrival_ns = on_one(fleet, seconds=200.0)
    assert (np.diff(arrival_ns) >= 0).all()
    assert arrival_ns[0] >= 0
    assert arrival_ns[-1] < 200 * SECOND_NS + fleet.noise_ns
    assert len(arrival_ns) == pytest.approx(fleet.load * 200, rel=0.1)


@pytest.mark.parametrize("fleet", FLEETS, ids=str)
def test_messages_come_in_whole_batches(fleet: Fleet) -> None:
    _, counts = np.unique(on_one(fleet), return_counts=True)
    assert (counts % fleet.batch == 0).all()


def test_members_of_a_group_fire_together_wherever_they_are() -> None:
    fleet = Fleet(count=20, group_size=10)
    placement = np.arange(20) % 2
    left, right = fleet.arrivals(placement, 2, 20.0, np.random.default_rng(1))
    assert np.array_equal(left, right)
    assert len(left)


@pytest.mark.parametrize("fleet", FLEETS, ids=str)
def test_what_all_send_together_does_not_depend_on_where_they_are(fleet: Fleet) -> None:
    parts = fleet.arrivals(np.arange(fleet.count) % 3, 3, 20.0, np.random.default_rng(1))
    assert np.array_equal(np.sort(np.concatenate(parts)), on_one(fleet))
    assert min(len(part) for part in parts) > fleet.load * 20 / 6


def test_the_firings_of_a_noisy_group_are_spread_evenly() -> None:
    fleet = Fleet(count=5, rate=1, group_size=5, noise_ns=8_000_000, process="periodic")
    first = on_one(fleet, seconds=1.0)
    assert (np.diff(first) == 2_000_000).all()


def test_periodic_publishers_keep_their_phases_while_everything_else_is_drawn_anew() -> None:
    fleet = Fleet(count=30, process="periodic")
    assert np.array_equal(on_one(fleet, seed=1), on_one(fleet, seed=2))
    other = Fleet(count=30, process="periodic", phase_seed=2)
    assert not np.array_equal(on_one(fleet), on_one(other))


def test_whoever_is_nowhere_sends_nothing() -> None:
    for group_size in (1, 3):
        fleet = Fleet(count=9, group_size=group_size)
        parts = fleet.arrivals(np.full(9, -1), 2, 10.0, np.random.default_rng(1))
        assert [len(part) for part in parts] == [0, 0]

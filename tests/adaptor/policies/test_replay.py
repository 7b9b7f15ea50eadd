"""What other shares would have made of the last bins."""

from __future__ import annotations

import numpy as np
import pytest

from adaptor.observations import BIN_S, Bin, Change
from adaptor.policies.replay import BrokerTraffic
from srtm.token_bucket.bucket import TOKEN
from srtm.token_bucket.replay import Server, access_delays
from srtm.units import MICRO

SHARE = (1_000 * MICRO, 20 * MICRO)


def seen(bins: list[Bin], share: tuple[int, int] = SHARE) -> BrokerTraffic:
    traffic = BrokerTraffic()
    for one in bins:
        traffic.add(one, share)
    return traffic


def test_what_never_exceeds_the_burst_waits_for_nothing() -> None:
    assert seen([Bin(50, work=18.0)] * 20).delays_s([SHARE]) == [0.0]


def test_a_clump_inside_a_bin_waits_under_a_smaller_burst_and_the_less_the_higher_the_rate() -> None:
    slow, fast, enough = seen([Bin(50, work=18.0)] * 20).delays_s(
        [(1_000 * MICRO, 8 * MICRO), (2_000 * MICRO, 8 * MICRO), (1_000 * MICRO, 18 * MICRO)]
    )
    assert slow == pytest.approx(0.010)
    assert fast == pytest.approx(0.005)
    assert enough == 0.0


def test_a_rate_below_that_of_arrivals_makes_a_backlog_that_grows() -> None:
    short, long = (seen([Bin(100, work=5.0)] * count).delays_s([(500 * MICRO, 20 * MICRO)]) for count in (10, 100))
    assert long[0] > 5 * short[0] > 0.0


def test_what_came_before_a_change_does_not_count() -> None:
    traffic = seen([Bin(500, work=400.0)] * 20 + [Bin(10, work=1.0)] * 2)
    traffic.begin_anew(Change(arrivals=2, span_s=0.02, mixed=0, known=2))
    assert traffic.delays_s([SHARE]) == [0.0]
    assert traffic.largest_work == 1.0


def test_bins_under_shares_that_are_not_known_are_not_replayed() -> None:
    traffic = BrokerTraffic()
    traffic.add(Bin(500, work=400.0), None)
    assert traffic.delays_s([SHARE]) == [0.0]
    assert traffic.estimate.rate == pytest.approx(5_000.0)


def test_of_two_shares_it_prefers_the_one_under_which_messages_really_waited_less() -> None:
    """Poisson traffic in batches, against the exact bucket."""
    in_force = (1_200 * MICRO, 20 * MICRO)
    shares = [(1_400 * MICRO, 5 * MICRO), (1_150 * MICRO, 60 * MICRO)]
    agreed = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        arrival_ns = np.repeat(np.sort(rng.uniform(0, 10e9, rng.poisson(2_000))).astype(np.int64), 5)
        told = seen(_bins(arrival_ns, in_force), in_force).delays_s(shares)
        exact = [float(np.sqrt(np.mean(access_delays(arrival_ns, *share) ** 2.0))) for share in shares]
        agreed += (told[0] < told[1]) == (exact[0] < exact[1])
    assert agreed >= 18


def _bins(arrival_ns: np.ndarray, share: tuple[int, int]) -> list[Bin]:
    whole, _ = Server(share[0], 0, 0).found(arrival_ns)
    work = whole * share[0] / TOKEN + 1
    number = arrival_ns // round(BIN_S * 1e9)
    starts = [float(work[number < at][-1]) if (number < at).any() else 0.0 for at in range(100)]
    return [
        Bin(
            int((number == at).sum()),
            max(0, round(starts[at] - share[1] / MICRO)),
            float(work[number == at].max(initial=0.0)),
        )
        for at in range(100)
    ]

"""The even split: what arrives, what waits, and a part of the slack."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptor.gdrl.exchange import Supply, exchange
from adaptor.observations import Envelope, Member, Shares
from adaptor.policies.bounds import limits
from adaptor.policies.even_split import Demand, even_split
from srtm.units import MICRO

ENVELOPE = Envelope(rate_micro=1_000 * MICRO, burst_micro=100 * MICRO)
demands = st.lists(
    st.builds(Demand, st.floats(0, 2_000), st.integers(0, 5_000), st.floats(0.1, 30)), min_size=2, max_size=6
)


def split(*demands: Demand) -> Shares:
    members = [Member(name=str(at)) for at in range(len(demands))]
    return even_split(ENVELOPE, limits(ENVELOPE, members, 0.0), demands)


def rates(shares: Shares) -> list[float]:
    return [rate / MICRO for rate, _ in shares]


@given(demands)
def test_shares_sum_to_the_envelope_and_every_broker_keeps_a_token(drawn: list[Demand]) -> None:
    shares = split(*drawn)
    assert sum(rate for rate, _ in shares) == ENVELOPE.rate_micro
    assert sum(burst for _, burst in shares) == ENVELOPE.burst_micro
    assert all(rate > 0 and burst >= MICRO for rate, burst in shares)


def test_the_slack_goes_by_the_root_of_rate_times_dispersion() -> None:
    shares = split(Demand(100.0, 0, 1.0), Demand(400.0, 0, 1.0))
    assert rates(shares) == pytest.approx([100 + 500 / 3, 400 + 1_000 / 3], rel=1e-6)
    assert [burst / MICRO for _, burst in shares] == pytest.approx([100 / 3, 200 / 3], rel=1e-6)


def test_what_waits_is_to_be_gone_in_a_second() -> None:
    none, some = rates(split(Demand(100.0, 0, 1.0), Demand(400.0, 200, 1.0)))
    assert some > 600.0
    assert 100.0 < none < 200.0


def test_where_too_much_waits_arrivals_come_first() -> None:
    assert rates(split(Demand(300.0, 0, 1.0), Demand(400.0, 10_000, 1.0))) == pytest.approx([300.0, 700.0], rel=1e-6)


def test_where_more_comes_than_the_topic_may_all_lack_the_same() -> None:
    assert rates(split(Demand(1_000.0, 0, 1.0), Demand(3_000.0, 0, 1.0))) == pytest.approx([250.0, 750.0], rel=1e-6)


def test_two_brokers_that_have_it_would_exchange_nothing() -> None:
    seen = [Demand(100.0, 0, 2.0), Demand(400.0, 0, 5.0)]
    mine, other = (
        Supply(rate=rate, burst=burst, demand=demand.rate, dispersion=demand.dispersion)
        for (rate, burst), demand in zip(split(*seen), seen, strict=True)
    )
    transfer = exchange("slack", mine, other)
    assert abs(transfer.rate) <= 2
    assert abs(transfer.burst) <= 2

"""GDRL in virtual time: exact, and it goes where the traffic is."""

from __future__ import annotations

import numpy as np

from adaptor.observations import Envelope, Shares
from bench.harness.cluster_runs.recovery import SECOND_NS, Ints
from bench.simulation.gdrl_exchange import Exchanging
from srtm.token_bucket.bucket import conforms_due
from srtm.token_bucket.exact_split import split_bucket
from srtm.topics.adaptation import Adaptation
from srtm.units import MICRO

ENVELOPE = Envelope(rate_micro=1_100 * MICRO, burst_micro=20 * MICRO)
RATES = (100.0, 200.0, 700.0)  # msg/s
ENDS_NS = 4 * SECOND_NS


def arrivals() -> list[Ints]:
    rng = np.random.default_rng(1)
    return [np.sort(rng.integers(0, ENDS_NS, round(rate * ENDS_NS / SECOND_NS))) for rate in RATES]


def exchanged() -> tuple[Exchanging, list[Shares]]:
    """With the shares in force at the end of every bin."""
    start = split_bucket(ENVELOPE.rate_micro, ENVELOPE.burst_micro, [1.0, 1.0, 1.0])
    seen: list[Shares] = []

    class Watched(Exchanging):
        def _advance(self, now_ns: int) -> None:
            seen.append([broker.share for broker in self.brokers])
            super()._advance(now_ns)

    run = Watched(arrivals(), ENVELOPE, start, Adaptation(), seed=1)
    run.run(ENDS_NS)
    return run, seen


def test_shares_never_sum_to_more_than_the_envelope_and_nothing_goes_beyond_it() -> None:
    run, seen = exchanged()
    assert len({tuple(shares) for shares in seen}) > 3
    for shares in seen:
        assert sum(rate for rate, _ in shares) <= ENVELOPE.rate_micro
        assert sum(burst for _, burst in shares) <= ENVELOPE.burst_micro
    due = np.concatenate([broker.log()[1] for broker in run.brokers])
    assert conforms_due(np.sort(due[due < ENDS_NS]).tolist(), ENVELOPE.rate_micro, ENVELOPE.burst_micro) is None


def test_every_broker_ends_with_more_than_comes_to_it() -> None:
    run, _ = exchanged()
    assert all(broker.share[0] / MICRO > rate for broker, rate in zip(run.brokers, RATES, strict=True))
    assert run.messages > 0

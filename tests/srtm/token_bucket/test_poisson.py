from __future__ import annotations

import numpy as np
import pytest

from srtm.token_bucket.poisson import exact_mean_delay_s, mean_delay_s
from srtm.token_bucket.replay import access_delays
from srtm.units import MICRO


@pytest.mark.parametrize("burst", [1, 2, 5, 10])
def test_the_exact_mean_is_that_of_the_exact_bucket(burst: int) -> None:
    gaps_ns = np.random.default_rng(burst).exponential(1e6, 3_000_000)
    delays = access_delays(np.cumsum(gaps_ns).astype(np.int64), 1_100 * MICRO, burst * MICRO)
    assert exact_mean_delay_s(1_000, 1_100, burst) == pytest.approx(delays.mean() / 1e9, rel=0.02)


def test_eq_1_is_exact_for_a_burst_of_one_and_some_per_cent_above_for_others() -> None:
    above = [
        mean_delay_s(10_000, 11_000, burst) / exact_mean_delay_s(10_000, 11_000, burst) - 1 for burst in (1, 5, 25)
    ]
    assert above == pytest.approx([0.0, 0.032, 0.032], abs=0.001)

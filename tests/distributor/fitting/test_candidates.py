"""The layout to try next on a broken promise: who takes publishers off a late broker."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distributor.fitting.candidates import better_layout
from distributor.fitting.layout_model import Model, recording
from distributor.fitting.search import proportional
from distributor.placement.allocation import BrokerCapacity
from distributor.prediction.replay import Trace
from tests.support.layout_loops import SECOND, laid_out, small_task


def fire_together(publishers: Sequence[int], service_ns: int) -> Trace:
    """Once a second, for 20 s."""
    return Trace(
        publisher=np.tile(np.array(publishers), 20),
        arrival_ns=np.repeat(np.arange(20) * SECOND, len(publishers)),
        service_ns=np.full(len(publishers) * 20, service_ns, dtype=np.int64),
    )


def test_where_the_emptiest_broker_is_slow_the_next_takes_publishers() -> None:
    """p99 <= 1 ms: 28 on b0 take 1.12 ms, 24 take 0.96. Each on b1 takes five times as long: 4 take 0.8 ms."""
    task, homes = small_task(), {"b0": range(28), "b1": range(28, 32), "b2": range(32, 40)}
    service_ns = {"b0": 40_000, "b1": 200_000, "b2": 40_000}
    made = recording({name: fire_together(here, service_ns[name]) for name, here in homes.items()})
    assert made is not None
    brokers, model = [BrokerCapacity(name=name, mcap=0.0) for name in homes], Model(task, [made], [])
    found = better_layout(task, laid_out(task, homes), brokers, model, None, proportional, 0.1)
    assert found is not None
    heads = dict(zip(found.layout.brokers, np.bincount(found.layout.placement).tolist(), strict=True))
    assert heads == {"b0": 24, "b1": 4, "b2": 12}

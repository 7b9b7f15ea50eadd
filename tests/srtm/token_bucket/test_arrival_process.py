"""The publishers' process: rates, batches, who fires together."""

from __future__ import annotations

import numpy as np
import pytest

from srtm.token_bucket.arrival_process import sent
from srtm.topics.publishers import Publishers
from srtm.topics.spec import parse_topic_json


def fleet(*blocks: dict[str, object]) -> Publishers:
    numbered = [{"id_prefix": f"{at}-", **block} if "count" in block else block for at, block in enumerate(blocks)]
    document = {"name": "t", "rate": 1e6, "burst": 10, "slo": {"percentile": 99, "latency_ms": 1}}
    return parse_topic_json({**document, "publishers": numbered}).publishers


def counts(publishers: Publishers, seconds: float = 400.0) -> np.ndarray:
    return np.bincount(sent(publishers, seconds, 1).publisher, minlength=len(publishers))


@pytest.mark.parametrize("process", ["poisson", "periodic"])
@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize("group_size", [1, 4])
def test_every_publisher_sends_at_its_rate_whatever_its_group_and_batch(process, batch, group_size):
    publishers = fleet({"count": 8, "rate": 20, "process": process, "batch": batch, "group_size": group_size})
    expected = 20 * 400
    deviation = 1 if process == "periodic" else 5 * np.sqrt(expected * batch) / batch
    assert np.abs(counts(publishers) - expected).max() <= deviation * batch


def test_members_of_a_group_fire_at_the_same_instants_and_strangers_do_not():
    publishers = fleet({"count": 4, "rate": 10, "group_size": 2})
    found = sent(publishers, 60.0, 1)
    instants = [found.arrival_ns[found.publisher == one].tolist() for one in range(4)]
    assert instants[0] == instants[1]
    assert instants[2] == instants[3]
    assert not set(instants[0]) & set(instants[2])


def test_a_slower_member_fires_at_a_part_of_its_groups_instants():
    columns = {"ids": ["fast", "slow"], "rates": [20, 5], "groups": ["g", "g"]}
    publishers = fleet(columns)
    found = sent(publishers, 400.0, 1)
    fast, slow = (set(found.arrival_ns[found.publisher == one].tolist()) for one in (0, 1))
    assert slow < fast
    assert len(slow) == pytest.approx(2000, abs=5 * np.sqrt(2000))


def test_a_periodic_publisher_ticks_at_its_period():
    found = sent(fleet({"count": 1, "rate": 100, "process": "periodic", "batch": 10}), 10.0, 1)
    ticks = np.unique(found.arrival_ns)
    assert len(ticks) == 100
    assert np.abs(np.diff(ticks) - 100_000_000).max() <= 1


def test_messages_come_in_order_of_time_within_the_stretch_and_alike_for_a_seed():
    publishers = fleet({"count": 5, "rate": 10}, {"count": 5, "rate": 7, "process": "periodic", "batch": 3})
    first, second, other = (sent(publishers, 30.0, seed) for seed in (1, 1, 2))
    assert (np.diff(first.arrival_ns) >= 0).all()
    assert first.arrival_ns[0] >= 0
    assert first.arrival_ns[-1] < 30e9
    assert np.array_equal(first.arrival_ns, second.arrival_ns)
    assert np.array_equal(first.publisher, second.publisher)
    assert not np.array_equal(first.arrival_ns[:10], other.arrival_ns[:10])


def test_nobody_sends_nothing():
    assert len(sent(fleet(), 10.0, 1)) == 0

"""What is sent is what b was sized on, and it is sent when it was drawn."""

from __future__ import annotations

import numpy as np
import pytest

from bench.experiments.placement.traffic import Traffic, draw
from bench.harness.load.workload import Plan, Subscriber, modelled
from srtm.token_bucket.replay import access_delays
from srtm.topics.publishers import Publishers
from srtm.topics.spec import parse_topic_json
from srtm.units import MICRO

RATE = 220.0


def publishers(process: str, batch: int) -> Publishers:
    block = {"count": 20, "rate": 10.0, "group_size": 5, "process": process, "batch": batch}
    document = {"name": "x", "rate": RATE, "burst": 50, "publishers": [block]}
    return parse_topic_json({**document, "slo": {"percentile": 99, "latency_ms": 5}}).publishers


def drawn(process: str, batch: int) -> Traffic:
    return draw(publishers(process, batch), warmup_s=1.0, seconds=4.0, seed=3)


def plan(traffic: Traffic) -> Plan:
    fleet = modelled([0] * 10 + [1] * 10, 10.0, group_size=5)
    fleet = type(fleet)(
        **{**{f: getattr(fleet, f) for f in fleet.__struct_fields__}, "ids": list(traffic.publishers.ids)}
    )
    return Plan(topic="x", targets=["a", "b"], publishers=fleet, subscribers=[Subscriber(target=0)], duration_s=4.0)


@pytest.mark.parametrize("process", ["poisson", "periodic"])
@pytest.mark.parametrize("batch", [1, 10])
def test_one_bucket_of_the_burst_found_lets_99_of_100_pass_at_once_and_one_less_does_not(process, batch):
    traffic = drawn(process, batch)
    burst = traffic.burst(RATE, 99)
    sent_ns = traffic.drawn.arrival_ns[traffic.drawn.arrival_ns < 5_000_000_000]

    def late(of: np.ndarray, burst: int, first_ns: int) -> float:
        return float((access_delays(of, round(RATE * MICRO), burst * MICRO)[of >= first_ns] > 0).mean())

    whole, part = (traffic.drawn.arrival_ns, 0), (sent_ns, 1_000_000_000)
    assert all(late(of, burst, first) <= 0.01 for of, first in (whole, part))
    if burst > batch:
        assert any(late(of, burst - 1, first) > 0.01 for of, first in (whole, part))


@pytest.mark.parametrize("batch", [1, 10])
def test_every_message_drawn_for_the_run_is_sent_at_its_instant_and_groups_fire_together(batch):
    traffic = drawn("poisson", batch)
    sent = traffic.as_sent(plan(traffic)).publishers
    instants = dict(zip(sent.ids, sent.instants_ns, strict=True))
    end = int(np.searchsorted(traffic.drawn.arrival_ns, 5_000_000_000))
    assert sum(map(len, instants.values())) * batch == end
    for first in range(0, 20, 5):
        group = [instants.get(name, []) for name in traffic.publishers.ids[first : first + 5]]
        assert all(one == group[0] for one in group)
    assert set(sent.process) == {"trace"}
    assert set(sent.group) == {-1}


def test_a_publisher_that_sends_nothing_meanwhile_is_left_out():
    whole = drawn("poisson", 10)
    traffic = draw(whole.publishers, warmup_s=0.0, seconds=0.2, seed=3)
    sent = traffic.as_sent(plan(traffic)).publishers
    assert 0 < len(sent.ids) < 20
    assert all(sent.instants_ns)
    lengths = {len(getattr(sent, column)) for column in ("target", "rate", "batch", "group", "process")}
    assert lengths == {len(sent.ids)}


def test_the_replay_says_what_the_worst_broker_makes_wait_after_the_warm_up():
    traffic = drawn("periodic", 1)
    ids = list(traffic.publishers.ids)
    assignments = {"ids": ids, "brokers": ["a"] * 10 + ["b"] * 10}
    one = traffic.replayed_access_ms({"ids": ids, "brokers": ["a"] * 20}, {"a": (RATE, traffic.burst(RATE, 99))}, 99)
    split = traffic.replayed_access_ms(assignments, {"a": (110.0, 1.0), "b": (110.0, 1.0)}, 99)
    assert one == 0.0
    # Five at once where a token comes every 9 ms, and of the two groups of a broker one may come behind the other.
    assert 4 / 110 <= split / 1e3 <= 9 / 110

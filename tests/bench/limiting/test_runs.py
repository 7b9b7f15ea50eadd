"""Runs of the data sets count what is refused, said and kept, and the sets have the shape that they claim."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from bench.limiting.designs import DESIGNS, memory_bytes, payload_bytes
from bench.limiting.request_sets import NODES, SECOND, SETS, Request, RequestSet, bucket, node_of, user
from bench.limiting.runs import Run, centralized
from limiting.replication.gossiped.counter import CounterNode
from limiting.replication.messages import Ack, Increments
from limiting.replication.refill import Refill
from limiting.replication.replicated import Replicated

MICRO = 1_000_000
BY_NAME = {design.name: design for design in DESIGNS}


def steady(count: int, gap_ms: int, burst: int, rate: float) -> RequestSet:
    times = [number * gap_ms for number in range(count)]
    requests = [Request(at_ms * MICRO, user(0), node_of(at_ms, user(0))) for at_ms in times]
    return RequestSet(name="steady", requests=requests, refill=bucket(burst, rate))


SHORT = steady(60, 100, 20, 1.0)  # 6 s; 25 or 26 tokens


@pytest.mark.parametrize("name", list(SETS))
def test_a_set_is_in_order_reproducible_and_spread_over_all_nodes(name):
    one, again = SETS[name](Random(3)), SETS[name](Random(3))
    assert one.requests == again.requests
    assert [request.at_ns for request in one.requests] == sorted(request.at_ns for request in one.requests)
    nodes = Counter(request.node for request in one.requests)
    assert set(nodes) <= set(range(NODES))
    assert len(nodes) >= 15


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("B extreme", 6_132, 6_134), ("B barely late", 12, 14), ("B not limited", 0, 0), ("C", 0, 0), ("D 300", 7, 7)],
)
def test_a_centralized_limiter_refuses_what_the_set_is_made_for(name, least, most):
    assert least <= centralized(SETS[name](Random(1))) <= most


def test_users_of_a_set_have_buckets_of_their_own():
    requests = SETS["A"](Random(1))
    of_each = Counter(one.subject for one in requests.requests)
    apart = [[one for one in requests.requests if one.subject == subject] for subject in of_each]
    assert centralized(requests) == sum(centralized(replace(requests, requests=each)) for each in apart)


def test_set_a_has_ten_users_that_are_all_limited():
    requests = SETS["A"](Random(1))
    for number in range(10):
        own = [one for one in requests.requests if one.subject == user(number)]
        alone = RequestSet(name="one", requests=own, refill=requests.refill)
        assert centralized(alone) > 0


@pytest.mark.parametrize("name", list(BY_NAME))
def test_a_run_accounts_for_everything_it_is_asked(name):
    outcome = Run(BY_NAME[name], SHORT, 1).outcome()
    assert 0 < outcome.refused < 60
    assert outcome.payload_b > 0
    assert outcome.header_b == 60 * outcome.frames > 0
    assert outcome.memory_b > 0
    assert outcome.converged_s is not None


def test_replicated_without_a_wire_refuses_what_a_centralized_limiter_does():
    outcome = Run(BY_NAME["replicated"], SHORT, 1).outcome()
    assert outcome.refused == centralized(SHORT)
    assert outcome.above == 0


def test_a_run_sees_what_is_let_through_above_the_limit():
    outcome = Run(BY_NAME["counter"], steady(120, 10, 20, 1.0), 1).outcome()
    assert outcome.above > 1
    assert outcome.refused < centralized(steady(120, 10, 20, 1.0))


def test_two_runs_of_one_seed_are_the_same_and_of_another_are_not():
    one, again, other = (Run(BY_NAME["queue + both"], SHORT, seed).outcome() for seed in (1, 1, 2))
    assert one == again != other


def test_bytes_are_counted_as_told():
    asked = Refill(rate_micro=MICRO, burst_micro=9 * MICRO)
    node = CounterNode(0, [1, 2], asked, 0)
    node.take(user(0), 1, 0)
    assert memory_bytes(node, 0) == 3 * (32 + 16 + 8)
    ours = Replicated(0, [1], [asked], 0)
    ours.take(user(0), 1, 0)
    assert memory_bytes(ours, 0) == 48
    ours.tick(10 * SECOND)
    ((_, frame),) = ours.outbox()
    assert payload_bytes(frame) == 36
    assert memory_bytes(ours, 10 * SECOND) == 20  # drained, but not acknowledged
    assert payload_bytes(Increments(0, 1, 1, 1, ())) == payload_bytes(Ack(0, 1, 1, 1, 0)) == 0

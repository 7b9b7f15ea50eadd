"""Who has a share while publishers are on their way: laws over random moves, and the cases that made them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributor.model.cluster import Misplaced, Placement, Topic
from distributor.model.columns import NOWHERE
from distributor.model.leases import MICRO, Amount, Leases
from distributor.placement.share_targets import ShareDemand, extra_load, load_in_transit, target_shares
from srtm.topics.publishers import Publishers
from tests.support.distributor_in_process import spec

NAMES = ("a", "b", "c", "d")


def placed(at: list[int], split: str = "fitted", slack: float = 1.1) -> tuple[Topic, Amount]:
    """Publishers of 10 msg/s on ``NAMES[at[i]]``; NOWHERE: without a broker."""
    made = spec(count=len(at), rate=10.0, split=split, burst=40)
    envelope = Amount(round(len(at) * 10 * slack) * MICRO, 40 * MICRO)
    placement = layout(made.publishers, at)
    target = target_shares(ShareDemand(spec=made, envelope=envelope, placement=placement))
    leases = Leases(envelope).with_target(envelope, target)
    return Topic(spec=made, version=1, placement=placement, assignment_version=1, leases=leases), envelope


def target_with(topic: Topic, envelope: Amount, placement: Placement, misplaced: Misplaced) -> dict[str, Amount]:
    load = extra_load(misplaced)
    return target_shares(ShareDemand(spec=topic.spec, envelope=envelope, placement=placement, extra_load=load))


def layout(publishers: Publishers, at: list[int]) -> Placement:
    used = [number for number in range(len(NAMES)) if number in at]
    index = np.array([used.index(number) if number in used else NOWHERE for number in at], dtype=np.int64)
    return Placement(publishers=publishers, brokers=tuple(NAMES[number] for number in used), at=index)


places = st.lists(st.integers(0, len(NAMES) - 1), min_size=40, max_size=40)


@given(before=places, after=places, split=st.sampled_from(["fitted", "proportional"]), slack=st.floats(1.0, 3.0))
def test_shares_sum_to_the_envelope_and_everybody_who_publishes_somewhere_has_a_token_there(
    before: list[int], after: list[int], split: str, slack: float
) -> None:
    topic, envelope = placed(before, split, slack)
    new = layout(topic.spec.publishers, after)
    misplaced = load_in_transit(topic, new, envelope, ())
    target = target_with(topic, envelope, new, misplaced)
    assert sum(one.rate for one in target.values()) == envelope.rate
    assert sum(one.burst for one in target.values()) == envelope.burst
    assert all(one.is_usable for one in target.values())
    left = {NAMES[was] for was, now in zip(before, after, strict=True) if was != now}
    assert target.keys() == left | set(new.brokers)


@given(
    before=places, after=places, homes=st.lists(st.sampled_from(NAMES), min_size=4, max_size=4), rate=st.floats(1, 400)
)
def test_what_is_accounted_elsewhere_never_breaks_the_envelope(
    before: list[int], after: list[int], homes: list[str], rate: float
) -> None:
    topic, envelope = placed(before)
    new = layout(topic.spec.publishers, after)
    misplaced = {name: {home: rate} for name, home in zip(NAMES, homes, strict=True) if name != home}
    target = target_with(topic, envelope, new, misplaced)
    assert sum(one.rate for one in target.values()) == envelope.rate
    assert sum(one.burst for one in target.values()) == envelope.burst
    assert all(one.is_usable for one in target.values())


def test_movers_that_fit_into_the_slack_leave_both_brokers_what_they_need() -> None:
    topic, envelope = placed([0] * 20 + [1] * 20, slack=1.2)
    new = layout(topic.spec.publishers, [0] * 17 + [1] * 23)
    target = target_with(topic, envelope, new, load_in_transit(topic, new, envelope, ()))
    assert target["a"].rate >= 200 * MICRO
    assert target["b"].rate >= 230 * MICRO


def test_whoever_moved_is_told_by_broker_also_where_the_topic_names_others_now() -> None:
    topic, _ = placed([0, 0, 1, 1])
    kept = topic.spec.publishers.changed(
        add=spec(count=2, rate=5.0, publishers=[{"ids": ["x", "y"], "rates": [5.0, 5.0]}]).publishers.rows(""),
        remove=["p0"],
    )
    new = layout(kept, [1, 1, 0, 0, 2])  # p1, p2, p3, x, y
    assert new.moved_from(topic.placement) == {"a": 10.0, "b": 10.0}
    assert (new.count_moved_from(topic.placement), new.count_moved_from(new)) == (2, 0)


@pytest.mark.parametrize("without", [{"a"}, {"a", "b"}])
def test_nothing_is_kept_for_a_broker_that_is_dead_or_drains(without: set[str]) -> None:
    topic, envelope = placed([0] * 20 + [1] * 20)
    new = layout(topic.spec.publishers, [1] * 40)
    assert load_in_transit(topic, new, envelope, without) == {}


def test_a_burst_that_has_no_token_for_them_keeps_nothing_for_those_who_leave() -> None:
    topic, _ = placed([0] * 20 + [1] * 20)
    new = layout(topic.spec.publishers, [2] * 40)
    small = Amount(440 * MICRO, 2 * MICRO)
    assert len(load_in_transit(topic, new, small, ())) == 1

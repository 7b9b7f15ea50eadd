"""Desired states as differences: right for whoever was told what they begin with, and given to nobody else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributor.registry.deltas import Differences
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from tests.support.distributor_in_process import settle, spec

pytestmark = pytest.mark.usefixtures("no_threads")


@pytest.fixture
def differences():
    differences = Differences()
    differences.hand_out("b", "1", 5)
    return differences


def test_what_changed_after_a_state_that_was_handed_out_is_named(differences):
    differences.note("b", ["t", "u"], 6)
    differences.note("b", ["u"], 8)
    differences.hand_out("b", "1", 8)
    assert sorted(differences.since("b", "1", 5)) == ["t", "u"]
    assert differences.since("b", "1", 8) == []


@pytest.mark.parametrize("asked", [("b", "1", 4), ("b", "2", 5), ("c", "1", 5)])
def test_a_state_that_was_not_handed_out_to_this_incarnation_is_not_known(differences, asked):
    assert differences.since(*asked) is None


def test_another_incarnation_ends_what_the_one_before_was_told(differences):
    differences.hand_out("b", "2", 6)
    assert differences.since("b", "1", 5) is None


def test_a_forgotten_broker_has_been_told_nothing(differences):
    differences.forget("b")
    assert differences.since("b", "1", 5) is None


@given(st.lists(st.tuples(st.sampled_from("tuv"), st.booleans()), max_size=30))
def test_a_state_and_its_differences_are_the_state_that_follows(steps):
    """``taken``: whether the answer arrives."""
    differences, now, has = Differences(), {}, None
    for version, (topic, taken) in enumerate(steps, start=1):
        now[topic] = version
        differences.note("b", [topic], version)
        changed = None if has is None else differences.since("b", "1", has[0])
        before = {} if changed is None else has[1]
        answer = {name: now[name] for name in (now if changed is None else changed)}
        differences.hand_out("b", "1", version)
        if taken:
            has = (version, {**before, **answer})
            assert has[1] == now


async def test_a_change_of_one_topic_is_all_that_is_told(distributor):
    a, b = await distributor.brokers("a", "b")
    for name in ("cars", "bikes"):
        await distributor.submit(spec(name))
        await settle(a, b)
    await distributor.submit(spec("cars", rate=2000.0))
    before = a.version
    answer = await a.sync()
    assert (answer.since, [topic.topic for topic in answer.topics]) == (before, ["cars"])
    await settle(a, b)
    whole = await told_whole(a)
    assert a.topics == whole


async def told_whole(broker):
    """What another incarnation of ``broker`` would be told."""
    version, broker.version = broker.version, 0
    answer = await broker.sync()
    broker.version = version
    assert answer.since == 0
    return {topic.topic: topic for topic in answer.topics}


async def test_a_removed_topic_is_named_as_such_and_purged_where_that_was_asked(distributor):
    (a,) = await distributor.brokers("a")
    for name in ("cars", "bikes", "boats"):
        await distributor.submit(spec(name, count=10))
        await settle(a)
    await distributor.registry.remove("cars", purge=False)
    await distributor.registry.remove("bikes", purge=True)
    answer = await a.sync()
    assert (answer.since > 0, answer.topics, sorted(answer.removed), answer.purged) == (
        True,
        [],
        ["bikes", "cars"],
        ["bikes"],
    )
    assert a.topics.keys() == {"boats"}


async def test_a_broker_that_does_not_take_differences_is_told_everything(distributor):
    (a,) = await distributor.brokers("a")
    a.takes_differences = False
    for name in ("cars", "bikes"):
        await distributor.submit(spec(name, count=10))
        answer = await a.sync()
        assert answer.since == 0
    assert a.topics.keys() == {"cars", "bikes"}


async def test_the_next_leader_tells_everything_once(distributor):
    (a,) = await distributor.brokers("a")
    await distributor.submit(spec("cars", count=10))
    await settle(a)
    await distributor.registry.state.store_acknowledged()
    registry = await Registry.load(distributor.store, distributor.registry.config)
    a.syncing = SyncService(registry)
    first = await a.sync()
    assert (first.since, [topic.topic for topic in first.topics]) == (0, ["cars"])
    await registry.submit(spec("boats", count=10))
    assert [topic.topic for topic in (await a.sync()).topics] == ["boats"]


async def test_a_lost_answer_is_made_up_for(distributor):
    a, b = await distributor.brokers("a", "b")
    for name in ("cars", "bikes"):
        await distributor.submit(spec(name))
        await settle(a, b)
    version, topics = a.version, a.topics
    await distributor.submit(spec("cars", rate=2000.0))
    await a.sync()
    a.version, a.topics = version, topics  # it never came
    await distributor.submit(spec("bikes", rate=2000.0))
    answer = await a.sync()
    assert (answer.since, {topic.topic for topic in answer.topics}) == (version, {"cars", "bikes"})

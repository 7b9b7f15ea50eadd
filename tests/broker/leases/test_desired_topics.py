"""What follows from the topics in force is kept as they change."""

from collections.abc import Mapping

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from broker.leases.desired_topics import NOTHING, DesiredTopics
from srtm.control import DesiredTopic, Exchange, Share

shares = st.builds(
    Share,
    version=st.integers(1, 9),
    rate=st.just(1.0),
    burst=st.just(1.0),
    lease_s=st.sampled_from([None, 3.0, 5.0]),
    recall=st.booleans(),
)
topics = st.builds(
    DesiredTopic,
    topic=st.sampled_from("abcd"),
    share=st.just(NOTHING) | shares,
    histories=st.booleans(),
    steady_histories=st.booleans(),
    exchange=st.none() | st.builds(Exchange, epoch=st.integers(1, 3), rate=st.just(1.0), members=st.just({})),
)


def followed(known: Mapping[str, DesiredTopic]) -> dict[str, bool]:
    return {name: one.steady_histories for name, one in known.items() if one.histories}


@given(st.lists(topics | st.sampled_from("abcd")))
def test_all_that_follows_from_the_topics_is_as_if_it_were_put_together_now(steps: list[DesiredTopic | str]) -> None:
    kept = DesiredTopics()
    for step in steps:
        before, changes = followed(kept.all), (kept.changes, kept.changes_followed)
        if isinstance(step, DesiredTopic):
            kept.put(step)
        elif step in kept.all:
            kept.drop(step)
        else:
            continue
        assert kept.changes > changes[0]
        assert (kept.changes_followed > changes[1]) == (followed(kept.all) != before)
        assert kept.followed == followed(kept.all)
        by_name = kept.all.items()
        assert kept.applied == {name: one.share.version for name, one in by_name if one.share is not NOTHING}
        assert kept.recalled.keys() == {name for name, one in by_name if one.share.recall}
        assert kept.timed == {name: one.share.lease_s for name, one in by_name if one.share.lease_s}
        assert kept.exchanges == {name: one.exchange for name, one in by_name if one.exchange}


def test_an_equal_share_that_was_not_held_over_is_acknowledged() -> None:
    kept = DesiredTopics()
    kept.put(DesiredTopic(topic="a", share=msgspec.structs.replace(NOTHING, version=4)))
    assert kept.applied == {"a": 4}

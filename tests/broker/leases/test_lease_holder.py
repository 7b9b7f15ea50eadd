"""What may never happen with a share: an older one taken, tokens minted, a limited topic that flows unlimited."""

import pytest

from broker.leases.lease_holder import LeaseHolder
from srtm.control import ContractTerms, DesiredTopic, Share, SyncAnswer
from srtm.errors import PeerError
from tests.support.fake_engine import FakeEngine

ASKED_NS = 1_000_000_000_000
LEASE_NS = 15_000_000_000


def desired(name="t", version=1, rate=10.0, burst=5.0, full=False, **changes):
    share = Share(version=version, rate=rate, burst=burst, full=full, lease_s=changes.pop("lease_s", None))
    return DesiredTopic(topic=name, share=share, **changes)


def answer(version, *topics):
    return SyncAnswer(version=version, topics=list(topics))


def bucket_calls(engine):
    return [call for call in engine.calls if call[0] == "set_bucket"]


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def holder(engine):
    return LeaseHolder(engine)


def test_a_first_grant_makes_a_full_bucket_and_is_acknowledged(holder, engine):
    holder.apply(answer(7, desired(version=3, rate=0.5, full=True, publishers=["p"], assignment_version=4)), ASKED_NS)
    assert bucket_calls(engine) == [("set_bucket", "t", 500_000, 5_000_000, 3, True, None)]
    assert ("set_publishers", "t", ["p"], 4) in engine.calls
    assert holder.applied == {"t": 3}
    assert holder.version == 7


def test_a_share_that_is_not_a_first_grant_starts_empty(holder, engine):
    holder.apply(answer(1, desired(full=False)), ASKED_NS)
    assert engine.topics["t"].bucket["fill"] == 0.0


def test_the_promise_is_that_of_the_topic_until_it_is_no_longer_managed(holder, engine):
    holder.apply(answer(1, desired(version=1, promise_ms=5.0)), ASKED_NS)
    assert engine.topics["t"].promise_ns == 5_000_000
    holder.apply(answer(2, desired(version=1, promise_ms=0.25)), ASKED_NS)
    assert engine.topics["t"].promise_ns == 250_000
    engine.topics["t"].promise_ns = 0  # the topic was deleted and made again
    holder.renew("t")
    assert engine.topics["t"].promise_ns == 250_000
    engine.create_channel("t", "c")
    holder.apply(answer(3), ASKED_NS)
    assert engine.topics["t"].promise_ns == 0


def test_a_bucket_set_by_hand_is_taken_over_without_refilling_it(holder, engine):
    engine.set_bucket("t", 1, 9_000_000, False, 1, 1, 0, False)
    holder.apply(answer(1, desired(full=True)), ASKED_NS)
    assert bucket_calls(engine)[-1][-2] is False


def test_no_share_here_is_a_bucket_of_nothing_not_an_unlimited_topic(holder, engine):
    holder.apply(answer(1, desired(version=2, rate=0.0, burst=0.0)), ASKED_NS)
    assert bucket_calls(engine) == [("set_bucket", "t", 0, 0, 2, False, None)]
    assert holder.applied == {"t": 2}


def test_an_older_share_is_passed_over(holder, engine):
    holder.apply(answer(1, desired(version=5)), ASKED_NS)
    holder.apply(answer(2, desired(version=4, rate=99.0)), ASKED_NS)
    assert holder.applied == {"t": 5}
    assert len(bucket_calls(engine)) == 1


def test_an_older_desired_state_is_refused_and_changes_nothing(holder, engine):
    holder.apply(answer(9, desired()), ASKED_NS)
    before = list(engine.calls)
    with pytest.raises(PeerError, match="older"):
        holder.apply(answer(8), ASKED_NS)
    assert engine.calls == before
    assert holder.is_managed("t")


def test_a_timed_share_ends_its_lease_after_the_sync_was_sent(holder, engine):
    holder.apply(answer(1, desired("kept"), desired("timed", version=3, lease_s=15.0)), ASKED_NS)
    assert [call[-1] for call in bucket_calls(engine)] == [None, ASKED_NS + LEASE_NS]
    assert holder.shortest_lease_s == 15.0


def test_every_answer_that_confirms_a_timed_share_renews_it(holder, engine):
    holder.apply(answer(1, desired("kept"), desired("timed", version=3, lease_s=15.0)), ASKED_NS)
    for confirming in (SyncAnswer(version=1, unchanged=True), answer(2, desired("timed", version=3, lease_s=15.0))):
        holder.apply(confirming, ASKED_NS + 7)
        assert engine.calls[-1] == ("renew_leases", [("timed", 3, ASKED_NS + 7 + LEASE_NS)])


def test_an_answer_that_names_an_older_share_does_not_renew_the_one_in_force(holder, engine):
    holder.apply(answer(1, desired(version=5, lease_s=15.0)), ASKED_NS)
    before = list(engine.calls)
    holder.apply(answer(2, desired(version=4, lease_s=15.0)), ASKED_NS + 7)
    assert engine.calls == before


def test_no_share_here_has_no_end(holder, engine):
    holder.apply(answer(1, desired(rate=0.0, burst=0.0, lease_s=15.0)), ASKED_NS)
    assert bucket_calls(engine)[-1][-1] is None
    assert not any(call[0] == "renew_leases" for call in engine.calls)


def test_a_topic_that_the_engine_dropped_comes_back_with_the_end_that_its_share_had(holder, engine):
    holder.apply(answer(1, desired(lease_s=15.0)), ASKED_NS)
    engine.delete_topic("t")
    holder.renew("t")
    assert bucket_calls(engine)[-1][-1] == ASKED_NS + LEASE_NS


@pytest.mark.parametrize("lease_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_lease_that_makes_no_sense_is_refused_before_anything_is_applied(holder, engine, lease_s):
    with pytest.raises(PeerError, match="'b': lease_s"):
        holder.apply(answer(1, desired("a"), desired("b", lease_s=lease_s)), ASKED_NS)
    assert engine.calls == []


def test_the_same_state_again_touches_nothing(holder, engine):
    holder.apply(answer(1, desired(channels=["c"])), ASKED_NS)
    before = list(engine.calls)
    holder.apply(answer(2, desired(channels=["c"])), ASKED_NS)
    assert engine.calls == before
    assert holder.version == 2


def test_new_publishers_alone_leave_the_bucket_alone(holder, engine):
    holder.apply(answer(1, desired(publishers=["a"], assignment_version=1)), ASKED_NS)
    holder.apply(answer(2, desired(publishers=["a", "b"], assignment_version=2)), ASKED_NS)
    assert len(bucket_calls(engine)) == 1
    assert engine.topics["t"].publishers == ["a", "b"]


def test_a_change_of_what_happens_on_excess_goes_through_under_the_same_share_version(holder, engine):
    holder.apply(answer(1, desired()), ASKED_NS)
    holder.apply(answer(2, desired(on_excess="reject")), ASKED_NS)
    assert engine.topics["t"].bucket["reject"] is True


def test_a_purged_topic_is_deleted_with_its_queues_and_one_only_removed_is_not(holder, engine):
    holder.apply(answer(1, desired("kept"), desired("purged")), ASKED_NS)
    for name in ("kept", "purged"):
        engine.topics[name].messages.append(b"m")
    holder.apply(SyncAnswer(version=2, purged=["purged"]), ASKED_NS)
    assert set(engine.topics) == {"kept"}
    assert holder.applied == {}


def test_a_topic_that_is_removed_goes_where_it_holds_no_message_and_no_channel(holder, engine):
    holder.apply(answer(1, *map(desired, ("unused", "read", "full"))), ASKED_NS)
    engine.create_channel("read", "c")
    engine.topics["full"].messages.append(b"m")
    holder.apply(SyncAnswer(version=2), ASKED_NS)
    assert set(engine.topics) == {"read", "full"}


def test_a_purge_does_not_hit_a_topic_that_came_again_under_the_name(holder, engine):
    holder.apply(answer(1, desired("t")), ASKED_NS)
    holder.apply(SyncAnswer(version=2, topics=[desired("t", version=2)], purged=["t"]), ASKED_NS)
    assert set(engine.topics) == {"t"}


def test_a_topic_no_longer_named_loses_its_limit_and_its_acknowledgement(holder, engine):
    holder.apply(answer(1, desired("a"), desired("b")), ASKED_NS)
    holder.apply(answer(2, desired("b")), ASKED_NS)
    assert ("clear_bucket", "a") in engine.calls
    assert holder.applied == {"b": 1}
    assert not holder.is_managed("a")


def differences(version, since, *topics, **changes):
    return SyncAnswer(version=version, since=since, topics=list(topics), **changes)


def test_differences_change_what_they_name_and_nothing_else(holder, engine):
    holder.apply(answer(1, desired("a"), desired("b"), desired("c")), ASKED_NS)
    before = len(engine.calls)
    holder.apply(differences(2, 1, desired("b", version=2), removed=["c"]), ASKED_NS)
    assert holder.applied == {"a": 1, "b": 2}
    assert holder.version == 2
    assert {call[1] for call in engine.calls[before:]} == {"b", "c"}
    assert "c" not in engine.topics


def test_the_same_differences_again_are_refused_and_harm_nothing(holder):
    holder.apply(answer(1, desired("a"), desired("b")), ASKED_NS)
    again = differences(2, 1, desired("b", version=2))
    holder.apply(again, ASKED_NS)
    with pytest.raises(PeerError, match="differences from desired state 1, and 2 is in force"):
        holder.apply(again, ASKED_NS)
    assert holder.applied == {"a": 1, "b": 2}


def test_differences_from_another_state_are_refused_before_anything_is_applied(holder, engine):
    with pytest.raises(PeerError, match="differences from desired state 7"):
        holder.apply(differences(9, 7, desired("a")), ASKED_NS)
    assert (engine.calls, holder.applied, holder.version) == ([], {}, 0)


def test_differences_renew_the_shares_that_they_do_not_name(holder, engine):
    timed = [desired(name, lease_s=15.0) for name in ("a", "b")]
    holder.apply(answer(1, *timed), ASKED_NS)
    stale = desired("b", version=0, lease_s=15.0)
    holder.apply(differences(2, 1, stale), ASKED_NS + 10**9)

    assert engine.calls[-1] == ("renew_leases", [("a", 1, ASKED_NS + 10**9 + LEASE_NS)])


def test_a_purge_among_differences_deletes_the_topic_with_its_queues(holder, engine):
    holder.apply(answer(1, desired("a"), desired("b")), ASKED_NS)
    holder.apply(differences(2, 1, removed=["a"], purged=["a"]), ASKED_NS)
    assert "a" not in engine.topics
    assert "b" in engine.topics


def test_unchanged_keeps_everything(holder):
    holder.apply(answer(3, desired()), ASKED_NS)
    holder.apply(SyncAnswer(version=3, unchanged=True), ASKED_NS)
    assert holder.applied == {"t": 1}


def test_the_bucket_is_there_before_the_channels_and_ephemeral_channels_are_not_made(holder, engine):
    holder.apply(answer(1, desired(channels=["c", "tail#ephemeral"])), ASKED_NS)
    kinds = [call[0] for call in engine.calls]
    assert kinds.index("set_bucket") < kinds.index("create_channel")
    assert engine.topics["t"].channels == {"c": False}


def test_a_new_incarnation_holds_what_it_remembers_without_tokens_and_acknowledges_nothing(holder, engine):
    holder.hold([desired(version=8, rate=100.0, on_excess="reject", channels=["c"])], 5)
    assert bucket_calls(engine) == [("set_bucket", "t", 0, 0, 0, False, None)]
    assert engine.topics["t"].bucket["reject"] is True
    assert engine.topics["t"].publishers is None  # nobody is a stranger before the assignment is known
    assert holder.applied == {}
    assert holder.is_managed("t")


def test_the_share_given_back_after_a_restart_starts_empty_even_if_called_a_first_grant(holder, engine):
    holder.hold([desired(version=8)], 5)
    holder.apply(answer(1, desired(version=8, full=True)), ASKED_NS)
    assert bucket_calls(engine)[-1] == ("set_bucket", "t", 10_000_000, 5_000_000, 8, False, None)
    assert holder.applied == {"t": 8}


def test_held_topics_that_the_distributor_no_longer_names_flow_again(holder, engine):
    holder.hold([desired()], 5)
    holder.apply(SyncAnswer(version=0, unchanged=True), ASKED_NS)
    assert ("clear_bucket", "t") in engine.calls


def test_a_managed_topic_that_the_engine_dropped_comes_back_limited_and_empty(holder, engine):
    holder.apply(answer(1, desired(full=True)), ASKED_NS)
    engine.delete_topic("t")
    holder.renew("t")
    assert engine.topics["t"].bucket["fill"] == 0.0
    holder.renew("other")
    assert "other" not in engine.topics


def test_a_share_that_the_engine_refuses_is_an_error_not_an_acknowledgement(holder, engine):
    engine.set_bucket("t", 1, 1_000_000, False, 1, 1, 99, False)
    with pytest.raises(PeerError, match="older"):
        holder.apply(answer(1, desired(version=1)), ASKED_NS)
    assert holder.applied == {}
    assert holder.version == 0


def name_calls(engine):
    return [call for call in engine.calls if call[0] == "set_mqtt_names"]


def test_the_mqtt_names_of_a_topic_are_set_once_for_each_change_and_taken_back_with_the_topic(holder, engine):
    holder.apply(answer(1, desired(mqtt_filters=["a/#"], mqtt_v3_excess="close")), ASKED_NS)
    assert name_calls(engine) == [("set_mqtt_names", "t", ["a/#"], "close")]
    holder.apply(answer(2, desired(version=2, mqtt_filters=["a/#"], mqtt_v3_excess="close")), ASKED_NS)
    assert len(name_calls(engine)) == 1
    holder.apply(answer(3, desired(version=2, mqtt_filters=["b/+"])), ASKED_NS)
    assert name_calls(engine)[-1] == ("set_mqtt_names", "t", ["b/+"], "delay")
    holder.apply(answer(4), ASKED_NS)
    assert name_calls(engine)[-1] == ("set_mqtt_names", "t", [], "delay")


def test_the_name_of_nsqs_messages_follows_the_names_of_the_topic(holder, engine):
    holder.apply(answer(1, desired(mqtt_filters=["a/#"])), ASKED_NS)
    holder.apply(answer(2, desired(version=2, mqtt_filters=["a/#"], mqtt_name="a/nsq")), ASKED_NS)
    assert [call for call in engine.calls if "mqtt_name" in call[0]] == [
        ("set_mqtt_names", "t", ["a/#"], "delay"),
        ("set_mqtt_names", "t", ["a/#"], "delay"),
        ("set_mqtt_name", "t", "a/nsq"),
    ]


def test_a_topic_of_an_earlier_incarnation_has_its_mqtt_names_before_the_first_sync(holder, engine):
    holder.hold([desired(version=8, mqtt_filters=["a/#"])], 5)
    assert name_calls(engine) == [("set_mqtt_names", "t", ["a/#"], "delay")]


def test_the_groups_of_a_topic_are_declared_once_for_each_change_and_taken_back_with_the_topic(holder, engine):
    def declared():
        return [call[2] for call in engine.calls if call[0] == "set_mqtt_groups"]

    holder.apply(answer(1, desired()), ASKED_NS)
    assert declared() == []
    holder.apply(answer(2, desired(version=2, mqtt_groups=["$share/w/a/#"])), ASKED_NS)
    holder.apply(answer(3, desired(version=3, mqtt_groups=["$share/w/a/#"])), ASKED_NS)
    assert declared() == [["$share/w/a/#"]]
    holder.apply(answer(4, desired(version=3)), ASKED_NS)
    assert declared() == [["$share/w/a/#"], []]
    holder.apply(answer(5, desired(version=3, mqtt_groups=["$share/w/b"])), ASKED_NS)
    holder.apply(answer(6), ASKED_NS)
    assert declared()[2:] == [["$share/w/b"], []]


def test_a_broker_that_speaks_no_mqtt_keeps_nothing_for_groups(engine):
    holder = LeaseHolder(engine, speaks_mqtt=False)
    holder.apply(answer(1, desired(mqtt_groups=["$share/w/a/#"])), ASKED_NS)
    assert not [call for call in engine.calls if call[0] == "set_mqtt_groups"]


def test_the_groups_of_a_topic_of_an_earlier_incarnation_are_declared_before_the_first_sync(holder, engine):
    holder.hold([desired(version=8, mqtt_groups=["$share/w/a/#"])], 5)
    assert ("set_mqtt_groups", "t", ["$share/w/a/#"]) in engine.calls


def test_the_contracts_of_a_topic_are_set_with_each_change_and_those_of_publishers_not_before_the_first_sync(
    holder, engine
):
    terms = ContractTerms(publishers="sensors", named={"gateways": ["g"]}, tenant="acme")

    def told():
        return [call[2] for call in engine.calls if call[0] == "set_terms"]

    holder.hold([desired(terms=terms), desired("u")], 5)
    assert told() == [{"publishers": "sensors", "named": {}, "consumers": "", "tenant": "acme"}]
    holder.apply(answer(6, desired(terms=terms), desired("u")), ASKED_NS)
    assert told()[1:] == [{"publishers": "sensors", "named": {"gateways": ["g"]}, "consumers": "", "tenant": "acme"}]
    holder.apply(answer(7, desired(version=2, terms=terms), desired("u")), ASKED_NS)
    assert len(told()) == 2
    holder.apply(answer(8, desired(version=2), desired("u")), ASKED_NS)
    assert told()[2:] == [{"publishers": "", "named": {}, "consumers": "", "tenant": ""}]

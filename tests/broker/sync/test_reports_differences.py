"""Reports as differences: whatever is lost on the way, who has answered knows them all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import snapshot
from broker.sync.reports import Reports
from distributor.sync.report_checks import merge_reports
from srtm.control import SyncRequest
from tests.support.fake_engine import FakeEngine

ABOUT = SyncRequest(incarnation="1", srtm_version="0", tcp_address="h:1", http_address="h:2", mcap=5.0)


@pytest.fixture
def engine():
    engine = FakeEngine()
    for name in ("a", "b"):
        engine.create_topic(name)
        engine.topics[name].received = 1
    return engine


@pytest.fixture
def reports(engine):
    """Known to a distributor."""
    reports = Reports()
    reports.note(snapshot.take_raw(engine).topics, {})
    assert reports.answered(reports.add_to(ABOUT).number)
    return reports


def noted(reports, engine, applied=None):
    reports.note(snapshot.take_raw(engine).topics, applied or {})
    return reports.add_to(ABOUT)


def test_nothing_is_told_again_that_has_not_changed(reports, engine):
    asked = noted(reports, engine)
    assert (asked.topics, asked.gone, asked.reports_since) == ([], [], 1)


def test_another_share_version_is_a_change_though_the_engine_shows_the_same(reports, engine):
    (told,) = noted(reports, engine, {"b": 5}).topics
    assert (told.topic, told.share_version) == ("b", 5)


def test_what_was_not_answered_is_told_again_also_where_it_is_as_it_was(reports, engine):
    engine.topics["a"].received = 2
    assert [one.received for one in noted(reports, engine).topics] == [2]
    engine.topics["a"].received = 1
    assert [one.received for one in noted(reports, engine).topics] == [1]


def test_a_topic_that_is_no_more_is_said_to_be_gone(reports, engine):
    engine.delete_topic("a")
    asked = noted(reports, engine)
    assert (asked.topics, asked.gone) == ([], ["a"])


def test_a_look_at_one_topic_tells_that_one_and_the_next_look_at_all_the_others(reports, engine):
    engine.topics["a"].received = engine.topics["b"].received = 7
    reports.note_one("b", snapshot.take_raw(engine, "b").topics, {})
    asked = reports.add_to(ABOUT)
    assert [one.topic for one in asked.topics] == ["b"]
    assert reports.answered(asked.number)
    assert [one.topic for one in noted(reports, engine).topics] == ["a"]


def test_a_look_at_one_topic_tells_that_it_is_no_more(reports, engine):
    engine.delete_topic("b")
    reports.note_one("b", snapshot.take_raw(engine, "b").topics, {})
    asked = reports.add_to(ABOUT)
    assert (asked.topics, asked.gone) == ([], ["b"])


def test_who_lacks_what_was_taken_for_known_is_told_everything(reports, engine):
    noted(reports, engine)
    assert not reports.answered(0)
    asked = noted(reports, engine)
    assert (asked.reports_since, [one.topic for one in asked.topics]) == (0, ["a", "b"])


def test_one_that_takes_no_differences_is_told_everything_each_time_without_a_complaint(engine):
    reports = Reports()
    for _ in range(3):
        assert len(noted(reports, engine).topics) == 2
        assert reports.answered(0)


STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=3),  # {topic: received}, 0: gone
        st.sampled_from(("answered", "answered", "answer lost", "request lost", "late")),
        st.sampled_from((0, 0, 0, 1)),  # which distributor leads
        st.booleans(),  # only what changed is looked at
    ),
    max_size=20,
)


def counted(topics):
    return {name: one.received for name, one in topics.items()}


@given(STEPS)
def test_whatever_is_lost_or_late_and_whoever_leads_an_answer_means_that_all_is_known(steps):
    engine, reports, known, late = FakeEngine(), Reports(), [None, None], []
    for changes, fate, leader, partial in steps:
        for name, received in changes:
            engine.create_topic(name)
            engine.topics[name].received = received
            if not received:
                engine.delete_topic(name)
        looked_at_few = partial and reports.are_known
        if looked_at_few:
            for name, _ in changes:
                reports.note_one(name, snapshot.take_raw(engine, name).topics, {})
        else:
            reports.note(snapshot.take_raw(engine).topics, {})
        asked = reports.add_to(ABOUT)
        if fate == "request lost":
            continue
        if fate == "late":
            late.append((leader, asked))
            continue
        now = merge_reports(known[leader], asked)
        known[leader] = now or known[leader]
        if fate == "answered" and reports.answered(now.number if now else 0):
            assert counted(known[leader].topics) == counted(engine.topics)
        for at, old in late:
            known[at] = merge_reports(known[at], old) or known[at]
        late.clear()

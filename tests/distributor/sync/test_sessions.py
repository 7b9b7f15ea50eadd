"""What all brokers have said: asked by topic, it is what each broker's session has."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from distributor.sync.report_checks import merge_reports
from distributor.sync.sessions import Sessions
from srtm.control import LinkLatency, MqttLosses, SyncRequest, TopicReport

BROKERS, TOPICS = ["a", "b", "c"], ["t", "u", "v"]
some_topics = st.lists(st.sampled_from(TOPICS), unique=True)
syncs = st.tuples(st.sampled_from(BROKERS), st.booleans(), some_topics, some_topics, some_topics, some_topics)
steps = st.lists(st.one_of(syncs, st.sampled_from(BROKERS)), max_size=12)


def sync(sessions: Sessions, number: int, step: tuple[str, bool, list[str], list[str], list[str], list[str]]) -> None:
    """Of a broker: as differences or not, topics that it reports, that are gone, with links, that were full."""
    name, differs, reported, gone, linked, full = step
    before = sessions.reports_of(name)
    request = SyncRequest(
        incarnation="1",
        srtm_version="0",
        tcp_address="h:1",
        http_address="h:2",
        mcap=1.0,
        number=number,
        reports_since=before.number if differs and before is not None else 0,
        topics=[TopicReport(topic=topic, share_version=1, received=number) for topic in reported],
        gone=gone,
        links=[LinkLatency(origin="a", topic=topic, network_ms=1.0) for topic in linked],
        mqtt_full={topic: {"mqtt": number} for topic in full} | {topic: {} for topic in set(gone) - set(full)},
    )
    sessions.take_facts(name, request, ())
    reports = merge_reports(before, request)
    if reports is not None:
        sessions.take_reports(name, reports)


@given(steps)
def test_a_topic_has_what_the_sessions_of_all_brokers_have_of_it(
    done: list[tuple[str, bool, list[str], list[str], list[str], list[str]] | str],
) -> None:
    known = dict.fromkeys(BROKERS, SimpleNamespace(dead=False))
    sessions = Sessions(SimpleNamespace(brokers=known, is_alive=lambda _name: True))
    for number, step in enumerate(done, start=1):
        if isinstance(step, str):
            sessions.forget(step)
        else:
            sync(sessions, number, step)
    each = sessions.by_broker.items()
    for topic in TOPICS:
        reports = {name: one.reports.topics[topic] for name, one in each if one.reports and topic in one.reports.topics}
        assert sessions.heard(topic) == sessions.known(topic) == sessions.reports(topic) == reports
        links = {name: list(one.links[topic].values()) for name, one in each if topic in one.links}
        assert sessions.links(topic) == links
        full = {name: MqttLosses(full=one.mqtt_full[topic]) for name, one in each if topic in one.mqtt_full}
        assert sessions.mqtt_losses(topic) == full
    assert sessions.topics() == {topic for topic in TOPICS if sessions.reports(topic)}

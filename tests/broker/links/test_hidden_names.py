"""What links need is this broker's own: nobody looks it up, and no other broker makes it again."""

from __future__ import annotations

from typing import Any

from broker import snapshot
from broker.nsqd.nsqlookupd import Registration, registrations
from broker.sync.reports import Reports
from srtm.control import SyncRequest
from srtm.protocol import is_link_channel, is_name, link_channel
from tests.support.fake_engine import FakeEngine

ABOUT = SyncRequest(incarnation="1", srtm_version="0", tcp_address="a:1", http_address="a:2", mcap=0.0)


def test_neither_reports_nor_lookups_name_channels_of_links_nor_the_topic_of_what_is_retained() -> None:
    engine: Any = FakeEngine()
    engine.create_topic("rain").channels.update({"mine": False, "srtm.link.b2": False})
    engine.create_topic("srtm.retained").channels["srtm.link.b2"] = False
    reports = Reports()
    reports.note(snapshot.take_raw(engine).topics, {})
    [reported] = reports.add_to(ABOUT).topics
    assert (reported.topic, reported.channels) == ("rain", ["mine"])
    assert not reports.differ("srtm.retained", snapshot.take_raw(engine, "srtm.retained").topics)
    assert not reports.differ("rain", snapshot.take_raw(engine, "rain").topics)
    reports.note_one("srtm.retained", snapshot.take_raw(engine, "srtm.retained").topics, {})
    assert [one.topic for one in reports.add_to(ABOUT).topics] == ["rain"]
    assert registrations(snapshot.take(engine)) == {Registration("rain"), Registration("rain", "mine")}


def test_a_broker_of_any_name_has_a_channel_of_its_own() -> None:
    names = ["b2", "b" * 54, "b" * 64, "b" * 63 + "c"]
    channels = [link_channel(name) for name in names]
    assert len(set(channels)) == len(names)
    assert all(is_name(channel) and is_link_channel(channel) for channel in channels)
    assert channels[0] == "srtm.link.b2"

"""What MQTT's clients of a topic lost, in its view."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from distributor.sync import sessions
from distributor.sync.sessions import BrokerSession
from distributor.views.topic_view import topic_view
from srtm.control import MqttLosses, SyncRequest
from tests.support.distributor_in_process import Distributor, spec
from tests.support.topic_reports import period, report

ABOUT = SyncRequest(incarnation="1", srtm_version="0", tcp_address="h:1", http_address="h:2", mcap=5.0)


def losses(distributor: Distributor) -> dict[str, MqttLosses]:
    return topic_view(distributor.registry.topic("cars"), distributor.registry, distributor.syncing).mqtt_losses


def tell(session: BrokerSession, since: int = 0, **full: dict[str, int]) -> dict[str, dict[str, int]]:
    session.take_facts(msgspec.structs.replace(ABOUT, reports_since=since, mqtt_full=full), ())
    return session.mqtt_full


async def test_losses_are_told_of_brokers_that_are_alive_also_where_the_topic_has_no_part(
    distributor: Distributor, mock_clock: Any
) -> None:
    a, b, c = await distributor.brokers("a", "b", "c")
    await distributor.submit(spec())
    a.reports = [report(period(1.0, 1.0), mqtt_refused=[0, 7, 2], mqtt_dropped=[5, 0, 0])]
    b.reports = [report(period(1.0, 1.0))]
    for broker in (a, b, c):
        await broker.sync()
    full = {"cars": {"$share/g/#": 3}, "other": {"mqtt": 9}}
    distributor.syncing.sessions.take_facts("c", msgspec.structs.replace(ABOUT, mqtt_full=full), ())
    at_a = MqttLosses(refused=[0, 7, 2], dropped=[5, 0, 0])
    assert losses(distributor) == {"a": at_a, "c": MqttLosses(full={"$share/g/#": 3})}
    mock_clock.jump(distributor.registry.config.liveness_s + 1)
    await a.sync()
    assert losses(distributor) == {"a": at_a}


def test_a_broker_tells_what_differs_or_everything_anew() -> None:
    session = BrokerSession()
    assert tell(session, cars={"mqtt": 3}, bikes={"mqtt": 1}) == {"cars": {"mqtt": 3}, "bikes": {"mqtt": 1}}
    assert tell(session, 1, cars={"mqtt": 4}, bikes={}) == {"cars": {"mqtt": 4}}
    assert tell(session, 1) == {"cars": {"mqtt": 4}}
    assert tell(session, trains={"mqtt": 2}) == {"trains": {"mqtt": 2}}


@pytest.mark.parametrize(("topic", "count"), [("no name", 1), ("cars", -1), ("cars", 2**63)])
def test_what_no_broker_can_have_counted_is_ignored(topic: str, count: int) -> None:
    assert tell(BrokerSession(), **{topic: {"mqtt": count}}) == {}


def test_a_broker_may_tell_of_so_many_topics_and_of_known_ones_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_MOST_FULL", 1)
    session = BrokerSession()
    assert tell(session, cars={"mqtt": 3}, bikes={"mqtt": 1}) == {"cars": {"mqtt": 3}}
    assert tell(session, 1, bikes={"mqtt": 1}, cars={"mqtt": 4}) == {"cars": {"mqtt": 4}}

"""What an answer to a sync sets going besides the state that it names."""

from typing import Any, cast

import msgspec
import pytest

from broker.config import BrokerConfig
from broker.leases.lease_holder import LeaseHolder
from broker.member import Membership
from broker.sync.loop import LocalBroker
from srtm.control import DesiredTopic, Share, SyncAnswer, SyncRequest, Throttling
from srtm.log import Log
from tests.support.fake_engine import FakeEngine

TOPIC = DesiredTopic(
    topic="t", share=Share(version=3, rate=10.0, burst=2.0), histories=True, steady_histories=True, channels=["c"]
)
ABOUT = SyncRequest(incarnation="1", srtm_version="0", tcp_address="h:1", http_address="h:2", mcap=5.0)


class Told:
    """In place of those who follow the topics in force."""

    def __init__(self) -> None:
        self.histories: list[tuple[Any, Any]] = []
        self.exchanges = 0
        self.rechecks = 0
        self.shares: list[dict[str, int]] = []

    def follow_histories(self, topics: Any, seldom: Any) -> None:
        self.histories.append((topics, seldom))

    def follow(self) -> None:
        self.exchanges += 1

    def recheck(self) -> None:
        self.rechecks += 1


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def holder() -> LeaseHolder:
    return LeaseHolder(FakeEngine())  # type: ignore[arg-type]


@pytest.fixture
def membership(told: Told, holder: LeaseHolder, monkeypatch: pytest.MonkeyPatch) -> Membership:
    parts: dict[str, Any] = {
        "engine": None,
        "contracts": None,
        "drain": None,
        "throttling": Throttling,
        "directory": None,
        "acceptance": None,
    }
    config = BrokerConfig(name="b1", distributors=("http://d:4190",))
    broker = LocalBroker(name="b1", about=ABOUT, holder=holder, log=Log("b1", print), **parts)
    made = Membership(config, broker, cast(Any, told), cast(Any, None), cast(Any, told), None)
    monkeypatch.setattr(made.histories, "follow", told.follow_histories)
    monkeypatch.setattr(made.histories, "note_shares", told.shares.append)
    return made


def test_an_answer_without_news_sets_nothing_going(membership: Membership, holder: LeaseHolder, told: Told) -> None:
    holder.apply(SyncAnswer(version=1, topics=[TOPIC]), 0)
    membership.follow([])
    assert (told.histories, told.exchanges) == ([(["t"], ["t"])], 1)
    holder.apply(SyncAnswer(version=1, unchanged=True), 0)
    membership.follow([])
    assert (len(told.histories), told.exchanges) == (1, 1)


def test_another_share_concerns_who_exchanges_it_and_who_tells_of_traffic(
    membership: Membership, holder: LeaseHolder, told: Told
) -> None:
    holder.apply(SyncAnswer(version=1, topics=[TOPIC]), 0)
    membership.follow([])
    more = msgspec.structs.replace(TOPIC, share=Share(version=4, rate=11.0, burst=2.0))
    holder.apply(SyncAnswer(version=2, topics=[more]), 0)
    membership.follow([])
    assert (len(told.histories), told.exchanges) == (1, 2)
    assert told.shares == [{"t": 3}, {"t": 4}]


def test_whoever_gives_up_its_shares_exchanges_none(membership: Membership, holder: LeaseHolder, told: Told) -> None:
    holder.apply(SyncAnswer(version=1, topics=[TOPIC]), 0)
    membership.follow([])
    holder.give_up()
    membership.follow([])
    assert told.exchanges == 2


def test_what_is_wanted_no_longer_is_not_followed(membership: Membership, holder: LeaseHolder, told: Told) -> None:
    holder.apply(SyncAnswer(version=1, topics=[TOPIC]), 0)
    membership.follow([])
    holder.apply(SyncAnswer(version=2), 0)
    membership.follow([])
    assert told.histories[-1] == ([], [])

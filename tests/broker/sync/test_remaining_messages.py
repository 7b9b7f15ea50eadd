"""What is left on a broker, and why it does not go by itself."""

import msgspec

from broker import snapshot
from broker.nsqd.nsqlookupd import Registration, registrations
from broker.sync.remaining_messages import messages_left, obstacles, topics_left
from srtm.control import MessagesLeft
from tests.support.fake_engine import FakeEngine


def seen(change=lambda _topics: None):
    """The snapshot of a broker with the topics ``t`` (channels c and d) and ``u``, after ``change``."""
    engine = FakeEngine()
    for channel in ("c", "d"):
        engine.create_topic("t")
        engine.create_channel("t", channel)
    engine.create_topic("u")
    engine.set_bucket("u", 1_000_000, 1_000_000, False, 9, 99, 1, False)
    document = msgspec.json.decode(engine.snapshot("", "", False))
    change({topic["topic_name"]: topic for topic in document["topics"]})
    return msgspec.convert(document, snapshot.Snapshot)


def test_everything_that_was_not_delivered_counts_once():
    def change(topics):
        topics["t"]["channels"][0].update(depth=1, in_flight_count=20, deferred_count=300)
        topics["t"]["channels"][1].update(depth=4)
        topics["u"]["depth"] = 60_000  # of which 50,000 wait for tokens
        topics["u"]["bucket"]["backlog"] = 50_000

    left = messages_left(seen(change))
    assert left == MessagesLeft(queued=10_005, in_flight=20, deferred=300, waiting=50_000)
    assert left.total == 60_325


def test_nothing_is_nothing():
    assert messages_left(seen()).total == 0
    assert obstacles(seen()) == []
    assert topics_left(seen()) == set()


def test_what_a_person_must_see_to_is_said():
    def change(topics):
        topics["t"]["channels"][0].update(depth=1)
        topics["t"]["channels"][1].update(in_flight_count=1, paused=True)
        topics["u"].update(depth=3)
        topics["u"]["bucket"].update(backlog=2, rate_micro=0)

    assert obstacles(seen(change)) == [
        "channel t:c has no consumer",
        "channel t:d is paused",
        "topic u has no tokens here",
        "topic u has no channel",
    ]

    def mend(topics):
        topics["t"]["channels"][0].update(depth=1, client_count=1)
        topics["t"].update(depth=1, paused=True)

    assert obstacles(seen(mend)) == ["topic t is paused"]


def test_a_list_of_obstacles_stays_short():
    def change(topics):
        topics["t"]["channels"] = [
            {**topics["t"]["channels"][0], "channel_name": str(i), "depth": 1} for i in range(12)
        ]

    assert obstacles(seen(change))[-1] == "and 2 more"


def test_only_what_has_messages_left_stays_registered():
    def change(topics):
        topics["t"]["channels"][0].update(in_flight_count=1)

    now = seen(change)
    assert registrations(now, topics_left(now)) == {
        Registration("t"), Registration("t", "c"), Registration("t", "d"),
    }  # fmt: skip
    assert registrations(seen(), topics_left(seen())) == set()

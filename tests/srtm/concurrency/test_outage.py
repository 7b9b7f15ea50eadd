"""What is said of an outage."""

from srtm.concurrency.outage import Outage


def test_reasons_that_take_turns_are_said_once_each():
    outage = Outage()
    assert [outage.is_news(reason) for reason in ("a is away", "b is away") * 5] == [True, True] + 8 * [False]


def test_after_its_end_a_reason_is_news_again():
    outage = Outage()
    outage.is_news("a is away")
    assert outage.ends()
    assert not outage.ends()
    assert outage.is_news("a is away")


def test_reasons_that_differ_every_time_are_not_said_for_ever():
    outage = Outage()
    assert sum(outage.is_news(f"late by {ms} ms") for ms in range(1000)) < 20
    assert outage.ends()

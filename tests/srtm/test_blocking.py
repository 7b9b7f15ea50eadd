"""``srtm.blocking`` from ordinary threads, against a broker on a port of loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import srtm
from srtm.blocking import Publisher, Subscriber
from tests.support.echo_broker import EchoBroker, echo_broker

FIRST = b"0000000000000000"


@pytest.fixture
def broker() -> Iterator[EchoBroker]:
    with echo_broker() as running:
        yield running


def test_a_thread_publishes_and_gets_the_receipt(broker: EchoBroker) -> None:
    with Publisher("t", "p", brokers=[broker.address]) as publisher:
        assert publisher.publish(b"one") == srtm.Receipt(0.0, 1.0)
        assert publisher.receipt == srtm.Receipt(0.0, 1.0)
        assert publisher.address == broker.address


def test_many_threads_share_one_publisher(broker: EchoBroker) -> None:
    with Publisher("t", "p", brokers=[broker.address]) as publisher, ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(publisher.publish, [f"{number}".encode() for number in range(40)]))
    assert receipts == [srtm.Receipt(0.0, 1.0)] * 40


def test_a_thread_iterates_over_what_comes_and_finishes_it(broker: EchoBroker) -> None:
    with (
        Subscriber("t", "c", brokers=[broker.address]) as subscriber,
        Publisher("t", "p", brokers=[broker.address]) as publisher,
    ):
        publisher.publish(b"one")
        delivery = next(iter(subscriber))
        assert (delivery.body, delivery.broker, delivery.attempts) == (b"one", broker.address, 1)
        assert subscriber.connected == subscriber.brokers == [broker.address]
        assert delivery.touch()
        assert delivery.requeue(50)
        assert delivery.finish()
    # leaving waits until the broker has taken every answer
    assert broker.answers == [b"TOUCH " + FIRST, b"REQ " + FIRST + b" 50", b"FIN " + FIRST]


def test_a_with_block_finishes_its_message_and_requeues_it_if_it_raises(broker: EchoBroker) -> None:
    with (
        Subscriber("t", "c", brokers=[broker.address]) as subscriber,
        Publisher("t", "p", brokers=[broker.address]) as publisher,
    ):
        publisher.publish(b"one")
        delivery = subscriber.receive()
        with pytest.raises(ZeroDivisionError), delivery:
            raise ZeroDivisionError
        with delivery:
            pass
    assert broker.answers == [b"REQ " + FIRST + b" 0", b"FIN " + FIRST]


def test_receiving_ends_after_the_time_given(broker: EchoBroker) -> None:
    with Subscriber("t", "c", brokers=[broker.address]) as subscriber, pytest.raises(TimeoutError):
        subscriber.receive(timeout_s=0.01)


def test_all_blocks_share_one_thread_which_ends_with_the_last(broker: EchoBroker) -> None:
    before = threading.active_count()
    with Publisher("t", "p", brokers=[broker.address]), Subscriber("t", "c", brokers=[broker.address]):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_what_cannot_be_reached_is_told_as_under_an_event_loop() -> None:
    with (
        pytest.raises(srtm.Unavailable, match=r"no broker for topic 't' within 0\.05 s"),
        Publisher("t", "p", brokers=["127.0.0.1:1"], patience_s=0.05),
    ):
        pytest.fail("it was entered")
    with pytest.raises(srtm.BadInput, match="topic: 'a b'"), Publisher("a b", "p", brokers=["127.0.0.1:1"]):
        pytest.fail("it was entered")


def test_wrong_use_says_what_to_write(broker: EchoBroker) -> None:
    publisher = Publisher("t", "p", brokers=[broker.address])
    with pytest.raises(srtm.Misuse, match=r"write 'with srtm.blocking.Publisher\(...\) as publisher:'"):
        publisher.publish(b"one")
    with publisher, pytest.raises(srtm.BadInput, match="body: 'str': must be bytes: encode the text"):
        publisher.publish("one")  # type: ignore[arg-type]
    with pytest.raises(srtm.Closed, match="use it inside its 'with' block"):
        publisher.publish(b"late")
    with pytest.raises(srtm.Misuse, match="make a new one for each 'with' block"), publisher:
        pytest.fail("it was entered")

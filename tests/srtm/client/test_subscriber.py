"""``srtm.Subscriber`` against brokers that the test plays, in simulated time."""

from __future__ import annotations

import anyio
import httpx
import pytest
from anyio.abc import TaskGroup

from srtm.client.distributor import DistributorClient
from srtm.client.subscriber import Delivery, Subscriber
from srtm.errors import BadInput, Closed, Misuse, Unavailable
from tests.support.both_loops import both_loops, settled
from tests.support.scripted_broker import Network, Session

ONE, TWO = "127.0.0.1:1001", "127.0.0.1:1002"
ID = b"0123456789abcdef"


class Lookup:
    """nsqlookupd's answer; the test changes ``addresses``."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.away = False
        self.asked_at: list[float] = []
        self.client = DistributorClient("http://d", transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        assert (request.url.path, request.url.params["topic"]) == ("/lookup", "t")
        self.asked_at.append(anyio.current_time())
        if self.away:
            raise httpx.ConnectError("connection refused")
        if not self.addresses:
            return httpx.Response(404, json={"message": "TOPIC_NOT_FOUND"})
        return httpx.Response(200, json={"channels": [], "producers": [_producer(one) for one in self.addresses]})


def _producer(address: str) -> dict[str, object]:
    host, port = address.split(":")
    rest = {"remote_address": address, "hostname": "h", "http_port": 1, "version": "1.3.0"}
    return rest | {"broadcast_address": host, "tcp_port": int(port)}


async def subscribed(network: Network) -> Session:
    session = await network.accepted()
    assert await session.command() == (b"SUB t c", b"")
    await session.respond(b"OK")
    return session


async def rdy_of(session: Session) -> int:
    line, _ = await session.command()
    word, count = line.split()
    assert word == b"RDY"
    return int(count)


class Caller:
    """Takes deliveries in a task, as a program would."""

    def __init__(self) -> None:
        self.subscriber: Subscriber | None = None
        self.taken: list[Delivery] = []

    async def run(self, subscriber: Subscriber) -> None:
        async with subscriber:
            self.subscriber = subscriber
            async for delivery in subscriber:
                self.taken.append(delivery)


@pytest.fixture
def caller() -> Caller:
    return Caller()


@both_loops
async def test_it_subscribes_where_the_lookup_says_and_answers_go_back_the_way_the_message_came(
    network: Network, caller: Caller, tasks: TaskGroup
) -> None:
    tasks.start_soon(caller.run, Subscriber("t", "c", distributor=Lookup(ONE).client, connect=network.connect))
    session = await subscribed(network)
    assert await rdy_of(session) == 200
    await session.deliver(ID, b"hello", attempts=2)
    await settled()
    (delivery,) = caller.taken
    assert (delivery.body, delivery.attempts, delivery.broker) == (b"hello", 2, ONE)
    assert await delivery.touch()
    assert await delivery.requeue(50)
    assert await delivery.finish()
    assert [(await session.command())[0] for _ in range(3)] == [b"TOUCH " + ID, b"REQ " + ID + b" 50", b"FIN " + ID]
    tasks.cancel_scope.cancel()


@both_loops
async def test_a_secret_is_shown_before_it_subscribes(network: Network, caller: Caller, tasks: TaskGroup) -> None:
    subscriber = Subscriber("t", "c", brokers=[ONE], secret="eva:x", connect=network.connect)
    tasks.start_soon(caller.run, subscriber)
    session = await network.accepted()
    assert await session.command() == (b"AUTH", b"eva:x")
    await session.respond(b'{"identity":"eva"}')
    assert await session.command() == (b"SUB t c", b"")
    tasks.cancel_scope.cancel()


@both_loops
async def test_ready_counts_are_split_over_the_brokers_and_split_again_when_one_joins_or_leaves(
    network: Network, caller: Caller, tasks: TaskGroup
) -> None:
    lookup = Lookup(ONE)
    subscriber = Subscriber("t", "c", distributor=lookup.client, max_in_flight=5, connect=network.connect)
    tasks.start_soon(caller.run, subscriber)
    one = await subscribed(network)
    assert await rdy_of(one) == 5
    lookup.addresses.append(TWO)
    two = await subscribed(network)
    assert [await rdy_of(one), await rdy_of(two)] == [3, 2]
    await one.stream.aclose()
    assert await rdy_of(two) == 5
    tasks.cancel_scope.cancel()


@both_loops
async def test_a_broker_that_newly_takes_the_topic_is_connected_within_a_second(
    network: Network, caller: Caller, tasks: TaskGroup
) -> None:
    lookup = Lookup()
    tasks.start_soon(caller.run, Subscriber("t", "c", distributor=lookup.client, connect=network.connect))
    for address in (ONE, TWO):
        await anyio.sleep(20.1)  # long after the start, and not in step with the lookups
        lookup.addresses.append(address)
        before = anyio.current_time()
        await subscribed(network)
        assert anyio.current_time() - before < 1.0
    tasks.cancel_scope.cancel()


@both_loops
async def test_a_broken_connection_is_made_again_and_its_undelivered_messages_are_left_to_the_broker(
    network: Network, tasks: TaskGroup
) -> None:
    taken: list[bytes] = []

    async def slow_caller(subscriber: Subscriber) -> None:
        async with subscriber:
            await anyio.sleep(1)  # both connections have delivered by now, the first one is lost
            async for delivery in subscriber:
                taken.append(delivery.body)

    tasks.start_soon(slow_caller, Subscriber("t", "c", distributor=Lookup(ONE).client, connect=network.connect))
    first = await subscribed(network)
    await first.deliver(ID, b"came with the first")
    await first.stream.aclose()
    again = await subscribed(network)
    await again.deliver(ID, b"came again", attempts=2)
    await anyio.sleep(2)
    assert taken == [b"came again"]
    tasks.cancel_scope.cancel()


@both_loops
async def test_finishing_a_message_whose_connection_is_gone_says_so(
    network: Network, caller: Caller, tasks: TaskGroup
) -> None:
    tasks.start_soon(caller.run, Subscriber("t", "c", distributor=Lookup(ONE).client, connect=network.connect))
    session = await subscribed(network)
    await session.deliver(ID, b"hello")
    await settled()
    await session.stream.aclose()
    await settled()
    assert not await caller.taken[0].finish()
    tasks.cancel_scope.cancel()


@both_loops
async def test_with_auto_finish_each_message_is_finished_as_it_is_handed_over(
    network: Network, caller: Caller, tasks: TaskGroup
) -> None:
    subscriber = Subscriber("t", "c", distributor=Lookup(ONE).client, auto_finish=True, connect=network.connect)
    tasks.start_soon(caller.run, subscriber)
    session = await subscribed(network)
    await rdy_of(session)
    await session.deliver(ID, b"hello")
    assert await session.command() == (b"FIN " + ID, b"")
    tasks.cancel_scope.cancel()


@both_loops
async def test_heartbeats_are_answered_while_the_caller_takes_nothing(network: Network, tasks: TaskGroup) -> None:
    async def busy_caller() -> None:
        async with Subscriber("t", "c", brokers=[ONE], connect=network.connect):
            await anyio.sleep_forever()

    tasks.start_soon(busy_caller)
    session = await subscribed(network)
    await rdy_of(session)
    await session.deliver(ID, b"nobody takes this")
    await session.respond(b"_heartbeat_")
    assert await session.command() == (b"NOP", b"")
    tasks.cancel_scope.cancel()


@both_loops
async def test_an_answer_that_came_too_late_ends_nothing(network: Network, caller: Caller, tasks: TaskGroup) -> None:
    tasks.start_soon(caller.run, Subscriber("t", "c", brokers=[ONE], connect=network.connect))
    session = await subscribed(network)
    await session.refuse(b"E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight")
    await session.deliver(ID, b"still here")
    await settled()
    assert [delivery.body for delivery in caller.taken] == [b"still here"]
    tasks.cancel_scope.cancel()


@both_loops
async def test_leaving_waits_until_the_broker_has_taken_every_answer(network: Network, tasks: TaskGroup) -> None:
    left = anyio.Event()

    async def take_one() -> None:
        async with Subscriber("t", "c", brokers=[ONE], connect=network.connect) as subscriber:
            delivery = await anext(subscriber)
            await delivery.finish()
        left.set()

    tasks.start_soon(take_one)
    session = await subscribed(network)
    await rdy_of(session)
    await session.deliver(ID, b"one")
    assert [(await session.command())[0] for _ in range(2)] == [b"FIN " + ID, b"CLS"]
    assert not left.is_set()
    await session.respond(b"CLOSE_WAIT")
    await left.wait()
    assert await session.ended()


@both_loops
async def test_while_the_lookup_is_away_the_brokers_go_on(network: Network, caller: Caller, tasks: TaskGroup) -> None:
    lookup = Lookup(ONE)
    tasks.start_soon(caller.run, Subscriber("t", "c", distributor=lookup.client, connect=network.connect))
    session = await subscribed(network)
    lookup.away = True
    await anyio.sleep(10)
    await session.stream.aclose()
    again = await subscribed(network)
    await again.deliver(ID, b"hello")
    await settled()
    assert len(caller.taken) == 1
    tasks.cancel_scope.cancel()


@both_loops
async def test_a_broker_that_the_lookup_no_longer_names_is_not_dialled_again(
    network: Network, caller: Caller, tasks: TaskGroup
) -> None:
    lookup = Lookup(ONE)
    tasks.start_soon(caller.run, Subscriber("t", "c", distributor=lookup.client, connect=network.connect))
    session = await subscribed(network)
    lookup.addresses.clear()
    await anyio.sleep(2)
    await session.stream.aclose()
    await anyio.sleep(10)
    assert network.dialled == [ONE]
    tasks.cancel_scope.cancel()


@both_loops
async def test_no_lookup_at_all_is_said_after_the_patience_given(network: Network) -> None:
    lookup = Lookup()
    lookup.away = True
    with pytest.raises(Unavailable, match=r"no broker to subscribe to for 't' within 3 s: http://d cannot be reached"):
        async with Subscriber("t", "c", distributor=lookup.client, patience_s=3, connect=network.connect):
            pytest.fail("it was entered")


@both_loops
async def test_named_brokers_that_refuse_are_said_after_the_patience_given(network: Network) -> None:
    network.refusing.add(ONE)
    with pytest.raises(Unavailable, match=r"within 3 s: 127.0.0.1:1001 cannot be reached: connection refused"):
        async with Subscriber("t", "c", brokers=[ONE], patience_s=3, connect=network.connect):
            pytest.fail("it was entered")


def test_bad_names_and_counts_are_refused_before_anything_is_dialled(network: Network) -> None:
    with pytest.raises(BadInput, match="channel: 'c d'"):
        Subscriber("t", "c d", connect=network.connect)
    with pytest.raises(BadInput, match="max_in_flight: 0: must be at least 1"):
        Subscriber("t", "c", max_in_flight=0, connect=network.connect)


def message_id(number: int) -> bytes:
    return f"{number:016}".encode()


@both_loops
async def test_a_block_finishes_its_message_and_requeues_it_if_it_raises(
    network: Network, caller: Caller, tasks: TaskGroup
) -> None:
    tasks.start_soon(caller.run, Subscriber("t", "c", brokers=[ONE], connect=network.connect))
    session = await subscribed(network)
    await rdy_of(session)
    await session.deliver(ID, b"hello")
    await settled()
    with pytest.raises(ZeroDivisionError):
        async with caller.taken[0]:
            raise ZeroDivisionError
    async with caller.taken[0]:
        pass
    assert [(await session.command())[0] for _ in range(2)] == [b"REQ " + ID + b" 0", b"FIN " + ID]
    tasks.cancel_scope.cancel()


@both_loops
async def test_as_many_messages_are_handled_at_once_as_is_asked_and_each_is_finished_when_its_handler_returns(
    network: Network, tasks: TaskGroup
) -> None:
    begun: list[bytes] = []
    may_end = {str(number).encode(): anyio.Event() for number in range(3)}

    async def handle(delivery: Delivery) -> None:
        begun.append(delivery.body)
        await may_end[delivery.body].wait()

    async def consume() -> None:
        async with Subscriber("t", "c", brokers=[ONE], connect=network.connect) as subscriber:
            await subscriber.handle_each(handle, concurrency=2)

    tasks.start_soon(consume)
    session = await subscribed(network)
    await rdy_of(session)
    for number in range(3):
        await session.deliver(message_id(number), str(number).encode())
    await settled()
    assert sorted(begun) == [b"0", b"1"]  # the third waits for one of them
    may_end[b"1"].set()
    assert await session.command() == (b"FIN " + message_id(1), b"")
    await settled()
    assert sorted(begun) == [b"0", b"1", b"2"]
    tasks.cancel_scope.cancel()


@both_loops
async def test_an_exception_of_a_handler_is_raised_and_what_was_being_handled_is_requeued(
    network: Network, tasks: TaskGroup
) -> None:
    raised: list[Exception] = []

    async def handle(delivery: Delivery) -> None:
        if delivery.body == b"bad":
            raise ZeroDivisionError
        await anyio.sleep_forever()

    async def consume() -> None:
        async with Subscriber("t", "c", brokers=[ONE], connect=network.connect) as subscriber:
            try:
                await subscriber.handle_each(handle, concurrency=2)
            except ZeroDivisionError as error:
                raised.append(error)

    tasks.start_soon(consume)
    session = await subscribed(network)
    await rdy_of(session)
    await session.deliver(message_id(1), b"good")
    await session.deliver(message_id(2), b"bad")
    answers = {(await session.command())[0] for _ in range(2)}
    assert answers == {b"REQ " + message_id(1) + b" 0", b"REQ " + message_id(2) + b" 0"}
    assert len(raised) == 1
    tasks.cancel_scope.cancel()


@both_loops
async def test_handling_what_is_finished_already_is_refused(network: Network) -> None:
    subscriber = Subscriber("t", "c", brokers=[ONE], auto_finish=True, connect=network.connect)
    with pytest.raises(Misuse, match="leave out auto_finish=True"):
        await subscriber.handle_each(print)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="concurrency: 0: must be at least 1"):
        await Subscriber("t", "c", brokers=[ONE]).handle_each(print, concurrency=0)  # type: ignore[arg-type]


@both_loops
async def test_receiving_after_the_block_is_refused(network: Network, tasks: TaskGroup) -> None:
    subscriber = Subscriber("t", "c", brokers=[ONE], connect=network.connect)
    ended = anyio.Event()

    async def enter_and_leave() -> None:
        async with subscriber:
            pass
        ended.set()

    tasks.start_soon(enter_and_leave)
    session = await subscribed(network)
    await rdy_of(session)
    assert await session.command() == (b"CLS", b"")
    await session.respond(b"CLOSE_WAIT")
    await ended.wait()
    with pytest.raises(Closed, match="receive inside its 'async with' block"):
        await anext(subscriber)


@both_loops
async def test_a_subscriber_that_is_cancelled_while_it_takes_leave_hangs_up(network: Network, tasks: TaskGroup) -> None:
    left = anyio.Event()

    async def enter_and_leave(scope: anyio.CancelScope) -> None:
        with scope:
            async with Subscriber("t", "c", brokers=[ONE], connect=network.connect):
                pass
        left.set()

    scope = anyio.CancelScope()
    tasks.start_soon(enter_and_leave, scope)
    session = await subscribed(network)
    await rdy_of(session)
    assert await session.command() == (b"CLS", b"")
    scope.cancel()
    await left.wait()
    assert await session.ended()

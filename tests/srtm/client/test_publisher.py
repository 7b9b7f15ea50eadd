"""``srtm.Publisher`` against a broker that the test plays, in simulated time."""

from __future__ import annotations

import anyio
import pytest
from anyio.abc import TaskGroup

from srtm.client.publisher import Publisher
from srtm.errors import BadInput, Closed, NotFound, PublishRefused, Unavailable
from srtm.protocol import Receipt
from tests.support.both_loops import both_loops, settled
from tests.support.publishing import HERE, THERE, Assignments, Outcomes, expect_bodies, running
from tests.support.scripted_broker import Network


@both_loops
async def test_it_introduces_itself_with_its_id_and_asks_for_receipts(
    network: Network, assignments: Assignments, tasks: TaskGroup
) -> None:
    async def enter() -> None:
        async with Publisher("t", "p", distributor=assignments.client, connect=network.connect):
            await anyio.sleep_forever()

    tasks.start_soon(enter)
    said = await (await network.dialled_by()).greet()
    assert said["client_id"] == "p"
    assert said["feature_negotiation"] is True
    assert said["srtm"] == {"v": 1, "receipts": True, "left": True}
    tasks.cancel_scope.cancel()


@both_loops
async def test_publish_returns_the_brokers_receipt(network: Network, assignments: Assignments) -> None:
    async with running(network, assignments) as (_, session, outcomes):
        await outcomes.start(b"one", b"two")
        await expect_bodies(session, b"one", b"two")
        await session.respond(b"OK wait_ns=2000000 fill=0.5")
        await session.respond(b"OK")
        await settled()
        assert outcomes.ended == {b"one": Receipt(2.0, 0.5), b"two": Receipt(None, None)}


@both_loops
async def test_the_latest_receipt_says_the_wait_and_what_is_left_of_the_bucket(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments) as (publisher, session, outcomes):
        assert publisher.receipt is None
        await outcomes.start(b"one", b"two")
        await expect_bodies(session, b"one", b"two")
        await session.respond(b"OK wait_ns=2000000 fill=0.5")
        await session.respond(b"OK wait_ns=3000000 fill=0")
        await settled()
        assert publisher.receipt == Receipt(3.0, 0.0)


@both_loops
async def test_many_go_as_one_command(network: Network, assignments: Assignments, tasks: TaskGroup) -> None:
    async with running(network, assignments) as (publisher, session, _):
        tasks.start_soon(publisher.publish_many, [b"a", b"b"])
        assert await session.command() == (b"MPUB t", b"\0\0\0\2\0\0\0\1a\0\0\0\1b")
        await session.respond(b"OK")


@both_loops
async def test_answers_belong_to_publishes_in_order_and_a_rate_limit_ends_nothing(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments) as (_, session, outcomes):
        await outcomes.start(b"one", b"two", b"three")
        await expect_bodies(session, b"one", b"two", b"three")
        await session.respond(b"OK")
        await session.refuse(b"E_RATE_LIMITED PUB retry after 30 ms")
        await session.respond(b"_heartbeat_")
        await session.respond(b"OK")
        assert await session.command() == (b"NOP", b"")
        await settled()
        assert outcomes.ended[b"one"] == outcomes.ended[b"three"] == Receipt()
        refused = outcomes.ended[b"two"]
        assert isinstance(refused, PublishRefused)
        assert refused.retry_after_ms == 30
        assert network.dialled == [HERE]


@both_loops
async def test_what_was_not_answered_is_sent_again_in_order_after_a_broken_connection(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments) as (_, session, outcomes):
        await outcomes.start(b"one", b"two")
        await expect_bodies(session, b"one", b"two")
        await session.respond(b"OK")
        await session.stream.aclose()
        assignments.address = THERE
        await outcomes.start(b"three")
        again = await network.accepted()
        assert again.address == THERE
        await expect_bodies(again, b"two", b"three")
        await again.respond(b"OK")
        await again.respond(b"OK")
        await settled()
        assert all(outcomes.ended[body] == Receipt() for body in (b"one", b"two", b"three"))


@both_loops
async def test_a_fatal_refusal_fails_one_publish_and_the_rest_go_on_over_a_new_connection(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments) as (_, session, outcomes):
        await outcomes.start(b"big", b"small")
        await session.refuse(b"E_BAD_MESSAGE PUB message too big 3 > 2")
        again = await network.accepted()
        await expect_bodies(again, b"small")
        await again.respond(b"OK")
        await settled()
        assert outcomes.ended[b"small"] == Receipt()
        refused = outcomes.ended[b"big"]
        assert isinstance(refused, PublishRefused)
        assert "too big 3 > 2" in str(refused)
        assert refused.retry_after_ms is None


@both_loops
async def test_a_broker_that_is_starting_is_waited_out(network: Network, assignments: Assignments) -> None:
    async with running(network, assignments) as (_, session, outcomes):
        await outcomes.start(b"one", b"two")
        for _ in range(4):
            await expect_bodies(session, b"one", b"two")
            await session.refuse(b"E_PUB_FAILED PUB failed broker b is starting")
            session = await network.accepted()
        await expect_bodies(session, b"one", b"two")
        await session.respond(b"OK")
        await session.respond(b"OK")
        await settled()
        assert outcomes.ended == {b"one": Receipt(), b"two": Receipt()}


@both_loops
async def test_a_broker_that_cannot_take_anything_for_longer_is_told_to_every_caller(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments) as (_, session, outcomes):
        await outcomes.start(b"one", b"two")
        began = anyio.current_time()
        while not outcomes.ended:
            await session.refuse(b"E_PUB_FAILED PUB failed memory is full")
            session = await network.accepted()
        assert 10 <= anyio.current_time() - began < 14
        assert {type(outcome) for outcome in outcomes.ended.values()} == {PublishRefused}
        assert len(outcomes.ended) == 2
        await outcomes.start(b"three")
        await session.refuse(b"E_PUB_FAILED PUB failed memory is full")
        await network.accepted()
        assert isinstance(outcomes.ended[b"three"], PublishRefused)  # at once: nothing has changed


@both_loops
async def test_a_silent_broker_is_given_up_after_two_and_a_half_heartbeats(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments):
        before = anyio.current_time()
        await network.accepted()
        assert 25.0 <= anyio.current_time() - before < 25.1


@both_loops
async def test_while_the_distributor_is_away_it_goes_back_to_the_broker_that_it_knows(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments) as (_, session, _):
        assignments.away = True
        await session.stream.aclose()
        assert (await network.accepted()).address == HERE


@both_loops
async def test_a_cancelled_publish_is_not_sent_again_and_its_answer_goes_to_nobody(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments) as (publisher, session, outcomes):
        with anyio.move_on_after(1):
            await publisher.publish(b"given up")
        await outcomes.start(b"kept")
        await expect_bodies(session, b"given up", b"kept")
        await session.stream.aclose()
        again = await network.accepted()
        await expect_bodies(again, b"kept")
        await again.respond(b"OK")
        await settled()
        assert outcomes.ended == {b"kept": Receipt()}


@both_loops
async def test_an_answer_to_nothing_makes_it_leave_that_connection(network: Network, assignments: Assignments) -> None:
    async with running(network, assignments) as (_, session, _):
        await session.respond(b"OK")
        await network.accepted()
        assert network.dialled == [HERE, HERE]


@both_loops
async def test_an_unknown_topic_is_refused_at_once(network: Network, assignments: Assignments) -> None:
    assignments.status = 404
    with pytest.raises(NotFound, match="topic 't' is not known here"):
        async with Publisher("t", "p", distributor=assignments.client, connect=network.connect):
            pytest.fail("it was entered")


@both_loops
async def test_without_any_broker_entering_says_so_after_its_patience(
    network: Network, assignments: Assignments
) -> None:
    network.refusing.add(HERE)
    with pytest.raises(Unavailable, match=r"no broker for topic 't' within 3 s: 127.0.0.1:1001 cannot be reached"):
        async with Publisher("t", "p", distributor=assignments.client, patience_s=3, connect=network.connect):
            pytest.fail("it was entered")


@both_loops
async def test_a_secret_is_shown_to_each_broker_before_the_first_publish(
    network: Network, assignments: Assignments, tasks: TaskGroup
) -> None:
    async def publish() -> None:
        client = assignments.client
        async with Publisher("t", "p", distributor=client, secret="eva:x", connect=network.connect) as publisher:
            await publisher.publish(b"one")

    tasks.start_soon(publish)
    for _ in range(2):
        session = await network.accepted()
        assert await session.command() == (b"AUTH", b"eva:x")
        await session.respond(b'{"identity":"eva"}')
        assert await session.command() == (b"PUB t", b"one")
        await session.stream.aclose()
    tasks.cancel_scope.cancel()


@both_loops
async def test_a_secret_that_is_refused_is_said_after_the_patience_given(
    network: Network, assignments: Assignments, tasks: TaskGroup
) -> None:
    async def refuse() -> None:
        while True:
            session = await network.accepted()
            await session.command()
            await session.refuse(b"E_AUTH_FAILED AUTH failed")

    tasks.start_soon(refuse)
    client = assignments.client
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1001 refused AUTH: E_AUTH_FAILED AUTH failed"):
        async with Publisher("t", "p", distributor=client, secret="x", patience_s=3, connect=network.connect):
            pytest.fail("it was entered")
    tasks.cancel_scope.cancel()
    with pytest.raises(BadInput, match="secret"):
        Publisher("t", "p", brokers=[HERE], secret="")


@both_loops
async def test_a_topic_that_goes_away_ends_the_block_with_that_error(
    network: Network, assignments: Assignments, tasks: TaskGroup
) -> None:
    async def lose_the_topic() -> None:
        session = await network.accepted()
        assignments.status = 404
        await session.stream.aclose()

    tasks.start_soon(lose_the_topic)
    with pytest.raises(NotFound):
        async with Publisher("t", "p", distributor=assignments.client, connect=network.connect) as publisher:
            await publisher.publish(b"never answered")


@both_loops
async def test_named_plain_brokers_are_tried_in_turn(network: Network, tasks: TaskGroup) -> None:
    network.refusing.add(HERE)

    async def plain_nsqd() -> None:
        session = await network.accepted(aware=False)
        await expect_bodies(session, b"one")
        await session.respond(b"OK")

    tasks.start_soon(plain_nsqd)
    async with Publisher("t", "p", brokers=[HERE, THERE], connect=network.connect) as publisher:
        assert await publisher.publish(b"one") == Receipt(None, None)
        assert publisher.address == THERE


@both_loops
async def test_publishing_after_the_end_is_refused_and_what_waits_is_let_go(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments) as (publisher, _, outcomes):
        await outcomes.start(b"never answered")
    await settled()
    assert isinstance(outcomes.ended[b"never answered"], Closed)
    with pytest.raises(Closed):
        await publisher.publish(b"late")


def test_a_bad_topic_name_is_refused_before_anything_is_dialled(network: Network) -> None:
    with pytest.raises(BadInput, match="topic: 'a b'"):
        Publisher("a b", "p", connect=network.connect)
    assert network.dialled == []


@both_loops
async def test_a_broker_that_reads_nothing_holds_up_callers_and_loses_nothing(assignments: Assignments) -> None:
    network = Network(room=1)  # one unread send fills the connection
    async with running(network, assignments) as (_, session, outcomes):
        bodies = [f"{number}".encode() for number in range(20)]
        await outcomes.start(*bodies)
        await anyio.sleep(20)  # heartbeats go on, and nothing is given up
        assert outcomes.ended == {}
        await expect_bodies(session, *bodies)
        for _ in bodies:
            await session.respond(b"OK")
        await settled()
        assert list(outcomes.ended) == bodies
        assert network.dialled == [HERE]


@both_loops
async def test_no_more_is_outstanding_than_is_allowed(
    network: Network, assignments: Assignments, tasks: TaskGroup
) -> None:
    async def enter() -> None:
        async with Publisher(
            "t", "p", distributor=assignments.client, max_outstanding=2, connect=network.connect
        ) as publisher:
            outcomes.append(Outcomes(publisher, tasks))
            await anyio.sleep_forever()

    outcomes: list[Outcomes] = []
    tasks.start_soon(enter)
    session = await network.accepted()
    await outcomes[0].start(b"one", b"two", b"three")
    await expect_bodies(session, b"one", b"two")
    assert not session.buffer
    await session.respond(b"OK")
    await expect_bodies(session, b"three")
    tasks.cancel_scope.cancel()

"""A publisher that is told to move, against brokers that the test plays, in simulated time: nothing lost, nothing
twice, in order; and where that cannot be, at least once."""

from __future__ import annotations

import anyio
import pytest
from anyio.abc import TaskGroup

from srtm.client.publisher import Publisher
from srtm.protocol import Receipt
from tests.support.both_loops import both_loops, settled
from tests.support.publishing import HERE, THERE, Assignments, Outcomes, expect_bodies, running, tell
from tests.support.scripted_broker import Network

ELSEWHERE = "127.0.0.1:1003"


@both_loops
async def test_it_goes_on_where_it_is_until_it_is_connected_then_waits_for_what_is_outstanding(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments) as (publisher, session, outcomes):
        await outcomes.start(b"one")
        await tell(session, THERE, 2)
        await outcomes.start(b"two")  # while it dials
        await expect_bodies(session, b"one", b"two")
        there = await network.accepted()
        assert there.address == THERE
        await settled()
        await outcomes.start(b"three")  # connected: nothing more goes to the old one
        await session.respond(b"OK")
        await settled()
        assert publisher.address == HERE  # "two" is still outstanding
        assert not there.buffer
        await session.respond(b"OK")
        await expect_bodies(there, b"three")
        await there.respond(b"OK")
        assert await session.ended()
        await settled()
        assert outcomes.ended == dict.fromkeys([b"one", b"two", b"three"], Receipt())
        assert publisher.address == THERE


@both_loops
async def test_it_goes_on_there_only_when_the_last_message_here_has_its_token(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments) as (_, session, outcomes):
        await outcomes.start(b"one", b"two")
        await expect_bodies(session, b"one", b"two")
        await session.respond(b"OK wait_ns=700000000 fill=0")
        await session.respond(b"OK wait_ns=800000000 fill=0")
        accepted_s = anyio.current_time()
        await tell(session, THERE, 2)
        there = await network.accepted()
        await outcomes.start(b"three")
        await expect_bodies(there, b"three")
        assert anyio.current_time() - accepted_s == pytest.approx(0.85)  # and the time to hand it over


@pytest.mark.parametrize("receipt", [b"OK wait_ns=60000000000 fill=0", b"OK fill=0"], ids=["a minute", "no share"])
@both_loops
async def test_a_long_backlog_holds_it_up_for_five_seconds_at_most(
    network: Network, assignments: Assignments, receipt: bytes
) -> None:
    async with running(network, assignments) as (_, session, outcomes):
        await outcomes.start(b"one")
        await expect_bodies(session, b"one")
        await session.respond(receipt)
        accepted_s = anyio.current_time()
        await tell(session, THERE, 2)
        there = await network.accepted()
        await outcomes.start(b"two")
        await expect_bodies(there, b"two")
        assert anyio.current_time() - accepted_s == pytest.approx(5.0)


@both_loops
async def test_a_broker_that_cannot_be_reached_is_not_moved_to_and_the_next_word_counts_again(
    network: Network, assignments: Assignments
) -> None:
    network.refusing.add(THERE)
    async with running(network, assignments) as (_, session, outcomes):
        await tell(session, THERE, 2)
        await outcomes.start(b"one")
        await expect_bodies(session, b"one")
        await session.respond(b"OK")
        await settled()
        assert network.dialled == [HERE, THERE]
        assert outcomes.ended[b"one"] == Receipt()
        network.refusing.clear()
        await tell(session, THERE, 2)
        assert (await network.accepted()).address == THERE


@both_loops
async def test_a_broker_that_refuses_it_is_not_moved_to(network: Network, assignments: Assignments) -> None:
    async with running(network, assignments) as (publisher, session, outcomes):
        await tell(session, THERE, 2)
        there = await network.dialled_by()
        await there.refuse(b"E_INVALID no room for more connections")
        await outcomes.start(b"one")
        await expect_bodies(session, b"one")
        assert publisher.address == HERE


@both_loops
async def test_a_broker_that_never_answers_costs_no_publish_any_time(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments) as (_, session, outcomes):
        await tell(session, THERE, 2)
        await network.dialled_by()  # and not a word to it
        before_s = anyio.current_time()
        await outcomes.start(b"one")
        await expect_bodies(session, b"one")
        assert anyio.current_time() == before_s
        await anyio.sleep(6)  # it gives up after five
        await outcomes.start(b"two")
        await expect_bodies(session, b"two")


@both_loops
async def test_an_older_word_is_not_followed_not_even_in_the_middle_of_a_move(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments) as (publisher, session, _):
        await tell(session, THERE, 0)
        assert network.dialled == [HERE]
        await tell(session, THERE, 3)
        await tell(session, ELSEWHERE, 2)
        assert network.dialled == [HERE, THERE]
        await network.accepted()
        await settled()
        assert publisher.address == THERE


@both_loops
async def test_a_later_word_leads_elsewhere_in_the_middle_of_a_move(network: Network, assignments: Assignments) -> None:
    async with running(network, assignments) as (publisher, session, outcomes):
        await outcomes.start(b"one")
        await expect_bodies(session, b"one")
        await tell(session, THERE, 2)
        there = await network.accepted()
        await settled()  # connected, and held up by "one"
        await tell(session, ELSEWHERE, 3)
        assert await there.ended()
        elsewhere = await network.accepted()
        await outcomes.start(b"two")
        await session.respond(b"OK")
        await expect_bodies(elsewhere, b"two")
        assert publisher.address == ELSEWHERE


@both_loops
async def test_a_later_word_leads_back_in_the_middle_of_a_move(network: Network, assignments: Assignments) -> None:
    async with running(network, assignments) as (publisher, session, outcomes):
        await outcomes.start(b"one")
        await expect_bodies(session, b"one")
        await tell(session, THERE, 2)
        there = await network.accepted()
        await settled()
        await outcomes.start(b"two")
        await tell(session, HERE, 3)
        assert await there.ended()
        await expect_bodies(session, b"two")
        assert publisher.address == HERE


@both_loops
async def test_moved_back_and_forth_every_message_goes_out_once_and_in_order(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments) as (_, session, outcomes):
        seen = []
        for number in range(20):
            body = str(number).encode()
            await outcomes.start(body)
            seen.append(await session.command())
            await tell(session, [THERE, HERE][number % 2], number + 2)
            after = await network.accepted()
            await session.respond(b"OK wait_ns=0 fill=1")
            assert await session.ended()
            session = after
        await settled()
        assert seen == [(b"PUB t", str(number).encode()) for number in range(20)]
        assert len(outcomes.ended) == 20


@both_loops
async def test_when_the_old_broker_dies_during_the_move_what_it_had_not_answered_is_sent_again(
    network: Network, assignments: Assignments
) -> None:
    """At least once: "two" may have been taken before it died."""
    async with running(network, assignments) as (_, session, outcomes):
        await outcomes.start(b"one", b"two")
        await expect_bodies(session, b"one", b"two")
        await tell(session, THERE, 2)
        there = await network.accepted()
        await settled()
        await outcomes.start(b"three")
        await session.respond(b"OK")
        await session.stream.aclose()
        await expect_bodies(there, b"two", b"three")
        await there.respond(b"OK")
        await there.respond(b"OK")
        await settled()
        assert outcomes.ended == dict.fromkeys([b"one", b"two", b"three"], Receipt())
        assert network.dialled == [HERE, THERE]


@both_loops
async def test_when_the_old_broker_dies_before_the_new_one_answers_the_distributor_is_asked(
    network: Network, assignments: Assignments
) -> None:
    assignments.address = HERE
    async with running(network, assignments) as (_, session, outcomes):
        await outcomes.start(b"one")
        await expect_bodies(session, b"one")
        await tell(session, THERE, 2)
        half = await network.dialled_by()  # it never answers
        assignments.address = ELSEWHERE
        await session.stream.aclose()
        elsewhere = await network.accepted()
        assert elsewhere.address == ELSEWHERE
        await expect_bodies(elsewhere, b"one")
        await half.hung_up()


@both_loops
async def test_a_publisher_that_is_closed_in_the_middle_of_a_move_hangs_up_on_both(
    network: Network, assignments: Assignments, tasks: TaskGroup
) -> None:
    entered = anyio.Event()
    outcomes = []

    async def publish() -> None:
        async with Publisher("t", "p", distributor=assignments.client, connect=network.connect) as publisher:
            outcomes.append(Outcomes(publisher, tasks))
            await outcomes[0].start(b"never answered")
            await entered.wait()

    tasks.start_soon(publish)
    session = await network.accepted()
    await expect_bodies(session, b"never answered")
    await tell(session, THERE, 2)
    there = await network.accepted()
    await settled()
    entered.set()
    assert await session.ended()
    assert await there.ended()

"""A publisher that is told to move by a broker that can be asked: it goes on at the new one when all has left the old
one, by that one's word, and not by a guess."""

from __future__ import annotations

import anyio
import pytest

from srtm.client.handover import LONGEST_HOLD_S, READ_S
from tests.support.both_loops import both_loops
from tests.support.publishing import HERE, THERE, Assignments, expect_bodies, running, tell
from tests.support.scripted_broker import Network, Session


async def asked(session: Session, number: int) -> None:
    assert await session.command() == (f"LEFT t {number}".encode(), b"")


@both_loops
async def test_it_asks_once_all_is_answered_and_goes_on_when_it_is_told_however_long_that_takes(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments, tells_left=True) as (publisher, session, outcomes):
        await outcomes.start(b"one")
        await expect_bodies(session, b"one")
        await tell(session, THERE, 2)
        there = await network.accepted()
        await outcomes.start(b"two")
        await session.respond(b"OK wait_ns=0 fill=1")
        await asked(session, 1)
        await anyio.sleep(3)
        assert not there.buffer
        assert publisher.address == HERE
        left_s = anyio.current_time()
        await session.respond(b"_left_ t 1")
        await expect_bodies(there, b"two")
        assert anyio.current_time() - left_s == pytest.approx(READ_S)


@both_loops
async def test_a_broker_that_never_says_so_holds_it_up_for_five_seconds(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments, tells_left=True) as (_, session, outcomes):
        await outcomes.start(b"one")
        await expect_bodies(session, b"one")
        await session.respond(b"OK wait_ns=0 fill=1")
        await anyio.sleep(1)
        await tell(session, THERE, 2)
        there = await network.accepted()
        await asked(session, 1)
        asked_s = anyio.current_time()
        await outcomes.start(b"two")
        await expect_bodies(there, b"two")
        assert anyio.current_time() - asked_s == pytest.approx(LONGEST_HOLD_S)


@both_loops
async def test_an_answer_to_a_question_before_it_was_led_back_counts_for_nothing(
    network: Network, assignments: Assignments
) -> None:
    async with running(network, assignments, tells_left=True) as (publisher, session, outcomes):
        await outcomes.start(b"one")
        await expect_bodies(session, b"one")
        await session.respond(b"OK wait_ns=0 fill=1")
        await tell(session, THERE, 2)
        await network.accepted()
        await asked(session, 1)
        await tell(session, HERE, 3)
        await outcomes.start(b"two")
        await expect_bodies(session, b"two")
        await session.respond(b"OK wait_ns=0 fill=1")
        await tell(session, THERE, 4)
        there = await network.accepted()
        await asked(session, 2)
        await session.respond(b"_left_ t 1")
        await outcomes.start(b"three")
        await anyio.sleep(1)
        assert publisher.address == HERE
        await session.respond(b"_left_ t 2")
        await expect_bodies(there, b"three")


@both_loops
async def test_who_has_published_nothing_there_asks_nothing(network: Network, assignments: Assignments) -> None:
    async with running(network, assignments, tells_left=True) as (_, session, outcomes):
        await tell(session, THERE, 2)
        there = await network.accepted()
        await outcomes.start(b"one")
        await expect_bodies(there, b"one")
        assert await session.ended()

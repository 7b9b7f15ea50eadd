"""Who leads: the time for which a lead is sure, on a simulated clock; the lock itself, on a real PostgreSQL."""

import resource
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
import trio.testing

from distributor.leadership.election import SESSION_TIMEOUT_S, Election
from distributor.leadership.postgres_lock import PostgresLock
from distributor.storage.database import Database
from srtm.errors import Unavailable
from tests.support.fake_lock import Lock


async def wait_for(condition) -> None:
    with trio.fail_after(20):
        while not condition():
            await trio.lowlevel.checkpoint()  # a thread is at work


async def test_a_lock_that_another_one_holds_is_asked_for_again_on_the_same_connection():
    lock = Lock()
    lock.is_free = False
    election = lock.election()
    assert [await election.ask() for _ in range(3)] == [None] * 3
    lock.is_free = True
    assert await election.ask() is not None
    assert (lock.opened, lock.closed) == (1, 0)


async def test_after_a_lost_connection_the_next_question_opens_another():
    lock = Lock()
    lock.is_free, election = False, lock.election()
    assert await election.ask() is None
    lock.is_away = True
    for _ in range(2):
        with pytest.raises(Unavailable, match="the store is away"):
            await election.ask()
    lock.is_away = False
    assert await election.ask() is None
    assert (lock.opened, lock.closed) == (3, 1)
    await election.aclose()
    assert lock.closed == 2


async def test_a_lead_is_sure_for_the_timeout_from_the_question_and_no_longer():
    lock = Lock()
    term = await lock.election().ask()
    lock.advance(SESSION_TIMEOUT_S - 1e-9)
    assert term.is_sure
    lock.advance(1e-9)
    assert not term.is_sure


async def test_a_lead_is_over_after_its_host_was_suspended(monkeypatch):
    lock, suspended_ns = Lock(), 0
    boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    monkeypatch.setattr(time, "monotonic_ns", lambda: boot_ns)  # stands still meanwhile
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: boot_ns + suspended_ns * (clock == time.CLOCK_BOOTTIME))
    term = await Election(lock.open).ask()
    assert term.is_sure
    suspended_ns = round(SESSION_TIMEOUT_S * 1e9)
    assert not term.is_sure


async def test_every_answered_beat_makes_it_sure_for_the_timeout_from_its_question():
    lock = Lock()
    term = await lock.election().ask()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(term.hold)
        for beats in range(1, 5):
            await wait_for(lambda beats=beats: lock.beats == beats)
            lock.advance(SESSION_TIMEOUT_S - 0.1)
            assert term.is_sure
            lock.wake()
        nursery.cancel_scope.cancel()
    assert not term.is_sure
    assert lock.closed == 1


async def test_an_answer_that_comes_late_counts_from_its_question():
    lock = Lock()
    term = await lock.election().ask()
    async with trio.open_nursery() as nursery:
        lock.answers.clear()
        nursery.start_soon(term.hold)
        await wait_for(lock.asked.is_set)
        lock.advance(SESSION_TIMEOUT_S - 0.1)
        lock.answers.set()
        await wait_for(lambda: lock.beats == 1)
        lock.advance(0.1)
        assert not term.is_sure
        lock.wake()
    assert lock.closed == 1


async def test_a_lead_is_over_as_soon_as_its_connection_is_lost():
    lock = Lock()
    term = await lock.election().ask()
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(term.hold)  # ends by itself
            await wait_for(lambda: lock.beats == 1)
            lock.is_away = True
            lock.wake()
    assert not term.is_sure
    assert term.lost_because == "the store is away"
    assert lock.closed == 1


async def test_a_leader_that_was_stopped_for_longer_than_the_timeout_is_none_before_it_hears_so():
    lock = Lock()
    term = await lock.election().ask()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(term.hold)
        await wait_for(lambda: lock.beats == 1)
        lock.advance(3600)
        assert not term.is_sure
        lock.wake()


async def test_a_question_without_an_answer_ends_the_lead_when_it_is_not_sure_any_more(autojump_clock):
    # Both clocks are the simulated one. The thread stays in its question, as with a network that swallows packets.
    lock = Lock()
    term = await Election(lock.open, lambda: round(autojump_clock.current_time() * 1e9)).ask()
    lock.answers.clear()
    started_s = trio.current_time()
    await term.hold()
    assert trio.current_time() - started_s <= SESSION_TIMEOUT_S + 1
    assert not term.is_sure
    lock.answers.set()


@pytest.mark.postgres
@pytest.mark.slow
class TestTheLockOfPostgres:
    async def test_one_at_a_time_has_it_and_an_orderly_end_frees_it_at_once(self, postgres_url):
        first, second = election(postgres_url), election(postgres_url)
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                term = await first.ask()
                nursery.start_soon(term.hold)
                await trio.testing.wait_all_tasks_blocked()
                assert await second.ask() is None
                nursery.cancel_scope.cancel()
            while (next_term := await second.ask()) is None:  # the server takes a moment to see the end
                await trio.lowlevel.checkpoint()
            await first.aclose()
            with trio.move_on_after(0):
                await next_term.hold()
            await second.aclose()

    async def test_a_session_that_the_server_ends_is_lost_without_being_asked(self, postgres_server, postgres_url):
        # It rests, and would do so for long.
        term = await election(postgres_url).ask()
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(term.hold)
                while not postgres_server.ask(postgres_url, RESTS):
                    await trio.lowlevel.checkpoint()
                postgres_server.ask(postgres_url, END)
        assert not term.is_sure
        assert "terminating connection" in term.lost_because

    async def test_the_server_ends_the_session_of_a_holder_that_says_nothing(self, postgres_url):
        silent, waiting = PostgresLock(Database.parse(postgres_url)), election(postgres_url)
        assert silent.try_lock()
        with trio.fail_after(20):
            while (term := await waiting.ask()) is None:
                await trio.lowlevel.checkpoint()
            with pytest.raises(Unavailable, match="idle-session timeout"):
                silent.beat()
            silent.close()
            with trio.move_on_after(0):
                await term.hold()

    async def test_a_server_that_is_away_is_said(self):
        with pytest.raises(Unavailable, match="No such file or directory"):
            await election("postgresql:///srtm?host=/nowhere").ask()


RESTS = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'srtm election' AND query = 'SELECT 1'"
END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'srtm election'"


def election(url: str) -> Election:
    return Election(lambda: PostgresLock(Database.parse(url)))


@pytest.mark.postgres
@pytest.mark.slow
def test_a_session_with_a_high_descriptor_waits_as_any_other(postgres_url):
    # A poll() has no limit at 1,023, where select() ends.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("this process may not have 1,200 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    with ExitStack() as stack:
        for _ in range(1030):
            stack.enter_context(Path("/dev/null").open())
        session = PostgresLock(Database.parse(postgres_url))
        stack.callback(session.close)
        session.wake()
        session.wait(30)
        session.beat()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

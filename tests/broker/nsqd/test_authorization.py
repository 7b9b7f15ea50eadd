"""Clients that say AUTH wait for the auth servers' answer, each by itself."""

import pytest
import trio
import trio.testing

from broker.events import AuthAsked
from broker.nsqd import authorization as authorizing
from broker.nsqd.authorization import Authorizer
from srtm.errors import Unavailable
from srtm.log import Log
from tests.support.fake_engine import FakeEngine


class Servers:
    """Answer when ``open``; ``asked`` are the connections that they were asked about."""

    def __init__(self, answer=b"{}"):
        self.asked = []
        self.open = trio.Event()
        self._answer = answer

    async def ask(self, question):
        self.asked.append(question.connection)
        await self.open.wait()
        if self._answer is None:
            raise Unavailable("nobody there")
        return self._answer


@pytest.fixture
def engine():
    return FakeEngine()


def question(connection):
    return AuthAsked(connection=connection, secret=b"s", remote_ip="h", tls=False, common_name="")


def told(engine):
    return [call[1:] for call in engine.calls if call[0] == "set_authorization"]


@pytest.mark.parametrize("answer", [b"{}", None])
async def test_the_engine_is_told_the_answer_or_that_there_is_none(engine, answer):
    servers = Servers(answer)
    servers.open.set()
    await Authorizer(engine, servers, Log("b1")).answer(question(7))
    assert told(engine) == [(7, answer)]


async def test_failures_are_told_in_one_line_in_ten_seconds(engine, autojump_clock):
    lines = []
    servers = Servers(None)
    servers.open.set()
    authorizer = Authorizer(engine, servers, Log("b1", lines.append))
    for number in range(1000):
        await authorizer.answer(question(number))
    assert len(lines) == 1
    await trio.sleep(10)
    await authorizer.answer(question(7))
    assert [line.rpartition("times=")[2] for line in lines] == ["1\n", "1000\n"]
    assert len(told(engine)) == 1001


async def test_nobody_asks_for_a_client_that_has_gone(engine):
    engine.gone.add(1)
    servers = Servers()
    await Authorizer(engine, servers, Log("b1")).answer(question(1))
    assert (servers.asked, told(engine)) == ([], [])


async def test_more_questions_than_may_wait_are_refused_at_once(engine, monkeypatch):
    monkeypatch.setattr(authorizing, "_MAX_ASKED", 1)
    monkeypatch.setattr(authorizing, "_MAX_WAITING", 1)
    servers = Servers()
    parts = Authorizer(engine, servers, Log("b1"))
    async with trio.open_nursery() as nursery:
        for connection in (1, 2, 3):  # the second waits for the first, for the third there is no room
            nursery.start_soon(parts.answer, question(connection))
            await trio.testing.wait_all_tasks_blocked()
        assert (servers.asked, told(engine)) == ([1], [(3, None)])
        servers.open.set()
    assert told(engine) == [(3, None), (1, b"{}"), (2, b"{}")]

"""Draining on a mock clock, around a recording engine: in which order things happen, and when it is over."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.sync.drain import Drain
from srtm.log import Log
from tests.support.fake_engine import FakeEngine


class Rig:
    def __init__(self):
        self.engine = FakeEngine()
        self.engine.create_topic("t").messages.append(b"x")
        self.may_end = True
        self.looks = 0
        self.drain = Drain("b1", self.engine, Log("b1", lambda _line: None), lambda: self.may_end)
        self.ended_s = None

    def note(self):
        self.looks += 1

    async def run(self):
        await self.drain.run(self.note)
        self.ended_s = trio.current_time()

    @property
    def refused(self):
        return [call for call in self.engine.calls if call[0] == "set_accepting"]


@pytest.fixture
def rig():
    return Rig()


async def test_nothing_happens_before_it_begins(rig, nursery, autojump_clock):
    nursery.start_soon(rig.run)
    await trio.sleep(1000)
    assert (rig.drain.progress().state, rig.drain.refuses, rig.refused, rig.ended_s) == ("serving", False, [], None)


async def test_it_refuses_delivers_and_ends(rig, nursery, autojump_clock):
    nursery.start_soon(rig.run)
    rig.drain.begin("go elsewhere")
    await trio.sleep(10)
    assert rig.refused == [("set_accepting", False, "go elsewhere")]
    progress = rig.drain.progress()
    assert (progress.state, progress.left.queued, progress.obstacles) == ("draining", 1, ["topic t has no channel"])
    assert rig.ended_s is None
    assert rig.looks > 5
    rig.engine.topics["t"].messages.clear()
    await trio.sleep(5)
    assert rig.drain.progress().state == "drained"
    assert rig.ended_s is not None


async def test_who_watches_has_time_to_see_the_end(rig, nursery, autojump_clock):
    rig.engine.topics["t"].messages.clear()
    rig.drain.begin("go")
    started_s = trio.current_time()
    nursery.start_soon(rig.run)
    await wait_all_tasks_blocked()
    assert (rig.drain.progress().state, rig.ended_s) == ("drained", None)
    await trio.sleep(5)
    assert rig.ended_s == started_s + 1


async def test_publishers_that_can_be_told_to_move_get_time_to(rig, nursery, autojump_clock):
    nursery.start_soon(rig.run)
    rig.drain.begin("go", refuse_after_s=2)
    await trio.sleep(1.9)
    assert (rig.drain.refuses, rig.refused) == (False, [])
    await trio.sleep(0.2)
    assert (rig.drain.refuses, len(rig.refused)) == (True, 1)


async def test_it_does_not_end_while_the_broker_holds_tokens(rig, nursery, autojump_clock):
    rig.engine.topics["t"].messages.clear()
    rig.may_end = False
    nursery.start_soon(rig.run)
    rig.drain.begin("go")
    await trio.sleep(100)
    assert rig.drain.progress().state == "draining"
    rig.may_end = True
    await trio.sleep(5)
    assert rig.drain.progress().state == "drained"


async def test_beginning_again_changes_nothing(rig, nursery, autojump_clock):
    nursery.start_soon(rig.run)
    rig.drain.begin("first")
    rig.drain.begin("second", refuse_after_s=9)
    await trio.sleep(1)
    assert rig.refused == [("set_accepting", False, "first")]


async def test_it_ends_once_other_brokers_have_its_sessions(rig, nursery, autojump_clock):
    rig.engine.topics["t"].messages.clear()
    rig.engine.sessions_left = [3] * 190 + [2, 1, 0]
    nursery.start_soon(rig.run)
    rig.drain.begin("go elsewhere")
    await trio.sleep(9)
    assert rig.drain.progress().state == "draining"
    await trio.sleep(9)
    assert (rig.drain.progress().state, rig.ended_s is not None) == ("drained", True)


async def test_sessions_that_nobody_takes_for_10_s_stay_and_are_told_of(rig, nursery, autojump_clock):
    lines = []
    rig.drain = Drain("b1", rig.engine, Log("b1", lines.append), lambda: True)
    rig.engine.topics["t"].messages.clear()
    rig.engine.sessions_left = [2]
    nursery.start_soon(rig.run)
    rig.drain.begin("go elsewhere")
    await trio.sleep(20)
    assert rig.ended_s is not None
    assert any("no other broker takes the sessions that are left" in line for line in lines)

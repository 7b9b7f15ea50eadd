"""Watching a broker drain, on a mock clock: what is told, when it is over, and what counts as a failure."""

import pytest
import trio

from srtm.console.draining import describe, watch
from srtm.control import DrainProgress, MessagesLeft
from srtm.errors import PeerError, Unavailable


def draining(**left):
    return DrainProgress(broker="b1", state="draining", left=MessagesLeft(**left))


class Script:
    """Gives its steps, one a look; the last one for ever. An exception is raised."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.told = []

    async def look(self):
        await trio.lowlevel.checkpoint()
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise step
        return step

    async def watch(self, timeout_s=10.0):
        await watch(self.look, timeout_s, self.told.append)


def test_progress_in_words():
    progress = draining(queued=1234, waiting=5)
    assert describe(progress) == "b1: 1,239 messages left (1,234 queued, 5 waiting for tokens)"
    assert describe(draining()) == "b1: no messages left"
    stuck = DrainProgress(broker="b1", state="draining", left=MessagesLeft(deferred=1), obstacles=["topic t is paused"])
    assert describe(stuck) == "b1: 1 messages left (1 deferred); topic t is paused"


async def test_it_ends_when_the_broker_is_drained(autojump_clock):
    script = Script(draining(queued=2), draining(), DrainProgress(broker="b1", state="drained"))
    await script.watch()
    assert script.told[0] == "b1: 2 messages left (2 queued)"


async def test_news_is_told_at_most_once_a_second_and_what_is_old_not_at_all(autojump_clock):
    steps = [draining(queued=100 - i) for i in range(30)]  # 0.2 s each
    script = Script(*steps, *[draining(queued=7)] * 30, DrainProgress(broker="b1", state="drained"))
    await script.watch(timeout_s=60)
    assert len(script.told) in (7, 8)


async def test_a_timeout_says_what_is_left_and_that_it_goes_on(autojump_clock):
    with pytest.raises(Unavailable, match=r"not drained within 10 s, and draining on: b1: 3 messages left"):
        await Script(draining(in_flight=3)).watch()


async def test_one_that_ends_before_it_is_drained_is_a_failure(autojump_clock):
    with pytest.raises(PeerError, match=r"ended before it was drained: b1: 3 messages left .*refused"):
        await Script(draining(queued=3), Unavailable("refused")).watch()

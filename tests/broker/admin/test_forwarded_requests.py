"""What the engine hands over: each request gets its answer, one does not wait for another, and a stop lets them end."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from broker.admin.forwarded_requests import ForwardedRequests
from srtm.log import Log
from srtm.net.http_server import Response
from tests.support.fake_engine import FakeEngine


class Rig:
    """ForwardedRequests of a recording engine; a request for ``/slow`` waits for ``go_on``."""

    def __init__(self):
        self.engine = FakeEngine()
        self.go_on = trio.Event()
        self.under_way = 0
        self.requests = ForwardedRequests(self.engine, self.answer, Log("b1", lambda _line: None))

    async def answer(self, request):
        if request.path == "/slow":
            self.under_way += 1
            await self.go_on.wait()
            self.under_way -= 1
        return Response(201, await request.read_body(10), "text/plain", (("X-Query", request.query),))

    async def ask(self, target, body=b""):
        number = self.engine.ask("POST", target, body)
        self.requests.arrived.set()
        await wait_all_tasks_blocked()
        return number


@pytest.fixture
def rig():
    return Rig()


async def test_a_request_is_answered_with_all_that_the_handler_says(rig, nursery):
    nursery.start_soon(rig.requests.serve)
    number = await rig.ask("/a?b=c", b"body")
    assert rig.engine.answers == {number: (201, [("Content-Type", "text/plain"), ("X-Query", "b=c")], b"body")}
    number = await rig.ask("/a", b"x" * 11)
    assert rig.engine.answers[number][0] == 413
    nursery.cancel_scope.cancel()


async def test_a_slow_request_holds_up_no_other(rig, nursery):
    nursery.start_soon(rig.requests.serve)
    slow = await rig.ask("/slow")
    quick = await rig.ask("/quick")
    assert quick in rig.engine.answers
    assert slow not in rig.engine.answers
    rig.go_on.set()
    await wait_all_tasks_blocked()
    assert slow in rig.engine.answers
    nursery.cancel_scope.cancel()


async def test_so_many_at_once_and_the_others_in_turn(rig, nursery):
    nursery.start_soon(rig.requests.serve)
    numbers = [await rig.ask("/slow") for _ in range(40)]
    assert rig.under_way == 16
    rig.go_on.set()
    await wait_all_tasks_blocked()
    assert sorted(rig.engine.answers) == numbers
    nursery.cancel_scope.cancel()


async def test_a_stop_lets_requests_under_way_end(rig, nursery):
    with trio.CancelScope() as scope:
        nursery.start_soon(finish_soon, rig)
        nursery.start_soon(cancel_when_under_way, rig, scope)
        await rig.requests.serve()
    assert rig.engine.http == "closing"
    assert list(rig.engine.answers) == [0]


async def finish_soon(rig):
    while rig.engine.http != "closing":  # noqa: ASYNC110 - the engine cannot signal us
        await trio.sleep(0.001)
    rig.go_on.set()


async def cancel_when_under_way(rig, scope):
    await rig.ask("/slow")
    scope.cancel()


async def test_a_request_that_takes_too_long_does_not_hold_up_a_stop(rig, nursery, autojump_clock):
    with trio.CancelScope() as scope:
        nursery.start_soon(cancel_when_under_way, rig, scope)
        await rig.requests.serve()
    assert trio.current_time() == pytest.approx(1.0, abs=0.01)
    assert rig.engine.answers == {}


async def test_an_engine_that_has_ended_is_nobodys_fault(rig, nursery):
    def ended(*_arguments):
        raise RuntimeError("the engine is not running")

    nursery.start_soon(rig.requests.serve)
    await wait_all_tasks_blocked()
    rig.engine.respond = rig.engine.close_http = ended
    await rig.ask("/a")
    nursery.cancel_scope.cancel()


async def test_the_port_is_opened_and_closed_with_the_service(rig):
    assert rig.engine.http == "bound"
    async with trio.open_nursery() as inner:
        inner.start_soon(rig.requests.serve)
        await wait_all_tasks_blocked()
        assert rig.engine.http == "open"
        inner.cancel_scope.cancel()
    assert rig.engine.http == "closing"

"""What a broker tells the others, the links that it opens then, and when the engine may answer its subscribers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from broker.links.keeper import LinkKeeper
from broker.links.remote_broker import RemoteBroker
from srtm.control import LinkAnswer, LinkRequest
from srtm.errors import Unavailable
from srtm.log import Log
from tests.support.fake_engine import FakeEngine


class Other:
    """Another broker's HTTP, and a port that takes links. ``topics`` None: it does not answer."""

    def __init__(self) -> None:
        self.base_url = "http://b2"
        self.topics: list[str] | None = []
        self.asked: list[LinkRequest] = []
        self.news = trio.Event()
        self.tcp_address = ""
        self.marks = False
        self.https_port = 0  # where it takes HTTP; 0: in clear
        self.has_no_https = False
        self.answers = trio.Event()  # it answers once that is set
        self.answers.set()

    async def request(self, method: str, target: str, body: bytes = b"", **_: float) -> tuple[int, bytes]:
        assert (method, target) == ("PUT", "/v1/links/b1")
        self.asked.append(msgspec.json.decode(body, type=LinkRequest))
        self.news.set()
        self.news = trio.Event()
        await self.answers.wait()
        if self.https_port:
            return 403, b'{"message": "TLS_REQUIRED", "https_port": %d}' % self.https_port
        if self.topics is None or (self.has_no_https and self.base_url.startswith("https:")):
            raise Unavailable("no answer")
        answer = LinkAnswer(
            tcp_address=self.tcp_address,
            channel="srtm.link.b1",
            key="secret",
            ready=9,
            topics=self.topics,
            marks=self.marks,
        )
        return 200, msgspec.json.encode(answer)

    async def aclose(self) -> None:
        pass


class Rig:
    def __init__(self, nursery: trio.Nursery) -> None:
        self.engine = FakeEngine()
        self.other = Other()
        self.log: list[str] = []
        told, self.opened = trio.open_memory_channel[int](9)  # numbers of links
        open_link = self.engine.open_link

        def note_link(number: int, fd: int, *about: object) -> None:
            open_link(number, fd, *about)
            told.send_nowait(number)

        self.engine.open_link = note_link  # type: ignore[method-assign]
        self.addresses: list[str] = []

        def connect(address: str) -> Any:
            self.addresses.append(address)
            by_https = address.startswith("https:")
            self.other.base_url = address if by_https else "http://b2"
            if by_https:
                self.other.https_port = 0
            return self.other

        self.keeper = LinkKeeper("b1", self.engine, connect, Log("b1", self.log.append))  # type: ignore[arg-type]
        nursery.start_soon(self.keeper.run)

    def want(self, *filters: str) -> None:
        self.engine.interest = {
            "version": self.engine.interest["version"] + 1,
            "filters": list(filters),
            "groups": ["$share/g/rain"],
            "kept": ["$share/k/rain"],
            "durable": True,
        }
        self.keeper.note_interest()


async def test_others_are_told_what_is_wanted_and_then_the_engine_is(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        rig = Rig(nursery)
        await trio.testing.wait_all_tasks_blocked()
        assert ("share_mqtt_interest", True) in rig.engine.calls
        rig.want("rain")
        assert rig.engine.settled == 0, "it is not known yet which brokers there are"
        rig.keeper.follow({"b1": "here", "b2": "there"})
        rig.keeper.note_interest()
        assert rig.engine.settled == 0, "nobody has begun to tell them"
        await trio.sleep(0.1)
        [asked] = rig.other.asked
        assert (asked.sender, asked.filters, asked.durable) == ("b1", ["rain"], True)
        assert (asked.groups, asked.kept) == (["$share/g/rain"], ["$share/k/rain"])
        assert rig.engine.settled == 2
        rig.want("rain", "heat")
        await trio.sleep(0.1)
        assert rig.other.asked[-1].filters == ["rain", "heat"]
        assert rig.engine.settled == 3
        nursery.cancel_scope.cancel()


async def test_a_broker_that_takes_no_http_in_clear_is_asked_by_https(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        rig = Rig(nursery)
        rig.other.https_port = 4152
        rig.keeper.follow({"b2": "there"})
        await trio.sleep(0.1)
        assert rig.addresses == ["there", "https://b2:4152"]
        rig.want("rain")
        await trio.sleep(0.1)
        assert rig.engine.settled == 2
        nursery.cancel_scope.cancel()


async def test_a_broker_that_takes_https_no_more_is_asked_in_clear_again(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        rig = Rig(nursery)
        rig.other.https_port = 4152
        rig.keeper.follow({"b2": "there"})
        await trio.sleep(0.1)
        rig.other.has_no_https = True
        await trio.sleep(10.0)
        rig.want("rain")
        await trio.sleep(0.1)
        assert rig.addresses == ["there", "https://b2:4152", "there"]
        assert rig.other.asked[-1].filters == ["rain"]
        nursery.cancel_scope.cancel()


async def test_a_broker_that_does_not_answer_holds_up_nobody_and_is_told_when_it_does(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        rig = Rig(nursery)
        rig.other.topics = None
        rig.keeper.follow({"b2": "there"})
        await trio.sleep(0.1)
        rig.want("rain")
        assert rig.engine.settled == 2
        await trio.sleep(60.0)
        assert len([line for line in rig.log if "does not know what is wanted" in line]) == 1
        rig.other.topics = []
        await trio.sleep(10.0)
        rig.want("heat")
        assert rig.engine.settled == 2, "it answers again: it is waited for"
        await trio.sleep(0.1)
        assert rig.engine.settled == 3
        nursery.cancel_scope.cancel()


async def test_a_broker_that_has_started_anew_is_asked_and_linked_as_soon_as_it_says_so(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        rig = Rig(nursery)
        rig.other.topics, rig.other.tcp_address = ["rain"], "nowhere"
        rig.keeper.follow({"b2": "there"})
        await trio.sleep(60.0)  # the link is tried every 2.5 to 5 s
        rig.other.topics = None
        await trio.sleep(60.0)
        asked, tried = len(rig.other.asked), []
        rig.other.topics = ["rain"]

        async def try_again(self: RemoteBroker, topic: str) -> str:
            tried.append((topic, trio.current_time()))
            await trio.sleep_forever()
            raise AssertionError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RemoteBroker, "_hold_link", try_again)
            now = trio.current_time()
            rig.keeper.note_started("unknown")
            rig.keeper.note_started("b2")
            await trio.sleep(0.01)
            assert len(rig.other.asked) == asked + 1
            assert tried == [("rain", now)]
        nursery.cancel_scope.cancel()


async def test_a_broker_that_is_alone_waits_for_nobody(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        rig = Rig(nursery)
        rig.keeper.follow({"b1": "here"})
        await trio.sleep(0.1)
        rig.want("rain")
        assert rig.engine.settled == 2
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[Rig, trio.MemoryReceiveChannel[trio.SocketStream]]]:
    """A broker that wants ``rain`` of b2, once b2 has accepted its link; the channel has what b2 accepts from then."""
    accepted, taken = trio.open_memory_channel[trio.SocketStream](9)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            serve = partial(trio.serve_tcp, accepted.send, 0, host="127.0.0.1")
            [listener] = await nursery.start(serve)
            rig = Rig(nursery)
            rig.other.tcp_address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
            rig.other.topics = ["rain"]
            rig.keeper.follow({"b2": "there"})
            await taken.receive()
            yield rig, taken
            nursery.cancel_scope.cancel()


async def test_a_link_is_opened_to_each_topic_anew_when_it_ends_and_closed_when_it_is_not_wanted() -> None:
    async with linked() as (rig, taken):
        first = await rig.opened.receive()
        assert rig.engine.links[first] == (rig.other.tcp_address, "b1", "b2", "secret", "rain", "srtm.link.b1", 9)
        del rig.engine.links[first]
        rig.keeper.note_link_ended(first, "the connection is broken")
        await taken.receive()
        assert await rig.opened.receive() != first
        assert len(rig.engine.links) == 1
        rig.other.topics = []
        rig.want("nothing of it")
        await rig.other.news.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert rig.engine.links == {}


@pytest.mark.parametrize(("topics", "logged"), [([], 0), (["rain"], 1)])
async def test_an_end_is_told_unless_the_answer_that_is_under_way_says_that_the_topic_is_not_wanted(
    topics: list[str], logged: int
) -> None:
    async with linked() as (rig, _):
        number = await rig.opened.receive()
        rig.other.answers = trio.Event()  # none is given before it
        news = rig.other.news
        rig.want("nothing of it")
        await news.wait()
        rig.other.topics = topics
        del rig.engine.links[number]
        rig.keeper.note_link_ended(number, "the connection is broken")
        await trio.testing.wait_all_tasks_blocked()
        assert rig.log == []
        rig.other.answers.set()
        await trio.testing.wait_all_tasks_blocked()
        assert len([line for line in rig.log if "a link has ended" in line]) == logged


@pytest.mark.parametrize(("has_left", "level"), [(False, "WARNING"), (True, "INFO")])
async def test_the_end_of_a_link_to_a_broker_that_leaves_as_planned_is_no_warning(has_left: bool, level: str) -> None:
    async with linked() as (rig, _):
        number = await rig.opened.receive()
        if has_left:
            rig.keeper.note_left("b2")
        del rig.engine.links[number]
        rig.keeper.note_link_ended(number, "the connection is broken")
        await trio.testing.wait_all_tasks_blocked()
        [line] = [line for line in rig.log if "a link has ended" in line]
        assert f" {level}: " in line


async def test_a_broker_that_has_left_and_comes_back_is_one_as_any_other() -> None:
    async with linked() as (rig, _):
        number = await rig.opened.receive()
        rig.keeper.note_left("b2")
        rig.keeper.note_started("b2")
        del rig.engine.links[number]
        rig.keeper.note_link_ended(number, "the connection is broken")
        await trio.testing.wait_all_tasks_blocked()
        assert [line for line in rig.log if "a link has ended" in line and " WARNING: " in line]


async def log_of_a_minute(connect: Callable[[str, int], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a broker logs whose links to b2 are opened by ``connect``."""
    monkeypatch.setattr(trio, "open_tcp_stream", connect)
    async with trio.open_nursery() as nursery:
        rig = Rig(nursery)
        rig.other.tcp_address, rig.other.topics = "127.0.0.1:4150", ["rain"]
        rig.keeper.follow({"b2": "there"})
        await trio.sleep(60.0)
        nursery.cancel_scope.cancel()
    return rig.log


async def test_why_a_link_cannot_be_opened_is_told_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []

    async def refused(_host: str, _port: int) -> None:
        tries.append(trio.current_time())
        raise OSError("refused")

    log = await log_of_a_minute(refused, monkeypatch)
    assert len(tries) > 10
    assert len([line for line in log if "a link has ended" in line]) == 1


async def test_a_host_that_does_not_answer_is_tried_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []

    async def silent(_host: str, _port: int) -> None:
        tries.append(trio.current_time())
        await trio.sleep_forever()

    log = await log_of_a_minute(silent, monkeypatch)
    assert len(tries) > 5
    assert any("no connection within 2 s" in line for line in log)


async def test_where_something_is_retained_a_subscription_waits_for_the_mark_behind_it() -> None:
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            [listener] = await nursery.start(partial(trio.serve_tcp, ignored, 0, host="127.0.0.1"))
            rig = Rig(nursery)
            rig.other.tcp_address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
            rig.other.topics, rig.other.marks = ["srtm.retained"], True
            rig.keeper.follow({"b2": "there"})
            link = await rig.opened.receive()
            rig.want("rain")
            await rig.other.news.wait()
            await trio.testing.wait_all_tasks_blocked()
            assert rig.engine.settled == 0
            for mark in ("of another incarnation 2", "nonsense"):
                rig.keeper.note_mark(link, mark)
            assert rig.engine.settled == 0
            rig.keeper.note_mark(link, rig.other.asked[-1].mark)
            assert rig.engine.settled == 2
            nursery.cancel_scope.cancel()


async def ignored(_stream: trio.SocketStream) -> None:
    pass


async def test_a_broker_that_leaves_tells_the_others_and_waits_for_none_that_is_silent(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        rig = Rig(nursery)
        rig.keeper.follow({"b2": "there"})
        await trio.sleep(0.1)
        assert not rig.other.asked[-1].leaves
        begun_s = trio.current_time()
        await rig.keeper.leave()
        assert rig.other.asked[-1].leaves
        assert trio.current_time() == begun_s
        rig.other.topics = None
        rig.keeper.follow({"b2": "elsewhere"})
        await trio.sleep(0.1)
        await rig.keeper.leave()
        assert trio.current_time() < begun_s + 5.0
        nursery.cancel_scope.cancel()

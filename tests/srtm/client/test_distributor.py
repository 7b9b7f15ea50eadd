"""The typed HTTP client: which distributor is asked, and how an unreadable answer is reported."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from urllib.parse import unquote

import httpx
import msgspec
import pytest
import trio
import trio.testing

from srtm.client.distributor import DEFAULT_URL, DistributorClient, distributor_urls
from srtm.control import DeadNotice, Problem
from srtm.errors import BadInput, NotLeader, PeerError, Unavailable
from srtm.net.tokens import FromFile

PRODUCER = {"remote_address": "", "hostname": "h", "http_port": 1, "version": "1.3.0"}


class Hosts:
    """``answers``: {host: JSON, None where it cannot be reached, or what a standby answers, or
    after how many seconds it answers with an empty list}."""

    def __init__(self, **answers: object) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.health: dict[str, object] = {}  # {host: what it says at /healthz}

    def client(self) -> DistributorClient:
        return DistributorClient(
            [f"http://{host}" for host in self.answers], transport=httpx.MockTransport(self._answer)
        )

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/healthz":
            if (health := self.health[request.url.host]) is None:
                raise httpx.ReadTimeout("it is stopped")
            return httpx.Response(200, json=health)
        self.asked.append(request.url.host)
        answer = self.answers[request.url.host]
        if isinstance(answer, float):
            await trio.sleep(answer)
            answer = []
        if answer is None:
            raise httpx.ConnectError("connection refused")
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Problem):
            return httpx.Response(answer.status, content=msgspec.json.encode(answer))
        return httpx.Response(200, json=answer)


async def test_the_next_one_is_asked_where_the_first_is_away_and_is_the_first_one_from_then_on() -> None:
    hosts = Hosts(a=None, b=[], c=[])
    async with hosts.client() as client:
        assert await client.topics() == []
        assert await client.topics() == []
    assert hosts.asked == ["a", "b", "b"]


def standby(leader: str | None) -> Problem:
    return Problem(title="standby", status=503, detail="stands by", leader=leader)


async def test_the_leader_that_a_standby_names_is_asked_next_and_first_from_then_on() -> None:
    hosts = Hosts(a=standby("http://c"), b=[], c=[])
    async with hosts.client() as client:
        assert await client.topics() == []
        assert await client.topics() == []
    assert hosts.asked == ["a", "c", "c"]


async def test_a_leader_that_is_not_among_those_given_is_asked_when_named() -> None:
    hosts = Hosts(a=standby("http://c"), c=[])
    async with hosts.client() as client:
        client.urls.remove("http://c")
        assert await client.topics() == []
        assert client.urls == ["http://a"]
    assert hosts.asked == ["a", "c"]


@pytest.mark.parametrize("leader", ["https://c", "ftp://c", "http://[", "c", ""])
async def test_a_leader_is_not_followed_to_where_the_token_should_not_go(leader: str) -> None:
    hosts = Hosts(a=standby(leader), b=[], c=["not asked"])
    async with hosts.client() as client:
        client.urls.remove("http://c")
        assert await client.topics() == []
    assert hosts.asked == ["a", "b"]


async def test_a_call_waits_for_the_next_leader_while_a_takeover_is_under_way(
    autojump_clock: trio.testing.MockClock,
) -> None:
    hosts = Hosts(a=None, b=standby("http://a"))

    async def take_over() -> None:
        await trio.sleep(5)
        hosts.answers["b"] = []

    async with hosts.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(take_over)
        assert await client.topics() == []
    assert 5 <= trio.current_time() <= 5.5
    assert len(hosts.asked) < 50


@pytest.mark.parametrize("health", [None, {"role": "standby", "instance": "1"}, {"role": "leader", "instance": "1"}])
async def test_one_that_does_not_answer_is_left_as_soon_as_another_one_leads(
    health: object, autojump_clock: trio.testing.MockClock
) -> None:
    hosts = Hosts(a=9.0, b=[])
    hosts.health = {"a": health, "b": {"role": "standby", "instance": "2"}}

    async def take_over() -> None:
        await trio.sleep(4)
        hosts.health["b"] = {"role": "leader", "instance": "2"}

    async with hosts.client() as client, trio.open_nursery() as nursery:
        nursery.start_soon(take_over)
        assert await client.topics() == []
    assert hosts.asked == ["a", "b"]
    assert 4 <= trio.current_time() < 5


@pytest.mark.parametrize("health", [{"role": "standby"}, {}, [1], "text"])
async def test_a_leader_that_takes_long_is_waited_for_while_nobody_else_leads(
    health: object, autojump_clock: trio.testing.MockClock
) -> None:
    hosts = Hosts(a=9.0, b=["not asked"])
    hosts.health["b"] = health
    async with hosts.client() as client:
        assert await client.topics() == []
    assert hosts.asked == ["a"]


async def test_a_leader_under_two_addresses_is_one_and_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    hosts = Hosts(a=9.0, b=["not asked"])
    hosts.health = {host: {"role": "leader", "instance": "1"} for host in "ab"}
    async with hosts.client() as client:
        assert await client.topics() == []
    assert hosts.asked == ["a"]


async def test_when_nobody_comes_to_lead_the_call_ends_after_its_time(autojump_clock: trio.testing.MockClock) -> None:
    async with Hosts(a=standby(None), b=None).client() as client:
        with pytest.raises(NotLeader, match="which one leads is not known yet"):
            await client.topics()
    assert trio.current_time() <= 10


async def test_a_change_that_may_have_been_carried_out_is_not_sent_again() -> None:
    hosts = Hosts(a=httpx.ReadError("connection reset"), b=[])
    async with hosts.client() as client:
        with pytest.raises(Unavailable, match="connection reset: it may have been done all the same; look before"):
            await client.change_publishers("cars", remove=["x"])
        assert await client.topics() == []  # asking is another matter
    assert hosts.asked == ["a", "a", "b"]


@pytest.mark.parametrize("name", ["drain", "dead"])
async def test_what_may_not_be_sent_again_depends_on_the_call_and_not_on_a_name(name: str) -> None:
    hosts = Hosts(a=httpx.ReadError("connection reset"), b={})
    async with hosts.client() as client:
        for change in (client.remove_topic(name), client.set_options(name, {"mode": "static"})):
            with pytest.raises(Unavailable, match="it may have been done all the same"):
                await change
        assert "b" not in hosts.asked
        notice = DeadNotice(incarnation="1", reason="it ended")
        for call in (client.plan({}), client.drain_broker("a"), client.broker_is_dead("a", notice)):
            client.urls.sort()
            await call
    assert hosts.asked == ["a", "a"] + ["a", "b"] * 3


async def test_a_change_that_nobody_took_is_sent_to_the_next() -> None:
    hosts = Hosts(a=None, b={})
    async with hosts.client() as client:
        await client.change_publishers("cars", remove=["x"])
    assert hosts.asked == ["a", "b"]


async def test_when_all_are_away_each_is_named() -> None:
    async with Hosts(a=None, b=None).client() as client:
        with pytest.raises(Unavailable, match=r"http://a cannot be reached: connection refused; http://b cannot"):
            await client.topics()


async def tells_of_no_answer(listener: socket.socket) -> None:
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with DistributorClient(url, timeout_s=0.1) as client:
        with pytest.raises(Unavailable) as caught:
            await client.topics()
    assert str(caught.value) == f"{url} gives no answer in time"


async def test_one_that_does_not_answer_in_time_is_told_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        await tells_of_no_answer(silent)


async def test_one_to_which_no_connection_comes_about_is_told_in_words() -> None:
    with socket.socket() as full, ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):  # the kernel takes one more than it was told, and lets the next wait
            connection = waiting.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(full.getsockname())
        await tells_of_no_answer(full)


async def test_a_lookup_asks_all_of_them_and_merges_what_they_know() -> None:
    def answer(*ports: int) -> dict[str, object]:
        return {"channels": ["c"], "producers": [PRODUCER | {"broadcast_address": "h", "tcp_port": p} for p in ports]}

    async with Hosts(a=answer(1, 2), b=None, c=answer(2, 3)).client() as client:
        found = await client.lookup("t")
    assert [one.tcp_port for one in found.producers] == [1, 2, 3]
    assert found.channels == ["c"]


@pytest.mark.parametrize("answer", ["text", {"topic": "t"}, 5])
async def test_an_answer_of_another_shape_is_a_peer_error(answer: object) -> None:
    async with Hosts(a=answer).client() as client:
        with pytest.raises(PeerError, match=r"the answer of .* cannot be read"):
            await client.assignment("t", "p")


def test_urls_come_from_the_call_then_the_environment_then_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRTM_DISTRIBUTOR", "http://a:1, http://b:2/")
    assert distributor_urls(["http://c"]) == ["http://c"]
    assert distributor_urls(None) == ["http://a:1", "http://b:2"]
    monkeypatch.delenv("SRTM_DISTRIBUTOR")
    assert distributor_urls(None) == ["http://127.0.0.1:4190"]


@pytest.mark.parametrize("url", ["host:4190", "ftp://host", "http://", "http://host:0", "http://host:port"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match=r"distributor: .*: must be a URL"):
        distributor_urls([url])


@pytest.mark.parametrize("name", ["plant/1", "..", ".", "a?b#c%2F", "übung 1"])
async def test_any_name_is_one_segment_of_the_path(name: str) -> None:
    paths = []

    def answer(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.raw_path.decode())
        return httpx.Response(200, json={"name": name})

    async with DistributorClient("http://a", transport=httpx.MockTransport(answer)) as client:
        await client.broker(name)
    (path,) = paths
    assert path.count("/") == 3
    assert unquote(path.removeprefix("/v1/brokers/")) == name


async def test_a_route_that_a_distributor_does_not_know_is_no_missing_thing() -> None:
    hosts = Hosts(a=Problem(title="not found", status=404, detail="Not Found: see /openapi.json"))
    async with hosts.client() as client:
        with pytest.raises(PeerError, match=r"http://a/v1/topics/roads is no route there: is that another service"):
            await client.topic("roads")


async def test_who_asks_at_the_default_is_told_what_names_another() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    async with DistributorClient(DEFAULT_URL, transport=httpx.MockTransport(refuse)) as client:
        with pytest.raises(Unavailable, match=r"refused; `srtm up` starts one, \$SRTM_DISTRIBUTOR names one elsewhere"):
            await client.topics()
        with pytest.raises(Unavailable, match=r"\$SRTM_DISTRIBUTOR names one elsewhere"):
            await client.lookup("roads")


async def test_a_publisher_without_an_id_is_refused_by_that_name() -> None:
    async with Hosts().client() as client:
        with pytest.raises(BadInput, match="publisher_id: '': must not be empty"):
            await client.assignment("roads", "")


async def test_a_renewed_token_is_shown_from_the_next_request_on():
    texts = iter(["old", "new"])
    token = FromFile(lambda: next(texts))
    shown = []

    def answer(request: httpx.Request) -> httpx.Response:
        shown.append(request.headers["Authorization"])
        return httpx.Response(200, json=[])

    async with DistributorClient("http://a", token=token, transport=httpx.MockTransport(answer)) as client:
        await client.topics()
        token.renew()
        await client.topics()
    assert shown == ["Bearer old", "Bearer new"]

"""HTTP checks before FastAPI: the core answers as the application does, which answers what is not for the core."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Receive, Scope, Send
from trio.testing import MockClock, memory_stream_pair

from limiting.api.app import make_app
from limiting.api.parts import Parts
from limiting.config import LimitConfig
from limiting.contract_store import ContractStore
from limiting.http_server import IDLE_S, HttpServer
from limiting.nodes.decisions import Decisions, Nodes
from limiting.nodes.members import read_members
from limiting.wire.cluster_key import ClusterKey
from srtm.contracts.contract import read_contract
from srtm.contracts.subject_plans import PLACE
from srtm.limiting.headers import FAMILIES
from srtm.limiting.limiter import Limiter
from srtm.log import Log, LogSettings
from srtm.net.tokens import Tokens
from srtm.web.request_log import RequestLog
from srtm.web.whole_requests import Peers, answered
from tests.support.limit_clock import Clock

CHECK, MANY = "/limit/v1/check", "/limit/v1/check-many"
ID = {"X-Request-Id": "r1"}
KEY = b"0123456789abcdef"
QUIET = Log("limit", lambda _line: None)


class Request(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""

    def raw(self) -> bytes:
        lines = {"Host": "limit", **ID, **self.headers}
        if self.method == "POST":
            lines["Content-Length"] = str(len(self.body))
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"{self.method} {self.target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + self.body


class Said(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def post(path: str, body: object, headers: dict[str, str] | None = None) -> Request:
    return Request("POST", path, headers or {}, body if isinstance(body, bytes) else json.dumps(body).encode())


def get(query: dict[str, object], headers: dict[str, str] | None = None) -> Request:
    return Request("GET", f"{CHECK}?{urlencode(query)}", headers or {})


def check(subject: str = "a", **others: object) -> Request:
    return post(CHECK, {"namespace": "api", "subject": subject, **others})


def made(contracts: list[dict[str, Any]], clock: Clock, **settings: Any) -> Parts:
    decisions = Decisions(Limiter(key=KEY, clocks=clock))
    store = ContractStore(decisions)
    store.put_all([read_contract(each) for each in contracts])
    return Parts(decisions, store, LimitConfig(**settings))


def plain(clock: Clock, **settings: Any) -> Parts:
    """Two tokens at once and one a second, for every subject of ``api``."""
    policies = [{"name": "burst", "rate": 1, "burst": 2}]
    return made([{"namespace": "api", "subject": "*", "policies": policies}], clock, **settings)


def server_of(parts: Parts, app: ASGIApp | None = None, log: Log = QUIET) -> HttpServer:
    return HttpServer(make_app(parts) if app is None else app, parts.decisions, parts.config, log)


async def nobody(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise AssertionError("the core answers this")


async def never(received: bytes) -> None:
    raise AssertionError(f"this connection was given away: {received[:80]!r}")


async def talk(
    server: HttpServer, parts: list[bytes], behind: Callable[[bytes], Awaitable[None]] = never
) -> list[Said]:
    """What a client is answered that sends these parts, and then no more."""
    ours, theirs = memory_stream_pair()
    said = bytearray()

    async def serve() -> None:
        async with theirs:
            await server.serve(theirs, behind)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        for part in parts:
            await ours.send_all(part)
            await trio.testing.wait_all_tasks_blocked()
        await ours.send_eof()
        async for chunk in ours:
            said += chunk
    return list(read(bytes(said)))


def read(said: bytes) -> Iterator[Said]:
    while said:
        head, _, rest = said.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name: value for name, _, value in (line.partition(": ") for line in lines)}
        size = int(headers.get("content-length", 0))
        yield Said(int(first.split(" ")[1]), headers, rest[:size])
        said = rest[size:]


async def by_the_application(app: ASGIApp, request: Request) -> Said:
    lines = {**ID, **request.headers}
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in lines.items()]
    headers += [(b"host", b"limit"), (b"content-length", str(len(request.body)).encode())]
    asked = (request.method, request.target.encode(), headers, request.body)
    status, found, body = await answered(RequestLog(app, QUIET), *asked, Peers(None, None, "http"), QUIET)
    return Said(status, {name.decode().lower(): value.decode("latin-1") for name, value in found}, body)


def undated(said: Said) -> Said:
    return said._replace(headers={name: value for name, value in said.headers.items() if name != "date"})


NAMES = st.from_regex(r"[a-z][a-z0-9_.-]{0,8}", fullmatch=True)
TIMES = st.sampled_from(["1ms", "7ms", "3s", "1h", "366d"])
QUOTAS = st.integers(1, 5) | st.sampled_from([10_000])
AMOUNTS = st.floats(1, 1_000_000, allow_nan=False) | st.sampled_from([0.001, 1 / 3, 1.0])
POLICIES = st.one_of(
    st.fixed_dictionaries({"rate": AMOUNTS, "burst": st.floats(1, 1_000), "max_debt": st.just(0)}),
    st.fixed_dictionaries({"kind": st.just("window"), "quota": QUOTAS, "window": TIMES, "weighted": st.booleans()}),
    st.fixed_dictionaries({"kind": st.just("log"), "quota": QUOTAS, "window": TIMES}),
    st.fixed_dictionaries({"kind": st.just("pace"), "rate": AMOUNTS, "max_wait": TIMES}),
    st.fixed_dictionaries({"kind": st.just("concurrency"), "quota": QUOTAS, "expires": TIMES}),
)
LISTS = st.lists(st.tuples(NAMES, POLICIES), min_size=1, max_size=3, unique_by=lambda named: named[0])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda text: not text.startswith(PLACE)
)
SUBJECTS = st.sampled_from(["a", "b", "c"]) | TEXT
CHECKS = st.fixed_dictionaries(
    {
        "namespace": st.just("é*"),
        "subjects": st.lists(SUBJECTS, min_size=1, max_size=4, unique=True),
        "cost": st.integers(0, 3) | st.just(2**32 - 1),
        "peek": st.booleans(),
    }
)
STATUSES = st.sampled_from(["", "?status=403", "?status=429", "?headers=true", "?status=429&headers=true"])
QUERIES = st.fixed_dictionaries(
    {"namespace": st.just("é*"), "subject": SUBJECTS.filter(lambda text: "{" not in text), "cost": st.integers(0, 3)},
    optional={"status": st.sampled_from([403, 429]), "peek": st.sampled_from(["true", "false"])},
)
REQUESTS = st.one_of(
    st.builds(lambda body, query: post(CHECK + query, body), CHECKS, STATUSES),
    st.builds(lambda checks: post(MANY, {"checks": checks}), st.lists(CHECKS, max_size=4)),
    st.builds(get, QUERIES),
)
STEPS = st.lists(st.tuples(st.integers(0, 10**10), REQUESTS), min_size=1, max_size=6)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    policies=LISTS,
    shadow=st.booleans(),
    families=st.lists(st.sampled_from(FAMILIES), unique=True).map(lambda some: tuple(f for f in FAMILIES if f in some)),
    steps=STEPS,
)
def test_the_core_answers_as_the_application_does(
    policies: list[tuple[str, dict[str, Any]]], shadow: bool, families: tuple[Any, ...], steps: list[Any]
) -> None:
    tables = [{"name": name, **policy} for name, policy in policies]
    contract = {"namespace": "é*", "subject": "*", "policies": tables, "shadow": shadow}

    async def both() -> None:
        clock = Clock()
        ours, theirs = made([contract], clock, headers=families), made([contract], clock, headers=families)
        server, app = server_of(ours, nobody), make_app(theirs)
        for passes_ns, request in steps:
            clock.now += passes_ns
            (found,) = await talk(server, [request.raw()])
            assert undated(found) == await by_the_application(app, request)

    trio.run(both)


BAD = [
    post(CHECK, b"{"),
    post(CHECK, b""),
    post(CHECK, b"[]"),
    post(CHECK, b'["api","a"]'),
    post(CHECK, b"\xff"),
    post(CHECK, {"subject": "a"}),
    post(CHECK, {"namespace": "api"}),
    check("x" * 2_000),
    check("x" * (60 << 10)),
    check(""),
    check(cost=-1),
    check(cost=2**32),
    check(cost=1.5),
    check(cost=1.0),
    check(cost="1"),
    check(price=1),
    check("{plan}/a"),
    post(CHECK, {"namespace": "none", "subject": "a"}),
    post(CHECK, {"namespace": "api", "subjects": ["a"] * 2}),
    post(CHECK, {"namespace": "api", "subjects": [str(number) for number in range(17)]}),
    post(CHECK, b'{"namespace":"api","subject":"a","subject":"b"}'),
    post(CHECK, b'{"namespace":"api","subject":"\\ud800"}'),
    post(CHECK, b'{"namespace":"api","subject":"a\x00"}'),
    post(f"{CHECK}?status=500", {"namespace": "api", "subject": "a"}),
    post(f"{CHECK}?status=x", {"namespace": "api", "subject": "a"}),
    post(f"{CHECK}?headers=yes&other=1", {"namespace": "api", "subject": "a"}),
    post(CHECK, {"namespace": "api", "subject": "a"}, {"Origin": "http://other"}),
    post(MANY, {"checks": [{"namespace": "api", "subject": "a"}, {"namespace": "none", "subject": "a"}]}),
    post(MANY, {"checks": [{"namespace": "api"}]}),
    post(MANY, {"checks": [{"namespace": "api", "subject": "a"}] * 1_001}),
    post("/limit/v1/correct", {"grant": "A" * 64, "cost": 1}),
    post("/limit/v1/release", {}),
    post("/json", {"domain": "none"}),
    get({"namespace": "api"}),
    get({"namespace": "api", "subject": "{x-user}", "status": 429}),
    get({"namespace": "api", "subject": "{x-user}", "status": 429}, {"X-User": "é"}),
    get({"namespace": "api", "subject": "a", "cost": "x"}),
    get({"namespace": "api", "subject": "a", "cost": "01"}),
    get({"namespace": "api", "subject": "a", "peek": "1"}),
    get({"namespace": "api", "subject": "a", "status": 200}),
    Request("GET", f"{CHECK}?namespace=api&subject=%ff", {}),
    Request("GET", f"{CHECK}?namespace=api&subject=a&subject=b", {}),
    Request("GET", MANY, {}),
]


@pytest.mark.parametrize("request_", BAD, ids=str)
async def test_what_is_unusual_is_answered_as_ever_and_the_next_check_by_the_core(request_: Request) -> None:
    clock = Clock()
    server = server_of(plain(clock))
    first, second = await talk(server, [request_.raw() + check(peek=True).raw()])
    assert undated(first) == await by_the_application(make_app(plain(clock)), request_)
    assert second.status == 200


async def test_headers_of_a_gateways_request_fill_its_subject() -> None:
    parts = plain(Clock())
    query = {"namespace": "api", "subject": "ip:{x-forwarded-for}/{a", "status": 429}
    asked = get(query, {"X-Forwarded-For": " 192.0.2.1 "}).raw()
    assert [said.status for said in await talk(server_of(parts, nobody), [asked * 3])] == [200, 200, 429]
    left = await parts.decisions.peek("api", "ip:192.0.2.1/{a")
    assert left.policies[0].remaining == 0


@pytest.mark.parametrize("size", [1, 7])
async def test_how_bytes_arrive_changes_no_answer(size: int) -> None:
    requests = [check(), post("/limit/v1/release", {}), get({"namespace": "api", "subject": "a"}), check("none{")]
    whole = b"".join(request.raw() for request in requests)
    pieces = [whole[begin : begin + size] for begin in range(0, len(whole), size)]
    found, expected = [await talk(server_of(plain(Clock())), parts) for parts in (pieces, [whole])]
    assert list(map(undated, found)) == list(map(undated, expected))
    assert len(found) == len(requests)


async def test_more_answers_than_wait_at_once_are_all_sent() -> None:
    found = await talk(server_of(plain(Clock()), nobody), [check().raw() * 2_000])
    assert [said.status for said in found] == [200] * 2_000
    assert sum(json.loads(said.body)["allowed"] for said in found) == 2


@pytest.mark.parametrize(
    "unusual",
    [
        Request("GET", "/metrics", {}).raw(),
        Request("OPTIONS", CHECK, {}).raw(),
        check().raw().replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Host", b"Connection: keep-alive\r\nHost"),
        check().raw().replace(b"Host", b"Expect: 100-continue\r\nHost"),
        check().raw().replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nContent-Length"),
        check().raw().replace(b"Content-Length", b"Content-Length: 3\r\nContent-Length"),
        check("x" * (64 << 10)).raw(),
        b"GET /" + b"x" * (64 << 10),
        b"nothing\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[:20]),
)
async def test_what_is_not_for_clients_makes_the_connection_anothers(unusual: bytes) -> None:
    given: list[bytes] = []

    async def behind(received: bytes) -> None:
        given.append(received)

    answers = await talk(server_of(plain(Clock()), nobody), [check().raw() + unusual], behind)
    assert [said.status for said in answers] == [200]
    assert given[0]
    assert unusual.startswith(given[0])


async def test_tokens_hold_and_may_be_withdrawn_while_a_connection_is_open() -> None:
    now = Tokens.parsed("tokens", "client c good\nbroker b other\n")
    server = server_of(plain(Clock(), tokens=Tokens(lambda: dict(now.holders()))))

    def asked(token: str | None) -> bytes:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return post(CHECK, {"namespace": "api", "subject": "a"}, headers).raw()

    found = await talk(server, [asked(token) for token in (None, "wrong", "other", "good")] + [asked("good") * 2])
    assert [said.status for said in found] == [401, 401, 403, 200, 200, 200]
    assert found[0].headers["www-authenticate"] == "Bearer"

    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, theirs, never)
        await ours.send_all(asked("good"))
        assert b" 200 " in bytes(await ours.receive_some())
        now = Tokens.parsed("tokens", "operator o another\n")
        await ours.send_all(asked("good"))
        assert b" 401 " in bytes(await ours.receive_some())
        await ours.send_eof()


async def test_what_nodes_hold_together_the_core_does_not_decide() -> None:
    clock = Clock()
    nodes = Nodes(read_members("a", "a=127.0.0.1:1,b=127.0.0.1:2"), ClusterKey(b"k" * 32), first=True)
    decisions = Decisions(Limiter(clocks=clock), nodes, clocks=clock)
    store, modes = ContractStore(decisions), []
    server = server_of(Parts(decisions, store, LimitConfig()))
    policies = [{"name": "burst", "rate": 1, "burst": 2}]
    for mode in ("replicated", "local"):
        store.put_all([read_contract({"namespace": "api", "subject": "*", "policies": policies, "mode": mode})])
        assert (server.core is None) == (mode != "local")
        modes += [json.loads(said.body)["mode"] for said in await talk(server, [check().raw()])]
    assert modes == ["replicated", "local"]


async def test_watched_subjects_are_counted() -> None:
    parts = plain(Clock())
    await parts.decisions.watch("api", "a")
    await talk(server_of(parts), [check().raw() * 3])
    ((subject, seconds),) = parts.decisions.watched.of("api", parts.decisions.second)
    assert (subject, seconds[-1]) == ("a", (2, 1, 2))


async def test_where_requests_are_logged_each_is() -> None:
    lines: list[str] = []
    log = Log("limit", lines.append, LogSettings(level="debug"))
    said = await talk(server_of(plain(Clock()), log=log), [check().raw()])
    assert said[0].headers["x-request-id"] == "r1"
    assert "request_id=r1" in lines[0]


async def test_a_bug_costs_one_request() -> None:
    lines: list[str] = []
    server = server_of(plain(Clock()), nobody, Log("limit", lines.append))
    found = await talk(server, [post("/json", {}).raw() + check().raw()])
    assert [said.status for said in found] == [500, 200]
    assert any("AssertionError" in line for line in lines)


async def test_a_client_that_sends_no_whole_head_is_let_go_of(autojump_clock: MockClock) -> None:
    ours, theirs = memory_stream_pair()
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server_of(plain(Clock()), nobody).serve, theirs, never)
        for byte in check().raw()[:20]:
            await ours.send_all(bytes([byte]))
            await trio.sleep(0.1)
        assert await ours.receive_some() == b""
    assert trio.current_time() - begun == pytest.approx(IDLE_S)


async def test_a_slow_body_is_left_to_the_server_behind(autojump_clock: MockClock) -> None:
    given: list[bytes] = []

    async def behind(received: bytes) -> None:
        given.append(received)

    ours, theirs = memory_stream_pair()
    raw = check().raw()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server_of(plain(Clock()), nobody).serve, theirs, behind)
        await ours.send_all(raw[:-1])
    assert given == [raw[:-1]]


async def test_stopped_it_waits_for_requests_under_way_alone() -> None:
    server = server_of(plain(Clock()), nobody)
    idle, half = memory_stream_pair(), memory_stream_pair()
    raw = check().raw()
    with trio.fail_after(IDLE_S / 2):
        async with trio.open_nursery() as nursery:
            for _, theirs in (idle, half):
                nursery.start_soon(server.serve, theirs, never)
            await half[0].send_all(raw[:-1])
            await trio.testing.wait_all_tasks_blocked()
            server.stop()
            assert await idle[0].receive_some() == b""
            await half[0].send_all(raw[-1:])
            assert bytes(await half[0].receive_some()).startswith(b"HTTP/1.1 200 ")
            assert await half[0].receive_some() == b""


async def test_a_client_that_goes_away_ends_its_connection_alone() -> None:
    ours, theirs = (trio.SocketStream(each) for each in trio.socket.socketpair())
    await ours.send_all(check().raw() * 100)
    await ours.aclose()
    with trio.fail_after(10):
        async with theirs:
            await server_of(plain(Clock()), nobody).serve(theirs, never)

"""The small HTTP server, over memory streams: whatever bytes come, a real answer or a closed connection.

Nobody waits for ever.
"""

import json

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from srtm.errors import BadInput, PeerError, Unavailable
from srtm.http_api import HttpServer, Request, Response, Router, json_response, text_response
from srtm.http_client import HttpClient, parse_http_url
from srtm.log import Log, format_line

LIMIT = 1000


async def echo(request):
    return Response(body=await request.read_body(LIMIT))


async def ignore_body(_request):
    return text_response("fine")


async def break_down(_request):
    raise RuntimeError("secret detail")


async def refuse(_request):
    raise BadInput("rate", -1, "must be above 0")


async def greet(_request, name):
    return json_response({"hello": name})


def router(**options):
    routes = Router(**options)
    routes.add("POST", "/echo", echo)
    routes.add("POST", "/ignore", ignore_body)
    routes.add("GET", "/break", break_down)
    routes.add("GET", "/refuse", refuse)
    routes.add("GET", "/ping", ignore_body)
    routes.add("GET", "/greet/{name}", greet)
    return routes


class Rig:
    """A server that serves one memory connection in ``nursery``."""

    def __init__(self, nursery, handler=None):
        self.lines = []
        self.server = HttpServer(handler or router(), Log("test", self.lines.append))
        self.stream, far = memory_stream_pair()
        nursery.start_soon(self.server.serve_connection, far)

    async def ask(self, data):
        await self.stream.send_all(data)
        return await self.read()

    async def read(self):
        """One answer: (status line, headers, body); None: closed."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = await self.stream.receive_some(1)
            if not byte:
                return None
            head += byte
        status, *lines = head.decode().split("\r\n")[:-2]
        headers = {key.lower(): value for key, value in (line.split(": ", 1) for line in lines)}
        body = b""
        while len(body) < int(headers.get("content-length", 0)):
            body += await self.stream.receive_some(int(headers["content-length"]) - len(body))
        return status, headers, body


@pytest.fixture
async def rig(nursery):
    return Rig(nursery)


def post(path, body, *headers):
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


GET_PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_a_connection_is_kept_alive_for_any_number_of_requests(rig):
    for number in range(300):
        assert (await rig.ask(post("/echo", b"%d" % number)))[2] == b"%d" % number


async def test_pipelined_requests_are_answered_in_order(rig):
    await rig.stream.send_all(post("/echo", b"one") + post("/echo", b"two") + GET_PING)
    assert [(await rig.read())[2] for _ in range(3)] == [b"one", b"two", b"fine"]


async def test_a_request_may_come_byte_by_byte(rig):
    for byte in post("/echo", b"slow"):
        await rig.stream.send_all(bytes([byte]))
    assert (await rig.read())[2] == b"slow"


async def test_chunked_bodies_are_read(rig):
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert (await rig.ask(head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"))[2] == b"abcde"


async def test_who_expects_100_continue_gets_it_before_the_body(rig):
    await rig.stream.send_all(post("/echo", b"12345", "Expect: 100-continue")[:-5])
    assert (await rig.read())[0] == "HTTP/1.1 100 Continue"
    assert (await rig.ask(b"12345"))[2] == b"12345"


async def test_a_body_that_nobody_wants_is_not_asked_for(rig):
    await rig.stream.send_all(post("/ignore", b"12345", "Expect: 100-continue")[:-5])
    status, headers, _ = await rig.read()
    assert status == "HTTP/1.1 200 OK"
    assert headers["connection"] == "close"
    assert await rig.read() is None


async def test_a_small_body_that_was_not_read_does_not_spoil_the_connection(rig):
    assert (await rig.ask(post("/ignore", b"x" * LIMIT)))[0] == "HTTP/1.1 200 OK"
    assert (await rig.ask(GET_PING))[2] == b"fine"


async def test_a_body_over_the_limit_is_refused_before_it_is_read(rig):
    head = post("/echo", b"x" * 10_000_000)[:-10_000_000]
    status, headers, body = await rig.ask(head)
    assert status == "HTTP/1.1 413 Request Entity Too Large"
    assert headers["connection"] == "close"
    assert json.loads(body)["rule"] == "must be at most 1000 bytes"


async def test_a_chunked_body_over_the_limit_is_refused_too(rig):
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    status, _, _ = await rig.ask(head + b"7d0\r\n" + b"x" * 2000 + b"\r\n0\r\n\r\n")
    assert status.startswith("HTTP/1.1 413")
    assert (await rig.ask(GET_PING))[2] == b"fine"  # it was short enough to be dropped


@pytest.mark.parametrize(
    "garbage",
    [
        b"  V2IDENTIFY\n\x00\x00\x00\x02{}",
        b"PUB topic\n\x00\x00\x00\x01x",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        b"GET /ping HTTP/1.1\r\n\r\n",  # no Host
        b"hello\n",
    ],
)
async def test_garbage_gets_a_real_400_and_then_the_end(rig, garbage):
    status, headers, _ = await rig.ask(garbage)
    assert status == "HTTP/1.1 400 Bad Request"
    assert headers["connection"] == "close"
    assert await rig.read() is None


async def test_an_endless_head_is_refused(rig):
    status, _, _ = await rig.ask(b"GET /ping HTTP/1.1\r\nX: " + b"x" * 40_000)
    assert status.startswith("HTTP/1.1 431")


@given(st.binary(max_size=200))
def test_no_bytes_bring_the_server_down(data):
    async def main():
        async with trio.open_nursery() as nursery:
            rig = Rig(nursery)
            await rig.stream.send_all(data)
            await rig.stream.send_eof()
            answer = b"".join([part async for part in rig.stream])
            assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
            assert rig.lines == []

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_http_1_0_is_answered_and_closed(rig):
    status, headers, _ = await rig.ask(b"GET /ping HTTP/1.0\r\n\r\n")
    assert status == "HTTP/1.1 200 OK"
    assert headers["connection"] == "close"
    assert await rig.read() is None


async def test_an_idle_connection_is_closed_in_the_end(rig, autojump_clock):
    await rig.ask(GET_PING)
    started = trio.current_time()
    assert await rig.read() is None
    assert trio.current_time() - started == pytest.approx(rig.server.idle_timeout_s)


async def test_half_a_head_gets_408_after_the_request_timeout(rig, autojump_clock):
    started = trio.current_time()
    status, _, _ = await rig.ask(b"GET /ping HT")
    assert status.startswith("HTTP/1.1 408")
    assert trio.current_time() - started == pytest.approx(rig.server.request_timeout_s)


async def test_half_a_body_gets_400_after_the_request_timeout(rig, autojump_clock):
    status, _, body = await rig.ask(post("/echo", b"12345")[:-2])
    assert status.startswith("HTTP/1.1 400")
    assert "must come within 30 s" in json.loads(body)["rule"]


async def test_a_fault_of_ours_costs_one_request_and_is_logged_not_shown(rig):
    status, _, body = await rig.ask(b"GET /break HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status.startswith("HTTP/1.1 500")
    assert b"secret" not in body
    assert "secret detail" in rig.lines[0]
    assert (await rig.ask(GET_PING))[2] == b"fine"


async def test_refusals_are_problem_json(rig):
    status, headers, body = await rig.ask(b"GET /refuse HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status == "HTTP/1.1 400 Bad Request"
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(body) == {
        "title": "bad input",
        "status": 400,
        "detail": "rate: -1: must be above 0",
        "field": "rate",
        "value": -1,
        "rule": "must be above 0",
    }


async def test_unknown_paths_and_methods_are_told_apart(rig):
    assert (await rig.ask(b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"))[0].startswith("HTTP/1.1 404")
    status, headers, _ = await rig.ask(b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status.startswith("HTTP/1.1 405")
    assert headers["allow"] == "OPTIONS, POST"
    status, headers, _ = await rig.ask(b"OPTIONS /echo HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (status, headers["allow"]) == ("HTTP/1.1 200 OK", "OPTIONS, POST")


async def test_head_has_no_body_and_the_connection_goes_on(rig):
    await rig.stream.send_all(b"HEAD /ping HTTP/1.1\r\nHost: x\r\n\r\n" + GET_PING)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += await rig.stream.receive_some(1)
    assert head.startswith(b"HTTP/1.1 405")
    assert (await rig.read())[2] == b"fine"


async def test_names_in_the_path_are_decoded(rig):
    assert json.loads((await rig.ask(b"GET /greet/a%23b%2Fc HTTP/1.1\r\nHost: x\r\n\r\n"))[2]) == {"hello": "a#b/c"}


async def test_a_token_is_asked_for_everywhere_but_where_it_is_not(nursery):
    rig = Rig(nursery, router(token="s3cret"))
    greeting = b"GET /greet/a HTTP/1.1\r\nHost: x\r\n"
    assert (await rig.ask(GET_PING))[0] == "HTTP/1.1 200 OK"
    status, _, body = await rig.ask(greeting + b"\r\n")
    assert status.startswith("HTTP/1.1 401")
    assert b"s3cret" not in body
    assert (await rig.ask(greeting + b"Authorization: Bearer wrong\r\n\r\n"))[0].startswith("HTTP/1.1 401")
    assert (await rig.ask(greeting + b"Authorization: Bearer s3cret\r\n\r\n"))[0] == "HTTP/1.1 200 OK"


def test_the_first_of_several_arguments_wins_and_escapes_are_checked():
    assert Request("GET", "/", "a=1&a=2&b=%23+x&c").arguments() == {"a": "1", "b": "# x", "c": ""}
    for query in ("a=%zz", "a;b", "a=%", "a=%ff"):
        with pytest.raises(BadInput):
            Request("GET", "/", query).arguments()


async def test_stop_lets_the_request_under_way_finish_and_closes_idle_connections(nursery):
    go_on = trio.Event()

    async def wait(_request):
        await go_on.wait()
        return text_response("done")

    rig = Rig(nursery, wait)
    idle, far = memory_stream_pair()
    nursery.start_soon(rig.server.serve_connection, far)
    await rig.stream.send_all(GET_PING)
    await wait_all_tasks_blocked()
    rig.server.stop(grace_s=1.0)
    assert await idle.receive_some(1) == b""
    go_on.set()
    status, headers, body = await rig.read()
    assert (status, body, headers["connection"]) == ("HTTP/1.1 200 OK", b"done", "close")


# --- the client


def client_for(nursery, handler=None, **options):
    """A client of a server on memory streams; ``opened`` counts its connections."""
    server = HttpServer(handler or router(), Log("test"))
    opened = []

    async def connect():
        near, far = memory_stream_pair()
        opened.append(far)
        nursery.start_soon(server.serve_connection, far)
        return near

    return HttpClient("http://host:1", connect=connect, **options), opened


async def test_the_client_keeps_its_connection(nursery):
    client, opened = client_for(nursery)
    for text in (b"a", b"b" * LIMIT, b"c"):
        assert await client.request("POST", "/echo", text, timeout_s=1) == (200, text)
    assert len(opened) == 1
    await client.aclose()


async def test_the_client_opens_a_new_connection_when_the_old_one_was_closed_meanwhile(nursery):
    client, opened = client_for(nursery)
    await client.request("GET", "/ping", timeout_s=1)
    await trio.aclose_forcefully(opened[0])
    assert await client.request("GET", "/ping", timeout_s=1) == (200, b"fine")
    assert len(opened) == 2


async def test_the_client_gives_up_in_time_and_starts_afresh(nursery, autojump_clock):
    never = trio.Event()

    async def first_hangs(_request):
        if len(opened) == 1:
            await never.wait()
        return text_response("second")

    client, opened = client_for(nursery, first_hangs)
    with pytest.raises(Unavailable, match="no answer within 2 s"):
        await client.request("GET", "/ping", timeout_s=2)
    assert (await client.request("GET", "/ping", timeout_s=2))[1] == b"second"
    never.set()


async def test_the_client_sends_the_token(nursery):
    client, _ = client_for(nursery, router(token="x"), token="x")
    assert (await client.request("GET", "/greet/a", timeout_s=1))[0] == 200


async def test_no_connection_is_unavailable():
    async def connect():
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(Unavailable, match="Connection refused"):
        await HttpClient("http://h:1", connect=connect).request("GET", "/", timeout_s=1)


async def test_a_peer_that_does_not_speak_http_is_a_peer_error(nursery):
    async def connect():
        near, far = memory_stream_pair()
        await far.send_all(b"\x00\x00\x00\x06nonsense\r\n\r\n")
        return near

    with pytest.raises(PeerError):
        await HttpClient("http://h:1", connect=connect).request("GET", "/", timeout_s=1)


@pytest.mark.parametrize(
    "url", ["", "host:1", "https://h:1", "http://", "http://h:99999", "http://h:1/path", "http://h?x"]
)
def test_other_urls_are_refused(url):
    with pytest.raises(BadInput, match="must be http://HOST:PORT"):
        parse_http_url("distributor", url)


# --- the log


def test_a_log_line_says_who_speaks_first_and_cannot_be_forged():
    line = format_line("b1", "INFO", "listening", {"tcp": "h:1", "why": "a b\nb2 forged"}, 1_700_000_000_123_000_000)
    assert line == "b1 2023-11-14T22:13:20.123Z INFO: listening tcp=h:1 why='a b\\nb2 forged'\n"

"""Routes, errors as answers, and the small HTTP client, over memory streams."""

import json
import re

import pytest
import trio
from trio.testing import memory_stream_pair

from broker.admin.forwarded_requests import request
from srtm.errors import BadInput, PeerError, Unavailable
from srtm.log import REQUEST_ID, Log
from srtm.net.http_client import HttpClient, parse_http_url
from srtm.net.http_server import Request, Response, Router, json_response, respond, text_response
from srtm.net.tokens import FromFile, Tokens
from tests.support.http_server import HttpServer

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


def router(tokens=None):
    routes = Router(tokens)
    routes.add("POST", "/echo", echo)
    routes.add("GET", "/break", break_down)
    routes.add("GET", "/refuse", refuse)
    routes.add("GET", "/ping", ignore_body)
    routes.add("GET", "/healthz", ignore_body)
    routes.add("GET", "/greet/{name}", greet)
    return routes


async def ask(method, target, body=b"", headers=(), *, lines=None, **options):
    log = Log("test", ([] if lines is None else lines).append)
    return await respond(router(**options), request(method, target, list(headers), body), log)


async def test_a_body_up_to_the_limit_of_its_route_is_read():
    assert (await ask("POST", "/echo", b"x" * LIMIT)).body == b"x" * LIMIT
    refused = await ask("POST", "/echo", b"x" * (LIMIT + 1))
    assert refused.status == 413
    assert json.loads(refused.body)["rule"] == "must be at most 1000 bytes"


async def test_a_fault_of_ours_costs_one_request_and_is_logged_not_shown():
    lines = []
    answer = await ask("GET", "/break", lines=lines)
    assert answer.status == 500
    assert b"secret" not in answer.body
    assert "secret detail" in lines[0]


async def test_refusals_are_problem_json():
    answer = await ask("GET", "/refuse", headers=[("x-request-id", "7")])
    assert (answer.status, answer.content_type) == (400, "application/problem+json")
    assert json.loads(answer.body) == {
        "title": "bad input",
        "status": 400,
        "detail": "rate: -1: must be above 0",
        "field": "rate",
        "value": -1,
        "rule": "must be above 0",
        "request_id": "7",
    }


async def test_a_request_has_an_id_in_its_log_lines_and_in_problems_and_where_the_client_sent_one():
    lines = []
    answer = await ask("GET", "/break", headers=[("x-request-id", "abc-1")], lines=lines)
    assert answer.headers == (("X-Request-Id", "abc-1"),)
    assert "request_id=abc-1" in lines[0]
    assert (await ask("GET", "/ping")).headers == ()
    assert (await ask("GET", "/ping", headers=[("x-request-id", "abc-1")])).headers == (("X-Request-Id", "abc-1"),)
    (_, made), *_ = (await ask("GET", "/nothing")).headers
    assert re.fullmatch("[0-9a-f]{16}", made)
    forged = await ask("GET", "/nothing", headers=[("x-request-id", "a b\nc")])
    assert forged.headers[-1] != ("X-Request-Id", "a b\nc")
    assert REQUEST_ID.get() is None


async def test_unknown_paths_and_methods_are_told_apart():
    assert (await ask("GET", "/nowhere")).status == 404
    answer = await ask("GET", "/echo")
    assert (answer.status, answer.headers[0]) == (405, ("Allow", "OPTIONS, POST"))
    answer = await ask("OPTIONS", "/echo")
    assert (answer.status, answer.headers) == (200, (("Allow", "OPTIONS, POST"),))


async def test_names_in_the_path_are_decoded():
    assert json.loads((await ask("GET", "/greet/a%23b%2Fc")).body) == {"hello": "a#b/c"}


async def test_a_token_is_asked_for_everywhere_but_where_it_is_not():
    assert (await ask("GET", "/healthz", tokens=Tokens.of_one("s3cret"))).status == 200
    answer = await ask("GET", "/greet/a", tokens=Tokens.of_one("s3cret"))
    assert answer.status == 401
    assert b"s3cret" not in answer.body
    for given, status in (("Bearer wrong", 401), ("Bearer s3cret", 200)):
        answer = await ask("GET", "/greet/a", headers=[("authorization", given)], tokens=Tokens.of_one("s3cret"))
        assert answer.status == status


def test_the_first_of_several_arguments_wins_and_escapes_are_checked():
    assert Request("GET", "/", "a=1&a=2&b=%23+x&c").arguments() == {"a": "1", "b": "# x", "c": ""}
    for query in ("a=%zz", "a;b", "a=%", "a=%ff"):
        with pytest.raises(BadInput):
            Request("GET", "/", query).arguments()


# --- the client


def client_for(nursery, handler=None, **options):
    """A client of a server on memory streams; ``opened`` counts its connections."""
    server = HttpServer(handler or router())
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
    client, _ = client_for(nursery, router(tokens=Tokens.of_one("x")), token="x")
    assert (await client.request("GET", "/greet/a", timeout_s=1))[0] == 200


async def test_a_renewed_token_is_sent_from_the_next_request_on(nursery):
    texts = iter(["old", "x"])
    token = FromFile(lambda: next(texts))
    client, opened = client_for(nursery, router(tokens=Tokens.of_one("x")), token=token)
    assert (await client.request("GET", "/greet/a", timeout_s=1))[0] == 401
    token.renew()
    assert (await client.request("GET", "/greet/a", timeout_s=1))[0] == 200
    assert len(opened) == 1


async def test_no_connection_is_unavailable():
    async def connect():
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(Unavailable, match="Connection refused"):
        await HttpClient("http://h:1", connect=connect).request("GET", "/", timeout_s=1)


async def test_a_peer_that_does_not_speak_http_is_a_peer_error():
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

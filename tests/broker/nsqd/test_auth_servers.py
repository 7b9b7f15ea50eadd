"""Asking nsqd's auth servers: what is sent, what counts as an answer, who is asked next. The servers are ours, on
loopback."""

import json
import ssl
from pathlib import Path
from urllib.parse import parse_qs

import msgspec
import pytest
import trio

from broker.config import AuthAddress, parse_auth_address
from broker.events import AuthAsked
from broker.nsqd.auth_servers import AuthServers, encode_question, normalize
from srtm.errors import BadInput, PeerError, Unavailable
from srtm.net.http_server import Response
from tests.support.http_server import serve_http

QUESTION = AuthAsked(connection=7, secret=b"s &\xff", remote_ip="::1", tls=True, common_name="me & you")
RULE = {"topic": "^t$", "channels": [".*"], "permissions": ["subscribe", "publish"]}
ANSWER = {"ttl": 30, "identity": "u", "identity_url": "http://u", "authorizations": [RULE]}
CERTIFICATE = Path(__file__).parents[2] / "support" / "localhost.pem"


class FakeAuthServer:
    """Answers with what it is told and writes down what it was asked."""

    def __init__(self, status=200, body=ANSWER):
        self.status = status
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.asked = []

    async def answer(self, request):
        self.asked.append((request.method, request.path, request.query, await request.read_body(1 << 20)))
        return Response(self.status, self.body, "application/json")

    async def serve(self, nursery, context=None):
        """The address that it listens at."""
        return parse_auth_address("address", await serve_http(nursery, self.answer, context))


def ask_in_order(addresses, **options):
    return AuthServers(addresses, draw=lambda _count: 0, **options).ask(QUESTION)


async def test_get_asks_in_the_query(nursery):
    server = FakeAuthServer()
    answer = await ask_in_order([await server.serve(nursery)])
    assert json.loads(answer) == ANSWER
    ((method, path, query, body),) = server.asked
    assert (method, path, body) == ("GET", "/auth", b"")
    assert query == "common_name=me+%26+you&remote_ip=%3A%3A1&secret=s+%26%FF&tls=true"
    nursery.cancel_scope.cancel()


async def test_post_asks_in_json_with_a_list_for_each(nursery):
    server = FakeAuthServer()
    await ask_in_order([await server.serve(nursery)], method="post")
    ((method, path, query, body),) = server.asked
    assert (method, path, query) == ("POST", "/auth", "")
    assert json.loads(body) == {
        "common_name": ["me & you"], "remote_ip": ["::1"], "secret": ["s &�"], "tls": ["true"],
    }  # fmt: skip
    nursery.cancel_scope.cancel()


def test_for_an_mqtt_client_its_user_name_and_id_are_asked_too():
    question = msgspec.structs.replace(QUESTION, username="eva", client_id="sensor/7")
    target, _ = encode_question(question, "/auth", "get")
    fields = parse_qs(target.removeprefix("/auth?"))
    assert (fields["username"], fields["client_id"]) == (["eva"], ["sensor/7"])
    _, body = encode_question(msgspec.structs.replace(question, client_id=""), "/auth", "post")
    assert json.loads(body)["username"] == ["eva"]
    assert "client_id" not in json.loads(body)


def test_a_url_keeps_its_path():
    address = parse_auth_address("a", "http://auth:81/who/is")
    assert address == AuthAddress("auth", 81, "/who/is")
    target, _ = encode_question(QUESTION, address.path, "get")
    assert parse_qs(target.removeprefix("/who/is?"))["tls"] == ["true"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("auth:4181", AuthAddress("auth", 4181)),
        ("[::1]:4181", AuthAddress("::1", 4181)),
        ("http://auth", AuthAddress("auth", 80, "/")),
        ("https://auth/x", AuthAddress("auth", 443, "/x", tls=True)),
    ],
)
def test_addresses_are_host_and_port_or_a_url(text, address):
    assert parse_auth_address("a", text) == address


@pytest.mark.parametrize(
    "text",
    [
        "auth",
        ":4181",
        "ftp://auth",
        "http://",
        "http://a:b/",
        "http://a/?q=1",
        "http://a/x y",
        "http://u@a/",
        "x" * 70 + ":1",
    ],
)
def test_what_is_no_address_is_refused_by_name(text):
    with pytest.raises(BadInput, match="auth_http_address"):
        parse_auth_address("auth_http_address", text)


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense",
        b"\xff",
        json.dumps({**ANSWER, "ttl": 0}).encode(),
        json.dumps({**ANSWER, "ttl": 1.5}).encode(),
        json.dumps({**ANSWER, "authorizations": [{**RULE, "permissions": ["rule"]}]}).encode(),
        json.dumps({"identity": "u"}).encode(),
    ],
)
def test_what_is_no_authorization_is_refused(body):
    with pytest.raises(PeerError, match="not an authorization"):
        normalize(body)


def test_absent_and_null_lists_are_empty_and_strange_keys_dropped():
    sparse = {"ttl": 1, "more": 1, "authorizations": [{"topic": "t", "channels": None}]}
    assert json.loads(normalize(json.dumps(sparse).encode())) == {
        "ttl": 1, "identity": "", "identity_url": "",
        "authorizations": [{"topic": "t", "channels": [], "permissions": []}],
    }  # fmt: skip
    assert json.loads(normalize(b'{"ttl":1}'))["authorizations"] == []


@pytest.mark.parametrize("bad", [FakeAuthServer(500), FakeAuthServer(403), FakeAuthServer(body=b"x"), None])
async def test_the_next_server_is_asked_when_one_gives_no_usable_answer(nursery, bad):
    good = FakeAuthServer()
    first = await bad.serve(nursery) if bad else AuthAddress("127.0.0.1", 1)  # nobody listens there
    assert json.loads(await ask_in_order([first, await good.serve(nursery)])) == ANSWER
    nursery.cancel_scope.cancel()


async def test_when_none_answers_every_reason_is_told(nursery):
    servers = [FakeAuthServer(500), FakeAuthServer(body=b"x")]
    with pytest.raises(Unavailable, match=r"status 500; not an authorization"):
        await ask_in_order([await server.serve(nursery) for server in servers])
    nursery.cancel_scope.cancel()


async def test_the_start_is_drawn_and_all_are_asked_once(nursery):
    servers = [FakeAuthServer(500), FakeAuthServer(500), FakeAuthServer()]
    addresses = [await server.serve(nursery) for server in servers]
    assert json.loads(await AuthServers(addresses, draw=lambda count: count - 2).ask(QUESTION)) == ANSWER
    assert [len(server.asked) for server in servers] == [0, 1, 1]
    nursery.cancel_scope.cancel()


async def test_a_server_that_never_answers_is_given_up_after_the_timeout(autojump_clock, nursery):
    async def say_nothing(_request):
        await trio.sleep_forever()

    address = parse_auth_address("address", await serve_http(nursery, say_nothing))
    with pytest.raises(Unavailable, match="no answer within 3 s"):
        await ask_in_order([address], request_timeout_s=3)
    nursery.cancel_scope.cancel()


async def test_a_server_that_wants_https_is_asked_there(nursery):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    over_tls = FakeAuthServer()
    port = (await over_tls.serve(nursery, context)).port
    plain = FakeAuthServer(403, {"message": "TLS_REQUIRED", "https_port": port})
    answer = await ask_in_order(
        [await plain.serve(nursery)], tls=lambda: ssl.create_default_context(cafile=str(CERTIFICATE))
    )
    assert json.loads(answer) == ANSWER
    assert (len(plain.asked), len(over_tls.asked)) == (1, 1)
    nursery.cancel_scope.cancel()


async def test_certificates_to_trust_that_cannot_be_read_are_no_answer(tmp_path):
    def tls():
        return ssl.create_default_context(cafile=str(tmp_path / "nowhere"))

    with pytest.raises(Unavailable, match="no TLS"):
        await ask_in_order([AuthAddress("127.0.0.1", 1, tls=True)], tls=tls)


async def test_a_certificate_that_is_not_trusted_is_no_answer(nursery):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    server = FakeAuthServer()
    address = await server.serve(nursery, context)
    with pytest.raises(Unavailable, match="its certificate is from nobody who is trusted here"):
        await ask_in_order([AuthAddress("127.0.0.1", address.port, tls=True)])
    assert server.asked == []
    nursery.cancel_scope.cancel()

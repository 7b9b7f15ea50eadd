"""A broker in this process that asks an auth server, over real sockets: what a client may do, and whom a slow server
keeps waiting."""

import json

import httpx
import pytest
import trio

from bench.harness.load import mqtt_client as mqtt
from broker import service
from broker.config import BrokerConfig
from srtm import protocol as wire
from srtm.client.publisher import Publisher
from srtm.net.address import parse_address
from srtm.net.http_server import Response
from srtm.net.tokens import Tokens
from tests.support.http_server import serve_http

RULE = {"topic": "^mine", "channels": [".*"], "permissions": ["subscribe", "publish"]}
ANSWER = json.dumps({"ttl": 60, "identity": "u", "authorizations": [RULE]}).encode()


class Client:
    """A connection that has said hello."""

    def __init__(self, stream):
        self.stream = stream
        self.events = wire.EventReader()

    async def ask(self, command):
        await self.stream.send_all(command)
        return await self.next()

    async def next(self):
        with trio.fail_after(5):
            while (event := self.events.next_event()) is wire.NEED_DATA:
                self.events.receive_data(await self.stream.receive_some())
            return event


class Scene:
    """A broker and its auth server, which is slow to answer the secret ``slow``."""

    def __init__(self, nursery):
        self.nursery = nursery
        self.slow_asked = trio.Event()
        self.let_go = trio.Event()

    async def answer(self, request):
        if "secret=slow" in request.query:
            self.slow_asked.set()
            await self.let_go.wait()
        return Response(200 if "secret=wrong" not in request.query else 403, ANSWER)

    async def start(self, tmp_path):
        config = BrokerConfig(
            name="b1",
            tcp_address="127.0.0.1:0",
            http_address="127.0.0.1:0",
            mqtt_address="127.0.0.1:0",
            data_path=str(tmp_path),
            auth_http_addresses=(await serve_http(self.nursery, self.answer),),
            auth_by_http=True,
        )
        bound = await self.nursery.start(service.serve, config)
        self.tcp, self.mqtt, self.http = bound.tcp, bound.mqtt, bound.http

    async def connect(self):
        client = Client(await trio.open_tcp_stream(*parse_address("tcp", self.tcp)))
        await client.stream.send_all(b"  V2")
        return client


@pytest.fixture
async def scene(nursery, tmp_path):
    scene = Scene(nursery)
    await scene.start(tmp_path)
    yield scene
    nursery.cancel_scope.cancel()


def auth(secret):
    return b"AUTH\n" + len(secret).to_bytes(4, "big") + secret


OK = wire.Response(b"OK")


async def authenticated(tcp, secret):
    """A client that has said AUTH, and what it was answered."""
    client = Client(await trio.open_tcp_stream(*parse_address("tcp", tcp)))
    await client.stream.send_all(b"  V2")
    return client, await client.ask(auth(secret))


async def test_a_client_may_do_what_the_server_grants_and_nothing_else(scene):
    client = await scene.connect()
    granted = await client.ask(auth(b"right"))
    assert json.loads(granted.data) == {"identity": "u", "identity_url": "", "permission_count": 1}
    assert await client.ask(wire.pub("mine.1", b"x")) == OK
    assert (await client.ask(wire.pub("yours", b"x"))).code == "E_UNAUTHORIZED"
    await client.stream.aclose()


async def test_a_secret_that_the_server_refuses_fails(scene):
    client = await scene.connect()
    assert (await client.ask(auth(b"wrong"))).code == "E_AUTH_FAILED"
    await client.stream.aclose()


async def test_a_slow_server_keeps_only_those_waiting_that_asked_it(scene):
    slow, quick = await scene.connect(), await scene.connect()
    await slow.stream.send_all(auth(b"slow") + wire.pub("mine.1", b"late"))
    await scene.slow_asked.wait()
    assert isinstance(await quick.ask(auth(b"right")), wire.Response)
    assert await quick.ask(wire.pub("mine.1", b"x")) == OK
    scene.let_go.set()
    assert isinstance(await slow.next(), wire.Response)
    assert await slow.next() == OK
    for client in (slow, quick):
        await client.stream.aclose()


@pytest.mark.parametrize(("password", "code"), [(b"right", 0), (b"wrong", 0x87)])
async def test_an_mqtt_client_may_do_what_the_server_grants_to_its_password(scene, password, code):
    stream = await trio.open_tcp_stream(*parse_address("mqtt", scene.mqtt))

    async def answer_to(packet):
        await stream.send_all(packet)
        answer = b""
        with trio.fail_after(5):
            while (whole := mqtt.first_packet(answer)) is None:
                answer += await stream.receive_some()
        return whole[1]

    connect = mqtt.text(b"MQTT") + b"\x05\xc2\0\x3c\0" + b"".join(map(mqtt.text, (b"sensor", b"any", password)))
    assert (await answer_to(mqtt.packet(mqtt.CONNECT, connect)))[1] == code
    if code == 0:
        for name, reason in ((b"mine.1", 0x10), (b"yours", 0x87)):
            publish = mqtt.publish_packet(name, b"x", qos=1, number=5, properties=b"\0")
            assert (await answer_to(publish))[2] == reason
    await stream.aclose()


async def test_a_publish_by_http_waits_for_the_server_and_may_do_what_it_grants(scene):
    async with httpx.AsyncClient(base_url=f"http://{scene.http}", trust_env=False) as http:
        for secret, topic, status in (("right", "mine.1", 200), ("right", "yours", 403), ("wrong", "mine.1", 401)):
            for shown in ({"headers": {"Authorization": f"Bearer {secret}"}}, {"auth": ("any", secret)}):
                response = await http.post(f"/pub?topic={topic}", content=b"x", **shown)
                assert response.status_code == status, (shown, topic)
        assert (await http.post("/pub?topic=mine.1", content=b"x")).status_code == 401


async def test_rows_of_a_file_say_which_token_may_do_what(nursery, tmp_path):
    rows = tmp_path / "acl"
    rows.write_text("cars write roads-*\n")
    config = BrokerConfig(
        name="b1",
        tcp_address="127.0.0.1:0",
        http_address="127.0.0.1:0",
        data_path=str(tmp_path),
        tokens=Tokens.parsed("tokens", "client cars c\noperator ann o\n"),
        topic_acl_file=str(rows),
    )
    tcp = (await nursery.start(service.serve, config)).tcp

    cars, answer = await authenticated(tcp, b"c")
    assert json.loads(answer.data)["identity"] == "cars"
    assert await cars.ask(wire.pub("roads-7", b"x")) == OK
    assert (await cars.ask(wire.pub("lanes", b"x"))).code == "E_UNAUTHORIZED"
    ann, _ = await authenticated(tcp, b"o")
    assert await ann.ask(wire.pub("lanes", b"x")) == OK
    stranger, refused = await authenticated(tcp, b"x")
    assert refused.code == "E_AUTH_FAILED"
    for client in (cars, ann, stranger):
        await client.stream.aclose()
    nursery.cancel_scope.cancel()


# `mosquitto_passwd -b FILE eva secret` of version 2.0.11 wrote this.
EVA = (
    "eva:$7$101$jE84i/ex3+60MdvR$"
    "lCM1kkHZMU8mjB/CHINVdjNm5i1TO8rkzUp2eao+Oge8w2SBcj5fHDbLPB5A/NeZiv1zmBYOndUSpkjuCwfv6A==\n"
)


async def test_mosquittos_files_say_who_is_who_and_may_do_what_by_nsq_and_http_too(nursery, tmp_path, capfd):
    users, access = tmp_path / "users", tmp_path / "access"
    users.write_text(EVA)
    access.write_text("topic read news\nuser eva\ntopic write own\n")
    config = BrokerConfig(
        name="b1",
        tcp_address="127.0.0.1:0",
        http_address="127.0.0.1:0",
        data_path=str(tmp_path),
        mqtt_password_file=str(users),
        mqtt_acl_file=str(access),
    )
    bound = await nursery.start(service.serve, config)
    assert "clients of NSQ and HTTP are judged as those of MQTT" in capfd.readouterr().err
    eva, answer = await authenticated(bound.tcp, b"eva:secret")
    assert json.loads(answer.data)["identity"] == "eva"
    assert await eva.ask(wire.pub("own", b"x")) == OK
    assert (await eva.ask(wire.pub("news", b"x"))).code == "E_UNAUTHORIZED"
    async with Publisher("own", "p", brokers=[bound.tcp], secret="eva:secret") as publisher:
        await publisher.publish(b"x")
    wrong, refused = await authenticated(bound.tcp, b"eva:Secret")
    assert refused.code == "E_AUTH_FAILED"
    for client in (eva, wrong):
        await client.stream.aclose()
    async with httpx.AsyncClient(base_url=f"http://{bound.http}", trust_env=False) as http:
        for shown, topic, status in (
            (("eva", "secret"), "own", 200),
            (("eva", "secret"), "news", 403),
            (("eva", "wrong"), "own", 401),
            (None, "own", 401),
        ):
            response = await http.post(f"/pub?topic={topic}", content=b"x", auth=shown)
            assert response.status_code == status, (shown, topic)
    nursery.cancel_scope.cancel()

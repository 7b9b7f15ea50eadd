"""nsqd's routes at a broker: its words, its order of checks. A refusal changes nothing."""

import json

import msgspec
import pytest

from broker.admin.context import tokens_of
from broker.config import BrokerConfig
from srtm.control import ContractNews, GdrlMessage
from srtm.net.tokens import Tokens
from tests.support.broker_admin import Admin


async def test_info_is_nsqds(admin):
    response = await admin.ask("GET", "/info")
    assert dict(response.headers)["X-NSQ-Content-Type"] == "nsq; version=1.0"
    info = json.loads(response.body)
    assert info["version"] == "1.3.0"
    assert (info["tcp_port"], info["http_port"], info["hostname"]) == (4150, 4151, "vm")
    assert info["max_heartbeat_interval"] == 60_000_000_000
    assert info["start_time"] == 1_700_000_000


async def test_topics_are_created_paused_emptied_and_deleted(admin):
    for verb in ("create", "create", "pause", "unpause", "empty", "delete"):
        response = await admin.ask("POST", f"/topic/{verb}?topic=t")
        assert (response.status, response.body) == (200, b"")
    assert await admin.code("POST", "/topic/delete?topic=t") == (404, "TOPIC_NOT_FOUND")
    assert ("pause_topic", "t", True) in admin.engine.calls
    assert ("pause_topic", "t", False) in admin.engine.calls
    assert admin.changes > 0  # a pause reaches the metadata file although the engine has no event for it
    assert admin.written == [{"t": True}, {"t": False}]  # before it is answered


async def test_channels_need_their_topic(admin):
    target = "/channel/{}?topic=t&channel=c"
    assert await admin.code("POST", target.format("create")) == (404, "TOPIC_NOT_FOUND")
    admin.engine.create_topic("t")
    assert await admin.code("POST", target.format("pause")) == (404, "CHANNEL_NOT_FOUND")
    for verb in ("create", "pause", "unpause", "empty", "delete"):
        assert (await admin.ask("POST", target.format(verb))).status == 200
    assert admin.engine.topics["t"].channels == {}
    assert len(admin.written) == 2, "for the pauses"


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/topic/create", "MISSING_ARG_TOPIC"),
        ("/topic/create?topic=%20", "INVALID_TOPIC"),
        ("/topic/create?topic=.", "INVALID_TOPIC"),
        ("/topic/create?topic=..", "INVALID_TOPIC"),
        ("/channel/create?channel=c", "MISSING_ARG_TOPIC"),
        ("/channel/create?topic=t", "MISSING_ARG_CHANNEL"),
        ("/channel/create?topic=!&channel=c", "INVALID_ARG_TOPIC"),
        ("/channel/pause?topic=t&channel=!", "INVALID_ARG_CHANNEL"),
    ],
)
async def test_bad_names_are_refused(admin, target, code):
    assert await admin.code("POST", target) == (400, code)
    assert admin.engine.calls == []


async def test_a_managed_topic_cannot_be_deleted_behind_the_distributors_back(admin):
    admin.engine.create_topic("t")
    admin.managed.add("t")
    assert await admin.code("POST", "/topic/delete?topic=t") == (409, "TOPIC_MANAGED")
    assert "t" in admin.engine.topics


async def test_nsqds_routes_refuse_in_nsqds_words(admin):
    assert await admin.code("GET", "/put") == (404, "NOT_FOUND")
    response = await admin.ask("GET", "/topic/create")
    assert (response.status, response.body) == (405, b'{"message":"METHOD_NOT_ALLOWED"}')
    assert dict(response.headers)["Allow"] == "OPTIONS, POST"
    assert dict(response.headers)["X-NSQ-Content-Type"] == "nsq; version=1.0"
    assert await admin.code("GET", "/%zz") == (400, "INVALID_REQUEST")


async def test_a_token_is_asked_for_in_both_kinds_of_routes():
    admin = Admin(tokens=Tokens.of_one("s3cret"))
    assert (await admin.ask("GET", "/healthz")).status == 200
    assert await admin.code("POST", "/topic/create?topic=t") == (401, "UNAUTHORIZED")
    assert (await admin.json("GET", "/v1/topics/t/bucket"))[0] == 401
    assert (await admin.ask("POST", "/topic/create?topic=t", authorization="Bearer s3cret")).status == 200


async def test_partners_use_the_exchange_with_tokens_of_brokers_and_nothing_else():
    listed = Tokens.parsed("tokens", "broker b1 own\nbroker b2 other\noperator ann o\nclient cars c\n")
    admin = Admin(tokens=tokens_of(BrokerConfig(name="b1", data_path=".", token="own", tokens=listed)))

    async def status(token, method, path):
        return (await admin.ask(method, path, b"{}", authorization=f"Bearer {token}")).status

    exchange, bucket = ("POST", "/v1/gdrl/exchange"), ("GET", "/v1/topics/t/bucket")
    assert [await status(token, *exchange) for token in ("own", "other", "o", "c", "x")] == [400, 400, 400, 403, 401]
    assert [await status(token, *bucket) for token in ("own", "other", "o", "c", "x")] == [404, 403, 404, 403, 401]


async def test_a_partner_speaks_in_its_own_name_alone():
    listed = Tokens.parsed("tokens", "broker b1 own\nbroker b2 other\noperator ann o\n")
    admin = Admin(tokens=tokens_of(BrokerConfig(name="b1", data_path=".", token="own", tokens=listed)))
    body = msgspec.json.encode(GdrlMessage(topic="t", epoch=1, sender="b3"))

    async def status(token, content):
        return (await admin.ask("POST", "/v1/gdrl/exchange", content, authorization=f"Bearer {token}")).status

    assert (await status("other", body), await status("o", body)) == (403, 200)
    assert await status("other", body.replace(b"b3", b"b2")) == 200


async def test_strangers_learn_no_incarnation():
    listed = Tokens.parsed("tokens", "broker b2 other\noperator ann o\nclient cars c\n")
    admin = Admin(tokens=tokens_of(BrokerConfig(name="b1", data_path=".", token="own", tokens=listed)))
    for token, is_told in (("", False), ("x", False), ("c", False), ("other", False), ("own", True), ("o", True)):
        answer = await admin.ask("GET", "/healthz", authorization=f"Bearer {token}")
        assert answer.status == 200
        assert ("incarnation" in json.loads(answer.body)) == is_told, token
    assert "incarnation" in json.loads((await Admin().ask("GET", "/healthz")).body), "no tokens: nothing is secret"


async def test_memory_can_be_given_back(admin):
    assert await admin.code("POST", "/debug/freememory") == (200, "")


@pytest.mark.parametrize(
    "path", ["/debug/pprof/", "/debug/pprof/heap", "/put", "/create_topic", "/mput", "/empty_channel"]
)
async def test_what_is_gos_own_and_what_is_long_gone_is_not_found(admin, path):
    assert await admin.code("GET", path) == (404, "NOT_FOUND")


async def test_contract_news_are_taken_from_a_broker_in_its_own_name():
    taken = []
    listed = Tokens.parsed("tokens", "broker b1 own\nbroker b2 other\nclient cars c\n")
    tokens = tokens_of(BrokerConfig(name="b1", data_path=".", token="own", tokens=listed))
    admin = Admin(tokens=tokens, take_contract_news=taken.append)
    news = ContractNews(sender="b2", incarnation="1", number=1, taken=[("s", "x", 3)])
    good = msgspec.json.encode(news)

    async def status(token, content):
        return (await admin.ask("POST", "/v1/contracts/news", content, authorization=f"Bearer {token}")).status

    bad = [b"{}", good.replace(b"3", b"-3"), good.replace(b"3", b"99999999999"), good.replace(b"[[", b"[")]
    assert [await status("other", content) for content in bad] == [400] * 4
    assert [await status("c", good), await status("other", good.replace(b"b2", b"b3"))] == [403, 403]
    assert (await status("other", good), taken) == (204, [news])
    admin.engine.owed = [("s", "x", 3)]
    path = "/v1/contracts/overdrawn"
    assert (await admin.ask("GET", path, authorization="Bearer c")).status == 403
    answer = await admin.ask("GET", path, authorization="Bearer other")
    assert msgspec.json.decode(answer.body) == {"owed": [["s", "x", 3]]}

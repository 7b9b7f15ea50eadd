"""A broker is drained by its own route, where no distributor does it."""

from broker.config import BrokerConfig
from srtm.net.tokens import Tokens
from tests.support.broker_admin import Admin


async def test_a_broker_alone_is_drained_by_its_own_route(admin):
    admin.engine.create_topic("t").messages.append(b"x")
    assert (await admin.json("GET", "/v1/drain"))[1]["state"] == "serving"
    status, begun = await admin.json("POST", "/v1/drain")
    assert (status, begun["broker"], begun["state"], begun["left"]["queued"]) == (202, "b1", "draining", 1)
    assert begun["obstacles"] == ["topic t has no channel"]
    assert (await admin.json("POST", "/v1/drain"))[0] == 202
    assert (await admin.json("GET", "/v1/drain"))[1]["state"] == "draining"


async def test_a_member_of_a_cluster_is_not_drained_behind_its_distributors_back():
    admin = Admin(config=BrokerConfig(name="b1", distributors=("http://d:4190",)))
    status, refusal = await admin.json("POST", "/v1/drain")
    assert (status, refusal["field"], refusal["value"]) == (409, "broker", "b1")
    assert "srtm drain b1" in refusal["rule"]
    assert (await admin.json("GET", "/v1/drain"))[1]["state"] == "serving"


async def test_draining_asks_for_the_token():
    admin = Admin(tokens=Tokens.of_one("s3cret"))
    assert (await admin.ask("POST", "/v1/drain")).status == 401
    assert (await admin.ask("POST", "/v1/drain", authorization="Bearer s3cret")).status == 202

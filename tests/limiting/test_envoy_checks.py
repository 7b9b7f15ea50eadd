"""What contracts say to Envoy: descriptors, addends, domains, several at once."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from limiting.api.parts import Parts
from limiting.envoy.rate_limits import OK, OVER_LIMIT, RateLimitResponse, read_request
from limiting.envoy_checks import should_rate_limit
from srtm.contracts.contract import read_contract
from srtm.errors import BadInput, NotFound
from srtm.limiting.headers import FAMILIES
from tests.support.envoy_messages import request

S = 10**9


def minute(quota: int, name: str = "minute") -> dict[str, Any]:
    policy = {"kind": "window", "quota": quota, "window": "1m", "slices": 1, "weighted": False, "aligned": True}
    return {"name": name, **policy}


@pytest.fixture(autouse=True)
def contracts(parts: Parts) -> None:
    for pattern, policies in {
        "remote_address=*": [minute(3)],
        "path|remote_address=/login|*": [minute(1), {"name": "burst", "rate": 0.5, "burst": 9}],
        "plan=free": [minute(5)],
    }.items():
        parts.contracts.put_all([read_contract({"namespace": "edge", "subject": pattern, "policies": policies})])


async def ask(parts: Parts, *descriptors: dict[str, str], hits: int = 0, domain: str = "edge") -> RateLimitResponse:
    asked = read_request(request(domain, *descriptors, hits=hits).SerializeToString())
    return await should_rate_limit(parts.decisions, parts.contracts, asked, FAMILIES)


async def test_each_value_of_a_key_has_its_limit(parts: Parts, clock: Any) -> None:
    said = [await ask(parts, {"remote_address": "10.0.0.1"}) for _ in range(4)]
    assert [each.code for each in said] == [OK, OK, OK, OVER_LIMIT]
    assert [each.statuses[0].remaining for each in said] == [2, 1, 0, 0]
    (status,) = said[3].statuses
    assert (status.limit, status.name) == ((3, "MINUTE"), "minute")
    assert status.reset_ns == 60 * S
    assert dict(said[3].headers)["Retry-After"] == "60"
    assert b"quota exceeded" in said[3].body
    assert said[0].body == b""
    assert (await ask(parts, {"remote_address": "10.0.0.2"})).code == OK
    clock.now = 60 * S
    assert (await ask(parts, {"remote_address": "10.0.0.1"})).code == OK


async def test_an_addend_takes_as_many(parts: Parts) -> None:
    assert (await ask(parts, {"remote_address": "a"}, hits=4)).code == OVER_LIMIT
    assert (await ask(parts, {"remote_address": "a"}, hits=2)).statuses[0].remaining == 1


async def test_an_addend_of_a_descriptor_goes_before_and_may_be_zero(parts: Parts) -> None:
    asked = request("edge", {"remote_address": "a"}, {"plan": "free"}, hits=2)
    asked.descriptors[1].hits_addend.value = 0
    asked.descriptors[1].hits_addend.SetInParent()
    read = read_request(asked.SerializeToString())
    said = await should_rate_limit(parts.decisions, parts.contracts, read, FAMILIES)
    assert [status.remaining for status in said.statuses] == [1, 5]


async def test_a_refused_request_charges_no_descriptor(parts: Parts) -> None:
    both = [{"plan": "free"}, {"remote_address": "a"}]
    await ask(parts, {"remote_address": "a"}, hits=3)
    said = await ask(parts, *both)
    assert (said.code, [status.code for status in said.statuses]) == (OVER_LIMIT, [OK, OVER_LIMIT])
    assert said.statuses[0].remaining == 5
    assert (await ask(parts, {"plan": "free"})).statuses[0].remaining == 4


async def test_one_descriptor_twice_is_charged_twice(parts: Parts) -> None:
    said = await ask(parts, {"remote_address": "a"}, {"remote_address": "a"})
    assert [status.remaining for status in said.statuses] == [1, 1]


async def test_a_descriptor_without_a_contract_is_not_limited(parts: Parts) -> None:
    for _ in range(9):
        said = await ask(parts, {"generic_key": "x"}, {"plan": "paid"})
        assert (said.code, said.headers) == (OK, ())
        assert [status.limit for status in said.statuses] == [None, None]


async def test_a_descriptor_of_more_or_fewer_entries_is_another(parts: Parts) -> None:
    two = {"path": "/login", "remote_address": "a"}
    assert [(await ask(parts, two)).code for _ in range(2)] == [OK, OVER_LIMIT]
    said = await ask(parts, {"path": "/login"}, {"remote_address": "a", "path": "/login"})
    assert [status.limit for status in said.statuses] == [None, None]


async def test_the_tightest_policy_is_shown(parts: Parts) -> None:
    two = {"path": "/login", "remote_address": "b"}
    assert (await ask(parts, two)).statuses[0].name == "minute"


async def test_a_domain_without_contracts_is_an_error(parts: Parts) -> None:
    with pytest.raises(NotFound, match="domain"):
        await ask(parts, {"remote_address": "a"}, domain="ed")
    await parts.contracts.remove("edge", "plan=free")
    await parts.contracts.remove("edge", "remote_address=*")
    await parts.contracts.remove("edge", "path|remote_address=/login|*")
    with pytest.raises(NotFound, match="domain"):
        await ask(parts, {"remote_address": "a"})


async def test_a_long_value_is_limited_and_a_cost_that_cannot_be_refused(parts: Parts) -> None:
    said = [await ask(parts, {"remote_address": "x" * 2_000}) for _ in range(5)]
    assert said[0].code == OK
    assert said[4].code == OVER_LIMIT
    asked = request("edge", {"remote_address": "a"})
    asked.descriptors[0].hits_addend.value = 2**63
    with pytest.raises(BadInput, match="cost"):
        await should_rate_limit(parts.decisions, parts.contracts, read_request(asked.SerializeToString()), FAMILIES)


async def test_the_same_in_json(client: httpx.AsyncClient) -> None:
    document = {"domain": "edge", "descriptors": [{"entries": [{"key": "remote_address", "value": "a"}]}]}
    answers = [await client.post("/json", json=document | {"hitsAddend": 2}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[0].json()["statuses"][0]["limitRemaining"] == 1
    assert answers[1].json()["overallCode"] == "OVER_LIMIT"
    assert (await client.post("/json", json=document | {"domain": "?"})).status_code == 404
    assert (await client.post("/json", json={"domain": "edge"})).status_code == 400
    assert (await client.post("/json", content=b"{")).status_code == 400

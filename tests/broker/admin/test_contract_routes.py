"""The heaviest subjects of contracts by HTTP, for operators."""

from __future__ import annotations

import json

from broker.admin.context import tokens_of
from broker.config import BrokerConfig
from srtm.net.tokens import Tokens
from tests.support.broker_admin import Admin

PATH = "/v1/contracts/subjects?namespace=per%20sensor"
HEAVY = {"subject": "a", "contract": "*", "checks": 32, "remaining": [4]}


async def test_an_operator_asks_for_the_heaviest_subjects_of_a_namespace() -> None:
    listed = Tokens.parsed("tokens", "operator ann o\nbroker b2 other\nclient cars c\n")
    admin = Admin(tokens=tokens_of(BrokerConfig(name="b1", data_path=".", token="own", tokens=listed)))
    admin.engine.heaviest = {"per sensor": [HEAVY] * 200}
    answer = await admin.ask("GET", PATH, authorization="Bearer o")
    assert json.loads(answer.body) == [HEAVY] * 100
    for token in ("c", "other"):
        assert (await admin.ask("GET", PATH, authorization=f"Bearer {token}")).status == 403


async def test_a_namespace_must_be_named_and_one_without_subjects_has_none(admin: Admin) -> None:
    status, refused = await admin.json("GET", "/v1/contracts/subjects")
    assert (status, refused["field"]) == (400, "namespace")
    assert await admin.json("GET", "/v1/contracts/subjects?namespace=none") == (200, [])

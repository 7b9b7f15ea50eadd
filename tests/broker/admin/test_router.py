"""Which requests leave a line in the broker's log, and what it says."""

import pytest

from srtm.net.tokens import Tokens
from tests.support.broker_admin import Admin

TOKENS = "operator ann o\nbroker b2 b\n"


async def test_what_somebody_changes_at_a_broker_is_in_its_log() -> None:
    admin = Admin()
    assert (await admin.ask("POST", "/topic/create?topic=roads")).status == 200
    (line,) = admin.logged
    assert "INFO: changed who=anybody source=10.0.0.7:50000 request='POST /topic/create?topic=roads'" in line


async def test_whose_token_it_was_is_named() -> None:
    admin = Admin(tokens=Tokens.parsed("tokens", TOKENS))
    answer = await admin.ask("POST", "/v1/drain", authorization="Bearer o")
    assert answer.status == 202
    (line,) = admin.logged
    assert "changed who=ann source=10.0.0.7:50000 request='POST /v1/drain'" in line


@pytest.mark.parametrize(
    ("method", "target", "token"),
    [
        ("GET", "/stats", "o"),
        ("OPTIONS", "/stats", "o"),
        ("POST", "/topic/delete?topic=none", "o"),
        ("POST", "/channel/create?topic=roads", "o"),
        ("PUT", "/v1/topics/roads/bucket", "wrong"),
        ("POST", "/v1/none", "o"),
        ("PUT", "/v1/links/b2", "b"),
    ],
)
async def test_what_changes_nothing_is_refused_or_comes_from_brokers_is_not(
    method: str, target: str, token: str
) -> None:
    admin = Admin(tokens=Tokens.parsed("tokens", TOKENS))
    await admin.ask(method, target, b"{}", authorization=f"Bearer {token}")
    assert admin.logged == []

"""Rows of who may do what: read, judged by names of tokens, and put to the engine as nsqd's authorizations."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from broker.config import BrokerConfig
from broker.events import AuthAsked
from broker.nsqd.topic_access import TopicAccess, read_rows
from srtm.errors import BadInput, Unauthorized
from srtm.net.tokens import Tokens

ROWS = """
# the fleet
cars     write      roads-*
cars     read       answers
car-*    readwrite  telemetry.v1
*        read       news
"""
TOKENS = Tokens.parsed("tokens", "operator ann o\nclient cars c\nclient car-7 7\nclient bikes b\n")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "acl"
    path.write_text(ROWS)
    return path


def put(file: Path, text: str) -> None:
    file.write_text(text)


async def may(access: TopicAccess, token: str, permission: str, topic: str) -> bool:
    question = AuthAsked(connection=1, secret=token.encode(), remote_ip="127.0.0.1", tls=False, common_name="")
    granted = json.loads(await access.ask(question))["authorizations"]
    return any(re.search(one["topic"], topic) and permission in one["permissions"] for one in granted)


@pytest.mark.parametrize(
    ("token", "permission", "topic", "allowed"),
    [
        ("c", "publish", "roads-7", True),
        ("c", "subscribe", "roads-7", False),
        ("c", "publish", "my-roads-7", False),
        ("c", "subscribe", "answers", True),
        ("c", "subscribe", "answers2", False),
        ("c", "publish", "telemetry.v1", False),
        ("7", "publish", "telemetry.v1", True),
        ("7", "publish", "telemetryXv1", False),
        ("b", "subscribe", "news", True),
        ("b", "publish", "news", False),
        ("o", "publish", "anything", True),
    ],
)
async def test_a_token_may_do_what_a_row_of_its_name_allows(
    file: Path, token: str, permission: str, topic: str, allowed: bool
) -> None:
    assert await may(TopicAccess(str(file), TOKENS), token, permission, topic) is allowed


async def test_an_unknown_token_gets_nothing(file: Path) -> None:
    with pytest.raises(Unauthorized):
        await may(TopicAccess(str(file), TOKENS), "x", "publish", "news")


async def test_renewed_rows_count_and_bad_ones_leave_the_old(file: Path) -> None:
    access = TopicAccess(str(file), TOKENS)
    put(file, "bikes write lanes\n")
    access.renew()
    assert await may(access, "b", "publish", "lanes")
    assert not await may(access, "c", "publish", "roads-7")
    put(file, "bikes\n")
    with pytest.raises(BadInput, match="topic_acl_file line 1"):
        access.renew()
    assert await may(access, "b", "publish", "lanes")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cars write", "must be IDENTITY ACTION PATTERN"),
        ("cars deny roads", "'deny': must be read, write or readwrite"),
        ("c*rs write roads", "must have a . at its end alone"),
        ("cars write roads/7", "must be the name of a topic"),
    ],
)
def test_a_bad_row_is_named(file: Path, line: str, said: str) -> None:
    file.write_text(f"# first\n{line}\n")
    with pytest.raises(BadInput, match=f"topic_acl_file line 2: .*{said}"):
        read_rows(str(file))


def test_rows_need_tokens_and_go_with_no_auth_server() -> None:
    for settings in ({}, {"tokens": TOKENS, "auth_http_addresses": ("127.0.0.1:1",)}):
        with pytest.raises(BadInput, match="topic_acl_file: 'f': needs --tokens"):
            BrokerConfig(name="b", topic_acl_file="f", **settings)

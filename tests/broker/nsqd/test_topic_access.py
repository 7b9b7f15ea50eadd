"""Rows of who may do what: read from a file, put to the engine, which judges, and read again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from broker.config import BrokerConfig, EngineConfig, TopicRow
from broker.nsqd.topic_access import TopicAccess, read_rows, rules_of, with_rules
from broker.startup import engine_settings
from broker.sync.state_file import SyncState
from srtm.errors import BadInput
from srtm.net.tokens import Tokens
from tests.support.fake_engine import FakeEngine

ROWS = """
# the fleet
cars     write      roads-*
car-*    deny       plant/*/secret
*        read       news#ephemeral
"""
TOKENS = Tokens.parsed("tokens", "operator ann o\nclient cars c\n")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "acl"
    path.write_text(ROWS)
    return path


def test_the_engine_gets_the_rows_and_the_digests_of_the_tokens(file: Path) -> None:
    config = BrokerConfig(name="b", topic_acl_file=str(file), tokens=TOKENS)
    rules = with_rules(EngineConfig(), config).topic_rules
    assert rules is not None
    assert rules.rows == (
        TopicRow("cars", "write", "roads-*"),
        TopicRow("car-*", "deny", "plant/*/secret"),
        TopicRow("*", "read", "news#ephemeral"),
    )
    assert [(holder.name, holder.operator) for holder in rules.tokens] == [("ann", True), ("cars", False)]
    assert rules.tokens[1].sha256 == hashlib.sha256(b"c").digest()


def test_renewed_rows_and_tokens_go_to_the_engine(file: Path, tmp_path: Path) -> None:
    listed = tmp_path / "tokens"
    listed.write_text("client cars c\n")
    engine, tokens = FakeEngine(), Tokens.read("tokens", str(listed))
    access = TopicAccess(engine, str(file), tokens, read_rows(str(file)))
    file.write_text("bikes write lanes\n")
    access.renew()
    assert engine.calls[-1][1]["rows"] == [{"identity": "bikes", "action": "write", "pattern": "lanes"}]


def test_bad_rows_leave_the_old_in_force_and_a_removed_token_goes_all_the_same(file: Path, tmp_path: Path) -> None:
    listed = tmp_path / "tokens"
    listed.write_text("client cars c\nclient bikes b\n")
    engine, tokens = FakeEngine(), Tokens.read("tokens", str(listed))
    access = TopicAccess(engine, str(file), tokens, read_rows(str(file)))
    file.write_text("bikes\n")
    listed.write_text("client bikes b\n")
    tokens.renew()
    with pytest.raises(BadInput, match="topic_acl_file line 1"):
        access.renew()
    put = engine.calls[-1][1]
    assert len(put["rows"]) == 3
    assert [token["name"] for token in put["tokens"]] == ["bikes"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cars write", "must be IDENTITY ACTION PATTERN"),
        ("cars forbid roads", "'forbid': must be one of read, write, readwrite, deny"),
        ("c*rs write roads", "must have a . at its end alone"),
        ("cars write plant/+/heat", "must be a topic or an MQTT name"),
        ("cars write plant/#", "must be a topic or an MQTT name"),
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


def test_an_mqtt_port_beyond_this_machine_is_safe_with_rows_and_takes_nobody_without_a_name(file: Path) -> None:
    config = BrokerConfig(name="b", topic_acl_file=str(file), tokens=TOKENS, mqtt_address="0.0.0.0:1883")
    assert not engine_settings(config, SyncState()).mqtt_anonymous


def test_the_rules_of_no_token_are_those_of_users_alone(file: Path) -> None:
    assert rules_of(read_rows(str(file)), Tokens(dict)).tokens == ()

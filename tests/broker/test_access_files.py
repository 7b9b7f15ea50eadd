"""Users, tokens and rows of who may do what: read from files, put to the engine, which judges, and read again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from broker.access_files import AccessFiles, read_mosquitto_rows, read_rows, read_users
from broker.config import AccessRow, BrokerConfig, EngineConfig
from broker.nsqd.flags import broker_config, parse_flags
from broker.options import check_arguments
from broker.startup import engine_settings
from broker.sync.state_file import SyncState
from srtm.errors import BadInput
from srtm.log import Log
from srtm.net.renewals import Renewals
from srtm.net.tokens import Tokens
from tests.support.fake_engine import FakeEngine

TOKENS = Tokens.parsed("tokens", "operator ann o\nclient cars c\n")
EVA = "eva:$7$101$c2FsdA==$aGFzaA==\n"


@pytest.fixture
def written(tmp_path: Path):
    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def config(**given: Any) -> BrokerConfig:
    return BrokerConfig(name="b", **given)


def test_rows_are_read_in_our_form(written) -> None:
    path = written("rows", "\n# the fleet\ncars  write  roads-*\ncar-* deny plant/*/secret\n* read news#ephemeral\n")
    assert read_rows(path) == (
        AccessRow("cars", "write", "roads-*", "stars"),
        AccessRow("car-*", "deny", "plant/*/secret", "stars"),
        AccessRow("*", "read", "news#ephemeral", "stars"),
    )


def test_lines_of_mosquitto_belong_to_the_user_above_them_and_patterns_to_all(written) -> None:
    lines = "topic read public/#\nuser eva\ntopic plant/+\ntopic deny plant/x y\npattern write %c/%u\n"
    assert read_mosquitto_rows(written("acl", lines + "user a*\ntopic ü\n")) == (
        AccessRow("", "read", "public/#", "filter"),
        AccessRow("eva", "readwrite", "plant/+", "filter"),
        AccessRow("eva", "deny", "plant/x y", "filter"),
        AccessRow("", "write", "%c/%u", "template"),
        AccessRow("a*", "readwrite", "ü", "filter"),
    )


def test_users_are_read_as_mosquitto_passwd_writes_them(written) -> None:
    eva, old = read_users(written("users", f"# users\n\n{EVA}old:$6$c2FsdA==$aGFzaA==\n"))
    assert (eva.name, eva.iterations, eva.salt, eva.hash) == ("eva", 101, "c2FsdA==", "aGFzaA==")
    assert (old.name, old.iterations) == ("old", 0)


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
def test_a_bad_row_is_named(written, line: str, said: str) -> None:
    with pytest.raises(BadInput, match=f"topic_acl_file line 2: .*{said}"):
        read_rows(written("rows", f"# first\n{line}\n"))


@pytest.mark.parametrize("line", ["topic", "user", "topics a", "topic read a+", "pattern #/a"])
def test_a_bad_line_of_mosquitto_is_named(written, line: str) -> None:
    with pytest.raises(BadInput, match="mqtt_acl_file line 1"):
        read_mosquitto_rows(written("acl", f"{line}\n"))


@pytest.mark.parametrize(
    "line",
    ["eva:secret", "eva", "eva:$7$x$c2FsdA==$aGFzaA==", "eva:$7$101$?$aGFzaA==", "eva:$7$10001$c2FsdA==$aGFzaA=="],
)
def test_a_line_that_is_no_user_is_named_without_the_hash(written, line: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_users(written("users", f"# users\n{line}\n"))
    assert (caught.value.field, caught.value.value) == ("mqtt_password_file line 2", "eva")


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    for name in ("topic_acl_file", "mqtt_acl_file", "mqtt_password_file"):
        with pytest.raises(BadInput, match=f"{name}: .*must be a file that can be read"):
            AccessFiles(config(**{"tokens": TOKENS, name: str(tmp_path / "none")}))


def test_the_engine_gets_the_rows_of_both_files_users_and_the_digests_of_tokens(written) -> None:
    files = AccessFiles(
        config(
            topic_acl_file=written("rows", "cars write roads-*\n"),
            mqtt_acl_file=written("acl", "topic read #\n"),
            mqtt_password_file=written("users", EVA),
            tokens=TOKENS,
        )
    )
    rules = files.with_rules(EngineConfig()).access
    assert rules.rows == (AccessRow("cars", "write", "roads-*", "stars"), AccessRow("", "read", "#", "filter"))
    assert rules.users is not None
    assert rules.tokens is not None
    assert [user.name for user in rules.users] == ["eva"]
    assert [(holder.name, holder.operator) for holder in rules.tokens] == [("ann", True), ("cars", False)]
    assert rules.tokens[1].sha256 == hashlib.sha256(b"c").digest()


def test_without_users_and_rows_of_ours_the_tokens_of_operators_are_nobodys_password(written) -> None:
    rules = AccessFiles(config(mqtt_acl_file=written("acl", "topic read #\n"), tokens=TOKENS)).rules()
    assert (rules.tokens, rules.users) == (None, None)
    assert AccessFiles(config(tokens=TOKENS)).rules() == EngineConfig().access


def renewals(files: AccessFiles, engine: FakeEngine) -> Renewals:
    renewals = Renewals(Log("b"))
    files.add_renewals(renewals, engine)  # type: ignore[arg-type]
    return renewals


def test_each_file_is_read_again_and_a_bad_one_leaves_what_it_said_in_force(written, capfd) -> None:
    given = {"mqtt_acl_file": written("acl", "topic read old\n"), "mqtt_password_file": written("users", EVA)}
    engine = FakeEngine()
    renewed = renewals(AccessFiles(config(**given)), engine)
    written("acl", "topic read #/x\n")
    written("users", EVA.replace("eva", "ann"))
    renewed.take_all()
    put = engine.calls[-1][1]
    assert [row["pattern"] for row in put["rows"]] == ["old"]
    assert [user["name"] for user in put["users"]] == ["ann"]
    assert "mqtt_acl_file line 1" in capfd.readouterr().err
    written("acl", "topic read new\n")
    renewed.take_all()
    assert [row["pattern"] for row in engine.calls[-1][1]["rows"]] == ["new"]


def test_a_removed_token_goes_although_the_rows_are_bad(written) -> None:
    tokens = Tokens.read("tokens", written("tokens", "client cars c\nclient bikes b\n"))
    engine = FakeEngine()
    files = AccessFiles(config(topic_acl_file=written("rows", "cars write roads\n"), tokens=tokens))
    written("rows", "bikes\n")
    written("tokens", "client bikes b\n")
    tokens.renew()
    renewals(files, engine).take_all()
    put = engine.calls[-1][1]
    assert [row["identity"] for row in put["rows"]] == ["cars"]
    assert [token["name"] for token in put["tokens"]] == ["bikes"]


def test_rows_of_ours_need_somebody_whose_they_are() -> None:
    with pytest.raises(BadInput, match="topic_acl_file: 'f': needs --tokens or --mqtt-password-file"):
        config(topic_acl_file="f")
    assert config(topic_acl_file="f", mqtt_password_file="u").asks_clients


@pytest.mark.parametrize("name", ["topic_acl_file", "mqtt_password_file"])
def test_auth_servers_go_with_no_tokens_and_passwords_of_files(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name}: 'f': goes with no auth server"):
        config(**{"tokens": TOKENS, "auth_http_addresses": ("127.0.0.1:1",), name: "f"})


@pytest.mark.parametrize(
    ("given", "anonymous"),
    [
        ({}, True),
        ({"mqtt_acl_file": "f"}, True),
        ({"mqtt_password_file": "f"}, False),
        ({"topic_acl_file": "f"}, False),
        ({"topic_acl_file": "f", "mqtt_allow_anonymous": True}, True),
    ],
)
def test_who_shows_no_name_is_let_in_where_nobody_is_asked_for_one_or_the_operator_says_so(given, anonymous) -> None:
    settings = engine_settings(config(tokens=TOKENS, **given), SyncState())
    assert settings.anonymous is anonymous


def test_an_mqtt_port_beyond_this_machine_is_safe_with_rows_of_ours_and_with_users() -> None:
    for given in ({"topic_acl_file": "f"}, {"mqtt_password_file": "f"}):
        assert config(tokens=TOKENS, mqtt_address="0.0.0.0:1883", **given).mqtt_address
    with pytest.raises(BadInput, match="mqtt_address"):
        config(mqtt_acl_file="f", mqtt_address="0.0.0.0:1883")


def test_bad_files_are_named_before_a_broker_starts(written) -> None:
    flags = ("--name", "b", "--mqtt-acl-file", written("acl", "topic read a+\n"))
    with pytest.raises(BadInput, match="mqtt_acl_file line 1"):
        check_arguments(flags)


def test_a_broker_asks_auth_servers_about_publishes_by_http_and_one_that_stands_for_nsqd_does_not() -> None:
    ours = check_arguments(("--name", "b", "--auth-http-address", "127.0.0.1:1"))
    nsqds = broker_config(parse_flags(["--auth-http-address", "127.0.0.1:1"]).options, {}, "host.example")
    for given, asks in ((ours, True), (nsqds, False)):
        settings = engine_settings(given, SyncState())
        assert (settings.auth_servers, settings.auth_by_http) == (True, asks)

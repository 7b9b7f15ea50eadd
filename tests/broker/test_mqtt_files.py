"""Mosquitto's files: what is read of them, and how a bad line is refused."""

import pytest

from broker.config import MqttRule
from broker.mqtt_files import read_access, read_passwords, renew
from srtm.errors import BadInput
from tests.support.fake_engine import FakeEngine


def written(tmp_path, text):
    path = tmp_path / "file"
    path.write_text(text)
    return str(path)


def test_users_are_read_as_mosquitto_passwd_writes_them(tmp_path):
    path = written(tmp_path, "# users\n\neva:$7$101$c2FsdA==$aGFzaA==\nold:$6$c2FsdA==$aGFzaA==\n")
    eva, old = read_passwords(path)
    assert (eva.name, eva.iterations, eva.salt, eva.hash) == ("eva", 101, "c2FsdA==", "aGFzaA==")
    assert (old.name, old.iterations) == ("old", 0)


@pytest.mark.parametrize(
    "line",
    ["eva:secret", "eva", "eva:$7$x$c2FsdA==$aGFzaA==", "eva:$7$101$?$aGFzaA==", "eva:$7$10001$c2FsdA==$aGFzaA=="],
)
def test_a_line_that_is_no_user_is_named(tmp_path, line):
    with pytest.raises(BadInput) as caught:
        read_passwords(written(tmp_path, f"# users\n{line}\n"))
    assert (caught.value.field, caught.value.value) == ("mqtt_password_file line 2", "eva")


def test_rules_belong_to_the_user_above_them_and_patterns_to_all(tmp_path):
    path = written(
        tmp_path, "topic read public/#\nuser eva\ntopic plant/+\ntopic deny plant/x y\npattern write %c/%u\n"
    )
    assert read_access(path) == (
        MqttRule(user=None, all=False, action="read", pattern="public/#"),
        MqttRule(user="eva", all=False, action="readwrite", pattern="plant/+"),
        MqttRule(user="eva", all=False, action="deny", pattern="plant/x y"),
        MqttRule(user=None, all=True, action="write", pattern="%c/%u"),
    )


@pytest.mark.parametrize("line", ["topic", "user", "topics a", "topic read a+", "pattern #/a"])
def test_a_line_that_is_no_rule_is_named(tmp_path, line):
    with pytest.raises(BadInput) as caught:
        read_access(written(tmp_path, f"{line}\n"))
    assert caught.value.field == "mqtt_acl_file line 1"


def test_a_file_that_is_not_there_is_bad_input(tmp_path):
    with pytest.raises(BadInput, match="must be a file that can be read"):
        read_access(str(tmp_path / "none"))


def test_files_are_read_again_and_bad_ones_leave_all_in_force(tmp_path):
    users, engine = written(tmp_path, "eva:$6$c2FsdA==$aGFzaA==\n"), FakeEngine()
    rules = tmp_path / "rules"
    rules.write_text("topic read public/#\n")
    renew(engine, users, str(rules))
    [(_, new_users, new_rules)] = engine.calls
    assert b"eva" in new_users
    assert b"public/#" in new_rules
    renew(engine, "", str(rules))
    assert engine.calls[-1][1] is None
    rules.write_text("topic read #/x\n")
    with pytest.raises(BadInput):
        renew(engine, users, str(rules))
    assert len(engine.calls) == 2

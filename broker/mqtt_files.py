"""Mosquitto's files of users and of access, read for the MQTT port."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from broker.config import MqttRule, MqttUser
from srtm.errors import BadInput

if TYPE_CHECKING:
    from srtm._native import Engine

_ACTIONS = ("read", "write", "readwrite", "deny")
# Each iteration takes about 1 us, in which all clients wait.
_MOST_ITERATIONS = 10_000
_USER_RULE = "must be NAME:$7$ITERATIONS$SALT$HASH or NAME:$6$SALT$HASH, as mosquitto_passwd writes them"


def read_passwords(path: str) -> tuple[MqttUser, ...]:
    """Read ``NAME:HASH`` a line, as ``mosquitto_passwd`` writes them. Raises BadInput."""
    return tuple(
        _user(f"mqtt_password_file line {number}", line) for number, line in _lines("mqtt_password_file", path)
    )


def read_access(path: str) -> tuple[MqttRule, ...]:
    """Read rules in the form of Mosquitto's ``acl_file``. Raises BadInput."""
    rules, user = [], None
    for number, line in _lines("mqtt_acl_file", path):
        field = f"mqtt_acl_file line {number}"
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if word == "user" and rest:
            user = rest
        elif word in ("topic", "pattern") and rest:
            rules.append(_rule(field, rest, None if word == "pattern" else user, everybody=word == "pattern"))
        else:
            raise BadInput(field, line, "must be user NAME, topic [ACTION] FILTER or pattern [ACTION] FILTER")
    return tuple(rules)


def renew(engine: Engine, password_file: str, acl_file: str) -> None:
    """Read the files again, and have them count; "": there is none. Raises BadInput, and leaves the old in force."""
    users = msgspec.json.encode(read_passwords(password_file)) if password_file else None
    rules = msgspec.json.encode(read_access(acl_file)) if acl_file else None
    engine.set_mqtt_rules(users, rules)


def _lines(field: str, path: str) -> Iterator[tuple[int, str]]:
    """Numbers and texts of the lines that say something."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(field, path, f"must be a file that can be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise BadInput(field, path, "must be UTF-8") from None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line.strip()


def _user(field: str, line: str) -> MqttUser:
    name, _, hashed = line.partition(":")
    match hashed.split("$"):
        case ["", "7", iterations, salt, digest] if iterations.isascii() and iterations.isdigit():
            rounds = int(iterations)
            if not 1 <= rounds <= _MOST_ITERATIONS:
                raise BadInput(field, name, f"must have 1 to {_MOST_ITERATIONS} iterations")
        case ["", "6", salt, digest]:
            rounds = 0
        case _:
            raise BadInput(field, name, _USER_RULE)
    for part in (salt, digest):
        try:
            base64.b64decode(part, validate=True)
        except binascii.Error:
            raise BadInput(field, name, _USER_RULE) from None
    return MqttUser(name=name, iterations=rounds, salt=salt, hash=digest)


def _rule(field: str, text: str, user: str | None, *, everybody: bool) -> MqttRule:
    first, _, rest = text.partition(" ")
    action, pattern = (first, rest.strip()) if first in _ACTIONS and rest.strip() else ("readwrite", text)
    levels = pattern.split("/")
    fits = all(level in ("+", "#") or not set(level) & {"+", "#"} for level in levels) and "#" not in levels[:-1]
    if not fits:
        raise BadInput(field, pattern, "must be a topic filter: + and # take a whole level, # the last one")
    return MqttRule(user=user, all=everybody, action=action, pattern=pattern)

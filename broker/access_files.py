"""Who is let in and may do what, by NSQ, HTTP and MQTT alike: users, tokens and rows, read from files.

The engine judges. ``--topic-acl-file`` has one row a line: ``IDENTITY ACTION PATTERN``. IDENTITY is the NAME of a token
or of a user, ``*`` for everybody, or a beginning of names with ``*`` behind it. ACTION is ``read`` (subscribe),
``write`` (publish), ``readwrite`` or ``deny``. PATTERN is a topic, or an MQTT name that belongs to none, in which ``*``
stands for any characters. ``--mqtt-acl-file`` has the lines of Mosquitto's ``acl_file``, which become rows as well.
What no row allows is denied, and ``deny`` comes before all that allow. An operator's token may do everything.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from broker.config import AccessAction, AccessRow, AccessRules, BrokerConfig, EngineConfig, RowForm, TokenHolder, User
from srtm.errors import BadInput
from srtm.net.renewals import Renewals
from srtm.net.tokens import OPERATOR, FromFile, Tokens, read_text

if TYPE_CHECKING:
    from srtm._native import Engine

_ACTIONS: dict[str, AccessAction] = {"read": "read", "write": "write", "readwrite": "readwrite", "deny": "deny"}
_PATTERN = re.compile(r"[!-~]+")
_WILDCARDS = re.compile(r"\+|#(?!ephemeral$)")
# Each iteration takes about 1 us, in which all clients wait.
_MOST_ITERATIONS = 10_000
_USER_RULE = "must be NAME:$7$ITERATIONS$SALT$HASH or NAME:$6$SALT$HASH, as mosquitto_passwd writes them"


class AccessFiles:
    """The files of a broker's rows and users, and its tokens, each as it was at its latest good reading."""

    def __init__(self, config: BrokerConfig) -> None:
        """Read the files. Raises BadInput."""
        self._rows = {
            name: FromFile(partial(read, path))
            for name, path, read in (
                ("topic_acl_file", config.topic_acl_file, read_rows),
                ("mqtt_acl_file", config.mqtt_acl_file, read_mosquitto_rows),
            )
            if path
        }
        users = config.mqtt_password_file
        self._users = FromFile(partial(read_users, users)) if users else None
        self._tokens = config.tokens if config.asks_clients else None

    def rules(self) -> AccessRules:
        """Return what is in force, as the engine takes it."""
        return AccessRules(
            rows=tuple(row for file in self._rows.values() for row in file.now) if self._rows else None,
            users=None if self._users is None else self._users.now,
            tokens=None if self._tokens is None else tuple(_holders(self._tokens)),
        )

    def with_rules(self, settings: EngineConfig) -> EngineConfig:
        return msgspec.structs.replace(settings, access=self.rules())

    def add_renewals(self, renewals: Renewals, engine: Engine) -> None:
        """Add the files. Each is read on its own: a bad one leaves what it said in force."""
        files: dict[str, FromFile[tuple[AccessRow, ...]] | FromFile[tuple[User, ...]]] = {**self._rows}
        if self._users is not None:
            files["mqtt_password_file"] = self._users
        for name, file in files.items():
            renewals.add(name, partial(self._renew, file.renew, engine))

    def _renew(self, read_again: Callable[[], None], engine: Engine) -> None:
        try:
            read_again()
        finally:  # a token that is gone must not count on because a file is bad
            engine.set_access(msgspec.json.encode(self.rules()))


def read_rows(path: str) -> tuple[AccessRow, ...]:
    """Read a file of rows. Raises BadInput, which names the line."""
    text = read_text("topic_acl_file", path)
    return tuple(_row(place, line) for place, line in _lines("topic_acl_file", text))


def read_mosquitto_rows(path: str) -> tuple[AccessRow, ...]:
    """Read rows in the form of Mosquitto's ``acl_file``. Raises BadInput, which names the line."""
    rows, user = [], ""
    for place, line in _lines("mqtt_acl_file", _mosquitto_text("mqtt_acl_file", path)):
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if word == "user" and rest:
            user = rest
        elif word == "topic" and rest:
            rows.append(_mosquitto_row(place, rest, "filter", user))
        elif word == "pattern" and rest:
            rows.append(_mosquitto_row(place, rest, "template", ""))
        else:
            raise BadInput(place, line, "must be user NAME, topic [ACTION] FILTER or pattern [ACTION] FILTER")
    return tuple(rows)


def read_users(path: str) -> tuple[User, ...]:
    """Read ``NAME:HASH`` a line, as ``mosquitto_passwd`` writes them. Raises BadInput, which names the line."""
    text = _mosquitto_text("mqtt_password_file", path)
    return tuple(_user(place, line) for place, line in _lines("mqtt_password_file", text))


def _holders(tokens: Tokens) -> Iterator[TokenHolder]:
    for sha256, holder in tokens.holders():
        yield TokenHolder(sha256=sha256, name=holder.name, operator=holder.scope == OPERATOR)


def _mosquitto_text(field: str, path: str) -> str:
    """Mosquitto's files are UTF-8, and as long as there are users."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(field, path, f"must be a file that can be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise BadInput(field, path, "must be UTF-8") from None


def _lines(field: str, text: str) -> Iterator[tuple[str, str]]:
    """Places and texts of the lines that say something."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield f"{field} line {number}", line.strip()


def _row(place: str, line: str) -> AccessRow:
    words = line.split()
    if len(words) != 3:
        raise BadInput(place, line, "must be IDENTITY ACTION PATTERN")
    identity, action, pattern = words
    if action not in _ACTIONS:
        raise BadInput(place, action, f"must be one of {', '.join(_ACTIONS)}")
    if "*" in identity[:-1]:
        raise BadInput(place, identity, "must have a * at its end alone")
    if _PATTERN.fullmatch(pattern) is None or _WILDCARDS.search(pattern):
        rule = "must be a topic or an MQTT name, with * for any characters, and without + and #"
        raise BadInput(place, pattern, rule)
    return AccessRow(identity, _ACTIONS[action], pattern, "stars")


def _mosquitto_row(place: str, text: str, form: RowForm, user: str) -> AccessRow:
    first, _, rest = text.partition(" ")
    action, pattern = (_ACTIONS[first], rest.strip()) if first in _ACTIONS and rest.strip() else ("readwrite", text)
    levels = pattern.split("/")
    fits = all(level in ("+", "#") or not set(level) & {"+", "#"} for level in levels) and "#" not in levels[:-1]
    if not fits:
        raise BadInput(place, pattern, "must be a topic filter: + and # take a whole level, # the last one")
    return AccessRow(user, action, pattern, form)


def _user(place: str, line: str) -> User:
    name, _, hashed = line.partition(":")
    match hashed.split("$"):
        case ["", "7", iterations, salt, digest] if iterations.isascii() and iterations.isdigit():
            rounds = int(iterations)
            if not 1 <= rounds <= _MOST_ITERATIONS:
                raise BadInput(place, name, f"must have 1 to {_MOST_ITERATIONS} iterations")
        case ["", "6", salt, digest]:
            rounds = 0
        case _:
            raise BadInput(place, name, _USER_RULE)
    for part in (salt, digest):
        try:
            base64.b64decode(part, validate=True)
        except binascii.Error:
            raise BadInput(place, name, _USER_RULE) from None
    return User(name=name, iterations=rounds, salt=salt, hash=digest)

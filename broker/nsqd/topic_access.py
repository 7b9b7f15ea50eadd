"""Who may publish to and subscribe to which topics, by NSQ, HTTP and MQTT alike: rows of a file. The engine judges.

One row a line: ``IDENTITY ACTION PATTERN``. IDENTITY is the NAME of a token or of an MQTT user, ``*`` for everybody, or
a beginning of names with ``*`` behind it. ACTION is ``read`` (subscribe), ``write`` (publish), ``readwrite`` or
``deny``. PATTERN is a topic, or an MQTT name, in which ``*`` stands for any characters. What no row allows is denied,
and ``deny`` comes before all that allow. An operator's token may do everything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from broker.config import AccessAction, BrokerConfig, EngineConfig, TokenHolder, TopicRow, TopicRules
from srtm.errors import BadInput
from srtm.net.tokens import OPERATOR, Tokens, read_text

if TYPE_CHECKING:
    from srtm._native import Engine

_ACTIONS: dict[str, AccessAction] = {"read": "read", "write": "write", "readwrite": "readwrite", "deny": "deny"}
_PATTERN = re.compile(r"[!-~]+")
_WILDCARDS = re.compile(r"\+|#(?!ephemeral$)")


def read_rows(path: str) -> tuple[TopicRow, ...]:
    """Read a file of rows. Raises BadInput, which names the line."""
    rows = []
    for number, line in enumerate(read_text("topic_acl_file", path).splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        place = f"topic_acl_file line {number}"
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
        rows.append(TopicRow(identity, _ACTIONS[action], pattern))
    return tuple(rows)


def rules_of(rows: tuple[TopicRow, ...], tokens: Tokens) -> TopicRules:
    """The rows, and the tokens by whose names they judge, as the engine takes them."""
    holders = (
        TokenHolder(sha256=sha256, name=holder.name, operator=holder.scope == OPERATOR)
        for sha256, holder in tokens.holders()
    )
    return TopicRules(rows=rows, tokens=tuple(holders))


def with_rules(settings: EngineConfig, config: BrokerConfig) -> EngineConfig:
    """The settings with rows and tokens, where there are rows. Raises BadInput."""
    if not config.topic_acl_file or config.tokens is None:
        return settings
    return msgspec.structs.replace(settings, topic_rules=rules_of(read_rows(config.topic_acl_file), config.tokens))


class TopicAccess:
    """Rows and tokens that count in ``engine``, which may be read again."""

    def __init__(self, engine: Engine, path: str, tokens: Tokens, rows: tuple[TopicRow, ...]) -> None:
        self._engine = engine
        self._path = path
        self._tokens = tokens
        self._rows = rows

    def renew(self) -> None:
        """Read the rows again, and have them and the tokens count. Raises BadInput; then the old rows stay in force."""
        try:
            self._rows = read_rows(self._path)
        finally:  # a token that is gone must not count on because rows are bad
            self._engine.set_topic_rules(msgspec.json.encode(rules_of(self._rows, self._tokens)))

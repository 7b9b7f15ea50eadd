"""Who may publish to and subscribe to which topics, by the token that a client sends with AUTH: rows of a file.

One row a line: ``IDENTITY ACTION PATTERN``. IDENTITY is the NAME of a token, ``*`` for every token, or a beginning of
names with ``*`` behind it. ACTION is ``read`` (subscribe), ``write`` (publish) or ``readwrite``. PATTERN is a topic, in
which ``*`` stands for any characters. What no row allows is denied. An operator's token may do everything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from broker.events import AuthAsked
from broker.nsqd.auth_servers import Answer, Authorization, normalize
from srtm.errors import BadInput, Unauthorized
from srtm.net.tokens import OPERATOR, Holder, Tokens, read_text

TTL_S = 60  # until the engine asks again: how soon changed rows and tokens count for connections that are open
_ACTIONS: dict[str, list[str]] = {
    "read": ["subscribe"],
    "write": ["publish"],
    "readwrite": ["subscribe", "publish"],
}
_PATTERN = re.compile(r"[.a-zA-Z0-9_*-]+(#ephemeral)?")


@dataclass(frozen=True)
class Row:
    """One row."""

    identity: str
    action: str
    pattern: str

    def is_of(self, name: str) -> bool:
        """Whether the row counts for the token of this name."""
        if self.identity.endswith("*"):
            return name.startswith(self.identity[:-1])
        return name == self.identity


def read_rows(path: str) -> tuple[Row, ...]:
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
            raise BadInput(place, action, "must be read, write or readwrite: what no row allows is denied")
        if "*" in identity[:-1]:
            raise BadInput(place, identity, "must have a * at its end alone")
        if _PATTERN.fullmatch(pattern) is None:
            raise BadInput(place, pattern, "must be the name of a topic, with * for any characters")
        rows.append(Row(identity, action, pattern))
    return tuple(rows)


class TopicAccess:
    """Answers AUTH by the rows of a file, in the place of an auth server. Raises BadInput for a bad file."""

    def __init__(self, path: str, tokens: Tokens) -> None:
        self._path = path
        self._tokens = tokens
        self._rows: Sequence[Row] = read_rows(path)

    def renew(self) -> None:
        """Read the file again. Raises BadInput; then the old rows stay in force."""
        self._rows = read_rows(self._path)

    async def ask(self, question: AuthAsked) -> bytes:
        """Return what the client may do. Raises Unauthorized for a token that is not known."""
        holder = self._tokens.holder(question.secret.decode(errors="replace"))
        if holder is None:
            raise Unauthorized
        answer = Answer(ttl=TTL_S, identity=holder.name, authorizations=self._granted(holder))
        return normalize(msgspec.json.encode(answer))

    def _granted(self, holder: Holder) -> list[Authorization]:
        rows = [Row("*", "readwrite", "*")] if holder.scope == OPERATOR else self._rows
        return [
            msgspec.convert(
                {"topic": _regex(row.pattern), "channels": [".*"], "permissions": _ACTIONS[row.action]}, Authorization
            )
            for row in rows
            if row.is_of(holder.name)
        ]


def _regex(pattern: str) -> str:
    return f"^{'.*'.join(map(re.escape, pattern.split('*')))}$"

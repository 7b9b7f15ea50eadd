"""Bearer tokens and their scopes.

A token file has one token a line: ``SCOPE NAME TOKEN``. SCOPE is ``operator`` (everything), ``broker`` or ``client``.
NAME is shown in refusals. That of a ``broker`` line is the one broker that the token speaks for; if it ends with ``*``,
every broker whose name begins so. TOKEN is the token, or ``sha256:`` and the 64 hexadecimal digits of its SHA-256. A
line that begins with ``#`` is a comment. A name may occur twice, so that a new token can be distributed before the old
one is removed. Services read the file at their start and when they are told to (``Tokens.renew``).
"""

from __future__ import annotations

import hashlib
import re
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, Literal, Self, TypeVar

from srtm.errors import BadInput, Forbidden, NotItsName, Unauthorized

Scope = Literal["operator", "broker", "client"]
OPERATOR: Scope = "operator"
BROKERS: tuple[Scope, ...] = ("broker",)
SCOPES: tuple[Scope, ...] = ("operator", "broker", "client")

ANYBODY = "anybody"  # who asks where no token is needed

_HASHED = "sha256:"
_TOKEN = re.compile(r"[!-~]+")
_RULE = "must be ASCII letters, digits and punctuation, without a space"
_LONGEST_FILE_BYTES = 1 << 20
_HIDDEN = "(not shown)"
_T = TypeVar("_T")


@dataclass(frozen=True)
class Holder:
    """The holder of a token."""

    scope: Scope
    name: str

    def speaks_for(self, broker: str) -> bool:
        """Whether requests in the name of ``broker`` may carry this token."""
        if self.scope != "broker":
            return self.scope == OPERATOR
        begin = self.name.removesuffix("*")
        return broker == self.name or (begin != self.name and broker.startswith(begin))


class FromFile(Generic[_T]):
    """What a file says: ``now``, at the latest reading that was good. ``read`` raises BadInput for a bad one."""

    def __init__(self, read: Callable[[], _T]) -> None:
        self._read = read
        self.now = read()

    def renew(self) -> None:
        """Read the file again. Raises BadInput; then ``now`` stays."""
        self.now = self._read()


OwnToken = str | FromFile[str]
"""A token that a service shows to others."""


def shown(token: OwnToken) -> str:
    """Return the token to show now."""
    return token if isinstance(token, str) else token.now


class Tokens:
    """The tokens that a service knows. ``known`` returns {SHA-256 of a token: its holder}, as they are now.

    ``file``: where ``renew`` reads them again; None: somebody else does, or they stay.
    """

    def __init__(
        self, known: Callable[[], MutableMapping[bytes, Holder]], file: FromFile[dict[bytes, Holder]] | None = None
    ) -> None:
        self._known = known
        self._file = file

    @classmethod
    def of_one(cls, token: OwnToken) -> Self:
        """Return one token that allows everything; where it is of a file, as that is renewed. Raises BadInput."""
        checked_token("token", shown(token))
        holder = Holder(OPERATOR, "the cluster's token")
        return cls(lambda: {digest(shown(token)): holder})

    @classmethod
    def parsed(cls, field: str, text: str) -> Self:
        """Parse the text of a token file. Raises BadInput, which names the line and never shows a token."""
        digests = _digests(field, text)
        return cls(lambda: digests)

    @classmethod
    def read(cls, field: str, path: str) -> Self:
        """Read a token file. Raises BadInput."""
        file = FromFile(lambda: _digests(field, read_text(field, path)))
        return cls(lambda: file.now, file)

    @property
    def is_of_file(self) -> bool:
        """Whether ``renew`` can find other tokens than these."""
        return self._file is not None

    def renew(self) -> None:
        """Read the file again, if there is one. Raises BadInput; then the old tokens stay."""
        if self._file is not None:
            self._file.renew()

    def joined(self, others: Self) -> Self:
        """Return the tokens of both, each as it is renewed. For a token in both, the holder of ``others`` counts."""
        return type(self)(lambda: ChainMap(others._known(), self._known()))

    def knows(self, token: str) -> bool:
        """Whether ``token`` is one of these."""
        return digest(token) in self._known()

    def holder(self, token: str) -> Holder | None:
        """The holder of ``token``; None: it is not known."""
        return self._found(token)

    def holders(self) -> Iterator[tuple[bytes, Holder]]:
        """The SHA-256 of each token, and its holder."""
        yield from self._known().items()

    def allows(self, token: str, scopes: Collection[Scope]) -> bool:
        """Whether ``token`` is one of these, and its scope is ``operator`` or in ``scopes``."""
        holder = self._found(token)
        return holder is not None and (holder.scope == OPERATOR or holder.scope in scopes)

    def holder_name(self, authorization: str) -> str:
        """Return the name of the holder of a token that was checked; "nobody" if it is none of these any more."""
        holder = self._holder(authorization)
        return "nobody" if holder is None else holder.name

    def check(self, authorization: str | None, scopes: Collection[Scope], broker: str | None = None) -> None:
        """Check the header ``authorization``. ``broker``: the broker in whose name the request speaks, if it does.

        Raises Unauthorized (no known token), Forbidden (the token's scope is not ``operator`` and not in ``scopes``, or
        it is the token of another broker).
        """
        holder = self._holder(authorization or "")
        if holder is None:
            raise Unauthorized
        if holder.scope != OPERATOR and holder.scope not in scopes:
            raise Forbidden(holder.name, holder.scope, [*scopes] or [OPERATOR])
        if broker is not None and not holder.speaks_for(broker):
            raise NotItsName(holder.name, broker)

    def _holder(self, authorization: str) -> Holder | None:
        kind, _, token = authorization.partition(" ")
        found = self._found(token.strip())
        return found if kind.lower() == "bearer" else None

    def _found(self, token: str) -> Holder | None:
        """Find the holder. Timing may tell of digests, which nobody can aim at: it tells nothing of tokens."""
        return self._known().get(digest(token))


def who_asks(tokens: Tokens | None, authorization: str | None) -> str:
    """Return the name to note for a request that was admitted. ``tokens``: None if no token is needed."""
    return ANYBODY if tokens is None else tokens.holder_name(authorization or "")


def digest(token: str) -> bytes:
    """Return the SHA-256 of a token."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def listed(holders: Iterable[tuple[Scope, str, str]]) -> str:
    """Return the text of a token file for (scope, name, token). It holds digests only."""
    lines = [_line(*holder) for holder in holders]
    return "\n".join(["# SCOPE NAME TOKEN", *lines, ""])


def relisted(text: str, holder: tuple[Scope, str, str]) -> str:
    """Return a token file's text in which ``holder`` (scope, name, token) replaces all tokens of that name."""
    kept = [line for line in text.splitlines() if line.split()[:2] != [*holder[:2]]]
    return "\n".join([*kept, _line(*holder), ""])


def _line(scope: Scope, name: str, token: str) -> str:
    return f"{scope} {name} {_HASHED}{digest(token).hex()}"


def checked_token(field: str, token: str) -> str:
    """Return ``token`` if it may stand in a header. Raises BadInput."""
    if _TOKEN.fullmatch(token) is None:
        raise BadInput(field, _HIDDEN, _RULE)
    return token


def read_token(field: str, path: str) -> str:
    """Read the one token of a file. Raises BadInput."""
    words = read_text(field, path).split()
    if len(words) != 1:
        raise BadInput(field, path, f"must be a file with one token and nothing else, not {len(words)} words")
    return checked_token(field, words[0])


def token_of_file(field: str, path: str) -> FromFile[str]:
    """Return the one token of a file, which may be read again. Raises BadInput."""
    return FromFile(partial(read_token, field, path))


def read_text(field: str, path: str) -> str:
    """Read a small ASCII file. Raises BadInput."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LONGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(field, path, f"must be a file that can be read ({why})") from None
    if len(content) > _LONGEST_FILE_BYTES:
        raise BadInput(field, path, f"must be at most {_LONGEST_FILE_BYTES} bytes long")
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        raise BadInput(field, path, "must be ASCII text") from None


def _digests(field: str, text: str) -> dict[bytes, Holder]:
    """Parse the text of a token file: {SHA-256: holder}. Raises BadInput."""
    digests: dict[bytes, Holder] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        place = f"{field} line {number}"
        if len(words) != 3:
            raise BadInput(place, f"{len(words)} words", "must be SCOPE NAME TOKEN")
        scope = next((known for known in SCOPES if known == words[0]), None)
        if scope is None:
            raise BadInput(place, words[0], f"the scope must be one of {', '.join(SCOPES)}")
        key = _digest_given(place, words[2])
        if key in digests:
            raise BadInput(place, _HIDDEN, f"the token of {digests[key].name!r} is listed before")
        digests[key] = Holder(scope, words[1])
    if not digests:
        raise BadInput(field, "no line", "must have at least one token: SCOPE NAME TOKEN")
    return digests


def _digest_given(place: str, word: str) -> bytes:
    if not word.startswith(_HASHED):
        return digest(checked_token(place, word))
    digits = word.removeprefix(_HASHED)
    if re.fullmatch(r"[0-9a-fA-F]{64}", digits) is None:
        raise BadInput(place, _HIDDEN, "must be sha256: and 64 hexadecimal digits")
    return bytes.fromhex(digits)

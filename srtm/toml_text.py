"""Reads TOML that anybody may have written: what its parser cannot bear is refused like any other mistake.

``tomllib`` takes time that grows with the square of a key's parts and more, and fails with errors of its own at deep
nesting and at long numbers. The bounds here are far above what a file of ours has.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from srtm.errors import BadInput

_MOST_PARTS = 8  # of a key; ours have three
_DEEPEST = 32  # tables and lists within each other
_LEAST, _GREATEST = -(2**63), 2**63 - 1  # whole numbers that TOML must take; Python prints no number of 5,000 digits

# Strings that are not closed end with the line or the text, so that no character is looked at twice.
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:\\.|[^"\\\n])*+"?|'[^'\n]*+'?)"""
_TEXT = r'"""(?:\\.|"(?!"")|[^"\\])*+(?:"{3,5})?' + r"|'''(?:'(?!'')|[^'])*+(?:'{3,5})?" + r"|#[^\n]*+"
_DOT = r"[ \t]*+\.[ \t]*+"
_TOKEN = re.compile(rf"{_TEXT}|{_PART}(?:{_DOT}{_PART}){{0,{_MOST_PARTS - 1}}}+(?P<more>{_DOT}{_PART})?", re.DOTALL)


def read_toml(field: str, shown: str, text: str) -> dict[str, Any]:
    """Return the document of a TOML file's ``text``. ``field``, ``shown``: what a refusal calls the file, and its name.

    Raises BadInput: it is not TOML, a key has more than 8 parts, it is deeper than 32 levels, or a whole number needs
    more than 64 bits.
    """
    if any(token["more"] for token in _TOKEN.finditer(text)):
        raise BadInput(field, shown, f"must not have a key of more than {_MOST_PARTS} parts")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(field, shown, f"must be TOML: {error}") from None
    except RecursionError:
        raise _too_deep(field, shown) from None
    except ValueError:  # the one that tomllib lets out: too many digits
        raise _too_long(field, shown) from None
    _check(field, shown, document)
    return document


def _check(field: str, shown: str, document: dict[str, Any]) -> None:
    level: list[Any] = [document]
    for _ in range(_DEEPEST):
        values = [value for each in level for value in (each.values() if isinstance(each, dict) else each)]
        if any(isinstance(value, int) and not _LEAST <= value <= _GREATEST for value in values):
            raise _too_long(field, shown)
        level = [value for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise _too_deep(field, shown)


def _too_deep(field: str, shown: str) -> BadInput:
    return BadInput(field, shown, f"must not have tables and lists more than {_DEEPEST} levels deep")


def _too_long(field: str, shown: str) -> BadInput:
    return BadInput(field, shown, "must not have whole numbers of more than 64 bits")

"""The blocks of documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent
from typing import NamedTuple

_LINE = re.compile(r"^ {4}(.*)$", re.MULTILINE)
_FENCED = re.compile(r"^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^ {4}.*\n(?:[ ]*\n(?= {4}))*)+", re.MULTILINE)
_BEGINS = {
    "python": re.compile(r"(from \S+ )?import |(async )?def |@|app\."),
    "toml": re.compile(r"\[{1,2}[a-z_.]+\]"),
}


def block_lines(text: str) -> list[str]:
    """The lines of a document's indented blocks, continued lines joined."""
    return "\n".join(_LINE.findall(text)).replace("\\\n", " ").splitlines()


class Block(NamedTuple):
    """A block of code: its document, its language (``""``: nobody said and nothing shows it), and its text."""

    document: str
    language: str
    text: str

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0]


def code_blocks(document: str, text: str) -> Iterator[Block]:
    """The blocks of a document: fenced ones with a language, and indented ones of Python or TOML."""
    fenced = _FENCED.sub("", text)
    for found in _FENCED.finditer(text):
        yield Block(document, found["language"], dedent(found["text"]))
    for found in _INDENTED.finditer(fenced):
        block = dedent(found[0]).strip("\n") + "\n"
        language = next((name for name, begin in _BEGINS.items() if begin.match(block)), "")
        if language:
            yield Block(document, language, block)

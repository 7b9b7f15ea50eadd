"""The indented blocks of documents."""

from __future__ import annotations

import re

_LINE = re.compile(r"^ {4}(.*)$", re.MULTILINE)


def block_lines(text: str) -> list[str]:
    """The lines of a document's indented blocks, continued lines joined."""
    return "\n".join(_LINE.findall(text)).replace("\\\n", " ").splitlines()

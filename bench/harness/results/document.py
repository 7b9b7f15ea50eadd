"""Figures in documents: written by the command that measured them, between markers, never by hand.

A block is ``<!-- NAME:begin -->`` ... ``<!-- NAME:end -->``, each on a line of its own; what is between them belongs to
the command.
"""

from __future__ import annotations

import re
from pathlib import Path

from bench.harness.machine.checkout import ROOT
from srtm.errors import BadInput

PERFORMANCE = ROOT / "docs" / "performance.md"
ADAPTATION = ROOT / "docs" / "adaptation.md"
EVALUATION = ROOT / "docs" / "evaluation.md"
IMAGES = ROOT / "docs" / "img"
MEASURED = ROOT / "docs" / "measured"
README = ROOT / "README.md"


def with_block(document: str, name: str, text: str) -> str:
    """``document`` with the block ``name`` holding ``text``. Raises BadInput if it has no such block, or two."""
    block = re.compile(rf"(^<!-- {re.escape(name)}:begin -->\n)(.*?)(^<!-- {re.escape(name)}:end -->$)", re.S | re.M)
    written, found = block.subn(lambda match: f"{match[1]}\n{text.strip()}\n\n{match[3]}", document)
    if found != 1:
        raise BadInput("document", name, f"must have exactly one block of that name, has {found}")
    return written


def write_block(path: Path, name: str, text: str) -> None:
    """Raises BadInput where the document is not there (an installed package has none) or has no such block."""
    path.write_text(with_block(_read(path), name, text))


def refuse_without_block(path: Path | None, *names: str) -> None:
    """What ``write_block`` would raise, before hours have gone into measuring. None: no document was asked for."""
    if path is not None:
        document = _read(path)
        for name in names:
            with_block(document, name, "")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        raise BadInput("document", str(path), "must be there: run from a checkout") from None


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)

"""A page of ``docs/results``: what a measurement found, as data and as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill, wrap

import msgspec

from bench.harness.results.provenance import Origin
from bench.harness.results.verdict import Check

_WIDTH = 120  # characters a line, but for tables
_CHECKED = ["checked", "found", "must be", ""]


class Table(msgspec.Struct, frozen=True, kw_only=True, tag="table"):
    """``folded``: the word to unfold it by; empty: it is open."""

    header: list[str]
    rows: list[list[str]]
    folded: str = ""

    @property
    def markdown(self) -> str:
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
        return f"<details><summary>{self.folded}</summary>\n\n{table}\n\n</details>" if self.folded else table


class Picture(msgspec.Struct, frozen=True, kw_only=True, tag="picture"):
    """``file`` lies beside the page."""

    file: str
    about: str

    @property
    def markdown(self) -> str:
        return f"![{self.about}]({self.file})"


class Items(msgspec.Struct, frozen=True, kw_only=True, tag="items"):
    """A list."""

    items: list[str]

    @property
    def markdown(self) -> str:
        return "\n".join(_filled(f"* {item}", "  ") for item in self.items)


Block = str | Table | Picture | Items  # a text of one line is a paragraph; of several it stays as it is


@dataclass(frozen=True, kw_only=True)
class Notes:
    """What people add to a page: how to read it, and what to know before believing it."""

    reading: Sequence[str] = ()
    weaknesses: Sequence[str] = ()


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One figure or comparison. ``sources``: paths, what it is made of."""

    title: str
    claim: str
    verdict: str
    body: list[Block]
    sources: list[str]
    origin: Origin

    @property
    def text(self) -> str:
        """The claim and what was found, for a terminal."""
        blocks = [one for one in self.body if not isinstance(one, Picture)]
        return "\n\n".join([self.claim, *(one if isinstance(one, str) else one.markdown for one in blocks)])

    def markdown(self, name: str, notes: Notes) -> str:
        """The whole page. ``name``: of its files."""
        since = f"git log --oneline {self.origin.commit.removesuffix('-dirty')}.. -- {' '.join(self.sources)}"
        since = " \\\n    ".join(wrap(since, _WIDTH - 10, break_long_words=False, break_on_hyphens=False))
        blocks: list[Block] = [
            f"# {self.title}",
            f"**Claim.** {self.claim}",
            f"**Verdict.** {self.verdict}",
            *self.body,
            *_listed("How to read it", notes.reading),
            *_listed("Known weaknesses of this result", notes.weaknesses),
            "## Where it comes from",
            f"`{self.origin.command}` wrote this page and [its data](data/{name}.json). {self.origin.text}",
            "Commits since that changed what it is made of (`srtm bench results` counts them):",
            f"```sh\n{since}\n```",
        ]
        return "\n\n".join(_markdown(one) for one in blocks) + "\n"


def checked(checks: Sequence[Check]) -> Table:
    """The table of what was asked and what was found."""
    return Table(header=_CHECKED, rows=[check.cells for check in checks])


def _listed(title: str, notes: Sequence[str]) -> list[Block]:
    return [f"## {title}", Items(items=list(notes))] if notes else []


def _markdown(block: Block) -> str:
    if not isinstance(block, str):
        return block.markdown
    return block if "\n" in block else _filled(block)


def _filled(text: str, indent: str = "") -> str:
    return fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)

"""Reads topic files (TOML) into the JSON documents that the distributor accepts.

Files that a topic file names are included. The distributor alone checks the contents, so each rule has one place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from srtm.errors import BadInput
from srtm.toml_text import read_toml


def read_topic_file(path: Path) -> dict[str, Any]:
    """Return the document for ``PUT /v1/topics/NAME``. Raises BadInput.

    Each block's ``csv`` (a path relative to the file) is replaced by ``csv_text`` with its content.
    """
    return _document(_text("file", path), str(path), lambda field, name: _text(field, path.parent / name))


def read_topic_text(text: str, csv: Mapping[str, str]) -> dict[str, Any]:
    """Return the document of a topic file's ``text``. ``csv``: {name: text} of the files that it may name.

    Raises BadInput.
    """

    def given(field: str, name: str) -> str:
        if name not in csv:
            raise BadInput(field, name, f"must be one of the files that were given: {', '.join(csv) or 'none was'}")
        return csv[name]

    return _document(text, text[:80], given)


def _document(text: str, shown: str, csv_text: Callable[[str, str], str]) -> dict[str, Any]:
    document = read_toml("file", shown, text)
    blocks = document.get("publishers")
    if isinstance(blocks, list):
        document["publishers"] = [_inlined(f"publishers[{i}].csv", block, csv_text) for i, block in enumerate(blocks)]
    return document


def topic_name(document: dict[str, Any]) -> str:
    """Return the name of a topic's document. Raises BadInput if it has none."""
    name = document.get("name")
    if not isinstance(name, str) or not name:
        there = ", ".join(document) or "nothing"
        rule = "must be the topic's name" + (f"; the file has {there}" if name is None else "")
        raise BadInput("name", name, rule)
    return name


def _inlined(field: str, block: object, csv_text: Callable[[str, str], str]) -> object:
    if not isinstance(block, dict) or not isinstance(block.get("csv"), str):
        return block
    rest = {key: value for key, value in block.items() if key != "csv"}
    return {**rest, "csv_text": csv_text(field, block["csv"])}


def _text(field: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(field, str(path), f"must be a file that can be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise BadInput(field, str(path), "must be UTF-8") from error

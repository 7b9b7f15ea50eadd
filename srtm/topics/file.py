"""Reads topic files (TOML) into the JSON documents that the distributor accepts.

Files that a topic file names are included. The distributor alone checks the contents, so each rule has one place.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from srtm.errors import BadInput


def read_topic_file(path: Path) -> dict[str, Any]:
    """Return the document for ``PUT /v1/topics/NAME``. Raises BadInput.

    Each block's ``csv`` (a path relative to the file) is replaced by ``csv_text`` with its content.
    """
    try:
        document = tomllib.loads(_text("file", path))
    except tomllib.TOMLDecodeError as error:
        raise BadInput("file", str(path), f"must be TOML: {error}") from error
    blocks = document.get("publishers", [])
    if isinstance(blocks, list):
        document["publishers"] = [_inlined(f"publishers[{i}].csv", block, path) for i, block in enumerate(blocks)]
    return document


def topic_name(document: dict[str, Any]) -> str:
    """Return the name of a topic's document. Raises BadInput if it has none."""
    name = document.get("name")
    if not isinstance(name, str) or not name:
        raise BadInput("name", name, "must be the topic's name")
    return name


def _inlined(field: str, block: object, topic_file: Path) -> object:
    if not isinstance(block, dict) or not isinstance(block.get("csv"), str):
        return block
    rest = {key: value for key, value in block.items() if key != "csv"}
    return {**rest, "csv_text": _text(field, topic_file.parent / block["csv"])}


def _text(field: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(field, str(path), f"must be a file that can be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise BadInput(field, str(path), "must be UTF-8") from error

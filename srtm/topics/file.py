"""Topic files (TOML, design section 11) as the JSON documents that the distributor takes: what a file refers to is put
into the document.

Only what needs the file system happens here; every rule about the contents is the distributor's, so that there is one
place for each.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from srtm.errors import BadInput


def read_topic_file(path: Path) -> dict[str, Any]:
    """The document for ``PUT /v1/topics/NAME``: each block's ``csv`` (a path relative to the file) becomes its
    ``csv_text``. Raises BadInput."""
    try:
        document = tomllib.loads(_text("file", path))
    except tomllib.TOMLDecodeError as error:
        raise BadInput("file", str(path), f"must be TOML: {error}") from error
    blocks = document.get("publishers", [])
    if isinstance(blocks, list):
        document["publishers"] = [_inlined(f"publishers[{i}].csv", block, path) for i, block in enumerate(blocks)]
    return document


def topic_name(document: dict[str, Any]) -> str:
    """Raises BadInput if the document does not say."""
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

"""Reads contract files (TOML): a list ``[[contracts]]``."""

from __future__ import annotations

from pathlib import Path

from srtm.contracts.contract import Contract, read_contracts
from srtm.errors import BadInput
from srtm.toml_text import read_toml
from srtm.topics.schema import Schema, parsed


class _File(Schema):
    contracts: list[object]


def read_contract_file(path: Path) -> list[Contract]:
    """Return the contracts of a file. Raises BadInput."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput("file", str(path), f"must be a file that can be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise BadInput("file", str(path), "must be UTF-8") from error
    return read_contract_text(text, str(path))


def read_contract_text(text: str, shown: str = "(the text)") -> list[Contract]:
    """Return the contracts of a file's text. ``shown``: its name in refusals. Raises BadInput."""
    return read_contracts(parsed(_File, read_toml("file", shown, text)).contracts)

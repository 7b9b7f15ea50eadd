"""Reads JSON files that SRTM wrote, as typed values."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from srtm.errors import BadInput
from srtm.net.decode_errors import UNREADABLE

_T = TypeVar("_T")


def read_json(path: Path, kind: type[_T], field: str, what: str) -> _T | None:
    """Return the file's content, or None if there is no such file.

    Raises BadInput for ``field`` if the file does not hold ``what``. Ignoring such a file would lose its content.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(field, str(path), f"must be readable ({error.strerror})") from error
    except UNREADABLE as error:
        raise BadInput(field, str(path), f"must hold {what}: {error}") from error

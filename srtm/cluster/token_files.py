"""Creates the tokens of a cluster on this host, in files that only their owner can read."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from srtm.errors import BadInput
from srtm.net.tokens import OPERATOR, Scope, Tokens, listed, read_text, read_token, relisted

LIST_NAME = "tokens"


@dataclass(frozen=True)
class Issued:
    """The token files of a cluster. ``list_file`` is the list for the services; ``files`` has one token each for
    ``operator``, ``client``, every broker by its name, and ``scaled``: the brokers that the distributor starts."""

    list_file: Path
    files: dict[str, Path]

    @property
    def operator(self) -> str:
        """The operator's token. Raises BadInput."""
        return read_token("data", str(self.files[OPERATOR]))


def issue(data: Path, brokers: Sequence[str]) -> Issued:
    """Create ``DATA/tokens`` and one token each in ``DATA/operator.token``, ``client.token``, ``scaled.token`` and
    ``BROKER.token``.

    Existing files are kept. If a token's file was removed, a new token replaces the old one. Raises BadInput.
    """
    data = data.resolve()  # processes may run in another directory
    holders: dict[str, tuple[Scope, str]] = {
        OPERATOR: (OPERATOR, OPERATOR),
        "client": ("client", "client"),
        "scaled": ("broker", "scaled-*"),
        **{name: ("broker", name) for name in brokers},
    }
    files = {file: data / f"{file}.token" for file in holders}
    for path in files.values():
        if not path.exists():
            _write(path, secrets.token_urlsafe(32) + "\n")
    issued = Issued(data / LIST_NAME, files)
    tokens = [(*holders[file], read_token("data", str(path))) for file, path in files.items()]
    if not issued.list_file.exists():
        _write(issued.list_file, listed(tokens))
    known = Tokens.read("data", str(issued.list_file))
    for holder in tokens:
        if not known.knows(holder[2]):  # its file is new
            _write(issued.list_file, relisted(read_text("data", str(issued.list_file)), holder))
    return issued


def _write(path: Path, text: str) -> None:
    """Write a file in one step, never readable by others."""
    beside = path.with_name(path.name + ".new")
    try:
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        beside.replace(path)
    except OSError as error:
        raise BadInput("data", str(path), f"must be a file that can be written ({error.strerror})") from None

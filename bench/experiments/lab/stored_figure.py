"""What a finished figure leaves in a directory: the same files, whenever they were made."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.harness.results.publish import Stored, store
from bench.harness.results.results import as_json, replace_file
from srtm.errors import BadInput


class Finished:
    """The files of the figure ``name``. The data come last and go first: where they are, the others are theirs."""

    def __init__(self, directory: Path, name: str) -> None:
        self.data, self.rows, self.picture = (directory / f"{name}.{kind}" for kind in ("json", "csv", "png"))

    def begin(self) -> None:
        self.data.unlink(missing_ok=True)

    def end(self, stored: Stored) -> None:
        """Raises BadInput for data that cannot be written."""
        try:
            replace_file(self.data, as_json(stored))
        except OSError as error:
            rule = f"must be a file that can be written ({error.strerror})"
            raise BadInput("directory", str(self.data), rule) from error

    def stored(self) -> Stored | None:
        """None: it is not finished. Raises BadInput for data that are none."""
        if not all(file.exists() for file in (self.data, self.rows, self.picture)):
            return None
        try:
            return msgspec.json.decode(self.data.read_bytes(), type=Stored)
        except msgspec.MsgspecError as error:
            raise BadInput("resume", str(self.data), f"must be a result of this command ({error})") from error

    def publish(self, folder: Path, name: str) -> None:
        """As the page ``name``, with its data and its picture. Raises BadInput."""
        stored = self.stored()
        if stored is not None:
            store(folder, name, stored)
            replace_file(folder / f"{name}.png", self.picture.read_bytes())

"""What a finished figure leaves in a directory, and what of it the document shows: the same files, whenever they were
made."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.harness.results.document import EVALUATION, IMAGES, MEASURED, write_block
from bench.harness.results.results import Results, replace_file, write_results
from srtm.errors import BadInput


class Finished:
    """The files of the figure ``name``; ``block``: of the document. The data come last and go first: where they are,
    the others are theirs."""

    def __init__(self, directory: Path, name: str) -> None:
        kinds = ("json", "csv", "png", "md")
        self.data, self.rows, self.picture, self.block = (directory / f"{name}.{kind}" for kind in kinds)

    def begin(self) -> None:
        self.data.unlink(missing_ok=True)

    def end(self, results: Results) -> None:
        """Raises BadInput for data that cannot be written."""
        write_results(str(self.data), results)

    def results(self) -> Results | None:
        """None: it is not finished. Raises BadInput for data that are none."""
        if not all(file.exists() for file in (self.data, self.rows, self.picture, self.block)):
            return None
        try:
            return msgspec.json.decode(self.data.read_bytes(), type=Results)
        except msgspec.MsgspecError as error:
            raise BadInput("resume", str(self.data), f"must be a result of this command ({error})") from error

    def show_in_document(self, name: str) -> None:
        """As the block ``name``. Raises BadInput where the document has none."""
        write_block(EVALUATION, name, self.block.read_text())
        replace_file(MEASURED / f"{name}.json", self.data.read_bytes())
        replace_file(IMAGES / f"{name}.png", self.picture.read_bytes())

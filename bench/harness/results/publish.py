"""How a command hands over what it found: a document's block, the data beside it, the JSON that was asked for."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness.results.document import write_block
from bench.harness.results.provenance import provenance
from bench.harness.results.results import Results, keep_beside, write_results

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_WHERE_TO = ("json_file", "document", "directory")


def settings_of(options: DataclassInstance) -> dict[str, Any]:
    """``options`` of a command, but for where its results go: that says nothing of how they were made."""
    return {key: value for key, value in asdict(options).items() if key not in _WHERE_TO}


def hand_over(
    text: str, results: Results, *, block: str, document: Path | None, json_file: str | None, data: bool = False
) -> None:
    """``text`` as the block of the document, if one was asked for, below it when and where it was measured; with
    ``data`` also ``results`` beside it, in ``measured/BLOCK.json``. Then ``results`` as the JSON that was asked for.
    Raises BadInput."""
    if document is not None:
        started = datetime.fromisoformat(results.started).timestamp()
        write_block(document, block, f"{text}\n\n{provenance(started)}")
        if data:
            keep_beside(document, block, results)
    write_results(json_file, results)

"""How a command hands over what it found: its page of ``docs/results``, the data behind it, the JSON that was asked
for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench.harness.machine.checkout import ROOT
from bench.harness.results.page import Notes, Page
from bench.harness.results.results import Results, as_json, replace_file, write_results
from bench.harness.results.sources import source_commit, uncommitted
from srtm.errors import BadInput
from srtm.toml_text import read_toml

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RESULTS = ROOT / "docs" / "results"
_WHERE_TO = ("json_file", "document", "directory")
_DIRTY = "Measured with uncommitted changes: the commit alone does not give this result again."
_NAMED = 3  # changed files in an error


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A page and what it was made from; None: that was not kept, or lies beside it."""

    page: Page
    results: Results | None = None


def settings_of(options: DataclassInstance) -> dict[str, Any]:
    """``options`` of a command, but for where its results go: that says nothing of how they were made."""
    return {key: value for key, value in asdict(options).items() if key not in _WHERE_TO}


def refuse_unpublishable(folder: Path | None) -> None:
    """Raises BadInput where a page could not be written into ``folder``, or its commit would not say what was measured:
    before hours go into measuring. None: no page was asked for."""
    if folder is None:
        return
    if not folder.is_dir():
        raise BadInput("document", str(folder), "must be there: run from a checkout")
    changed = uncommitted()
    if source_commit() is None:
        raise BadInput("document", str(ROOT), "must be a git checkout: a page names the commit that it was measured at")
    if changed:
        more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        rule = "must be committed first, or leave out --document: a page names the commit that it was measured at"
        raise BadInput("document", f"uncommitted {', '.join(changed[:_NAMED])}{more} in {ROOT}", rule)


def hand_over(page: Page, results: Results, *, name: str, folder: Path | None, json_file: str | None) -> None:
    """The page ``name`` with ``results`` into ``folder``, if one was asked for; then ``results`` as the JSON that was
    asked for. Raises BadInput."""
    if folder is not None:
        store(folder, name, Stored(page=page, results=results))
    write_results(json_file, results)


def store(folder: Path, name: str, stored: Stored) -> None:
    """The data ``name``, and the page that they give. Raises BadInput."""
    write_data(folder, name, stored)
    write_page(folder, name, stored.page)


def write_data(folder: Path, name: str, found: msgspec.Struct) -> None:
    """Beside the pages. Raises BadInput."""
    path = data_file(folder, name)
    try:
        path.parent.mkdir(exist_ok=True)
        replace_file(path, as_json(found))
    except OSError as error:
        raise BadInput("document", str(path), f"must be a file that can be written ({error.strerror})") from error


def write_page(folder: Path, name: str, page: Page) -> None:
    """From the page's data alone. Raises BadInput."""
    path = folder / f"{name}.md"
    try:
        replace_file(path, rendered(folder, name, page).encode())
    except OSError as error:
        raise BadInput("document", str(path), f"must be a file that can be written ({error.strerror})") from error


def rendered(folder: Path, name: str, page: Page) -> str:
    """The page as Markdown, with the notes that ``folder`` has on it. Raises BadInput."""
    return page.markdown(name, notes_on(folder, name, page))


def notes_on(folder: Path, name: str, page: Page) -> Notes:
    """As ``notes.toml`` has them, a shared one by its name; and that its sources were not committed, if so. Raises
    BadInput."""
    path = folder / "notes.toml"
    told = read_toml("document", str(path), path.read_text()) if path.exists() else {}
    shared, reading, weaknesses = (told.get(key, {}) for key in ("shared", "reading", "weaknesses"))
    found = [shared.get(note, note) for note in weaknesses.get(name, [])]
    dirty = [_DIRTY] if page.origin.commit.endswith("-dirty") else []
    return Notes(reading=reading.get(name, []), weaknesses=[*found, *dirty])


def stored_pages(folder: Path) -> Iterator[tuple[str, Page]]:
    """By name. Raises BadInput for a file that holds no data of ours."""
    for path in sorted((folder / "data").glob("*.json")):
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_Paged)
        except msgspec.MsgspecError as error:
            raise BadInput("results", str(path), f"must be what a command stored ({error})") from error
        if found.page is not None:
            yield path.stem, found.page


def data_file(folder: Path, name: str) -> Path:
    return folder / "data" / f"{name}.json"


class _Paged(msgspec.Struct, frozen=True):
    """Data with a page of their own; None: they are part of another's."""

    page: Page | None = None

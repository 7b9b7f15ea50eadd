"""What a command leaves behind, and that it knows before it measures whether it may."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from bench.experiments.lab.figure import Effort
from bench.experiments.run_figures import FiguresOptions, figures
from bench.harness.results import publish
from bench.harness.results.page import Page, Picture, Table
from bench.harness.results.provenance import Origin
from bench.harness.results.publish import (
    RESULTS,
    Stored,
    hand_over,
    refuse_unpublishable,
    rendered,
    settings_of,
    stored_pages,
)
from bench.harness.results.results import Results
from srtm.errors import BadInput

FOUND = Results.of("bench one", [{"name": "a"}], seed=1, started=0.0, settings={})
PAGE = Page(
    title="One",
    claim="It is.",
    verdict="one: reached.",
    body=["Of one run.", Table(header=["p99, ms"], rows=[["0.5"]])],
    sources=["broker"],
    origin=Origin(command="srtm bench one --document", day="2026-11-25", commit="c0ffee", host="2 cores"),
)


@dataclass(frozen=True)
class Options:
    seconds: float = 2.0
    json_file: str = "own.json"
    document: Path = Path("page.md")
    directory: Path = Path("results")


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what git says of the sources."""

    def says(changed: list[str], commit: str | None = "c0ffee") -> None:
        monkeypatch.setattr(publish, "uncommitted", lambda: changed)
        monkeypatch.setattr(publish, "source_commit", lambda: commit)

    return says


def test_settings_say_how_results_were_made_and_not_where_they_went() -> None:
    assert settings_of(Options()) == {"seconds": 2.0}


def test_the_page_is_what_its_data_give_and_the_json_that_was_asked_for_has_the_results(tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    hand_over(PAGE, FOUND, name="one", folder=tmp_path, json_file=str(own))
    assert msgspec.json.decode((tmp_path / "data/one.json").read_bytes(), type=Stored) == Stored(
        page=PAGE, results=FOUND
    )
    assert msgspec.json.decode(own.read_bytes(), type=Results) == FOUND
    ((name, page),) = stored_pages(tmp_path)
    assert (tmp_path / "one.md").read_text() == rendered(tmp_path, name, page)


def test_nothing_is_written_where_no_page_was_asked_for(tmp_path: Path) -> None:
    hand_over(PAGE, FOUND, name="one", folder=None, json_file=None)
    assert list(tmp_path.iterdir()) == []


def test_a_page_has_its_notes_shared_ones_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.toml").write_text(
        '[shared]\nfew = "Three runs."\n[reading]\none = ["Left to right."]\n[weaknesses]\none = ["few", "Old."]\n'
    )
    text = rendered(tmp_path, "one", PAGE)
    assert "## How to read it\n\n* Left to right.\n" in text
    assert "## Known weaknesses of this result\n\n* Three runs.\n* Old.\n" in text
    assert "weaknesses" not in rendered(tmp_path, "two", PAGE)


def test_a_result_of_sources_that_were_not_committed_says_so(tmp_path: Path) -> None:
    dirty = msgspec.structs.replace(
        PAGE,
        origin=Origin(command="srtm bench one --document", day="2026-11-25", commit="c0ffee-dirty", host="2 cores"),
    )
    text = rendered(tmp_path, "one", dirty)
    assert "* Measured with uncommitted changes" in text
    assert "git log --oneline c0ffee.. -- broker\n" in text


def test_notes_that_are_no_toml_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.toml").write_text("[")
    with pytest.raises(BadInput, match=r"document: .*notes\.toml.*must be TOML"):
        rendered(tmp_path, "one", PAGE)


def test_data_that_no_command_stored_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/one.json").write_text('{"page": 1}')
    with pytest.raises(BadInput, match=r"results: .*one\.json"):
        list(stored_pages(tmp_path))


def test_sources_that_are_not_committed_are_refused_with_their_names(tmp_path: Path, tree: Callable[..., None]) -> None:
    tree(["bench/a.py", "bench/b.py", "broker/c.py", "srtm/d.py"], "c0ffee-dirty")
    with pytest.raises(BadInput) as refused:
        refuse_unpublishable(tmp_path)
    said = str(refused.value)
    assert "uncommitted bench/a.py, bench/b.py, broker/c.py and 1 more" in said
    assert "must be committed first, or leave out --document" in said
    refuse_unpublishable(None)


def test_a_page_that_could_not_name_its_commit_or_has_no_place_is_refused(
    tmp_path: Path, tree: Callable[..., None]
) -> None:
    tree([], None)
    with pytest.raises(BadInput, match="must be a git checkout"):
        refuse_unpublishable(tmp_path)
    tree([])
    refuse_unpublishable(tmp_path)
    with pytest.raises(BadInput, match="run from a checkout"):
        refuse_unpublishable(tmp_path / "none")


def test_nothing_is_measured_for_a_page_that_is_refused(tmp_path: Path, tree: Callable[..., None]) -> None:
    tree(["bench/a.py"])
    shown: list[str] = []
    with pytest.raises(BadInput, match="uncommitted"):
        figures(FiguresOptions(names=["eq01"], effort=Effort(), directory=tmp_path, document=tmp_path), shown.append)
    assert not shown


@pytest.mark.parametrize(("name", "page"), [pytest.param(*one, id=one[0]) for one in stored_pages(RESULTS)])
def test_a_committed_page_is_what_rendering_its_data_gives(name: str, page: Page) -> None:
    text = (RESULTS / f"{name}.md").read_text()
    assert text == rendered(RESULTS, name, page)
    assert all((RESULTS / one.file).exists() for one in page.body if isinstance(one, Picture))
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")] == []


def test_no_page_and_no_note_is_without_data() -> None:
    stored = {name for name, _ in stored_pages(RESULTS)}
    assert {path.stem for path in RESULTS.glob("*.md")} == {"README", *stored}
    pictures = {one.file for _, page in stored_pages(RESULTS) for one in page.body if isinstance(one, Picture)}
    assert {path.name for path in RESULTS.glob("*.png")} == pictures
    notes = tomllib.loads((RESULTS / "notes.toml").read_text())
    assert {*notes["reading"], *notes["weaknesses"]} <= stored
    used = {one for ones in notes["weaknesses"].values() for one in ones}
    assert set(notes["shared"]) <= used


@pytest.mark.parametrize("path", sorted({path for _, page in stored_pages(RESULTS) for path in page.sources}))
def test_what_a_committed_result_is_made_of_is_there(path: str) -> None:
    assert (RESULTS.parents[1] / path).exists()

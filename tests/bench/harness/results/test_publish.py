"""What a command leaves behind, and that it knows before it measures where that goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.harness.results.document import refuse_without_block
from bench.harness.results.publish import hand_over, settings_of
from bench.harness.results.results import Results
from srtm.errors import BadInput

RESULTS = Results.of("bench one", [{"name": "a"}], seed=1, started=0.0, settings={})


@dataclass(frozen=True)
class Options:
    seconds: float = 2.0
    json_file: str = "own.json"
    document: Path = Path("page.md")
    directory: Path = Path("results")


def test_settings_say_how_results_were_made_and_not_where_they_went() -> None:
    assert settings_of(Options()) == {"seconds": 2.0}


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text("<!-- one:begin -->\n<!-- one:end -->\n")
    return path


def test_the_block_the_data_beside_it_and_what_was_asked_for_say_the_same(tmp_path: Path, document: Path) -> None:
    own = tmp_path / "own.json"
    hand_over("figures", RESULTS, block="one", document=document, json_file=str(own), data=True)
    assert "\nfigures\n\nMeasured 1970-01-01 at commit " in document.read_text()
    assert (tmp_path / "measured" / "one.json").read_bytes() == own.read_bytes()
    assert b'"bench one"' in own.read_bytes()


def test_data_are_kept_only_where_there_is_a_document_that_shows_them(tmp_path: Path, document: Path) -> None:
    hand_over("figures", RESULTS, block="one", document=document, json_file=None)
    hand_over("others", RESULTS, block="one", document=None, json_file=None, data=True)
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]
    assert "figures" in document.read_text()


def test_a_document_that_could_not_take_the_block_is_refused_beforehand(tmp_path: Path, document: Path) -> None:
    refuse_without_block(None, "other")
    refuse_without_block(document, "one")
    for path, names in ((document, ["one", "other"]), (tmp_path / "none.md", ["one"])):
        with pytest.raises(BadInput):
            refuse_without_block(path, *names)

"""A store's copy: it comes back whole, in either database, or not at all."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
import trio
from sqlalchemy import select

from distributor.storage.backup import export_store, import_store
from distributor.storage.database import Database
from distributor.storage.store import Store, metadata
from srtm.cli import main
from srtm.errors import BadInput, Conflict, Unavailable
from tests.support.archives import unpack

ARCHIVE = Path(__file__).parents[2] / "fixtures" / "data-3cf09e8.tar.gz"


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with topics, shares, publishers and decisions, of today's schema."""
    with tarfile.open(ARCHIVE) as archive:
        files = [member for member in archive.getmembers() if "/store.sqlite3" in member.name]
        unpack(archive, tmp_path, files)
    url = f"sqlite:///{tmp_path / 'store.sqlite3'}"

    async def open_and_close() -> None:
        await (await Store.open(url)).aclose()

    trio.run(open_and_close)
    return url


def content(url: str) -> dict[str, list[tuple[object, ...]]]:
    engine = Database.parse(url).engine("test")
    with engine.connect() as connection:
        rows = {
            table.name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
            for table in metadata.sorted_tables
        }
    engine.dispose()
    return rows


def exported(url: str) -> list[bytes]:
    out = io.BytesIO()
    export_store(url, out)
    return out.getvalue().splitlines(keepends=True)


def test_a_copy_comes_back_as_it_was(store: str, tmp_path: Path) -> None:
    before = content(store)
    assert before["topics"]
    assert before["publishers"]
    lines = exported(store)
    copy = f"sqlite:///{tmp_path / 'copy.sqlite3'}"
    counts = import_store(copy, lines)
    assert content(copy) == before
    assert counts == {name: len(rows) for name, rows in before.items()}
    assert exported(copy) == lines


def test_a_store_that_is_there_is_never_overwritten(store: str) -> None:
    with pytest.raises(Conflict, match="store: must be empty"):
        import_store(store, exported(store))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lines: lines[:-1], "file: must have an end: it is cut off"),
        (lambda lines: [*lines[:3], *lines[4:]], "the end must count"),
        (lambda lines: [*lines[:3], lines[3][:-5], *lines[4:]], "file line 4: must be a line of"),
        (lambda lines: [*lines, lines[2]], "must not follow the end"),
        (lambda lines: [], "file line 1: must be a line of"),
        (lambda lines: [lines[0].replace(b'"schema":', b'"schema":9'), *lines[1:]], "must be of schema"),
        (lambda lines: [lines[0], b'{"table":"secrets","row":{}}\n'], "file line 2: 'secrets': must be a table"),
        (
            lambda lines: [lines[0], b'{"table":"places","row":{"topic":"t","chunk":0,"at":"?"}}\n'],
            "'places': must have its bytes in base64",
        ),
    ],
)
def test_a_damaged_copy_changes_nothing(store: str, tmp_path: Path, damage, said: str) -> None:
    copy = f"sqlite:///{tmp_path / 'copy.sqlite3'}"
    lines = exported(store)
    with pytest.raises(BadInput, match=said):
        import_store(copy, damage(lines))
    assert import_store(copy, lines)  # it is still empty


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="must be a store that exists"):
        export_store(f"sqlite:///{tmp_path / 'none'}", io.BytesIO())
    (tmp_path / "empty").touch()
    with pytest.raises(Unavailable, match="the database has no store"):
        export_store(f"sqlite:///{tmp_path / 'empty'}", io.BytesIO())


async def test_a_store_in_use_is_refused(store: str) -> None:
    opened = await Store.open(store)
    try:
        with pytest.raises(Unavailable, match="locked"):
            export_store(store, io.BytesIO())
    finally:
        await opened.aclose()


def test_the_commands_write_a_private_file_and_read_it(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, copy = tmp_path / "backup", f"sqlite:///{tmp_path / 'copy.sqlite3'}"
    assert main(["store", "export", str(file), "--store", store]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert "3 topics (removed ones too), 2 brokers" in capsys.readouterr().err
    assert main(["store", "import", str(file), "--store", copy]) == 0
    assert content(copy) == content(store)
    assert main(["store", "import", str(tmp_path / "no"), "--store", copy]) == 2
    assert main(["store", "export", str(tmp_path / "no" / "file"), "--store", store]) == 2


@pytest.mark.postgres
@pytest.mark.slow
def test_a_sqlite_store_moves_to_postgresql_and_back(store: str, postgres_url: str, tmp_path: Path) -> None:
    url = postgres_url
    lines = exported(store)
    import_store(url, lines)
    assert content(url) == content(store)
    back = f"sqlite:///{tmp_path / 'back.sqlite3'}"
    import_store(back, exported(url))
    assert content(back) == content(store)
    with pytest.raises(Conflict, match="must be empty"):
        import_store(url, lines)

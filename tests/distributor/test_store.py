"""The store: all or nothing, one process, nothing lost."""

import pytest

from distributor import store
from distributor.store import Replace, Store
from srtm.errors import BadInput, Unavailable


def setting(name: str, value: int) -> Replace:
    return Replace(store.settings, {"name": name}, [{"name": name, "value": value}])


async def values(opened: Store) -> dict[str, int]:
    return {row["name"]: row["value"] for row in await opened.rows(store.settings) if row["name"] != "schema"}


async def test_what_was_stored_is_there_after_reopening(tmp_path):
    url = f"sqlite:///{tmp_path / 's.sqlite3'}"
    first = await Store.open(url)
    await first.apply([setting("a", 1), setting("b", 2)])
    await first.apply([setting("a", 2**62), Replace(store.settings, {"name": "b"})])
    await first.aclose()
    second = await Store.open(url)
    assert await values(second) == {"a": 2**62}
    await second.aclose()


async def test_a_failing_change_takes_the_whole_transaction_back(tmp_path):
    opened = await Store.open(f"sqlite:///{tmp_path / 's.sqlite3'}")
    await opened.apply([setting("a", 1)])
    twice = Replace(store.settings, {"name": "c"}, [{"name": "c", "value": 1}, {"name": "c", "value": 2}])
    with pytest.raises(Unavailable, match="UNIQUE"):
        await opened.apply([setting("a", 2), twice])
    assert await values(opened) == {"a": 1}
    await opened.aclose()


async def test_a_second_distributor_on_the_same_store_is_refused(tmp_path):
    url = f"sqlite:///{tmp_path / 's.sqlite3'}"
    first = await Store.open(url)
    with pytest.raises(Unavailable, match="locked"):
        await Store.open(url)
    await first.aclose()
    await (await Store.open(url)).aclose()


@pytest.mark.parametrize("url", ["postgresql://localhost/srtm", "store.sqlite3", "", "sqlite:/x"])
async def test_another_kind_of_store_is_refused(url):
    with pytest.raises(BadInput, match="sqlite:///PATH"):
        await Store.open(url)


async def test_a_store_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(Unavailable, match=r"nowhere/s\.sqlite3.*unable to open"):
        await Store.open(f"sqlite:///{tmp_path / 'nowhere' / 's.sqlite3'}")
    (tmp_path / "text").write_text("not a database, but some text that is long enough to be read as a header" * 9)
    with pytest.raises(Unavailable, match="not a database"):
        await Store.open(f"sqlite:///{tmp_path / 'text'}")


async def test_a_store_of_another_schema_is_refused(tmp_path):
    url = f"sqlite:///{tmp_path / 's.sqlite3'}"
    first = await Store.open(url)
    await first.apply([setting("schema", 999)])
    await first.aclose()
    with pytest.raises(Unavailable, match="schema 999"):
        await Store.open(url)

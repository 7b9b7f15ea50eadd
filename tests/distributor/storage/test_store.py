"""The store: all or nothing, one process, nothing lost."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing

import msgspec
import psycopg
import pytest
import trio
from sqlalchemy import Connection

from distributor.storage import migrations, store
from distributor.storage.store import Replace, Store
from srtm.errors import NotLeader, Unavailable
from tests.support.file_modes import OWNER_ALONE, modes, no_umask


def setting(name: str, value: int) -> Replace:
    return Replace(store.settings, {"name": name}, [{"name": name, "value": value}])


async def values(opened: Store) -> dict[str, int]:
    return {
        row["name"]: row["value"]
        for row in await opened.rows(store.settings)
        if row["name"] not in ("schema", store.IDENTITY)
    }


async def leading(url: str) -> Store:
    opened = await Store.open(url)
    await opened.lead("http://leader")
    return opened


async def test_what_was_stored_is_there_after_reopening(store_url):
    first = await leading(store_url)
    await first.apply([setting("a", 1), setting("b", 2)])
    await first.apply([setting("a", 2**62), Replace(store.settings, {"name": "b"})])
    await first.aclose()
    second = await Store.open(store_url)
    assert await values(second) == {"a": 2**62}
    await second.aclose()


async def test_every_kind_of_value_comes_back_as_it_was(store_url):
    opened = await leading(store_url)
    chunk = {"topic": "straße \\ ' %s", "chunk": 2**62, "columns": bytes(range(256))}
    broker = {
        "name": "a", "incarnation": "1-/x", "srtm_version": "", "tcp_address": "h:1", "http_address": "h:2",
        "mcap": 1 / 3, "accepting": True, "dead": False, "claims": '["a lock"]',
    }  # fmt: skip
    await opened.apply(
        [Replace(store.publishers, {"topic": chunk["topic"]}, [chunk]), Replace(store.brokers, {"name": "a"}, [broker])]
    )
    assert await opened.rows(store.publishers) == [chunk]
    assert await opened.rows(store.brokers) == [broker]
    await opened.aclose()


async def test_a_failing_change_takes_the_whole_transaction_back(store_url):
    opened = await leading(store_url)
    await opened.apply([setting("a", 1)])
    twice = Replace(store.settings, {"name": "c"}, [{"name": "c", "value": 1}, {"name": "c", "value": 2}])
    with pytest.raises(Unavailable, match=r"(?i)unique"):
        await opened.apply([setting("a", 2), twice])
    assert await values(opened) == {"a": 1}
    await opened.apply([setting("a", 3)])
    assert await values(opened) == {"a": 3}
    await opened.aclose()


async def test_the_edition_changes_with_the_leader_and_with_what_is_stored(store_url):
    opened = await leading(store_url)
    first = await opened.edition()
    await opened.apply([setting("version", 7)])
    second = await opened.edition()
    await opened.lead("http://leader")
    third = await opened.edition()
    assert (second.version, third.version) == (7, 7)
    assert first.term == second.term < third.term
    await opened.aclose()


async def test_a_second_distributor_on_the_same_store_is_refused(tmp_path):
    url = f"sqlite:///{tmp_path / 's.sqlite3'}"
    first = await Store.open(url)
    with pytest.raises(Unavailable, match="locked: a distributor uses it, which must be stopped first"):
        await Store.open(url)
    await first.aclose()
    await (await Store.open(url)).aclose()


async def test_a_store_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(Unavailable, match=r"nowhere/s\.sqlite3.*database file: its directory must exist"):
        await Store.open(f"sqlite:///{tmp_path / 'nowhere' / 's.sqlite3'}")
    (tmp_path / "text").write_text("not a database, but some text that is long enough to be read as a header" * 9)
    with pytest.raises(Unavailable, match="not a database"):
        await Store.open(f"sqlite:///{tmp_path / 'text'}")


COLUMNS = [["p", "q"], [1.0, 2.0], ["", ""], ["poisson", "poisson"], [1, 1]]


def make_store_of_the_first_schema(path):
    with closing(sqlite3.connect(path)) as old:
        old.executescript("""
            CREATE TABLE settings (name VARCHAR PRIMARY KEY, value BIGINT);
            INSERT INTO settings VALUES ('schema', 1);
            CREATE TABLE shares (topic VARCHAR, broker VARCHAR, target_rate BIGINT NOT NULL,
                target_burst BIGINT NOT NULL, version BIGINT NOT NULL, rate BIGINT NOT NULL, burst BIGINT NOT NULL,
                bound_rate BIGINT NOT NULL, bound_burst BIGINT NOT NULL, applied BIGINT NOT NULL,
                starts_full BOOLEAN NOT NULL, PRIMARY KEY (topic, broker));
            INSERT INTO shares VALUES ('t', 'a', 1, 2, 3, 4, 5, 6, 7, 8, 0);
            CREATE TABLE topics (name VARCHAR PRIMARY KEY, removed BOOLEAN NOT NULL, purged BOOLEAN NOT NULL,
                version BIGINT NOT NULL, assignment_version BIGINT NOT NULL, spec TEXT NOT NULL, brokers TEXT NOT NULL,
                channels TEXT NOT NULL, reasons TEXT NOT NULL, envelope_rate BIGINT NOT NULL,
                envelope_burst BIGINT NOT NULL, granted BOOLEAN NOT NULL);
            INSERT INTO topics VALUES ('t', 0, 0, 1, 1, '{}', '[]', '[]', '[]', 1, 2, 1);
            CREATE TABLE publishers (topic VARCHAR, chunk BIGINT, columns BLOB NOT NULL, PRIMARY KEY (topic, chunk));
            CREATE TABLE brokers (name VARCHAR PRIMARY KEY, incarnation VARCHAR NOT NULL, srtm_version VARCHAR NOT NULL,
                tcp_address VARCHAR NOT NULL, http_address VARCHAR NOT NULL, mcap FLOAT NOT NULL,
                accepting BOOLEAN NOT NULL, dead BOOLEAN NOT NULL);
            INSERT INTO brokers VALUES ('a', '1-here', '0.1.0', 'h:1', 'h:2', 0, 1, 0);
        """)
        with_places = msgspec.msgpack.encode([*COLUMNS, [3, -1]])
        old.execute("INSERT INTO publishers VALUES ('t', 0, ?)", [with_places])
        old.commit()


async def test_a_store_of_the_first_schema_is_brought_up_to_date_with_what_is_in_it(tmp_path):
    path = tmp_path / "old.sqlite3"
    make_store_of_the_first_schema(path)
    for _ in range(2):
        opened = await Store.open(f"sqlite:///{path}")
        (share,) = await opened.rows(store.shares)
        assert (share["bound_burst"], share["lease_ms"], share["longest_ms"]) == (7, None, None)
        (topic,) = await opened.rows(store.topics)
        assert (topic["envelope_burst"], topic["pool"], topic["recalling"]) == (2, 0, False)
        (chunk,) = await opened.rows(store.publishers)
        assert msgspec.msgpack.decode(chunk["columns"]) == COLUMNS
        (place,) = await opened.rows(store.places)
        assert (place["topic"], place["chunk"], msgspec.msgpack.decode(place["at"])) == ("t", 0, [3, -1])
        (broker,) = await opened.rows(store.brokers)
        assert (broker["incarnation"], broker["claims"]) == ("1-here", None)
        await opened.aclose()


async def test_a_store_whose_migration_was_interrupted_is_as_it_was_and_is_brought_up_to_date_by_the_next(
    tmp_path, monkeypatch
):
    path = tmp_path / "old.sqlite3"
    make_store_of_the_first_schema(path)

    def interrupted(_connection):
        raise Unavailable("killed")

    with monkeypatch.context() as once:
        once.setitem(migrations.STEPS, migrations.SCHEMA_VERSION, (interrupted,))
        with pytest.raises(Unavailable, match="killed"):
            await Store.open(f"sqlite:///{path}")
    opened = await Store.open(f"sqlite:///{path}")
    (share,) = await opened.rows(store.shares)
    assert (share["bound_burst"], share["lease_ms"]) == (7, None)
    assert len(await opened.rows(store.places)) == 1
    await opened.aclose()


async def test_files_of_sqlite_are_for_their_owner_alone(tmp_path):
    with no_umask():
        opened = await leading(f"sqlite:///{tmp_path / 's.sqlite3'}")
        await opened.apply([setting("a", 1)])
        found = modes(tmp_path)
        await opened.aclose()
    assert found.keys() >= {"s.sqlite3", "s.sqlite3-wal"}
    assert set(found.values()) == {OWNER_ALONE}


async def test_a_store_of_another_schema_is_refused(store_url):
    first = await leading(store_url)
    await first.apply([setting("schema", 999)])
    await first.aclose()
    with pytest.raises(Unavailable, match="schema 999"):
        await Store.open(store_url)


async def test_changes_are_made_beside_the_loop_and_a_defect_in_making_them_changes_nothing(tmp_path):
    opened = await Store.open(f"sqlite:///{tmp_path / 's.sqlite3'}")
    loop, made_in = threading.get_ident(), []

    def changes(defect: bool) -> Iterator[Replace]:
        made_in.append(threading.get_ident())
        yield setting("a", 1)
        if defect:
            raise ZeroDivisionError
        yield setting("b", 2)

    with pytest.raises(ZeroDivisionError):
        await opened.apply(changes(defect=True))
    assert await values(opened) == {}
    await opened.apply(changes(defect=False))
    assert await values(opened) == {"a": 1, "b": 2}
    assert loop not in made_in
    await opened.aclose()


@pytest.mark.postgres
@pytest.mark.slow
class TestSeveralDistributorsOnOneStore:
    async def test_they_may_all_create_it_at_the_same_time(self, postgres_url):
        opened = []

        async def open_one() -> None:
            opened.append(await Store.open(postgres_url))

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(open_one)
        assert len(opened) == 4
        for one in opened:
            await one.aclose()

    async def test_who_does_not_lead_changes_nothing(self, postgres_url):
        opened = await Store.open(postgres_url)
        with pytest.raises(NotLeader, match="which one leads is not known yet"):
            await opened.apply([setting("a", 1)])
        assert await values(opened) == {}
        await opened.aclose()

    async def test_a_leader_that_was_deposed_changes_nothing_and_is_told_who_leads(self, postgres_url):
        old, new = await leading(postgres_url), await Store.open(postgres_url)
        await old.apply([setting("a", 1)])
        await new.lead("http://new:1")
        with pytest.raises(NotLeader, match="the leader is http://new:1") as refused:
            await old.apply([setting("a", 2)])
        assert refused.value.leader == await old.leader_url() == "http://new:1"
        assert (
            old.doubtful.is_set()
        )  # one that wakes up late may have begun a term without the lead: who has it begins anew
        assert await values(old) == await values(new) == {"a": 1}
        old.follow()
        await old.lead("http://old:1")
        with pytest.raises(NotLeader):
            await new.apply([setting("a", 3)])
        await old.aclose()
        await new.aclose()

    async def test_a_change_that_hangs_does_not_keep_the_next_leader_waiting(self, postgres_server, postgres_url):
        # The old leader's transaction waits for a row that somebody else has locked.
        old, new = await leading(postgres_url), await Store.open(postgres_url)
        await old.apply([setting("a", 1)])
        with psycopg.connect(postgres_url) as blocker, trio.fail_after(20):
            blocker.execute("UPDATE settings SET value = 5 WHERE name = 'a'")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hangs, old)
                while not postgres_server.ask(postgres_url, WAITS_FOR_A_LOCK):
                    await trio.lowlevel.checkpoint()
                await new.lead("http://new")
            blocker.rollback()
        assert await values(new) == {"a": 1}
        assert old.doubtful.is_set()
        await old.aclose()
        await new.aclose()

    async def test_after_a_lost_connection_nothing_is_changed_before_the_store_was_read_again(self, postgres_url):
        opened = await leading(postgres_url)
        with psycopg.connect(postgres_url, autocommit=True) as other:
            # In the middle of the transaction: its session ends when the second row is inserted.
            other.execute(ENDS_THE_SESSION)
            with pytest.raises(Unavailable, match="terminating connection"):
                await opened.apply([setting("a", 1), setting("b", 1)])
            other.execute("DROP TRIGGER ends ON settings")
        assert opened.doubtful.is_set()
        with pytest.raises(Unavailable, match="the connection was lost; what is there is read again"):
            await opened.apply([setting("a", 1)])
        assert await values(opened) == {}
        await opened.lead("http://leader")
        await opened.apply([setting("a", 1)])
        assert await values(opened) == {"a": 1}
        await opened.aclose()

    async def test_what_is_read_is_one_state(self, postgres_url):
        writer, reader = await leading(postgres_url), await Store.open(postgres_url)
        await writer.apply([setting("a", 1)])

        def twice(connection: Connection) -> tuple[object, object]:
            first = store.rows(connection, store.settings)
            trio.from_thread.run(writer.apply, [setting("a", 2)])
            return first, store.rows(connection, store.settings)

        first, second = await reader.read(twice)
        assert first == second
        assert (await values(reader))["a"] == 2
        await writer.aclose()
        await reader.aclose()

    async def test_a_server_that_is_away_is_named_without_the_password(self, postgres_server):
        url = f"postgresql://me:secret@/nowhere?host={postgres_server.directory}"
        with pytest.raises(Unavailable, match=r"postgresql://me:\*\*\*@/nowhere\?host=.* does not exist") as refused:
            await Store.open(url)
        assert "secret" not in str(refused.value)
        with pytest.raises(Unavailable, match="No such file or directory") as refused:
            await Store.open("postgresql://me:secret@/srtm?host=/nowhere")
        assert "secret" not in str(refused.value)


WAITS_FOR_A_LOCK = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'srtm store' AND wait_event_type = 'Lock'"
ENDS_THE_SESSION = """
    CREATE FUNCTION ends() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
    CREATE TRIGGER ends BEFORE INSERT ON settings FOR EACH ROW WHEN (NEW.name = 'b') EXECUTE FUNCTION ends();
"""


async def hangs(opened: Store) -> None:
    with pytest.raises(Unavailable, match="terminating connection"):
        await opened.apply([setting("a", 2)])

"""A store that is put back from an older copy, or is another one: nobody exceeds an envelope for that."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from srtm.control import SyncRequest
from srtm.errors import Conflict, Unavailable
from tests.support.distributor_in_process import Distributor, FakeBroker, settle, spec, total

pytestmark = pytest.mark.usefixtures("no_threads")


@asynccontextmanager
async def opened(path: Path, *brokers: FakeBroker, **settings: object) -> AsyncIterator[Distributor]:
    """A distributor on that store, to which ``brokers`` come."""
    distributor = await Distributor.open(path, **settings)
    for broker in brokers:
        broker.syncing = distributor.syncing
    try:
        yield distributor
    finally:
        await distributor.aclose()


async def history(path: Path, copy: Path) -> tuple[FakeBroker, FakeBroker]:
    """Brokers a and b with half of the topic each; in the ``copy`` of the store a has all, and there is no b."""
    async with opened(path) as distributor:
        (a,) = await distributor.brokers("a", mcap=2000)
        await distributor.submit(spec())
        await settle(a)
        assert a.share() == (1100.0, 30.0)
    shutil.copy(path, copy)
    async with opened(path, a) as distributor:
        a.mcap = 600
        await settle(a)
        (b,) = await distributor.brokers("b")
        await distributor.submit(spec(count=101))
        await settle(a, b)
        assert total(a, b) == pytest.approx((1111.0, 30.0))
        assert b.share()[0] > 0
    return a, b


async def test_nothing_grows_before_a_broker_that_the_copy_does_not_know_was_heard(tmp_path: Path) -> None:
    a, b = await history(tmp_path / "store", tmp_path / "copy")
    for _ in range(2):  # another process on the same store knows it too
        async with opened(tmp_path / "copy", a, b) as distributor:
            for _ in range(10):
                await a.sync()
                rate, burst = total(a, b)
                assert rate <= 1111.0
                assert burst <= 30.0
            assert distributor.registry.broker("b").incarnation == "1"
    async with opened(tmp_path / "copy", a, b):
        await settle(a, b)
        await settle(a, b)  # b's acknowledgement came behind a's sync
        assert (a.share(), b.share()) == ((1100.0, 30.0), (0.0, 0.0))


async def test_what_is_dead_is_waited_for_no_longer(tmp_path: Path) -> None:
    a, b = await history(tmp_path / "store", tmp_path / "copy")
    async with opened(tmp_path / "copy", a, b) as distributor:
        await settle(a)
        await distributor.registry.declare_dead("b", "1")
        await settle(a)
        assert a.share() == (1100.0, 30.0)


async def cut_off(path: Path, copy: Path) -> tuple[FakeBroker, FakeBroker]:
    """``history``; then a comes to the copy, and says which b there was."""
    a, b = await history(path, copy)
    async with opened(copy, a):
        await a.settle()
    return a, b


async def test_a_copy_of_a_broker_that_the_store_does_not_know_is_not_taken_for_it(tmp_path: Path) -> None:
    _, b = await cut_off(tmp_path / "store", tmp_path / "copy")
    copied = replace(b, claims=("another directory",), incarnation="2")
    async with opened(tmp_path / "copy", b, copied):
        with pytest.raises(Conflict, match="not proven dead"):
            await copied.sync()
        await b.sync()


async def test_a_name_that_the_store_does_not_know_is_free_once_those_that_it_knows_have_spoken(
    tmp_path: Path,
) -> None:
    a, b = await history(tmp_path / "store", tmp_path / "copy")
    copied = replace(b, claims=("another directory",), incarnation="2")
    async with opened(tmp_path / "copy", a, b, copied):
        with pytest.raises(Unavailable, match="asked first"):
            await copied.sync()
        await a.sync()
        with pytest.raises(Conflict, match="not proven dead"):
            await copied.sync()
        await b.sync()


async def test_a_broker_that_the_store_does_not_know_may_start_again_meanwhile(tmp_path: Path) -> None:
    _, b = await cut_off(tmp_path / "store", tmp_path / "copy")
    b.restart()
    async with opened(tmp_path / "copy", b):
        await b.sync()


async def test_without_its_claims_a_broker_that_the_store_does_not_know_is_known_by_its_incarnation(
    tmp_path: Path,
) -> None:
    a, b = await history(tmp_path / "store", tmp_path / "copy")
    a.peer_claims = {}  # as told by an earlier version
    async with opened(tmp_path / "copy", a, b):
        await a.settle()
        with pytest.raises(Conflict, match="not proven dead"):
            await replace(b, incarnation="2").sync()
        await b.sync()


async def test_a_broker_that_kept_its_share_keeps_it_while_others_are_waited_for(tmp_path: Path) -> None:
    """The store of a broker that has heard of no change is not older for it: only another one tells."""
    async with opened(tmp_path / "store") as distributor:
        a, b = await distributor.brokers("a", "b")
        await distributor.submit(spec())
        await settle(a, b)
    shutil.copy(tmp_path / "store", tmp_path / "copy")
    b.version += 50  # it was told something, of another topic perhaps
    async with opened(tmp_path / "copy", a, b):
        await b.sync()
        assert (a.share(), b.share()) == ((550.0, 15.0), (550.0, 15.0))
        await settle(a, b)
        assert (a.share(), b.share()) == ((550.0, 15.0), (550.0, 15.0))


async def test_a_broker_that_does_not_say_whom_it_knows_is_asked_to(tmp_path: Path) -> None:
    a, _ = await history(tmp_path / "store", tmp_path / "copy")
    async with opened(tmp_path / "copy", a) as distributor:
        request = SyncRequest(
            incarnation="1",
            srtm_version="0.1.0",
            tcp_address=a.address,
            http_address="h:1",
            mcap=1.0,
            have_version=a.version,
            claims=["a its directory"],
            names_peers=True,
        )
        with pytest.raises(Unavailable, match="has to name the others"):
            await distributor.syncing.sync("a", request)
        await distributor.syncing.sync("a", msgspec.structs.replace(request, peers={}))


async def test_a_topic_younger_than_the_copy_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with opened(tmp_path / "store") as distributor:
        (a,) = await distributor.brokers("a", mcap=2000)
    shutil.copy(tmp_path / "store", tmp_path / "copy")
    async with opened(tmp_path / "store", a) as distributor:
        await settle(a)
        await distributor.submit(spec())
        await settle(a)
    async with opened(tmp_path / "copy", a):
        await settle(a)
    said = capsys.readouterr().err
    assert "WARNING: the store is older than what brokers were told broker=a" in said
    assert "topics=cars so='unlimited until they are submitted again'" in said
    assert a.topics == {}


async def test_brokers_keep_what_they_have_under_another_store_until_an_operator_says_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, _ = await history(tmp_path / "store", tmp_path / "copy")
    had = a.topics
    async with opened(tmp_path / "mistyped", a):
        for _ in range(2):
            with pytest.raises(Conflict, match=r"another cluster.*--adopt-brokers"):
                await a.sync()
    assert a.topics is had
    assert capsys.readouterr().err.count("WARNING: a broker is refused") == 1
    async with opened(tmp_path / "mistyped", a, adopt_brokers=True):
        await a.settle()
    assert a.topics == {}
    async with opened(tmp_path / "mistyped", a):
        await a.settle()


async def test_the_removal_of_a_topic_frees_no_share_that_its_broker_reports(tmp_path: Path) -> None:
    """Versions of an older store are given twice: that a broker has a later one does not say that it knows all."""
    async with opened(tmp_path / "store") as distributor:
        a, b = await distributor.brokers("a", "b")
        await distributor.submit(spec())
        await settle(a, b)
        await distributor.registry.remove("cars", purge=False)
        await settle(a)
    shutil.copy(tmp_path / "store", tmp_path / "copy")
    async with opened(tmp_path / "store", a, b) as distributor:
        await settle(a, b)
        await distributor.submit(spec())
        await settle(a, b)
    async with opened(tmp_path / "copy", a, b) as distributor:
        has = forgetting(b)
        await b.sync()
        has()  # the answer was lost
        a.mcap = 2000
        await settle(a)
        await distributor.submit(spec())
        for _ in range(10):
            await a.sync()
            assert total(a, b)[0] <= 1100.0


def forgetting(broker: FakeBroker) -> Callable[[], None]:
    """Calling the result undoes what ``broker`` hears from now on."""
    before = (broker.topics, broker.held, broker.version)

    def undo() -> None:
        broker.topics, broker.held, broker.version = before

    return undo


async def test_a_store_that_lost_changes_is_noticed_though_others_took_their_place_since(
    tmp_path: Path,
    autojump_clock: object,  # a plan waits for brokers
) -> None:
    """As after a failover to a standby that is behind (PostgreSQL without ``synchronous_commit``)."""
    a, b = await history(tmp_path / "store", tmp_path / "copy")
    async with opened(tmp_path / "copy", a, b) as distributor:
        await distributor.registry.state.wait_settled()  # a is silent for so long
        (c,) = await distributor.brokers("c", mcap=2000)
        for count in range(5):
            await distributor.submit(spec("trucks", count=10 + count))
        assert not distributor.registry.state.saw_older_store
        for _ in range(10):
            await settle(a, c)
            assert total(a, b)[0] <= 1111.0
        await settle(a, b, c)
        await settle(a, b, c)
        assert (a.share(), b.share()) == ((1100.0, 30.0), (0.0, 0.0))


async def test_a_store_that_lost_changes_is_noticed_by_later_leaders_too(
    tmp_path: Path,
    autojump_clock: object,  # a plan waits for brokers
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one heard nobody who knows of what was lost, and has issued shares since, under later versions."""
    monkeypatch.setattr("distributor.registry.state.secrets.randbelow", lambda _most: 10)
    a, b = await history(tmp_path / "store", tmp_path / "copy")
    monkeypatch.setattr("distributor.registry.state.secrets.randbelow", lambda _most: 10_000)
    async with opened(tmp_path / "copy") as distributor:
        await distributor.registry.state.wait_settled()  # a is silent for so long
        await distributor.submit(spec(count=99))
    async with opened(tmp_path / "copy", a, b):
        for _ in range(10):
            await settle(a)
            assert total(a, b)[0] <= 1111.0
        await settle(a, b)
        await settle(a, b)
        assert total(a, b)[0] <= 1089.0

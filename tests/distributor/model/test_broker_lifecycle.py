"""The life of a broker: what the registry makes of each event is what the table of transitions says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from distributor.model.broker_lifecycle import TRANSITIONS, BrokerEvent, BrokerState, next_state
from srtm.errors import Conflict, NotFound
from tests.support.distributor_in_process import Distributor, FakeBroker

pytestmark = pytest.mark.usefixtures("no_threads")


class Life:
    """Broker a of a distributor that also hears broker b."""

    def __init__(self, distributor: Distributor) -> None:
        self.distributor = distributor
        self.a = FakeBroker("a", distributor.syncing, mcap=600.0)
        self.b = FakeBroker("b", distributor.syncing, mcap=600.0)

    @property
    def state(self) -> BrokerState:
        return self.distributor.registry.broker_state("a")

    async def start(self) -> None:
        self.a.restart()
        await self.a.sync()

    async def silence(self) -> None:
        await trio.sleep(self.distributor.registry.config.liveness_s + 1)
        await self.b.sync()

    async def drain(self) -> None:
        await self.distributor.registry.drain("a", force=True)

    async def undrain(self) -> None:
        await self.distributor.registry.undrain("a")

    async def die(self) -> None:
        await self.distributor.registry.declare_dead("a", self.a.incarnation)

    async def forget(self) -> None:
        await self.distributor.registry.forget("a")

    async def do(self, event: BrokerEvent) -> None:
        doings: dict[BrokerEvent, Callable[[], Awaitable[object]]] = {
            BrokerEvent.SYNC: self.a.sync,
            BrokerEvent.START: self.start,
            BrokerEvent.TIMEOUT: self.silence,
            BrokerEvent.DRAIN: self.drain,
            BrokerEvent.UNDRAIN: self.undrain,
            BrokerEvent.DEATH: self.die,
            BrokerEvent.FORGET: self.forget,
        }
        await doings[event]()


BEFORE = {  # what brings a broker into each state
    BrokerState.UNKNOWN: (),
    BrokerState.EXPECTED: (BrokerEvent.START, None),  # None: the distributor starts again
    BrokerState.LIVE: (BrokerEvent.START,),
    BrokerState.SILENT: (BrokerEvent.START, BrokerEvent.TIMEOUT),
    BrokerState.DRAINING: (BrokerEvent.START, BrokerEvent.DRAIN),
    BrokerState.DEAD: (BrokerEvent.START, BrokerEvent.DEATH),
}


async def brought_to(path: Path, state: BrokerState) -> Life:
    life = Life(await Distributor.open(path))
    await life.b.sync()
    for event in BEFORE[state]:
        if event is not None:
            await life.do(event)
            continue
        a, b = life.a, life.b
        await life.distributor.aclose()
        life = Life(await Distributor.open(path))
        life.a, life.b = a, b
        a.syncing = b.syncing = life.distributor.syncing
    return life


ALLOWED = [(state, event) for state, row in TRANSITIONS.items() for event in row]
ASKED_FOR = (BrokerEvent.SYNC, BrokerEvent.DRAIN, BrokerEvent.DEATH, BrokerEvent.FORGET)
REFUSED = [
    (state, event)
    for state, row in TRANSITIONS.items()
    for event in ASKED_FOR
    if event not in row and (state, event) != (BrokerState.UNKNOWN, BrokerEvent.SYNC)  # its first sync is a start
]


@pytest.mark.parametrize(("state", "event"), ALLOWED)
async def test_what_the_table_allows_leads_where_it_says(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, state: BrokerState, event: BrokerEvent
) -> None:
    life = await brought_to(tmp_path / "store.sqlite3", state)
    assert life.state is state
    await life.do(event)
    assert life.state is next_state(state, event)
    await life.distributor.aclose()


@pytest.mark.parametrize(("state", "event"), REFUSED)
async def test_what_the_table_does_not_allow_is_refused(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, state: BrokerState, event: BrokerEvent
) -> None:
    life = await brought_to(tmp_path / "store.sqlite3", state)
    with pytest.raises((Conflict, NotFound)):
        await life.do(event)
    # A drain waits until it is known who lives.
    assert life.state is (BrokerState.SILENT if state is BrokerState.EXPECTED else state)
    await life.distributor.aclose()


def test_every_state_has_a_row_and_can_be_reached() -> None:
    assert TRANSITIONS.keys() == set(BrokerState)
    reached = {after for row in TRANSITIONS.values() for after in row.values()}
    assert reached == set(BrokerState) - {BrokerState.EXPECTED}  # by a restart of the distributor alone

"""The ledgers of two brokers, explored exhaustively: every order in which what they say can come, be repeated, or not
come, as long as each makes so many offers. What spin checks of the model (``docs/model/gdrl.pml``) holds of the code
itself, with the amounts that it really moves."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from adaptor.gdrl.exchange import Supply
from adaptor.gdrl.ledger import Ledger, Reply, Tokens
from srtm.topics.adaptation import Indicator
from srtm.units import MICRO

NAMES = ("a", "b")
RATE, BURST = 1_000 * MICRO, 8 * MICRO
OTHER = {"a": "b", "b": "a"}


@dataclass(frozen=True)
class Message:
    """Of the exchange that ``asker`` began."""

    asker: str
    number: int
    body: Supply | Reply | Tokens | None  # offer, reply, credit, acknowledgement


@dataclass(frozen=True)
class World:
    ledgers: dict[str, Ledger]
    said: frozenset[Message]  # once said it may come at any time, and again

    @property
    def key(self) -> tuple[str, frozenset[Message]]:
        return repr([vars(ledger) for ledger in self.ledgers.values()]), self.said

    @property
    def sums(self) -> tuple[int, int]:
        return sum(one.rate for one in self.ledgers.values()), sum(one.burst for one in self.ledgers.values())


def begin(indicator: Indicator) -> World:
    return World({name: Ledger(1, RATE // 2, BURST // 2, indicator) for name in NAMES}, frozenset())


def supply(ledger: Ledger, name: str, number: int) -> Supply:
    """Each time the other one wants more, so that every exchange moves something."""
    demand = 300.0 if (name == "a") == (number % 2 == 1) else 900.0
    return Supply(rate=ledger.rate, burst=ledger.burst, demand=demand)


def ask(world: World, asker: str) -> World:
    """What it owes, else an offer."""
    ledgers = copy.deepcopy(world.ledgers)
    mine, to = ledgers[asker], OTHER[asker]
    owed = mine.owed(to)
    if owed is not None:
        said = Message(asker, *owed)
    else:
        number = mine.offer(to)
        if any((one.asker, one.number) == (asker, number) for one in world.said):
            return world  # made again, under its number: whichever comes first counts
        said = Message(asker, number, supply(mine, asker, number))
    return World(ledgers, world.said | {said})


def deliver(world: World, message: Message) -> World:
    ledgers, asker, number = copy.deepcopy(world.ledgers), message.asker, message.number
    asked = OTHER[asker]
    match message.body:
        case Supply() as theirs:
            reply = ledgers[asked].answer(asker, number, theirs, supply(ledgers[asked], asked, number))
            return World(ledgers, world.said | ({Message(asker, number, reply)} if reply is not None else set()))
        case Reply() as reply:
            ledgers[asker].settle(asked, number, reply)
        case Tokens() as tokens:
            came = ledgers[asked].credit(asker, number, tokens)
            return World(ledgers, world.said | ({Message(asker, number, None)} if came else set()))
        case None:
            ledgers[asker].credited(asked, number)
    return World(ledgers, world.said)


def steps(world: World, offers: dict[str, int]) -> Iterator[World]:
    for asker in NAMES:
        after = ask(world, asker)
        if max(one.number for one in after.said if one.asker == asker) <= offers[asker]:
            yield after
    for message in world.said:
        yield deliver(world, message)


def explored(indicator: Indicator, offers: dict[str, int]) -> list[World]:
    """All that can be, as long as each makes at most so many offers."""
    first = begin(indicator)
    found, waiting = {first.key: first}, [first]
    while waiting:
        for after in steps(waiting.pop(), offers):
            if after.key not in found:
                found[after.key] = after
                waiting.append(after)
    return list(found.values())


def healed(world: World) -> World:
    """What was said last comes, in order, and so does what comes of that, until nobody owes or waits for anything."""
    for name in NAMES * 2:
        world = ask(world, name)
        for _ in range(4):  # offer, reply, credit, acknowledgement
            for message in sorted(_latest(world, name), key=_order):
                world = deliver(world, message)
            if world.ledgers[name].owed(OTHER[name]) is not None:
                world = ask(world, name)
    return world


def _latest(world: World, asker: str) -> list[Message]:
    said = [one for one in world.said if one.asker == asker]
    return [one for one in said if one.number == max(other.number for other in said)]


def _order(message: Message) -> int:
    return [Supply, Reply, Tokens, type(None)].index(type(message.body))


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("indicator", ["fill", "slack"])
def test_in_no_order_is_a_token_made_or_a_broker_left_without_one_and_none_is_stranded(indicator: Indicator) -> None:
    worlds = explored(indicator, {"a": 2, "b": 2})
    assert len(worlds) > 1_000
    for world in worlds:
        rate, burst = world.sums
        assert rate <= RATE
        assert burst <= BURST
        assert all(one.rate >= 1 and one.burst >= MICRO for one in world.ledgers.values())
        assert healed(world).sums == (RATE, BURST)

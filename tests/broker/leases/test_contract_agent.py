"""Brokers that hold replicated contracts together, in memory: each take is charged once at every other, whatever is
lost."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from broker.leases.contract_agent import JOIN_S, ROUND_S, ContractAgent
from broker.leases.contract_holder import ContractHolder
from broker.leases.contract_news import MOST_COST, Inbox, Outbox
from srtm.control import BrokerContract, BrokerContracts, ContractNews
from srtm.errors import Unavailable
from srtm.log import Log
from tests.support.fake_engine import FakeEngine

CORE = {"namespace": "s", "subject": "*", "policies": [{"name": "p"}], "shadow": False}
SHARED = BrokerContract(namespace="s", subject="*", core=msgspec.Raw(msgspec.json.encode(CORE)), replicated=True)


class Net:
    """Carries messages; loses some of them, and as many answers."""

    def __init__(self, lose: float) -> None:
        self.agents: dict[str, ContractAgent] = {}
        self.lose = lose
        self.overdrawn: dict[str, tuple[int, bytes]] = {}  # {address: answer}
        self.requests: list[float] = []  # trio time
        self.open: list[str] = []  # addresses
        self._dice = random.Random(5)

    def connect(self, address: str) -> Line:
        return Line(self, address)

    def lost(self) -> bool:
        return self._dice.random() < self.lose


class Line:
    def __init__(self, net: Net, address: str) -> None:
        self._net, self._address = net, address
        net.open.append(address)

    async def request(self, method: str, _target: str, body: bytes = b"", *, timeout_s: float) -> tuple[int, bytes]:
        await trio.sleep(0.001)
        if method == "GET":
            return self._net.overdrawn[self._address]
        self._net.requests.append(trio.current_time())
        if self._net.lost():
            raise Unavailable(f"no answer within {timeout_s} s")
        self._net.agents[self._address].take(msgspec.json.decode(body, type=ContractNews))
        if self._net.lost():
            raise Unavailable(f"no answer within {timeout_s} s")
        return 204, b""

    async def aclose(self) -> None:
        self._net.open.remove(self._address)


def charged(engine: FakeEngine) -> Counter[str]:
    found: Counter[str] = Counter()
    for call in engine.calls:
        for _, subject, cost in call[1] if call[0] == "charge_contracts" else ():
            found[subject] += cost
    return found


def agent(name: str, engine: Any, net: Net) -> ContractHolder:
    """Put an agent with a replicated contract into ``net``; its holder."""
    holder = ContractHolder(name, engine, Log(name, print))
    holder.apply(BrokerContracts(version=1, contracts=[SHARED]))
    net.agents[name] = ContractAgent(name, "1", engine, holder, net.connect)
    net.overdrawn[name] = 200, b'{"owed": []}'
    return holder


def two_brokers(
    nursery: trio.Nursery, clock: MockClock, *, lose: float = 0.0
) -> tuple[Net, list[ContractHolder], list[FakeEngine]]:
    """``a`` knows of ``b``: the net, both holders, both engines. Both run. Time passes by itself from then on."""
    net, engines = Net(lose), [FakeEngine(), FakeEngine()]
    holders = [agent(name, engine, net) for name, engine in zip("ab", engines, strict=True)]
    for holder, members in zip(holders, ({"b": "b"}, {}), strict=True):
        holder.meet(members)
        nursery.start_soon(net.agents[holder._name].run)
    clock.autojump_threshold = 0
    return net, holders, engines


@pytest.mark.parametrize("lose", [0.0, 0.3])
async def test_each_take_is_charged_once_at_every_other_broker(
    nursery: trio.Nursery, mock_clock: MockClock, lose: float
) -> None:
    net, names = Net(lose), ("a", "b", "c")
    engines: dict[str, Any] = {name: FakeEngine() for name in names}
    for name in names:
        agent(name, engines[name], net).meet({other: other for other in names})
        nursery.start_soon(net.agents[name].run)
    mock_clock.autojump_threshold = 0
    for _ in range(20):
        for name in names:
            engines[name].taken.append(("s", f"of {name}", 2))
        await trio.sleep(ROUND_S)
    net.lose = 0.0
    await trio.sleep(3)
    for name in names:
        assert charged(engines[name]) == {f"of {other}": 40 for other in names if other != name}


async def test_nobody_is_told_while_no_contract_is_replicated(nursery: trio.Nursery, mock_clock: MockClock) -> None:
    engine: Any = FakeEngine()
    holder = ContractHolder("a", engine, Log("a", print))
    holder.meet({"b": "b"})
    net = Net(0.0)
    nursery.start_soon(ContractAgent("a", "1", engine, holder, net.connect).run)
    engine.taken.append(("s", "x", 1))
    mock_clock.autojump_threshold = 0
    await trio.sleep(1)
    assert engine.taken == [("s", "x", 1)]
    holder.apply(BrokerContracts(version=1, contracts=[SHARED]))
    holder.apply(BrokerContracts(version=2, contracts=[msgspec.structs.replace(SHARED, replicated=False)]))
    assert not holder.replicates.is_set()


async def test_a_connection_is_kept_and_closed_when_its_broker_leaves(
    nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    net, (here, there), engines = two_brokers(nursery, mock_clock)
    for members in ({"b": "b"}, {"b": "b"}, {}, {"b": "b"}):
        here.meet(members)
        engines[0].taken.append(("s", "x", 1))
        await trio.sleep(3 * ROUND_S)
        assert net.open == list(members)
    assert charged(engines[1]) == {"x": 3}, "what is taken while a broker is no member, it is not told"
    assert there.members == {}


async def test_a_broker_that_moves_is_told_the_rest_at_its_new_address(
    nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    net, (here, _), engines = two_brokers(nursery, mock_clock, lose=1.0)
    engines[0].taken.append(("s", "x", 1))
    await trio.sleep(3 * ROUND_S)
    net.agents["new"], net.lose = net.agents.pop("b"), 0.0
    here.meet({"b": "new"})
    await trio.sleep(3 * ROUND_S)
    assert net.open == ["new"]
    assert charged(engines[1]) == {"x": 1}


async def test_a_broker_that_does_not_answer_is_asked_more_seldom_and_told_within_a_second_of_its_return(
    nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    net, _, engines = two_brokers(nursery, mock_clock, lose=1.0)
    engines[0].taken.append(("s", "x", 1))
    await trio.sleep(20)
    assert len(net.requests) <= 50
    net.lose = 0.0
    await trio.sleep(1.01)
    assert charged(engines[1]) == {"x": 1}


def joining(engine: FakeEngine) -> list[tuple[object, ...]]:
    """What the engine was told of contracts that others held before."""
    return [call for call in engine.calls if call[0] in ("join_contracts", "charge_contracts")]


async def test_a_broker_that_starts_asks_who_is_overdrawn_before_it_counts_what_it_is_told(
    nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    engine: Any = FakeEngine()
    net = Net(0.0)
    holder = agent("a", engine, net)
    net.overdrawn |= {
        "b": (200, b'{"owed": [["s", "x", 2], ["s", "y", 1]]}'),
        "c": (200, b'{"owed": [["s", "x", 3]]}'),
        "old": (404, b"{}"),
        "bad": (200, b'{"owed": [["s", "x", -1]]}'),
        "garbled": (200, b"{"),
    }
    nursery.start_soon(net.agents["a"].run)
    mock_clock.autojump_threshold = 0
    await trio.sleep(ROUND_S)
    net.agents["a"].take(ContractNews(sender="b", incarnation="1", number=1, taken=[("s", "x", 7)]))
    assert joining(engine) == [], "it does not know yet who the others are"
    holder.meet({name: name for name in ("a", "b", "c", "old", "bad", "garbled")})
    await trio.sleep(ROUND_S)
    assert joining(engine) == [
        ("join_contracts",),
        ("charge_contracts", [("s", "x", 3), ("s", "y", 1)], False),
        ("charge_contracts", [("s", "x", 7)], False),
    ]
    assert net.open == ["b", "c", "old", "bad", "garbled"], "one connection each, for news"


async def test_what_is_taken_before_the_others_are_known_is_told_them_and_counts_as_after_a_cut(
    nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    here, there = FakeEngine(), FakeEngine()
    net = Net(0.0)
    holder, _ = agent("a", here, net), agent("b", there, net)
    for name in "ab":
        nursery.start_soon(net.agents[name].run)
    mock_clock.autojump_threshold = 0
    await trio.sleep(JOIN_S + ROUND_S)
    assert joining(here)[0] == ("join_contracts",), "it does not wait for a distributor that is away"
    here.taken.append(("s", "x", 5))
    await trio.sleep(10)
    holder.meet({"b": "b"})
    await trio.sleep(3 * ROUND_S)
    here.taken.append(("s", "x", 6))
    await trio.sleep(3 * ROUND_S)
    assert joining(there)[-2:] == [
        ("charge_contracts", [("s", "x", 5)], True),
        ("charge_contracts", [("s", "x", 6)], False),
    ]


async def test_what_waits_for_a_broker_that_does_not_answer_is_late(
    nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    net, _, (here, there) = two_brokers(nursery, mock_clock, lose=1.0)
    for cost in (1, 2, 3):
        here.taken.append(("s", "x", cost))
        await trio.sleep(3 * ROUND_S)
    net.lose = 0.0
    await trio.sleep(2)
    here.taken.append(("s", "x", 4))
    await trio.sleep(2)
    told = [call[1:] for call in there.calls if call[0] == "charge_contracts" and call[1]]
    assert told == [([("s", "x", 1)], False), ([("s", "x", 5)], True), ([("s", "x", 4)], False)]


def test_a_message_is_the_same_until_it_is_acknowledged_and_fits_into_a_body() -> None:
    outbox = Outbox("a", "1", itertools.count(1))
    assert outbox.next() is None
    outbox.add(("n" * 255, f"{number:1024}", 1) for number in range(200))
    first = outbox.next()
    outbox.add([("s", "x", 1)])
    assert first is not None
    assert outbox.next() is first
    count = 0
    while (news := outbox.next()) is not None:
        assert len(msgspec.json.encode(news)) < 65_536
        count += len(news.taken)
        outbox.acknowledged()
    assert count == 201


def test_a_message_is_new_once_and_a_new_incarnation_begins_anew() -> None:
    inbox = Inbox()

    def is_new(incarnation: str, number: int) -> bool:
        return inbox.is_new(ContractNews(sender="a", incarnation=incarnation, number=number, taken=[]))

    assert [is_new("1", 1), is_new("1", 1), is_new("1", 2), is_new("2", 1), is_new("2", 1)] == [
        True,
        False,
        True,
        True,
        False,
    ]


def test_a_message_is_one_that_other_brokers_take() -> None:
    outbox, cost = Outbox("a", "1", itertools.count(1)), 3 * MOST_COST + 7
    outbox.add([("s", "huge", cost)])
    outbox.add(("s", f'"{chr(34) * 900}{number}', 1) for number in range(100))
    told: Counter[str] = Counter()
    while (news := outbox.next()) is not None:
        assert len(msgspec.json.encode(news)) < 65_536
        assert all(each <= MOST_COST for *_, each in news.taken)
        told.update({subject: each for _, subject, each in news.taken})
        outbox.acknowledged()
    assert told["huge"] == cost
    assert len(told) == 101

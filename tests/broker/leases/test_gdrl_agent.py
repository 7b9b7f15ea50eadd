"""Agents of several brokers in memory: they find the split by themselves, and nothing they do makes a token."""

from __future__ import annotations

import random

import msgspec
import pytest
import trio
from trio.testing import MockClock

from broker.leases.gdrl_agent import PATH, ROUND_S, GdrlAgent
from broker.leases.lease_holder import LeaseHolder
from srtm.control import DesiredTopic, Exchange, GdrlCredit, GdrlMessage, GdrlOffer, Share, SyncAnswer
from srtm.errors import Forbidden, Unavailable
from srtm.log import Log
from srtm.net.http_server import problem
from tests.support.fake_engine import FakeEngine

RATE, BURST = 12_000.0, 60.0


class Net:
    """Carries messages between agents; ``lose`` of them, and as many answers."""

    def __init__(self, lose: float = 0.0) -> None:
        self.agents: dict[str, GdrlAgent] = {}
        self.refuses = False
        self._lose = lose
        self._dice = random.Random(5)

    def connect(self, address: str) -> Line:
        return Line(self, address)

    def lost(self) -> bool:
        return self._dice.random() < self._lose


class Line:
    def __init__(self, net: Net, address: str) -> None:
        self._net, self._address = net, address

    async def request(self, method: str, target: str, body: bytes = b"", *, timeout_s: float) -> tuple[int, bytes]:
        assert (method, target) == ("POST", PATH)
        with trio.fail_after(timeout_s):
            await trio.sleep(0.002)
        if self._net.lost() or self._address not in self._net.agents:
            raise Unavailable("lost on its way")
        if self._net.refuses:
            refused = problem(Forbidden("b0", "broker", ["operator"]))
            return refused.status, refused.body
        answer = self._net.agents[self._address].answer(msgspec.json.decode(body, type=GdrlMessage))
        if self._net.lost():
            raise Unavailable("the answer was lost")
        return 200, msgspec.json.encode(answer)

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class CountingEngine(FakeEngine):
    """Whose topic has the same number of messages in every bin."""

    def __init__(self, a_bin: int) -> None:
        super().__init__()
        self._a_bin = a_bin

    def histories(self, topics: list[str], since: int) -> bytes:
        assert topics == ["cars"]
        until = max(round(trio.current_time() / ROUND_S), since)
        count = until - max(since, until - 100)
        bins = {
            "topic": "cars",
            "version": 1,
            "first": until - count,
            "arrivals": [self._a_bin] * count,
            "waiting": [0] * count,
            "unfinished": [0.0] * count,
            "delay_ns": [0] * count,
            "supply": [],
        }
        told = {"until": until, "bin_ns": 100_000_000, "wall_offset_ns": 0, "topics": [bins] if count else []}
        return msgspec.json.encode(told)


class Member:
    def __init__(self, net: Net, name: str, members: int, a_bin: int) -> None:
        self.said: list[str] = []
        self.engine = CountingEngine(a_bin)
        self.holder = LeaseHolder(self.engine)  # type: ignore[arg-type]
        dice, log = random.Random(name), Log("broker", self.said.append)
        self.agent = GdrlAgent(name, self.engine, self.holder, net.connect, dice, log)  # type: ignore[arg-type]
        net.agents[name] = self.agent
        self._share = Share(version=3, rate=RATE / members, burst=BURST / members)
        self._members = {f"b{at}": f"b{at}" for at in range(members)}

    def deal(self, epoch: int | None, version: int = 1, share: Share | None = None) -> None:
        exchange = None if epoch is None else Exchange(epoch=epoch, rate=RATE, members=self._members, indicator="fill")
        topic = DesiredTopic(topic="cars", share=share or self._share, histories=True, exchange=exchange)
        self.holder.apply(SyncAnswer(version=version, topics=[topic]), 0)
        self.agent.follow()

    @property
    def held(self) -> tuple[int, int]:
        bucket = self.engine.topics["cars"].bucket
        return bucket["rate_micro"], bucket["burst_micro"]


def six(net: Net) -> list[Member]:
    members = [Member(net, f"b{at}", 6, a_bin) for at, a_bin in enumerate([10, 30, 60, 120, 300, 480])]
    for one in members:
        one.deal(epoch=3)
    return members


async def run_for(members: list[Member], rounds: int) -> None:
    with trio.move_on_after(rounds * ROUND_S):
        async with trio.open_nursery() as nursery:
            for one in members:
                nursery.start_soon(one.agent.run)


async def test_six_brokers_agree_within_35_rounds_and_the_sum_is_exact(autojump_clock: MockClock) -> None:
    members = six(Net())
    await run_for(members, 35)
    rates = [one.held[0] / 1e6 for one in members]
    assert sum(one.held[0] for one in members) == RATE * 1e6
    assert sum(one.held[1] for one in members) == BURST * 1e6
    loads = [100.0, 300.0, 600.0, 1_200.0, 3_000.0, 4_800.0]
    ratios = [rate / load for rate, load in zip(rates, loads, strict=True)]
    assert max(ratios) - min(ratios) < 0.01 * max(ratios)


@pytest.mark.parametrize("lose", [0.2, 0.5])
async def test_what_is_lost_costs_tokens_in_flight_at_most_and_never_makes_one(
    autojump_clock: MockClock, lose: float
) -> None:
    members = six(Net(lose))
    for _ in range(10):
        await run_for(members, 5)
        assert sum(one.held[0] for one in members) <= RATE * 1e6
        assert sum(one.held[1] for one in members) <= BURST * 1e6
        assert all(one.held[0] > 0 and one.held[1] >= 1e6 for one in members)


async def test_what_the_distributor_deals_anew_is_in_force_and_old_messages_change_nothing(
    autojump_clock: MockClock,
) -> None:
    members = six(Net())
    await run_for(members, 10)
    moved = members[0]
    moved.deal(epoch=None, version=2, share=Share(version=9, rate=0.0, burst=0.0))
    assert moved.held == (0, 0)
    late = GdrlMessage(topic="cars", epoch=3, sender="b1", credit=GdrlCredit(number=1, rate=5, burst=5))
    assert not moved.agent.answer(late).accepted
    assert moved.held == (0, 0)


async def test_a_broker_that_gave_up_its_shares_takes_and_gives_nothing_any_more(autojump_clock: MockClock) -> None:
    members = six(Net())
    await run_for(members, 5)
    gone = members[5]
    gone.holder.give_up()
    await run_for(members, 10)
    assert gone.held == (0, 0)
    assert sum(one.held[0] for one in members) < RATE * 1e6


async def test_a_share_that_was_exchanged_stays_when_only_the_rest_of_the_topic_changes(
    autojump_clock: MockClock,
) -> None:
    members = six(Net())
    await run_for(members, 10)
    before = members[5].held
    again = DesiredTopic(
        topic="cars",
        share=Share(version=3, rate=RATE / 6, burst=BURST / 6),
        histories=True,
        exchange=members[5].holder.exchanges["cars"],
        on_excess="reject",
        channels=["c"],
    )
    members[5].holder.apply(SyncAnswer(version=2, topics=[again]), 0)
    members[5].agent.follow()
    assert members[5].held == before != (RATE * 1e6 / 6, BURST * 1e6 / 6)


async def test_a_partner_that_refuses_is_told_once(autojump_clock: MockClock) -> None:
    net = Net()
    members = [Member(net, name, 2, 10) for name in ("b0", "b1")]
    for one in members:
        one.deal(epoch=3)
    net.refuses = True
    await run_for(members, 20)
    (line,) = members[0].said
    assert "no tokens are exchanged partner=b1" in line
    net.refuses = False
    await run_for(members, 20)
    assert members[0].said == [line]


@pytest.mark.parametrize(("epoch", "back"), [(3, 1), (8, 2)])
async def test_a_member_that_may_not_exchange_for_a_while_goes_on_with_what_it_has(
    autojump_clock: MockClock, epoch: int, back: int
) -> None:
    members = six(Net())
    await run_for(members, 10)
    before = members[0].held
    members[0].deal(epoch=None, version=2)
    late = GdrlMessage(topic="cars", epoch=3, sender="b1", offer=GdrlOffer(number=99, rate=1, burst=1, demand=1.0))
    assert not members[0].agent.answer(late).accepted
    for one in members[:back]:
        one.deal(epoch=epoch, version=3)
    await run_for(members, 10)
    assert members[0].held[0] < RATE * 1e6 / 6  # it gave, and has not got back what it was dealt
    assert members[0].held != (RATE * 1e6 / 6, BURST * 1e6 / 6) != before
    assert sum(one.held[0] for one in members) <= RATE * 1e6
    assert sum(one.held[1] for one in members) <= BURST * 1e6


@pytest.mark.parametrize(
    "message",
    [
        GdrlMessage(topic="vans", epoch=3, sender="b1", offer=GdrlOffer(number=1, rate=1, burst=1, demand=1.0)),
        GdrlMessage(topic="cars", epoch=2, sender="b1", offer=GdrlOffer(number=1, rate=1, burst=1, demand=1.0)),
        GdrlMessage(topic="cars", epoch=3, sender="x", offer=GdrlOffer(number=1, rate=1, burst=1, demand=1.0)),
        GdrlMessage(topic="cars", epoch=3, sender="b1", offer=GdrlOffer(number=1, rate=-1, burst=1, demand=1.0)),
        GdrlMessage(topic="cars", epoch=3, sender="b1", offer=GdrlOffer(number=1, rate=1, burst=1, demand=-1.0)),
        GdrlMessage(topic="cars", epoch=3, sender="b1", credit=GdrlCredit(number=1, rate=10, burst=10)),
        GdrlMessage(topic="cars", epoch=3, sender="b1", credit=GdrlCredit(number=1, rate=-10, burst=10)),
        GdrlMessage(topic="cars", epoch=3, sender="b1"),
        *(
            GdrlMessage(
                topic="cars", epoch=3, sender="b1", offer=GdrlOffer(**{"number": 1, "rate": 1, "burst": 1, **wrong})
            )
            for wrong in (
                {"demand": 1.0, "rate": 10**400},
                {"demand": 1.0, "burst": 10**16},
                {"demand": 1e300},
                {"demand": 1.0, "dispersion": 1e-300},
                {"demand": 1.0, "batch": 10**400},
                {"demand": 1.0, "capacity": -1.0},
            )
        ),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(message: GdrlMessage) -> None:
    members = six(Net())
    before = members[0].held
    assert not members[0].agent.answer(message).accepted
    assert members[0].held == before


@pytest.mark.parametrize("amount", [10**400, 10**16])
async def test_a_credit_beyond_what_a_share_can_be_is_refused(autojump_clock: MockClock, amount: int) -> None:
    member = Member(Net(), "b0", 2, 10)
    member.deal(epoch=3)
    await run_for([member], 2)
    offer = GdrlMessage(topic="cars", epoch=3, sender="b1", offer=GdrlOffer(number=1, rate=1, burst=1, demand=1.0))
    assert member.agent.answer(offer).accepted
    before = member.held
    credit = GdrlMessage(topic="cars", epoch=3, sender="b1", credit=GdrlCredit(number=1, rate=amount, burst=0))
    assert not member.agent.answer(credit).accepted
    assert member.held == before
    assert member.agent.invalid_messages == 1


async def test_what_comes_is_known_before_tokens_are_given_away(autojump_clock: MockClock) -> None:
    await trio.sleep(20)
    member = Member(Net(), "b0", 2, 10)
    member.deal(epoch=3)
    before = member.held
    offer = GdrlMessage(topic="cars", epoch=3, sender="b1", offer=GdrlOffer(number=1, rate=1, burst=1, demand=1e4))
    assert not member.agent.answer(offer).accepted
    assert member.held == before
    await run_for([member], 2)
    assert member.agent.answer(offer).accepted


def test_an_offer_that_makes_no_sense_is_counted_and_one_of_another_epoch_is_not() -> None:
    member = six(Net())[0]
    for epoch, demand in ((3, -1.0), (2, 1.0)):
        offer = GdrlOffer(number=1, rate=1, burst=1, demand=demand)
        assert not member.agent.answer(GdrlMessage(topic="cars", epoch=epoch, sender="b1", offer=offer)).accepted
    assert member.agent.invalid_messages == 1

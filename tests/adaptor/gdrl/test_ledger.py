"""Transfers over a network that loses, delays, repeats and reorders: nothing is ever made, and all of it arrives."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from adaptor.gdrl.exchange import Supply, least_rate
from adaptor.gdrl.ledger import Ledger, Reply, Tokens
from srtm.units import MICRO

NAMES = ("a", "b", "c")
RATE, BURST = 3_000 * MICRO, 9 * MICRO


def supply(ledger: Ledger, demand: float) -> Supply:
    return Supply(rate=ledger.rate, burst=ledger.burst, demand=demand)


class Transfers(RuleBasedStateMachine):
    """Messages lie in a bag: any may be delivered at any time, again, or never."""

    def __init__(self) -> None:
        super().__init__()
        whole = Tokens(RATE, BURST)
        self.ledgers = {name: Ledger(1, RATE // 3, BURST // 3, "slack", whole=whole) for name in NAMES}
        self.offers: list[tuple[str, str, int, Supply]] = []
        self.replies: list[tuple[str, str, int, Reply]] = []
        self.credits: list[tuple[str, str, int, Tokens]] = []
        self.acknowledged: list[tuple[str, str, int]] = []

    @rule(pair=st.permutations(NAMES), demand=st.floats(1, 3_000))
    def ask(self, pair: list[str], demand: float) -> None:
        mine = self.ledgers[pair[0]]
        owed = mine.owed(pair[1])
        if owed is not None:
            self.credits.append((pair[0], pair[1], *owed))
        else:
            self.offers.append((pair[0], pair[1], mine.offer(pair[1]), supply(mine, demand)))

    @precondition(lambda self: self.offers)
    @rule(data=st.data(), demand=st.floats(1, 3_000))
    def deliver_offer(self, data: st.DataObject, demand: float) -> None:
        sender, to, number, theirs = data.draw(st.sampled_from(self.offers))
        ledger = self.ledgers[to]
        reply = ledger.answer(sender, number, theirs, supply(ledger, demand))
        if reply is not None:
            self.replies.append((to, sender, number, reply))

    @precondition(lambda self: self.replies)
    @rule(data=st.data())
    def deliver_reply(self, data: st.DataObject) -> None:
        sender, to, number, reply = data.draw(st.sampled_from(self.replies))
        assert self.ledgers[to].settle(sender, number, reply)

    @precondition(lambda self: self.credits)
    @rule(data=st.data())
    def deliver_credit(self, data: st.DataObject) -> None:
        sender, to, number, tokens = data.draw(st.sampled_from(self.credits))
        assert self.ledgers[to].credit(sender, number, tokens)
        self.acknowledged.append((to, sender, number))

    @precondition(lambda self: self.acknowledged)
    @rule(data=st.data())
    def deliver_acknowledgement(self, data: st.DataObject) -> None:
        sender, to, number = data.draw(st.sampled_from(self.acknowledged))
        self.ledgers[to].credited(sender, number)

    @invariant()
    def shares_never_sum_to_more_than_there_is_and_each_keeps_a_token(self) -> None:
        assert sum(one.rate for one in self.ledgers.values()) <= RATE
        assert sum(one.burst for one in self.ledgers.values()) <= BURST
        assert all(one.rate >= 1 and one.burst >= MICRO for one in self.ledgers.values())


TestTransfers = Transfers.TestCase
TestTransfers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def exchanged(asker: Ledger, asked: Ledger, demands: tuple[float, float], *, repeat: int = 1) -> None:
    """A whole exchange, each message ``repeat`` times."""
    number, offered = asker.offer("asked"), supply(asker, demands[0])
    for _ in range(repeat):
        reply = asked.answer("asker", number, offered, supply(asked, demands[1]))
        assert reply is not None
        asker.settle("asked", number, reply)
    owed = asker.owed("asked")
    if owed is not None:
        for _ in range(repeat):
            assert asked.credit("asker", *owed)
        asker.credited("asked", number)


def test_an_exchange_conserves_and_evens_out_also_where_every_message_comes_twice() -> None:
    for repeat in (1, 2):
        asker, asked = Ledger(1, 1_000 * MICRO, 5 * MICRO, "fill"), Ledger(1, 1_000 * MICRO, 5 * MICRO, "fill")
        exchanged(asker, asked, (300.0, 900.0), repeat=repeat)
        assert (asker.rate, asked.rate) == (500 * MICRO, 1_500 * MICRO)
        assert asker.burst + asked.burst == 10 * MICRO
        assert asker.owed("asked") is None


def test_an_offer_without_an_answer_is_made_again_under_its_number() -> None:
    ledger = Ledger(1, MICRO, MICRO, "fill")
    assert [ledger.offer("b"), ledger.offer("b")] == [1, 1]
    ledger.settle("b", 1, Reply(Tokens(), Tokens()))
    assert ledger.offer("b") == 2


def test_an_offer_from_the_past_is_refused_and_so_is_a_credit_for_no_offer() -> None:
    ledger, theirs = Ledger(1, 9 * MICRO, 3 * MICRO, "fill"), Supply(rate=MICRO, burst=MICRO, demand=5.0)
    assert ledger.answer("b", 2, theirs, supply(ledger, 1.0)) is not None
    assert ledger.answer("b", 1, theirs, supply(ledger, 1.0)) is None
    assert not ledger.credit("b", 3, Tokens(1, 1))
    assert not ledger.credit("c", 1, Tokens(1, 1))


def test_no_more_is_credited_than_was_asked_for_or_than_the_others_can_have() -> None:
    whole = Tokens(1_000 * MICRO, 10 * MICRO)
    ledger = Ledger(1, 400 * MICRO, 4 * MICRO, "fill", whole=whole)
    boast = Supply(rate=10**6 * MICRO, burst=10**6 * MICRO, demand=1.0)
    reply = ledger.answer("b", 1, boast, supply(ledger, 900.0))
    assert reply is not None
    assert reply.asks.rate > 1_000 * MICRO
    assert not ledger.credit("b", 1, Tokens(reply.asks.rate + 1, 0))
    assert not ledger.credit("b", 1, reply.asks)
    assert not ledger.credit("b", 1, Tokens(601 * MICRO, 0))
    assert ledger.credit("b", 1, Tokens(600 * MICRO, 6 * MICRO))
    assert (ledger.rate, ledger.burst) == (whole.rate, whole.burst)
    assert not ledger.settle("c", ledger.offer("c"), Reply(Tokens(1, 0), Tokens()))
    assert (ledger.rate, ledger.burst) == (whole.rate, whole.burst)


@pytest.mark.parametrize("rate", [1_000 * MICRO, 20 * MICRO, 5])
def test_a_transfer_leaves_the_least_rate_or_what_there_was_if_that_is_less(rate: int) -> None:
    least = least_rate(1_000 * MICRO)
    assert least == 20 * MICRO
    for starved in ("asker", "asked"):
        asker, asked = (Ledger(1, rate, 5 * MICRO, "fill", least) for _ in range(2))
        demands = (0.001, 1e9) if starved == "asker" else (1e9, 0.001)
        for _ in range(3):
            exchanged(asker, asked, demands)
        assert (asker if starved == "asker" else asked).rate == min(rate, least)
        assert asker.rate + asked.rate == 2 * rate

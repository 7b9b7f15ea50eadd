"""What a broker takes its demand to be when it exchanges tokens."""

from __future__ import annotations

import random

import msgspec

from broker.leases.gdrl_exchanges import GdrlExchanges
from broker.leases.lease_holder import LeaseHolder
from srtm.control import DesiredTopic, Exchange, GdrlCredit, GdrlMessage, GdrlOffer, Share, SyncAnswer
from srtm.units import MICRO
from tests.support.fake_engine import FakeEngine

FIRST = 1_000  # number of a bin


class Looked(FakeEngine):
    """``waiting`` messages wait for tokens in every bin up to ``until``, and none comes."""

    def __init__(self) -> None:
        super().__init__()
        self.until, self.waiting = FIRST, 0

    def histories(self, topics: list[str], since: int) -> bytes:
        count = self.until - max(since, self.until - 128)
        bins = {
            "version": 1,
            "first": self.until - count,
            "arrivals": [0] * count,
            "waiting": [self.waiting] * count,
            "unfinished": [0.0] * count,
            "delay_ns": [0] * count,
            "supply": [],
        }
        told = [{"topic": topic, **bins} for topic in topics] if count and self.waiting else []
        return msgspec.json.encode({"until": self.until, "bin_ns": 100_000_000, "wall_offset_ns": 0, "topics": told})


class Rig:
    def __init__(self) -> None:
        self.engine = Looked()
        holder = self.holder = LeaseHolder(self.engine)  # type: ignore[arg-type]
        self.exchanges = GdrlExchanges("b0", self.engine, holder, random.Random(1))  # type: ignore[arg-type]
        exchange = Exchange(epoch=1, rate=1_000.0, burst=20.0, members={"b0": "b0:1", "b1": "b1:1"}, indicator="fill")
        share = Share(version=1, rate=500.0, burst=10.0)
        topic = DesiredTopic(topic="cars", share=share, histories=True, exchange=exchange)
        holder.apply(SyncAnswer(version=1, topics=[topic]), 0)
        self.exchanges.follow()

    @property
    def demand(self) -> float:
        """Msg/s, as the next offer tells it."""
        self.exchanges.update()
        errand = self.exchanges.next_message("cars")
        assert errand is not None
        assert errand.message.offer is not None
        return errand.message.offer.demand


def test_what_waits_is_remembered_in_a_round_in_which_no_bin_ends() -> None:
    rig = Rig()
    rig.engine.waiting = 4_000
    assert rig.demand == 4_000.0
    assert rig.demand == 4_000.0
    rig.engine.until += 1
    rig.engine.waiting = 0
    assert rig.demand < 20.0


def test_weeks_in_which_nothing_was_exchanged_are_over_at_once() -> None:
    rig = Rig()
    rig.engine.waiting = 1
    assert rig.demand < 20.0
    rig.engine.until += 10**12
    rig.engine.waiting = 0
    assert rig.demand < 20.0


def test_who_boasts_of_tokens_and_then_credits_them_mints_none() -> None:
    rig = Rig()
    rig.engine.waiting = 4_000
    rig.exchanges.update()
    million = 10**6 * MICRO
    boast = GdrlOffer(number=1, rate=million, burst=million, demand=1.0, dispersion=1.0, batch=1)
    assert rig.exchanges.answer(GdrlMessage(topic="cars", epoch=1, sender="b1", offer=boast)).accepted
    credit = GdrlCredit(number=1, rate=million // 2, burst=1_000 * MICRO)
    assert not rig.exchanges.answer(GdrlMessage(topic="cars", epoch=1, sender="b1", credit=credit)).accepted
    assert rig.holder.in_force("cars") == (500 * MICRO, 10 * MICRO)

"""What the adaptor makes of the reports of brokers to which little comes, as these send them."""

from __future__ import annotations

import random

from adaptor.observations import BIN_S
from adaptor.topics import TopicStates
from broker.history.bins import EngineBins, EngineHistories
from broker.history.schedule import HistorySchedule
from srtm.control import BrokerHistory, BrokerTraits, HistoryAnswer, Share, TopicHistories, TopicTraits
from tests.broker.history.test_schedule import BIN_NS

RATES = {"b1": 12.0, "b2": 500.0}  # msg/s


def engine_histories(number: int, arrivals: int) -> EngineHistories:
    bins = EngineBins(
        topic="cars",
        version=1,
        first=number,
        arrivals=[arrivals],
        waiting=[0],
        unfinished=[1.0 if arrivals else 0.0],
        delay_ns=[0],
        supply=[],
    )
    there = [bins] if arrivals else []
    return EngineHistories(until=number + 1, bin_ns=BIN_NS, wall_offset_ns=0, topics=there)


def test_little_traffic_keeps_its_share_while_its_broker_waits_for_ten_seconds_of_it() -> None:
    dice, book = random.Random(1), TopicStates()
    followed = {name: HistorySchedule() for name in RATES}
    followed["b1"].follow(["cars"], ["cars"])
    followed["b2"].follow(["cars"])  # as one whose traffic never becomes steady: shares are looked at every second
    shares = {name: Share(version=1, rate=5 * rate, burst=10.0) for name, rate in RATES.items()}
    traits = TopicTraits(brokers={name: BrokerTraits(rate=rate) for name, rate in RATES.items()})
    total, reasons = sum(share.rate for share in shares.values()), []
    for number in range(1_000, 1_400):
        reports = []
        for name, rate in RATES.items():
            arrivals = sum(dice.random() < rate * BIN_S / 50 for _ in range(50))
            told = followed[name].due_reports(engine_histories(number, arrivals), (number + 1) * BIN_NS)
            reports += [BrokerHistory(broker=name, history=one) for one in told]
        topic = TopicHistories(
            topic="cars",
            mode="fitted",
            rate=total,
            burst=20.0,
            version=1,
            shares=shares,
            reports=reports,
            traits=traits,
        )
        for proposal in book.take(HistoryAnswer(version=1, topics=[topic] if reports else []), number * BIN_S):
            shares = {
                name: Share(version=1, rate=share.rate, burst=share.burst) for name, share in proposal.shares.items()
            }
            reasons.append(proposal.reason)
    assert reasons == []

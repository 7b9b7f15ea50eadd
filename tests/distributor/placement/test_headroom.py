"""What brokers carry, and so what each can process of a topic beside all others."""

from __future__ import annotations

import msgspec
import pytest
import trio

from distributor.model.broker_load import loads_of
from distributor.placement.headroom import Headroom
from distributor.placement.proposals import shares_version, traits
from srtm.control import ProposedShare, ShareProposal, TopicReport
from srtm.topics.capacity import Capacity, Class
from srtm.topics.spec import Slo, parse_change
from tests.support.distributor_in_process import Distributor, FakeBroker, settle, spec

pytestmark = pytest.mark.usefixtures("no_threads")

WIDE = {"mode": "fitted", "placement": "lb"}  # of 500 msg/s on each of two brokers, r = 1,100


async def two(distributor: Distributor, mcap: float = 1_000.0) -> list[FakeBroker]:
    return await distributor.brokers("a", "b", mcap=mcap)


def most(distributor: Distributor, topic: str = "cars", broker: str = "a") -> float | None:
    return distributor.registry.max_rate(distributor.registry.topics[topic], broker)


def proposal(distributor: Distributor, shares: dict[str, float]) -> ShareProposal:
    version = shares_version(distributor.registry.topics["cars"])
    given = {name: ProposedShare(rate=rate, burst=10.0) for name, rate in shares.items()}
    return ShareProposal(topic="cars", mode="fitted", version=version, shares=given)


def report(topic: str, released: int) -> TopicReport:
    return TopicReport(topic=topic, share_version=1, received=released, released=released)


async def test_others_take_what_was_assigned_to_them_and_their_leaving_gives_it_back(distributor) -> None:
    await two(distributor)
    await distributor.submit(spec(**WIDE))
    assert most(distributor) == 1_000.0
    await distributor.submit(spec("vans", count=20, placement="lb"))
    assert most(distributor) == 900.0
    await distributor.registry.change_publishers("vans", lambda old: parse_change(old, {"remove": ["p0", "p1"]}))
    assert most(distributor) == 1_000.0 - distributor.registry.topics["vans"].placement.assigned["a"]
    await distributor.registry.remove("vans", purge=False)
    assert most(distributor) == 1_000.0


async def test_a_proposal_above_what_others_leave_is_refused_with_the_rule_and_what_was_told_is_taken(
    distributor,
) -> None:
    brokers = await two(distributor)
    await distributor.submit(spec(**WIDE))
    await distributor.submit(spec("vans", count=60, placement="lb"))
    await settle(*brokers)
    topic = distributor.registry.topics["cars"]
    told = traits(topic, distributor.registry.max_rate).brokers["a"].capacity
    assert told == 700.0
    (refused,) = (await distributor.registry.adapt([proposal(distributor, {"a": told + 0.001, "b": 300.0})])).results
    assert not refused.taken
    assert "shares.a.rate: 700.001: must be at most 700 msg/s: what a can process" in refused.problem
    assert distributor.registry.topics["cars"].leases.target == topic.leases.target
    (taken,) = (await distributor.registry.adapt([proposal(distributor, {"a": told, "b": 300.0})])).results
    assert taken.taken


async def test_on_a_full_broker_a_topic_keeps_the_slack_that_its_placed_part_of_the_envelope_has(distributor) -> None:
    await two(distributor, mcap=600.0)
    await distributor.submit(spec(**WIDE))
    await distributor.submit(spec("vans", count=20, placement="lb"))
    assert most(distributor) == pytest.approx(550.0)  # not the 500 that are left, under which messages would pile up
    assert most(distributor, "vans") == pytest.approx(110.0)


async def test_a_broker_of_which_nothing_is_stated_or_measured_is_not_limited(distributor) -> None:
    await two(distributor, mcap=0.0)
    await distributor.submit(spec(**WIDE))
    assert most(distributor) is None
    figure = Capacity(mcap=800.0, slo=Slo(percentile=99, latency_ms=5), traffic=Class(publishers=100))
    await distributor.registry.set_capacity("a", figure)
    assert (most(distributor), most(distributor, broker="b")) == (800.0, None)
    strict = Capacity(mcap=650.0, slo=Slo(percentile=99, latency_ms=1), traffic=Class(publishers=100))
    await distributor.registry.set_capacity("a", strict)
    await distributor.submit(spec("vans", count=2, placement="lb", slo={"percentile": 99, "latency_ms": 1}))
    assert most(distributor) == 640.0  # the hardest promise decides


async def observed(broker: FakeBroker, rates: dict[str, float]) -> None:
    """What ``broker`` lets go in ten seconds."""
    before = {one.topic: one.released for one in broker.reports}
    for second in range(1, 11):
        broker.reports = [report(name, before.get(name, 0) + round(rate * second)) for name, rate in rates.items()]
        await broker.sync()
        await trio.sleep(1)


async def test_what_others_are_seen_to_let_go_counts_where_it_clearly_differs_from_what_was_assigned(
    distributor, autojump_clock
) -> None:
    a, _ = await two(distributor)
    await distributor.submit(spec(**WIDE))
    await distributor.submit(spec("vans", count=20, placement="lb"))
    await settle(a)
    await observed(a, {"vans": 110.0, "cars": 900.0})
    assert most(distributor) == 900.0  # Poisson, in groups: 110 is no news
    await observed(a, {"vans": 300.0})
    assert most(distributor) == pytest.approx(700.0, rel=0.01)
    before = most(distributor)
    await observed(a, {"vans": 310.0})
    assert most(distributor) == before
    await observed(a, {"vans": 0.0})
    assert most(distributor) == 1_000.0


async def test_some_rare_messages_at_once_are_no_news(distributor, autojump_clock) -> None:
    a, _ = await two(distributor)
    await distributor.submit(spec(**WIDE))
    await distributor.submit(spec("vans", count=20, rate=0.02, placement="lb"))  # 0.2 msg/s on each broker
    await settle(a)
    before = most(distributor)
    await observed(a, {"vans": 4.0})  # one group fires twice in a window, or two do
    assert most(distributor) == before
    await observed(a, {"vans": 20.0})
    assert most(distributor) == pytest.approx(980.0)


async def test_topics_are_looked_at_anew_only_where_what_a_broker_carries_may_bound_a_share(
    distributor, monkeypatch
) -> None:
    await two(distributor, mcap=3_000.0)
    await distributor.submit(spec(**WIDE))
    histories = distributor.syncing.histories
    known = (await histories.answer(0, 0.0)).version
    looked_at: list[str] = []
    max_rate = distributor.registry.max_rate
    monkeypatch.setattr(
        distributor.registry,
        "max_rate",
        lambda topic, broker: looked_at.append(topic.name) or max_rate(topic, broker),
    )

    async def told(load: int) -> list[str]:
        """Topics of which the adaptor is told after another one of ``load`` msg/s has come."""
        nonlocal known
        looked_at.clear()
        await distributor.submit(spec(f"vans-{load}", count=load // 10, placement="lb"))
        answer = await histories.answer(max(known, 1), 0.0)
        known = answer.version
        return [one.topic for one in answer.topics]

    assert await told(400) == []
    assert "cars" not in looked_at  # 3,000 - 700: nothing that is there has as much to be split
    assert await told(3_600) == ["cars"]
    assert await told(100) == ["cars"]


async def test_unlimited_topics_count_too_and_are_forgotten_with_their_broker(distributor, autojump_clock) -> None:
    a, _ = await two(distributor)
    await distributor.submit(spec(**WIDE))
    await settle(a)
    await observed(a, {"loose": 250.0})
    assert most(distributor) == pytest.approx(750.0, rel=0.01)
    a.restart()
    await a.sync()
    await observed(a, {"loose": 100.0})
    assert most(distributor) == pytest.approx(900.0, rel=0.01)
    distributor.syncing.forget("a")
    assert most(distributor) == 1_000.0


async def test_the_adaptor_is_told_of_a_topic_for_which_others_leave_less_room_without_any_report_of_it(
    distributor,
) -> None:
    await two(distributor)
    await distributor.submit(spec(**WIDE))
    histories = distributor.syncing.histories
    known = (await histories.answer(0, 0.0)).version
    await distributor.submit(spec("vans", count=60, placement="lb"))
    answer = await histories.answer(max(known, 1), 0.0)
    told = {one.topic: one.traits.brokers["a"].capacity for one in answer.topics}
    assert told["cars"] == 700.0
    again = await histories.answer(answer.version, 0.0)
    assert again.topics == []


async def test_brokers_that_exchange_tokens_are_told_when_others_leave_them_less_room(distributor) -> None:
    brokers = await two(distributor)
    await distributor.submit(spec(mode="gdrl", placement="lb"))
    await settle(*brokers)
    exchange = brokers[0].topics["cars"].exchange
    assert exchange is not None
    assert exchange.capacity == 1_000.0
    await distributor.submit(spec("vans", count=60, placement="lb"))
    await settle(*brokers)
    assert brokers[0].topics["cars"].exchange == msgspec.structs.replace(exchange, capacity=700.0)


async def test_sums_that_were_kept_are_those_of_all_topics_as_they_are(distributor) -> None:
    await two(distributor, mcap=100_000.0)
    for number in range(12):
        await distributor.submit(spec(f"t{number}", count=10 + number, rate=0.1 + number / 7, placement="lb"))
    for number in range(0, 12, 3):
        await distributor.registry.remove(f"t{number}", purge=False)
    for number in range(1, 12, 3):
        await distributor.submit(spec(f"t{number}", count=3, rate=1.1, placement="conc"))
    topics, kept = distributor.registry.topics, distributor.registry.headroom
    fresh = Headroom()
    for topic in topics.values():
        fresh.note(topic)
    loads = loads_of(topics.values())
    for broker in ("a", "b"):
        assert (
            kept.other_load(broker, "")
            == fresh.other_load(broker, "")
            == pytest.approx(loads[broker].allocated, abs=1e-3)
        )
        assert set(kept.topics_on(broker)) == loads[broker].rates.keys()

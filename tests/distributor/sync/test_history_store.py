"""HistoryStore: what is taken, what is ignored and counted, what is told to whom and when."""

import math
import random
from dataclasses import replace

import httpx
import msgspec
import pytest
import trio

from distributor.api.app import make_app
from distributor.sync.history_store import HistoryStore, problem
from srtm.control import HistoryAnswer, HistoryReport, ProposedShare, RateChange, ShareProposal, TopicHistory
from srtm.errors import Conflict, NotFound, NotLeader
from tests.support.distributor_in_process import Distributor, settle, spec

NOW_NS = 1_790_000_000_000_000_000
BIN_NS = 100_000_000


def history(**fields):
    columns = {"arrivals": [5, 6], "waiting": [0, 1], "unfinished": [1.0, 2.5]}
    return TopicHistory(**{"topic": "cars", "share_version": 3, "first_ns": NOW_NS - 2 * BIN_NS, **columns, **fields})


def report(*histories, incarnation="1"):
    return HistoryReport(incarnation=incarnation, topics=list(histories))


@pytest.fixture
async def placed(distributor: Distributor):
    """A topic on two brokers, followed."""
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec(mode="fitted"))
    await settle(a, b)
    return distributor


@pytest.fixture
async def histories(placed):
    return HistoryStore(placed.registry, wall_ns=lambda: NOW_NS)


async def test_brokers_are_told_to_send_histories_where_the_mode_follows_traffic(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec("still"))
    await distributor.submit(spec("moving", mode="fitted"))
    await settle(a, b)
    assert {name: topic.histories for name, topic in a.topics.items()} == {"still": False, "moving": True}


async def test_what_came_is_told_once_with_what_a_proposal_must_know(placed, histories):
    histories.take("a", report(history()))
    answer = await histories.answer(0, 0.0)
    (told,) = answer.topics
    assert (told.topic, told.mode, told.rate, told.burst) == ("cars", "fitted", 1100.0, 30.0)
    assert [(one.broker, one.history) for one in told.reports] == [("a", history())]
    assert told.shares.keys() == {"a", "b"}
    assert sum(share.rate for share in told.shares.values()) == pytest.approx(1100.0)
    assert told.version >= placed.registry.topic("cars").version
    assert told.traits.brokers.keys() == {"a", "b"}
    again = await histories.answer(answer.version, 0.0)
    assert (again.version, again.topics) == (answer.version, [])


async def test_only_topics_that_have_grown_are_told_and_of_them_what_is_new(placed, histories):
    await placed.submit(spec("trains", mode="fitted", count=10))
    histories.take("a", report(history(), history(topic="trains")))
    first = await histories.answer(0, 0.0)
    assert {told.topic for told in first.topics} == {"cars", "trains"}
    histories.take("b", report(history(arrivals=[9, 9])))
    (told,) = (await histories.answer(first.version, 0.0)).topics
    assert [(told.topic, one.broker, one.history.arrivals) for one in told.reports] == [("cars", "b", [9, 9])]


class Looked(dict):
    """Counts who looks anything up."""

    lookups = 0

    def get(self, *key):
        self.lookups += 1
        return super().get(*key)


async def test_a_look_costs_by_what_is_new_not_by_what_is_kept(placed, histories):
    for _ in range(50):
        histories.take("a", report(history()))
    known = (await histories.answer(0, 0.0)).version
    state = placed.registry.state
    state.brokers, state.table.topics = Looked(state.brokers), Looked(state.topics)
    await histories.answer(known, 0.0)
    assert (state.brokers.lookups, state.topics.lookups) == (0, 0)


async def test_whoever_asks_is_told_all_that_came_since_in_order_whenever_that_was(placed, histories, autojump_clock):
    await placed.submit(spec("trains", mode="fitted", count=10))
    dice, told = random.Random(7), []  # (version, when, topic, mark)
    for mark in range(1, 80):
        topic = dice.choice(["cars", "trains"])
        histories.take(dice.choice("ab"), report(history(topic=topic, arrivals=[mark, mark])))
        told.append((histories.version, trio.current_time(), topic, mark))
        await trio.sleep(dice.choice([0.0, 0.3, 1.1]))
        since = dice.choice([0, *(version for version, *_ in told)])
        answer = await histories.answer(since, 0.0)
        found = {one.topic: [part.history.arrivals[0] for part in one.reports] for one in answer.topics}
        due = [one for one in told if one[0] > since and one[1] >= trio.current_time() - 10]
        assert found == {name: [one[3] for one in due if one[2] == name] for name in {one[2] for one in due}}


async def test_a_question_waits_for_news(placed, histories, autojump_clock, nursery):
    async def report_later():
        await trio.sleep(3)
        histories.take("a", report(history()))

    nursery.start_soon(report_later)
    started_s = trio.current_time()
    answer = await histories.answer(histories.version, 30.0)
    assert (trio.current_time() - started_s, len(answer.topics)) == (pytest.approx(3), 1)
    nothing = await histories.answer(answer.version, 2.0)
    assert (trio.current_time() - started_s, nothing.topics) == (pytest.approx(5), [])


async def test_what_comes_together_with_the_end_of_the_wait_is_told_then_or_next(histories, autojump_clock):
    for _ in range(20):  # of two tasks that wake at once, either may be first
        since, answers = histories.version, []

        async def ask(since=since, answers=answers):
            answers.append(await histories.answer(since, 3.0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(3.0)
            histories.take("a", report(history()))
        answers.append(await histories.answer(answers[0].version, 0.0))
        assert [len(answer.topics) for answer in answers] in ([1, 0], [0, 1])


async def test_what_is_steady_is_kept_for_whoever_knows_nothing_until_another_report_comes(histories, autojump_clock):
    histories.take("a", report(history(steady=True, arrivals=[7, 7])))
    histories.take("b", report(history()))
    known = (await histories.answer(0, 0.0)).version
    await trio.sleep(60)
    (told,) = (await histories.answer(0, 0.0)).topics
    assert [(one.broker, one.history.arrivals) for one in told.reports] == [("a", [7, 7])]
    assert "a" in histories.arrival_rates("cars")
    assert (await histories.answer(known, 0.0)).topics == []
    histories.take("a", report(history()))
    await trio.sleep(60)
    assert (await histories.answer(0, 0.0)).topics == []


async def test_the_steady_report_of_a_process_that_has_ended_says_nothing(placed, histories, autojump_clock):
    histories.take("a", report(history(steady=True)))
    histories.take("b", report(history(steady=True)))
    await trio.sleep(60)
    await placed.registry.declare_dead("a", "1")
    assert list(histories.arrival_rates("cars")) == ["b"]
    (told,) = (await histories.answer(0, 0.0)).topics
    assert [one.broker for one in told.reports] == ["b"]
    (b,) = await placed.brokers("b")
    b.incarnation = "2"
    await b.sync()
    assert (await histories.answer(0, 0.0)).topics == []
    assert "b" not in histories.arrival_rates("cars")


async def test_that_traffic_is_steady_is_not_believed_for_longer_than_brokers_repeat_it(histories, autojump_clock):
    histories.take("a", report(history(steady=True)))
    await trio.sleep(305)
    assert "a" in histories.arrival_rates("cars")
    await trio.sleep(30)
    assert "a" not in histories.arrival_rates("cars")
    assert (await histories.answer(0, 0.0)).topics == []


async def test_steady_traffic_that_is_named_as_such_again_is_believed_for_longer_and_is_no_news(
    histories, autojump_clock
):
    histories.take("a", report(history(steady=True, arrivals=[7, 7])))
    known = (await histories.answer(0, 0.0)).version
    for _ in range(3):
        await trio.sleep(300)
        histories.take("a", HistoryReport(incarnation="1", still_steady=["cars", "unknown"]))
        histories.take("b", HistoryReport(incarnation="1", still_steady=["cars"]))  # said nothing before
    await trio.sleep(300)
    assert histories.arrival_rates("cars").keys() == {"a"}
    assert (await histories.answer(known, 0.0)).topics == []
    (told,) = (await histories.answer(0, 0.0)).topics
    assert [(one.broker, one.history.arrivals) for one in told.reports] == [("a", [7, 7])]


async def test_what_is_named_as_steady_with_a_report_of_what_has_changed_since_is_steady_no_more(
    histories, autojump_clock
):
    histories.take("a", report(history(steady=True)))
    changed = HistoryReport(incarnation="1", topics=[history(arrivals=[9, 9])], still_steady=["cars"])
    histories.take("a", changed)
    await trio.sleep(60)
    assert histories.arrival_rates("cars") == {}


async def test_that_traffic_is_steady_is_forgotten_with_the_mode_that_asked_for_it(placed, histories, autojump_clock):
    histories.take("a", report(history(steady=True)))
    await placed.registry.set_options("cars", lambda old: replace(old, mode="static"))
    await trio.sleep(60)
    assert "a" not in histories.arrival_rates("cars")


async def test_whoever_missed_a_steady_report_that_is_no_longer_among_the_latest_is_told_of_it(
    histories, autojump_clock
):
    since = (await histories.answer(0, 0.0)).version
    histories.take("a", report(history(steady=True)))
    later = histories.version
    await trio.sleep(25)
    (told,) = (await histories.answer(since, 0.0)).topics
    assert [(one.broker, one.history.steady) for one in told.reports] == [("a", True)]
    assert (await histories.answer(later, 0.0)).topics == []


async def test_whoever_knows_nothing_is_told_of_steady_traffic_also_before_anything_was_dropped(histories):
    histories.take("a", report(history(steady=True)))
    assert len((await histories.answer(0, 0.0)).topics) == 1


async def test_a_topic_with_other_limits_is_told_without_reports_once(placed, histories, autojump_clock):
    histories.take("a", report(history(steady=True)))
    known = (await histories.answer(0, 0.0)).version
    await trio.sleep(20)
    await placed.registry.set_options(
        "cars", lambda old: replace(old, adaptation=replace(old.adaptation, floor=0.5 * old.adaptation.floor))
    )
    answer = await histories.answer(known, 0.0)
    (told,) = answer.topics
    assert (told.topic, told.reports, told.version) == ("cars", [], placed.registry.topic("cars").version)
    assert (await histories.answer(answer.version, 0.0)).topics == []


async def test_shares_that_move_and_their_acknowledgements_are_no_news(placed, histories):
    a, b = await placed.brokers("a", "b")
    await settle(a, b)
    known = (await histories.answer(0, 0.0)).version
    topic = placed.registry.topic("cars")
    parts = {name: amount.rate / 1e6 for name, amount in topic.leases.target.items()}
    shares = {name: ProposedShare(rate=rate - 10.0, burst=10.0) for name, rate in parts.items()}
    proposal = ShareProposal(topic="cars", mode="fitted", version=topic.version, shares=shares)
    (result,) = (await placed.registry.adapt([proposal])).results
    assert result.taken, result.problem
    await settle(a, b)
    assert (await histories.answer(known, 0.0)).topics == []


async def test_only_where_the_mode_is_fitted_may_steady_traffic_be_told_seldom(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec("fit", mode="fitted"))
    await distributor.submit(spec("paper", mode="proportional"))
    await settle(a, b)
    assert {name: topic.steady_histories for name, topic in a.topics.items()} == {"fit": True, "paper": False}


async def test_ten_seconds_are_kept(histories, autojump_clock):
    histories.take("a", report(history()))
    await trio.sleep(6)
    histories.take("b", report(history()))
    await trio.sleep(6)
    (told,) = (await histories.answer(0, 0.0)).topics
    assert [one.broker for one in told.reports] == ["b"]
    await trio.sleep(6)
    assert (await histories.answer(0, 0.0)).topics == []


@pytest.mark.parametrize("ahead", [-1_000_000, 1])
async def test_a_version_that_was_never_given_counts_as_none(histories, ahead):
    histories.take("a", report(history()))
    assert len((await histories.answer(histories.version + ahead, 0.0)).topics) == 1


async def test_a_later_distributor_begins_beyond_what_an_earlier_one_gave(placed):
    first = HistoryStore(placed.registry, wall_ns=lambda: NOW_NS)
    for _ in range(100):
        first.take("a", report(history()))
    assert HistoryStore(placed.registry, wall_ns=lambda: NOW_NS + 1_000_000_000).version > first.version


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"arrivals": [-1, 0]}, "from 0"),
        ({"waiting": [0, 1 << 60]}, "from 0"),
        ({"unfinished": [0.0, -0.5]}, "from 0"),
        ({"unfinished": [0.0, math.inf]}, "from 0"),
        ({"unfinished": [math.nan, 0.0]}, "from 0"),
        ({"arrivals": [10**400, 1]}, "counts"),
        ({"waiting": [0, -(10**400)]}, "counts"),
        ({"arrivals": [1]}, "one length"),
        ({"arrivals": [0] * 1001, "waiting": [0] * 1001, "unfinished": [0.0] * 1001}, "at most 1000"),
        ({"bin_ns": 0}, "bin_ns"),
        ({"bin_ns": -5}, "bin_ns"),
        ({"first_ns": NOW_NS + 10_000_000_000}, "future"),
        ({"first_ns": NOW_NS - 100_000_000_000}, "a minute ago"),
        ({"first_ns": 1 << 80}, "future"),
        ({"change": RateChange(since_ns=NOW_NS, span_ns=0, arrivals=1, waiting=1)}, "span_ns"),
        ({"change": RateChange(since_ns=NOW_NS, span_ns=1, arrivals=-1, waiting=1)}, "from 0"),
        ({"change": RateChange(since_ns=NOW_NS, span_ns=1, arrivals=1, waiting=-1)}, "from 0"),
        ({"change": RateChange(since_ns=NOW_NS + 10_000_000_000, span_ns=1, arrivals=1, waiting=1)}, "future"),
    ],
)
async def test_what_cannot_be_is_ignored_and_counted_and_the_rest_is_taken(histories, fields, why):
    assert why in problem(history(**fields), NOW_NS)
    histories.take("a", report(history(**fields), history()))
    assert histories.ignored == {"a": 1}
    (told,) = (await histories.answer(0, 0.0)).topics
    assert len(told.reports) == 1


async def test_a_topic_that_nobody_manages_is_nothing_to_tell(placed, histories):
    histories.take("a", report(history(topic="unknown")))
    assert ((await histories.answer(0, 0.0)).topics, histories.ignored) == ([], {})
    histories.take("a", report(history()))
    await placed.registry.remove("cars", purge=False)
    assert (await histories.answer(0, 0.0)).topics == []


async def test_a_topic_that_was_removed_is_told_as_gone_and_its_reports_say_nothing_of_another_one_of_that_name(
    placed, histories, autojump_clock
):
    histories.take("a", report(history(steady=True)))
    histories.take("b", report(history()))
    known = (await histories.answer(0, 0.0)).version
    await placed.registry.remove("cars", purge=False)
    histories.forget_topic("cars")
    first = await histories.answer(known, 0.0)
    assert (first.gone, first.topics) == (["cars"], [])
    await placed.submit(spec(mode="fitted"))
    histories.take("b", report(history(arrivals=[9, 9])))
    for since, gone in ((known, ["cars"]), (first.version, []), (0, [])):
        answer = await histories.answer(since, 0.0)
        assert answer.gone == gone
        assert [(one.broker, one.history.arrivals) for one in answer.topics[0].reports] == [("b", [9, 9])]
    assert histories.arrival_rates("cars").keys() == {"b"}
    await trio.sleep(900)
    histories.take("b", report())
    assert (await histories.answer(known, 0.0)).gone == []


async def test_only_the_broker_itself_is_believed(histories):
    with pytest.raises(NotFound):
        histories.take("nobody", report(history()))
    with pytest.raises(Conflict, match="another process is broker a"):
        histories.take("a", report(history(), incarnation="0"))


async def test_a_standby_names_the_leader(placed, histories):
    state = placed.registry.state
    state.leads, state.leader_url = False, "http://d2:1"
    with pytest.raises(NotLeader) as refused:
        await histories.answer(0, 0.0)
    assert refused.value.leader == "http://d2:1"


async def test_over_http(placed):
    transport = httpx.ASGITransport(make_app(placed.registry, placed.syncing), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://d") as client:
        now_ns = placed.syncing.histories.version * 1000
        sent = msgspec.json.encode(report(history(first_ns=now_ns)))
        assert (await client.post("/v1/brokers/a/history", content=sent)).status_code == 204
        answer = msgspec.json.decode((await client.get("/v1/history?since=0")).content, type=HistoryAnswer)
        assert [told.topic for told in answer.topics] == ["cars"]
        not_a_number = sent.replace(b"2.5", b"NaN")
        assert (await client.post("/v1/brokers/a/history", content=not_a_number)).status_code == 400
        assert 'srtm_histories_ignored_total{broker="a"} 1.0' in (await client.get("/metrics")).text
        for query in ("since=-1", "since=x", "wait_s=-1", "wait_s=nan", "ignored=-1", "ignored=9007199254740993"):
            assert (await client.get(f"/v1/history?{query}")).status_code == 400
        for told in (2, 1):
            assert (await client.get(f"/v1/history?since=0&ignored={told}")).status_code == 200
        placed.registry.state.leads = False
        assert (await client.get("/v1/history?since=0&ignored=5")).status_code == 503
        assert "srtm_adaptor_histories_ignored_total 3.0" in (await client.get("/metrics")).text

"""The registry and the conversation with brokers: versions, shares, moves, deaths. Time is simulated."""

import msgspec
import pytest
import trio
import trio.testing

from distributor.model.full_brokers import CapacityCaps, traffic_class
from distributor.model.leases import MICRO
from distributor.model.state_change import StateChange
from distributor.registry import maintenance
from distributor.registry.registry import Registry
from distributor.registry.topic_change import apply_topic_change
from distributor.storage import cluster_rows as records
from distributor.views import topic_view as views
from srtm.control import Share, TopicReport, UnassignedPublisher
from srtm.errors import BadInput, NotFound, Unavailable
from srtm.topics.spec import parse_change
from tests.support.distributor_in_process import Distributor, FakeBroker, settle, spec, total

pytestmark = pytest.mark.usefixtures("no_threads")


async def test_a_topic_is_placed_on_the_fewest_brokers_and_its_bucket_split(distributor):
    a, b, c = await distributor.brokers("a", "b", "c")
    await distributor.submit(spec())
    await settle(a, b, c)
    assert [len(one.topics["cars"].publishers) for one in (a, b, c)] == [50, 50, 0]
    assert [one.share() for one in (a, b, c)] == [(550.0, 15.0), (550.0, 15.0), (0.0, 0.0)]
    assert a.fulls == b.fulls == ["cars"]
    assert c.fulls == []


async def test_the_fitted_split_gives_a_small_broker_more_than_its_part(distributor):
    a, b = await distributor.brokers("a", mcap=900), await distributor.brokers("b", mcap=110)
    await distributor.submit(spec(split="fitted", publishers=[{"count": 100, "rate": 10, "id_prefix": "p"}]))
    await settle(*a, *b)
    shares = [one.share() for one in (*a, *b)]
    assigned = [10 * len(one.topics["cars"].publishers) for one in (*a, *b)]
    assert total(*a, *b) == (1100.0, 30.0)
    (_, _), (small_rate, small_burst) = shares
    assert small_rate > 1.1 * assigned[1]
    assert small_burst > 30 * assigned[1] / 1000


async def test_every_managed_topic_is_named_to_every_broker(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec("cars"))
    await distributor.submit(spec("vans", count=10))
    await settle(a, b)
    assert a.topics.keys() == b.topics.keys() == {"cars", "vans"}


async def test_brokers_are_told_which_mqtt_names_belong_to_a_topic_and_nobody_moves(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    publishers = a.topics["cars"].publishers
    await distributor.submit(
        spec(mqtt={"filters": ["car/+/speed"], "v3_excess": "close", "groups": ["$share/w/car/#"]})
    )
    await settle(a, b)
    told = [(one.topics["cars"].mqtt_filters, one.topics["cars"].mqtt_v3_excess) for one in (a, b)]
    assert told == [(["car/+/speed"], "close")] * 2
    assert a.topics["cars"].mqtt_groups == b.topics["cars"].mqtt_groups == ["$share/w/car/#"]
    assert a.topics["cars"].publishers == publishers


async def test_no_mqtt_name_belongs_to_two_topics(distributor):
    a, _ = await distributor.brokers("a", "b")
    await distributor.submit(spec("cars", mqtt={"filters": ["road/+/speed"]}))
    with pytest.raises(BadInput, match=r"topic 'cars'.*'road/7/speed'"):
        await distributor.submit(spec("vans", count=10, mqtt={"filters": ["road/7/#"]}))
    with pytest.raises(BadInput, match="topic 'cars'"):
        await distributor.registry.dry_run(spec("vans", count=10, mqtt={"filters": ["road/7/#"]}))
    await distributor.submit(spec("cars", mqtt={"filters": ["road/8/speed"]}))
    await distributor.submit(spec("vans", count=10, mqtt={"filters": ["road/7/#"]}))
    await settle(a)
    assert a.topics["vans"].mqtt_filters == ["road/7/#"]


async def test_the_same_spec_again_changes_nothing(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    before = distributor.registry.version
    await distributor.submit(spec())
    assert distributor.registry.version == before
    assert (await a.sync()).unchanged


async def test_a_changed_envelope_shrinks_and_grows_without_moving_anybody(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    publishers = a.topics["cars"].publishers
    await distributor.submit(spec(rate=10.0, burst=20))
    await settle(a, b)
    assert total(a, b) == (1100.0, 20.0)
    await distributor.submit(spec(rate=10.0, burst=40))
    await settle(a, b)
    assert total(a, b) == (1100.0, 40.0)
    assert a.topics["cars"].publishers == publishers
    assert a.fulls == ["cars"]


async def test_an_answer_is_held_until_there_is_news(distributor, autojump_clock):
    (a,) = await distributor.brokers("a", mcap=2000)
    answers = []

    async def wait() -> None:
        answers.append((await a.sync(wait_s=20.0), trio.current_time()))

    started = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(3)
        assert not answers
        await distributor.submit(spec())
    ((answer, at),) = answers
    assert [topic.topic for topic in answer.topics] == ["cars"]
    assert at == pytest.approx(started + 3)


async def test_an_answer_without_news_comes_after_the_wait_and_says_so(distributor, autojump_clock):
    (a,) = await distributor.brokers("a")
    started = trio.current_time()
    answer = await a.sync(wait_s=2.0)
    assert answer.unchanged
    assert trio.current_time() == pytest.approx(started + 2)


async def test_a_topic_without_brokers_waits_and_is_placed_when_they_come(distributor, autojump_clock):
    await distributor.submit(spec())
    topic = distributor.registry.topic("cars")
    assert topic.placement.state == "waiting"
    assert "missing 1,000 msg/s" in views.reason(topic.reasons)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(distributor.registry.run)
        (a,) = await distributor.brokers("a", mcap=600)
        await trio.sleep(2)
        assert distributor.registry.topic("cars").placement.state == "partial"
        b = FakeBroker("b", distributor.syncing)
        await settle(a, b)
        await trio.sleep(2)
        assert distributor.registry.topic("cars").placement.state == "placed"
        await settle(a, b)
        nursery.cancel_scope.cancel()
    assert len(a.topics["cars"].publishers) == 51  # as many as makes it level within one
    assert total(a, b) == (1100.0, 30.0)
    assert b.fulls == []


async def test_a_plan_moves_nobody_whom_the_submission_leaves(distributor):
    """Alone on the large broker all would fit; a changed envelope is no reason to go there."""
    await distributor.brokers("a", "b", mcap=700.0)
    registry = distributor.registry
    await registry.submit(spec(burst=30))
    before = registry.topic("cars").placement
    await distributor.brokers("large", mcap=5000.0)
    planned = await registry.dry_run(spec(burst=40))
    assert planned.placement.count_moved_from(before) == 0
    submitted = await registry.submit(spec(burst=40))
    assert (planned.burst, planned.placement.brokers) == (submitted.burst, submitted.placement.brokers)
    anew = await registry.dry_run(spec(burst=40, seed=5))
    assert anew.placement.count_moved_from(before) == 100


async def test_a_changed_rate_moves_nobody_whose_broker_has_room(distributor):
    await distributor.brokers("a", "b")
    await distributor.submit(spec(rate=5.0))
    before = distributor.registry.topic("cars").placement
    change = {"add": [{"id": "p7", "rate": 9.0, "correlation_group": "pgroup-1"}], "remove": ["p7"]}
    topic = await distributor.registry.change_publishers("cars", lambda old: parse_change(old, change))
    assert topic.spec.publishers[99].rate == 9.0
    assert all(topic.placement.broker_of(f"p{i}") == before.broker_of(f"p{i}") for i in range(100))


async def test_where_publishers_are_on_the_map_moves_nobody(distributor):
    await distributor.brokers("a", "b", mcap=700.0)
    columns = {"ids": [f"p{at}" for at in range(100)], "rates": [10.0] * 100}
    await distributor.submit(spec(publishers=[columns]))
    before = distributor.registry.topic("cars")
    places = {"latitudes": [float(at % 90) for at in range(100)], "longitudes": [1.5] * 100}
    await distributor.submit(spec(publishers=[{**columns, **places}]))
    after = distributor.registry.topic("cars")
    assert after.spec.publishers.points_of([99]) == [(9.0, 1.5)]
    assert after.placement.at.tolist() == before.placement.at.tolist()


async def test_a_document_that_adds_publishers_leaves_the_others_where_they_are(distributor):
    await distributor.brokers("a", "b")
    await distributor.submit(spec(count=100, rate=5.0))
    before = distributor.registry.topic("cars").placement
    await distributor.submit(spec(count=104, rate=5.0))
    topic = distributor.registry.topic("cars")
    assert all(topic.placement.broker_of(f"p{i}") == before.broker_of(f"p{i}") for i in range(100))
    await distributor.submit(spec(count=104, rate=5.0, placement="lb"))
    anew = distributor.registry.topic("cars").placement
    assert {anew.broker_of(f"p{i}") for i in range(104)} == {"a", "b"}


async def test_publishers_come_and_go_while_the_others_stay(distributor):
    await distributor.brokers("a", "b")
    await distributor.submit(spec(rate=5.0))
    before = distributor.registry.topic("cars").placement
    change = {"add": [{"id": "new", "rate": 20.0}], "remove": ["p0", "p1"]}
    topic = await distributor.registry.change_publishers("cars", lambda old: parse_change(old, change))
    assert topic.placement.broker_of("p0") is None
    assert topic.placement.broker_of("new") in ("a", "b")
    assert all(topic.placement.broker_of(f"p{i}") == before.broker_of(f"p{i}") for i in range(2, 100))


async def test_a_stranger_is_told_to_move_once_its_broker_is_ready(distributor, autojump_clock):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a)  # b has not got its share yet
    lost = distributor.registry.topic("cars").placement.ids_of["b"][0]
    a.strangers = [
        UnassignedPublisher(topic="cars", publisher_id=lost),
        UnassignedPublisher(topic="cars", publisher_id="unheard of"),
    ]
    assert (await a.sync()).moves == []
    await settle(b)
    for _ in range(2):  # the first answer may have crossed with a request that hung up on it
        (move,) = (await a.sync(wait_s=1.0)).moves
        assert (move.publisher_id, move.address) == (lost, b.address)
    assert (await a.sync()).moves == []


async def test_messages_that_wait_without_a_share_get_one(distributor):
    a, b, c = await distributor.brokers("a", "b", "c")
    await distributor.submit(spec())
    await settle(a, b, c)
    c.reports = [TopicReport(topic="cars", share_version=0, backlog=3)]
    await settle(c, a, b, c)
    rate, burst = c.share()
    assert rate == pytest.approx(1100 * 0.02 / 1.02)
    assert burst >= 1
    assert total(a, b, c) == (1100.0, 30.0)


async def test_no_share_is_made_where_the_burst_has_no_token_for_it(distributor):
    a, b, c = await distributor.brokers("a", "b", "c")
    await distributor.submit(spec(burst=2.5))
    await settle(a, b, c)
    c.reports = [TopicReport(topic="cars", share_version=0, backlog=3)]
    await settle(c, a, b)
    assert c.share() == (0.0, 0.0)


async def test_channels_are_gathered_and_told_to_every_broker(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    a.reports = [TopicReport(topic="cars", share_version=1, channels=["archive", "tail#ephemeral"])]
    await settle(a, b)
    assert b.topics["cars"].channels == ["archive"]


async def test_a_removed_topic_is_no_longer_named_and_comes_again_empty(distributor):
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    await distributor.registry.remove("cars", purge=False)
    with pytest.raises(NotFound):
        distributor.registry.topic("cars")
    answer = await a.sync()
    assert answer.topics == answer.purged == []
    await settle(a, b)
    await distributor.submit(spec())
    await settle(a, b)
    assert total(a, b) == (1100.0, 30.0)
    assert a.fulls == ["cars"]  # the first time only


async def test_news_are_not_held_against_removed_topics_that_nobody_has_any_more(distributor):
    a, b = await distributor.brokers("a", "b")
    registry = distributor.registry
    for number in range(20):
        await distributor.submit(spec(f"t{number}", count=10, placement="lb"))
        await settle(a, b)
        await registry.remove(f"t{number}", purge=False)
        await a.settle()
        assert registry.pending_removals == {f"t{number}"}, "b has not said yet that it dropped it"
        await b.settle()
        assert registry.pending_removals == set()
    reloaded = await Registry.load(distributor.store, registry.config)
    assert reloaded.pending_removals == set()


async def test_tokens_of_a_removed_topic_are_not_handed_out_twice(distributor):
    """a does not hear that the topic went; when it comes again on other brokers, what a may still hold is held back."""
    a, b = await distributor.brokers("a", "b", mcap=2000)
    await distributor.submit(spec())
    await settle(a, b)
    assert a.share() == (1100.0, 30.0)
    await distributor.registry.remove("cars", purge=False)
    await settle(b)
    a.mcap = 1.0
    await distributor.submit(spec(placement="lb"))
    await settle(b)
    assert b.topics["cars"].share.rate == 0
    await settle(a, b)
    assert total(a, b) == (1100.0, 30.0)


async def test_a_purge_is_told_once_and_only_to_brokers_that_knew_the_topic(distributor):
    (a,) = await distributor.brokers("a", mcap=2000)
    await distributor.submit(spec())
    await settle(a)
    await distributor.registry.remove("cars", purge=True)
    assert (await a.sync()).purged == ["cars"]
    assert (await a.sync()).purged == []
    newcomer = FakeBroker("b", distributor.syncing)
    assert (await newcomer.sync()).purged == []


async def test_a_purge_is_told_to_a_broker_that_was_down_by_what_it_remembers(distributor):
    (a,) = await distributor.brokers("a", mcap=2000)
    await distributor.submit(spec())
    await settle(a)
    a.remembered = a.version
    await distributor.registry.remove("cars", purge=True)
    a.restart()
    answer = await a.sync()
    assert (answer.purged, answer.topics) == (["cars"], [])
    a.remembered = a.version
    a.restart()
    assert (await a.sync()).purged == []


async def test_a_batch_larger_than_its_share_is_refused_under_reject_and_warned_about_under_delay(distributor):
    await distributor.brokers("a", "b")
    blocks = [{"count": 100, "rate": 10, "batch": 20}]
    with pytest.raises(BadInput, match="burst of its share"):
        await distributor.submit(spec(publishers=blocks, on_excess="reject"))
    assert distributor.registry.managed() == []
    await distributor.submit(spec(publishers=blocks))
    assert "batch of publisher publisher-0: 20" in views.reason(distributor.registry.topic("cars").reasons)


async def test_a_publisher_is_told_where_it_belongs_and_an_unknown_one_where_it_may_go(distributor):
    await distributor.submit(spec())
    with pytest.raises(Unavailable, match="no broker for publisher 'p1' of topic 'cars': missing 1,000 msg/s") as told:
        views.assignment(distributor.registry.topic("cars"), "p1", distributor.registry)
    assert told.value.retry_after_s == 1.0
    with pytest.raises(Unavailable, match="no broker is alive"):
        views.assignment(distributor.registry.topic("cars"), "nobody", distributor.registry)
    await distributor.registry.remove("cars", purge=False)
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    topic = distributor.registry.topic("cars")
    mine = views.assignment(topic, "p1", distributor.registry)
    assert mine.declared
    assert mine.broker == topic.placement.broker_of("p1")
    assert mine.reason.startswith(f"{mine.broker}: 50 publishers")
    other = views.assignment(topic, "nobody", distributor.registry)
    assert not other.declared
    assert other.address in (a.address, b.address)


async def test_a_store_that_fails_changes_nothing(distributor, monkeypatch):
    await distributor.brokers("a", "b")

    async def full(_: object) -> None:
        raise Unavailable("store: disk full")

    version = distributor.registry.version
    monkeypatch.setattr(distributor.store, "apply", full)
    with pytest.raises(Unavailable):
        await distributor.submit(spec())
    assert distributor.registry.managed() == []
    assert distributor.registry.version == version
    monkeypatch.undo()
    await distributor.submit(spec())
    assert distributor.registry.topic("cars").leases.outstanding().rate == 1100 * MICRO


async def test_everything_survives_a_restart(tmp_path):
    first = await Distributor.open(tmp_path / "store.sqlite3")
    a, b = await first.brokers("a", "b")
    await first.submit(spec())
    await settle(a, b)
    await first.registry.state.store_acknowledged()
    await first.registry.remove((await first.registry.submit(spec("old", count=1))).name, purge=False)
    await settle(a, b)
    before = first.registry
    await first.aclose()

    second = await Distributor.open(tmp_path / "store.sqlite3")
    after = second.registry
    assert max(after.state.skips) == before.version < after.version
    assert after.brokers == before.brokers
    assert after.decisions == before.decisions
    for name, topic in before.topics.items():
        again = after.topics[name]
        assert again.spec == topic.spec
        assert again.leases == topic.leases
        assert again.placement.ids_of == topic.placement.ids_of
        assert (again.version, again.assignment_version, again.reasons) == (
            topic.version,
            topic.assignment_version,
            topic.reasons,
        )
    a.syncing = b.syncing = second.syncing
    shares = a.share(), b.share()
    assert (await a.sync()).unchanged
    a.restart()
    await settle(a, b)
    assert (a.share(), b.share()) == shares
    assert a.fulls.count("cars") == 1
    await second.aclose()


async def test_a_store_that_is_younger_than_the_brokers_never_reuses_a_version(distributor):
    a = FakeBroker("a", distributor.syncing, mcap=2000, version=900)
    await a.settle()
    assert distributor.registry.version > 900
    await distributor.submit(spec())
    await settle(a)
    assert a.topics["cars"].share.version > 900


async def test_a_store_older_than_the_brokers_hands_nothing_out_before_all_have_given_up_what_they_hold(distributor):
    """On record a and b have half each; in truth a was given everything since, and b nothing."""
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a, b)
    for one, share in ((a, Share(version=900, rate=1100.0, burst=30.0)), (b, Share(version=900, rate=0.0, burst=0.0))):
        one.topics = {"cars": msgspec.structs.replace(one.topics["cars"], share=share)}
        one.version = 900
    for _ in range(3):
        await b.sync()
        assert b.share() == (0.0, 0.0)
    while not (await a.sync()).unchanged:
        await b.sync()
        assert total(a, b) <= (1100.0, 30.0)
    await settle(a, b)
    assert (a.share(), b.share()) == ((550.0, 15.0), (550.0, 15.0))


async def test_a_broker_told_more_than_is_on_record_for_it_is_told_anew_also_after_another_has_raised_the_count(
    distributor,
):
    a, b = await distributor.brokers("a", "b")
    a.version, b.version = 900, 890
    await settle(a, b)
    assert b.version > 890


async def test_a_forgotten_broker_that_goes_on_hears_of_what_was_submitted_meanwhile(distributor):
    a, b = await distributor.brokers("a", "b", mcap=2000)
    await distributor.registry.forget("b")
    await distributor.submit(spec())
    await settle(a, b)
    assert b.share() == (0.0, 0.0)  # limited, not unknown and so unlimited


async def test_an_absurd_version_is_refused_and_costs_nobody_else_anything(distributor):
    a, b = await distributor.brokers("a", "b")
    version, a.version = a.version, 2**70
    with pytest.raises(BadInput, match="have_version"):
        await a.sync()
    a.version = version
    await distributor.submit(spec())
    await settle(a, b)
    assert total(a, b) == (1100.0, 30.0)


async def test_a_smaller_automatic_burst_that_its_brokers_cannot_share_places_the_topic_anew(distributor):
    await distributor.brokers("a", "b")
    slow = {"ids": ["x", "y"], "rates": [1.0, 1.0], "process": "periodic"}
    blocks = [{"count": 2, "rate": 400, "batch": 4, "process": "periodic"}, slow]
    await distributor.submit(spec(rate=10.0, publishers=blocks, burst="auto", max_burst_s=0.001))
    before = distributor.registry.topic("cars")
    assert {before.placement.broker_of("x"), before.placement.broker_of("y")} == {"a", "b"}
    gone = {"remove": ["publisher-0", "publisher-1"]}
    after = await distributor.registry.change_publishers("cars", lambda old: parse_change(old, gone))
    assert len(after.placement.brokers) <= after.burst < 2


async def test_a_sync_that_was_cut_short_takes_no_moves_with_it(distributor, autojump_clock):
    """The broker hangs up to report something else; here the abandoned request still waits."""
    a, b = await distributor.brokers("a", "b")
    await distributor.submit(spec())
    await settle(a)
    lost = distributor.registry.topic("cars").placement.ids_of["b"][0]
    a.strangers = [UnassignedPublisher(topic="cars", publisher_id=lost)]
    answers = {}

    async def wait(which: str) -> None:
        answers[which] = await a.sync(wait_s=20.0)

    async with trio.open_nursery() as nursery:
        for which in ("abandoned", "heard"):
            nursery.start_soon(wait, which)
            await trio.testing.wait_all_tasks_blocked()
        await settle(b)
    assert answers["abandoned"].moves == []
    assert [move.publisher_id for move in answers["heard"].moves] == [lost]


async def test_a_broker_that_a_fitting_found_full_takes_no_more_of_such_traffic_and_keeps_whom_it_has(distributor):
    a, b = await distributor.brokers("a", "b", mcap=5000)
    await distributor.submit(spec())
    await settle(a, b)
    cars = distributor.registry.topic("cars")
    (home,) = cars.placement.brokers
    of_such = traffic_class(cars.spec.publishers)
    distributor.registry.state.caps = CapacityCaps().with_caps(cars.spec.slo, of_such, {home: 300.0})
    await distributor.submit(spec(count=99))
    assert distributor.registry.topic("cars").placement.brokers == (home,)
    distributor.registry.state.caps = CapacityCaps().with_caps(cars.spec.slo, of_such, {home: 300.0})
    await distributor.submit(spec("bikes", placement="lb"))
    assert distributor.registry.topic("bikes").placement.assigned[home] == pytest.approx(300.0)
    await distributor.submit(spec("trains", placement="lb", slo={"percentile": 99, "latency_ms": 9}))
    assert distributor.registry.topic("trains").placement.assigned[home] == pytest.approx(500.0)  # another promise


async def test_a_placement_that_the_store_refused_is_tried_again(distributor, monkeypatch, autojump_clock):
    registry = distributor.registry
    (a,) = await distributor.brokers("a")
    await distributor.submit(spec())
    assert registry.topic("cars").placement.state == "partial"
    refused = []

    async def refuse_once(*arguments, **more):
        if not refused:
            refused.append(trio.current_time())
            raise Unavailable("the disk is full")
        return await apply_topic_change(*arguments, **more)

    monkeypatch.setattr(maintenance, "apply_topic_change", refuse_once)
    (b,) = await distributor.brokers("b")
    async with trio.open_nursery() as nursery:
        for run in (registry.run, a.run, b.run):
            nursery.start_soon(run)
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert refused
    assert registry.topic("cars").placement.state == "placed"


async def test_another_machine_under_the_name_of_a_forgotten_broker_is_offered_whole(distributor):
    registry, cars = distributor.registry, spec(count=10)
    await distributor.brokers("a")
    of_such = traffic_class(cars.publishers)
    found = CapacityCaps().with_caps(cars.slo, of_such, {"a": 5.0})
    async with registry.state.writing:
        await registry.state.commit(StateChange(caps=found))
    assert (await records.load(distributor.store)).caps == found
    await registry.forget("a")
    assert registry.caps == CapacityCaps()
    assert (await records.load(distributor.store)).caps == CapacityCaps()

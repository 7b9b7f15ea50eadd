"""Relief of overloaded brokers, in virtual time: it helps where help is possible, harms nobody, and settles."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distributor.model.cluster import Placement
from distributor.relief.policy import Budget
from distributor.relief.sizing import destination
from distributor.relief.values import BrokerView, Part, Rules, Step, TopicView, View
from tests.support.distributor_in_process import spec
from tests.support.loaded_brokers import Server, Topic, World, hurried

PROMISE_MS = 5.0


def topic(at: dict[str, int], name: str = "cars", **changes: object) -> Topic:
    """``at``: {broker: how many publishers}."""
    made = spec(name=name, count=sum(at.values()), rate=10.0)
    homes = [broker for broker, count in at.items() for _ in range(count)]
    return Topic(made, dict(zip(made.publishers.ids, homes, strict=True)), **changes)


def world(at: dict[str, int], capacity: float = 2000.0, rules: Rules | None = None, **changes: object) -> World:
    servers = {name: Server(capacity) for name in at}
    return World(servers, {"cars": topic(at)}, rules or hurried(), **changes)


def steps(running: World) -> list[Step]:
    return [shift.step for _, shift in running.shifts]


@pytest.mark.parametrize("known", [True, False], ids=["capacity known", "capacity unknown"])
def test_an_overloaded_broker_gives_up_a_few_publishers_a_canary_first_and_then_it_is_quiet(known: bool) -> None:
    running = world({"a": 199, "b": 100}, known=known)
    running.run(200)
    assert running.delay_ms("a") <= PROMISE_MS
    assert running.delay_ms("b") <= PROMISE_MS
    assert steps(running)[:2] == [Step.CANARY, Step.REST]
    first, second = running.shifts[:2]
    assert len(first[1].to) == 4  # two in a hundred
    assert second[0] - first[0] >= running.rules.observe_s
    moved = sum(len(shift.to) for _, shift in running.shifts)
    assert moved <= 60
    assert running.relief.relieved == 1
    before = len(running.shifts)
    running.run(3600)
    assert len(running.shifts) == before


def test_nothing_is_done_before_the_grace_and_nothing_about_a_breach_that_passes() -> None:
    running = world({"a": 196, "b": 100})
    running.run(4)
    assert running.relief.look(running.now_s, running.view()) == []
    for one in list(running.topics["cars"].at)[:50]:
        running.topics["cars"].factor[one] = 0.5
    running.topics["cars"].changed()
    running.run(600)
    assert running.shifts == []


def test_a_breach_that_is_slight_must_last_four_times_as_long() -> None:
    running = world({"a": 100, "b": 20})
    running.servers["a"].stall_ms = 4.8  # and 0.4 by its load
    running.run(4 * running.rules.grace_s)
    assert running.shifts == []
    running.run(6)
    assert steps(running) == [Step.CANARY]


def test_publishers_come_in_proportion_from_every_group() -> None:
    running = world({"a": 195, "b": 100}, known=True)
    running.run(60)
    columns = running.topics["cars"].spec.publishers
    moved = Counter(int(columns.groups[columns.positions[one]]) for _, shift in running.shifts for one in shift.to)
    assert max(moved.values()) <= 1 + min(moved.get(group, 0) for group in range(39))


def test_access_delay_moves_nobody_and_is_told_once() -> None:
    running = world({"a": 100, "b": 50})
    running.topics["cars"].access_ms["a"] = 20.0
    running.run(600)
    assert running.shifts == []
    (note,) = running.notes
    assert "a: p99 20" in note.text
    assert "wait for tokens" in note.text


@pytest.mark.slow
def test_what_does_not_help_is_rolled_back_and_tried_again_only_after_a_pause_that_doubles() -> None:
    """Broker a is slow for a reason of its own."""
    running = world({"a": 100, "b": 20})
    running.servers["a"].stall_ms = 30.0
    home = dict(running.topics["cars"].at)
    running.run(330)
    assert steps(running) == [Step.CANARY, Step.REST, Step.BACK]
    assert running.topics["cars"].at == home
    assert "did not help" in running.shifts[-1][1].reason
    running.run(24 * 3600 - 330)
    episodes = steps(running).count(Step.CANARY)
    assert episodes == steps(running).count(Step.BACK) <= 27  # once an hour in the end
    assert running.topics["cars"].at == home


@pytest.mark.parametrize("known", [True, False], ids=["capacity known", "capacity unknown"])
def test_where_a_queue_has_piled_up_it_is_left_to_drain(known: bool) -> None:
    running = world({"a": 230, "b": 50}, known=known)
    running.run(240)
    assert running.delay_ms("a") <= PROMISE_MS
    assert Step.BACK not in steps(running)
    assert sum(len(shift.to) for _, shift in running.shifts) < 120


def test_a_promise_that_breaks_where_they_went_brings_them_back() -> None:
    running = world({"a": 196, "b": 100})
    running.run(18)
    assert steps(running) == [Step.CANARY]
    running.servers["b"].base_ms = 6.0  # something else has happened there
    running.run(running.rules.observe_s + 4)
    assert steps(running) == [Step.CANARY, Step.BACK]
    assert "cars on b" in running.shifts[-1][1].reason


def test_where_nobody_can_take_any_it_is_said_and_nothing_moves() -> None:
    running = world({"a": 196, "b": 196})
    running.run(3600)
    assert running.shifts == []
    assert "no broker can take" in running.notes[0].text
    assert len(running.notes) < 15


def test_a_topic_that_is_being_fitted_is_left_alone_and_an_episode_waits_for_arrivals() -> None:
    running = world({"a": 196, "b": 100})
    running.topics["cars"].busy = True
    running.run(600)
    assert running.shifts == []
    running.topics["cars"].busy = False
    running.run(2)
    assert steps(running) == [Step.CANARY]
    running.topics["cars"].busy = True
    running.run(600)
    assert steps(running) == [Step.CANARY]


def test_the_budget_holds_in_every_minute_and_what_it_does_not_allow_comes_later() -> None:
    running = world({"a": 400, "b": 100}, capacity=3000.0, rules=Rules(topic_moves=7, moves=100))
    running.run(3 * 3600)
    times = [at for at, shift in running.shifts for _ in shift.to if shift.step is not Step.BACK]
    assert times
    assert max(sum(1 for other in times if at - 60 < other <= at) for at in times) <= 7


def test_topics_share_the_budget_of_all() -> None:
    budget = Budget(5)
    budget.spend(4, 0.0)
    assert budget.left(59.0) == 1
    assert budget.left(60.0) == 5


def test_a_topic_of_the_name_of_one_that_is_gone_is_relieved_as_if_there_had_been_none() -> None:
    running = world({"a": 199})  # there is nobody to take publishers: a pause
    running.run(200)
    assert running.notes
    again = world({"a": 199, "b": 100})
    again.relief, again.now_s = running.relief, running.now_s
    del running.topics["cars"]
    running.run(4)
    again.now_s = running.now_s
    fresh = world({"a": 199, "b": 100})
    fresh.now_s = running.now_s
    for one in (again, fresh):
        one.run(100)
    assert again.shifts
    assert again.shifts == fresh.shifts


def test_a_topic_that_goes_away_in_the_middle_is_forgotten() -> None:
    running = world({"a": 196, "b": 100})
    running.run(18)
    assert running.relief.episode("cars") == "relieving a: 4 publishers moved to b"
    del running.topics["cars"]
    running.run(60)
    assert running.relief.episode("cars") is None


def test_what_others_have_placed_anew_is_not_touched() -> None:
    running = world({"a": 196, "b": 100})
    running.run(18)
    (moved,) = [shift.to for _, shift in running.shifts]
    for one in moved:
        running.topics["cars"].at[one] = "a"
    running.topics["cars"].changed()
    running.run(2)
    assert running.relief.episode("cars") is None


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    brokers=st.integers(2, 5),
    topics=st.integers(1, 3),
    known=st.booleans(),
)
def test_under_load_that_comes_and_goes_moves_are_bounded_nobody_goes_to_and_fro_and_it_settles(
    seed: int, brokers: int, topics: int, known: bool
) -> None:
    random = np.random.default_rng(seed)
    names = [f"b{number}" for number in range(brokers)]
    servers = {name: Server(float(random.integers(500, 3000))) for name in names}
    made = {}
    for number in range(topics):
        heads = random.integers(5, 100, brokers)
        made[f"t{number}"] = topic(dict(zip(names, heads.tolist(), strict=True)), name=f"t{number}")
    running = World(servers, made, Rules(), known)
    for _ in range(6):  # an hour of changes
        one = made[f"t{random.integers(topics)}"]
        factor = float(random.uniform(0.3, 3.0))
        one.factor = {who: factor for who in one.at if random.random() < 0.5}
        one.changed()
        running.run(600)
    changing = len(running.shifts)
    running.run(2 * 3600)
    calm = len(running.shifts)
    running.run(2 * 3600)
    last = running.shifts[calm:]
    # What cannot be mended is tried again, once an hour for each broker of each topic in the end.
    assert len(last) <= 2 * 3 * 3 * topics * brokers / 2
    assert changing + calm <= 60 * topics * brokers
    moved_at: dict[tuple[str, str], float] = {}
    for at_s, shift in running.shifts:
        if shift.step is Step.BACK:
            continue
        for who in shift.to:
            before_s = moved_at.get((shift.topic, who), -np.inf)
            assert at_s - before_s >= running.rules.publisher_cool_down_s
            moved_at[shift.topic, who] = at_s


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), over=st.floats(0.9, 1.3), known=st.booleans())
@example(seed=1, over=1.296875, known=False)  # an overloaded broker lets go less than its publishers send
def test_where_others_have_room_the_promise_is_kept_again_within_minutes(seed: int, over: float, known: bool) -> None:
    random = np.random.default_rng(seed)
    capacity = float(random.integers(1500, 4000))
    heads = round(capacity * over / 10)
    running = world({"a": heads, "b": heads // 4, "c": heads // 4}, capacity=capacity, known=known)
    running.run(600)
    assert max(running.delay_ms(name) for name in running.servers) <= PROMISE_MS
    assert not any(step is Step.BACK for step in steps(running))


def test_it_is_the_large_publishers_that_go_where_rates_differ() -> None:
    running = world({"a": 190, "b": 60}, known=True)
    one = running.topics["cars"]
    rates = one.spec.publishers.rates.copy()
    rates[:20] = 40.0
    columns = replace(one.spec.publishers, rates=rates, groups=np.full(len(rates), -1))
    one.spec = replace(one.spec, publishers=columns)
    one.changed()
    running.servers["a"].capacity = 2500.0
    running.run(60)
    moved = [who for _, shift in running.shifts for who in shift.to]
    assert moved
    assert all(columns.rates[columns.positions[who]] == 40.0 for who in moved)


@pytest.mark.parametrize(("extra_brokers", "found"), [((), "b"), (("x",), "b"), (("x", "y"), None), (("x", "b"), "b")])
def test_a_broker_new_to_the_topic_needs_a_token_that_no_stranger_has(
    extra_brokers: tuple[str, ...], found: str | None
) -> None:
    made = spec(count=10)
    placement = Placement(publishers=made.publishers, brokers=("a",), at=np.zeros(10, dtype=np.int64))
    parts = {"a": Part(rate=100.0, count=5000, processing_ms=8.0, total_ms=8.0)}
    cars = TopicView(
        percentile=99, promise_ms=5.0, burst=3, placement=placement, parts=parts, extra_brokers=extra_brokers
    )
    brokers = {name: BrokerView(load=load, capacity=1000.0) for name, load in [("a", 990.0), ("b", 0.0)]}
    assert destination(View(topics={"cars": cars}, brokers=brokers), "cars", "a", 10.0, ()) == found

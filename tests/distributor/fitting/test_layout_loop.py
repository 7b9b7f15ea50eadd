"""The layout loop: when it begins, that no action is worse than none, and that it ends."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.simulation.fleet import Fleet, firings, grouped_demand
from distributor.fitting.events import (
    AskScaler,
    Begin,
    BrokerLeft,
    Disturbed,
    Done,
    Measure,
    Outcome,
    Place,
    Placed,
    Queue,
    Recorded,
    Scaler,
    ScalerAnswered,
    Seen,
    Stop,
    Task,
    Tick,
)
from distributor.fitting.layout_loop import ALWAYS, LayoutLoop
from distributor.fitting.layout_search import SEARCH_AT_MOST_NS
from distributor.fitting.search import proportional
from distributor.fitting.transitions import SEARCHING, TRANSITIONS, Rules, State
from distributor.placement.allocation import BrokerCapacity
from tests.support.layout_loops import (
    BROKEN,
    KEPT,
    MS,
    ON_BREACH,
    SECOND,
    Played,
    bursts,
    fit_on,
    laid_out,
    of_kind,
    progress,
    queued,
    small_task,
    two_empty,
)

REST = (State.WATCHING, State.RESTING)


def begin(**more):
    task = more.pop("task", small_task())
    return Begin(
        **{
            "task": task,
            "brokers": two_empty(),
            "split": proportional,
            "in_force": laid_out(task, {"b0": range(40)}),
            **more,
        }
    )


# The table


def test_every_state_can_be_reached_and_left():
    assert {State.WATCHING, *TRANSITIONS.values()} == set(State)
    assert {state for state, _ in TRANSITIONS} == set(State)


def test_the_drawing_has_the_steps_of_the_table():
    text = (Path(__file__).parents[3] / "docs" / "control-loop.md").read_text()
    drawn = re.findall(r"^ +(\w+) --> (\w+): (.+)$", text, re.MULTILINE)
    names = {state.name.lower(): state for state in State}
    steps = {(names[start], trigger, names[end]) for start, end, what in drawn for trigger in what.split(", ")}
    table = {
        (start, trigger.value, end) for (start, trigger), end in TRANSITIONS.items() if trigger.value != "disturbed"
    }
    assert steps == table


# When it begins


def test_a_promise_that_is_kept_again_within_the_grace_begins_nothing():
    loop = LayoutLoop(ON_BREACH)
    for at_s, seen in ((0, BROKEN), (14, BROKEN), (15, KEPT), (16, BROKEN), (30, BROKEN)):
        assert loop.handle(seen, at_s * SECOND) == []
    assert loop.state is State.GRACE


def test_a_promise_that_is_broken_for_the_grace_begins_a_search():
    loop = LayoutLoop(ON_BREACH)
    assert loop.handle(BROKEN, 0) == []
    assert loop.handle(BROKEN, 15 * SECOND) == [Queue()]


def test_a_promise_that_is_kept_while_the_search_is_queued_begins_none():
    loop = queued()
    assert loop.handle(KEPT, 20 * SECOND) == []
    assert loop.handle(begin(), 21 * SECOND) == []
    assert loop.state is State.WATCHING


SILENT = replace(BROKEN, heard=False)  # the verdict since the topic was submitted stands


def test_a_topic_that_was_broken_and_has_no_messages_any_more_begins_nothing():
    loop = LayoutLoop(ON_BREACH)
    assert [loop.handle(SILENT, at_s * SECOND) for at_s in range(1_800)] == [[]] * 1_800
    assert loop.state is State.WATCHING
    loop.handle(BROKEN, 1_800 * SECOND)
    assert loop.handle(BROKEN, 1_815 * SECOND) == [Queue()]


def test_a_topic_whose_messages_end_before_its_search_begins_has_none():
    loop = LayoutLoop(ON_BREACH)
    loop.handle(BROKEN, 0)
    loop.handle(SILENT, 14 * SECOND)
    assert loop.state is State.WATCHING
    loop = queued()
    loop.handle(SILENT, 20 * SECOND)
    assert loop.handle(begin(), 21 * SECOND) == []
    assert loop.state is State.WATCHING


def test_a_search_without_messages_is_no_failure():
    loop = queued(Rules(grace_s=1, cool_down_s=10))
    for at_s in (100, 200, 300):
        (measure, *_) = of_kind(Measure, loop.handle(begin(), at_s * SECOND))
        loop.handle(progress(measure, blocks=0, final=True), (at_s + 30) * SECOND)
        assert loop.outcome is Outcome.NO_TRAFFIC
        loop.handle(BROKEN, (at_s + 31) * SECOND)
        loop.handle(BROKEN, (at_s + 32) * SECOND)
        assert loop.state is State.QUEUED


def test_publishers_without_a_place_end_the_grace():
    loop = LayoutLoop(ON_BREACH)
    loop.handle(BROKEN, 0)
    assert loop.handle(replace(BROKEN, short=True), SECOND) == [Queue()]


def test_always_begins_with_the_first_message_whatever_the_verdict():
    loop = LayoutLoop(ALWAYS)
    loop.ask()
    assert loop.handle(Seen(promise="unknown", heard=False), 0) == []
    assert loop.handle(Seen(promise="kept", heard=True), SECOND) == [Queue()]


@pytest.mark.parametrize("rests_s", [(10, 20, 40), (1_000, 2_000, 3_600, 3_600)])
def test_after_a_search_it_rests_and_twice_as_long_after_the_second_that_failed_up_to_an_hour(rests_s):
    loop = queued(Rules(grace_s=1, cool_down_s=rests_s[0]))
    for rest_s in rests_s:
        start_ns = 1_000 * SECOND
        loop.handle(begin(brokers=[]), start_ns)
        assert loop.state is State.RESTING
        loop.handle(BROKEN, start_ns + (rest_s - 1) * SECOND)
        assert loop.state is State.RESTING
        loop.handle(BROKEN, start_ns + rest_s * SECOND)
        assert loop.state is State.GRACE
        loop.handle(BROKEN, start_ns + (rest_s + 1) * SECOND)
        assert loop.state is State.QUEUED


# No action is worse than none


def grouped_fleet(layout, burst=230.0, seconds=300, **more):
    """325 publishers of 10 msg/s in groups of 9, r 1.1 times what they send, four brokers, the first three in use.

    ``layout``: spread, every group over the three; or heaped, whole groups on a broker: bursts are too large for it.
    """
    demand = grouped_demand(325, 9, 10.0, 3_575.0, burst)
    fires = firings(37, 10.0, "poisson", seconds, seed=3)
    fleet = Fleet(demand, 1, fires, {f"b{at}": 20_000 for at in range(4)}, target_ns=5 * MS, **more)
    task = Task(demand=demand, percentile=99, target_ns=5 * MS)
    homes = {f"b{at}": range(at, 325, 3) for at in range(3)}
    heaps = {"b0": range(108), "b1": range(108, 216), "b2": range(216, 325)}
    return fleet, task, laid_out(task, homes if layout == "spread" else heaps)


@pytest.mark.slow
@pytest.mark.parametrize("rules", [ON_BREACH, ALWAYS])
def test_a_broker_that_comes_later_is_not_swapped_for_another(rules):
    """faults.md P2: the number of brokers would stay the same."""
    fleet, task, in_force = grouped_fleet("spread")
    fleet.place(in_force, seconds=2)
    _, report = fit_on(fleet, task, rules, in_force)
    assert report.outcome is Outcome.FITS
    assert report.layout is in_force


@pytest.mark.slow
def test_a_layout_that_breaks_a_promise_is_left_for_one_that_keeps_it():
    fleet, task, in_force = grouped_fleet("heaped")
    fleet.place(in_force, seconds=2)
    _, report = fit_on(fleet, task, ON_BREACH, in_force)
    assert report.outcome is Outcome.FITS
    assert all(one.total_ns <= 5 * MS for one in fleet.measured(report.layout, 60).values())


@pytest.mark.slow
def test_a_layout_that_half_of_the_publishers_do_not_follow_is_taken_back_in_half_a_minute():
    """They would go on where nearly no tokens are."""
    fleet, task, in_force = grouped_fleet("heaped", stuck=range(0, 325, 2))
    fleet.place(in_force, seconds=2)
    loop, report = fit_on(fleet, task, ON_BREACH, in_force)
    assert report.outcome is Outcome.TAKEN_BACK
    assert "ms before" in report.reason
    assert report.layout.brokers == in_force.brokers
    assert (report.layout.placement == in_force.placement).all()
    assert loop.state is State.RESTING
    assert report.rounds[-1].ended_ns - report.rounds[-2].ended_ns <= 30 * SECOND


def queue_on_b0(seconds, stuck=()):
    """Ten publishers send 240 msg/s to b0, which serves 200, for so long before a search; b1 would serve some of them.

    ``stuck``: those that do not move.
    """
    demand = grouped_demand(14, 1, 24.0, 1_200.0, 100.0)
    fires = firings(14, 24.0, "poisson", 300, seed=3)
    target_ns = 150 * MS
    fleet = Fleet(demand, 1, fires, {"b0": 5 * MS, "b1": 5 * MS}, percentile=95, target_ns=target_ns, stuck=stuck)
    task = Task(demand=demand, percentile=95, target_ns=target_ns)
    in_force = laid_out(task, {"b0": range(10), "b1": range(10, 14)})
    fleet.place(in_force, seconds)
    return fleet, fit_on(fleet, task, ON_BREACH, in_force)[1]


@pytest.mark.slow
def test_a_layout_that_drains_a_long_queue_stays_though_messages_are_later_than_before_it():
    fleet, report = queue_on_b0(seconds=60)
    assert report.rounds[0].latency["b0"].total_ns >= 10 * SECOND
    assert report.outcome is Outcome.FITS
    assert all(one.total_ns <= 150 * MS for one in fleet.measured(report.layout, 60).values())


@pytest.mark.slow
def test_a_layout_under_which_a_queue_grows_more_slowly_is_not_taken_back():
    """Of the three that are to move one does: 216 msg/s."""
    _, report = queue_on_b0(seconds=5, stuck=range(5))
    first, second = (one.latency["b0"].total_ns for one in report.rounds[:2])
    assert second > first
    assert report.outcome is Outcome.NO_BETTER
    assert report.layout is report.rounds[1].layout


def left_behind(seconds, rules=ON_BREACH, spread=0.0):
    """b0 serves 200 msg/s and gets 96 of a topic's 240; before that it got all of them for so long."""
    demand = grouped_demand(10, 1, 24.0, 1_200.0, 100.0)
    fires = firings(10, 24.0, "poisson", 300, seed=3)
    services = {"b0": 5 * MS, "b1": 5 * MS}
    fleet = Fleet(demand, 1, fires, services, percentile=95, target_ns=150 * MS, spread=spread)
    task = Task(demand=demand, percentile=95, target_ns=150 * MS)
    in_force = laid_out(task, {"b0": range(4), "b1": range(4, 10)})
    fleet.place(laid_out(task, {"b0": range(10)}), seconds)
    fleet.place(in_force)
    return in_force, fit_on(fleet, task, rules, in_force)[1]


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, 0.5])
@pytest.mark.parametrize("seconds", [20, 60])  # queues of 4 s and 12 s
def test_a_queue_from_before_fills_no_broker_and_moves_nobody(seconds, spread):
    in_force, report = left_behind(seconds, spread=spread)
    assert report.rounds[0].latency["b0"].processing_ns >= 2 * SECOND
    assert (report.outcome, report.full, report.missing) == (Outcome.FITS, {}, None)
    assert all(one.layout is in_force for one in report.rounds)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_a_queue_from_before_fills_no_broker_where_layouts_are_tried_until_one_fits(spread):
    _, report = left_behind(20, ALWAYS, spread)
    assert (report.fits, report.full, report.missing) == (True, {}, None)


def overloaded(**more):
    """b0 has 30 of 40 publishers that fire together, of which it serves 20 in the promise; b1 has 10."""
    task = small_task(**more)
    return begin(task=task, in_force=laid_out(task, {"b0": range(30), "b1": range(30, 40)}))


def measured_late(rules=ON_BREACH, total_ns=2 * MS, start=None, service_ns=40_000):
    """A search that has measured 30 publishers on b0 as late, and has got what was recorded."""
    played = Played(queued(rules), start or overloaded())
    measures = played.measures
    for one in measures:
        played.tell(progress(one, late=int(one.broker == "b0"), total_ns=total_ns), after_s=10)
    for one, members in zip(measures, (range(30), range(30, 40)), strict=True):
        played.tell(Recorded(broker=one.broker, round=one.round, trace=bursts(service_ns, publishers=members)))
    return played


def test_the_fewest_move_off_a_broker_that_is_overloaded():
    played = measured_late()
    layout = played.place.layout
    assert set(layout.brokers) == {"b0", "b1"}
    moved = int((layout.placement[:30] != layout.placement[0]).sum() + (layout.placement[30:] != 1).sum())
    assert moved == 8  # 22 take 0.88 ms, 26 took 1.04
    assert played.loop.state is State.PLACING


def test_nobody_moves_where_no_layout_is_better_by_the_margin():
    played = measured_late(replace(ON_BREACH, margin=0.9))
    (done,) = of_kind(Done, played.actions)
    assert done.report.outcome is Outcome.NO_BETTER
    assert not of_kind(Place, played.actions)


def test_nobody_moves_where_nobody_may():
    (done,) = of_kind(Done, measured_late(replace(ON_BREACH, may_move=False)).actions)
    assert done.report.outcome is Outcome.NO_MOVES
    assert "would move" in done.report.reason


def test_nobody_moves_where_one_bucket_would_not_keep_the_promise():
    task = small_task()
    task = replace(task, demand=replace(task.demand, burst=20.0))
    start = begin(task=task, in_force=laid_out(task, {"b0": range(30), "b1": range(30, 40)}))
    (done,) = of_kind(Done, measured_late(start=start).actions)
    assert done.report.outcome is Outcome.ONE_BUCKET
    assert done.report.missing.burst > 20


def test_publishers_that_do_not_move_stay():
    pinned = dict.fromkeys(range(15), "b0")
    layout = measured_late(start=overloaded(pinned=pinned)).place.layout
    assert all(layout.brokers[at] == "b0" for at in layout.placement[:15])


def test_a_broker_that_other_topics_fill_takes_nobody():
    start = begin(task=small_task(others={"b1": 24_000.0}))
    played = Played(queued(), start)
    (one,) = played.measures
    played.tell(progress(one, late=1), after_s=10)
    played.tell(Recorded(broker="b0", round=one.round, trace=bursts(40_000)))
    assert of_kind(Done, played.actions)[0].report.outcome is Outcome.NO_BETTER


def judged(late, total_ns, blocks=200):
    """The layout of ``measured_late`` is in force, and found late or not; b0 recorded 30 before, 15 now."""
    played = measured_late()
    layout = played.place.layout
    measures = of_kind(Measure, played.tell(Placed(round=played.place.round), after_s=1))
    for one in measures:
        if played.loop.state is State.JUDGING:
            found = progress(one, late=int(late and one.broker == "b0"), total_ns=total_ns, blocks=blocks)
            played.tell(found, after_s=15)
    if late and played.loop.state is State.EXPLAINING:
        for one in measures:
            here = np.flatnonzero(layout.placement == layout.brokers.index(one.broker)).tolist()
            played.tell(Recorded(broker=one.broker, round=one.round, trace=bursts(90_000, publishers=here)))
    return played


@pytest.mark.parametrize(("after_s", "states"), [(4, {State.JUDGING}), (5, {State.EXPLAINING, State.TAKING_BACK})])
def test_no_layout_is_judged_before_five_seconds_of_messages(after_s, states):
    played = measured_late()
    filled = Placed(round=played.place.round, calm_ns=20 * SECOND)
    measures = of_kind(Measure, played.tell(filled, after_s=1))
    assert {one.at_least_ns for one in measures} == {5 * SECOND}
    played.tell(progress(next(one for one in measures if one.broker == "b0"), late=1), after_s=after_s)
    assert played.loop.state in states


def test_a_layout_that_keeps_the_promise_stays():
    (done,) = of_kind(Done, judged(late=False, total_ns=0, blocks=600).actions)
    assert done.report.outcome is Outcome.FITS


def test_a_layout_that_is_worse_is_taken_back():
    played = judged(late=True, total_ns=3 * MS)
    assert played.loop.state is State.TAKING_BACK
    assert np.bincount(played.place.layout.placement).tolist() == [30, 10]
    (done,) = of_kind(Done, played.tell(Placed(round=played.place.round)))
    assert done.report.outcome is Outcome.TAKEN_BACK
    assert "2 ms before" in done.report.reason


def found_late(played, layout, measures, total_ns, after_s=15, service_ns=10_000):
    """b0 is late by ``total_ns``, and gets less so; with 10 us a message what arrived would be in time, replayed. What
    is measured then."""
    for one in measures:
        found = progress(one, late=int(one.broker == "b0"), total_ns=round(total_ns), blocks=600)
        falls = found.intervals.count * np.linspace(total_ns, total_ns * 0.9, len(found.intervals)).astype(np.int64)
        played.tell(replace(found, intervals=replace(found.intervals, latency_ns=falls)), after_s)
    for one in measures:
        here = np.flatnonzero(layout.placement == layout.brokers.index(one.broker)).tolist()
        played.tell(Recorded(broker=one.broker, round=one.round, trace=bursts(service_ns, publishers=here)))
    return played.measures


@pytest.mark.parametrize("worst_ms", [9.0, 1.5])  # 2 ms before
def test_a_layout_whose_replay_is_in_time_is_measured_again_while_it_gets_less_late(worst_ms):
    played = measured_late()
    layout = played.place.layout
    measures = of_kind(Measure, played.tell(Placed(round=played.place.round), after_s=1))
    for part in (1.0, 0.5):
        again = found_late(played, layout, measures, part * worst_ms * MS)
        assert played.loop.state is State.JUDGING
        assert {one.round for one in again} == {measures[0].round + 1}
        measures = again
    assert found_late(played, layout, measures, 0.5 * worst_ms * MS) == []
    assert played.loop.state in (State.TAKING_BACK, State.RESTING)


def test_a_layout_whose_replay_is_late_is_not_waited_for_though_it_gets_less_late():
    played = measured_late()
    layout = played.place.layout
    measures = of_kind(Measure, played.tell(Placed(round=played.place.round), after_s=1))
    assert not [one for one in found_late(played, layout, measures, 1.5 * MS, service_ns=90_000) if not one.held]
    assert played.loop.state in (State.PLACING, State.RESTING)


def test_a_layout_whose_replay_is_in_time_is_measured_again_for_120_s_at_most():
    played = measured_late()
    layout = played.place.layout
    measures = of_kind(Measure, played.tell(Placed(round=played.place.round), after_s=1))
    assert found_late(played, layout, measures, 9 * MS, after_s=60) == []
    assert played.loop.state is State.TAKING_BACK


def test_a_layout_that_is_better_and_late_yet_is_not_taken_back():
    played = judged(late=True, total_ns=round(1.5 * MS))
    assert played.loop.state in (State.PLACING, State.RESTING)
    assert not [one for one in of_kind(Place, played.actions) if (np.bincount(one.layout.placement) == [30, 10]).all()]


# Other topics first


BESIDE = [BrokerCapacity(name="b0", mcap=0.0), BrokerCapacity(name="b1", mcap=90.0, allocated=20.0)]


def test_a_move_that_breaks_the_promise_of_another_topic_for_2_s_is_taken_back_at_once():
    played = measured_late(start=replace(overloaded(), brokers=BESIDE))
    held = next(one for one in played.measures if one.broker == "b1")
    assert held.held
    assert played.tell(progress(held, others_kept=False)) == []
    assert played.tell(progress(held, others_kept=False), after_s=1.9) == []
    played.tell(progress(held, others_kept=False), after_s=0.1)
    assert played.loop.state is State.TAKING_BACK
    assert np.bincount(played.place.layout.placement).tolist() == [30, 10]
    assert played.loop.full == {"b1": 10.0}


def test_whoever_is_taken_back_does_not_come_where_another_topic_needs_the_broker():
    both = [replace(one, allocated=20.0) for one in two_empty()]
    played = Played(queued(ALWAYS), begin(brokers=both))
    for name in ("b0", "b1"):  # where it was submitted, and where it goes then
        (measure,) = (one for one in played.measures if one.broker == name)
        for after_s in (1, 2):
            played.tell(progress(measure, blocks=10, others_kept=False), after_s)
    assert played.loop.state is State.TAKING_BACK
    assert played.place.layout.brokers == ()


@pytest.mark.parametrize("rules", [ON_BREACH, ALWAYS])
def test_a_broker_that_publishers_have_left_is_not_blamed_for_the_promise_of_another_topic(rules):
    played = measured_late(rules)
    left = next(one for one in of_kind(Measure, played.tell(Placed(round=played.place.round))) if one.broker == "b0")
    for _ in range(3):
        assert played.tell(progress(left, blocks=10, others_kept=False), after_s=1.5) == []
    assert played.loop.state is State.JUDGING


def test_beside_other_topics_publishers_move_in_parts():
    played = measured_late(replace(ON_BREACH, moves=5), start=replace(overloaded(), brokers=BESIDE))
    sizes = []
    while played.loop.state is State.PLACING:
        place, measures = played.place, played.measures
        sizes.append(int(np.bincount(place.layout.placement)[place.layout.brokers.index("b0")]))
        played.tell(Placed(round=place.round), after_s=1)
        for one in measures:
            if played.loop.state is State.PLACING and not of_kind(Place, played.actions):
                played.tell(progress(one), after_s=2)
    assert len(sizes) == 2
    assert sizes == sorted(sizes, reverse=True)
    assert max(-np.diff([30, *sizes])) <= 5


# It ends


def test_no_message_ends_it():
    played = Played(queued(), begin())
    (done,) = of_kind(Done, played.tell(progress(played.measures[0], blocks=0, final=True), after_s=30))
    assert done.report.outcome is Outcome.NO_TRAFFIC


def test_no_consumer_ends_it():
    played = Played(queued(), begin())
    (done,) = of_kind(Done, played.tell(progress(played.measures[0], blocks=0, unsent=50, final=True), after_s=30))
    assert done.report.outcome is Outcome.NO_CONSUMER


def test_messages_that_are_late_and_of_which_none_was_recorded_end_it():
    played = Played(queued(), begin())
    (one,) = played.measures
    played.tell(progress(one, late=1), after_s=10)
    (done,) = of_kind(Done, played.tell(Recorded(broker="b0", round=one.round, trace=bursts(1_000, times=0))))
    assert done.report.outcome is Outcome.NO_BETTER
    assert "recorded" in done.report.reason


def test_no_broker_ends_it():
    loop = queued()
    (done,) = loop.handle(begin(brokers=[], in_force=None), 20 * SECOND)
    assert done.report.outcome is Outcome.NO_BROKER


def test_a_broker_that_reports_nothing_ends_it():
    played = Played(queued(), begin())
    played.tell(Tick(), after_s=44)
    assert played.loop.state is State.MEASURING
    (done,) = of_kind(Done, played.tell(Tick(), after_s=1))
    assert done.report.outcome is Outcome.SILENT
    assert "b0" in done.report.reason


def test_a_broker_that_leaves_ends_it_and_the_layout_before_comes_back():
    played = measured_late(start=replace(overloaded(), brokers=[*two_empty(), BrokerCapacity(name="b2", mcap=0.0)]))
    taker = next(name for name in played.place.layout.brokers if name != "b0")
    played.tell(BrokerLeft(broker="b2" if taker == "b2" else taker))
    assert played.loop.state in (State.TAKING_BACK, State.RESTING)


def test_a_scaler_that_never_answers_ends_it():
    task = small_task(scaler=Scaler.COMMAND)
    full = [BrokerCapacity(name="b0", mcap=30.0)]
    played = Played(queued(), begin(task=task, brokers=full, in_force=None))
    assert of_kind(AskScaler, played.actions)
    (done,) = of_kind(Done, played.tell(Tick(), after_s=180))
    assert done.report.outcome is Outcome.NO_BETTER


def test_a_scaler_that_brings_too_few_is_asked_for_the_rest():
    small = [BrokerCapacity(name=f"b{at}", mcap=10.0) for at in range(3)]
    played = Played(queued(), begin(task=small_task(scaler=Scaler.COMMAND), brokers=small[:1], in_force=None))
    assert of_kind(AskScaler, played.actions) == [AskScaler(brokers=3)]
    assert played.tell(ScalerAnswered(brokers=tuple(small[1:]))) == [AskScaler(brokers=1)]


def test_a_topic_that_others_placed_is_watched_on():
    played = measured_late()
    played.tell(Disturbed())
    assert played.loop.state is State.WATCHING


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data(), always=st.booleans())
def test_whatever_comes_a_search_ends_within_its_time(data, always):
    """Brokers report, or do not; layouts come into force, or do not; the scaler answers, or does not."""
    rules = replace(ALWAYS if always else ON_BREACH, moves=5)
    loop = queued(rules)
    task = small_task(scaler=Scaler.COMMAND)
    played = Played(
        loop, begin(task=task, brokers=BESIDE, in_force=laid_out(task, {"b0": range(30), "b1": range(30, 40)}))
    )
    began_ns, layout = played.now_ns, None
    pending = list(played.actions)
    while loop.state in SEARCHING:
        assert played.now_ns - began_ns <= SEARCH_AT_MOST_NS + 60 * SECOND
        event = Tick()
        if pending and data.draw(st.integers(0, 3)):
            action = pending.pop(0)
            if isinstance(action, Place):
                layout = action.layout
                event = Placed(round=action.round)
            elif isinstance(action, Measure):
                late = data.draw(st.integers(0, 1))
                event = progress(action, late=late, others_kept=data.draw(st.integers(0, 5)) > 0, final=not action.held)
            elif isinstance(action, Stop) and action.trace_wanted:
                members = range(40) if layout is None else np.flatnonzero(layout.placement >= 0)
                event = Recorded(broker=action.broker, round=action.round, trace=bursts(50_000, publishers=members))
            elif isinstance(action, AskScaler):
                event = ScalerAnswered()
        pending += played.tell(event, after_s=data.draw(st.sampled_from([0.1, 1, 5, 30])))
    assert loop.state in REST
    assert loop.outcome is not None

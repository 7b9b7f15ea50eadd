"""Online fitting, event by event, on brokers of its own: what is measured, what follows from it, and how it ends."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from distributor.fitting import summary as fitting_view
from distributor.fitting.events import (
    AskScaler,
    BrokerJoined,
    BrokerLeft,
    Done,
    Layout,
    Measure,
    Missing,
    Place,
    Placed,
    Recorded,
    Scaler,
    ScalerAnswered,
    Stop,
    Task,
)
from distributor.fitting.state_machine import AT_MOST_NS, Fitting
from distributor.model.columns import ALONE, NOWHERE
from distributor.placement.allocation import BrokerCapacity, Demand
from distributor.prediction.sequential_test import Verdict
from tests.support.fitting_steps import MS, SECOND, Climb, at_full, bursts, of_kind, placed_share, progress, small_task


def test_on_empty_brokers_everybody_is_let_in_at_once():
    climb = Climb(brokers=[BrokerCapacity(name="b0", mcap=100.0)])
    assert placed_share(climb.place) == 1


def test_where_nobody_can_be_placed_and_nobody_complained_what_is_in_force_stays():
    fitting = Fitting(small_task(), [])
    actions = fitting.start(0)
    assert [of_kind(Place, actions), len(of_kind(Done, actions))] == [[], 1]


def test_it_ends_when_all_are_clearly_below():
    climb = at_full()
    assert climb.tell(0, blocks=100) == []
    report = of_kind(Done, climb.tell(0, blocks=500))[0].report
    assert (report.fits, report.certain, report.took_ns) == (True, True, SECOND)
    assert report.rounds[0].verdicts == {"b0": Verdict.BELOW}


def test_it_decides_nothing_before_the_shortest_time():
    climb = at_full()
    climb.now_ns = SECOND - 1
    assert climb.tell(0, blocks=700) == []


def test_when_time_is_up_what_was_seen_is_taken_but_not_called_certain():
    report = of_kind(Done, at_full().tell(0, blocks=50, final=True))[0].report
    assert (report.fits, report.certain) == (True, False)


def test_what_no_subscriber_took_keeps_it_from_being_certain_and_is_said():
    climb = at_full()
    assert climb.tell(0, blocks=700, unsent=100) == [Stop(broker="b0", round=1, trace_wanted=True)]
    climb = at_full()
    report = of_kind(Done, climb.tell(0, blocks=700, unsent=100, final=True))[0].report
    assert (report.fits, report.certain, report.unsent) == (True, False, {"b0": 100 / 800})
    said = "b0: 12.5 % of the messages were not measured: no subscriber took them in time"
    assert said in fitting_view.explanation(report, MS)


def test_the_time_that_a_layout_has_been_in_force_counts_for_its_buckets():
    climb = at_full()
    climb.tell(0, late=1, blocks=160)
    place = of_kind(Place, climb.fitting.handle(Recorded(broker="b0", round=1, trace=bursts()), SECOND))[0]
    waits_ns = [
        of_kind(Measure, deepcopy(climb.fitting).handle(Placed(round=place.round, calm_ns=calm), SECOND))[0].after_ns
        for calm in (0, SECOND, 1_000 * SECOND)
    ]
    assert waits_ns == [waits_ns[0], waits_ns[0] - SECOND, 0]


def test_a_layout_is_measured_for_half_a_minute_in_all_however_often_its_arrivals_are_looked_at():
    climb = at_full()
    climb.now_ns = 4 * SECOND
    stops = climb.tell(0, blocks=500, late_at=(100, 101, 300))
    assert stops == [Stop(broker="b0", round=1, trace_wanted=True)]
    place = of_kind(Place, climb.fitting.handle(Recorded(broker="b0", round=1, trace=bursts()), 4 * SECOND))[0]
    assert climb.confirm(place)[0].at_most_ns == AT_MOST_NS - 4 * SECOND


def looked_at(late_at):
    """A layout whose sample is above the target by ``late_at`` of 500 bursts, and whose replay is clear; the round in
    which it is measured further."""
    climb = at_full()
    climb.now_ns = 4 * SECOND
    assert climb.tell(0, blocks=500, late_at=late_at) == [Stop(broker="b0", round=1, trace_wanted=True)]
    recorded = Recorded(broker="b0", round=1, trace=bursts(500, service_ns=10_000))
    climb.measures = climb.confirm(of_kind(Place, climb.fitting.handle(recorded, climb.now_ns))[0])
    climb.now_ns += 2 * SECOND
    return climb


def test_a_layout_whose_arrivals_are_clear_gets_another_half_a_minute():
    assert looked_at(late_at=range(0, 500, 90)).measures[0].at_most_ns == AT_MOST_NS


def test_where_arrivals_are_clear_and_the_sample_is_not_more_is_measured_until_all_of_it_is_within():
    climb = looked_at(late_at=range(0, 500, 90))  # 6
    assert deepcopy(climb).tell(0, blocks=149) == []
    (stop, done) = climb.tell(0, blocks=150)
    assert isinstance(stop, Stop)
    assert (done.report.fits, done.report.certain, done.report.replayed) == (True, True, True)
    assert len(done.report.rounds) == 1


def test_a_layout_that_is_lost_though_its_arrivals_were_clear_has_had_its_chance():
    climb = looked_at(late_at=range(0, 500, 90))
    assert of_kind(Stop, climb.tell(0, late=1, blocks=400))[0].trace_wanted
    recorded = Recorded(broker="b0", round=climb.measures[0].round, trace=bursts(500, service_ns=10_000))
    place = of_kind(Place, climb.fitting.handle(recorded, climb.now_ns))[0]
    assert place.layout.brokers == ("b0", "b1")


def test_a_broker_above_the_target_is_stopped_and_asked_for_its_trace():
    climb = at_full()
    assert climb.tell(0, late=1, blocks=160) == [Stop(broker="b0", round=1, trace_wanted=True)]
    assert climb.fitting.handle(Recorded(broker="b0", round=0, trace=bursts()), 0) == []  # of another round
    assert climb.fitting.handle(Recorded(broker="b9", round=1, trace=bursts()), 0) == []  # of nobody's
    place = of_kind(Place, climb.fitting.handle(Recorded(broker="b0", round=1, trace=bursts()), SECOND))[0]
    assert place.layout.brokers == ("b0", "b1")
    measures = climb.confirm(place)
    assert measures[0].after_ns > 0  # the share of b1 has to fill


def test_a_broker_that_leaves_is_replaced_in_the_layout():
    climb = at_full()
    place = of_kind(Place, climb.fitting.handle(BrokerLeft(broker="b0"), SECOND))[0]
    assert place.layout.brokers == ("b1",)
    gone = of_kind(Done, climb.fitting.handle(BrokerLeft(broker="b1"), SECOND))[0].report
    assert gone.missing == Missing(brokers=1)
    assert gone.layout.brokers == ()


def test_a_broker_that_nobody_uses_may_leave():
    assert at_full().fitting.handle(BrokerLeft(broker="b1"), SECOND) == []


def test_with_no_broker_at_all_the_scaler_is_asked_first():
    fitting = Fitting(small_task(scaler=Scaler.COMMAND), [])
    assert fitting.start(0) == [AskScaler(brokers=1)]
    came = fitting.handle(ScalerAnswered(brokers=(BrokerCapacity(name="new", mcap=0.0),)), SECOND)
    assert of_kind(Place, came)[0].layout.brokers == ("new",)


def test_a_scaler_that_brings_nothing_is_not_asked_again():
    fitting = Fitting(small_task(scaler=Scaler.COMMAND), [])
    fitting.start(0)
    report = of_kind(Done, fitting.handle(ScalerAnswered(), SECOND))[0].report
    assert (report.fits, report.missing) == (False, Missing(brokers=1))


def test_a_broker_that_joins_is_there_for_the_next_layout():
    climb = at_full()
    climb.fitting.handle(BrokerLeft(broker="b1"), 0)
    assert climb.fitting.handle(BrokerJoined(broker=BrokerCapacity(name="b2", mcap=0.0)), 0) == []
    climb.tell(0, late=1, blocks=160)
    place = of_kind(Place, climb.fitting.handle(Recorded(broker="b0", round=1, trace=bursts()), SECOND))[0]
    assert place.layout.brokers == ("b0", "b2")


def test_what_comes_after_the_end_is_of_no_use():
    climb = at_full()
    climb.tell(0, blocks=600)
    late = [progress(climb.measures[0]), Placed(round=1), BrokerLeft(broker="b0")]
    assert [climb.fitting.handle(event, SECOND) for event in late] == [[], [], []]


@pytest.mark.parametrize("spoilt", ["nowhere", "unknown", "full"])
def test_what_is_in_force_is_not_measured_where_it_cannot_be_right(spoilt):
    there = Layout(brokers=("b0",), placement=np.zeros(40, dtype=np.int64), shares_micro=((44_000_000, 40_000_000),))
    if spoilt == "nowhere":
        there.placement[0] = NOWHERE
    full = {"b0": 20.0} if spoilt == "full" else {}
    brokers = [BrokerCapacity(name=name, mcap=0.0) for name in (["b1"] if spoilt == "unknown" else ["b0", "b1"])]
    place = of_kind(Place, Fitting(small_task(full=full), brokers, in_force=there).start(0))[0]
    assert NOWHERE not in place.layout.placement
    assert "b1" in place.layout.brokers or spoilt == "nowhere"


@pytest.mark.parametrize(("unsent", "why"), [(0, "no traffic"), (7, "no subscriber took what came")])
def test_without_any_message_nothing_is_said_to_fit(unsent, why):
    climb = at_full()
    nothing = progress(climb.measures[0], blocks=0, unsent=unsent, final=True)
    report = of_kind(Done, climb.fitting.handle(nothing, SECOND))[0].report
    assert (report.heard, report.fits, report.certain) == (False, False, False)
    assert why in fitting_view.explanation(report, MS)[0]


def test_where_nothing_could_be_recorded_more_brokers_are_tried_one_by_one_and_then_it_ends():
    climb = at_full()
    for brokers in (1, 2):
        assert len(climb.place.layout.brokers) == brokers
        actions = []
        for at in range(brokers):
            actions = climb.tell(at, late=1, blocks=160) or actions
        for stop in of_kind(Stop, actions):
            actions = climb.fitting.handle(Recorded(broker=stop.broker, round=stop.round, trace=bursts(0)), SECOND)
        climb.place = of_kind(Place, actions)[0]
        climb.measures = climb.confirm(climb.place)
        climb.now_ns += 20 * SECOND
    report = of_kind(Done, actions)[0].report
    assert (report.fits, report.missing, len(report.rounds)) == (False, Missing(brokers=1), 2)


def test_the_scaler_is_not_asked_for_what_more_brokers_cannot_give():
    small = BrokerCapacity(name="b0", mcap=0.5)  # less than one publisher sends
    done = of_kind(Done, Fitting(small_task(scaler=Scaler.COMMAND), [small]).start(0))[0].report
    assert done.missing == Missing(mcap=1.0)
    demand = Demand(rates=np.ones(40), groups=np.full(40, ALONE), rate=44.0, burst=2.0)
    task = Task(demand=demand, percentile=99, target_ns=MS, scaler=Scaler.COMMAND)
    short = [BrokerCapacity(name=f"b{at}", mcap=10.0) for at in range(2)]
    assert of_kind(Done, Fitting(task, short).start(0))[0].report.missing == Missing(burst=4.0)


def test_a_scaler_whose_brokers_do_not_help_is_not_asked_for_ever():
    fitting = Fitting(small_task(scaler=Scaler.COMMAND), [])
    actions, asked = fitting.start(0), []
    while of_kind(AskScaler, actions):
        asked += [action.brokers for action in of_kind(AskScaler, actions)]
        none = BrokerCapacity(name=f"new-{len(asked)}", mcap=1.0, allocated=1.0)
        actions = fitting.handle(ScalerAnswered(brokers=(none,)), SECOND)
    assert asked[1:] == sorted(set(asked[1:]), reverse=True)
    assert of_kind(Done, actions)


def test_a_measurement_of_periodic_publishers_lasts_at_least_one_of_their_periods():
    task = small_task()
    slow = replace(task.demand, rates=np.full(40, 0.25), batches=np.ones(40, dtype=np.int64), periodic=np.ones(40) > 0)
    climb = Climb(replace(task, demand=slow), [BrokerCapacity(name="b0", mcap=0.0)])
    assert climb.measures[0].at_least_ns == 4 * SECOND
    climb.now_ns = 4 * SECOND - 1
    assert climb.tell(0, blocks=600) == []
    climb.now_ns += 1
    assert of_kind(Done, climb.tell(0, blocks=0))

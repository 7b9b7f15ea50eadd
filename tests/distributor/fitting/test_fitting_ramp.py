"""Online fitting, event by event, beside other topics: publishers come step by step, and go where a promise breaks."""

import numpy as np
import pytest

from distributor.fitting.events import Done, Measure, Missing, Place, Placed, Recorded, Stop, Task
from distributor.fitting.state_machine import BREACH_NS, Fitting
from distributor.model.columns import ALONE, NOWHERE
from distributor.placement.allocation import BrokerCapacity, Demand
from tests.support.fitting_steps import BUSY, MS, SECOND, Climb, bursts, of_kind, placed_share, progress, small_task


def small_task_on_one():
    demand = Demand(rates=np.full(40, 0.5), groups=np.full(40, ALONE), rate=22.0, burst=40.0)
    return Task(demand=demand, percentile=99, target_ns=MS)


def test_where_other_topics_are_publishers_are_let_in_at_10_30_and_100_per_cent():
    climb = Climb()
    shares = [placed_share(climb.place)]
    for _ in range(2):
        climb.step()
        shares.append(placed_share(climb.place))
    assert shares == pytest.approx([0.1, 0.3, 1.0], abs=0.05)


def test_the_promises_of_the_topics_that_are_there_are_watched_from_before_anybody_comes():
    fitting = Fitting(small_task(), BUSY)
    *watches, place = fitting.start(0)
    assert isinstance(place, Place)
    assert [(one.broker, one.round, one.held) for one in watches] == [
        (name, place.round, True) for name in place.layout.brokers
    ]


def test_a_breach_of_two_seconds_while_publishers_are_on_their_way_is_one():
    climb = Climb()
    climb.step()
    climb.now_ns += BREACH_NS
    on_the_way = [climb.tell(at) for at in range(2)][-1]  # the step to all of them is placed, and not yet in force
    assert of_kind(Measure, on_the_way) != []
    climb.measures = of_kind(Measure, on_the_way)
    climb.tell(0, others_kept=False)
    climb.now_ns += BREACH_NS
    done = of_kind(Done, climb.tell(0, others_kept=False, worst_ns=9 * MS))[0].report
    assert (done.fits, done.others_worst_ns) == (False, 9 * MS)
    assert list(done.full) == ["b0"]


def test_a_promise_that_is_kept_again_while_publishers_are_on_their_way_was_not_broken():
    fitting = Fitting(small_task(), BUSY)
    watch, *_ = fitting.start(0)
    assert fitting.handle(progress(watch, others_kept=False), 0) == []
    assert fitting.handle(progress(watch), BREACH_NS) == []
    assert fitting.handle(progress(watch, others_kept=False), 2 * BREACH_NS) == []


def test_a_step_of_the_ramp_waits_until_other_topics_are_served_as_promised():
    climb = Climb()
    climb.tell(0, others_kept=False)
    climb.now_ns = BREACH_NS - 1
    assert climb.tell(1) == []
    climb.now_ns = BREACH_NS
    assert climb.tell(1) == []  # b0 has not yet said that it is well again
    assert of_kind(Place, climb.tell(0, others_kept=True)) != []


def test_a_broker_that_has_not_reported_is_not_taken_for_calm():
    climb = Climb()
    climb.now_ns = 10 * BREACH_NS
    assert climb.tell(0) == []
    assert of_kind(Place, climb.tell(1)) != []


def test_what_is_not_in_order_when_a_step_has_been_measured_to_its_end_is_given_up():
    climb = Climb()
    climb.tell(0, final=True)
    actions = climb.tell(1, others_kept=False, final=True)
    assert of_kind(Done, actions)[0].report.full == {"b1": 0.0}  # at the first step it had kept nothing so far


def test_shares_follow_who_is_where_at_each_step():
    climb = Climb()
    for _ in range(3):
        layout = climb.place.layout
        heads = np.bincount(layout.placement[layout.placement != NOWHERE])
        rates = np.array([rate for rate, _ in layout.shares_micro])
        part = heads.sum() / len(layout.placement)
        assert rates.sum() == pytest.approx(44_000_000 * part)
        assert rates / rates.sum() == pytest.approx(heads / heads.sum())
        if len(climb.measures) and climb.place.layout.placement.min() == NOWHERE:
            climb.step()


def test_a_breach_of_two_seconds_gives_the_broker_back_to_those_who_were_there():
    climb = Climb()
    climb.step()
    assert climb.tell(0, others_kept=False, worst_ns=7 * MS) == []
    climb.now_ns += BREACH_NS
    actions = climb.tell(0, others_kept=False, worst_ns=9 * MS)
    assert {stop.broker for stop in of_kind(Stop, actions)} == {measure.broker for measure in climb.measures}
    done = of_kind(Done, actions)[0].report  # b1 has no room for the rest
    assert done.missing == Missing(brokers=1)
    assert not done.fits
    assert done.others_worst_ns == 9 * MS
    before = climb.place.layout.brokers.index("b0")
    let_in = np.count_nonzero(climb.place.layout.placement == before)  # at 30 %
    assert done.full == {"b0": pytest.approx(let_in / 3, abs=1.0)}
    (left,) = of_kind(Place, actions)  # who is on b1 stays there
    assert left.layout.brokers == ("b1",)
    assert (left.layout.placement == 0).tolist() == (climb.place.layout.placement == 1 - before).tolist()


def test_whom_no_other_broker_can_take_after_an_abort_is_placed_nowhere():
    climb = Climb(brokers=BUSY[:1], task=small_task_on_one())
    assert placed_share(climb.place) == pytest.approx(0.1, abs=0.05)
    climb.tell(0, others_kept=False)
    climb.now_ns += BREACH_NS
    actions = climb.tell(0, others_kept=False)
    (place,), (done,) = of_kind(Place, actions), of_kind(Done, actions)
    assert (placed_share(place), place.layout.brokers) == (0.0, ())
    assert done.report.full == climb.fitting.full == {"b0": 0.0}


def test_a_breach_that_passes_is_forgiven():
    climb = Climb()
    climb.step()
    climb.step()
    climb.now_ns += 1
    for turn in range(12):
        climb.now_ns += BREACH_NS // 2
        assert climb.tell(0, others_kept=turn % 2 == 0) == []


def test_after_an_abort_others_take_what_the_broker_gave_up():
    climb = Climb(brokers=[*BUSY, BrokerCapacity(name="b2", mcap=25.0)])
    climb.tell(0, others_kept=False)
    climb.now_ns += BREACH_NS
    aborted = climb.measures[0].broker
    place = of_kind(Place, climb.tell(0, others_kept=False))[0]
    assert aborted not in place.layout.brokers
    assert len(place.layout.brokers) == 2
    # At 10 % again: whoever was let in on the other broker is still there.
    before, after = climb.place.layout, place.layout
    for name in set(before.brokers) - {aborted}:
        mine = before.placement == before.brokers.index(name)
        assert (after.placement[mine] == after.brokers.index(name)).all()


def test_what_is_in_force_is_measured_first_and_nobody_climbs_a_ramp_to_where_he_is():
    begun = Climb()
    begun.step()
    begun.step()
    again = Fitting(small_task(), BUSY, in_force=begun.place.layout)
    place = of_kind(Place, again.start(0))[0]
    assert (place.layout.placement == begun.place.layout.placement).all()
    assert place.layout.shares_micro == begun.place.layout.shares_micro
    measures = of_kind(Measure, again.handle(Placed(round=place.round), 0))
    assert [measure.after_ns for measure in measures] == [0, 0]


def test_a_layout_beside_others_that_is_looked_at_late_ends_by_its_sample():
    climb = Climb()
    climb.step()
    climb.step()
    climb.now_ns += climb.measures[0].after_ns + 29 * SECOND
    undecided = range(0, 500, 90)
    stops = [climb.tell(at, blocks=500, late_at=undecided) for at in range(2)][-1]
    assert [stop.trace_wanted for stop in of_kind(Stop, stops)] == [True, True]
    for stop in of_kind(Stop, stops):
        unclear = Recorded(broker=stop.broker, round=stop.round, trace=bursts(500, service_ns=100_000))
        actions = climb.fitting.handle(unclear, climb.now_ns)
    climb.measures = climb.confirm(of_kind(Place, actions)[0])
    climb.now_ns += climb.measures[0].at_most_ns
    told = [climb.tell(at, blocks=0, final=True) for at in range(2)][-1]
    (done,) = of_kind(Done, told)
    assert (done.report.fits, done.report.certain) == (True, False)

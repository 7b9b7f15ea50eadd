"""The paper's online fitting, over the simulated fleet and event by event."""

import numpy as np
import pytest

from bench.simulation.fleet import Fleet, firings, grouped_demand
from distributor.fitting.events import (
    AskScaler,
    Begin,
    BrokerLeft,
    Done,
    Measure,
    Missing,
    Place,
    Placed,
    Progress,
    Scaler,
    ScalerAnswered,
    Stop,
    Task,
)
from distributor.fitting.paper import ROUND_NS, PaperFitting
from distributor.fitting.search import proportional
from distributor.model.columns import ALONE, NOWHERE
from distributor.placement.allocation import BrokerCapacity, Demand
from distributor.prediction.replay import Latency
from distributor.prediction.sequential_test import Intervals

MS = 1_000_000  # ns
SECOND = 1_000_000_000
EMPTY = np.zeros(0, dtype=np.int64)


@pytest.mark.slow
@pytest.mark.parametrize(("group", "rounds", "fewest"), [(5, 1, 1), (10, 3, 2), (20, 16, 4)])
def test_a_row_of_table_1_takes_rounds_of_a_minute_and_no_fewer_brokers_than_are_needed(group, rounds, fewest):
    demand = grouped_demand(1_000, group, 10.0, 11_000.0, 1_600.0)
    fleet = Fleet(
        demand,
        10,
        firings(-(-1_000 // group), 1.0, "staggered", 1_500, seed=1),
        {f"b{at}": 18_000 for at in range(8)},
    )
    fitting, task = PaperFitting(), Task(demand=demand, percentile=99, target_ns=MS)
    report = fleet.fit(fitting, fitting.handle(Begin(task=task, brokers=fleet.capacities, split=proportional), 0))
    assert report.fits
    assert not report.certain
    assert abs(len(report.rounds) - rounds) <= 2
    assert report.took_ns >= len(report.rounds) * ROUND_NS
    assert len(report.layout.brokers) >= fewest
    assert all(one.total_ns <= MS for one in fleet.measured(report.layout, 60).values())


class Paper:
    """100 publishers of 1 msg/s in groups of 10; brokers answer what the test says."""

    def __init__(self, brokers=3, groups=True, **more):
        grouping = np.arange(100) // 10 if groups else np.full(100, ALONE)
        demand = Demand(rates=np.ones(100), groups=grouping, rate=110.0, burst=50.0)
        task = Task(demand=demand, percentile=99, target_ns=MS, **more)
        self.fitting, self.now_ns = PaperFitting(), 0
        there = [BrokerCapacity(name=f"b{at}", mcap=0.0) for at in range(brokers)]
        self.take(self.fitting.handle(Begin(task=task, brokers=there, split=proportional), 0))

    def take(self, actions):
        self.actions = actions
        for action in actions:
            if isinstance(action, Place):
                self.place = action
        self.done = next((action.report for action in actions if isinstance(action, Done)), None)

    def counts(self):
        layout = self.place.layout
        return {name: np.count_nonzero(layout.placement == at) for at, name in enumerate(layout.brokers)}

    def confirm(self):
        self.take(self.fitting.handle(Placed(round=self.place.round), self.now_ns))
        return [action.broker for action in self.actions if isinstance(action, Measure)]

    def answer(self, name, p99_ms, final=True):
        self.take(
            self.fitting.handle(
                Progress(
                    broker=name,
                    round=self.place.round,
                    intervals=Intervals(at=EMPTY, count=EMPTY, late=EMPTY, latency_ns=EMPTY),
                    latency=Latency(count=1, total_ns=round(p99_ms * MS)),
                    final=final,
                ),
                self.now_ns,
            )
        )

    def round(self, p99_ms):
        """{broker: p99} of the next round; others have 0.5 ms."""
        for name in self.confirm():
            self.answer(name, p99_ms.get(name, 0.5))


def test_the_first_assignment_goes_by_rates_alone_and_ends_when_it_fits():
    paper = Paper()
    assert paper.counts() == {"b0": 100}
    paper.round({"b0": 0.3})  # however far below: there is nothing to search for
    assert paper.done.fits
    assert paper.done.full == {}


def test_the_search_halves_and_stops_within_a_fifth_below_the_target():
    paper = Paper()
    tried = []
    for p99 in (4.0, 2.0, 0.4, 0.7, 0.85):
        tried.append(paper.counts()["b0"])
        paper.round({"b0": p99})
    assert tried == [100, 50, 25, 37, 43]
    assert paper.counts() == {"b0": 43, "b1": 57}


def test_the_search_stops_at_neighbours_where_no_number_is_close_to_the_target():
    paper = Paper()
    while "b1" not in paper.counts():
        paper.round({"b0": 0.1 if paper.counts()["b0"] <= 10 else 3.0})
    assert paper.counts() == {"b0": 10, "b1": 90}


def test_what_is_given_up_waits_for_the_end_of_the_search_and_goes_to_additional_brokers_only():
    paper = Paper()
    paper.round({"b0": 4.0})
    assert np.count_nonzero(paper.place.layout.placement == NOWHERE) == 50
    paper.round({"b0": 0.9})
    assert paper.counts() == {"b0": 50, "b1": 50}
    assert paper.confirm() == ["b1"]  # b0 is full and has been measured
    paper.answer("b1", 4.0)
    paper.round({"b1": 0.9})
    assert paper.counts() == {"b0": 50, "b1": 25, "b2": 25}
    paper.round({"b2": 0.2})
    assert paper.done.full == {"b0": 50.0, "b1": 25.0}
    assert sum(rate for rate, _ in paper.done.layout.shares_micro) == 110_000_000


def test_what_a_broker_keeps_is_in_proportion_from_every_group():
    paper = Paper()
    for p99 in (4.0, 2.0, 0.9):
        paper.round({"b0": p99})
    kept = np.flatnonzero(paper.place.layout.placement == 0)
    assert len(kept) == 25
    assert set(np.bincount(kept // 10).tolist()) == {2, 3}


def test_a_round_lasts_until_every_broker_has_measured_to_its_end():
    paper = Paper()
    paper.confirm()
    paper.answer("b0", 0.3, final=False)
    assert paper.actions == []
    paper.answer("b0", 0.3)
    assert paper.actions[0] == Stop(broker="b0", round=1, trace_wanted=False)


def test_when_brokers_run_out_the_scaler_is_asked_and_then_what_is_missing_is_said():
    paper = Paper(brokers=1, scaler=Scaler.COMMAND)
    paper.round({"b0": 4.0})
    paper.round({"b0": 0.9})
    assert paper.actions[-1] == AskScaler(brokers=1)
    paper.take(paper.fitting.handle(ScalerAnswered(), SECOND))
    assert (paper.done.fits, paper.done.missing) == (False, Missing(brokers=1))
    assert paper.counts() == {"b0": 50}


def test_a_broker_that_the_scaler_brings_takes_the_rest():
    paper = Paper(brokers=1, scaler=Scaler.PROCESS)
    paper.round({"b0": 4.0})
    paper.round({"b0": 0.9})
    paper.take(paper.fitting.handle(ScalerAnswered(brokers=(BrokerCapacity(name="new", mcap=0.0),)), SECOND))
    assert paper.counts() == {"b0": 50, "new": 50}


def test_publishers_of_a_broker_that_leaves_are_placed_again():
    paper = Paper()
    paper.round({"b0": 4.0})
    paper.round({"b0": 0.9})
    paper.confirm()
    paper.take(paper.fitting.handle(BrokerLeft(broker="b0"), SECOND))
    assert paper.actions == []  # b1 is still measuring
    paper.answer("b1", 0.3)
    assert paper.counts() == {"b1": 50, "b2": 50}


def test_a_broker_that_leaves_before_it_is_placed_does_not_stop_the_fitting():
    paper = Paper(groups=False)
    assert paper.fitting.handle(BrokerLeft(broker="b0"), SECOND) == []
    paper.confirm()
    assert paper.counts() == {"b1": 100}


def few_tokens(burst, brokers):
    demand = Demand(rates=np.ones(100), groups=np.full(100, ALONE), rate=110.0, burst=burst)
    paper = Paper.__new__(Paper)
    task = Task(demand=demand, percentile=99, target_ns=MS, scaler=Scaler.COMMAND)
    paper.fitting, paper.now_ns = PaperFitting(), 0
    paper.take(paper.fitting.handle(Begin(task=task, brokers=brokers, split=proportional), 0))
    return paper


def test_with_fewer_tokens_than_brokers_a_burst_is_missing_and_nobody_is_asked_for_brokers():
    paper = few_tokens(1.0, [BrokerCapacity(name=f"b{at}", mcap=60.0) for at in range(2)])
    assert (paper.done.fits, paper.done.missing) == (False, Missing(burst=3.0))
    paper = few_tokens(1.0, [BrokerCapacity(name=f"b{at}", mcap=0.0) for at in range(2)])
    paper.round({"b0": 4.0})
    assert paper.place.layout.shares_micro == ((110_000_000, 1_000_000),)  # those that wait have no token
    paper.round({"b0": 0.9})
    assert (paper.done.fits, paper.done.missing) == (False, Missing(burst=2.0))


def test_when_nobody_waits_all_tokens_are_with_the_brokers():
    demand = Demand(rates=np.full(100, 0.1), groups=np.full(100, ALONE), rate=11.0, burst=7.0)
    brokers = [BrokerCapacity(name=f"b{at}", mcap=3.4) for at in range(3)]
    begin = Begin(task=Task(demand=demand, percentile=99, target_ns=MS), brokers=brokers, split=proportional)
    place = next(action for action in PaperFitting().handle(begin, 0) if isinstance(action, Place))
    assert len(place.layout.brokers) == 3
    assert sum(burst for _, burst in place.layout.shares_micro) == 7_000_000


def test_a_scaler_whose_brokers_keep_nobody_is_not_asked_for_ever():
    paper = Paper(brokers=1, scaler=Scaler.COMMAND)
    asked = 0
    while paper.done is None:
        if isinstance(paper.actions[-1], AskScaler):
            asked += 1
            new = BrokerCapacity(name=f"new-{asked}", mcap=0.0)
            paper.take(paper.fitting.handle(ScalerAnswered(brokers=(new,)), SECOND))
        else:
            paper.round(dict.fromkeys(paper.counts(), 4.0))
    assert asked <= 2
    assert paper.done.full == {}

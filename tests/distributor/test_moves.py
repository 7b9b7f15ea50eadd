"""Moving from layout to layout: nobody moves without need, and load comes to a broker in steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributor.allocation import Demand
from distributor.fitting_events import Layout
from distributor.moves import let_in, with_fewest_moves
from distributor.spreading import NOWHERE


def layout(placement, brokers=("a", "b", "c")):
    return Layout(brokers=brokers, placement=np.array(placement), shares_micro=((1, 1),) * len(brokers))


def demand(groups, rates=None):
    rates = np.ones(len(groups)) if rates is None else np.array(rates, dtype=np.float64)
    return Demand(rates=rates, groups=np.array(groups), rate=float(rates.sum()), burst=10.0)


@st.composite
def two_layouts(draw):
    size = draw(st.integers(1, 40))
    column = st.lists(st.integers(NOWHERE, 2), min_size=size, max_size=size)
    rates = draw(st.lists(st.sampled_from([1.0, 2.0]), min_size=size, max_size=size))
    asked = demand(draw(st.lists(st.integers(-1, 3), min_size=size, max_size=size)), rates)
    return layout(draw(column), ("b", "a", "gone")), layout(draw(column)), asked


def counts(made, asked):
    """How many of each kind each broker has."""
    return sorted(zip(asked.groups.tolist(), asked.rates.tolist(), made.placement.tolist(), strict=True))


def moved(old, new):
    names = {name: at for at, name in enumerate(new.brokers)}
    was = [names.get(old.brokers[at], NOWHERE) if at != NOWHERE else NOWHERE for at in old.placement.tolist()]
    return sum(before != after for before, after in zip(was, new.placement.tolist(), strict=True)), was


@given(two_layouts())
def test_every_broker_gets_as_many_of_each_kind_and_as_many_stay_as_can(given_layouts):
    old, new, asked = given_layouts
    made = with_fewest_moves(old, new, asked)
    assert counts(made, asked) == counts(new, asked)
    moves, was = moved(old, made)
    kinds = list(zip(asked.groups.tolist(), asked.rates.tolist(), strict=True))
    before = [(*kind, at) for kind, at in zip(kinds, was, strict=True)]
    after = [(*kind, at) for kind, at in zip(kinds, new.placement.tolist(), strict=True)]
    assert moves == len(kinds) - sum(min(before.count(one), after.count(one)) for one in set(before))


def test_one_more_broker_moves_its_part_only():
    old = layout([0, 0, 0, 1, 1, 1] * 10, ("a", "b"))
    new = layout([0, 1, 2, 0, 1, 2] * 10)
    assert moved(old, with_fewest_moves(old, new, demand([0] * 60)))[0] == 20


@pytest.mark.parametrize(("part", "let"), [(0.1, 2), (0.3, 6), (1.0, 20)])
def test_of_those_that_come_only_a_part_is_let_in(part, let):
    nobody = layout([NOWHERE] * 40, ())
    made = let_in(nobody, layout([0, 1] * 20, ("a", "b")), part)
    assert [np.count_nonzero(made.placement == at) for at in (0, 1)] == [let, let]


def test_those_that_are_not_yet_let_in_stay_where_they_are_or_wait_if_that_is_over():
    old = layout([0] * 10 + [1] * 10, ("a", "gone"))
    made = let_in(old, layout([0, 1] * 10, ("a", "b")), 0.2)
    assert np.count_nonzero(made.placement == 1) == 2
    assert np.count_nonzero(made.placement[:10] == 0) == 9
    assert np.count_nonzero(made.placement[10:] == 0) == 1  # of 5 that come to a
    assert np.count_nonzero(made.placement[10:] == NOWHERE) == 8

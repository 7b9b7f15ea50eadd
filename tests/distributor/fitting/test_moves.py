"""Moving from layout to layout: nobody moves without need, and load comes to a broker in steps."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributor.fitting.events import Layout
from distributor.fitting.moves import let_in, receiving, with_fewest_moves
from distributor.fitting.search import proportional
from distributor.model.columns import ALONE, NOWHERE
from distributor.placement.allocation import Demand


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


@pytest.mark.slow
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
    made = let_in(nobody, layout([0, 1] * 20, ("a", "b")), part, demand([ALONE] * 40), proportional)
    assert [np.count_nonzero(made.placement == at) for at in (0, 1)] == [let, let]


OLD, NEW = layout([0] * 10 + [1] * 10, ("a", "old")), layout([0, 1] * 10, ("a", "b"))


def test_those_that_are_not_yet_let_in_stay_where_they_are_and_shares_are_of_who_is_where():
    made = let_in(OLD, NEW, 0.2, demand([ALONE] * 20), proportional)
    assert made.brokers == ("a", "b", "old")
    assert np.bincount(made.placement).tolist() == [10, 2, 8]  # one of 5 comes to a, two of 10 to b
    assert [rate for rate, _ in made.shares_micro] == [10_000_000, 2_000_000, 8_000_000]


def test_who_is_on_a_broker_for_which_there_is_no_token_waits_and_at_the_end_the_layout_is_the_new_one():
    asked = replace(demand([ALONE] * 20), burst=2.0)
    made = let_in(OLD, NEW, 0.2, asked, proportional)
    assert made.brokers == ("a", "b")
    assert np.count_nonzero(made.placement == NOWHERE) == 8
    assert sum(burst for _, burst in made.shares_micro) == 2_000_000
    assert let_in(OLD, NEW, 1.0, asked, proportional) is NEW


def test_publishers_of_different_batch_or_process_are_not_exchanged():
    asked = replace(demand([0] * 4), batches=np.array([1, 10, 1, 1]), periodic=np.array([False, False, False, True]))
    old, new = layout([0, 0, 1, 1], ("a", "b")), layout([1, 0, 0, 1], ("a", "b"))
    assert with_fewest_moves(old, new, asked).placement.tolist() == [0, 0, 1, 1]  # the like of 0 and 2
    new = layout([0, 1, 0, 1], ("a", "b"))
    assert with_fewest_moves(old, new, asked).placement.tolist() == [0, 1, 0, 1]  # 1 and 3 have no like


def test_receiving_are_those_that_get_somebody_new():
    assert receiving(OLD, NEW) == {"a", "b"}
    assert receiving(layout([0, 1, NOWHERE], ("a", "b")), layout([0, 0, 1], ("b", "c"))) == {"b", "c"}
    assert receiving(NEW, NEW) == set()

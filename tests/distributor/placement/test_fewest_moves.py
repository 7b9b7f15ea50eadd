"""Who moves when publishers of unequal rates come, in groups, to brokers where others are: no more than must."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distributor.model.columns import ALONE
from distributor.placement.allocation import BrokerCapacity, Demand, place_more

_ROUNDING = 1e-5  # msg/s


@st.composite
def small_fleets(draw):
    """(rates, not all equal; groups; brokers; who is where): two or three brokers, each with room for one more."""
    count, k = draw(st.integers(3, 6)), draw(st.integers(2, 3))
    some = st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=count, max_size=count)
    rates = np.array(draw(some.filter(lambda one: len(set(one)) > 1)))
    groups = np.array(draw(st.lists(st.integers(ALONE, 1), min_size=count, max_size=count)))
    rooms = draw(st.lists(st.floats(1.01, 1.5), min_size=k, max_size=k))
    offered = [
        BrokerCapacity(name=f"b{at}", mcap=float(rates.sum() / k + room * rates.max())) for at, room in enumerate(rooms)
    ]
    held = draw(st.lists(st.sampled_from([None, *(one.name for one in offered)]), min_size=count, max_size=count))
    return rates, groups, offered, held


def keeps_all(at, rates, groups, quotas, rooms):
    """Capacities, quotas, and the proportions of groups: what holds for unequal rates."""
    loads = np.bincount(at, weights=rates, minlength=len(quotas))
    if (loads > rooms + _ROUNDING).any() or (np.abs(loads - quotas) > rates.max() + _ROUNDING).any():
        return False
    for group in {*groups.tolist()} - {ALONE}:
        here = np.bincount(at, weights=np.where(groups == group, rates, 0.0), minlength=len(quotas))
        if (np.abs(here - here.sum() * quotas / quotas.sum()) > 2 * rates.max() + _ROUNDING).any():
            return False
    return True


@settings(max_examples=50)
@given(small_fleets())
def test_no_placement_that_keeps_the_same_principles_moves_fewer(fleet):
    rates, groups, offered, held = fleet
    made = place_more(Demand(rates=rates, groups=groups, rate=1.1 * rates.sum(), burst=100.0), offered, held, "srtm")
    rooms = np.array([one.mcap for name in made.brokers for one in offered if one.name == name])
    assert made.state == "placed"
    assert keeps_all(made.placement, rates, groups, made.quotas, rooms)
    before = np.array([made.brokers.index(name) if name in made.brokers else ALONE for name in held])
    placed = np.array([name is not None for name in held])
    every = (np.array(at) for at in product(range(len(made.brokers)), repeat=len(rates)))
    fewest = min(((at != before) & placed).sum() for at in every if keeps_all(at, rates, groups, made.quotas, rooms))
    assert ((made.placement != before) & placed).sum() == fewest

"""The order in which publishers are kept, and how many."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distributor.model.columns import ALONE
from distributor.placement.retention import fair_order, most_kept


@given(st.lists(st.integers(ALONE, 5), min_size=1, max_size=80), st.data())
def test_the_first_n_have_of_every_group_its_proportion_within_one(groups, data):
    groups = np.array(groups)
    members = np.flatnonzero(np.array(data.draw(st.lists(st.booleans(), min_size=len(groups), max_size=len(groups)))))
    ordered = fair_order(members, groups)
    assert sorted(ordered.tolist()) == members.tolist()
    sizes = {group: np.count_nonzero(groups[members] == group) for group in set(groups[members].tolist()) - {ALONE}}
    for count in range(len(members) if sizes else 0):
        taken = {group: np.count_nonzero(groups[ordered[:count]] == group) for group in sizes}
        # One part of the whole, of which every group has given as many, give or take one.
        least = max((taken[group] - 1) / sizes[group] for group in sizes)
        most = min((taken[group] + 1) / sizes[group] for group in sizes)
        assert least <= most


@given(st.integers(0, 200), st.integers(0, 250))
def test_the_most_that_is_kept_is_found_in_few_questions(members, limit):
    asked = []

    def keeps(count):
        asked.append(count)
        return count <= limit

    assert most_kept(members, keeps) == min(members, limit)
    assert len(asked) <= 9

"""Bins between two reports: columns that stay together, and the rate of the share where it is another."""

from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from broker.history.bins import Columns, EngineBins

RATES = st.lists(st.sampled_from([0.0, 100.0, 250.5]), min_size=1, max_size=12)


def told(first, rates):
    """Of bins with these rates at their ends, as the engine says it: pairs where the rate is another one."""
    supply = [(first + at, rate) for at, rate in enumerate(rates) if at == 0 or rate != rates[at - 1]]
    numbers = list(range(first, first + len(rates)))
    return EngineBins(
        topic="t",
        version=1,
        first=first,
        arrivals=numbers,
        waiting=[2 * number for number in numbers],
        unfinished=[float(number) for number in numbers],
        delay_ns=[3 * number for number in numbers],
        supply=supply,
    )


def empty(first, bins):
    """Bins of which the engine said nothing."""
    return msgspec.structs.replace(told(first, [0.0] * bins), supply=[])


def spread(supply, length):
    """The rate at the end of each bin."""
    rates = dict(supply)
    return [rates[max(at for at in rates if at <= bin_)] for bin_ in range(length)]


@given(st.lists(RATES, min_size=1, max_size=4), st.integers(0, 3))
def test_the_rate_of_each_bin_is_told_however_they_came_and_whatever_was_reported_before(parts, reported):
    columns = Columns()
    first, left = 5, []
    for number, rates in enumerate(parts):
        if number == min(reported, len(parts) - 1):
            columns.clear()
            left = []
        columns.add(told(first, rates))
        first += len(rates)
        left += rates
    assert spread(columns.supply(), len(columns.arrivals)) == left
    assert columns.arrivals[0] == columns.first
    assert len(columns.supply()) == 1 + sum(now != before for before, now in pairwise(left))


def test_what_was_told_before_says_the_rate_of_bins_that_are_only_known_to_be_empty():
    columns = Columns()
    columns.add(told(5, [100.0, 250.5]))
    columns.clear()
    columns.add(empty(7, 2))
    assert columns.supply() == [(0, 250.5)]


def test_of_bins_before_the_first_rate_that_was_told_none_is_said():
    columns = Columns()
    columns.add(empty(5, 2))
    columns.add(told(7, [100.0]))
    assert columns.supply() == [(2, 100.0)]


def test_bins_that_are_known_are_left_out_of_every_column():
    later = told(5, [100.0, 100.0, 250.5]).from_bin(7)
    assert (later.first, later.arrivals, later.waiting, later.unfinished, later.delay_ns) == (7, [7], [14], [7.0], [21])
    columns = Columns()
    columns.add(told(5, [100.0, 100.0]))
    columns.add(later)
    assert (columns.arrivals, columns.supply()) == ([5, 6, 7], [(0, 100.0), (2, 250.5)])

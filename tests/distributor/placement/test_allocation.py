"""Laws of the placement, over random topics and brokers, and the examples of the paper."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distributor.model.columns import ALONE, NOWHERE
from distributor.placement import allocation
from distributor.placement.allocation import STRATEGIES, BrokerCapacity, Demand, Plan, concentration, place_more, plan
from distributor.placement.quotas import fill, round_table


def demand(rates, groups=None, burst=1000.0):
    rates = np.asarray(rates, dtype=np.float64)
    groups = np.full(len(rates), ALONE) if groups is None else np.asarray(groups)
    return Demand(rates=rates, groups=groups, rate=float(rates.sum()) * 1.1, burst=burst)


def brokers(*mcaps, allocated=()):
    loads = [*allocated, *[0.0] * (len(mcaps) - len(allocated))]
    return [
        BrokerCapacity(name=f"b{at}", mcap=mcap, allocated=load)
        for at, (mcap, load) in enumerate(zip(mcaps, loads, strict=True))
    ]


def heads(made: Plan) -> dict[str, int]:
    counts = np.bincount(made.placement[made.placement != NOWHERE], minlength=len(made.brokers))
    return dict(zip(made.brokers, counts.tolist(), strict=True))


def moves(made: Plan, held) -> int:
    """Publishers that were somewhere and are elsewhere now."""
    now = [None if at == NOWHERE else made.brokers[at] for at in made.placement.tolist()]
    return sum(old is not None and old != new for old, new in zip(held, now, strict=True))


def cells(made: Plan, rates, groups) -> dict[int, np.ndarray]:
    """{group: msg/s of it on each broker}."""
    rates, groups = np.asarray(rates), np.asarray(groups)
    found = {}
    for group in set(groups.tolist()) - {ALONE}:
        here = (groups == group) & (made.placement != NOWHERE)
        found[group] = np.bincount(made.placement[here], weights=rates[here], minlength=len(made.brokers))
    return found


def assert_in_proportion(made: Plan, rates, groups, publishers: float) -> None:
    """Every group within so many times the largest rate of its proportion, by the quotas, on every broker."""
    part = made.quotas / made.quotas.sum()
    for group, load in cells(made, rates, groups).items():
        whole = np.asarray(rates)[np.asarray(groups) == group].sum()
        assert np.all(np.abs(load - whole * part) <= publishers * max(rates) + 1e-5)


some_brokers = st.lists(
    st.tuples(st.floats(1, 500), st.floats(0, 400)).map(lambda pair: (pair[0], min(pair))), min_size=1, max_size=8
).map(lambda pairs: brokers(*[pair[0] for pair in pairs], allocated=[pair[1] for pair in pairs]))
some_groups = st.lists(st.integers(ALONE, 12), min_size=1, max_size=150)
a_strategy = st.sampled_from(sorted(STRATEGIES))


@given(st.data(), some_brokers, some_groups, a_strategy)
def test_no_broker_is_ever_above_its_residual_capacity_and_nobody_is_lost(data, offered, groups, strategy):
    rates = data.draw(st.lists(st.floats(0.1, 50), min_size=len(groups), max_size=len(groups)))
    made = plan(demand(rates, groups), offered, strategy)
    rcap = {broker.name: broker.rcap for broker in offered}
    for name, assigned in zip(made.brokers, made.assigned, strict=True):
        assert assigned <= rcap[name] * (1 + 1e-6) + 1e-6
    placed = made.placement != NOWHERE
    assert made.assigned.sum() + made.missing == pytest.approx(sum(rates))
    assert np.asarray(rates)[~placed].sum() == pytest.approx(made.missing)
    assert all(count > 0 for count in heads(made).values())
    assert made.state == ("placed" if placed.all() else "partial" if placed.any() else "waiting")


@given(some_brokers, some_groups, a_strategy, st.floats(0.5, 20))
def test_publishers_of_equal_rate_end_within_one_publisher_of_the_quota(offered, groups, strategy, rate):
    made = plan(demand([rate] * len(groups), groups), offered, strategy)
    assert np.all(np.abs(made.assigned - made.quotas) < rate + 1e-6)
    if made.missing == 0 and strategy in ("maxmin", "srtm"):  # the others may leave brokers out, and their quotas
        assert made.quotas.sum() == pytest.approx(rate * len(groups), abs=rate)


@pytest.mark.slow
@given(some_brokers, some_groups)
def test_every_correlation_group_is_spread_in_proportion_within_one_publisher(offered, groups):
    made = plan(demand([1.0] * len(groups), groups), offered, "srtm")
    total = np.asarray(list(heads(made).values()))
    for group in set(groups) - {ALONE}:
        members = made.placement[np.asarray(groups) == group]
        here = np.bincount(members[members != NOWHERE], minlength=len(made.brokers))
        assert np.all(np.abs(here - len(members) * total / len(groups)) < 1)


@given(some_brokers, some_groups, st.floats(0.5, 20))
def test_no_smaller_number_of_brokers_would_have_held_equal_publishers(offered, groups, rate):
    made = plan(demand([rate] * len(groups), groups), offered, "srtm")
    if made.state == "placed":
        room = sorted((int(broker.rcap / rate * (1 + 1e-9)) for broker in offered), reverse=True)
        assert sum(room[: len(made.brokers) - 1]) < len(groups)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.lists(st.integers(0, 60), min_size=1, max_size=9))
def test_a_table_is_rounded_with_exact_sums_and_every_entry_up_or_down(rows, columns):
    columns[-1] += max(0, sum(rows) - sum(columns))
    rows[-1] += sum(columns) - sum(rows)
    table = round_table(np.array(rows), np.array(columns))
    assert table.sum(axis=1).tolist() == rows
    assert table.sum(axis=0).tolist() == columns
    assert np.all(np.abs(table * max(sum(rows), 1) - np.outer(rows, columns)) < max(sum(rows), 1))


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100) | st.just(float("inf"))), min_size=1, max_size=20),
    st.floats(0, 3000),
)
@example([(1.0, 2.225073858507e-311)], 0.0)
def test_water_filling_sums_to_the_rate_and_only_full_brokers_are_below_the_level(pairs, rate):
    base, room = (np.array(column) for column in zip(*pairs, strict=True))
    quotas = fill(base, room, rate)
    assert quotas.sum() == pytest.approx(min(rate, room.sum()), abs=1e-9)
    assert np.all(quotas <= room)
    filled = (base + quotas)[quotas > 0]
    level = filled.max(initial=0.0)
    assert np.all((quotas == room) | (base + quotas >= level - 1e-6))


def test_concentration_takes_the_fewest_brokers_that_cover_the_rate():
    assert concentration(np.array([50.0, 40.0, 30.0]), 90.0) == 2
    assert concentration(np.array([50.0, 40.0, 30.0]), 90.1) == 3
    assert concentration(np.array([50.0, 40.0, 30.0]), 500.0) == 3


def test_the_smallest_share_is_as_large_as_capacities_allow_and_the_rest_is_filled_up():
    # min(rcap, rate / k) as the paper writes it would leave 10 of 100 unassigned: 50 + 40.
    made = plan(demand([1.0] * 100), brokers(70, 40), "maxmin")
    assert heads(made) == {"b0": 60, "b1": 40}


def test_conc_levels_the_total_load_where_maxmin_levels_the_topic():
    offered = brokers(100, 100, 100, allocated=[10, 40, 50])
    topic = demand([1.0] * 170)
    assert heads(plan(topic, offered, "conc")) == {"b0": 80, "b1": 50, "b2": 40}
    assert heads(plan(topic, offered, "maxmin")) == {"b0": 60, "b1": 60, "b2": 50}


def test_lb_spreads_evenly_over_all_brokers():
    assert heads(plan(demand([10.0] * 300), brokers(8000, 8000, 8000), "lb")) == {"b0": 100, "b1": 100, "b2": 100}


def test_one_more_broker_is_taken_where_publishers_cannot_be_packed():
    # 15 + 15 covers 30, yet holds only one publisher of 10 each.
    assert heads(plan(demand([10.0] * 3), brokers(15, 15, 15), "srtm")) == {"b0": 1, "b1": 1, "b2": 1}
    assert heads(plan(demand([10.0, 9.0, 8.0]), brokers(14, 14, 14), "srtm")) == {"b0": 1, "b1": 1, "b2": 1}


def test_no_more_brokers_than_whole_tokens_in_the_burst():
    made = plan(demand([1.0] * 10, burst=2.9), brokers(4, 4, 4), "lb")
    assert len(made.brokers) == 2
    assert made.state == "partial"
    assert any("allows 2 brokers" in reason for reason in made.reasons)


def test_an_unstated_capacity_is_no_limit():
    assert heads(plan(demand([1e6] * 10), brokers(100, 0), "srtm")) == {"b1": 10}


def test_without_brokers_the_topic_waits_and_says_what_is_missing():
    made = plan(demand([5.0] * 3), [], "srtm")
    assert made.state == "waiting"
    assert made.missing == 15
    assert "missing 15 msg/s of capacity: there is no broker yet" in made.reasons


def test_the_reasons_name_the_cost_of_spreading_evenly():
    made = plan(demand([10.0] * 100, burst=30.0), brokers(1000, 1000, 1000), "srtm")
    assert heads(made) == {"b0": 100}
    assert "367 msg/s with 10 tokens instead of 1,100 msg/s with 30" in made.reasons[-1]
    assert "2.73 ms there, not 0.909 ms" in made.reasons[-1]


def test_the_same_input_gives_the_same_plan():
    topic = demand(np.linspace(1, 9, 200), np.arange(200) % 7)
    for strategy in STRATEGIES:
        first, second = (plan(topic, brokers(700, 600, 500), strategy) for _ in range(2))
        assert first.placement.tolist() == second.placement.tolist()


def test_publishers_that_join_leave_the_others_where_they_are():
    offered = brokers(60, 60, 60)
    groups = np.repeat(np.arange(10), 10)
    first = plan(demand([1.0] * 80, groups[:80]), offered, "srtm")
    held = [first.brokers[at] for at in first.placement] + [None] * 20
    grown = place_more(demand([1.0] * 100, groups), offered, held, "srtm")
    assert [grown.brokers[at] for at in grown.placement[:80]] == held[:80]
    assert heads(grown) == {"b0": 50, "b1": 50}
    for group in range(10):
        assert np.bincount(grown.placement[groups == group]).tolist() == [5, 5]


def test_publishers_that_join_get_another_broker_only_where_the_present_ones_are_full():
    offered = brokers(60, 60, 60)
    held = ["b0"] * 50 + [None] * 10
    assert heads(place_more(demand([1.0] * 60), offered, held, "srtm")) == {"b0": 60}
    grown = place_more(demand([1.0] * 61), offered, [*held, None], "srtm")
    assert sorted(heads(grown).values()) == [30, 31]
    assert moves(grown, [*held, None]) == 19


def test_where_the_burst_has_a_token_for_one_broker_alone_a_larger_one_takes_over():
    held = ["b0"] * 90 + [None] * 110
    grown = place_more(demand([1.0] * 200, burst=1.5), brokers(100, 1000), held, "srtm")
    assert (grown.state, heads(grown)) == ("placed", {"b1": 200})


@given(some_brokers, st.lists(st.tuples(st.integers(ALONE, 5), st.floats(0.1, 30)), min_size=1, max_size=60))
def test_joining_one_by_one_never_overloads_a_broker(offered, publishers):
    groups, rates = ([pair[at] for pair in publishers] for at in (0, 1))
    made = place_more(demand(rates, groups), offered, [None] * len(rates), "srtm")
    rcap = {broker.name: broker.rcap for broker in offered}
    assert all(load <= rcap[name] + 1e-5 for name, load in zip(made.brokers, made.assigned, strict=True))
    assert made.assigned.sum() + made.missing == pytest.approx(sum(rates))


@pytest.mark.slow
@pytest.mark.parametrize("rates", [np.full(1_000_000, 1.0), np.random.default_rng(1).uniform(1, 10, 1_000_000)])
def test_a_million_publishers_in_40000_groups_on_1000_brokers_are_placed(rates):
    groups = np.arange(1_000_000) // 25
    topic = Demand(rates=rates, groups=groups, rate=float(rates.sum()), burst=5000.0)
    offered = brokers(*[float(rates.sum()) / 950] * 1000)
    made = plan(topic, offered, "srtm")
    largest = rates.max() + 1e-5
    assert made.state == "placed"
    assert np.all(np.abs(made.assigned - made.quotas) <= largest)
    assert np.all(made.assigned <= offered[0].rcap + 1e-5)
    keys, at = np.unique(groups * len(made.brokers) + made.placement, return_inverse=True)
    excess = (
        np.bincount(at, weights=rates)
        - np.bincount(groups, weights=rates)[keys // len(made.brokers)]
        * (made.quotas / made.quotas.sum())[keys % len(made.brokers)]
    )
    assert np.all(np.abs(excess) <= (1 if rates.min() == rates.max() else 2) * largest)


def test_publishers_that_join_a_balanced_topic_are_spread_over_all_brokers():
    held = ["b0"] * 10 + ["b1"] * 10 + [None] * 10
    assert heads(place_more(demand([1.0] * 30), brokers(100, 100, 100), held, "lb")) == {"b0": 10, "b1": 10, "b2": 10}


@pytest.mark.parametrize("strategy", ["lb", "conc", "maxmin"])
def test_another_seed_deals_other_publishers_to_a_broker_and_as_many(strategy):
    topic, offered = demand([1.0] * 100), brokers(60, 60)
    first, second = (plan(topic, offered, strategy, seed) for seed in (1, 2))
    assert heads(first) == heads(second)
    assert first.placement.tolist() != second.placement.tolist()


# Unequal rates, and what holds of them: capacity first, then quotas, then groups.

some_publishers = st.lists(st.tuples(st.integers(ALONE, 8), st.floats(0.1, 30)), min_size=1, max_size=150)
some_rooms = st.lists(st.floats(0.2, 1), min_size=1, max_size=8)


def roomy(parts, rates):
    """Brokers of unequal capacity that together have two publishers each to spare."""
    return brokers(*[part / sum(parts) * sum(rates) + 2 * max(rates) for part in parts])


def to_spare(made: Plan, offered, rates) -> bool:
    """Whether no broker is filled to the brim: each has room for the largest publisher above its quota."""
    room = {broker.name: broker.rcap for broker in offered}
    return all(room[name] >= quota + max(rates) for name, quota in zip(made.brokers, made.quotas, strict=True))


@st.composite
def spacious(draw):
    """(groups, rates, brokers, k): k brokers of unequal capacity cover the rates with a publisher to spare on each, and
    no fewer do."""
    count = draw(st.integers(2, 200))
    seed = np.random.default_rng(draw(st.integers(0, 2**32)))  # Hypothesis draws no long lists
    rates = np.where(
        seed.random(count) < draw(st.floats(0, 1)), seed.choice([1.0, 10.0, 30.0], count), 30 * seed.random(count) + 0.1
    )
    groups = seed.integers(ALONE, draw(st.sampled_from([1, 3, 9, 60])), count)
    most = max(k for k in range(1, 13) if rates.sum() > 1.6 * k * (k - 1) * rates.max())
    k = draw(st.integers(1, most))
    rooms = draw(st.lists(st.floats(1.01, 1.6), min_size=k, max_size=k + 3))
    return groups.tolist(), rates.tolist(), brokers(*[rates.sum() / k + room * rates.max() for room in rooms]), k


@given(some_publishers, some_brokers, a_strategy, st.integers(0, 99))
def test_every_publisher_is_placed_once_or_said_to_be_missing(publishers, offered, strategy, seed):
    groups, rates = ([pair[at] for pair in publishers] for at in (0, 1))
    made = plan(demand(rates, groups), offered, strategy, seed)
    assert len(made.placement) == len(rates)
    assert set(made.placement.tolist()) <= {NOWHERE, *range(len(made.brokers))}
    assert len(set(made.brokers)) == len(made.brokers)
    assert made.assigned == pytest.approx(
        np.bincount(made.placement + 1, weights=rates, minlength=len(made.brokers) + 1)[1:]
    )
    free = {broker.name: broker.rcap for broker in offered}
    free.update({name: free[name] - load for name, load in zip(made.brokers, made.assigned, strict=True)})
    for missing in np.asarray(rates)[made.placement == NOWHERE]:
        assert strategy == "conc" or all(room < missing + 1e-5 for room in free.values())


@given(spacious(), a_strategy, st.integers(0, 99))
def test_publishers_of_unequal_rates_end_within_one_publishers_rate_of_the_quota(fleet, strategy, seed):
    groups, rates, offered, k = fleet
    made = plan(demand(rates, groups), offered, strategy, seed)
    assert made.state == "placed"
    assert np.all(np.abs(made.assigned - made.quotas) <= max(rates) + 1e-5)
    if strategy != "lb":
        assert len(made.brokers) == k


@given(spacious(), st.integers(0, 99))
def test_groups_of_unequal_rates_are_within_twice_the_largest_rate_of_their_proportion(fleet, seed):
    groups, rates, offered, _ = fleet
    assert_in_proportion(plan(demand(rates, groups), offered, "srtm", seed), rates, groups, 2)


@given(some_publishers, some_rooms, st.sampled_from(["maxmin", "srtm"]))
def test_k_is_the_smallest_and_the_smallest_quota_the_largest_of_the_fractional_problem(publishers, parts, strategy):
    groups, rates = ([pair[at] for pair in publishers] for at in (0, 1))
    offered = roomy(parts, rates)
    made = plan(demand(rates, groups), offered, strategy)
    rooms = sorted((broker.rcap for broker in offered), reverse=True)
    k, used = concentration(np.array(rooms), sum(rates)), len(made.brokers)
    assert used >= min(k, len(rates))
    if sum(rooms[:k]) >= sum(rates) + k * max(rates) and len(rates) >= k:
        assert used == k
    if used == k:
        assert min(made.quotas) == pytest.approx(min(sum(rates) / k, rooms[k - 1]))


@given(st.integers(20, 150), st.lists(st.integers(5, 40), min_size=1, max_size=8), st.integers(0, 99))
def test_quotas_are_the_largest_minimum_that_the_capacities_of_the_fewest_brokers_allow(heads_, rooms, seed):
    made = plan(demand([2.0] * heads_), brokers(*[2.0 * room for room in rooms]), "srtm", seed)
    if made.state == "placed":
        rooms.sort(reverse=True)
        k = len(made.brokers)
        assert sum(rooms[: k - 1]) < heads_ <= sum(rooms[:k])
        assert min(made.quotas) == pytest.approx(2.0 * min(heads_ / k, rooms[k - 1]))


# Publishers that come, go and change.


@pytest.mark.parametrize("one_by_one", [True, False])
@given(
    fleet=spacious(), seed=st.integers(0, 2**32), leave=st.floats(0, 1), strategy=st.sampled_from(["maxmin", "srtm"])
)
def test_after_publishers_came_went_and_changed_the_same_principles_hold(one_by_one, fleet, seed, leave, strategy):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocation, "_MAX_SINGLE", 10_000 if one_by_one else 5)
        came_went_and_changed(fleet, seed, leave, strategy)


def came_went_and_changed(fleet, seed, leave, strategy):
    groups, rates, offered, _ = fleet
    first = plan(demand(rates, groups), offered, strategy)
    rng = np.random.default_rng(seed)
    kept = [at for at in range(len(rates)) if rng.random() > leave / 2]
    held = [first.brokers[first.placement[at]] for at in kept] + [None] * 20
    rates = [rates[at] * rng.choice([1.0, 1.0, 0.5]) for at in kept] + (max(rates) * rng.random(20) / 2 + 0.1).tolist()
    groups = [groups[at] for at in kept] + rng.integers(ALONE, 9, 20).tolist()
    made = place_more(demand(rates, groups), offered, held, strategy)
    rooms = np.array(sorted((one.rcap for one in offered), reverse=True))
    k = concentration(rooms, sum(rates))
    if rooms[:k].sum() >= sum(rates) + k * max(rates):
        assert len(made.brokers) == k
    if to_spare(made, offered, rates):
        assert made.state == "placed"
        assert np.all(np.abs(made.assigned - made.quotas) <= max(rates) + 1e-5)
        if strategy == "srtm":
            assert_in_proportion(made, rates, groups, 2)


@given(st.lists(st.integers(0, 40), min_size=2, max_size=6).filter(any))
def test_equal_publishers_move_no_more_than_the_quotas_demand(here):
    held = [f"b{at}" for at, count in enumerate(here) for _ in range(count)]
    offered = brokers(*[40.0] * len(here))
    made = place_more(demand([1.0] * len(held)), offered, held, "maxmin")
    k = max(1, -(-len(held) // 40))
    most = sorted(here, reverse=True)[:k]
    quota = len(held) / k
    leaving = sum(here) - sum(most)  # the brokers that hold least are given up
    above = sum(max(0, count - (math.ceil(quota + 1) - 1)) for count in most)
    below = sum(max(0, math.floor(quota - 1) + 1 - count) for count in most)
    assert len(made.brokers) == k
    assert moves(made, held) <= max(leaving + above, below)
    assert np.all(np.abs(made.assigned - quota) < 1 + 1e-5)


@given(some_publishers, some_rooms, a_strategy)
def test_nobody_moves_where_nothing_changed(publishers, parts, strategy):
    groups, rates = ([pair[at] for pair in publishers] for at in (0, 1))
    offered = roomy(parts, rates)
    first = plan(demand(rates, groups), offered, strategy)
    held = [first.brokers[at] for at in first.placement]
    assert moves(place_more(demand(rates, groups), offered, held, strategy), held) == 0


def test_a_broker_without_any_room_keeps_the_publishers_that_it_has():
    offered = [*brokers(60, 60), BrokerCapacity(name="silent", mcap=1.0, allocated=1.0)]
    held = ["b0"] * 20 + ["silent"] * 20 + [None] * 10
    made = place_more(demand([1.0] * 50), offered, held, "srtm")
    assert heads(made) == {"b0": 30, "silent": 20}


@given(spacious(), st.integers(1, 30), st.integers(0, 2**32))
def test_nobody_leaves_a_broker_that_is_silent_for_the_sake_of_balance(fleet, there, seed):
    groups, rates, offered, _ = fleet
    rng = np.random.default_rng(seed)
    silent = [BrokerCapacity(name=name, mcap=1.0, allocated=1.0) for name in ("still", "silent")]
    held = [None] * len(rates)
    for at in rng.integers(0, len(rates), there).tolist():
        held[at] = str(rng.choice(["still", "silent"]))
    made = place_more(demand(rates, groups), [*offered, *silent], held, "srtm")
    assert moves(made, held) == 0
    assert made.state == "placed"
    for name in {*held} - {None}:
        assert heads(made)[name] == held.count(name)


def test_half_of_a_large_fleet_moves_at_once():
    groups = np.arange(100_000) // 20
    made = place_more(demand([1.0] * 100_000, groups), brokers(60_000, 60_000), ["b0"] * 100_000, "srtm")
    assert heads(made) == {"b0": 50_000, "b1": 50_000}
    for load in np.stack([np.bincount(groups[made.placement == at], minlength=5_000) for at in (0, 1)]):
        assert np.all(np.abs(load - 10) <= 1)


@pytest.mark.timeout(30)  # a third of a second, while no cell of groups and brokers is asked for by itself
def test_a_large_fleet_is_regrouped_over_many_brokers_and_few_move():
    rng = np.random.default_rng(1)
    rates, groups = np.ones(100_000), rng.permutation(np.arange(100_000) // 25)
    offered = brokers(*[110.0] * 1000)
    first = plan(demand(rates, groups, burst=5000), offered, "srtm")
    held = [first.brokers[at] for at in first.placement.tolist()]
    again = rng.permutation(groups)
    made = place_more(demand(rates, again, burst=5000), offered, held, "srtm")
    assert made.state == "placed"
    assert moves(made, held) < 2_000
    of = {name: at for at, name in enumerate(made.brokers)}
    load = np.bincount(again * len(of) + made.placement, minlength=4_000 * len(of)).reshape(4_000, len(of))
    assert np.all(load <= 25 * made.quotas / made.quotas.sum() + 1 + 1e-5)

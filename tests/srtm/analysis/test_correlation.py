"""Groups in recorded arrivals: those that fire together are found, chance is not taken for one, declarations judged."""

import numpy as np
import pytest

from srtm.analysis import correlation as cofiring
from srtm.analysis.arrivals import Arrivals
from srtm.analysis.correlation import DeclaredGroup, Found, ObservedGroup, find_groups, regrouped
from srtm.errors import BadInput

MS = 1_000_000


def trace(firings, jitter_ns=100_000, seed=1) -> Arrivals:
    """{publisher: instants in s}, each up to ``jitter_ns`` late."""
    rng = np.random.default_rng(seed)
    names = tuple(firings)
    publisher = np.concatenate([np.full(len(instants), at) for at, instants in enumerate(firings.values())])
    at_ns = (np.concatenate(list(firings.values())) * 1e9).astype(np.int64)
    at_ns = at_ns + rng.integers(0, jitter_ns + 1, len(at_ns))
    order = np.argsort(at_ns, kind="stable")
    return Arrivals(names, publisher[order].astype(np.int64), at_ns[order])


def poisson(rate, rng, seconds=60):
    return np.sort(rng.random(rng.poisson(rate * seconds))) * seconds


def fleet(groups=6, size=5, rate=10.0, seed=1, thin=1.0):
    """{publisher: instants}: groups of which every member fires at a random part ``thin`` of common instants, the
    first at all of them."""
    rng = np.random.default_rng(seed)
    firings = {}
    for group in range(groups):
        common = poisson(rate, rng)
        for member in range(size):
            kept = common if member == 0 else common[rng.random(len(common)) < thin]
            firings[f"g{group}-{member}"] = kept
    return firings


def declaring(firings, by=lambda name: name.split("-")[0]):
    return {name: by(name) for name in firings}


def members(found: Found):
    return sorted(sorted(group.members) for group in found.observed)


@pytest.mark.parametrize("thin", [1.0, 0.7])
def test_groups_that_fire_together_are_found_whole_and_nothing_else(thin):
    firings = fleet(thin=thin)
    found = find_groups(trace(firings), declaring(firings))
    assert members(found) == [[f"g{group}-{member}" for member in range(5)] for group in range(6)]
    assert {one.verdict for one in found.declared} == {"together"}
    assert found.warnings == []
    assert regrouped(found, declaring(firings)) == {}


@pytest.mark.parametrize("seed", range(5))
def test_independent_publishers_are_in_no_group_and_a_group_declared_of_them_is_apart(seed):
    rng = np.random.default_rng(seed)
    firings = {f"p{at}": poisson(10, rng) for at in range(100)}
    declared = declaring(firings, lambda name: f"d{int(name[1:]) // 10}")
    found = find_groups(trace(firings), declared)
    assert found.observed == []
    assert {one.verdict for one in found.declared} == {"apart"}
    assert all(one.together == pytest.approx(one.chance, rel=0.4) for one in found.declared)
    assert found.warnings[0] == "declared group 'd0' does not fire together"
    assert regrouped(found, declared) == dict.fromkeys(declared, "")


def test_a_group_that_was_not_declared_is_found_and_named():
    firings = fleet(groups=3)
    found = find_groups(trace(firings), {})
    assert len(found.observed) == 3
    assert not any(group.is_declared for group in found.observed)
    assert found.warnings[0].startswith("5 publishers fire together and are not declared so: g")
    nobody = dict.fromkeys(firings, "")
    named = regrouped(find_groups(trace(firings), nobody), nobody)
    assert sorted(set(named.values())) == ["observed-1", "observed-2", "observed-3"]
    assert len({named[f"g1-{member}"] for member in range(5)}) == 1


def test_a_wrong_declaration_is_mended_with_as_many_names_kept_as_can_be():
    firings = fleet(groups=2)
    declared = {**declaring(firings), "g0-4": "g1", "g1-4": ""}
    found = find_groups(trace(firings), declared)
    assert not any(group.is_declared for group in found.observed)
    assert regrouped(found, declared) == {"g0-4": "g0", "g1-4": "g1"}


def test_members_that_fire_together_now_and_then_are_partly_together():
    rng = np.random.default_rng(2)
    common = poisson(2, rng)
    firings = {name: np.sort(np.concatenate([common, poisson(8, rng)])) for name in "abc"}
    (group,) = find_groups(trace(firings), dict.fromkeys(firings, "d")).declared
    assert group.verdict == "partly"
    assert group.together == pytest.approx(0.22, abs=0.04)


def test_too_little_traffic_is_no_verdict():
    firings = {"a": np.array([1.0, 30.0]), "b": np.array([15.0]), "c": np.arange(0.0, 60.0, 0.001)}
    declared = {"a": "d", "b": "d", "c": "", "never": "e", "seen": "e"}
    found = find_groups(trace(firings, jitter_ns=0), declared, window_ns=400 * MS)
    assert {one.name: (one.members, one.seen, one.verdict) for one in found.declared} == {
        "d": (2, 2, "unknown"),
        "e": (2, 0, "unknown"),
    }
    assert found.warnings == []


def test_the_messages_of_a_batch_are_one_firing():
    batches = {"a": np.repeat(np.arange(100.0), 7), "b": np.repeat(np.arange(100.0) + 0.5, 7)}
    found = find_groups(trace(batches), {})
    assert found.firings == 200
    assert found.observed == []


def test_a_dense_trace_is_looked_at_as_far_as_pairs_allow(monkeypatch):
    monkeypatch.setattr(cofiring, "_MAX_PAIRS", 3_000)
    found = find_groups(trace(fleet(groups=2)), {})
    assert found.seconds < 30
    assert len(found.observed) == 2


@pytest.mark.parametrize(
    ("firings", "shown"),
    [
        ({"a": np.array([])}, "'no message'"),
        ({"a": np.array([1.0])}, "'a single firing'"),
        ({"a": np.array([1.0]), "b": np.array([1.0])}, "'2 firings within [0-9.]+ ms'"),
    ],
)
def test_a_trace_in_which_nothing_can_be_told_apart_is_refused(firings, shown):
    rule = "must have firings more than the window, 1 ms, apart: record for longer"
    with pytest.raises(BadInput, match=f"^trace: {shown}: {rule}$"):
        find_groups(trace(firings), {}, MS)


def test_a_window_of_nothing_is_refused():
    with pytest.raises(BadInput, match="window: 0"):
        find_groups(trace(fleet()), {}, 0)


def test_a_name_once_given_is_given_to_one_group_only():
    halves = [ObservedGroup(members=tuple(names), declared={"d": 2}) for names in ("ab", "xy")]
    whole = DeclaredGroup(name="d", members=4, seen=4, together=0.3, chance=0.0, verdict="partly")
    found = Found(seconds=1, firings=9, publishers=4, window_ns=1, declared=[whole], observed=halves)
    assert regrouped(found, dict.fromkeys("abxy", "d")) == {"x": "observed-1", "y": "observed-1"}

"""Watched subjects and bans."""

from __future__ import annotations

import pytest

from limiting import watching
from limiting.nodes.decisions import Decisions
from limiting.watching import FOLLOWED, MOST_WATCHED, SECONDS, Bans, Heaviest, Watched, heaviest_of_all
from srtm.contracts.contract import read_contract
from srtm.contracts.subject_plans import Plans
from srtm.errors import BadInput, NotFound
from srtm.limiting.limiter import Limiter
from tests.support.limit_clock import Clock

S = 10**9
KEY = ("api", "user:1")


def test_a_watched_subject_has_its_last_minute_by_seconds() -> None:
    watched = Watched()
    assert not watched
    watched.note(KEY, 0, allowed=True, cost=9)
    watched.watch(KEY)
    assert watched
    watched.note(KEY, 100, allowed=True, cost=3)
    watched.note(KEY, 100, allowed=False, cost=5)
    watched.note(KEY, 130, allowed=True, cost=1)
    ((subject, seconds),) = watched.of("api", 131)
    assert (subject, len(seconds)) == ("user:1", SECONDS)
    assert {place: second for place, second in enumerate(seconds) if any(second)} == {28: (1, 1, 3), 58: (1, 0, 1)}
    ((_, seconds),) = watched.of("api", 100 + SECONDS)
    assert sum(second[0] for second in seconds) == 1, "the first second is more than a minute ago"
    assert list(watched.of("other", 131)) == []
    watched.watch(KEY)
    assert any(any(second) for second in next(watched.of("api", 131))[1]), "to watch it twice forgets nothing"


def test_watching_is_bounded_in_subjects_and_in_time() -> None:
    watched = Watched()
    for number in range(MOST_WATCHED):
        watched.watch(("api", str(number)))
    with pytest.raises(BadInput, match="must be one of at most 1000"):
        watched.watch(("api", "one more"))
    watched.watch(("api", "0"))
    for second in range(1_000):
        watched.note(("api", "0"), second, allowed=True, cost=1)
    assert len(watched._all["api", "0"]) == SECONDS
    watched.unwatch(("api", "0"))
    with pytest.raises(NotFound):
        watched.unwatch(("api", "0"))


def test_the_latest_bans_come_first_and_the_oldest_leave_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST_BANNED", 3)
    bans = Bans()
    for at_s, name in enumerate("abcad"):
        bans.ban(("api", name), at_s)
    assert bans.of("api") == [("d", 4), ("a", 3), ("c", 2)]
    bans.lift(("api", "a"))
    bans.lift(("api", "none"))
    assert bans.of("api") == [("d", 4), ("c", 2)]


async def test_a_ban_that_time_has_paid_is_listed_no_more() -> None:
    clock = Clock()
    decisions = Decisions(Limiter(clocks=clock), clocks=clock)
    policies = [{"name": "burst", "rate": 1, "burst": 2, "max_debt": 5}]
    decisions.put(read_contract({"namespace": "api", "subject": "*", "policies": policies}))
    await decisions.ban("api", "a")
    clock.now = 3 * S
    await decisions.ban("api", "b")
    assert [(subject, at_s) for subject, at_s, _ in await decisions.banned("api", 9)] == [("b", 3), ("a", 0)]
    assert [subject for subject, *_ in await decisions.banned("api", 1)] == ["b"]
    clock.now = 6 * S
    assert [subject for subject, *_ in await decisions.banned("api", 9)] == ["b"]
    await decisions.reset("api", "b")
    decisions.bans.ban(("api", "gone"), 0)
    decisions.remove("api", "*")
    assert await decisions.banned("api", 9) == []
    assert decisions.bans.of("api") == []


async def test_a_subject_is_watched_under_the_name_that_its_plan_gives_it() -> None:
    plans = Plans({("api", "user:1"): "gold"})
    decisions = Decisions(Limiter(), plans=plans)
    policies = [{"name": "burst", "rate": 1, "burst": 2}]
    decisions.put(read_contract({"namespace": "api", "subject": "gold/*", "policies": policies}))
    await decisions.watch("api", "{plan}/user:1")
    await decisions.check("api", ["{plan}/user:1"], 2)
    await decisions.check("api", ["{plan}/user:1"], 2, peek=True)
    ((subject, seconds),) = decisions.watched.of("api", decisions.second)
    assert subject == "gold/user:1"
    assert [sum(column) for column in zip(*seconds, strict=True)] == [1, 0, 2]
    decisions.unwatch("api", "{plan}/user:1")
    with pytest.raises(NotFound):
        await decisions.watch("api", "nobody")


@pytest.mark.slow
def test_who_has_more_than_a_thousandth_of_the_checks_is_among_the_heaviest() -> None:
    heaviest = Heaviest()
    for number in range(40_000):
        heaviest.note(("api", f"once-{number}"))
        if number % 10 == 0:
            heaviest.note(("api", "often"))
            heaviest.note(("other", "elsewhere"))
    first, *others = heaviest.of("api", FOLLOWED + 1)
    assert first[0] == "often"
    assert 3_000 < first[1] - first[2] <= first[1] < 5_000
    assert len(others) == FOLLOWED - 1
    assert [each[0] for each in heaviest.of("other", 5)] == ["elsewhere"]
    assert heaviest.of("none", 5) == []


def test_the_heaviest_of_two_lists_are_the_heaviest_of_their_sums() -> None:
    found = heaviest_of_all([("a", 5, 1), ("b", 4, 0)], [("b", 3, 2), ("c", 6, 0)], 2)
    assert found == [("b", 7, 2), ("c", 6, 0)]

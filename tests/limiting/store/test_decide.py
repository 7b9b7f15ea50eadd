"""The script in a real server decides as the reference does, to the microsecond."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limiting.store.rules import Rules, rules_of, subject_hash, verdict_of
from srtm.contracts.contract import read_contract
from srtm.contracts.reference import Now
from srtm.contracts.verdict import Verdict
from tests.support.reference_limiter import ReferenceLimiter

pytestmark = pytest.mark.slow

SCRIPT = files("limiting.store").joinpath("decide.lua").read_text(encoding="utf-8")
BEGIN_US = 1_795_000_000_123_456


POLICIES = st.one_of(
    st.fixed_dictionaries(
        {"rate": st.sampled_from([1e-6, 0.3, 7, 1e9]), "burst": st.sampled_from([1, 2.5, 1e9]), "max_debt": st.just(0)}
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("pace"),
            "rate": st.just(3),
            "burst": st.just(2),
            "max_wait": st.sampled_from(["0", "1s", "333us"]),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("window"),
            "quota": st.sampled_from([1, 7, 4_294_967_295]),
            "window": st.just("6s"),
            "slices": st.sampled_from([1, 3, 6]),
            "weighted": st.booleans(),
        }
    ),
    st.fixed_dictionaries({"kind": st.just("log"), "quota": st.integers(1, 9), "window": st.just("2s")}),
    st.fixed_dictionaries({"kind": st.just("concurrency"), "quota": st.integers(1, 9), "expires": st.just("3s")}),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 333_333, 1_000_000, 2_000_001, 86_400_000_000]),
        st.sampled_from([0, 1, 1, 2, 5, 1_000_000]),
    ),
    min_size=1,
    max_size=12,
)


def contract_of(policies: list[dict[str, object]], **others: object) -> Rules:
    named = [{**policy, "name": f"p{number}"} for number, policy in enumerate(policies)]
    return rules_of(read_contract({"namespace": "api", "subject": "*", "policies": named, **others}))


class Subject:
    """A fresh subject in the store, at instants of the test."""

    def __init__(self, ask: Callable[..., Any], rules: Rules) -> None:
        self._ask, self._rules = ask, rules
        self.keys = rules.keys(subject_hash("api", secrets.token_hex(8)))

    def do(self, operation: str, cost: int, at_us: int, grant: str = "", granted_us: int = 0) -> list[Any]:
        keys = [*self.keys, f"{self.keys[0]}:{grant}"] if operation == "correct" else self.keys
        words = [operation, self._rules.script, cost, grant, granted_us, at_us]
        answer: list[Any] = self._ask("EVAL", SCRIPT, len(keys), *keys, *words)
        return answer

    def check(self, cost: int, at_us: int, grant: str | None = None) -> Verdict:
        return verdict_of(self._rules, self.do("take", cost, at_us, grant or secrets.token_hex(8)), cost, b"grant")


def as_the_store_counts(verdict: Verdict) -> list[object]:
    """What two verdicts must share: the reference counts ns, the store us."""
    said = [policy._replace(wait_ns=_us(policy.wait_ns), reset_ns=_us(policy.reset_ns)) for policy in verdict.policies]
    return [verdict.allowed, verdict.shadowed, _us(verdict.wait_ns), *said]


def _us(ns: int | None) -> int | None:
    return None if ns is None else -(-ns // 1_000)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(policies=st.lists(POLICIES, min_size=1, max_size=3), steps=STEPS, full=st.booleans(), shadow=st.booleans())
def test_the_store_decides_as_the_reference(
    ask: Callable[..., Any],
    policies: list[dict[str, object]],
    steps: list[tuple[int, int]],
    full: bool,
    shadow: bool,
) -> None:
    rules = contract_of(policies, starts="full" if full else "empty", shadow=shadow)
    reference, subject, now = ReferenceLimiter(rules.contract), Subject(ask, rules), BEGIN_US
    for passed, cost in steps:
        now += passed
        wanted = reference.check("s", cost, Now(now * 1_000, now * 1_000))
        assert as_the_store_counts(subject.check(cost, now)) == as_the_store_counts(wanted)


def test_a_correction_counts_once_and_within_a_minute(ask: Callable[..., Any]) -> None:
    subject = Subject(ask, contract_of([{"rate": 1, "burst": 2}]))
    subject.check(1, BEGIN_US)
    assert subject.do("correct", 2, BEGIN_US, "g1", BEGIN_US - 60_000_001) == [-1, BEGIN_US]
    assert subject.do("correct", 2, BEGIN_US, "g1", BEGIN_US)[0] == 1
    assert subject.do("correct", 2, BEGIN_US, "g1", BEGIN_US)[0] == -2
    assert subject.check(1, BEGIN_US).wait_ns == 2 * 10**9, "it fell below zero"
    assert subject.do("correct", -9, BEGIN_US, "g2", BEGIN_US)[0] == 1
    assert subject.check(0, BEGIN_US).policies[0].remaining == 2, "what is over the burst is lost"


def test_a_debt_is_bounded(ask: Callable[..., Any]) -> None:
    subject = Subject(ask, contract_of([{"rate": 1, "burst": 2, "max_debt": 5}]))
    subject.do("charge", 4_294_967_295, BEGIN_US, "ban")
    assert subject.check(1, BEGIN_US).wait_ns == 6 * 10**9


@pytest.mark.parametrize(
    "policy",
    [
        {"kind": "window", "quota": 3, "window": "6s", "slices": 3},
        {"kind": "log", "quota": 3, "window": "6s"},
    ],
)
def test_bans_fill_counts_and_gifts_empty_them(ask: Callable[..., Any], policy: dict[str, object]) -> None:
    subject = Subject(ask, contract_of([policy]))
    subject.check(1, BEGIN_US)
    subject.do("charge", 4_294_967_295, BEGIN_US, "ban")
    assert not subject.check(1, BEGIN_US).allowed
    subject.do("charge", -4_294_967_295, BEGIN_US, "gift")
    subject.do("charge", -4_294_967_295, BEGIN_US, "gift")
    assert subject.check(3, BEGIN_US).allowed
    assert not subject.check(1, BEGIN_US).allowed


def test_a_release_makes_room_once(ask: Callable[..., Any]) -> None:
    subject = Subject(ask, contract_of([{"kind": "concurrency", "quota": 3, "expires": "10s"}]))
    assert subject.check(2, BEGIN_US, "ab").allowed
    assert not subject.check(2, BEGIN_US, "cd").allowed
    subject.do("charge", 3, BEGIN_US, "ban")
    assert subject.do("release", 2, BEGIN_US, "ab")[0] == 1
    assert subject.do("release", 2, BEGIN_US, "ab")[0] == -2
    assert subject.check(3, BEGIN_US, "ef").allowed


def test_a_clock_that_is_set_back_gives_nothing(ask: Callable[..., Any]) -> None:
    policies = [{"rate": 1, "burst": 2}, {"kind": "window", "quota": 2, "window": "6s", "slices": 3}]
    subject = Subject(ask, contract_of(policies))
    assert subject.check(2, BEGIN_US).allowed
    assert not subject.check(1, BEGIN_US - 3_600_000_000).allowed
    assert subject.check(1, BEGIN_US + 6_000_000).policies[0].allowed


def test_the_server_gives_the_time_and_forgets_who_has_nothing_used(ask: Callable[..., Any]) -> None:
    rules = contract_of([{"rate": 10, "burst": 2}, {"kind": "window", "quota": 2, "window": "1m", "slices": 6}])
    subject = Subject(ask, rules)
    words = ["take", rules.script, 1, "ab", 0, ""]
    _, now, *_ = ask("EVAL", SCRIPT, 2, *subject.keys, *words)
    seconds, _ = ask("TIME")
    assert abs(now / 1e6 - int(seconds)) < 60
    lives = [ask("PTTL", key) for key in subject.keys]
    assert 900 <= lives[0] <= 1_200
    assert 60_000 < lives[1] <= 71_000


def test_the_keys_of_a_subject_are_in_one_hash_slot(ask: Callable[..., Any]) -> None:
    rules = contract_of([{"rate": 1, "burst": 1}, {"kind": "log", "quota": 1, "window": "1s"}])
    for name in ("user:1", "a}b{c", "{}", "\0"):
        keys = rules.keys(subject_hash("api", name))
        tags = {key[key.index("{") + 1 : key.index("}")] for key in keys}
        assert len(set(keys)) == 2
        assert len(tags) == 1
        assert len(tags.pop()) == 32

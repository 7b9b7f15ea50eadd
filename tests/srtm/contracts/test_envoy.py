"""Envoy's words and ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.contracts.contract import LONGEST_SUBJECT, read_contract
from srtm.contracts.envoy import rate_limit_of, subject_of
from srtm.limiting.limiter import checked_subject


def test_a_descriptor_is_its_keys_and_its_values() -> None:
    assert subject_of([("remote_address", "10.0.0.1")]) == "remote_address=10.0.0.1"
    assert subject_of([("path", "/login"), ("user", "a=b")]) == "path|user=/login|a=b"
    assert subject_of([("generic_key", "")]) == "generic_key="
    assert subject_of([("a=b|c", "50 % | more")]) == "a%3Db%7Cc=50 %25 %7C more"


entries = st.lists(st.tuples(st.text(min_size=1, max_size=4), st.text(max_size=4)), min_size=1, max_size=3)
special = st.lists(
    st.tuples(st.text("a|=%", min_size=1, max_size=3), st.text("a|=%", max_size=3)), min_size=1, max_size=3
)


@given(entries | special, entries | special)
def test_two_descriptors_are_never_one_subject(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> None:
    assert (subject_of(one) == subject_of(other)) == (one == other)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"kind": "window", "quota": 7, "window": "1h"}, (7, "HOUR")),
        ({"kind": "window", "quota": 7, "window": "30d"}, (7, "MONTH")),
        ({"kind": "log", "quota": 7, "window": "90s"}, (7, "UNKNOWN")),
        ({"kind": "concurrency", "quota": 7}, (7, "UNKNOWN")),
        ({"rate": 20, "burst": 40}, (20, "SECOND")),
        ({"rate": 0.5, "burst": 40}, (30, "MINUTE")),
        ({"kind": "pace", "rate": 0.001, "max_wait": "1s"}, (3, "HOUR")),
        ({"rate": 1e-6, "burst": 1, "max_debt": 0}, (2, "MONTH")),
    ],
)
def test_a_policy_is_said_in_units(policy: dict[str, object], said: tuple[int, str]) -> None:
    document = {"namespace": "n", "subject": "*", "policies": [{"name": "p", **policy}]}
    assert rate_limit_of(read_contract(document).policies[0]) == said


@pytest.mark.parametrize("letter", ["x", "ü", "🙂"])
def test_a_long_value_has_a_subject_of_its_own_that_is_not_too_long(letter: str) -> None:
    most = (LONGEST_SUBJECT - len("user=")) // len(letter.encode())
    assert subject_of([("user", letter * most)]) == "user=" + letter * most
    long = [subject_of([("user", letter * (most + 1) + end)]) for end in ("", "1", "2")]
    assert len(set(long)) == 3
    assert all(checked_subject(subject).startswith(f"user={letter * 50}") for subject in long)

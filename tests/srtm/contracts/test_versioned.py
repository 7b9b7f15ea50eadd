"""All contracts of a service as one value."""

from __future__ import annotations

import pytest

from srtm.contracts.contract import Contract, read_contract
from srtm.contracts.versioned import ABSENT, Contracts, expected_tag
from srtm.errors import BadInput, Conflict, NotFound


def contract(namespace: str, rate: float = 1) -> Contract:
    policies = [{"name": "burst", "rate": rate, "burst": 5}]
    return read_contract({"namespace": namespace, "subject": "*", "policies": policies})


def test_each_has_the_version_of_its_last_change() -> None:
    first = Contracts().put([contract("b"), contract("a")], 3, most=9)
    second = first.put(first.news([contract("a"), contract("b", rate=2)]), 4, most=9)
    assert [(each.contract.namespace, each.version) for each in second.all()] == [("a", 3), ("b", 4)]
    assert (first.version, second.version, second.without("a", "*", 5).version) == (3, 4, 5)
    with pytest.raises(NotFound):
        second.without("c", "*", 5)


def test_there_is_a_bound() -> None:
    with pytest.raises(BadInput, match="at most 1 in all"):
        Contracts().put([contract("b"), contract("a")], 3, most=1)


def test_a_tag_guards_a_change() -> None:
    known = Contracts().put([contract("a")], 3, most=9)
    for accepted in (None, "*", '"3"'):
        known.check_tag("a", "*", accepted)
    for namespace, refused in (("a", '"2"'), ("b", "*"), ("b", '"3"')):
        with pytest.raises(Conflict):
            known.check_tag(namespace, "*", refused)
    known.check_tag("b", "*", None)
    known.check_tag("b", "*", ABSENT)
    with pytest.raises(Conflict, match="change that one"):
        known.check_tag("a", "*", ABSENT)


def test_what_a_request_expects_is_in_two_headers_of_which_it_has_one() -> None:
    assert [expected_tag(*headers) for headers in ((None, None), ('"3"', None), ("*", None), (None, "*"))] == [
        None,
        '"3"',
        "*",
        ABSENT,
    ]
    for headers, field in (((None, '"3"'), "If-None-Match"), (('"3"', "*"), "If-Match")):
        with pytest.raises(BadInput) as refused:
            expected_tag(*headers)
        assert refused.value.field == field

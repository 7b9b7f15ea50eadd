"""Envoy's configurations become contracts that limit the same descriptors, or a clear refusal."""

from __future__ import annotations

import tomllib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from srtm.contracts.contract import Contract, contract_for, read_contract, read_contracts
from srtm.contracts.contract_text import contract_file_text
from srtm.contracts.envoy import subject_of
from srtm.contracts.envoy_config import read_envoy_config
from srtm.contracts.policy import Window
from srtm.errors import BadInput

S = 10**9
# The examples of envoyproxy/ratelimit's README, shortened.
CONFIG = """
domain: mongo_cps
descriptors:
  - key: database
    value: users
    rate_limit:
      unit: second
      requests_per_unit: 500
  - key: database
    rate_limit: {unit: minute, requests_per_unit: 10, name: others}
    shadow_mode: true
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: {unit: day, requests_per_unit: 5}
  - key: to_number
    descriptors:
      - key: country
        detailed_metric: true
        rate_limit: {unit: HOUR, requests_per_unit: 7}
  - key: path
    value: /free/*
    rate_limit: {unlimited: true}
  - key: code
    value: 42
    rate_limit: {unit: year, requests_per_unit: 1}
"""


def found(contracts: list[Contract], *entries: tuple[str, str]) -> Contract | None:
    return contract_for({contract.key: contract for contract in contracts}, "mongo_cps", subject_of(entries))


def test_descriptors_are_limited_as_envoys_are() -> None:
    contracts = read_envoy_config(CONFIG)
    assert [contract.subject for contract in contracts] == [
        "database=users",
        "database=*",
        "message_type|to_number=marketing|*",
        "to_number|country=*",
        "path=/free/*",
        "code=42",
    ]
    users = found(contracts, ("database", "users"))
    assert users is not None
    assert users.policies == (Window(name="second", quota=500, window_ns=S, slices=1, weighted=False, aligned=True),)
    others = found(contracts, ("database", "orders"))
    assert others is not None
    assert (others.shadow, others.policies[0].name) == (True, "others")
    marketing = found(contracts, ("message_type", "marketing"), ("to_number", "+1|555"))
    assert marketing is contracts[2]
    assert found(contracts, ("to_number", "1"), ("country", "nz")) is contracts[3]
    free = found(contracts, ("path", "/free/thing"))
    assert free is not None
    assert free.shadow
    assert found(contracts, ("message_type", "marketing")) is None
    assert found(contracts, ("message_type", "other"), ("to_number", "1")) is None
    assert found(contracts, ("to_number", "1")) is None
    assert found(contracts, ("database", "users"), ("more", "x")) is None


def test_windows_may_roll() -> None:
    (policy,) = read_envoy_config(CONFIG, slices=5)[0].policies
    assert policy == Window(name="second", quota=500, window_ns=S, slices=5, weighted=True, aligned=False)


def with_limit(**limit: object) -> str:
    return yaml.safe_dump({"domain": "d", "descriptors": [{"key": "k", "rate_limit": limit}]})


def tree(*entries: dict[str, object]) -> str:
    inner: list[object] = [{"key": "last", "rate_limit": {"unit": "second", "requests_per_unit": 1}}]
    for entry in reversed(entries):
        inner = [{**entry, "descriptors": inner}]
    return yaml.safe_dump({"domain": "d", "descriptors": inner})


@pytest.mark.parametrize(
    ("text", "field", "rule"),
    [
        ("a: [", "file", "must be YAML"),
        ("--- a\n--- b\n", "file", "must be YAML"),
        ("!!python/object:os.system {}", "file", "must be YAML"),
        ("a: 2024-99-99", "file", "must be YAML"),
        ("a: !!timestamp x", "file", "must be YAML"),
        ("a: !!bool x", "file", "must be YAML"),
        ("a: !!int ''", "file", "must be YAML"),
        ("a: " + "[" * 5_000, "file", "must not be nested so deeply"),
        ("[]", "file", "must be a table"),
        ("domain: ''", "domain", "must be a name"),
        ("domain: d", "descriptors", "must have a rate_limit"),
        ("domain: d\ndescriptors: {}", "descriptors", "must be a list"),
        ("domain: d\nlimits: []", "file.limits", "is not known here"),
        ("domain: d\ndescriptors: [1]", "descriptors[0]", "must be a table"),
        ("domain: d\ndescriptors: [{value: a}]", "descriptors[0].key", "must be a name"),
        ("domain: d\ndescriptors: [{key: a, value: yes}]", "descriptors[0].value", "into quotes"),
        ("domain: d\ndescriptors: [{key: a, value: 'a*b'}]", "descriptors[0].value", "at its end only"),
        ("domain: d\ndescriptors: [{key: a, share_threshold: true}]", "share_threshold", "cannot be mapped"),
        (with_limit(unit="fortnight", requests_per_unit=1), "rate_limit.unit", "must be second, minute"),
        (with_limit(unit="second", requests_per_unit=0), "requests_per_unit", "from 1 to"),
        (with_limit(unit="second", requests_per_unit=True), "requests_per_unit", "from 1 to"),
        (with_limit(unit="second"), "requests_per_unit", "from 1 to"),
        (with_limit(unit="second", requests_per_unit=1, replaces=[{"name": "a"}]), "replaces", "the larger limit"),
        (with_limit(unlimited=True, unit="second"), "unlimited", "must stand alone"),
        (with_limit(unlimited="maybe"), "unlimited", "true or false"),
        (with_limit(unit="second", requests_per_unit=1, name="a b"), "rate_limit.name", "in headers"),
        (tree({"key": "any"}, {"key": "fixed", "value": "x"}), "value", "name the fixed entries first"),
        (tree({"key": "some", "value": "x*"}, {"key": "fixed", "value": "x"}), "value", "the fixed entries first"),
        (tree(*[{"key": "k", "value": "v"}] * 40), "descriptors", "32 levels"),
        (tree({"key": "k" * 300}), "descriptors[0].descriptors[0].subject", "255 bytes"),
    ],
)
def test_what_cannot_be_mapped_is_refused(text: str, field: str, rule: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_envoy_config(text)
    assert field in refused.value.field
    assert rule in refused.value.rule


def test_two_descriptors_of_one_pattern_are_refused() -> None:
    limit = {"unit": "second", "requests_per_unit": 1}
    entries = [{"key": "k", "value": "a", "rate_limit": limit}] * 2
    with pytest.raises(BadInput, match=r"descriptors\[0\] limits already"):
        read_envoy_config(yaml.safe_dump({"domain": "d", "descriptors": entries}))


def test_aliases_that_multiply_or_go_in_a_circle_end_at_a_bound() -> None:
    text = "domain: d\ndescriptors:\n- &l0 {key: k0}\n"
    for number in range(1, 30):
        text += f"- &l{number} {{key: k{number}, descriptors: [*l{number - 1}, *l{number - 1}]}}\n"
    with pytest.raises(BadInput, match="at most 100000 descriptors"):
        read_envoy_config(text)
    with pytest.raises(BadInput, match="32 levels"):
        read_envoy_config("domain: d\ndescriptors: &a [{key: k, descriptors: *a}]")
    with pytest.raises(BadInput, match="nested"):
        read_envoy_config("domain: " + "[" * 100_000)


policies = st.sampled_from(
    [
        {"name": "b", "rate": 0.5, "burst": 9},
        {"name": "p", "kind": "pace", "rate": 20, "max_wait": "2s"},
        {"name": "w", "kind": "window", "quota": 5, "window": "1m", "aligned": True},
        {"name": "l", "kind": "log", "quota": 5, "window": "90s"},
        {"name": "c", "kind": "concurrency", "quota": 5},
    ]
)
names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=20)


@given(
    st.lists(
        st.builds(
            dict,
            namespace=names,
            subject=names.map(lambda name: name.replace("*", "") + "*"),
            policies=st.lists(policies, min_size=1, max_size=3, unique_by=lambda policy: policy["name"]),
            shadow=st.booleans(),
            mode=st.sampled_from([None, "local", "exact"]),
            starts=st.sampled_from(["full", "empty"]),
        ),
        max_size=4,
        unique_by=lambda contract: (contract["namespace"], contract["subject"]),
    )
)
def test_a_written_file_reads_as_the_same_contracts(documents: list[dict[str, object]]) -> None:
    contracts = [read_contract(document) for document in documents]
    read = tomllib.loads(contract_file_text(contracts)).get("contracts", [])
    assert read_contracts(read) == contracts

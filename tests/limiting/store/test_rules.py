"""Contracts that a store cannot hold, parts of contracts, addresses, grants and the circuit breaker."""

from __future__ import annotations

import pytest

from limiting.store.address import checked_store
from limiting.store.grants import Grant, read_grant, sealed
from limiting.store.rules import rules_of, share
from srtm.contracts.contract import Contract, read_contract
from srtm.contracts.policy import Bucket, Concurrency
from srtm.errors import BadInput
from srtm.limiting.breaker import Breaker


def contract(*policies: dict[str, object]) -> Contract:
    return read_contract({"namespace": "api", "subject": "*", "policies": list(policies)})


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"name": "w", "kind": "window", "quota": 1, "window": "1ms", "slices": 32}, "policies[0].slices"),
        ({"name": "c", "kind": "concurrency", "quota": 10_001}, "policies[0].quota"),
    ],
)
def test_what_the_store_cannot_hold_is_refused_by_field(policy: dict[str, object], field: str) -> None:
    with pytest.raises(BadInput) as caught:
        rules_of(contract(policy))
    assert caught.value.field == field


def test_parts_together_are_the_contract_and_each_lets_one_token_through() -> None:
    whole = contract({"name": "b", "rate": 10, "burst": 6}, {"name": "c", "kind": "concurrency", "quota": 7})
    bucket, slots = share(whole, 3).policies
    assert isinstance(bucket, Bucket)
    assert isinstance(slots, Concurrency)
    assert (bucket.rate_micro, bucket.burst_micro, slots.quota) == (3_333_333, 2_000_000, 2)
    bucket, slots = share(whole, 100).policies
    assert isinstance(bucket, Bucket)
    assert isinstance(slots, Concurrency)
    assert (bucket.burst_micro, slots.quota) == (1_000_000, 1)
    assert share(whole, 1) == whole


@pytest.mark.parametrize("url", ["", "localhost:6379", "http://h", "redis://", "redis:///0", "memcached://h:1"])
def test_addresses_that_name_no_store_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(BadInput, match=r"store.*\(not shown\).*redis"):
        checked_store(url)


def test_a_grant_is_read_by_the_key_that_sealed_it_alone() -> None:
    grant = Grant(b"n" * 8, b"s" * 16, b"c" * 6, 7, 1_795_000_000)
    content = sealed(grant, b"key")
    assert read_grant(content, b"key") == grant
    assert read_grant(content, b"other") is None
    for place in range(len(content)):
        forged = bytearray(content)
        forged[place] ^= 1
        assert read_grant(bytes(forged), b"key") is None
    assert read_grant(b"", b"key") is None


def test_three_failures_in_a_row_open_the_circuit_and_one_answer_closes_it() -> None:
    breaker = Breaker()
    assert [breaker.failed(), breaker.failed(), breaker.succeeded(), breaker.is_open] == [False] * 4
    assert [breaker.failed(), breaker.failed(), breaker.is_open, breaker.failed()] == [False, False, False, True]
    assert breaker.is_open
    assert not breaker.failed(), "it is open already"
    assert breaker.succeeded()
    assert not breaker.is_open

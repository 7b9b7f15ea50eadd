"""Contracts are read strictly: what cannot work is refused, with field, value and rule."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from srtm.contracts.contract import MODES, Contract, contract_for, read_contract, read_contracts
from srtm.contracts.contract_file import read_contract_file
from srtm.contracts.contract_text import contract_file_text
from srtm.contracts.policy import Bucket, Concurrency, Log, Pace, Window
from srtm.errors import BadInput
from srtm.units import MICRO

S = 10**9
FILE = """
[[contracts]]
namespace = "api"
subject = "user:*"

[[contracts.policies]]
name = "burst"
rate = 20
burst = 40

[[contracts.policies]]
name = "daily"
kind = "window"
quota = 20000
window = "1d"
slices = 60
aligned = true

[[contracts.policies]]
name = "exact"
kind = "log"
quota = 100
window = "1h30m"

[[contracts.policies]]
name = "smooth"
kind = "pace"
rate = 0.5
max_wait = "2s"

[[contracts.policies]]
name = "open"
kind = "concurrency"
quota = 8
"""


def document(*policies: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"namespace": "api", "subject": "user:*", "policies": list(policies), **others}


def bucket(**others: Any) -> dict[str, Any]:
    return {"name": "p", "rate": 1, "burst": 1, **others}


def window(**others: Any) -> dict[str, Any]:
    return {"name": "p", "kind": "window", "quota": 1, "window": "1m", **others}


def test_a_file_has_every_kind_of_policy(tmp_path: Path) -> None:
    path = tmp_path / "contracts.toml"
    path.write_text(FILE)
    (contract,) = read_contract_file(path)
    assert contract == Contract(
        namespace="api",
        subject="user:*",
        policies=(
            Bucket(name="burst", rate_micro=20 * MICRO, burst_micro=40 * MICRO, max_debt_micro=40 * MICRO),
            Window(name="daily", quota=20_000, window_ns=86_400 * S, slices=60, weighted=True, aligned=True),
            Log(name="exact", quota=100, window_ns=5_400 * S),
            Pace(name="smooth", rate_micro=500_000, burst_micro=MICRO, max_wait_ns=2 * S),
            Concurrency(name="open", quota=8, expires_ns=60 * S),
        ),
    )
    assert read_contract(contract.to_json()) == contract


def test_a_promise_over_a_window_becomes_a_bucket_that_keeps_it() -> None:
    (policy,) = read_contract(document({"name": "p", "max_in": {"count": 100, "within": "60s"}})).policies
    assert isinstance(policy, Bucket)
    assert (policy.rate_micro, policy.burst_micro) == (50 * MICRO // 60, 50 * MICRO)
    assert policy.burst_micro + policy.rate_micro * 60 <= 100 * MICRO


@pytest.mark.parametrize(
    ("policies", "field", "rule"),
    [
        ([], "policies", "1 to 8"),
        ([bucket(name=f"p{n}") for n in range(9)], "policies", "1 to 8"),
        ([bucket(), window()], "policies[1].name", "two policies"),
        ([bucket(rate=0)], "policies[0].rate", "greater than 0"),
        ([bucket(rate=1e-9)], "policies[0].rate", "at least 0.000001"),
        ([bucket(rate=float("nan"))], "policies[0].rate", "finite"),
        ([bucket(burst=0.5)], "policies[0].burst", "greater than or equal to 1"),
        ([{"name": "p", "rate": 1}], "policies[0].burst", "is required"),
        ([bucket(max_debt=1e9)], "policies[0].max_debt", "paid within 366 days"),
        ([bucket(max_debt=float("inf"))], "policies[0].max_debt", "finite"),
        ([bucket(max_in={"count": 9, "within": "1s"})], "policies[0].max_in", "must not go with rate"),
        ([{"name": "p", "burst": 9, "max_in": {"count": 9, "within": "1s"}}], "policies[0].burst", "leave a rate"),
        ([bucket(rat=3)], "policies[0].rat", "did you mean 'rate'"),
        ([bucket(kind="leak")], "policies[0].kind", "must be one of bucket, pace"),
        ([bucket(kind=["bucket"])], "policies[0].kind", "must be one of bucket, pace"),
        ([bucket(name="a b")], "policies[0].name", "letters, digits"),
        ([window(slices=7)], "policies[0].slices", "whole nanoseconds, as 6 and 8 do"),
        ([window(slices=0)], "policies[0].slices", "greater than or equal to 1"),
        ([window(slices=1001)], "policies[0].slices", "less than or equal to 1000"),
        ([window(window="1000y")], "policies[0].window", "duration"),
        ([window(window=60)], "policies[0].window", "must be text such as"),
        ([window(window="367d")], "policies[0].window", "1ms to 366d"),
        ([window(quota=0)], "policies[0].quota", "greater than or equal to 1"),
        ([window(quota=2**32)], "policies[0].quota", "less than or equal to 4294967295"),
        ([{"name": "p", "kind": "log", "quota": 10_001, "window": "1s"}], "policies[0].quota", "at most 10000"),
        ([{"name": "p", "kind": "pace", "rate": 1}], "policies[0].max_wait", "is required"),
        ([{"name": "p", "kind": "concurrency", "quota": 1, "expires": "0"}], "policies[0].expires", "1ms to 366d"),
        (["p"], "policies[0]", "must be a table"),
    ],
)
def test_policies_that_cannot_work_are_refused(policies: list[Any], field: str, rule: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_contract(document(*policies))
    assert caught.value.field == field
    assert rule in caught.value.rule


@pytest.mark.parametrize(
    ("others", "field"),
    [
        ({"namespace": ""}, "namespace"),
        ({"namespace": "x" * 256}, "namespace"),
        ({"subject": "a*b"}, "subject"),
        ({"subject": "a\nb"}, "subject"),
        ({"subject": "\ud800"}, "subject"),
        ({"mode": "magic"}, "mode"),
        ({"mode": "shares"}, "mode"),
        ({"mode": "counter", "gossip": "loud"}, "gossip"),
        ({"mode": "queue", "frequency_analysis": "yes"}, "frequency_analysis"),
        ({"mode": "replicated", "gossip": "random"}, "gossip"),
        ({"mode": "local", "frequency_analysis": False}, "frequency_analysis"),
        ({"gossip": "linf"}, "gossip"),
        ({"starts": "half"}, "starts"),
        ({"shadow": 1}, "shadow"),
    ],
)
def test_contracts_that_cannot_be_are_refused(others: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_contract(document(bucket(), **others))
    assert caught.value.field == field


def test_a_mode_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(BadInput) as caught:
        read_contract(document(bucket(), mode="shares"))
    assert all(f"'{mode}'" in caught.value.rule for mode in MODES)


@pytest.mark.parametrize("mode", ["counter", "queue"])
def test_the_designs_of_the_thesis_have_their_own_options(mode: str) -> None:
    plain = read_contract(document(bucket(), mode=mode))
    both = read_contract(document(bucket(), mode=mode, gossip="linf", frequency_analysis=True))
    assert (plain.gossip, plain.frequency_analysis) == ("random", False)
    assert (both.gossip, both.frequency_analysis) == ("linf", True)
    for contract in (plain, both):
        assert read_contract(contract.to_json()) == contract
        assert read_contracts(tomllib.loads(contract_file_text([contract]))["contracts"]) == [contract]
    assert "gossip" not in read_contract(document(bucket())).to_json()
    with pytest.raises(BadInput, match="the mode is not given"):
        read_contract(document(bucket(), gossip="linf"))


def test_two_contracts_of_one_pattern_are_refused() -> None:
    with pytest.raises(BadInput, match=r"contracts\[0\]") as caught:
        read_contracts([document(bucket()), document(window())])
    assert caught.value.field == "contracts[1].subject"


@pytest.mark.parametrize("text", [b"contracts = 3", b"[[contract]]", b"x = [", b"\xff"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "contracts.toml"
    path.write_bytes(text)
    with pytest.raises(BadInput):
        read_contract_file(path)
    with pytest.raises(BadInput, match="No such file"):
        read_contract_file(tmp_path / "none.toml")


def test_a_subject_is_under_the_longest_pattern_that_fits() -> None:
    patterns = ["*", "user:*", "user:vip:*", "user:vip:1"]
    contracts = [read_contract(document(bucket(), subject=pattern)) for pattern in patterns]
    by_key = {contract.key: contract for contract in contracts}
    found = [contract_for(by_key, "api", subject) for subject in ("x", "user:1", "user:vip:2", "user:vip:1")]
    assert [contract and contract.subject for contract in found] == patterns
    assert contract_for(by_key, "other", "x") is None

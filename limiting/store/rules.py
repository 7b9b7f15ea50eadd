"""Contracts as ``decide.lua`` reads them, its keys, and what its answers mean. Pure.

Clocks in the store count microseconds. So waits are whole microseconds, rounded up, and every window begins where the
store's wall clock shows a multiple of a slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from srtm.contracts.contract import Contract
from srtm.contracts.policy import Bucket, Concurrency, Log, Pace, Policy, Window
from srtm.contracts.reference import Now, WindowMeter
from srtm.contracts.verdict import PolicyVerdict, Verdict
from srtm.errors import BadInput
from srtm.units import MICRO

LARGEST_QUOTA = 10_000  # of ``log`` and ``concurrency``: the store has an entry for each token
_US = 1_000  # ns
_BASE = 10**14  # of the two numbers of an amount
_TOKEN = 10**12  # units of an amount

Said = Sequence[object]  # what the script says of a policy


class Rules(NamedTuple):
    """A contract as the script reads it. ``key_ends``: of each policy, what follows the subject in its key."""

    contract: Contract
    script: bytes
    key_ends: tuple[str, ...]
    tag: bytes

    def keys(self, subject: bytes) -> list[str]:
        """The keys of a subject's policies. The braces hold all that decides on a cluster's slot."""
        return [f"srtm:{{{subject.hex()}}}:{end}" for end in self.key_ends]


def rules_of(contract: Contract) -> Rules:
    """Return a contract as the script reads it. Raises BadInput for one that the store cannot hold."""
    for number, policy in enumerate(contract.policies):
        _check(policy, f"policies[{number}]")
    tag = blake2b("\0".join(contract.key).encode(), digest_size=6).digest()
    tables = [_table(policy, contract.starts_full) for policy in contract.policies]
    ends = tuple(f"{tag.hex()}:{_key_end(policy)}" for policy in contract.policies)
    return Rules(contract, msgspec.json.encode(tables), ends, tag)


def subject_hash(namespace: str, subject: str) -> bytes:
    """16 bytes that stand for a subject in keys: names may be long, and may hold braces."""
    return blake2b(f"{namespace}\0{subject}".encode(), digest_size=16).digest()


def _check(policy: Policy, place: str) -> None:
    if isinstance(policy, Window) and policy.window_ns % (policy.slices * _US):
        raise BadInput(
            f"{place}.slices", policy.slices, 'must divide the window into whole microseconds in mode "store"'
        )
    if isinstance(policy, (Log, Concurrency)) and policy.quota > LARGEST_QUOTA:
        raise BadInput(f"{place}.quota", policy.quota, f'must be at most {LARGEST_QUOTA} in mode "store"')


def _key_end(policy: Policy) -> str:
    """A window of other slices begins anew: the numbers of its slices mean something else."""
    length = f":{policy.window_ns // policy.slices}" if isinstance(policy, Window) else ""
    return f"{policy.name}:{policy.kind}{length}"


def _table(policy: Policy, full: bool) -> dict[str, object]:
    match policy:
        case Bucket():
            return {**_refilled(policy, full), "debt": _amount(policy.max_debt_micro)}
        case Pace():
            return {**_refilled(policy, full), "max_wait": policy.max_wait_ns // _US}
        case Window():
            length = policy.window_ns // policy.slices // _US
            numbers = {"quota": policy.quota, "slices": policy.slices, "length": length}
            return {"kind": "window", **numbers, "weighted": policy.weighted}
        case Log():
            return {"kind": "leaving", "quota": policy.quota, "lasts": policy.window_ns // _US, "charged": True}
        case Concurrency():
            return {"kind": "leaving", "quota": policy.quota, "lasts": policy.expires_ns // _US, "charged": False}
    raise TypeError(policy)


def _refilled(policy: Bucket | Pace, full: bool) -> dict[str, object]:
    return {"kind": "bucket", "rate": policy.rate_micro, "burst": _amount(policy.burst_micro), "full": full}


def _amount(micro: int) -> tuple[int, int]:
    return divmod(micro * 10**6, _BASE)


# answers


def verdict_of(rules: Rules, answer: Said, cost: int, grant: bytes | None) -> Verdict:
    """What the script's answer to a check means. ``grant``: of a cost that was taken."""
    done, now, *said = answer
    assert isinstance(now, int)
    contract, passes = rules.contract, done == 1
    taken = cost if passes and grant is not None else 0
    policies = tuple(
        _policy_verdict(policy, each, cost, taken, now) for policy, each in zip(contract.policies, said, strict=True)
    )
    asked = [each.wait_ns for each in policies if passes or not each.allowed]
    wait = None if None in asked else max(each for each in asked if each is not None)
    shadowed = contract.shadow and not passes
    return Verdict(passes or shadowed, contract, policies, wait, grant, shadowed=shadowed, mode="store")


def _policy_verdict(policy: Policy, said: object, cost: int, taken: int, now: int) -> PolicyVerdict:
    fits, state = msgspec.convert(said, tuple[bool, list[int]], strict=False)
    match policy:
        case Bucket() | Pace():
            look = _refilled_look(policy, state[0] * _BASE + state[1], cost, taken)
        case Window():
            look = _window_look(policy, state, cost, fits, now)
        case Log() | Concurrency():
            used, until, last = state
            never = cost > policy.quota and not fits
            look = max(0, policy.quota - used), None if never else until - now, last - now
    remaining, wait, reset = look
    return PolicyVerdict(policy.name, fits, remaining, None if wait is None else wait * _US, reset * _US)


_Look = tuple[int, int | None, int]  # remaining tokens; us to wait, None: never; us until all is there


def _refilled_look(policy: Bucket | Pace, fill: int, cost: int, taken: int) -> _Look:
    burst = policy.burst_micro * 10**6
    missing = cost * _TOKEN - (fill + taken * _TOKEN)
    wait = None if missing > 0 and isinstance(policy, Bucket) and cost * _TOKEN > burst else _ceil(missing, policy)
    return max(0, fill) // _TOKEN, wait, _ceil(burst - fill, policy)


def _ceil(units: int, policy: Bucket | Pace) -> int:
    return -(-max(0, units) // policy.rate_micro)


def _window_look(policy: Window, state: list[int], cost: int, fits: bool, now: int) -> _Look:
    """By the reference: its clock of ns, which the store's of us is rounded up to."""
    counts = list(zip(state[::2], state[1::2], strict=True))
    meter, at = WindowMeter(policy, counts), Now(now * _US, now * _US)
    wait = 0 if fits else meter.wait_ns(cost, at)
    kept, length = policy.slices + policy.weighted, policy.window_ns // policy.slices // _US
    counted = [number for number, count in counts if count and now // length - number < kept]
    reset = (max(counted) + kept) * length - now if counted else 0
    return meter.remaining(at), None if wait is None else -(-wait // _US), reset


def share(contract: Contract, nodes: int) -> Contract:
    """One of ``nodes`` equal parts of a contract: what each lets through alone. Of each policy one token at least."""
    return replace(contract, policies=tuple(_part(policy, nodes) for policy in contract.policies))


def _part(policy: Policy, nodes: int) -> Policy:
    if isinstance(policy, (Bucket, Pace)):
        burst = max(MICRO, policy.burst_micro // nodes)
        return replace(policy, rate_micro=max(1, policy.rate_micro // nodes), burst_micro=burst)
    return replace(policy, quota=max(1, policy.quota // nodes))

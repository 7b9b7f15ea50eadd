"""The core of limits in Python, for where the extension in Rust is not built: the same answers, some 100 times slower.

The meters are those of ``srtm.contracts.reference``. Methods and errors are those of ``srtm._native.Limiter``.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from srtm.contracts.contract import Contract, contract_for
from srtm.contracts.policy import Bucket, Concurrency, Log, Pace, Policy, Window
from srtm.contracts.reference import ConcurrencyMeter, Meter, Now, decided, meter
from srtm.contracts.verdict import Verdict

_KINDS: dict[str, type[Policy]] = {each.kind: each for each in (Bucket, Pace, Window, Log, Concurrency)}
_SHARED = 1_024  # places of subjects beyond the bound
_GRANT_BYTES = 48
_GRANT_NS = 60 * 10**9
_SUBJECT_BYTES = 1_000  # about

Clocks = tuple[int, int]
Said = tuple[bool, int, list[tuple[bool, int, int | None, int | None]], int | None, bytes | None, bool, bool]


@dataclass
class _InForce:
    """A contract, its subjects, and what was asked of its policies: allowed, refused, cost."""

    number: int
    contract: Contract
    counts: list[list[int]]
    subjects: dict[str | int, list[Meter]] = field(default_factory=dict)


@dataclass
class _Grant:
    key: tuple[str, str]  # of the contract
    place: str | int
    cost: int
    at: int
    keeps_until: int
    is_corrected: bool = False


class Limiter:
    """Contracts, and the subjects under them. ``key`` is not needed here."""

    def __init__(self, key: bytes, max_subjects: int) -> None:  # noqa: ARG002
        self._most = max_subjects
        self._lock = threading.RLock()
        self._numbers = 0
        self._all: dict[tuple[str, str], _InForce] = {}
        self._grants: dict[bytes, _Grant] = {}
        self._checks: Counter[tuple[str, str]] = Counter()

    def put_contract(self, contract: bytes, clocks: Clocks) -> int:
        """Put a contract in force, and return its number."""
        fresh = _contract(contract)
        with self._lock:
            old = self._all.get(fresh.key)
            self._numbers += 1
            counts = [[0, 0, 0] for _ in fresh.policies]
            made = self._all[fresh.key] = _InForce(self._numbers if old is None else old.number, fresh, counts)
            if old is not None and old.contract.policies == fresh.policies:
                made.subjects, made.counts = old.subjects, old.counts
            elif old is not None and list(map(_shape, old.contract.policies)) == list(map(_shape, fresh.policies)):
                made.subjects = old.subjects
                for meters in made.subjects.values():
                    for each, policy in zip(meters, fresh.policies, strict=True):
                        each.change(policy, Now(*clocks))
            return made.number

    def remove_contract(self, namespace: str, subject: str) -> bool:
        """Remove the contract of exactly this pattern. False: there is none."""
        with self._lock:
            return self._all.pop((namespace, subject), None) is not None

    def check(self, namespace: str, subject: str, cost: int, clocks: Clocks) -> Said:
        """Take ``cost`` from all policies, or from none."""
        now = Now(*clocks)
        with self._lock:
            in_force, place, shared = self._place(namespace, subject)
            meters = in_force.subjects.setdefault(place, _fresh(in_force.contract, now))
            verdict = decided(in_force.contract, meters, cost, now)
            self._checks[namespace, subject] += place == subject
            for row, policy in zip(in_force.counts, verdict.policies, strict=True):
                row[0] += verdict.allowed
                row[1] += not policy.allowed
                row[2] += cost if verdict.allowed else 0
            grant = None if verdict.violated else self._grant(in_force, place, cost, now)
            return _said(in_force.number, verdict, grant, shared)

    def peek(self, namespace: str, subject: str, cost: int, clocks: Clocks) -> Said:
        """Return what ``check`` would say. Changes nothing."""
        now = Now(*clocks)
        with self._lock:
            in_force, place, shared = self._place(namespace, subject)
            meters = in_force.subjects.get(place) or _fresh(in_force.contract, now)
            return _said(in_force.number, decided(in_force.contract, meters, cost, now, takes=False), None, shared)

    def _found(self, namespace: str, subject: str) -> _InForce:
        contracts = {key: each.contract for key, each in self._all.items()}
        contract = contract_for(contracts, namespace, subject)
        if contract is None:
            raise LookupError("subject: no contract is for it")
        return self._all[contract.key]

    def _place(self, namespace: str, subject: str) -> tuple[_InForce, str | int, bool]:
        """Where a subject is counted; True: beyond the bound."""
        in_force = self._found(namespace, subject)
        if subject in in_force.subjects or self._known(namespace) < self._most:
            return in_force, subject, False
        return in_force, hash(subject) % _SHARED, True

    def _known(self, namespace: str) -> int:
        return sum(len(each.subjects) for (name, _), each in self._all.items() if name == namespace)

    def _grant(self, in_force: _InForce, place: str | int, cost: int, now: Now) -> bytes:
        expires = [each.expires_ns for each in in_force.contract.policies if isinstance(each, Concurrency)]
        while self._grants and next(iter(self._grants.values())).keeps_until <= now.mono:
            del self._grants[next(iter(self._grants))]
        made = secrets.token_bytes(_GRANT_BYTES)
        self._grants[made] = _Grant(in_force.contract.key, place, cost, now.mono, now.mono + max([_GRANT_NS, *expires]))
        return made

    def _granted(self, grant: bytes) -> _Grant:
        try:
            return self._grants[grant]
        except KeyError:
            raise ValueError("grant: is none of this limiter") from None

    def correct(self, grant: bytes, cost: int, clocks: Clocks) -> None:
        """Replace the cost of a check by what it came to. Once, within 60 s."""
        now = Now(*clocks)
        with self._lock:
            granted = self._granted(grant)
            if granted.at + _GRANT_NS < now.mono:
                raise ValueError("grant: is older than 60 s")
            if granted.is_corrected:
                raise ValueError("grant: was used before")
            granted.is_corrected = True
            in_force = self._all.get(granted.key)
            if in_force is None:
                return
            for each in in_force.subjects.setdefault(granted.place, _fresh(in_force.contract, now)):
                each.correct(cost - granted.cost, now)

    def release(self, grant: bytes, clocks: Clocks) -> None:  # noqa: ARG002
        """End an open request of policies of kind ``concurrency``. Once."""
        with self._lock:
            granted = self._granted(grant)
            in_force = self._all.get(granted.key)
            meters = [] if in_force is None else in_force.subjects.get(granted.place, [])
            if sum(_released(each, granted) for each in meters) == 0:
                raise ValueError("grant: was used before")

    def charge(self, namespace: str, subject: str, cost: int, clocks: Clocks) -> None:
        """Charge a subject without a check; below 0: give back."""
        now = Now(*clocks)
        with self._lock:
            in_force, place, _ = self._place(namespace, subject)
            for each in in_force.subjects.setdefault(place, _fresh(in_force.contract, now)):
                each.correct(cost, now)

    def reset(self, namespace: str, subject: str) -> bool:
        """Make a subject a new one. False: it was."""
        with self._lock:
            found = [each for (name, _), each in self._all.items() if name == namespace and subject in each.subjects]
            for each in found:
                del each.subjects[subject]
            return bool(found)

    def sweep(self, slots: int, clocks: Clocks) -> None:
        """Look at ``slots`` subjects of each contract, and forget those that have nothing used."""
        now = Now(*clocks)
        with self._lock:
            for (namespace, _), each in self._all.items():
                for place in list(islice(each.subjects, slots)):
                    meters = each.subjects.pop(place)
                    if all(meter.is_unused(now) for meter in meters):
                        self._checks.pop((namespace, str(place)), None)
                    else:
                        each.subjects[place] = meters  # at the end: others come next time

    def counts(self, number: int) -> list[tuple[int, int, int]] | None:
        """Return the (allowed, refused, cost) of each policy of a contract; None: there is none of this number."""
        with self._lock:
            found = next((each for each in self._all.values() if each.number == number), None)
            return None if found is None else [(row[0], row[1], row[2]) for row in found.counts]

    def heaviest(self, namespace: str, most: int) -> list[tuple[str, int, int]]:
        """Return the most checked subjects: (subject, checks, 0), heaviest first."""
        with self._lock:
            found = [(subject, count, 0) for (name, subject), count in self._checks.items() if name == namespace]
        return sorted(found, key=lambda row: -row[1])[:most]

    def subjects(self) -> list[tuple[str, int]]:
        """Return the number of subjects in memory by namespace."""
        with self._lock:
            return [(name, self._known(name)) for name in sorted({name for name, _ in self._all})]

    def bytes(self) -> int:
        """Return about how many bytes all subjects take."""
        return _SUBJECT_BYTES * sum(len(each.subjects) for each in self._all.values())


def _contract(content: bytes) -> Contract:
    document: dict[str, Any] = msgspec.json.decode(content)
    policies = tuple(_policy(**table) for table in document.pop("policies"))
    return Contract(policies=policies, **document)


def _shape(policy: Policy) -> tuple[str, int]:
    """What must stay, so that subjects keep what they have used: the kind, and how many slices a window has."""
    return policy.kind, policy.slices + policy.weighted if isinstance(policy, Window) else 0


def _policy(kind: str, **values: Any) -> Policy:
    return _KINDS[kind](**values)


def _released(meter: Meter, granted: _Grant) -> bool:
    """End the request of a grant; False: it is not open."""
    if not isinstance(meter, ConcurrencyMeter):
        return False
    try:
        meter.release(granted.at, granted.cost)
    except ValueError:
        return False
    return True


def _fresh(contract: Contract, now: Now) -> list[Meter]:
    return [meter(policy, contract.starts_full, now) for policy in contract.policies]


def _said(number: int, verdict: Verdict, grant: bytes | None, shared: bool) -> Said:
    looks = [(policy.allowed, policy.remaining, policy.wait_ns, policy.reset_ns) for policy in verdict.policies]
    return verdict.allowed, number, looks, verdict.wait_ns, grant, shared, verdict.shadowed

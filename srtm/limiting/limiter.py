"""A limiter of contracts in this process. A core decides, in Rust where it is built; this keeps contracts and clocks.

Every method may be called from any thread, and from any event loop: a decision takes some microseconds and never waits.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from srtm.contracts.contract import LONGEST_SUBJECT, Contract
from srtm.contracts.policy import persists
from srtm.contracts.verdict import PolicyVerdict, Verdict
from srtm.errors import NATIVE, BadInput, NotFound, shown

try:
    from srtm._native import Limiter as Core
except ImportError as absent:
    if absent.name != NATIVE:
        raise
    # slower, and there for a program; the limit service needs the extension for its other protocols
    from srtm.limiting.python_core import Limiter as Core  # type: ignore[assignment]

MOST_SUBJECTS = 1_000_000  # of a namespace: some 64 MB with one bucket each
MOST_COST = 2**32 - 1
GRANT_BYTES = 48
_SWEPT = 4_096  # slots a call: some 100 us

Clocks = Callable[[], tuple[int, int]]  # monotonic and wall, ns


def system_clocks() -> tuple[int, int]:
    """The time since the start of the host, suspends included, and the wall clock, ns."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.time_ns()


def _without_contract(namespace: str, subject: str) -> NotFound:
    return NotFound("subject", subject, f"a contract of namespace {shown(namespace)} must be for it")


class PolicyCounts(NamedTuple):
    """What was asked of one policy since its contract was put."""

    name: str
    allowed: int  # checks
    refused: int  # checks that this policy refused
    cost: int  # of the allowed ones


class Heavy(NamedTuple):
    """A subject that is checked often: ``checks`` times, at most ``error`` too many."""

    subject: str
    checks: int
    error: int


class Used(NamedTuple):
    """What a subject, by its hash, has used of a contract. The words are for ``Limiter.restore``; None: nothing."""

    namespace: str
    pattern: str
    subject: bytes
    words: bytes | None


class Limiter:
    """Contracts, and what their subjects have used.

    ``key``: 16 secret bytes, of the hash of subjects and of grants; the same on nodes that share grants.
    ``subjects_key``: of the hash of subjects alone, where what they use is to outlive the process: ``changed``.
    """

    def __init__(
        self,
        contracts: Iterable[Contract] = (),
        *,
        key: bytes | None = None,
        max_subjects: int = MOST_SUBJECTS,
        clocks: Clocks = system_clocks,
        subjects_key: bytes | None = None,
    ) -> None:
        own = key or secrets.token_bytes(16)
        self.keeps = subjects_key is not None
        self._core = Core(own, max_subjects) if subjects_key is None else Core(own, max_subjects, subjects_key)
        self.clocks = self._clocks = clocks
        self._contracts: dict[int, Contract] = {}  # by the core's number
        self._numbers: dict[tuple[str, str], int] = {}
        for contract in contracts:
            self.put(contract)

    @property
    def core(self) -> Core:
        """What decides. Only to be asked: contracts are put by ``put``."""
        return self._core

    @property
    def contracts(self) -> list[Contract]:
        """The contracts in force, by namespace and pattern."""
        return sorted(self._contracts.values(), key=lambda contract: contract.key)

    def put(self, contract: Contract) -> None:
        """Put a contract in force, in the place of the one of its pattern.

        Subjects keep what they have used as long as the policies are of the same kinds, in the same order.
        """
        try:
            number = self._core.put_contract(contract.to_core(), self._clocks())
        except ValueError as error:
            raise BadInput("contract", contract.subject, str(error)) from None
        self._contracts[number] = contract
        self._numbers[contract.key] = number
        if self.keeps:
            self._core.keep(number, sum(persists(policy) << bit for bit, policy in enumerate(contract.policies)))

    def remove(self, namespace: str, pattern: str) -> None:
        """Remove a contract and its subjects. Raises NotFound."""
        if not self._core.remove_contract(namespace, pattern):
            raise NotFound("contract", f"{namespace} {pattern}")
        del self._contracts[self._numbers.pop((namespace, pattern))]

    def check(self, namespace: str, subject: str, cost: int = 1) -> Verdict:
        """Ask all policies for ``cost`` tokens, and take them from all or from none.

        Raises BadInput, NotFound (no contract is for the subject).
        """
        return self._verdict(self._core.check, namespace, subject, cost)

    def peek(self, namespace: str, subject: str, cost: int = 1) -> Verdict:
        """Say what ``check`` would say. Changes nothing. Raises BadInput, NotFound."""
        return self._verdict(self._core.peek, namespace, subject, cost)

    def _verdict(self, ask: Callable[..., _Said], namespace: str, subject: str, cost: int) -> Verdict:
        checked_subject(subject)
        try:
            said = ask(namespace, subject, checked_cost(cost), self._clocks())
        except LookupError:
            raise _without_contract(namespace, subject) from None
        allowed, number, policies, wait_ns, grant, shared, shadowed = said
        contract = self._contracts[number]
        named = zip(contract.policies, policies, strict=True)
        verdicts = tuple(PolicyVerdict(policy.name, *look) for policy, look in named)
        return Verdict(allowed, contract, verdicts, wait_ns, grant, shared, shadowed)

    def correct(self, grant: bytes, cost: int) -> None:
        """Replace the cost of a check by what it came to. Once, within 60 s.

        A bucket may fall below zero, by at most its ``max_debt``. Raises BadInput.
        """
        self._with_grant(lambda: self._core.correct(grant, checked_cost(cost), self._clocks()))

    def release(self, grant: bytes) -> None:
        """End an open request of policies of kind ``concurrency``. Once. Raises BadInput."""
        self._with_grant(lambda: self._core.release(grant, self._clocks()))

    def _with_grant(self, use: Callable[[], None]) -> None:
        try:
            use()
        except ValueError as error:
            field, _, rule = str(error).partition(": ")
            raise BadInput(field, "(not shown)", rule) from None

    def charge(self, namespace: str, subject: str, cost: int) -> None:
        """Charge a subject without a check; below 0: give back. Raises BadInput, NotFound."""
        checked_subject(subject)
        if not -MOST_COST <= cost <= MOST_COST:
            raise BadInput("cost", cost, f"must be from -{MOST_COST} to {MOST_COST} tokens")
        try:
            self._core.charge(namespace, subject, cost, self._clocks())
        except LookupError:
            raise _without_contract(namespace, subject) from None

    def reset(self, namespace: str, subject: str) -> bool:
        """Make a subject a new one, with nothing used. False: it was. Raises BadInput."""
        checked_subject(subject)
        return self._core.reset(namespace, subject)

    def changed(self, most: int) -> list[Used]:
        """What subjects have used of policies with ``persist``: at most ``most`` that changed. Each is told once."""
        news = self._core.changed(most)
        return [Used(*self._contracts[number].key, subject, words) for number, subject, words in news]

    def restore(self, namespace: str, pattern: str, subject: bytes, words: bytes, saved: tuple[int, int]) -> bool:
        """Give a subject what it had used when ``changed`` told it, at ``saved`` by the clocks of then.

        False: it is there, or the contract is another one.
        """
        number = self._numbers.get((namespace, pattern))
        return number is not None and self._core.restore(number, subject, words, saved, self._clocks())

    def sweep(self) -> None:
        """Forget some of the subjects that have nothing used. Call it often: it looks at 4,096 slots."""
        self._core.sweep(_SWEPT, self._clocks())

    def counts(self, contract: Contract) -> tuple[PolicyCounts, ...]:
        """What was asked of each policy of a contract in force. Raises NotFound."""
        number = self._numbers.get(contract.key)
        counts = None if number is None else self._core.counts(number)
        if number is None or counts is None:
            raise NotFound("contract", f"{contract.namespace} {contract.subject}")
        named = zip(self._contracts[number].policies, counts, strict=True)
        return tuple(PolicyCounts(policy.name, *count) for policy, count in named)

    def heaviest(self, namespace: str, most: int) -> list[Heavy]:
        """The ``most`` most checked subjects of a namespace, by a sample of one check in 16, heaviest first."""
        return [Heavy(*found) for found in self._core.heaviest(namespace, most)]

    def subjects(self) -> dict[str, int]:
        """How many subjects are in memory, by namespace."""
        return dict(self._core.subjects())

    @property
    def bytes(self) -> int:
        """Bytes of all slots of subjects, used or not."""
        return self._core.bytes()


_Said = tuple[bool, int, list[tuple[bool, int, int | None, int | None]], int | None, bytes | None, bool, bool]


def checked_cost(cost: int) -> int:
    """Return ``cost`` if it may be asked. Raises BadInput."""
    if not 0 <= cost <= MOST_COST:
        raise BadInput("cost", cost, f"must be from 0 to {MOST_COST} tokens")
    return cost


def checked_subject(subject: str) -> str:
    """Return ``subject`` if it may be one. Raises BadInput."""
    try:
        size = len(subject) if subject.isascii() else len(subject.encode())
    except UnicodeEncodeError:
        raise BadInput("subject", subject, "must be Unicode text") from None
    if not 1 <= size <= LONGEST_SUBJECT:
        raise BadInput("subject", f"{size} bytes", f"must be 1 to {LONGEST_SUBJECT} bytes")
    return subject

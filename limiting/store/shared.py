"""Decides the contracts of mode ``store``: in the store, or without it as the contract says.

A call has 200 ms. After three in a row that had no answer no check waits for the store, until a probe, once a
second, finds it again. Meanwhile ``on_failure`` decides: ``local`` by this node's equal part of the contract.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Protocol

import trio

from limiting.store.grants import Grant, read_grant, sealed
from limiting.store.rules import Rules, rules_of, share, subject_hash, verdict_of
from srtm.contracts.contract import Contract
from srtm.contracts.verdict import PolicyVerdict, Verdict
from srtm.errors import BadInput, NotFound, Unavailable
from srtm.limiting.breaker import Breaker
from srtm.limiting.limiter import Limiter, PolicyCounts
from srtm.log import Log

PROBE_S = 1.0
_PORTION = 20  # contracts between two turns of other tasks: some ms
_AGAIN_NS = 10**9  # when a refusal without the store may be asked again: the next probe
_WRONG_GRANTS = {-1: "is older than 60 s", -2: "was used before"}


class Store(Protocol):
    """What ``SharedStore`` asks of a store. Each call ends within 200 ms. Raises Unavailable."""

    async def decide(self, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> list[Any]:
        """Run ``decide.lua``."""

    async def forget(self, keys: Sequence[str]) -> None:
        """Delete keys."""

    async def nodes(self) -> tuple[int, bytes]:
        """Tell that this node lives. How many do, and the key of grants."""


class SharedStore:
    """The contracts that a store holds. ``limiter`` has this node's parts of them."""

    def __init__(self, store: Store, limiter: Limiter) -> None:
        self._store = store
        self._limiter = limiter
        self._log = Log("limit")
        self._breaker = Breaker()
        self._rules: dict[tuple[str, str], Rules] = {}
        self._by_tag: dict[bytes, Rules] = {}
        self._counts: dict[tuple[str, str], list[list[int]]] = {}
        self._nodes, self._key = 1, b""

    @property
    def is_empty(self) -> bool:
        """Whether it holds no contract."""
        return not self._rules

    def put(self, contract: Contract) -> None:
        """Put a contract in force, in the place of the one of its pattern. Raises BadInput."""
        rules = rules_of(contract)
        known = self._rules.get(contract.key)
        self._limiter.put(share(contract, self._nodes))
        self._rules[contract.key] = self._by_tag[rules.tag] = rules
        if known is None or known.contract.policies != contract.policies:
            self._counts[contract.key] = [[0, 0, 0] for _ in contract.policies]

    def remove(self, key: tuple[str, str]) -> bool:
        """Forget a contract; what the store has of its subjects expires there. False: it is none of these."""
        rules = self._rules.pop(key, None)
        if rules is None:
            return False
        del self._by_tag[rules.tag], self._counts[key]
        self._limiter.remove(*key)
        return True

    def counts(self, contract: Contract) -> tuple[PolicyCounts, ...]:
        """What was asked of each policy at this node, with the store or without. Raises NotFound."""
        if contract.key not in self._counts:
            raise NotFound("contract", f"{contract.namespace} {contract.subject}")
        rows = zip(self._counts[contract.key], self._limiter.counts(contract), strict=True)
        return tuple(
            PolicyCounts(one.name, *(sum(pair) for pair in zip(row, one[1:], strict=True))) for row, one in rows
        )

    # checks

    async def check(self, contract: Contract, subject: str, cost: int, *, peek: bool = False) -> Verdict:
        """Take ``cost`` from all policies of a subject, or from none."""
        rules, name = self._rules[contract.key], secrets.token_bytes(8)
        counts = self._counts[contract.key]  # now: the contract may be changed or removed while the store is asked
        hashed = subject_hash(contract.namespace, subject)
        answer = await self._asked(rules, hashed, "look" if peek else "take", cost, name)
        if answer is None:
            return self._alone(contract, subject, cost, counts, peek=peek)
        grant = None
        if not peek and answer[0] == 1:
            grant = sealed(Grant(name, hashed, rules.tag, cost, -(-answer[1] // 10**6)), self._key)
        verdict = verdict_of(rules, answer, cost, grant)
        if not peek:
            _note(counts, verdict, cost)
        return verdict

    async def _asked(
        self, rules: Rules, subject: bytes, operation: str, cost: int, name: bytes = b"", at: int = 0
    ) -> list[Any] | None:
        """What the store answers. None: it does not."""
        if self._breaker.is_open:
            return None
        keys = rules.keys(subject)
        if operation == "correct":
            keys.append(f"srtm:{{{subject.hex()}}}:corrected:{name.hex()}")
        try:
            answer = await self._store.decide(keys, [operation, rules.script, cost, name.hex(), at, ""])
        except Unavailable as error:
            self._failed(error)
            return None
        self._breaker.succeeded()
        return answer

    def _failed(self, error: Unavailable) -> None:
        if self._breaker.failed():
            self._log.warning("store_down", error=str(error))

    def _alone(self, contract: Contract, subject: str, cost: int, counts: list[list[int]], *, peek: bool) -> Verdict:
        """Without the store, as the contract says."""
        if contract.on_failure == "local":
            ask = self._limiter.peek if peek else self._limiter.check
            return ask(contract.namespace, subject, cost)._replace(contract=contract, degraded=True)
        passes = contract.on_failure == "open"
        wait, left = (0, cost) if passes else (_AGAIN_NS, 0)
        said = tuple(PolicyVerdict(policy.name, passes, left, wait, wait) for policy in contract.policies)
        verdict = Verdict(passes or contract.shadow, contract, said, wait, None, mode="store", degraded=True)
        if not peek:
            _note(counts, verdict, cost)
        return verdict

    # after checks

    async def correct(self, content: bytes, cost: int) -> bool:
        """Replace the cost of a grant. False: it is none of the store's. Raises BadInput, NotFound, Unavailable."""
        return await self._with_grant("correct", content, cost)

    async def release(self, content: bytes) -> bool:
        """End an open request. False: it is none of the store's. Raises BadInput, NotFound, Unavailable."""
        return await self._with_grant("release", content, None)

    async def _with_grant(self, operation: str, content: bytes, cost: int | None) -> bool:
        grant = read_grant(content, self._key) if self._key else None
        if grant is None:
            return False
        rules = self._by_tag.get(grant.contract)
        if rules is None:
            raise NotFound("contract", "of this grant")
        amount = grant.cost if cost is None else cost - grant.cost
        answer = await self._asked(rules, grant.subject, operation, amount, grant.name, grant.at * 10**6)
        if answer is None:
            raise Unavailable("the store does not answer: what was taken cannot be changed now", PROBE_S)
        if answer[0] in _WRONG_GRANTS:
            raise BadInput("grant", "(not shown)", _WRONG_GRANTS[answer[0]])
        return True

    async def charge(self, contract: Contract, subject: str, cost: int) -> None:
        """Charge a subject without a check; below 0: give back. Raises Unavailable."""
        rules = self._rules[contract.key]
        hashed = subject_hash(contract.namespace, subject)
        if await self._asked(rules, hashed, "charge", cost, secrets.token_bytes(8)) is None:
            raise Unavailable("the store does not answer: nobody can be charged now", PROBE_S)

    async def reset(self, contract: Contract, subject: str) -> None:
        """Make a subject a new one. Raises Unavailable."""
        self._limiter.reset(contract.namespace, subject)
        await self._store.forget(self._rules[contract.key].keys(subject_hash(contract.namespace, subject)))

    # the store

    async def run(self) -> None:
        """Tell the store that this node lives, and learn how many do, until cancelled."""
        while True:
            await self.probe()
            await trio.sleep(PROBE_S)

    async def probe(self) -> None:
        """Ask once, and close the circuit if there is an answer."""
        try:
            nodes, self._key = await self._store.nodes()
        except Unavailable as error:
            self._failed(error)
            return
        if self._breaker.succeeded():
            self._log.info("store_back")
        if nodes != self._nodes:
            self._nodes = nodes
            await self._share_again()

    async def _share_again(self) -> None:
        """Give this node its part of every contract. Others have their turns: there may be very many."""
        for number, (key, rules) in enumerate(list(self._rules.items()), start=1):
            if self._rules.get(key) is rules:  # else it was put meanwhile, by the new number of nodes, or removed
                self._limiter.put(share(rules.contract, self._nodes))
            if number % _PORTION == 0:
                await trio.lowlevel.checkpoint()


def _note(counts: list[list[int]], verdict: Verdict, cost: int) -> None:
    for row, said in zip(counts, verdict.policies, strict=True):
        row[0] += verdict.allowed
        row[1] += not said.allowed
        row[2] += cost if verdict.allowed else 0

"""The heaviest subjects of a contract: the distributor asks the brokers that were asked the most of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest

import msgspec
import trio
from fastapi import FastAPI, Request, Response

from distributor.page.asked_brokers import asked
from distributor.registry.registry import Registry
from distributor.sync.service import SyncService
from srtm.control import ContractSubject
from srtm.errors import SrtmError
from srtm.web.bodies import json_answer

MOST_BROKERS = 16  # each is a request of its own
MOST_SUBJECTS = 10


class SubjectRow(msgspec.Struct, kw_only=True):
    """A client, at all brokers that were asked."""

    subject: str
    checks: int  # publishes or deliveries, by a sample
    remaining: dict[str, int]  # {policy: whole tokens}, at the broker where the least remains
    brokers: int  # at which it is among the heaviest


class SubjectRows(msgspec.Struct, kw_only=True):
    """The heaviest subjects of a contract, heaviest first. ``silent``: {broker: why it did not tell}."""

    asked: Sequence[str]
    silent: Mapping[str, str]
    rows: Sequence[SubjectRow]


def add_contract_subject_routes(app: FastAPI, registry: Registry, syncing: SyncService) -> None:
    @app.get("/v1/contract-subjects/{namespace}/{pattern:path}")
    async def subjects(namespace: str, pattern: str, request: Request) -> Response:
        """The heaviest subjects of a contract, and what remains for them, at the 16 brokers that were asked the most of
        it. Brokers are asked now, with the token of this request."""
        contract = registry.contracts.get(namespace, pattern).contract
        names = most_asked(syncing, contract.key)
        told: list[ContractSubject] = []
        silent: dict[str, str] = {}

        async def ask(name: str) -> None:
            try:
                async with asked(registry, name, request) as broker:
                    told.extend(await broker.contract_subjects(namespace))
            except SrtmError as error:
                silent[name] = str(error)

        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(ask, name)
        rows = heaviest((each for each in told if each.contract == pattern), [each.name for each in contract.policies])
        return json_answer(SubjectRows(asked=names, silent=silent, rows=rows))


def most_asked(syncing: SyncService, key: tuple[str, str]) -> list[str]:
    """The brokers that counted the most of the contract ``key``, at most ``MOST_BROKERS``."""
    counted = {
        name: sum(counts[0][:2])
        for name, session in syncing.sessions.by_broker.items()
        if (counts := session.contract_counts.get(key))
    }
    return nlargest(MOST_BROKERS, sorted(counted), key=counted.__getitem__)


def heaviest(told: Iterable[ContractSubject], policies: Sequence[str]) -> list[SubjectRow]:
    """The heaviest of what brokers told of one contract."""
    rows: dict[str, SubjectRow] = {}
    for each in told:
        row = rows.setdefault(each.subject, SubjectRow(subject=each.subject, checks=0, remaining={}, brokers=0))
        row.checks += each.checks
        row.brokers += 1
        for policy, left in zip(policies, each.remaining, strict=False):  # a broker may have another version still
            row.remaining[policy] = min(left, row.remaining.get(policy, left))
    return nlargest(MOST_SUBJECTS, rows.values(), key=lambda row: row.checks)

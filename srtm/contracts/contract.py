"""A contract: the policies for a pattern of subjects. ``read_contract`` alone makes one of a document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec
from pydantic import AfterValidator, Field

from srtm.contracts.policy import MOST_POLICIES, Json, Policy, persists
from srtm.contracts.policy_tables import read_policy
from srtm.errors import BadInput
from srtm.topics.schema import Schema, parsed

Mode = Literal["local", "replicated", "exact", "auto", "store", "counter", "queue"]
OnPartition = Literal["go on", "share"]
OnFailure = Literal["local", "open", "closed"]
Gossip = Literal["random", "linf"]
MODES: tuple[Mode, ...] = get_args(Mode)
GOSSIPED: tuple[Mode, ...] = ("counter", "queue")
KINDS_OF_BROKERS = ("bucket", "window", "log")
LONGEST_NAME = 255  # bytes of a namespace or pattern
LONGEST_SUBJECT = 1_024  # bytes


class Contract(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Policies for the subjects of a pattern. A check takes from all of them, or from none."""

    namespace: str
    subject: str  # a subject, or the beginning of subjects and a * at its end
    policies: tuple[Policy, ...]
    mode: Mode | None = None  # None: as the service is told
    on_partition: OnPartition = "go on"  # ``replicated``, ``auto``: what nodes do that reach only some of the others
    on_failure: OnFailure = "local"  # ``store``: what nodes do that cannot reach it; local: each by its part
    gossip: Gossip = "random"  # ``counter``, ``queue``: whom a node tells next; linf: the least informed
    frequency_analysis: bool = False  # ``counter``, ``queue``: whether frequent requests are told at once
    shadow: bool = False  # decides and counts, and refuses nobody
    starts_full: bool = True  # whether a new subject has its burst at once

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and pattern: there is one contract of each."""
        return self.namespace, self.subject

    def to_core(self) -> bytes:
        """Return the contract as JSON for the core."""
        policies = [policy.to_core() for policy in self.policies]
        names = {"namespace": self.namespace, "subject": self.subject}
        return msgspec.json.encode(
            {**names, "policies": policies, "shadow": self.shadow, "starts_full": self.starts_full}
        )

    def to_json(self) -> Json:
        """Return the document that ``read_contract`` turns into this contract."""
        gossiped = {"gossip": self.gossip, "frequency_analysis": self.frequency_analysis}
        return {
            "namespace": self.namespace,
            "subject": self.subject,
            "mode": self.mode,
            "on_partition": self.on_partition,
            "on_failure": self.on_failure,
            **(gossiped if self.mode in GOSSIPED else {}),
            "shadow": self.shadow,
            "starts": "full" if self.starts_full else "empty",
            "policies": [policy.to_json() for policy in self.policies],
        }


def check_for_brokers(contract: Contract) -> None:
    """Check that brokers can hold messages to ``contract``. Raises BadInput."""
    if contract.mode not in (None, "local", "replicated"):
        raise BadInput("mode", contract.mode, 'must be "local", "replicated" or left out: brokers decide at once')
    if contract.on_partition != "go on":
        raise BadInput("on_partition", contract.on_partition, 'must be "go on" or left out')
    for policy in contract.policies if contract.mode == "replicated" else ():
        if policy.kind != "bucket":
            raise BadInput(f"policies.{policy.name}.kind", policy.kind, "must be bucket: others are not replicated")
    for policy in contract.policies:
        if persists(policy):
            raise BadInput(f"policies.{policy.name}.persist", True, "must be left out: brokers keep no use on disk")
        if policy.kind not in KINDS_OF_BROKERS:
            rule = f"must be {', '.join(KINDS_OF_BROKERS)}: a message has no end, and is accepted or refused at once"
            raise BadInput(f"policies.{policy.name}.kind", policy.kind, rule)


def _name(value: str) -> str:
    if not 1 <= len(value.encode(errors="surrogatepass")) <= LONGEST_NAME or not value.isprintable():
        raise ValueError(f"must be 1 to {LONGEST_NAME} bytes of printable text")
    return value


def _pattern(value: str) -> str:
    if "*" in _name(value)[:-1]:
        raise ValueError("may have a * at its end only, for all subjects that begin so")
    return value


class ContractTable(Schema):
    """A contract's document. Its policies are read apart."""

    namespace: Annotated[str, AfterValidator(_name)]
    subject: Annotated[str, AfterValidator(_pattern)]
    mode: Mode | None = None
    on_partition: OnPartition = "go on"
    on_failure: OnFailure = "local"
    gossip: Gossip | None = None
    frequency_analysis: bool | None = None
    shadow: bool = False
    starts: Literal["full", "empty"] = "full"
    policies: list[Any] = Field(default_factory=list)


def read_contract(document: object, place: str = "") -> Contract:
    """Read the contract at ``place`` of a document ("": the top). Raises BadInput."""
    table = parsed(ContractTable, document, place)
    inner = f"{place}.policies" if place else "policies"
    if not 1 <= len(table.policies) <= MOST_POLICIES:
        raise BadInput(inner, len(table.policies), f"must be 1 to {MOST_POLICIES} policies")
    for key in ("gossip", "frequency_analysis"):
        value = getattr(table, key)
        if value is not None and table.mode not in GOSSIPED:
            rule = f'must go with mode = "counter" or "queue"; the mode is {table.mode or "not given"}'
            raise BadInput(f"{place}.{key}".removeprefix("."), value, rule)
    policies = tuple(read_policy(value, f"{inner}[{i}]") for i, value in enumerate(table.policies))
    names = [policy.name for policy in policies]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise BadInput(f"{inner}[{number}].name", name, "must not be the name of two policies of one contract")
    return Contract(
        namespace=table.namespace,
        subject=table.subject,
        policies=policies,
        mode=table.mode,
        on_partition=table.on_partition,
        on_failure=table.on_failure,
        gossip=table.gossip or "random",
        frequency_analysis=table.frequency_analysis or False,
        shadow=table.shadow,
        starts_full=table.starts == "full",
    )


def read_contracts(documents: Sequence[object], place: str = "contracts") -> list[Contract]:
    """Read a list of contracts. Raises BadInput, also for two of one pattern."""
    contracts = [read_contract(document, f"{place}[{i}]") for i, document in enumerate(documents)]
    check_distinct(contracts, place)
    return contracts


def check_distinct(contracts: Sequence[Contract], place: str = "contracts") -> None:
    """Raises BadInput for two contracts of one pattern."""
    for _ in distinct(contracts, place):
        pass


def distinct(contracts: Iterable[Contract], place: str = "contracts") -> Iterator[Contract]:
    """Yield contracts one by one. Raises BadInput for the second one of a pattern."""
    first: dict[tuple[str, str], int] = {}
    for number, contract in enumerate(contracts):
        if first.setdefault(contract.key, number) != number:
            where = f"{place}[{first[contract.key]}]"
            raise BadInput(f"{place}[{number}].subject", contract.subject, f"is that of {where} in this namespace")
        yield contract


def contract_for(contracts: Mapping[tuple[str, str], Contract], namespace: str, subject: str) -> Contract | None:
    """Find the contract of a subject: the one for it alone, else the one with the longest pattern that fits.

    ``contracts``: {key: contract}.
    """
    exactly = contracts.get((namespace, subject))
    if exactly is not None and not subject.endswith("*"):
        return exactly
    patterns = (f"{subject[:size]}*" for size in range(len(subject), -1, -1))
    return next((contracts[namespace, each] for each in patterns if (namespace, each) in contracts), None)

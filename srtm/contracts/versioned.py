"""All contracts of a service, each with the version of its last change, as one value. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from srtm.contracts.contract import Contract
from srtm.errors import BadInput, Conflict, NotFound

Key = tuple[str, str]  # namespace and pattern
ABSENT = "absent"  # what ``check_tag`` expects where there must be no contract; an entity tag has quotes


class Versioned(msgspec.Struct, frozen=True, gc=False):
    """A contract in force. Its version grows with every change of any contract."""

    contract: Contract
    version: int

    @property
    def etag(self) -> str:
        """The version as an entity tag (RFC 9110, section 8.8.3)."""
        return f'"{self.version}"'


@dataclass(frozen=True)
class Contracts:
    """``version``: of the last change; 0: there was none."""

    version: int = 0
    by_key: Mapping[Key, Versioned] = field(default_factory=dict)

    @cached_property
    def namespaces(self) -> frozenset[str]:
        """Those that have contracts."""
        return frozenset(namespace for namespace, _ in self.by_key)

    @cached_property
    def in_force(self) -> Mapping[Key, Contract]:
        """{key: contract}."""
        return {key: each.contract for key, each in self.by_key.items()}

    def all(self) -> list[Versioned]:
        """All contracts, by namespace and pattern."""
        return [self.by_key[key] for key in sorted(self.by_key)]

    def get(self, namespace: str, pattern: str) -> Versioned:
        """The contract of a pattern. Raises NotFound."""
        try:
            return self.by_key[namespace, pattern]
        except KeyError:
            raise NotFound("contract", f"{namespace} {pattern}") from None

    def news(self, contracts: Iterable[Contract]) -> list[Contract]:
        """Those of ``contracts`` that are not in force as they are."""
        return [each for each in contracts if (known := self.by_key.get(each.key)) is None or known.contract != each]

    def put(self, contracts: Iterable[Contract], version: int, most: int) -> Contracts:
        """With ``contracts`` in the place of those with their patterns. Raises BadInput for more than ``most``."""
        after = {**self.by_key, **{each.key: Versioned(each, version) for each in contracts}}
        if len(after) > most:
            raise BadInput("contracts", len(after), f"must be at most {most} in all")
        return Contracts(version, after)

    def without(self, namespace: str, pattern: str, version: int) -> Contracts:
        """Raises NotFound."""
        gone = self.get(namespace, pattern).contract.key
        return Contracts(version, {key: each for key, each in self.by_key.items() if key != gone})

    def check_tag(self, namespace: str, pattern: str, expected: str | None) -> None:
        """As the function ``check_tag``, for the contract of a pattern. Raises Conflict."""
        check_tag(self.by_key.get((namespace, pattern)), expected)


def expected_tag(if_match: str | None, if_none_match: str | None) -> str | None:
    """What ``check_tag`` expects by two headers of a request (RFC 9110, section 13.1). Raises BadInput."""
    if if_none_match is None:
        return if_match
    if if_none_match != "*":
        raise BadInput("If-None-Match", if_none_match, "must be *: there must be no contract yet")
    if if_match is not None:
        raise BadInput("If-Match", if_match, "must not be given with If-None-Match")
    return ABSENT


def check_tag(known: Versioned | None, expected: str | None) -> None:
    """Check that a contract has the entity tag ``expected``; None: any or none, ``*``: any. Raises Conflict.

    ``known``: None if there is no contract.
    """
    if expected == ABSENT:
        if known is not None:
            raise Conflict(
                "If-None-Match", "*", f"there is a contract of these subjects, {known.etag}: change that one"
            )
        return
    if expected is None or (expected == "*" and known is not None):
        return
    if known is None or known.etag != expected:
        there = "there is none" if known is None else f"it is {known.etag} now"
        raise Conflict("If-Match", expected, f"must be the contract's entity tag: {there}; read it again")

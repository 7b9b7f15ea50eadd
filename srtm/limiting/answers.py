"""What a program asks and is answered, whether this process (``local``) or a limit service (``remote``) decides."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from inspect import isawaitable
from typing import NamedTuple, Protocol, TypeVar

from srtm.contracts.policy import Concurrency
from srtm.contracts.verdict import Verdict
from srtm.limiting.headers import FAMILIES, Family, headers
from srtm.limiting.problem import quota_exceeded

_T = TypeVar("_T")
Fields = Sequence[tuple[str, str]]  # names and values of headers


class Answer(NamedTuple):
    """The answer to one check.

    ``wait_s``: refused: when to come again (None: never); allowed: how long to wait first (``pace``), s.
    ``grant``: for ``correct`` and ``release``. ``is_open``: it must be released when the request is over.
    """

    allowed: bool
    wait_s: float | None = 0.0
    headers: Fields = ()
    problem: bytes = b""  # problem+json of a refusal
    grant: str | bytes | None = None
    is_open: bool = False
    degraded: bool = False  # the limit service could not be asked: everything passes


def answer_of(verdict: Verdict, families: Collection[Family] = FAMILIES) -> Answer:
    """Return the answer that a verdict gives."""
    return Answer(
        verdict.allowed,
        None if verdict.wait_ns is None else verdict.wait_ns / 1e9,
        headers(verdict, families),
        b"" if verdict.allowed else quota_exceeded(verdict),
        verdict.grant,
        verdict.grant is not None and any(isinstance(policy, Concurrency) for policy in verdict.contract.policies),
    )


class Limits(Protocol):
    """What the middleware for event loops takes."""

    def check(self, namespace: str, subject: str, cost: int = 1) -> Answer | Awaitable[Answer]:
        """Take ``cost`` from all policies, or from none. Raises BadInput, NotFound (no contract), Unavailable."""

    def correct(self, grant: str | bytes, cost: int) -> Awaitable[None] | None:
        """Replace the cost of a check by what it came to: once, within 60 s. Raises BadInput."""

    def release(self, grant: str | bytes) -> Awaitable[None] | None:
        """End an open request: once. Raises BadInput."""


class BlockingLimits(Protocol):
    """What the middleware for threads takes. The methods are those of ``Limits``."""

    def check(self, namespace: str, subject: str, cost: int = 1) -> Answer: ...

    def correct(self, grant: str | bytes, cost: int) -> None: ...

    def release(self, grant: str | bytes) -> None: ...


async def awaited(found: _T | Awaitable[_T]) -> _T:
    """Return what a method of ``Limits`` found, now or later."""
    return await found if isawaitable(found) else found

"""Limits that a limit service (``srtm limit serve``) decides: for event loops, and for threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from srtm.client.limit_service import BlockingLimitClient, LimitClient
from srtm.concurrency.outage import Outage
from srtm.errors import NotFound, SrtmError, Unavailable
from srtm.limiting.answers import Answer
from srtm.limiting.breaker import CircuitBreaker
from srtm.limiting.headers import FAMILIES, Family
from srtm.limiting.limiter import checked_cost, checked_subject
from srtm.limiting.problem import quota_problem
from srtm.log import Log

TIMEOUT_S = 0.2  # a request waits so long for the limit service, three times in a row
Json = dict[str, Any]
_Client = TypeVar("_Client", LimitClient, BlockingLimitClient)


class _Asking(Generic[_Client]):
    """What both kinds of remote limits share: the client, the circuit breaker, and what an outage means.

    ``fail_open``: while the service cannot be asked everything passes, and the answer is ``degraded``; else checks
    raise Unavailable.
    """

    _kind: ClassVar[Callable[..., Any]]  # of the client

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = TIMEOUT_S,
        fail_open: bool = True,
        families: Collection[Family] = FAMILIES,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._make = partial(self._kind, url, token=token, ca_file=ca_file, timeout_s=timeout_s)
        self._client: _Client | None = self._make()  # a bad URL is told now
        self._families = families
        self._fail_open = fail_open
        self._clock_ns = clock_ns
        self._breaker = CircuitBreaker()
        self._outage = Outage()
        self._log = Log("limits")

    def _opened(self) -> _Client:
        client: _Client = self._client or self._make()
        self._client = client
        return client

    def _before(self, subject: str, cost: int) -> Answer | None:
        """The answer, if nobody is to be asked. Raises BadInput, Unavailable."""
        checked_subject(subject)
        checked_cost(cost)
        if self._breaker.admits(self._clock_ns()):
            return None
        return self._without("it did not answer before")

    def _said(self, namespace: str, said: Json) -> Answer:
        self._breaker.note(True, self._clock_ns())
        if self._outage.ends():
            self._log.info("limit_service_is_back")
        wait_s, allowed = said["wait_s"], said["allowed"]
        wait_ns = None if wait_s is None else round(wait_s * 1e9)
        kinds = {policy["kind"] for subject in said["subjects"] for policy in subject["policies"]}
        return Answer(
            allowed,
            wait_s,
            [(name, value) for family in self._families for name, value in said["headers"].get(family, {}).items()],
            b"" if allowed else quota_problem(namespace, said["violated"], wait_ns),
            said["grant"],
            said["grant"] is not None and "concurrency" in kinds,
        )

    def _failed(self, error: SrtmError) -> Answer:
        self._breaker.note(False, self._clock_ns())
        if self._outage.is_news(str(error)):
            self._log.warning("limit_service_does_not_answer", why=error, then="pass" if self._fail_open else "refuse")
        return self._without(str(error))

    def _without(self, why: str) -> Answer:
        if self._fail_open:
            return Answer(True, degraded=True)
        raise Unavailable(f"the limit service cannot be asked: {why}", 1.0)


class RemoteLimits(_Asking[LimitClient]):
    """Asks a limit service (``srtm limit serve``) from one event loop, of asyncio or trio.

    ``url``, ``token`` and ``ca_file`` default to $SRTM_LIMIT, $SRTM_TOKEN and $SRTM_CA_FILE. After three misses of
    ``timeout_s`` in a row no request waits, but for one a second. It connects when it is first asked; ``aclose`` ends
    that, and a later check connects again.
    """

    _kind = LimitClient

    async def check(self, namespace: str, subject: str, cost: int = 1) -> Answer:
        """As ``Limits.check``."""
        known = self._before(subject, cost)
        if known is not None:
            return known
        try:
            said = await self._opened().check(namespace, [subject], cost, headers=True)
        except NotFound:
            raise
        except SrtmError as error:
            return self._failed(error)
        return self._said(namespace, said)

    async def correct(self, grant: str | bytes, cost: int) -> None:
        """As ``Limits.correct``. Raises Unavailable too."""
        await self._opened().correct(cast(str, grant), cost)

    async def release(self, grant: str | bytes) -> None:
        """As ``Limits.release``. Raises Unavailable too: then it ends when it expires."""
        await self._opened().release(cast(str, grant))

    async def aclose(self) -> None:
        """Close its connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class BlockingRemoteLimits(_Asking[BlockingLimitClient]):
    """``RemoteLimits`` for threads, any number of them."""

    _kind = BlockingLimitClient

    def check(self, namespace: str, subject: str, cost: int = 1) -> Answer:
        """As ``Limits.check``."""
        known = self._before(subject, cost)
        if known is not None:
            return known
        try:
            said = self._opened().check(namespace, [subject], cost, headers=True)
        except NotFound:
            raise
        except SrtmError as error:
            return self._failed(error)
        return self._said(namespace, said)

    def correct(self, grant: str | bytes, cost: int) -> None:
        """As ``Limits.correct``. Raises Unavailable too."""
        self._opened().correct(cast(str, grant), cost)

    def release(self, grant: str | bytes) -> None:
        """As ``Limits.release``. Raises Unavailable too: then it ends when it expires."""
        self._opened().release(cast(str, grant))

    def close(self) -> None:
        """Close its connections."""
        self._opened().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

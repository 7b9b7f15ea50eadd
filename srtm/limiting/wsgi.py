"""Middleware for WSGI applications (Flask, Django, Bottle), which run in threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from types import TracebackType
from typing import Any

from srtm.errors import BadInput, SrtmError, Unavailable
from srtm.limiting.answers import Answer, BlockingLimits, Fields
from srtm.limiting.headers import Headers
from srtm.limiting.problem import MEDIA_TYPE, error_problem
from srtm.log import Log

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

ANSWER = "srtm.limit"  # of an environ: its Answer, for ``correct``
_Failure = tuple[type[BaseException], BaseException, TracebackType]


def client_address(environ: Environ) -> str:
    """The subject ``ip:ADDRESS`` of the connection's other end. Behind a proxy that is the proxy."""
    return f"ip:{environ.get('REMOTE_ADDR') or 'unknown'}"


class LimitMiddleware:
    """Checks each request: 429 for one that is refused, headers for one that is not.

    Parameters and refusals are those of ``srtm.limiting.asgi.LimitMiddleware``.
    """

    def __init__(
        self,
        app: App,
        limits: BlockingLimits,
        namespace: str,
        *,
        subject: Callable[[Environ], str | None] = client_address,
        cost: int | Callable[[Environ], int] = 1,
    ) -> None:
        self._app = app
        self._limits = limits
        self._namespace = namespace
        self._subject = subject
        self._cost = cost

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        subject = self._subject(environ)
        if subject is None:
            return self._app(environ, start_response)
        cost = self._cost if isinstance(self._cost, int) else self._cost(environ)
        try:
            answer = self._limits.check(self._namespace, subject, cost)
        except (BadInput, Unavailable) as error:
            later: Fields = [("Retry-After", "1")] if isinstance(error, Unavailable) else []
            return _refused(start_response, error.http_status, later, error_problem(error))
        if not answer.allowed:
            return _refused(start_response, 429, answer.headers, answer.problem)
        environ[ANSWER] = answer

        def starting(status: str, headers: Headers, failure: _Failure | None = None) -> Callable[[bytes], object]:
            more = [*headers, *answer.headers]
            return start_response(status, more) if failure is None else start_response(status, more, failure)

        if answer.wait_s:
            time.sleep(answer.wait_s)
        if not answer.is_open:
            return self._app(environ, starting)
        try:
            return _Open(self._app(environ, starting), lambda: self._release(answer))
        except BaseException:
            self._release(answer)
            raise

    def _release(self, answer: Answer) -> None:
        try:
            self._limits.release(answer.grant or b"")
        except SrtmError as error:
            Log("limits").warning("not_released", why=error)


class _Open:
    """A response that releases its request when the server closes it, as PEP 3333 has every server do."""

    def __init__(self, parts: Iterable[bytes], release: Callable[[], None]) -> None:
        self._parts = parts
        self._release = release

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts)

    def close(self) -> None:
        try:
            close = getattr(self._parts, "close", None)
            if close is not None:
                close()
        finally:
            self._release()


def _refused(start_response: StartResponse, status: int, headers: Fields, body: bytes) -> list[bytes]:
    named = [("Content-Type", MEDIA_TYPE), ("Content-Length", str(len(body))), *headers]
    start_response(f"{status} {HTTPStatus(status).phrase}", named)
    return [body]

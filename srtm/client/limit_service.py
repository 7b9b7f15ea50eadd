"""HTTP clients of the limit service, for event loops and for threads. Refusals raise the same exceptions as there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec

from srtm.client.distributor import Json, checked_url, http_client, http_options, path_part, unreachable
from srtm.errors import PeerError, Unavailable
from srtm.net.problem_json import refusal

DEFAULT_URL = "http://127.0.0.1:4196"
URL_VARIABLE = "SRTM_LIMIT"
_T = TypeVar("_T")


class LimitClient:
    """Calls the limit service's HTTP routes. Use it as an async context manager.

    ``url``, ``token`` and ``ca_file`` default to $SRTM_LIMIT, $SRTM_TOKEN and $SRTM_CA_FILE. Every call raises
    Unavailable (no answer within ``timeout_s``), BadInput (the token does not allow the call), PeerError (the answer
    cannot be read).
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = 10.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = _url(url)
        self._http = http_client([self.url], token=token, ca_file=ca_file, timeout_s=timeout_s, transport=transport)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    async def aclose(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def check(
        self, namespace: str, subjects: Sequence[str], cost: int = 1, *, peek: bool = False, headers: bool = False
    ) -> Json:
        """Ask for ``cost`` tokens of all subjects, or of none. Raises BadInput, NotFound.

        ``headers``: the answer has those for the client of the one who asks.
        """
        body = {"namespace": namespace, "subjects": list(subjects), "cost": cost, "peek": peek}
        return await self._call("POST", _check(headers), Json, body)

    async def correct(self, grant: str, cost: int) -> None:
        """Replace the cost of a check by what it came to. Raises BadInput."""
        await self._call("POST", "/limit/v1/correct", Any, {"grant": grant, "cost": cost})

    async def release(self, grant: str) -> None:
        """End an open request. Raises BadInput."""
        await self._call("POST", "/limit/v1/release", Any, {"grant": grant})

    async def contracts(self) -> list[Json]:
        """Return all contracts, with what was asked of their policies."""
        return await self._call("GET", "/limit/v1/contracts", list[Json])

    async def contract(self, namespace: str, pattern: str) -> Json:
        """Return the contract of a pattern. Raises NotFound."""
        return await self._call("GET", _contract(namespace, pattern), Json)

    async def submit(self, contracts: Sequence[Json]) -> list[Json]:
        """Put contracts in force, all or none. Raises BadInput."""
        return await self._call("POST", "/limit/v1/contracts", list[Json], {"contracts": list(contracts)})

    async def put(self, document: Json, *, version: int | None = None) -> Json:
        """Put a contract in force. ``version``: that which it must have now. Raises BadInput, Conflict."""
        path = _contract(str(document["namespace"]), str(document["subject"]))
        headers = {} if version is None else {"If-Match": f'"{version}"'}
        return await self._call("PUT", path, Json, document, headers)

    async def remove(self, namespace: str, pattern: str) -> None:
        """Remove a contract and its subjects. Raises NotFound."""
        await self._call("DELETE", _contract(namespace, pattern), Any)

    async def heaviest(self, namespace: str, most: int = 20) -> Json:
        """Return the most checked subjects of a namespace."""
        return await self._call("GET", f"/limit/v1/subjects/{path_part(namespace)}?most={most}", Json)

    async def subject(self, namespace: str, subject: str) -> Json:
        """Return what a subject has left. Raises NotFound."""
        return await self._call("GET", _subject(namespace, subject), Json)

    async def ban(self, namespace: str, subject: str) -> Json:
        """Ban a subject, and return what it has left. Raises NotFound."""
        return await self._call("PUT", _subject(namespace, subject), Json)

    async def reset(self, namespace: str, subject: str) -> None:
        """Make a subject a new one."""
        await self._call("DELETE", _subject(namespace, subject), Any)

    async def watch(self, namespace: str, subject: str, *, stop: bool = False) -> None:
        """Watch a subject, or do not any more. Raises NotFound."""
        await self._call("DELETE" if stop else "PUT", _subject(namespace, subject, "watched"), Any)

    async def audit(self, *, most: int = 100, subject: str | None = None) -> list[Json]:
        """Return who changed what, newest first; of one ``subject``, such as ``contract api *``, if it is named."""
        of_subject = "" if subject is None else f"&subject={path_part(subject)}"
        return await self._call("GET", f"/limit/v1/audit?most={most}{of_subject}", list[Json])

    async def usage(self) -> list[Json]:
        """Return what was allowed and refused, by namespace."""
        return await self._call("GET", "/limit/v1/usage", list[Json])

    async def _call(
        self, method: str, path: str, kind: type[_T], body: object = None, headers: Mapping[str, str] | None = None
    ) -> _T:
        content = None if body is None else msgspec.json.encode(body)
        try:
            answer = await self._http.request(method, self.url + path, content=content, headers=headers)
        except httpx.TransportError as error:
            raise Unavailable(_unanswered(self.url, error)) from error
        return _read(answer, kind)


class BlockingLimitClient:
    """What a program asks of the limit service, for threads: any number may share one. Errors as ``LimitClient``."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = 10.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = _url(url)
        options = http_options([self.url], token=token, ca_file=ca_file, timeout_s=timeout_s)
        self._http = httpx.Client(**options, transport=transport)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def check(self, namespace: str, subjects: Sequence[str], cost: int = 1, *, headers: bool = False) -> Json:
        """As ``LimitClient.check``."""
        return self._call(_check(headers), Json, {"namespace": namespace, "subjects": list(subjects), "cost": cost})

    def correct(self, grant: str, cost: int) -> None:
        """As ``LimitClient.correct``."""
        self._call("/limit/v1/correct", Any, {"grant": grant, "cost": cost})

    def release(self, grant: str) -> None:
        """As ``LimitClient.release``."""
        self._call("/limit/v1/release", Any, {"grant": grant})

    def _call(self, path: str, kind: type[_T], body: object) -> _T:
        try:
            answer = self._http.post(self.url + path, content=msgspec.json.encode(body))
        except httpx.TransportError as error:
            raise Unavailable(_unanswered(self.url, error)) from error
        return _read(answer, kind)


def _read(answer: httpx.Response, kind: type[_T]) -> _T:
    if not answer.is_success:
        raise refusal(str(answer.url), answer.status_code, answer.content)
    try:
        return msgspec.json.decode(answer.content or b"null", type=kind)
    except msgspec.DecodeError as error:
        raise PeerError(f"the answer of {answer.url} cannot be read: {error}") from error


def _unanswered(url: str, error: httpx.TransportError) -> str:
    """Explain why nothing answers. Who asked at the default may not know that it is one."""
    start = f"; `srtm limit serve` starts one, ${URL_VARIABLE} names one elsewhere" if url == DEFAULT_URL else ""
    return unreachable(url, error) + start


def _url(given: str | None) -> str:
    return checked_url("url", given or os.environ.get(URL_VARIABLE, "") or DEFAULT_URL, DEFAULT_URL)


def _check(headers: bool) -> str:
    return "/limit/v1/check" + ("?headers=true" if headers else "")


def _contract(namespace: str, pattern: str) -> str:
    return f"/limit/v1/contracts/{path_part(namespace)}/{path_part(pattern)}"


def _subject(namespace: str, subject: str, collection: str = "subjects") -> str:
    return f"/limit/v1/{collection}/{path_part(namespace)}/{path_part(subject)}"

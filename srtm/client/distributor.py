"""HTTP client of the distributor. A refusal raises the same exception here as at the distributor.

Several URLs name a leader and its standbys. The one that answered last is asked first, then the others. If a standby
answers, the client asks the leader that the standby names, even if its URL is not listed. During a takeover a call
waits for the next leader.
"""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import anyio
import httpx
import msgspec

from srtm.client.task_groups import background_tasks
from srtm.concurrency.backoff import Backoff
from srtm.control import Assignment, DeadNotice, Lookup
from srtm.errors import BadInput, NotLeader, PeerError, SrtmError, Unavailable
from srtm.net.decode_errors import UNREADABLE
from srtm.net.problem_json import refusal
from srtm.net.tls_trust import CA_VARIABLE, no_answer, trouble, trusting
from srtm.net.tls_trust import ca_file as trusted_file
from srtm.net.tokens import OwnToken, checked_token, shown

DEFAULT_URL = "http://127.0.0.1:4190"
TOKEN_VARIABLE = "SRTM_TOKEN"
URL_VARIABLE = "SRTM_DISTRIBUTOR"

_FIRST_PAUSE_S = 0.1  # between attempts while there is no leader; a takeover takes a few seconds
_LONGEST_PAUSE_S = 0.5
_SILENCE_S = 2.0  # after it, other distributors are asked whether one of them leads
_HEALTH_TIMEOUT_S = 1.0
_T = TypeVar("_T")
_Request = Callable[[str], Awaitable[httpx.Response]]  # sends one request to a URL
Json = dict[str, Any]  # a document that is shown to people unchanged (TopicView, decisions, ...)


class _Health(msgspec.Struct):
    """The part of an answer of ``/healthz`` that is needed here."""

    role: str = ""
    instance: str = ""  # identifies a distributor, whichever of its addresses is asked


def distributor_urls(given: str | Sequence[str] | None) -> list[str]:
    """Return the URLs ``given``, else those of $SRTM_DISTRIBUTOR (separated by commas), else the default.

    Raises BadInput.
    """
    if given is None or not given:
        given = os.environ.get(URL_VARIABLE, "") or DEFAULT_URL
    urls = given.split(",") if isinstance(given, str) else list(given)
    return [checked_url("distributor", url.strip(), DEFAULT_URL) for url in urls]


def checked_url(field: str, url: str, example: str) -> str:
    """Return a service's URL without a slash at its end. Raises BadInput, which names ``field`` and an example."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(httpx.URL(url).host) and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        valid = False
    if not valid:
        raise BadInput(field, url, f"must be a URL like {example}")
    return url.rstrip("/")


def http_client(
    urls: Sequence[str],
    *,
    token: OwnToken | None,
    ca_file: str | None,
    timeout_s: float,
    transport: httpx.AsyncBaseTransport | None,
) -> httpx.AsyncClient:
    """Return a client for services at ``urls``; the rest is as ``http_options`` has it."""
    return httpx.AsyncClient(
        **http_options(urls, token=token, ca_file=ca_file, timeout_s=timeout_s), transport=transport
    )


def http_options(
    urls: Sequence[str], *, token: OwnToken | None, ca_file: str | None, timeout_s: float
) -> dict[str, Any]:
    """Return the options of a client of httpx. Without ``token`` and ``ca_file``: $SRTM_TOKEN and $SRTM_CA_FILE.

    Raises BadInput.
    """
    token = token or os.environ.get(TOKEN_VARIABLE) or None
    secure = any(url.startswith("https:") for url in urls)
    return {
        "auth": _bearer(token) if token else None,
        "timeout": timeout_s,
        "trust_env": False,  # the control plane is never behind a web proxy
        "verify": trusting(trusted_file(ca_file)) if secure else False,
    }


def _bearer(token: OwnToken) -> Callable[[httpx.Request], httpx.Request]:
    checked_token("token", shown(token))

    def add(request: httpx.Request) -> httpx.Request:
        request.headers["Authorization"] = f"Bearer {shown(token)}"
        return request

    return add


class DistributorClient:
    """Calls the distributor's HTTP routes. Use it as an async context manager.

    ``token`` and ``ca_file`` default to $SRTM_TOKEN and $SRTM_CA_FILE. Every call raises Unavailable (no distributor
    answers within ``timeout_s``), NotLeader (no distributor leads within that time), BadInput (the token does not
    allow the call), PeerError (the answer cannot be read).
    """

    def __init__(
        self,
        urls: str | Sequence[str] | None = None,
        *,
        token: OwnToken | None = None,
        ca_file: str | None = None,
        timeout_s: float = 10.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.urls = distributor_urls(urls)
        self._timeout_s = timeout_s
        self._http = http_client(self.urls, token=token, ca_file=ca_file, timeout_s=timeout_s, transport=transport)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    async def create_or_change_topic(
        self,
        name: str,
        document: Mapping[str, object],
        *,
        fitting: str | None = None,
        rounds_s: float | None = None,
        confidence: float | None = None,
    ) -> Json:
        """Submit a topic and return its ``TopicView`` after the change.

        ``fitting`` overrides the distributor's method of fitting. ``rounds_s``: length of a round of "paper", s.
        ``confidence``: per cent of the minutes that are to keep the promise; a prediction is returned then, which takes
        seconds. Raises BadInput, Conflict.
        """
        query = {} if fitting is None else {"fitting": fitting}
        query |= _numbers(rounds_s=rounds_s, confidence=confidence)
        return await self._call("PUT", f"/v1/topics/{path_part(name)}", Json, body=document, query=query)

    async def fitting(self, name: str) -> Json:
        """Return the state of a topic's fitting. Raises NotFound."""
        return await self._call("GET", f"/v1/topics/{path_part(name)}/fitting", Json)

    async def plan(self, document: Mapping[str, object], *, confidence: float | None = None) -> Json:
        """Return what a submission of ``document`` would do now. Nothing is stored; it takes seconds. Raises BadInput.

        ``confidence``: per cent of the minutes that are to keep the promise; None: the distributor's default.
        """
        query = _numbers(confidence=confidence)
        return await self._call("POST", "/v1/plan", Json, body=document, query=query, repeatable=True)

    async def topics(self) -> list[Json]:
        """Return the ``TopicView`` of every topic."""
        return await self._call("GET", "/v1/topics", list[Json])

    async def topic(self, name: str) -> Json:
        """Return the ``TopicView`` of a topic. Raises NotFound."""
        return await self._call("GET", f"/v1/topics/{path_part(name)}", Json)

    async def document(self, name: str) -> Json:
        """Return the document of a topic, as ``create_or_change_topic`` takes it. Raises NotFound."""
        return await self._call("GET", f"/v1/topics/{path_part(name)}/document", Json)

    async def why(self, name: str) -> Json:
        """Return why a topic is late: ``cause, sentence, remedy, broker, figures, also``. Raises NotFound."""
        return await self._call("GET", f"/v1/topics/{path_part(name)}/why", Json)

    async def set_options(self, name: str, options: Mapping[str, object]) -> Json:
        """Change mode, split or adaptation of a topic and return its new ``TopicView``. Raises NotFound, BadInput."""
        return await self._call("PATCH", f"/v1/topics/{path_part(name)}", Json, body=options)

    async def remove_topic(self, name: str, *, purge: bool = False) -> None:
        """Remove a topic. ``purge``: also delete its queued messages. Raises NotFound."""
        await self._call("DELETE", f"/v1/topics/{path_part(name)}", Any, query={"purge": str(purge).lower()})

    async def change_publishers(self, name: str, *, add: Sequence[Json] = (), remove: Sequence[str] = ()) -> Json:
        """Add and remove publishers of a topic. Raises NotFound, BadInput, Conflict."""
        change = {"add": list(add), "remove": list(remove)}
        return await self._call("PATCH", f"/v1/topics/{path_part(name)}/publishers", Json, body=change)

    async def publishers(self, name: str, broker: str | None = None) -> Json:
        """Return all assignments, in columns ``ids, brokers, groups, rates, processes, batches, contracts``.

        Raises NotFound.
        """
        query = {} if broker is None else {"broker": broker}
        return await self._call("GET", f"/v1/topics/{path_part(name)}/publishers", Json, query=query)

    async def decisions(self, name: str) -> list[Json]:
        """Return the decisions about a topic: ``number, at, lines``, newest first. Raises NotFound."""
        return await self._call("GET", f"/v1/topics/{path_part(name)}/decisions", list[Json])

    async def audit(self, *, limit: int = 100, topic: str | None = None, broker: str | None = None) -> list[Json]:
        """Return the latest changes, newest first: ``number, at, who, what, source, subject, before, after``.

        Raises BadInput.
        """
        query = {"limit": str(limit)} | ({} if topic is None else {"topic": topic})
        query |= {} if broker is None else {"broker": broker}
        return await self._call("GET", "/v1/audit", list[Json], query=query)

    async def overview(self, kind: str, limit: int) -> Json:
        """Return the first ``limit`` (500 at most) of all ``topics`` or ``brokers``, those in trouble first, in brief.

        ``total, all, counts, rows``; at most 5 s old. Raises BadInput.
        """
        return await self._call("GET", f"/v1/overview/{path_part(kind)}", Json, query={"limit": str(limit)})

    async def assignment(self, topic: str, publisher_id: str) -> Assignment:
        """Return the broker of a publisher. Raises NotFound (no such topic), Unavailable (no broker)."""
        return await self._call(
            "GET", f"/v1/topics/{path_part(topic)}/publishers/{path_part(publisher_id, 'publisher_id')}", Assignment
        )

    async def brokers(self) -> list[Json]:
        """Return all brokers."""
        return await self._call("GET", "/v1/brokers", list[Json])

    async def broker(self, name: str) -> Json:
        """Return one broker. Raises NotFound."""
        return await self._call("GET", f"/v1/brokers/{path_part(name)}", Json)

    async def capacity(self, name: str) -> Json:
        """Return a broker's known capacities and the rate that is left. Raises NotFound."""
        return await self._call("GET", f"/v1/brokers/{path_part(name)}/capacity", Json)

    async def note_capacity(self, name: str, document: Mapping[str, object]) -> Json:
        """Store a capacity. It replaces the one for the same promise and traffic class. Raises NotFound, BadInput."""
        return await self._call("PUT", f"/v1/brokers/{path_part(name)}/capacity", Json, body=document)

    async def drain_broker(self, name: str, *, force: bool = False) -> Json:
        """Drain a broker. ``force``: even if the others cannot carry its load.

        Raises NotFound, Conflict (the others cannot carry its load; nothing was changed).
        """
        query = {"force": str(force).lower()}
        return await self._call("POST", f"/v1/brokers/{path_part(name)}/drain", Json, query=query, repeatable=True)

    async def undrain_broker(self, name: str) -> Json:
        """Take back the drain of a broker that has ended. Raises NotFound, Conflict (it still drains)."""
        return await self._call("POST", f"/v1/brokers/{path_part(name)}/undrain", Json, repeatable=True)

    async def forget_broker(self, name: str) -> None:
        """Forget a broker that is dead or empty. Raises NotFound, Conflict (it has publishers or tokens)."""
        await self._call("DELETE", f"/v1/brokers/{path_part(name)}", Any)

    async def broker_is_dead(self, name: str, notice: DeadNotice) -> None:
        """Report that one incarnation of a broker ended. Raises NotFound, Conflict (another incarnation lives)."""
        await self._call("POST", f"/v1/brokers/{path_part(name)}/dead", Any, body=notice, repeatable=True)

    async def contracts(self) -> list[Json]:
        """Return all contracts of brokers, with what was asked of their policies at all brokers together."""
        return await self._call("GET", "/v1/contracts", list[Json])

    async def contract(self, namespace: str, pattern: str) -> Json:
        """Return the contract of a pattern. Raises NotFound."""
        return await self._call("GET", _contract(namespace, pattern), Json)

    async def submit(self, contracts: Sequence[Json]) -> list[Json]:
        """Put contracts in force, all or none. Raises BadInput."""
        body = {"contracts": list(contracts)}
        return await self._call("POST", "/v1/contracts", list[Json], body=body, repeatable=True)

    async def put(self, document: Json, *, version: int | None = None) -> Json:
        """Put a contract in force. ``version``: that which it must have now. Raises BadInput, Conflict."""
        path = _contract(str(document["namespace"]), str(document["subject"]))
        return await self._call("PUT", path, Json, body=document, if_match=version)

    async def remove(self, namespace: str, pattern: str) -> None:
        """Remove a contract. Raises NotFound, Conflict (a topic names it)."""
        await self._call("DELETE", _contract(namespace, pattern), Any)

    async def tell_limit_node(self, cluster: str, name: str, address: str, page: str | None = None) -> dict[str, str]:
        """Tell where a node of a limit service listens, and the URL of its page; return the addresses of all by name.
        Raises BadInput."""
        path = f"/v1/limit-nodes/{path_part(cluster)}/{path_part(name)}"
        query = {"address": address} if page is None else {"address": address, "page": page}
        return await self._call("PUT", path, dict[str, str], query=query)

    async def lookup(self, topic: str) -> Lookup:
        """Ask every URL for the brokers of a topic, as nsqlookupd's clients do, and merge the answers.

        An unknown topic has no producers. Raises Unavailable if no URL answers.
        """
        return await lookup(self._http, self.urls, topic)

    async def _call(
        self,
        method: str,
        path: str,
        kind: type[_T],
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
        repeatable: bool = False,
        if_match: int | None = None,
    ) -> _T:
        """Call the leader. ``repeatable``: twice has the effect of once, as for every GET, and PUT without
        ``if_match``."""
        content = None if body is None else _encoded(body)
        headers = {} if content is None else {"Content-Type": "application/json"}
        headers |= {} if if_match is None else {"If-Match": f'"{if_match}"'}
        request = partial(self._request, method, path, content, dict(query or {}), headers)
        is_repeatable = repeatable or method == "GET" or (method == "PUT" and if_match is None)
        answer = await self._leaders_answer(request, is_repeatable)
        if not answer.is_success:
            raise _refusal(answer)
        return _decoded(answer, kind)

    async def _leaders_answer(self, request: _Request, repeatable: bool) -> httpx.Response:
        """Return the leader's answer. While all are standbys, ask again until the timeout.

        ``repeatable``: a request that may have been carried out may be sent again.
        """
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        ends_s = anyio.current_time() + self._timeout_s
        while True:
            try:
                return await self._first_answer(request, repeatable)
            except NotLeader:
                pause_s = backoff.next_s()
                if anyio.current_time() + pause_s > ends_s:
                    raise
                await anyio.sleep(pause_s)

    async def _first_answer(self, request: _Request, repeatable: bool) -> httpx.Response:
        """Ask each URL once, and leaders that standbys name.

        Raises NotLeader (only standbys answer), Unavailable (no distributor answers).
        """
        troubles, standby, asked = [], None, set[str]()
        waiting = list(self.urls)
        while waiting:
            url = waiting.pop(0)
            asked.add(url)
            try:
                answer = await self._answer_or_another_leader(request, url)
            except httpx.TransportError as error:
                troubles.append(unreachable(url, error))
                if not repeatable and not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    rule = "it may have been done all the same; look before you ask again"
                    raise Unavailable(f"{troubles[-1]}: {rule}") from error
                continue
            refused = _refusal(answer) if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE else None
            if not isinstance(refused, NotLeader):
                self._ask_first(url)
                return answer
            standby = refused
            if refused.leader is not None and _may_follow(url, refused.leader) and refused.leader not in asked:
                waiting = [refused.leader, *(other for other in waiting if other != refused.leader)]
        raise standby or _unanswered(self.urls, troubles)

    async def _answer_or_another_leader(self, request: _Request, url: str) -> httpx.Response:
        """Send a request, and give up once another distributor leads. Raises TransportError.

        A leader may take long over a large topic, but a stopped leader never answers.
        """
        answer = None
        async with background_tasks() as tasks:
            tasks.start_soon(self._await_another_leader, url, tasks.cancel_scope.cancel)
            answer = await request(url)
        if answer is None:
            raise httpx.ReadTimeout("it does not answer, and another distributor leads")
        return answer

    async def _await_another_leader(self, url: str, found: Callable[[], None]) -> None:
        """Call ``found`` once another distributor than that of ``url`` leads. One may be listed under two URLs."""
        await anyio.sleep(_SILENCE_S)
        others = [other for other in self.urls if other != url]
        while others:
            for other in others:
                leader = await self._leader_at(other)
                if leader is not None and leader != await self._leader_at(url):
                    found()
                    return
            await anyio.sleep(_LONGEST_PAUSE_S)

    async def _leader_at(self, url: str) -> str | None:
        """Return the instance at ``url`` if it leads. None: it is a standby or does not answer."""
        try:
            answer = await self._http.get(url + "/healthz", timeout=_HEALTH_TIMEOUT_S)
            health = msgspec.json.decode(answer.content, type=_Health)
        except (httpx.TransportError, *UNREADABLE):
            return None
        return health.instance if health.role == "leader" else None

    async def _request(
        self,
        method: str,
        path: str,
        content: bytes | None,
        query: dict[str, str],
        headers: Mapping[str, str],
        url: str,
    ) -> httpx.Response:
        return await self._http.request(method, url + path, content=content, params=query, headers=headers)

    def _ask_first(self, url: str) -> None:
        """Move ``url`` to the front. A leader that only a standby named is not added."""
        if url in self.urls:
            self.urls.remove(url)
            self.urls.insert(0, url)


def _may_follow(standby: str, leader: str) -> bool:
    """Whether to ask ``leader``. A standby reached by TLS must name a leader with TLS: the token goes along."""
    try:
        return urlsplit(checked_url("distributor", leader, DEFAULT_URL)).scheme == urlsplit(standby).scheme
    except BadInput:
        return False


def _refusal(answer: httpx.Response) -> SrtmError:
    return refusal(str(answer.url), answer.status_code, answer.content, _retry_after_s(answer))


async def lookup(http: httpx.AsyncClient, urls: Sequence[str], topic: str) -> Lookup:
    """Look a topic up; see ``DistributorClient.lookup``."""
    found: list[Lookup] = []
    troubles = []
    for url in urls:
        try:
            answer = await http.get(url + "/lookup", params={"topic": topic})
        except httpx.TransportError as error:
            troubles.append(unreachable(url, error))
            continue
        if answer.is_success:
            found.append(_decoded(answer, Lookup))
        elif answer.status_code != httpx.codes.NOT_FOUND:
            troubles.append(f"{url}/lookup answered {answer.status_code}: {answer.text[:200]}")
    if len(troubles) == len(urls):
        raise _unanswered(urls, troubles)
    producers = {
        (producer.broadcast_address, producer.tcp_port): producer for answer in found for producer in answer.producers
    }
    channels = {channel for answer in found for channel in answer.channels}
    return Lookup(channels=sorted(channels), producers=list(producers.values()))


def _unanswered(urls: Sequence[str], troubles: list[str]) -> Unavailable:
    """The error where none of ``urls`` answers. Who asked at the default may not know that it is one."""
    start = f"; `srtm up` starts one, ${URL_VARIABLE} names one elsewhere" if list(urls) == [DEFAULT_URL] else ""
    return Unavailable("; ".join(troubles) + start)


def unreachable(url: str, error: httpx.TransportError) -> str:
    """Explain to people why ``url`` gave no answer, and what to do."""
    unanswered = isinstance(error, httpx.RemoteProtocolError)
    remedy = f": name its CA with --ca-file or ${CA_VARIABLE}"
    return f"{url} {no_answer(url) if unanswered else trouble(url, error, remedy)}"


def _retry_after_s(answer: httpx.Response) -> float | None:
    value = answer.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdigit() else None


def _decoded(answer: httpx.Response, kind: type[_T]) -> _T:
    if not answer.content:
        return msgspec.convert(None, kind)
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except msgspec.DecodeError as error:
        raise PeerError(f"the answer of {answer.url} cannot be read: {error}") from error


def path_part(name: str, field: str = "name") -> str:
    """Encode ``name`` as one segment of a path. Raises BadInput, which names ``field``, if that is impossible."""
    try:
        part = quote(name, safe="")
    except UnicodeEncodeError as error:  # a command-line argument that is not UTF-8
        raise BadInput(field, name, "must be UTF-8") from error
    if not part:
        raise BadInput(field, name, "must not be empty")
    return part.replace(".", "%2E") if part in (".", "..") else part  # unescaped, these would change the path


def _contract(namespace: str, pattern: str) -> str:
    return f"/v1/contracts/{path_part(namespace)}/{path_part(pattern)}"


def _encoded(body: object) -> bytes:
    """Encode ``body`` as JSON. Raises BadInput for a number that is not finite: JSON would send it as null."""
    _refuse_not_finite("", body)
    return msgspec.json.encode(body)


def _numbers(**values: float | None) -> dict[str, str]:
    """Return the query of those that are given. Raises BadInput."""
    for field, value in values.items():
        _refuse_not_finite(field, value)
    return {field: f"{value:g}" for field, value in values.items() if value is not None}


def _refuse_not_finite(field: str, value: object) -> None:
    match value:
        case float() if not math.isfinite(value):
            raise BadInput(field, value, "must be a finite number")
        case Mapping():
            for key, one in value.items():
                _refuse_not_finite(f"{field}.{key}" if field else str(key), one)
        case list() | tuple():
            for index, one in enumerate(value):
                _refuse_not_finite(f"{field}[{index}]", one)

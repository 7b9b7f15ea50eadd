"""The distributor's HTTP interface as typed calls. Every refusal comes back as the same exception that the distributor
raised.

Several URLs mean several distributors that stand by for each other: the one that answered last is asked first, the next
one when it cannot be reached. What only the leader does, it is asked for: also where a standby names one that is not
among the URLs. While a takeover is under way, the call waits for the next leader.
"""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec
import trio

from srtm.concurrency.background import background_nursery
from srtm.concurrency.backoff import Backoff
from srtm.control import Assignment, DeadNotice, Lookup
from srtm.errors import BadInput, NotLeader, PeerError, SrtmError, Unavailable
from srtm.net.decode_errors import UNREADABLE
from srtm.net.problem_json import refusal
from srtm.net.tls_trust import CA_VARIABLE, no_answer, trouble, trusting
from srtm.net.tls_trust import ca_file as trusted_file
from srtm.net.tokens import checked_token

DEFAULT_URL = "http://127.0.0.1:4190"
URL_VARIABLE = "SRTM_DISTRIBUTOR"
TOKEN_VARIABLE = "SRTM_TOKEN"

_FIRST_PAUSE_S = 0.1  # between questions while there is no leader; a takeover takes some seconds at most
_LONGEST_PAUSE_S = 0.5
_SILENCE_S = 2.0  # then it is asked elsewhere whether somebody else leads
_HEALTH_TIMEOUT_S = 1.0
_T = TypeVar("_T")
_Request = Callable[[str], Awaitable[httpx.Response]]  # of a URL
Json = dict[str, Any]  # documents that are shown to people as they come (TopicView, decisions, ...)


class _Health(msgspec.Struct):
    """Of an answer of ``/healthz``, what matters here."""

    role: str = ""
    instance: str = ""  # of one distributor, the same under all of its addresses


def distributor_urls(given: str | Sequence[str] | None) -> list[str]:
    """``given``, else what $SRTM_DISTRIBUTOR lists (separated by commas), else the default. Raises BadInput."""
    if given is None or not given:
        given = os.environ.get(URL_VARIABLE, "") or DEFAULT_URL
    urls = given.split(",") if isinstance(given, str) else list(given)
    return [_checked_url(url.strip()) for url in urls]


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(httpx.URL(url).host) and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        valid = False
    if not valid:
        raise BadInput("distributor", url, "must be a URL like http://127.0.0.1:4190")
    return url.rstrip("/")


class DistributorClient:
    """Use as an async context manager. ``token``, ``ca_file``: else $SRTM_TOKEN, $SRTM_CA_FILE.

    Every call raises Unavailable where no distributor answers within ``timeout_s`` (NotLeader: where none has come to
    lead within that time), BadInput where the token may not do this, and PeerError for an answer that makes no sense.
    """

    def __init__(
        self,
        urls: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = 10.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.urls = distributor_urls(urls)
        self._timeout_s = timeout_s
        token = token or os.environ.get(TOKEN_VARIABLE) or None
        secure = any(url.startswith("https:") for url in self.urls)
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {checked_token('token', token)}"} if token else {},
            timeout=timeout_s,
            trust_env=False,  # the control plane is never behind a web proxy
            verify=trusting(trusted_file(ca_file)) if secure else False,
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    async def create_or_change_topic(
        self, name: str, document: Mapping[str, object], *, fitting: str | None = None, rounds_s: float | None = None
    ) -> Json:
        """The topic's ``TopicView`` after the change. ``fitting``: how it is to be fitted, instead of the
        distributor's way; ``rounds_s``: length of a round of "paper". Raises BadInput, Conflict."""
        _refuse_unsayable("rounds_s", rounds_s)
        asked = {"fitting": fitting, "rounds_s": None if rounds_s is None else f"{rounds_s:g}"}
        query = {field: value for field, value in asked.items() if value is not None}
        return await self._call("PUT", f"/v1/topics/{_part(name)}", Json, body=document, query=query)

    async def fitting(self, name: str) -> Json:
        """How a topic is being fitted, or how that ended. Raises NotFound."""
        return await self._call("GET", f"/v1/topics/{_part(name)}/fitting", Json)

    async def plan(self, document: Mapping[str, object]) -> Json:
        """What a submission of ``document`` would do now; nothing is stored. Raises BadInput."""
        return await self._call("POST", "/v1/plan", Json, body=document, again=True)

    async def topics(self) -> list[Json]:
        return await self._call("GET", "/v1/topics", list[Json])

    async def topic(self, name: str) -> Json:
        """One ``TopicView``. Raises NotFound."""
        return await self._call("GET", f"/v1/topics/{_part(name)}", Json)

    async def set_options(self, name: str, options: Mapping[str, object]) -> Json:
        """Mode, split, adaptation: the topic's ``TopicView`` after the change. Raises NotFound, BadInput."""
        return await self._call("PATCH", f"/v1/topics/{_part(name)}", Json, body=options)

    async def remove_topic(self, name: str, *, purge: bool = False) -> None:
        """Raises NotFound."""
        await self._call("DELETE", f"/v1/topics/{_part(name)}", Any, query={"purge": str(purge).lower()})

    async def change_publishers(self, name: str, *, add: Sequence[Json] = (), remove: Sequence[str] = ()) -> Json:
        """Raises NotFound, BadInput, Conflict."""
        change = {"add": list(add), "remove": list(remove)}
        return await self._call("PATCH", f"/v1/topics/{_part(name)}/publishers", Json, body=change)

    async def publishers(self, name: str, broker: str | None = None) -> Json:
        """All assignments, in columns ``ids, brokers, groups, rates, processes, batches``. Raises NotFound."""
        query = {} if broker is None else {"broker": broker}
        return await self._call("GET", f"/v1/topics/{_part(name)}/publishers", Json, query=query)

    async def decisions(self, name: str) -> list[Json]:
        """Why the topic is as it is: ``number, at, lines``, newest first. Raises NotFound."""
        return await self._call("GET", f"/v1/topics/{_part(name)}/decisions", list[Json])

    async def assignment(self, topic: str, publisher_id: str) -> Assignment:
        """Where this publisher connects. Raises NotFound (topic), Unavailable (no broker)."""
        return await self._call("GET", f"/v1/topics/{_part(topic)}/publishers/{_part(publisher_id)}", Assignment)

    async def brokers(self) -> list[Json]:
        return await self._call("GET", "/v1/brokers", list[Json])

    async def broker(self, name: str) -> Json:
        """Raises NotFound."""
        return await self._call("GET", f"/v1/brokers/{_part(name)}", Json)

    async def capacity(self, name: str) -> Json:
        """What is known of a broker's capacity, and what is left of it. Raises NotFound."""
        return await self._call("GET", f"/v1/brokers/{_part(name)}/capacity", Json)

    async def note_capacity(self, name: str, document: Mapping[str, object]) -> Json:
        """Instead of what was known for that promise and class. Raises NotFound, BadInput."""
        return await self._call("PUT", f"/v1/brokers/{_part(name)}/capacity", Json, body=document)

    async def drain_broker(self, name: str, *, force: bool = False) -> Json:
        """Raises NotFound, Conflict (the others cannot carry its load: nothing has changed)."""
        query = {"force": str(force).lower()}
        return await self._call("POST", f"/v1/brokers/{_part(name)}/drain", Json, query=query, again=True)

    async def broker_is_dead(self, name: str, notice: DeadNotice) -> None:
        """Proof of death of one incarnation. Raises NotFound, Conflict (another incarnation lives)."""
        await self._call("POST", f"/v1/brokers/{_part(name)}/dead", Any, body=notice, again=True)

    async def lookup(self, topic: str) -> Lookup:
        """nsqlookupd's question, asked of **every** URL (a nsqlookupd knows only those who registered with it); the
        answers are merged.

        A topic that nobody knows has no producers. Raises Unavailable where none of them answers.
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
        again: bool = False,
    ) -> _T:
        """``again``: also after it was carried out once, as any GET and PUT may be."""
        content = None if body is None else _encoded(body)
        request = partial(self._request, method, path, content, dict(query or {}))
        twice_is_once = again or method in ("GET", "PUT")
        answer = await self._leaders_answer(request, twice_is_once)
        if not answer.is_success:
            raise _refusal(answer)
        return _decoded(answer, kind)

    async def _leaders_answer(self, request: _Request, twice_is_once: bool) -> httpx.Response:
        """Of the first that answers and does not stand by; asked again for a while where all do. ``twice_is_once``: a
        request that may have been carried out may be sent again."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        ends_s = trio.current_time() + self._timeout_s
        while True:
            try:
                return await self._first_answer(request, twice_is_once)
            except NotLeader:
                pause_s = backoff.next_s()
                if trio.current_time() + pause_s > ends_s:
                    raise
                await trio.sleep(pause_s)

    async def _first_answer(self, request: _Request, twice_is_once: bool) -> httpx.Response:
        """Raises NotLeader (there is a standby, and no leader was found), Unavailable (nobody answers)."""
        troubles, standby, asked = [], None, set[str]()
        waiting = list(self.urls)
        while waiting:
            url = waiting.pop(0)
            asked.add(url)
            try:
                answer = await self._answer_or_another_leader(request, url)
            except httpx.TransportError as error:
                troubles.append(unreachable(url, error))
                if not twice_is_once and not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
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
        raise standby or Unavailable("; ".join(troubles))

    async def _answer_or_another_leader(self, request: _Request, url: str) -> httpx.Response:
        """A leader may take long over a large topic; but one that was stopped never answers, and then another one
        leads. Raises TransportError."""
        answer = None
        async with background_nursery() as nursery:
            nursery.start_soon(self._await_another_leader, url, nursery.cancel_scope.cancel)
            answer = await request(url)
        if answer is None:
            raise httpx.ReadTimeout("it does not answer, and another distributor leads")
        return answer

    async def _await_another_leader(self, url: str, found: Callable[[], None]) -> None:
        """Another one than that of ``url``, which may be listed under a second address."""
        await trio.sleep(_SILENCE_S)
        others = [other for other in self.urls if other != url]
        while others:
            for other in others:
                leader = await self._leader_at(other)
                if leader is not None and leader != await self._leader_at(url):
                    found()
                    return
            await trio.sleep(_LONGEST_PAUSE_S)

    async def _leader_at(self, url: str) -> str | None:
        """Which instance leads there; None: nobody does, or answers."""
        try:
            answer = await self._http.get(url + "/healthz", timeout=_HEALTH_TIMEOUT_S)
            health = msgspec.json.decode(answer.content, type=_Health)
        except (httpx.TransportError, *UNREADABLE):
            return None
        return health.instance if health.role == "leader" else None

    async def _request(
        self, method: str, path: str, content: bytes | None, query: dict[str, str], url: str
    ) -> httpx.Response:
        headers = {} if content is None else {"Content-Type": "application/json"}
        return await self._http.request(method, url + path, content=content, params=query, headers=headers)

    def _ask_first(self, url: str) -> None:
        """Of those given; one that a standby has named is asked because of that alone."""
        if url in self.urls:
            self.urls.remove(url)
            self.urls.insert(0, url)


def _may_follow(standby: str, leader: str) -> bool:
    """The token goes along: never in clear to a leader of which we were told over TLS."""
    try:
        return urlsplit(_checked_url(leader)).scheme == urlsplit(standby).scheme
    except BadInput:
        return False


def _refusal(answer: httpx.Response) -> SrtmError:
    return refusal(str(answer.url), answer.status_code, answer.content, _retry_after_s(answer))


async def lookup(http: httpx.AsyncClient, urls: Sequence[str], topic: str) -> Lookup:
    """See ``DistributorClient.lookup``."""
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
        raise Unavailable("; ".join(troubles))
    producers = {(one.broadcast_address, one.tcp_port): one for each in found for one in each.producers}
    channels = {channel for each in found for channel in each.channels}
    return Lookup(channels=sorted(channels), producers=list(producers.values()))


def unreachable(url: str, error: httpx.TransportError) -> str:
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
        raise PeerError(f"{answer.url} answered what makes no sense here: {error}") from error


def _part(name: str) -> str:
    """``name`` as one segment of a path. Raises BadInput where it cannot be one."""
    try:
        part = quote(name, safe="")
    except UnicodeEncodeError as error:  # an argument of the command line that is no UTF-8
        raise BadInput("name", name, "must be UTF-8") from error
    if not part:
        raise BadInput("name", name, "must not be empty")
    return part.replace(".", "%2E") if part in (".", "..") else part  # or they would be steps along the path


def _encoded(body: object) -> bytes:
    """As JSON, which has no NaN: it would go as null, which may mean something else. Raises BadInput."""
    _refuse_unsayable("", body)
    return msgspec.json.encode(body)


def _refuse_unsayable(field: str, value: object) -> None:
    match value:
        case float() if not math.isfinite(value):
            raise BadInput(field, value, "must be a finite number")
        case Mapping():
            for key, one in value.items():
                _refuse_unsayable(f"{field}.{key}" if field else str(key), one)
        case list() | tuple():
            for at, one in enumerate(value):
                _refuse_unsayable(f"{field}[{at}]", one)

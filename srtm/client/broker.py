"""HTTP client of one broker, for commands that talk to that broker alone."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote

import msgspec

from srtm.control import ContractSubject, DrainProgress, MqttLosses, MqttRetained, MqttSession, MqttSessions
from srtm.errors import BadInput, PeerError
from srtm.net.address import parse_peer
from srtm.net.decode_errors import UNREADABLE
from srtm.net.http_client import HttpClient
from srtm.net.problem_json import refusal
from srtm.net.tls_trust import ca_file, trusting

_ANSWER_WITHIN_S = 10.0
_TRACE_WITHIN_S = 60.0  # a trace may have a million entries


_T = TypeVar("_T")


class BrokerClient:
    """Calls the HTTP routes of the broker at ``address``: HOST:PORT, ``http://HOST:PORT`` or ``https://HOST:PORT``.

    $SRTM_CA_FILE names the trusted certificates; else the system's are trusted. Raises BadInput for another address.
    Every call raises Unavailable (no answer), PeerError (an answer that cannot be read).
    """

    def __init__(self, address: str, token: str | None = None) -> None:
        self._http = _http(address, token)

    async def begin_drain(self) -> DrainProgress:
        """Start to drain the broker. Raises Conflict if it is a member of a cluster."""
        return await self._call("POST", "/v1/drain", DrainProgress)

    async def drain_progress(self) -> DrainProgress:
        """Return how far the drain is."""
        return await self._call("GET", "/v1/drain", DrainProgress)

    async def trace(self, topic: str) -> bytes:
        """Return the broker's trace of a topic, as JSON. Raises NotFound if it recorded nothing."""
        return await self._answer("GET", f"/v1/topics/{topic}/trace", _TRACE_WITHIN_S)

    async def contract_subjects(self, namespace: str) -> list[ContractSubject]:
        """Return the subjects of a namespace that were checked most there, heaviest first."""
        target = f"/v1/contracts/subjects?namespace={quote(namespace, safe='')}"
        return await self._call("GET", target, list[ContractSubject])

    async def mqtt_losses(self) -> dict[str, MqttLosses]:
        """Return {topic: what MQTT's clients of it lost there}, without topics that lost nothing. Raises NotFound if it
        is of an earlier version."""
        return await self._call("GET", "/v1/mqtt/losses", dict[str, MqttLosses])

    async def mqtt_sessions(self, most: int) -> MqttSessions:
        """Return the MQTT sessions, at most ``most``."""
        return await self._call("GET", f"/v1/mqtt/sessions?most={most}", MqttSessions)

    async def mqtt_session(self, client_id: str) -> MqttSession:
        """Return the MQTT session of a client. Raises NotFound."""
        return await self._call("GET", f"/v1/mqtt/session?client={quote(client_id, safe='')}", MqttSession)

    async def kick_mqtt(self, client_id: str) -> bool:
        """End the MQTT session of a client, and its connection; True. Raises NotFound."""
        target = f"/v1/mqtt/session?client={quote(client_id, safe='')}"
        await self._answer("DELETE", target, _ANSWER_WITHIN_S)
        return True

    async def mqtt_retained(self, pattern: str, *, clear: bool) -> list[MqttRetained]:
        """Return what is retained under names that ``pattern`` matches. ``clear``: it is removed. Raises BadInput."""
        target = f"/v1/mqtt/retained?filter={quote(pattern, safe='')}"
        return await self._call("DELETE" if clear else "GET", target, list[MqttRetained])

    async def is_refusing(self) -> bool:
        """Whether it says that it takes no messages now, or is ill otherwise (``/ping``)."""
        status, _ = await self._http.request("GET", "/ping", timeout_s=_ANSWER_WITHIN_S)
        return status != 200

    async def aclose(self) -> None:
        """Close the connection."""
        await self._http.aclose()

    async def _answer(self, method: str, target: str, within_s: float) -> bytes:
        status, body = await self._http.request(method, target, timeout_s=within_s)
        if not 200 <= status < 300:
            raise refusal(self._http.base_url + target, status, body)
        return body

    async def _call(self, method: str, target: str, kind: type[_T]) -> _T:
        body = await self._answer(method, target, _ANSWER_WITHIN_S)
        try:
            return msgspec.json.decode(body, type=kind)
        except UNREADABLE as error:
            url = self._http.base_url + target
            raise PeerError(f"the answer of {url} cannot be read: {error}") from None


def _http(address: str, token: str | None) -> HttpClient:
    scheme, colon, rest = address.partition("://")
    if not colon:
        scheme, rest = "http", address
    elif scheme not in ("http", "https"):
        raise BadInput("broker", address, "must be HOST:PORT, http://HOST:PORT or https://HOST:PORT")
    parse_peer("broker", rest.rstrip("/"))
    tls = trusting(ca_file()) if scheme == "https" else None
    return HttpClient(f"{scheme}://{rest}", token=token, tls=tls)

"""A broker's own HTTP routes as typed calls, for commands that speak to one broker alone."""

from __future__ import annotations

import msgspec

from srtm.control import DrainProgress
from srtm.errors import PeerError
from srtm.http_client import HttpClient
from srtm.refusals import refusal

_ANSWER_WITHIN_S = 10.0


class BrokerClient:
    """``address``: HOST:PORT of its HTTP. Every call raises Unavailable where it does not answer, PeerError for an
    answer that makes no sense."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self._http = HttpClient(f"http://{address}", token=token)

    async def begin_drain(self) -> DrainProgress:
        """Raises Conflict: it is a member of a cluster."""
        return await self._call("POST", "/v1/drain")

    async def drain_progress(self) -> DrainProgress:
        return await self._call("GET", "/v1/drain")

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _call(self, method: str, target: str) -> DrainProgress:
        url = self._http.base_url + target
        status, body = await self._http.request(method, target, timeout_s=_ANSWER_WITHIN_S)
        if not 200 <= status < 300:
            raise refusal(url, status, body)
        try:
            return msgspec.json.decode(body, type=DrainProgress)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise PeerError(f"{url} answered what makes no sense here: {error}") from None

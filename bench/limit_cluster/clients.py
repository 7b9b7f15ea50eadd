"""Clients of several nodes that hold one limit: one at each node, at a steady rate, and what it was told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx
import trio

from bench.limit_cluster.merged import Decision

REQUEST_S = 2.0  # a request without an answer by then was to a node that is gone


async def ask(url: str, node: str, rate: float, until: float, found: list[Decision], *, subject: str = "user") -> None:
    """Ask a limit service ``rate`` times a second until ``until`` (trio's clock), one after the other.

    Late requests are left out.
    """
    query = {"namespace": "api", "subject": subject}

    async def check(client: httpx.AsyncClient) -> bool | None:
        answer = await client.get(f"{url}/limit/v1/check", params=query)
        return bool(answer.json()["allowed"]) if answer.status_code == httpx.codes.OK else None

    await _steadily(check, node, rate, until, found)


async def publish(url: str, node: str, rate: float, until: float, found: list[Decision], *, topic: str) -> None:
    """The same of a publisher of one name, at a broker."""

    async def send(client: httpx.AsyncClient) -> bool | None:
        answer = await client.post(f"{url}/pub", params={"topic": topic, "publisher": "user"}, content=b"x")
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS and "X-SRTM-Contract" in answer.headers:
            return False
        return True if answer.status_code == httpx.codes.OK else None

    await _steadily(send, node, rate, until, found)


async def _steadily(
    decide: Callable[[httpx.AsyncClient], Awaitable[bool | None]],
    node: str,
    rate: float,
    until: float,
    found: list[Decision],
) -> None:
    """``decide``: None: it was not decided."""
    async with httpx.AsyncClient(trust_env=False, timeout=REQUEST_S) as client:
        due = trio.current_time()
        while due < until:
            await trio.sleep_until(due)
            sent = trio.current_time()
            try:
                allowed = await decide(client)
            except httpx.TransportError:
                await trio.sleep(0.1)
            else:
                if allowed is not None:
                    found.append(Decision(node, sent, trio.current_time(), allowed))
            due = max(due + 1 / rate, trio.current_time())

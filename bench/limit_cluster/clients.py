"""Clients of a limit service of several nodes: one at each node, at a steady rate, and what it was told."""

from __future__ import annotations

import httpx
import trio

from bench.limit_cluster.merged import Decision

REQUEST_S = 2.0  # a request without an answer by then was to a node that is gone


async def ask(url: str, node: str, rate: float, until: float, found: list[Decision], *, subject: str = "user") -> None:
    """Ask ``rate`` times a second until ``until`` (trio's clock), one after the other: late requests are left out."""
    query = {"namespace": "api", "subject": subject}
    async with httpx.AsyncClient(trust_env=False, timeout=REQUEST_S) as client:
        due = trio.current_time()
        while due < until:
            await trio.sleep_until(due)
            sent = trio.current_time()
            try:
                answer = await client.get(f"{url}/limit/v1/check", params=query)
            except httpx.TransportError:
                await trio.sleep(0.1)
            else:
                if answer.status_code == httpx.codes.OK:
                    found.append(Decision(node, sent, trio.current_time(), bool(answer.json()["allowed"])))
            due = max(due + 1 / rate, trio.current_time())

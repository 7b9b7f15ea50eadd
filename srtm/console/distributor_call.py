"""Runs a command's calls to the distributor, from connection to answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from srtm.client.distributor import DistributorClient
from srtm.console.running import run_trio

_T = TypeVar("_T")


def ask_distributor(
    urls: list[str] | None,
    token: str | None,
    question: Callable[[DistributorClient], Awaitable[_T]],
    *,
    timeout_s: float = 10.0,
) -> _T:
    """Run ``question`` with a client of the distributor, in an event loop of its own, and return its result.

    ``timeout_s``: of each call.
    """

    async def work() -> _T:
        async with DistributorClient(urls, token=token, timeout_s=timeout_s) as client:
            return await question(client)

    return run_trio(work)

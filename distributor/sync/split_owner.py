"""Who proposes shares: one owner at a time."""

from __future__ import annotations

import trio

CLAIM_S = 10.0  # an adaptor apart renews its claim every 3 s: one lost request, or a restart, changes no owner


class SplitOwner:
    """The distributor's own split loop proposes, unless somebody sent ``PUT /v1/shares`` in the last 10 s."""

    def __init__(self) -> None:
        self._claimed_until_s = float("-inf")  # trio time

    def claim(self) -> None:
        """Somebody else proposes shares, or has sent an empty list to say that it will."""
        self._claimed_until_s = trio.current_time() + CLAIM_S

    @property
    def is_own_loop(self) -> bool:
        """Whether the distributor's own loop proposes."""
        return trio.current_time() >= self._claimed_until_s

    async def wait_own_loop(self) -> None:
        """Until nobody else has proposed anything for 10 s."""
        while not self.is_own_loop:  # noqa: ASYNC110 - claims are renewed
            await trio.sleep_until(self._claimed_until_s)

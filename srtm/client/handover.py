"""When a publisher that moves may go on at the new broker: once nothing that it sends there can overtake what it has
sent to the old one. Pure; times are of one clock, s.

A broker that was asked says when the last message has left to its consumers (``LEFT``, docs/protocol.md). One that
cannot be asked has said with each answer how long the message waits for its token; how long it takes to hand it over
after that is a guess.
"""

from __future__ import annotations

from srtm.protocol import Receipt

# What has not left the old broker by then is overtaken: a caller must not hang for a long backlog.
LONGEST_HOLD_S = 5.0
# From the old broker's word to the first message at the new one: so that a consumer, who reads from both, has read the
# one before the other comes. A broker that cannot be asked has it to hand over what it has let go, too.
READ_S = 0.05


class HandOver:
    """Of one publisher: ``begin`` with each connection, ``accepted`` with each answer. Where nothing more is sent, and
    all is answered: ``question``, once, if there is one; then ``leaves_at_s``."""

    def __init__(self) -> None:
        self._let_go_s = 0.0  # when all that was accepted anywhere has its token and was handed over, by the receipts
        self._can_ask = self._has_sent = False  # on this connection
        self._number = 0
        self._asked_s: float | None = None
        self._left_s: float | None = None

    def begin(self, *, can_ask: bool) -> None:
        self._can_ask, self._has_sent = can_ask, False
        self.stay()

    def stay(self) -> None:
        """It goes on where it is."""
        self._asked_s = self._left_s = None

    def accepted(self, receipt: Receipt, now_s: float) -> None:
        self._has_sent = True
        self._let_go_s = max(self._let_go_s, now_s + _hold_s(receipt))

    def question(self, now_s: float) -> int | None:
        """The number with which to ask the old broker now; None: there is nothing to ask, or it was asked."""
        if self._asked_s is not None or not (self._can_ask and self._has_sent):
            return None
        self._asked_s = now_s
        self._number += 1
        return self._number

    def told(self, number: int, now_s: float) -> None:
        """All had left when question ``number`` was answered. Answers to earlier ones are old news."""
        if self._asked_s is not None and number == self._number:
            self._left_s = now_s

    @property
    def leaves_at_s(self) -> float:
        """When it goes on at the new broker, as far as can be said now."""
        if self._asked_s is None:
            return self._let_go_s
        return self._asked_s + LONGEST_HOLD_S if self._left_s is None else self._left_s + READ_S


def _hold_s(receipt: Receipt) -> float:
    """Seconds until that message has been handed over. Without a share nobody knows when that will be."""
    if receipt.wait_ms is None:
        return READ_S if receipt.fill is None else LONGEST_HOLD_S
    return min(receipt.wait_ms / 1e3 + READ_S, LONGEST_HOLD_S)

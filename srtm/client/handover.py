"""Decides when a moving publisher may continue at its new broker: no message may overtake one sent to the old broker.

An SRTM broker answers the command LEFT once all messages are delivered (docs/protocol.md). For any other broker the
receipts state how long each message waits for its token; its delivery time after that is estimated. Pure; all times
are of one clock, s.
"""

from __future__ import annotations

from srtm.protocol import Receipt

# The longest wait. Then messages may be overtaken, because a caller must not wait for a long backlog.
LONGEST_HOLD_S = 5.0
# From the old broker's answer to the first message at the new broker: a consumer of both reads the old messages first.
# For a broker without LEFT it also covers the delivery of messages whose tokens were there.
READ_S = 0.05


class Handover:
    """The handover of one publisher.

    Call ``begin`` for each connection and ``accepted`` for each answer. Once nothing is outstanding, send LEFT with
    the number of ``question``, if there is one. Then ``leaves_at_s`` is the time to continue.
    """

    def __init__(self) -> None:
        self._delivered_s = 0.0  # when all accepted messages are delivered, by their receipts
        self._can_ask = self._has_sent = False  # on this connection
        self._number = 0
        self._asked_s: float | None = None
        self._left_s: float | None = None

    def begin(self, *, can_ask: bool) -> None:
        """Start on a new connection. ``can_ask``: the broker answers LEFT."""
        self._can_ask, self._has_sent = can_ask, False
        self.stay()

    def stay(self) -> None:
        """Cancel the move: the publisher continues where it is."""
        self._asked_s = self._left_s = None

    def accepted(self, receipt: Receipt, now_s: float) -> None:
        """Note that the broker accepted a message."""
        self._has_sent = True
        self._delivered_s = max(self._delivered_s, now_s + _hold_s(receipt))

    def question(self, now_s: float) -> int | None:
        """Return the number of the LEFT command to send now. None: send none, or it was sent."""
        if self._asked_s is not None or not (self._can_ask and self._has_sent):
            return None
        self._asked_s = now_s
        self._number += 1
        return self._number

    def answered(self, number: int, now_s: float) -> None:
        """Note the answer to LEFT ``number``. Answers to earlier numbers are ignored."""
        if self._asked_s is not None and number == self._number:
            self._left_s = now_s

    @property
    def leaves_at_s(self) -> float:
        """The time at which to continue at the new broker, by what is known now."""
        if self._asked_s is None:
            return self._delivered_s
        return self._asked_s + LONGEST_HOLD_S if self._left_s is None else self._left_s + READ_S


def _hold_s(receipt: Receipt) -> float:
    """Return the time until that message is delivered, s. It is unknown at a broker without a share."""
    if receipt.wait_ms is None:
        return READ_S if receipt.fill is None else LONGEST_HOLD_S
    return min(receipt.wait_ms / 1e3 + READ_S, LONGEST_HOLD_S)

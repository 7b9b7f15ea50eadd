"""Whether a topic's traffic is steady, and when that has to be confirmed. Pure.

Traffic is steady if for some time no rate changed and no queue stood. Then the distributor takes it that traffic stays
as in the latest report. A renewal without bins confirms this every five minutes: the distributor drops what was not
confirmed.
"""

from __future__ import annotations

from zlib import crc32

_SETTLING_BINS = 120  # without a change; no estimate of the adaptor rests on more bins
_RENEWAL_NS = 300_000_000_000
_GROUPS = 10  # of topics: each group renews at another time, in one request
_TURN_NS = _RENEWAL_NS // _GROUPS


def next_turn_ns(now_ns: int) -> int:
    """When the next group renews. Before, no topic has to be renewed a second time."""
    return (now_ns // _TURN_NS + 1) * _TURN_NS


class Steadiness:
    """One topic. Bin numbers count bins of 100 ms; ``now_ns`` is of any clock that does not go back."""

    def __init__(self, topic: str) -> None:
        self._since: int | None = None  # bin in which traffic was unsteady last; None: no traffic yet
        self._offset_ns = crc32(topic.encode()) % _GROUPS * _TURN_NS
        self._period = 0  # of the latest report or renewal

    def begin(self, bin_number: int) -> None:
        """Messages arrived in this bin. Only the first call counts."""
        if self._since is None:
            self._since = bin_number

    def disturb(self, bin_number: int) -> None:
        """The rate changed in this bin, or messages waited for long."""
        self._since = max(self._since or bin_number, bin_number)

    def is_steady(self, until: int) -> bool:
        """Whether traffic is steady at the beginning of bin ``until``."""
        return self._since is not None and until >= self._since + _SETTLING_BINS

    def is_renewal_due(self, now_ns: int) -> bool:
        return self._period != self._period_at(now_ns)

    def note_sent(self, now_ns: int) -> None:
        """A report or renewal says that traffic is steady."""
        self._period = self._period_at(now_ns)

    def note_renewal_lost(self) -> None:
        self._period -= 1

    def _period_at(self, now_ns: int) -> int:
        return (now_ns + self._offset_ns) // _RENEWAL_NS

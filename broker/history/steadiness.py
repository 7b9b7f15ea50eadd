"""Whether a topic's traffic is steady, so that its histories need not be told any more, or only seldom. Pure.

Traffic is steady when for some time nothing has changed and no queue has stood. The report with which that begins says
so; until another one comes, traffic is as it was. Every few minutes it is named as still steady, without its bins:
whoever keeps that report knows that it may go on to believe it.
"""

from __future__ import annotations

from zlib import crc32

_SETTLING_BINS = 120  # without a change: more than the adaptor's estimates ever rest on
_RENEWAL_NS = 300_000_000_000
_GROUPS = 10  # groups of topics whose turns come apart, each with one request a broker
_TURN_NS = _RENEWAL_NS // _GROUPS


def next_turn_ns(now_ns: int) -> int:
    """When the turn of any group comes next; until then nothing is to be named that was named already."""
    return (now_ns // _TURN_NS + 1) * _TURN_NS


class Steadiness:
    """Of one topic. Bins are numbers of bins of 100 ms, ``now_ns`` is of any clock that does not go back."""

    def __init__(self, topic: str) -> None:
        self._since: int | None = None  # bin in which it was unsteady last
        self._apart_ns = crc32(topic.encode()) % _GROUPS * _TURN_NS
        self._told_in: int | None = None  # period in which somebody was told that it is steady; None: it is not known

    def begin(self, bin_number: int) -> None:
        """Something came in this bin; what counts is the first time."""
        if self._since is None:
            self._since = bin_number

    def disturb(self, bin_number: int) -> None:
        """In this bin the rate changed, or messages waited for long."""
        self._since, self._told_in = max(self._since or bin_number, bin_number), None

    def is_steady(self, until: int) -> bool:
        """Before bin ``until``."""
        return self._since is not None and until >= self._since + _SETTLING_BINS

    @property
    def is_known(self) -> bool:
        """Somebody was told, and nothing has changed since."""
        return self._told_in is not None

    def is_to_renew(self, now_ns: int) -> bool:
        """Somebody knows, and it is time to say that it is still so."""
        return self._told_in is not None and self._told_in != self._period(now_ns)

    def tell(self, now_ns: int) -> None:
        self._told_in = self._period(now_ns)

    def renew_again(self) -> None:
        """That it is still so has come to nobody."""
        if self._told_in is not None:
            self._told_in -= 1

    def untell(self) -> None:
        """Nobody knows: what was told was not taken, or has been forgotten."""
        self._told_in = None

    def _period(self, now_ns: int) -> int:
        return (now_ns + self._apart_ns) // _RENEWAL_NS

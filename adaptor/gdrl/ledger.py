"""One broker's side of GDRL transfers for one topic: who gives what to whom, exactly once. No network, no clock.

An exchange has two halves. The asker *offers*: it says what it has and wants. The asked computes what would make both
alike, takes what it gives out of its own share at once, and answers with that and with what it would like to have. The
asker credits the one, takes the other out of its share as far as it can, and sends it as a *credit* until it is told
that it came. So tokens in flight belong to nobody, and what is lost is lost: shares never sum to more than they did.

Numbers count up per partner. An offer that comes twice is answered as before, a credit that comes twice counts once, an
older number is refused. No more is credited than was asked for, and nothing that would make a share larger than
``whole``, what all brokers have together: nobody who keeps to this sends it. All of it belongs to one *epoch*, the
distributor's word that these brokers may exchange; nothing comes to a ledger, or from it, after that.
"""

from __future__ import annotations

from dataclasses import dataclass

from adaptor.gdrl.exchange import Supply, exchange
from srtm.topics.adaptation import Indicator
from srtm.units import MICRO


@dataclass(frozen=True)
class Tokens:
    """A rate (micro-messages/s) and a burst (micro-messages), neither below 0."""

    rate: int = 0
    burst: int = 0

    def __bool__(self) -> bool:
        return self.rate > 0 or self.burst > 0

    def covers(self, other: Tokens) -> bool:
        """Whether ``other`` is no more than this in either."""
        return other.rate <= self.rate and other.burst <= self.burst


@dataclass(frozen=True)
class Reply:
    """To an offer: ``gives`` has left the answerer, ``asks`` is what it would like."""

    gives: Tokens
    asks: Tokens


@dataclass
class _Asked:
    """The last offer that a partner made to us."""

    number: int
    reply: Reply
    credited: bool = False


@dataclass
class _Asking:
    """The last offer that we made to a partner."""

    number: int = 0
    answered: bool = True
    owed: Tokens = Tokens()  # taken out of our share, not known to have come


class Ledger:
    """``rate`` and ``burst``: what this broker has now, micro. ``least_rate``: no transfer leaves less, micro.
    ``whole``: of the topic; None: not known."""

    def __init__(
        self,
        epoch: int,
        rate: int,
        burst: int,
        indicator: Indicator,
        least_rate: int = 1,
        whole: Tokens | None = None,
    ) -> None:
        self.epoch = epoch
        self.rate = rate
        self.burst = burst
        self.whole = whole
        self._indicator = indicator
        self._least_rate = least_rate
        self._asked: dict[str, _Asked] = {}
        self._asking: dict[str, _Asking] = {}

    def offer(self, partner: str) -> int:
        """The number of the offer to make to ``partner``: that of one which is not answered yet, else a new one."""
        asking = self._asking.setdefault(partner, _Asking())
        if asking.answered:
            asking.number, asking.answered = asking.number + 1, False
        return asking.number

    def owed(self, partner: str) -> tuple[int, Tokens] | None:
        """The credit that ``partner`` has not acknowledged: it comes before any new offer."""
        asking = self._asking.get(partner)
        return (asking.number, asking.owed) if asking is not None and asking.owed else None

    def answer(self, partner: str, number: int, theirs: Supply, mine: Supply) -> Reply | None:
        """To an offer. ``mine``: what this broker wants, its rate and burst being those of the ledger. None: refused,
        for it is old."""
        asked = self._asked.get(partner)
        if asked is not None and number < asked.number:
            return None
        if asked is not None and number == asked.number:
            return asked.reply
        wanted = exchange(self._indicator, mine, theirs)
        reply = Reply(
            gives=self._take(Tokens(max(0, wanted.rate), max(0, wanted.burst))),
            asks=Tokens(max(0, -wanted.rate), max(0, -wanted.burst)),
        )
        self._asked[partner] = _Asked(number, reply)
        return reply

    def settle(self, partner: str, number: int, reply: Reply) -> bool:
        """The answer to our offer ``number``: takes what is given, and puts what is asked for aside, to be sent as a
        credit. Again: nothing. False: it gives more than the partner could have."""
        asking = self._asking.get(partner)
        if asking is None or asking.answered or number != asking.number:
            return True
        if not self._can_come(reply.gives):
            return False
        asking.answered = True
        self._put(reply.gives)
        asking.owed = self._take(reply.asks)
        return True

    def credit(self, partner: str, number: int, tokens: Tokens) -> bool:
        """What a partner owed us has come. False: refused, there was no such offer, or it is more than we asked for
        or than the partner could have."""
        asked = self._asked.get(partner)
        if asked is None or number > asked.number:
            return False
        if number == asked.number and not asked.credited:
            if not (asked.reply.asks.covers(tokens) and self._can_come(tokens)):
                return False
            asked.credited = True
            self._put(tokens)
        return True

    def credited(self, partner: str, number: int) -> None:
        """``partner`` has what we owed."""
        asking = self._asking.get(partner)
        if asking is not None and asking.number == number:
            asking.owed = Tokens()

    def _can_come(self, tokens: Tokens) -> bool:
        """Whether somebody else can have had ``tokens``: they are not among ours, and all together are ``whole``."""
        sum_ = Tokens(self.rate + tokens.rate, self.burst + tokens.burst)
        return self.whole is None or not tokens or self.whole.covers(sum_)

    def _take(self, wanted: Tokens) -> Tokens:
        """As much of it as leaves a share that lets messages go soon; from one that is smaller, nothing."""
        taken = Tokens(
            min(wanted.rate, max(0, self.rate - self._least_rate)), min(wanted.burst, max(0, self.burst - MICRO))
        )
        self.rate -= taken.rate
        self.burst -= taken.burst
        return taken

    def _put(self, tokens: Tokens) -> None:
        self.rate += tokens.rate
        self.burst += tokens.burst

"""Messages between brokers that exchange tokens (mode ``gdrl``).

Rates and bursts are whole micro-units here: what one broker gives up is exactly what another gets.
"""

from __future__ import annotations

from srtm.control.message import Control


class GdrlOffer(Control, frozen=True):
    """A broker's share of a topic in micro-units, and its demand and capacity in msg/s."""

    number: int
    rate: int
    burst: int
    demand: float
    dispersion: float = 1.0
    batch: int = 1
    capacity: float | None = None


class GdrlCredit(Control, frozen=True):
    """What the sender took out of its share for the receiver, in micro-units, after the offer of that number."""

    number: int
    rate: int
    burst: int


class GdrlMessage(Control, frozen=True):
    """An offer or a credit. Made and read by ``broker.leases.gdrl_agent`` (``POST /v1/gdrl/exchange``)."""

    topic: str
    epoch: int
    sender: str
    offer: GdrlOffer | None = None
    credit: GdrlCredit | None = None


class GdrlAnswer(Control, frozen=True):
    """The answer to an offer: what left the answering broker, and what it asks for, in micro-units. ``accepted`` false:
    nothing was done."""

    accepted: bool
    gives_rate: int = 0
    gives_burst: int = 0
    asks_rate: int = 0
    asks_burst: int = 0

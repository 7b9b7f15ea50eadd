"""What brokers say to each other under ``gdrl``. Rates and bursts are whole micro-units here: what one gives up is
exactly what another gets."""

from __future__ import annotations

from srtm.control.message import Control


class GdrlOffer(Control, frozen=True):
    """What a broker has of a topic, and wants. Micro-units; demand and capacity in msg/s."""

    number: int
    rate: int
    burst: int
    demand: float
    dispersion: float = 1.0
    batch: int = 1
    capacity: float | None = None


class GdrlCredit(Control, frozen=True):
    """What the sender took out of its share for the receiver, after its offer of that number. Micro-units."""

    number: int
    rate: int
    burst: int


class GdrlMessage(Control, frozen=True):
    """Made and read by ``broker.leases.gdrl_agent``, at ``POST /v1/gdrl/exchange``: an offer, or a credit."""

    topic: str
    epoch: int
    sender: str
    offer: GdrlOffer | None = None
    credit: GdrlCredit | None = None


class GdrlAnswer(Control, frozen=True):
    """``accepted`` false: nothing was done. To an offer: what has left the answerer, and what it asks for, micro."""

    accepted: bool
    gives_rate: int = 0
    gives_burst: int = 0
    asks_rate: int = 0
    asks_burst: int = 0

"""Rounds of GDRL in virtual time, demand frozen: random partners, the paper's ring, and as printed.

``random`` uses the product's own exchange (``adaptor.gdrl.exchange``), every broker asking somebody once a round, in
an order drawn anew. On the ring all edges exchange at once, in columns of floats: it takes hundreds of thousands of
rounds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from adaptor.gdrl.exchange import Supply, exchange, floored, spread
from srtm.topics.adaptation import Indicator
from srtm.units import MICRO

Floats = npt.NDArray[np.float64]
Step = Callable[[Floats, Floats], Floats]  # supplies now and a round ago -> supplies

RATE = 11_000.0  # msg/s of the topic
BURST = 4  # messages for each broker
CLOSE = 0.01  # spread at which it has converged
LARGEST = 1e6  # spread at which it never will
_IDLE = 0.1  # of the brokers have no demand


def start(brokers: int, dice: random.Random, doublings: float = 3.0) -> list[Supply]:
    """All with the same supply, as the paper begins. Demand is 10 / 11 of the rate, one broker's up to
    2**``doublings`` times another's, and some have none."""
    weights = [0.0 if dice.random() < _IDLE else 2 ** dice.uniform(0, doublings) for _ in range(brokers)]
    weights[0] = 1.0
    rate = round(RATE * MICRO / brokers)
    return [
        floored(Supply(rate=rate, burst=BURST * MICRO, demand=RATE * weight / sum(weights) / 1.1), rate)
        for weight in weights
    ]


def random_rounds(measure: Indicator, supplies: Sequence[Supply], dice: random.Random, most: int) -> int | None:
    """Rounds to a spread of 1 %; None: more than ``most``."""
    now = list(supplies)
    for turn in range(most + 1):
        if spread(measure, now) <= CLOSE:
            return turn
        for at in dice.sample(range(len(now)), len(now)):
            other = (at + dice.randrange(1, len(now))) % len(now)
            given = exchange(measure, now[at], now[other])
            now[at] = _after(now[at], -given.rate, -given.burst)
            now[other] = _after(now[other], given.rate, given.burst)
    return None


def _after(supply: Supply, rate: int, burst: int) -> Supply:
    return replace(supply, rate=supply.rate + rate, burst=supply.burst + burst)


def ring_rounds(step: Step, supplies: Sequence[Supply], most: int) -> tuple[int | None, float]:
    """Rounds to a spread of 1 % of the fill ratios (None: not within ``most``, or it has gone beyond all bounds), and
    the spread at the end."""
    now = np.array([one.rate / MICRO for one in supplies])
    demand = np.array([one.demand for one in supplies])
    before, fair = now, float(now.sum() / demand.sum())
    for turn in range(most + 1):
        ratios = now / demand
        apart = float((ratios.max() - ratios.min()) / fair)
        if apart <= CLOSE:
            return turn, apart
        if not apart < LARGEST:
            break
        now, before = step(now, before), now
    return None, apart


def ring(supplies: Sequence[Supply], eta: float = 1 / 3) -> Step:
    """All edges at once, conserving: eta (q_i - q_j) min(D_i, D_j)."""
    demand = np.array([one.demand for one in supplies])
    weight = np.minimum(demand, np.roll(demand, -1)) * eta

    def step(now: Floats, _: Floats) -> Floats:
        ratio = now / demand
        flow = weight * (ratio - np.roll(ratio, -1))  # to the next
        moved: Floats = now - flow + np.roll(flow, 1)
        return moved

    return step


def as_printed(supplies: Sequence[Supply]) -> Step:
    """Formula (2) of the paper with its d = 2, eta = 1 / 4: who is better off gets more."""
    demand = np.array([one.demand for one in supplies])
    scale = float(demand.mean())  # a ratio cannot be added to a rate: the formula leaves its unit open

    def step(now: Floats, _: Floats) -> Floats:
        ratio = now / demand
        moved: Floats = now + (2 * ratio - np.roll(ratio, 1) - np.roll(ratio, -1)) / 4 * scale
        return moved

    return step

"""In how many of 100 minutes a placement keeps the promise, and which rate or burst would do. Pure.

The delay is access plus processing, and the worst broker decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from distributor.model.cluster import Placement
from distributor.model.columns import NOWHERE
from distributor.model.leases import MICRO, Amount
from distributor.placement.minute_verdict import Candidate, judged
from distributor.placement.promise_sizing import PromiseSizing
from srtm.errors import BadInput
from srtm.token_bucket.kept_minutes import Layout, Server

CONFIDENCE = 95.0  # per cent of the minutes
LEAST_CONFIDENCE, MOST_CONFIDENCE = 50.0, 99.0
_SIZING_MINUTES = 150  # for what would do: half of those of "auto", so that an answer takes five seconds

Json = dict[str, Any]


def one_bucket(placement: Placement, envelope: Amount) -> Candidate:
    """Return all that have a place, in one bucket; processing takes no time."""
    at = np.where(placement.at == NOWHERE, NOWHERE, 0)
    layout = Layout(at=at, servers=(Server(rate=envelope.rate / MICRO, service_s=0.0),))
    return Candidate(layout=layout, bursts=(envelope.burst / MICRO,))


def checked_confidence(confidence: float) -> float:
    """Raises BadInput."""
    if not LEAST_CONFIDENCE <= confidence <= MOST_CONFIDENCE:
        rule = f"must be from {LEAST_CONFIDENCE:g} to {MOST_CONFIDENCE:g} per cent of the minutes"
        raise BadInput("confidence", confidence, rule)
    return confidence


def promise_json(
    sizing: PromiseSizing,
    burst: float,
    shares: Mapping[str, Amount],
    even: Candidate | None,
    confidence: float,
    roomy: PromiseSizing | None = None,
) -> Json:
    """Return the verdict on a topic with the burst ``burst`` and these shares. ``even``: spread over all brokers.

    ``roomy``: as it would be placed with a token for each broker, if that may be otherwise.
    """
    spec, placement, sure = sizing.spec, sizing.placement, confidence / 100
    envelope = Amount(round(spec.rate * MICRO), round(burst * MICRO))
    if not placement.brokers:
        empty = placement.state == "placed"  # nobody publishes: nothing is late
        return {"confidence": confidence, "predicted": empty, "kept": None, "one_bucket": None, "even": None}
    others = [one_bucket(placement, envelope), *([even] if even is not None else [])]
    mine = sizing.candidate_of(shares)
    kept, *compared = judged(spec.publishers, [mine, *others], sizing.promise, sure)
    found: Json = {
        "confidence": confidence,
        "predicted": kept.low >= sure and placement.state == "placed",
        "kept": asdict(kept),
        "one_bucket": asdict(compared[0]),
        "even": asdict(compared[1]) if even is not None else None,
    }
    return found if found["predicted"] else {**found, "enough": _enough(sizing, roomy or sizing, burst, sure)}


def _enough(sizing: PromiseSizing, roomy: PromiseSizing, burst: float, sure: float) -> Json:
    """The smallest rate and the smallest burst above those of now that would do; None: none was found.

    A burst that depends on the rate gets smaller with a larger one. So only a number is kept. A larger rate leaves all
    where they are; a larger burst may bring them to more brokers.
    """
    spec = sizing.spec
    if roomy.placement.state != "placed":
        return {"rate": None, "burst": None, "limit": "room"}
    needed = roomy.smallest_burst(spec.rate, sure, _SIZING_MINUTES, above=burst)
    if needed is None:
        alone = max(roomy.service_s(name) for name in roomy.placement.brokers) > roomy.promise.latency_s
        return {"rate": None, "burst": None, "limit": "service" if alone else "processing"}
    is_number = not isinstance(spec.burst, str) and sizing.placement.state == "placed"
    rate = sizing.smallest_rate(lambda _rate: burst, sure, _SIZING_MINUTES) if is_number else None
    return {"rate": rate, "burst": float(needed), "limit": None}

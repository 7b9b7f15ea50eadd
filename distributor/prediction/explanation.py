"""Why a topic is placed as it is, and what that costs: the document that a plan and a submission answer with. Pure.

The verdict is that of ``promise``, over many minutes; the delays of brokers are those of one ``forecast``. What was
measured stands beside it in the topic's view, in the reports of its brokers and the status of its fitting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from distributor.model.cluster import Placement
from distributor.model.columns import ALONE
from distributor.model.leases import MICRO, Amount
from distributor.placement import planner
from distributor.placement.allocation import BrokerCapacity
from distributor.placement.promise_sizing import PromiseSizing, Split
from distributor.placement.share_targets import ShareDemand, target_shares
from distributor.prediction.forecast import ASSUMED, Forecast, Service, Simulation
from distributor.prediction.promise import CONFIDENCE, promise_json
from srtm.topics.spec import TopicSpec
from srtm.units import to_micro

# Of the simulated traffic: the same plan is answered with the same figures. Not the seed of
# ``srtm.token_bucket.burst_sizing``, whose b is the smallest for the phases that it drew: with those the forecast
# would be in time by construction.
SEED = 2

Json = dict[str, Any]


class Roomy(NamedTuple):
    """How a topic would be placed with a token for each broker, and split."""

    placement: Placement
    split: Split


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A topic as it would be, or is, placed. ``offered``: the brokers and what others have of them."""

    spec: TopicSpec
    burst: float
    placement: Placement
    reasons: Sequence[str]
    offered: Sequence[BrokerCapacity]
    services: Mapping[str, Service]
    shares: Mapping[str, Amount] | None = None  # None: those of a fresh submission
    split: Split | None = None  # how a submission would split another (r, b)
    roomy: Roomy | None = None  # None: the same placement
    confidence: float | None = CONFIDENCE  # per cent of the minutes; None: nobody asks for the promise

    @property
    def envelope(self) -> Amount:
        return Amount(to_micro(self.spec.rate, "rate"), to_micro(self.burst, "burst"))

    @property
    def target(self) -> Mapping[str, Amount]:
        if self.shares is not None:
            return self.shares
        return target_shares(ShareDemand(spec=self.spec, envelope=self.envelope, placement=self.placement))


def explain(outcome: Outcome) -> Json:
    """The whole document. Takes a few seconds of work, and as long again as placing took."""
    spec, placement, target = outcome.spec, outcome.placement, outcome.target
    traffic = Simulation(spec.publishers, spec.slo.percentile, outcome.envelope, SEED)
    found = traffic.forecast(placement, target, outcome.services)
    even = _even(outcome) if spec.placement != "lb" else None
    return {
        "name": spec.name,
        "rate": spec.rate,
        "burst": outcome.burst,
        "slo": {"percentile": spec.slo.percentile, "latency_ms": spec.slo.latency_ms},
        "placement": spec.placement,
        "split": spec.split,
        "publishers": len(spec.publishers),
        "publishers_rate": spec.publishers.load,
        "k": len(placement.brokers),
        "state": placement.state,
        "reason": reason(outcome.reasons),
        "reasons": list(outcome.reasons),
        "brokers": _brokers(outcome, target, found),
        "predicted": _predicted(found, spec),
        "penalty": asdict(found.penalty),
        "admitted_afterwards": _admitted(outcome.offered, placement),
        "balanced": _balanced(outcome, traffic, *even) if even is not None else None,
        "promise": _promise(outcome, target, even, outcome.confidence) if outcome.confidence is not None else None,
    }


def reason(lines: Sequence[str]) -> str:
    """What an operator must know first: what is missing, else why there are so many brokers."""
    return "; ".join(urgent_reasons(lines) or lines[:1])


def urgent_reasons(lines: Sequence[str]) -> list[str]:
    """What is missing, and warnings."""
    return [line for line in lines if line.startswith(("missing", "warning"))]


def _brokers(outcome: Outcome, target: Mapping[str, Amount], found: Forecast) -> list[Json]:
    groups, free = _groups(outcome.placement), _free(outcome.offered, outcome.placement)
    there = outcome.placement.at[outcome.placement.at >= 0]
    heads = np.bincount(there, minlength=len(outcome.placement.brokers)).tolist()
    return [
        {
            "broker": name,
            "publishers": heads[at],
            "groups": groups[at],
            "rate_assigned": outcome.placement.assigned[name],
            "rate": target[name].rate / MICRO,
            "burst": target[name].burst / MICRO,
            "rate_part": target[name].rate / outcome.envelope.rate,
            "burst_part": target[name].burst / outcome.envelope.burst,
            "service_us": outcome.services.get(name, ASSUMED).ns / 1e3,
            "service_known": outcome.services.get(name, ASSUMED).source,
            "free_afterwards": free.get(name),
            **asdict(found.brokers[name]),
        }
        for at, name in enumerate(outcome.placement.brokers)
    ]


def _groups(placement: Placement) -> list[int]:
    """Correlation groups that have a member on each broker."""
    k, groups = max(1, len(placement.brokers)), placement.publishers.groups
    here = (placement.at >= 0) & (groups != ALONE)
    cells = np.sort(groups[here] * k + placement.at[here])
    first = np.diff(cells, prepend=-1) > 0  # sorting is several times faster than np.unique, which hashes
    return [int(count) for count in np.bincount(cells[first] % k, minlength=k)]


def _predicted(found: Forecast, spec: TopicSpec) -> Json:
    return {
        "method": found.method,
        "seconds": found.seconds,
        "messages": found.messages,
        "seed": SEED,
        "percentile": spec.slo.percentile,
        **asdict(found.worst),
    }


def _free(offered: Sequence[BrokerCapacity], placement: Placement) -> dict[str, float | None]:
    """{broker: msg/s that it would still take}; None: no limit is known."""
    return {
        broker.name: None
        if math.isinf(broker.rcap)
        else max(0.0, broker.rcap - placement.assigned.get(broker.name, 0.0))
        for broker in offered
    }


def _admitted(offered: Sequence[BrokerCapacity], placement: Placement) -> Json:
    """The largest further topic: of small publishers, with a token for every broker."""
    free = _free(offered, placement)
    known = [room for room in free.values() if room is not None]
    return {
        "brokers": [{"broker": name, "rate": rate} for name, rate in free.items()],
        "largest_topic": sum(known) if len(known) == len(free) else None,
    }


def _even(outcome: Outcome) -> tuple[Placement, dict[str, Amount]]:
    """The same topic spread evenly over all brokers (lb), and its shares."""
    even = replace(outcome.spec, placement="lb", burst=outcome.burst)
    _, placement, _ = planner.place_anew(even, outcome.offered)
    return placement, target_shares(ShareDemand(spec=even, envelope=outcome.envelope, placement=placement))


def _balanced(outcome: Outcome, traffic: Simulation, placement: Placement, shares: Mapping[str, Amount]) -> Json:
    found = traffic.forecast(placement, shares, outcome.services)
    return {
        "k": len(placement.brokers),
        "state": placement.state,
        "predicted": _predicted(found, outcome.spec),
        "penalty": asdict(found.penalty),
        "admitted_afterwards": _admitted(outcome.offered, placement),
    }


def _promise(
    outcome: Outcome,
    target: Mapping[str, Amount],
    even: tuple[Placement, Mapping[str, Amount]] | None,
    confidence: float,
) -> Json:
    services = {name: service.ns for name, service in outcome.services.items()}
    sizing = PromiseSizing(spec=outcome.spec, placement=outcome.placement, services=services, split=outcome.split)
    spread = None
    if even is not None and even[0].brokers:
        spread = replace(sizing, placement=even[0]).candidate_of(even[1])
    roomy = None if outcome.roomy is None else replace(sizing, **outcome.roomy._asdict())
    return promise_json(sizing, outcome.burst, target, spread, confidence, roomy)

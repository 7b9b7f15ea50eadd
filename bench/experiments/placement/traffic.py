"""The traffic of ``srtm bench placement``: drawn once for a workload, so that what b is sized on is what is sent. Pure.

The phases of periodic groups decide how large a bucket they need, and a stretch of some seconds is a small sample of
Poisson groups. So b is enough for both: for ten minutes of the process, and for the part of them that is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np

from bench.harness.cluster_runs.trace import percentile_ms
from bench.harness.load.workload import Plan
from srtm.client.distributor import Json
from srtm.errors import BadInput
from srtm.token_bucket.arrival_process import Sent, sent
from srtm.token_bucket.burst_sizing import LONGEST_S, MOST_ARRIVALS, enough_burst
from srtm.token_bucket.replay import NEVER_NS, access_delays
from srtm.topics.publishers import Ints, Publishers
from srtm.units import to_micro

_Item = TypeVar("_Item")


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """``drawn``: all that b is sized on; of it ``warmup_s`` and then ``seconds`` are sent."""

    publishers: Publishers
    drawn: Sent
    warmup_s: float
    seconds: float

    @property
    def _end(self) -> int:
        return int(np.searchsorted(self.drawn.arrival_ns, round((self.warmup_s + self.seconds) * 1e9)))

    @property
    def _warmup_ns(self) -> int:
        return round(self.warmup_s * 1e9)

    def burst(self, rate: float, percentile: float) -> int:
        """The smallest b, messages, without access delay at ``percentile`` in one bucket of ``rate`` msg/s: over all
        that was drawn, and over the part that is measured."""
        arrival_ns = self.drawn.arrival_ns
        whole = enough_burst([arrival_ns], rate, percentile)
        part = enough_burst([arrival_ns[: self._end]], rate, percentile, self._warmup_ns)
        return max(self.publishers.largest_batch, whole, part)

    def instants_ns(self) -> list[Ints]:
        """When each publisher sends (a batch at once), from the start of the run."""
        who, when = self.drawn.publisher[: self._end], self.drawn.arrival_ns[: self._end]
        order = np.argsort(who, kind="stable")
        edges = np.cumsum(np.bincount(who, minlength=len(self.publishers)))[:-1]
        batches = self.publishers.batches.tolist()
        return [part[::batch] for part, batch in zip(np.split(when[order], edges), batches, strict=True)]

    def replayed_access_ms(
        self, assignments: Json, shares: Mapping[str, tuple[float, float]], percentile: float
    ) -> float:
        """The access delay at ``percentile`` on the worst broker, had every message come when it was meant to. By the
        rule of the bucket, exactly. ``shares``: {broker: rate, burst}."""
        broker = dict(zip(assignments["ids"], assignments["brokers"], strict=True))
        at = np.array([broker[name] for name in self.publishers.ids])
        who, when = self.drawn.publisher[: self._end], self.drawn.arrival_ns[: self._end]
        worst = 0.0
        for name, (rate, burst) in shares.items():
            came = when[at[who] == name]
            access_ns = access_delays(came, to_micro(rate, "rate"), to_micro(burst, "burst"))
            counted = access_ns[came >= self._warmup_ns]
            if (counted == NEVER_NS).any():
                raise BadInput("share", (rate, burst), f"must have tokens to come: messages arrive at {name}")
            worst = max(worst, percentile_ms(counted, percentile))
        return worst

    def as_sent(self, plan: Plan) -> Plan:
        """``plan``, whose publishers send at these instants; without those who send nothing in so short a time."""
        fleet = plan.publishers
        order = {name: at for at, name in enumerate(self.publishers.ids)}
        instants_ns = self.instants_ns()
        mine = [instants_ns[order[name]].tolist() for name in fleet.ids]
        keep = [at for at, instants in enumerate(mine) if instants]
        kept = msgspec.structs.replace(
            fleet,
            ids=_of(fleet.ids, keep),
            target=_of(fleet.target, keep),
            rate=_of(fleet.rate, keep),
            batch=_of(fleet.batch, keep),
            group=[-1] * len(keep),
            process=["trace"] * len(keep),
            instants_ns=_of(mine, keep),
        )
        return msgspec.structs.replace(plan, publishers=kept)


def _of(column: Sequence[_Item], rows: Sequence[int]) -> list[_Item]:
    return [column[row] for row in rows]


def draw(publishers: Publishers, *, warmup_s: float, seconds: float, seed: int) -> Traffic:
    """Ten minutes, or as much as ``srtm.token_bucket.burst_sizing`` looks at; at least what is sent."""
    long_s = max(min(LONGEST_S, MOST_ARRIVALS / publishers.load), warmup_s + seconds)
    return Traffic(publishers=publishers, drawn=sent(publishers, long_s, seed), warmup_s=warmup_s, seconds=seconds)

"""A better split of a layout that access delay breaks, from what was recorded; only where it holds on traffic that it
was not made of. Pure.

What ``srtm.token_bucket.refined_split`` learns is in part the chance of what it was shown: on short recordings of
brokers that are much alike it is worse elsewhere than the closed form (docs/placement.md). So it is judged on what was
held out: refined on either half of a recording it must keep the promise on the other, with a smaller delay on the
worst broker there than the layout's own split has. The split itself is then made of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distributor.fitting.events import Layout, Task
from distributor.fitting.layout_model import CLEAR, Recording
from srtm.token_bucket.exact_split import MICRO
from srtm.token_bucket.fitted_split import Shares, Traffic
from srtm.token_bucket.refined_split import refined_bucket, worst_delay_ns
from srtm.token_bucket.replay import Ints


def refined(task: Task, layout: Layout, recordings: Sequence[Recording]) -> Layout | None:
    """``layout`` under the split that the longest of ``recordings`` (at least one) suggests; None where it does not
    pay."""
    longest = max(recordings, key=lambda one: len(one.trace)).trace
    arrivals = [part.arrival_ns for part in longest.by_broker(layout.placement, len(layout.brokers))]
    middle_ns = (int(longest.arrival_ns[0]) + int(longest.arrival_ns[-1])) // 2
    halves = [came[came < middle_ns] for came in arrivals], [came[came >= middle_ns] for came in arrivals]
    pays = all(_pays(task, layout, _made(task, layout, seen), held_out) for seen, held_out in (halves, halves[::-1]))
    return replace(layout, shares_micro=tuple(_made(task, layout, arrivals)), refined=True) if pays else None


def _pays(task: Task, layout: Layout, shares: Shares, held_out: Sequence[Ints]) -> bool:
    worst_ns = worst_delay_ns(held_out, shares, task.percentile)
    before_ns = worst_delay_ns(held_out, layout.shares_micro, task.percentile)
    return worst_ns < before_ns and worst_ns <= CLEAR * task.target_ns


def _made(task: Task, layout: Layout, arrivals: Sequence[Ints]) -> Shares:
    demand = task.demand
    rate_micro, burst_micro = round(demand.rate * MICRO), round(demand.burst * MICRO)
    return refined_bucket(rate_micro, burst_micro, _traffic(task, layout), arrivals, task.percentile)


def _traffic(task: Task, layout: Layout) -> list[Traffic]:
    demand = task.demand
    found = []
    for at in range(len(layout.brokers)):
        here = layout.placement == at
        batch = 1 if demand.batches is None else int(demand.batches[here].max(initial=1))
        found.append(Traffic(rate=float(demand.rates[here].sum()), batch=batch))
    return found

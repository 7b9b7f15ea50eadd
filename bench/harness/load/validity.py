"""Whether a run may be believed, and every reason why not. Pure.

The load generator itself says where it was late, sent too little, was stopped or heard nothing at all; here is what it
cannot see by itself: who else used the processors. And where messages got lost, the latencies of those that arrived say
nothing of the promise; nor does a topic of which none arrived.
"""

from __future__ import annotations

from bench.harness.load.run import RunResult

_MOST_STEAL = 0.01  # of the processors' time


def why_invalid(result: RunResult, percentile: float) -> list[str]:
    """Reasons why the p``percentile`` of ``result`` says nothing about the broker; none: it does."""
    return [*result.reasons, *_stolen(result, percentile), *_throttled(result), *_silent(result), *_lost(result)]


def _stolen(result: RunResult, percentile: float) -> list[str]:
    """What the hypervisor takes hits a message at random: as large a share as the percentile leaves out can move it."""
    most = min(_MOST_STEAL, 1 - percentile / 100)
    if result.steal_share <= most:
        return []
    return [f"the hypervisor gave {result.steal_share:.2%} of the processors' time to others (steal), over {most:.2%}"]


def _throttled(result: RunResult) -> list[str]:
    """A quota that is used up stops everybody in the cgroup for the rest of a period, usually 100 ms."""
    if not (result.throttled_periods or result.throttled_s):
        return []
    taken = f"in {result.throttled_periods} periods, {result.throttled_s:.3g} s in all"
    return [f"the CPU quota of the cgroup stopped its processes {taken}"]


def _silent(result: RunResult) -> list[str]:
    """Percentiles of nothing are 0."""
    if not result.received:
        return []  # as the generator says
    return [f"no measured message of {one.topic} was received" for one in result.targets if not one.received]


def _lost(result: RunResult) -> list[str]:
    if not result.lost:
        return []
    copies = result.lost + result.received
    return [f"{result.lost} of {copies} messages were sent and neither refused nor received until the run was over"]

"""Judges the decisions of all nodes together, beside one bucket that saw the same requests.

Law L4 of docs/replication.md: whenever a node lets a request through, the level of the one bucket is above b by at most
what the other nodes took within the delay before. While a node is cut off, the delay is as long as the cut. A node that
was killed takes with it what it had told nobody: at most ``beta * b / N``.

A decision falls somewhere between its request and its answer, and is counted at the answer. So the level that is worked
out may be above the true one by what the bucket earns in the longest request: the jitter of an arrival curve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

BETA = 0.5


class Decision(NamedTuple):
    """One answered request, s on one clock: when it was sent, and when its answer came."""

    node: str
    sent: float
    answered: float
    allowed: bool


class Cut(NamedTuple):
    """``node`` and the others did not reach each other, s; until they were linked again."""

    node: str
    begin: float
    end: float


@dataclass(frozen=True)
class Judged:
    """``excess``: tokens above (r, b), worst; ``unexplained``: of them, more than the law allows, worst."""

    requests: int
    allowed: int
    refused: int
    refused_centrally: int
    excess: float
    unexplained: float

    @property
    def refused_percent(self) -> float:
        """Of the centralized refusals."""
        return 100 * self.refused / self.refused_centrally if self.refused_centrally else 100.0


def judge(
    decisions: Sequence[Decision],
    rate: float,
    burst: float,
    *,
    nodes: int,
    delay_s: float,
    cuts: Sequence[Cut] = (),
    kills: Sequence[float] = (),
    lost: float | None = None,
) -> Judged:
    """``rate``: tokens/s; ``delay_s``: of news from one node to another, in addition to what a request took; ``lost``:
    tokens that a killed node had told nobody of; None: what the limit service holds back at most."""
    ordered = sorted(decisions, key=lambda one: one.answered)
    allowed = [one for one in ordered if one.allowed]
    level, at, excess, unexplained = 0.0, 0.0, 0.0, 0.0
    jitter_s = longest_request_s(ordered)
    longest_s = delay_s + jitter_s
    lost = BETA * burst / nodes if lost is None else lost
    for number, one in enumerate(allowed):
        level, at = max(0.0, level - rate * (one.answered - at)) + 1, one.answered
        above = level - burst
        if above <= 0:
            continue
        others = sum(
            each.node != one.node and each.answered >= _since(one, each, cuts, longest_s) for each in allowed[:number]
        )
        untold = lost * sum(killed <= one.answered for killed in kills)
        excess = max(excess, above)
        unexplained = max(unexplained, above - others - untold - rate * jitter_s)
    return Judged(
        requests=len(ordered),
        allowed=len(allowed),
        refused=len(ordered) - len(allowed),
        refused_centrally=refused_centrally(ordered, rate, burst),
        excess=excess,
        unexplained=unexplained,
    )


def longest_request_s(decisions: Sequence[Decision]) -> float:
    """How late a node was with anything that its loop has to do."""
    return max((one.answered - one.sent for one in decisions), default=0.0)


def _since(one: Decision, other: Decision, cuts: Sequence[Cut], delay_s: float) -> float:
    """Since when the node of ``one`` may not have heard what the node of ``other`` took."""
    since = one.sent - delay_s
    between = [cut for cut in cuts if cut.node in (one.node, other.node)]
    return min([since, *(cut.begin - delay_s for cut in between if cut.begin <= one.answered and since <= cut.end)])


def refused_centrally(decisions: Sequence[Decision], rate: float, burst: float) -> int:
    """What one bucket refuses of the same requests."""
    level, at, refused = 0.0, 0.0, 0
    for one in sorted(decisions, key=lambda one: one.sent):
        level, at = max(0.0, level - rate * (one.sent - at)), one.sent
        if level + 1 > burst:
            refused += 1
        else:
            level += 1
    return refused

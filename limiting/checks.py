"""Checks of one or several subjects at once: all or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from srtm.contracts.verdict import Verdict
from srtm.limiting.limiter import Limiter


class Checked(NamedTuple):
    """What a check of several subjects says."""

    allowed: bool
    verdicts: list[tuple[str, Verdict]]  # by subject, in the order of the check

    @property
    def decisive(self) -> Verdict:
        """The verdict that counts: of those that refuse the one with the longest wait, else of all."""
        asked = [verdict for _, verdict in self.verdicts if self.allowed or not verdict.allowed]
        return max(asked, key=lambda verdict: float("inf") if verdict.wait_ns is None else verdict.wait_ns)

    @property
    def grants(self) -> list[bytes]:
        """The grants, if it took anything."""
        return [verdict.grant for _, verdict in self.verdicts if verdict.grant is not None]


def each_cost(subjects: Sequence[str], cost: int | Sequence[int]) -> list[tuple[str, int]]:
    """Return each subject with its cost: the same for all, or one for each."""
    return list(zip(subjects, [cost] * len(subjects) if isinstance(cost, int) else cost, strict=True))


def check(
    limiter: Limiter, namespace: str, subjects: Sequence[str], cost: int | Sequence[int], *, peek: bool = False
) -> Checked:
    """Take ``cost``, the same or one for each, from all subjects, or from none. Raises BadInput, NotFound.

    It is atomic among the tasks of one event loop, because it does not wait.
    """
    costs = each_cost(subjects, cost)
    if len(costs) == 1 and not peek:
        ((subject, tokens),) = costs
        verdict = limiter.check(namespace, subject, tokens)
        return Checked(verdict.allowed, [(subject, verdict)])
    looked = [(subject, limiter.peek(namespace, subject, tokens)) for subject, tokens in costs]
    allowed = all(verdict.allowed for _, verdict in looked)
    if peek or not allowed:
        return Checked(allowed, looked)
    return Checked(True, [(subject, limiter.check(namespace, subject, tokens)) for subject, tokens in costs])

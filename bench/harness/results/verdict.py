"""What a measurement found, beside what it must reach: the checks, and the runs that they were made on."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Check:
    """One figure against its bound. ``measured`` and ``bound`` are text with units, as people read them."""

    what: str
    measured: str
    bound: str
    kept: bool

    @property
    def cells(self) -> list[str]:
        """Its row of a table in a document."""
        return [self.what, self.measured, self.bound, "yes" if self.kept else "**no**"]


@dataclass(frozen=True)
class Verdict:
    """``name`` selects the measurement; ``claim`` is the sentence that its checks decide."""

    name: str
    claim: str
    checks: list[Check]
    runs: list[dict[str, object]] = field(default_factory=list)  # flat objects
    settings: dict[str, object] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)  # why a run does not count; empty: all of them do

    @property
    def valid(self) -> bool:
        return not self.reasons

    @property
    def reached(self) -> bool:
        return self.valid and all(check.kept for check in self.checks)

    @property
    def line(self) -> str:
        if not self.valid:
            return f"{self.name}: no verdict: {'; '.join(self.reasons)}"
        missed = [f"{check.what} {check.measured}, must be {check.bound}" for check in self.checks if not check.kept]
        return f"{self.name}: reached" if not missed else f"{self.name}: fell short: {'; '.join(missed)}"


def at_most(what: str, value: float, limit: float, unit: str) -> Check:
    return Check(what, f"{value:.4g} {unit}", f"at most {limit:g} {unit}", value <= limit)


def within(what: str, value: float, target: float, part: float, unit: str) -> Check:
    """``value`` within ``part`` (0.01: one percent) of ``target``."""
    bound = f"{target:g} {unit} ± {100 * part:g} %"
    return Check(what, f"{value:.4g} {unit}", bound, abs(value - target) <= part * target)


def none_of(what: str, count: int) -> Check:
    return Check(what, f"{count}", "0", count == 0)

"""The kinds of policies of a contract. Their values are whole numbers, in the units of the core (``limiting/core``).

Rates are in micro-tokens/s, bursts and debts in micro-tokens (``srtm.units``), times in ns. Policies and contracts
have no cycles: without ``gc`` the collector does not go through ten thousand of them while decisions wait.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from srtm.contracts.duration import duration_text
from srtm.units import MICRO, from_micro

MOST_POLICIES = 8  # of a contract
LARGEST_LOG = 10_000  # requests: a log keeps a time for each, 16 bytes
MOST_SLICES = 1_000  # of a window, 4 bytes each
LONGEST_NS = 366 * 86_400 * 10**9

Json = dict[str, object]


class _Named(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    kind: ClassVar[str]
    name: str

    def to_core(self) -> Json:
        """Return the policy as the core reads it. What is kept on disk is not its business."""
        return {
            "kind": self.kind,
            **{name: value for name, value in msgspec.structs.asdict(self).items() if name != "persist"},
        }

    def to_json(self) -> Json:
        """Return the table of a contract file that gives this policy."""
        kept: Json = {"persist": True} if persists(self) else {}
        return {"name": self.name, "kind": self.kind, **self._table(), **kept}

    def _table(self) -> Json:
        raise NotImplementedError


class _Refilled(_Named, frozen=True, kw_only=True, gc=False):
    rate_micro: int
    burst_micro: int
    persist: bool = False  # what subjects have used is there after a restart of the limit service

    @property
    def quota(self) -> int:
        """The most tokens at once, whole."""
        return self.burst_micro // MICRO

    @property
    def window_ns(self) -> int:
        """How long it takes to fill, ns."""
        return -(-self.burst_micro * 10**9 // self.rate_micro)


class Bucket(_Refilled, frozen=True, kw_only=True, gc=False):
    """The exact token bucket. In any time dt at most ``burst + rate * dt`` tokens pass.

    A correction may leave it below zero, by at most ``max_debt_micro``: nothing passes until that is paid.
    """

    kind = "bucket"
    max_debt_micro: int

    def _table(self) -> Json:
        numbers = {"rate": self.rate_micro, "burst": self.burst_micro, "max_debt": self.max_debt_micro}
        return {name: from_micro(micro) for name, micro in numbers.items()}


class Pace(_Refilled, frozen=True, kw_only=True, gc=False):
    """The leaky bucket: who comes too early is let in, and told to wait for at most ``max_wait_ns``."""

    kind = "pace"
    max_wait_ns: int

    def _table(self) -> Json:
        numbers = {"rate": from_micro(self.rate_micro), "burst": from_micro(self.burst_micro)}
        return {**numbers, "max_wait": duration_text(self.max_wait_ns)}


class Window(_Named, frozen=True, kw_only=True, gc=False):
    """At most ``quota`` in ``window_ns``, counted in ``slices``.

    ``weighted``: the slice that leaves the window counts by the part of it that is still inside. One slice, not
    weighted: the fixed window. One, weighted: the approximation by two counters. ``aligned``: slices begin where wall
    clocks show a multiple of their length.
    """

    kind = "window"
    quota: int
    window_ns: int
    slices: int
    weighted: bool
    aligned: bool
    persist: bool = False  # as of a bucket

    def _table(self) -> Json:
        switches = {"slices": self.slices, "weighted": self.weighted, "aligned": self.aligned}
        return {"quota": self.quota, "window": duration_text(self.window_ns), **switches}


class Log(_Named, frozen=True, kw_only=True, gc=False):
    """At most ``quota`` in any ``window_ns``, exactly."""

    kind = "log"
    quota: int
    window_ns: int

    def _table(self) -> Json:
        return {"quota": self.quota, "window": duration_text(self.window_ns)}


class Concurrency(_Named, frozen=True, kw_only=True, gc=False):
    """At most ``quota`` at once. One that is not released ends ``expires_ns`` after it began."""

    kind = "concurrency"
    quota: int
    expires_ns: int

    def _table(self) -> Json:
        return {"quota": self.quota, "expires": duration_text(self.expires_ns)}

    @property
    def window_ns(self) -> None:
        """None: it is there again when requests end."""
        return None


def persists(policy: _Named) -> bool:
    """Whether what subjects have used of a policy is kept on disk."""
    return getattr(policy, "persist", False) is True


Policy = Bucket | Pace | Window | Log | Concurrency

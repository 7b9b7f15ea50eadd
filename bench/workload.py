"""What the load generator is asked to do: a ``Plan``, plain data, compiled once by ``srtm._native.LoadGen``.

Open loop: every publisher's intended send instants are drawn from the seed before and independently of what the system under test does, and latency counts from them.
Publishers that share a ``group`` fire together: one process drawn for the group, all its members at the same instants.
"""

from __future__ import annotations

import msgspec


class Publishers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Columns of equal length, one entry a publisher."""

    ids: list[str]
    target: list[int]  # index into Plan.targets
    rate: list[float]  # mean msg/s; a batch of n fires rate / n times a second
    batch: list[int]
    group: list[int]  # -1: alone
    process: list[str]  # "poisson" | "periodic" (random phase)


class Subscriber(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One consumer connection; acknowledges every message, asks for output_buffer_size = -1."""

    target: int
    channel: str = "bench"
    rdy: int = 2500


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Made by benches and the demo, read by ``srtm._native.LoadGen`` (as JSON)."""

    topic: str
    targets: list[str]  # HOST:PORT of brokers
    publishers: Publishers
    subscribers: list[Subscriber]
    duration_s: float  # measured part
    warmup_s: float = 1.0  # sent and received, not measured
    drain_s: float = 5.0  # longest wait for what is still on its way
    message_size: int = 100  # bytes of body, at least 32: run id, publisher, sequence, intended instant
    seed: int = 1
    slo_ms: float = 1.0
    percentile: float = 99.0
    mpub: bool = True  # a batch goes as one MPUB; false: as PUBs in one write

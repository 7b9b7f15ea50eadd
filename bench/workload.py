"""What the load generator is asked to do: a ``Plan``, plain data, compiled once by ``srtm._native.LoadGen``.

Open loop: every publisher's intended send instants are drawn from the seed before and independently of what the system
under test does, and latency counts from them. Publishers that share a ``group`` fire together: one process drawn for
the group, all its members at the same instants; so they have one process and one rate / batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from srtm.errors import BadInput


class Publishers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Columns of equal length, one entry a publisher."""

    ids: list[str]
    target: list[int]  # index into Plan.targets
    rate: list[float]  # mean msg/s; a batch of n fires rate / n times a second
    batch: list[int]
    group: list[int]  # -1: alone
    process: list[str]  # "poisson" | "periodic" (random phase) | "staggered" (periodic, at even phases)


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
    keep_each: bool = False  # the result names instant and latency of each message


def modelled(
    target: Sequence[int],
    rate: float,
    *,
    group_size: int = 1,
    id_prefix: str = "publisher-",
    process: str = "poisson",
    batch: int = 1,
) -> Publishers:
    """A model block of a topic file as columns: a publisher for each entry of ``target`` (index into ``Plan.targets``).

    Each sends ``rate`` msg/s; ``group_size`` in a row fire together (1: all are independent). Raises BadInput for a
    group size below 1.
    """
    if group_size < 1:
        raise BadInput("group_size", group_size, "must be at least 1")
    count = len(target)
    return Publishers(
        ids=[f"{id_prefix}{number}" for number in range(count)],
        target=list(target),
        rate=[rate] * count,
        batch=[batch] * count,
        group=[-1] * count if group_size == 1 else [number // group_size for number in range(count)],
        process=[process] * count,
    )

"""What the load generator is asked to do: a ``Plan``, plain data, compiled once by ``srtm._native.LoadGen``.

Open loop: every publisher's intended send instants are drawn from the seed (or read from a recording) before and
independently of what the system under test does, and latency counts from them. Publishers that share a ``group`` fire
together: one process drawn for the group, all its members at the same instants, or each so much later as its offset
says; so they have one process and one rate / batch.
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
    process: list[str]  # "poisson" | "periodic" (random phase) | "staggered" (periodic, at even phases) | "trace"
    offset_ns: list[int] = []  # how much later than its process a publisher sends; empty: nobody does
    instants_ns: list[list[int]] = []  # from the start of the run, of those with process "trace"; empty: there are none


class Subscriber(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One consumer connection. Of NSQ it acknowledges every message and asks for output_buffer_size = -1; the other
    protocols have no channels, so no two subscribers at one target may name the same."""

    target: int
    channel: str = "bench"
    rdy: int = 2500


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Made by benches and the demo, read by ``srtm._native.LoadGen`` (as JSON)."""

    topic: str
    targets: list[str]  # HOST:PORT of brokers
    topics: list[str] = []  # by target, where they differ (one address may stand there twice); empty: ``topic`` at all
    subscribe_at: list[str] = []  # where subscribers connect, by target; empty: where publishers do
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
    protocol: str = "nsq"  # "nsq" | "nats" | "mqtt" (3.1.1) | "redis" (Pub/Sub); of all targets
    qos: int = 0  # of mqtt: 0 | 1 | 2
    own_names: bool = False  # of mqtt: each publisher's client identifier is its id, and it publishes to TOPIC/ID
    durable: bool = False  # of mqtt: the subscribers' sessions are kept when their connections end


def joined(parts: Sequence[Publishers]) -> Publishers:
    """All of them; groups of different parts stay apart."""
    groups, first = [], 0
    for part in parts:
        groups += [group if group < 0 else first + group for group in part.group]
        first = max([first - 1, *groups]) + 1
    return Publishers(
        ids=[one for part in parts for one in part.ids],
        target=[one for part in parts for one in part.target],
        rate=[one for part in parts for one in part.rate],
        batch=[one for part in parts for one in part.batch],
        group=groups,
        process=[one for part in parts for one in part.process],
        offset_ns=[one for part in parts for one in part.offset_ns or [0] * len(part.ids)],
        instants_ns=[one for part in parts for one in part.instants_ns or [[] for _ in part.ids]],
    )


def modelled(
    target: Sequence[int],
    rate: float,
    *,
    group_size: int = 1,
    noise_ns: int = 0,
    id_prefix: str = "publisher-",
    process: str = "poisson",
    batch: int = 1,
) -> Publishers:
    """A model block of a topic file as columns: a publisher for each entry of ``target`` (index into ``Plan.targets``).

    Each sends ``rate`` msg/s; ``group_size`` in a row fire together (1: all are independent), spread evenly over
    ``noise_ns``. Raises BadInput for a group size below 1, or noise without groups.
    """
    if group_size < 1:
        raise BadInput("group_size", group_size, "must be at least 1")
    if noise_ns and group_size == 1:
        raise BadInput(
            "noise_ns", noise_ns, "must be 0 where all are independent: members of a group are spread over it"
        )
    count = len(target)
    return Publishers(
        ids=[f"{id_prefix}{number}" for number in range(count)],
        target=list(target),
        rate=[rate] * count,
        batch=[batch] * count,
        group=[-1] * count if group_size == 1 else [number // group_size for number in range(count)],
        process=[process] * count,
        offset_ns=[number % group_size * noise_ns // (group_size - 1) for number in range(count)] if noise_ns else [],
    )

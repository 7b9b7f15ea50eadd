"""Latencies of topics as Prometheus's classic histograms, made from the engine's. Pure.

The text is written here: a thousand topics have 45,000 lines, for which prometheus-client takes half a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec

from broker.snapshot import Part

if TYPE_CHECKING:
    from srtm._native import Engine

# {kind: (metric, what it is)}
KINDS = {
    "access": ("srtm_topic_access_seconds", "From arrival until the token bucket let a message go"),
    "processing": ("srtm_topic_processing_seconds", "From then until it was sent, without the wait for a consumer"),
    "total": ("srtm_topic_latency_seconds", "From arrival until a message was sent"),
}


class Buckets(Part, frozen=True):
    """``counts``: of the values up to each bound and above the one before, then above all bounds."""

    counts: list[int]
    sum_ns: int


class TopicBuckets(Part, frozen=True):
    """What a topic has delivered since its start."""

    topic: str
    bounds_ns: list[int]
    late: int  # messages whose access and processing took longer than promised
    access: Buckets
    processing: Buckets
    total: Buckets


_DECODER = msgspec.json.Decoder(list[TopicBuckets])


def take(engine: Engine, topics: Sequence[str]) -> list[TopicBuckets]:
    """Those of ``topics`` that exist. Raises RuntimeError if the engine has stopped."""
    return _DECODER.decode(engine.latency_buckets(topics))


def text(topics: Sequence[TopicBuckets]) -> Iterator[bytes]:
    """One histogram a kind. Names of topics need no escapes."""
    ladders = {tuple(topic.bounds_ns) for topic in topics}
    labels = {ladder: [*(repr(bound / 1e9) for bound in ladder), "+Inf"] for ladder in ladders}
    for kind, (name, what) in KINDS.items():
        yield f"# HELP {name} {what}\n# TYPE {name} histogram\n".encode()
        for topic in topics:
            buckets: Buckets = getattr(topic, kind)
            yield "".join(_lines(name, topic.topic, labels[tuple(topic.bounds_ns)], buckets)).encode()


def _lines(name: str, topic: str, bounds: list[str], buckets: Buckets) -> Iterator[str]:
    below = list(accumulate(buckets.counts))
    for bound, count in zip(bounds, below, strict=True):
        yield f'{name}_bucket{{topic="{topic}",le="{bound}"}} {count}\n'
    yield f'{name}_count{{topic="{topic}"}} {below[-1]}\n'
    yield f'{name}_sum{{topic="{topic}"}} {buckets.sum_ns / 1e9!r}\n'

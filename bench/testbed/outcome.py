"""What a run on a testbed came to: one-way latency, the network's part and the broker's apart, a verdict. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.harness.cluster_runs.trace import Trace
from bench.harness.load.histogram_files import Curves, by_second, encoded
from bench.harness.load.run import Histograms, RunResult
from bench.harness.results.intervals import percentile_ms
from bench.harness.results.page import Table
from bench.harness.results.results import histogram_ms, merged
from bench.harness.results.verdict import Check, Verdict, at_most, none_of
from bench.testbed.net.one_way_delay import OneWay
from bench.testbed.probes.listening import Heard
from bench.testbed.session import Session, Traffic

ALL = "all"
LATENESS_PART, SENT_PART = 0.2, 0.999
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One broker's messages, or all. ms; network ways are those of datagrams beside the traffic."""

    broker: str
    messages: int
    p50_ms: float  # intended instant to receipt on the subscriber's host
    p99_ms: float
    p999_ms: float
    max_ms: float
    least_ms: float
    to_p50_ms: float  # publisher's host to broker
    to_p99_ms: float
    access_p99_ms: float  # in the broker: arrival to due
    inside_p50_ms: float  # in the broker: arrival to the last byte written
    inside_p99_ms: float
    from_p50_ms: float  # broker to subscriber's host
    from_p99_ms: float

    def cells(self) -> list[str]:
        times = [value for value in asdict(self).values() if isinstance(value, float)]
        return [self.broker, f"{self.messages:,}", *(f"{value:.3g}" for value in times)]


HEADER = [
    "broker",
    "messages",
    "one way p50, ms",
    "p99",
    "p99.9",
    "max",
    "min",
    "network to broker p50",
    "p99",
    "access p99",
    "in broker p50",
    "p99",
    "network from broker p50",
    "p99",
]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    parts: Sequence[Part]  # of each broker, then of all
    sent: int
    received: int
    lost: int
    duplicates: int
    refused: int
    lateness_p99_ms: float
    datagrams: int
    datagrams_lost: int
    reasons: Sequence[str]  # why the run does not count

    @property
    def worst_p99_ms(self) -> float:
        return max(part.p99_ms for part in self.parts)

    def rows(self) -> list[dict[str, Any]]:
        whole = {key: value for key, value in asdict(self).items() if key not in ("parts", "reasons")}
        return [{"name": part.broker, **asdict(part), **(whole if part.broker == ALL else {})} for part in self.parts]


def outcome(session: Session, traffic: Traffic) -> Outcome:
    heard = [(one, _columns(one)) for one in session.heard]
    parts = [
        _part(broker.name, _latencies(heard, at), [session.traces[broker.name]], session)
        for at, broker in enumerate(session.brokers)
    ]
    everything = _latencies(heard, None)
    parts.append(_part(ALL, everything, list(session.traces.values()), session))
    unique = len(set(chain.from_iterable(zip(one.run, one.publisher, one.sequence, strict=True) for one, _ in heard)))
    sent, refused = sum(one.sent for one in session.sent), sum(one.refused for one in session.sent)
    late_ms = histogram_ms(merged(one.histograms.lateness for one in session.sent), 99)
    ways = [*session.to_brokers, *session.from_brokers]
    return Outcome(
        parts=parts,
        sent=sent,
        received=len(everything),
        lost=sent - refused - unique,
        duplicates=len(everything) - unique,
        refused=refused,
        lateness_p99_ms=late_ms,
        datagrams=sum(way.sent for way in ways),
        datagrams_lost=sum(way.lost for way in ways),
        reasons=_reasons(session.sent, late_ms, max(parts[-1].p99_ms, traffic.promise_ms)),
    )


def curves(session: Session, traffic: Traffic) -> Curves:
    """One-way latency as subscribers' hosts heard it; lateness and acknowledgement as publishers' hosts told."""
    intended_ns = np.array([at for one in session.heard for at in one.intended_ns], dtype=np.int64)
    took_ns = np.concatenate([_columns(one)[1] for one in session.heard])
    first_ns = int(intended_ns.min()) if len(intended_ns) else 0
    sent = [one.histograms for one in session.sent]
    return Curves(
        from_unix_ns=min(one.measured_from_unix_ns for one in session.sent),
        duration_s=traffic.seconds,
        timeline=by_second(intended_ns - first_ns, took_ns),
        histograms=Histograms(
            latency=encoded(took_ns),
            lateness=_sum(one.lateness for one in sent),
            ack=_sum(one.ack for one in sent),
        ),
    )


def judged(found: Outcome, traffic: Traffic, uses: str) -> Verdict:
    """The promise by the worst broker."""
    worst = max((part for part in found.parts[:-1]), key=lambda part: part.p99_ms)
    checks: list[Check] = [
        at_most(f"one-way p99 of {worst.broker}", worst.p99_ms, traffic.promise_ms, "ms"),
        none_of("messages lost", found.lost),
        none_of("messages refused", found.refused),
    ]
    settings = {**asdict(traffic), "uses": uses}
    return Verdict(
        "testbed", "the promise is kept on every broker", checks, found.rows(), settings, list(found.reasons)
    )


def shown(found: Outcome, verdict: Verdict, uses: str) -> str:
    counts = (
        f"{found.sent:,} sent, {found.received:,} received, {found.lost:,} lost, {found.duplicates:,} twice, "
        f"{found.refused:,} refused; generator late by {found.lateness_p99_ms:.3g} ms at p99; "
        f"network by {found.datagrams:,} datagrams, {found.datagrams_lost:,} of them lost."
    )
    table = Table(header=HEADER, rows=[part.cells() for part in found.parts])
    return f"{table.markdown}\n\n{counts}\n{uses}.\n{verdict.line}."


def _sum(histograms: Iterable[str]) -> str:
    return str(merged(histograms).encode().decode())


def _columns(heard: Heard) -> tuple[Ints, Ints]:
    """(broker, latency) of each message."""
    took = np.array(heard.received_ns, dtype=np.int64) - np.array(heard.intended_ns, dtype=np.int64)
    return np.array(heard.source, dtype=np.int64), took


def _latencies(heard: Sequence[tuple[Heard, tuple[Ints, Ints]]], broker: int | None) -> Ints:
    some = [took if broker is None else took[source == broker] for _, (source, took) in heard]
    return np.concatenate([*some, np.array([], dtype=np.int64)])


def _part(name: str, took_ns: Ints, traces: Sequence[Trace], session: Session) -> Part:
    """``session`` measured from the first intended instant that counts."""
    first_ns = min((min(one.intended_ns) for one in session.heard if one.intended_ns), default=session.started_ns)
    measured = [trace.since(first_ns) for trace in traces]
    access = np.concatenate([trace.access_ns for trace in measured])
    inside = np.concatenate([(trace.sent_ns - trace.arrival_ns)[trace.sent_ns > 0] for trace in measured])
    to, back = _took(session.to_brokers, name, "target"), _took(session.from_brokers, name, "source")
    return Part(
        broker=name,
        messages=len(took_ns),
        p50_ms=percentile_ms(took_ns, 50),
        p99_ms=percentile_ms(took_ns, 99),
        p999_ms=percentile_ms(took_ns, 99.9),
        max_ms=percentile_ms(took_ns, 100),
        least_ms=float(took_ns.min(initial=0 if not len(took_ns) else took_ns[0])) / 1e6,
        to_p50_ms=percentile_ms(to, 50),
        to_p99_ms=percentile_ms(to, 99),
        access_p99_ms=percentile_ms(access, 99),
        inside_p50_ms=percentile_ms(inside, 50),
        inside_p99_ms=percentile_ms(inside, 99),
        from_p50_ms=percentile_ms(back, 50),
        from_p99_ms=percentile_ms(back, 99),
    )


def _took(ways: Sequence[OneWay], broker: str, end: str) -> Ints:
    mine = [way.took_ns for way in ways if broker == ALL or getattr(way, end).name == broker]
    return np.array([took for some in mine for took in some], dtype=np.int64)


def _reasons(sent: Sequence[RunResult], late_ms: float, compared_ms: float) -> list[str]:
    reasons = []
    offered, whole = sum(one.offered for one in sent), sum(one.sent for one in sent)
    if late_ms > LATENESS_PART * compared_ms:
        reasons.append(
            f"the generator was late by {late_ms:.3g} ms at p99: more than {LATENESS_PART:.0%} of {compared_ms:.3g} ms"
        )
    if whole < SENT_PART * offered:
        reasons.append(f"{whole:,} of {offered:,} messages were sent: less than {SENT_PART:.1%}")
    return reasons

"""``srtm bench scale``: the placement and the simulation far beyond the paper's scale, with what they take.

Publishers of 10 msg/s in batches of 10, in groups that fire together; SRTM spreads every group. The buckets are exact.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from bench.experiments.lab.layouts import MACHINE, PAPER, envelope, loads_of, placed, residual, split
from bench.harness.cluster_runs.trace import percentile_ms
from bench.harness.results.document import EVALUATION, markdown_table, refuse_without_block
from bench.harness.results.publish import hand_over
from bench.harness.results.results import Results
from bench.harness.results.verdict import Check, Verdict
from bench.simulation.brokers import WARM_UP, Share, serve
from bench.simulation.traffic import SECOND_NS, Fleet

BLOCK = "scale"
CLAIM = "At least ten million messages are simulated in a second of one core."
LEAST_PER_S = 10_000_000
BATCH = 10
_STEPS = 10  # that a person is told of


@dataclass(frozen=True, kw_only=True)
class ScaleOptions:
    brokers: int = 1_000
    publishers: int = 1_000_000
    group_size: int = 25
    seconds: float = 3.0  # of traffic
    seed: int = 1
    json_file: str | None = None
    document: bool = False

    @property
    def fleet(self) -> Fleet:
        return Fleet(count=self.publishers, batch=BATCH, group_size=self.group_size)


@dataclass(kw_only=True)
class Scaled:
    """``took_s``: {stage: processor time}. Percentiles are of each broker's measured part, in order of brokers."""

    took_s: dict[str, float] = field(default_factory=dict)
    bucket: str = ""
    residual: float = 0.0  # msg/s
    messages: int = 0
    p99_ms: list[float] = field(default_factory=list)
    access_p99_ms: list[float] = field(default_factory=list)
    memory_bytes: int = 0  # at most

    @property
    def simulated_per_s(self) -> float:
        return self.messages / self.took_s["buckets and servers"]

    def row(self) -> dict[str, object]:
        return {
            **{f"{stage.replace(' ', '_')}_s": took for stage, took in self.took_s.items()},
            "bucket": self.bucket,
            "residual": self.residual,
            "messages": self.messages,
            "messages_per_s": self.simulated_per_s,
            "median_p99_ms": float(np.median(self.p99_ms)),
            "worst_p99_ms": max(self.p99_ms),
            "worst_access_p99_ms": max(self.access_p99_ms),
            "memory_bytes": self.memory_bytes,
        }


def scale(options: ScaleOptions, show: Callable[[str], None]) -> Verdict:
    """Raises BadInput for a file that cannot be written."""
    document = EVALUATION if options.document else None
    refuse_without_block(document, BLOCK)
    started = time.time()
    found = run(options, show)
    speed = found.simulated_per_s
    check = Check("messages a second of one core", f"{speed:,.0f}", f"at least {LEAST_PER_S:,}", speed >= LEAST_PER_S)
    settings = {
        "brokers": options.brokers,
        "publishers": options.publishers,
        "group_size": options.group_size,
        "seconds": options.seconds,
        "machine": MACHINE,
    }
    verdict = Verdict(BLOCK, CLAIM, [check], [found.row()], settings)
    block = section(options, found)
    show(f"{block}\n\n{verdict.line}")
    results = Results.of_verdicts(f"bench {BLOCK}", [verdict], seed=options.seed, started=started, settings=settings)
    text = f"{block}\n\n{verdict.line}."
    hand_over(text, results, block=BLOCK, document=document, json_file=options.json_file, data=True)
    return verdict


def run(options: ScaleOptions, show: Callable[[str], None]) -> Scaled:
    """A stage after the other."""
    found, fleet = Scaled(), options.fleet
    with _stage("placement", found, show):
        placement = placed(fleet, "srtm", options.brokers, options.seed)
    with _stage("size of the bucket", found, show):
        bucket = envelope(fleet, options.seconds, options.seed)
        shares = split(fleet, placement, options.brokers, bucket)
    with _stage("arrivals", found, show):
        rng = np.random.default_rng(options.seed)
        arrivals = fleet.arrivals(placement, options.brokers, options.seconds, rng)
    heads = np.bincount(placement, minlength=options.brokers)
    for broker, (arrival_ns, share) in enumerate(zip(arrivals, shares, strict=True)):
        _one(options, found, arrival_ns, share, int(heads[broker]), rng)
        if (broker + 1) % max(1, options.brokers // _STEPS) == 0:
            show(f"{broker + 1:,} of {options.brokers:,} brokers, {found.messages:,} messages")
    found.bucket = bucket.text
    found.residual = residual(fleet, "srtm", loads_of(fleet, placement, options.brokers), brokers=options.brokers)
    found.memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
    return found


def _one(
    options: ScaleOptions, found: Scaled, arrival_ns: np.ndarray, share: Share, heads: int, rng: np.random.Generator
) -> None:
    begun_s = time.process_time()
    delays = serve(arrival_ns, share, PAPER, batch=BATCH, publishers=heads, rng=rng)
    took_s = found.took_s.get("buckets and servers", 0.0)
    found.took_s["buckets and servers"] = took_s + time.process_time() - begun_s
    found.messages += len(arrival_ns)
    first = int(np.searchsorted(arrival_ns, round(WARM_UP * options.seconds * SECOND_NS)))
    if first == len(arrival_ns):
        return
    for kind, values in (("p99_ms", delays.total_ns), ("access_p99_ms", delays.access_ns)):
        getattr(found, kind).append(percentile_ms(values[first:], 99))


@contextmanager
def _stage(name: str, found: Scaled, show: Callable[[str], None]) -> Iterator[None]:
    begun_s = time.process_time()
    yield
    found.took_s[name] = time.process_time() - begun_s
    show(f"{name}: {found.took_s[name]:.3g} s")


def section(options: ScaleOptions, found: Scaled) -> str:
    """What the document shows."""
    fleet, row = options.fleet, found.row()
    groups = -(-fleet.count // fleet.group_size)
    how = (
        f"{fleet.count:,} publishers of {fleet.rate:g} msg/s in {groups:,} groups, Poisson, batch {fleet.batch}, on "
        f"{options.brokers:,} brokers; {options.seconds:g} s of traffic; {found.bucket}; {MACHINE}. Times are of one "
        "core."
    )
    table = markdown_table(
        ["what", "found"],
        [
            *([stage, f"{took:.3g} s"] for stage, took in found.took_s.items()),
            ["messages", f"{found.messages:,}"],
            ["messages a second, buckets and servers", f"{found.simulated_per_s:,.0f}"],
            ["p99 of a broker: median, worst", f"{row['median_p99_ms']:.3g}, {row['worst_p99_ms']:.3g} ms"],
            ["access p99 of the worst", f"{row['worst_access_p99_ms']:.3g} ms"],
            ["capacity left", f"{found.residual:,.0f} msg/s"],
            ["memory, at most", f"{found.memory_bytes / 1e9:.2g} GB"],
        ],
    )
    return "\n\n".join([f"Claim: {CLAIM}", how, table])

"""``srtm bench adaptation``: traffic moves from one real broker to another, and the split follows, mode by mode.

10,000 Poisson msg/s on two brokers, r = 11,000, b = 25 (batch 10: 248). What is reported comes from the brokers' own
traces: how soon the backlog of the step was gone, how soon the p99 access delay of the trailing second was back at its
largest value before the step, and the worst broker's p99 in the last seconds.

The traffic is that of publishers whom the topic does not name, so that nobody is told to move. Three generators: who
stays, who leaves, who comes; those who leave are stopped as soon as the first message of those who come was sent.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import numpy as np
import trio

from bench.aftermath import BEFORE_NS, SECOND_NS, Aftermath
from bench.document import write_block
from bench.experiments.step_runs import (
    MODES,
    STEPS,
    Step,
    StepRun,
    alike,
    claim,
    file_of,
    in_order,
    keep,
    kept,
    kept_in,
    markdown,
    missed,
    seconds,
)
from bench.provenance import provenance
from bench.results import Results, source_commit, write_results
from bench.run import RunProgress
from bench.trace import Trace, fetch_trace
from bench.workload import Plan, Publishers, Subscriber
from srtm._native import LoadGen
from srtm.distributor_client import DistributorClient, Json
from srtm.errors import BadInput, Unavailable
from srtm.replay import NEVER_NS
from srtm.supervisor import Cluster, cluster

LOAD, RATE = 10_000.0, 11_000.0  # msg/s
PUBLISHER_RATE = 10.0
MCAP = 20_000.0
BURSTS = {1: 25, 10: 248}
READY_WITHIN_S = 20.0
POLL_S = 0.002  # a generator has no other sign of its first message
BLOCK = "adaptation"
LONG = ("proportional",)
_TAIL_S = 5.0
_SETTLING_S = 1.0  # of a run: its generators begin
_AROUND_S = 5.0  # a topic is made, traces are fetched


@dataclass(frozen=True)
class AdaptationOptions:
    steps: tuple[str, ...] = tuple(STEPS)
    modes: tuple[str, ...] = MODES
    runs: int = 10
    before_s: float = 4.0
    after_s: float = 10.0
    long_s: float = 60.0  # instead of it, under proportional with the paper's window
    seed: int = 1
    directory: Path = Path("adaptation")  # a file for each run
    resume: bool = False  # keep those that are there, of these sources
    json_file: str | None = None
    document: Path | None = None  # to write the table into

    def watched_s(self, mode: str) -> float:
        return self.long_s if mode in LONG else self.after_s

    @property
    def first_before_s(self) -> float:
        """From when on, before the step, delays and backlogs count: the generators have begun by then."""
        return min(BEFORE_NS / SECOND_NS, self.before_s - _SETTLING_S)


def chosen(kind: str, names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Those named, in their order; all of ``known`` where none is. Raises BadInput."""
    for name in names:
        if name not in known:
            raise BadInput(kind, name, f"must be one of {', '.join(known)}")
    return tuple(names) or tuple(known)


async def adaptation(options: AdaptationOptions, show: Callable[[str], None]) -> list[StepRun]:
    """The runs that are missing, one after the other, on one cluster; then all that are kept. Raises Unavailable,
    BadInput (a run that is kept was made with other settings, or is none)."""
    started, sources = time.time(), source_commit()
    options.directory.mkdir(parents=True, exist_ok=True)
    if options.resume:
        kept_in(options.directory)  # what is no run is refused before hours have gone into others
    missing = [one for one in _order(options) if not (options.resume and is_kept(options, sources, *one))]
    made = []
    show(f"{len(missing)} runs, about {_estimate_s(options, missing) / 60:.0f} minutes")
    if missing:
        async with _cluster() as (running, client):
            for number, (name, mode, attempt) in enumerate(missing):
                run = await _run(running, client, STEPS[name], mode, attempt, options, sources, f"step-{number}")
                keep(file_of(options.directory, name, mode, attempt), run)
                made.append(run)
                figures = f"drained {seconds(run.drained_s)}, back {seconds(run.back_s)}"
                show(f"{run.step}, {mode}: {figures}, worst p99 {run.worst_p99_ms:.2f} ms")
    found = kept_in(options.directory) if options.resume else in_order(made)
    runs, others = alike(found, options.seed, sources)
    text = "\n\n".join([claim(runs, _TAIL_S), markdown(runs), *others])
    show("\n".join(["", text, *(f"fell short: {reason}" for reason in missed(runs))]))
    if options.document is not None:
        write_block(options.document, BLOCK, f"{text}\n\n{provenance(started)}")
    if options.json_file is not None:
        settings = {key: value for key, value in asdict(options).items() if key not in ("json_file", "document")}
        settings["directory"] = str(options.directory)
        results = Results.of(
            "bench adaptation", [run.row() for run in runs], seed=options.seed, started=started, settings=settings
        )
        write_results(options.json_file, results)
    return runs


def is_kept(options: AdaptationOptions, sources: str | None, step: str, mode: str, number: int) -> bool:
    """What other sources (a commit) found has to be found anew. Raises BadInput for a run that was made with other
    settings."""
    path = file_of(options.directory, step, mode, number)
    run = kept(path)
    if run is None:
        return False
    made, now = (run.before_s, run.watched_s, run.seed), (options.before_s, options.watched_s(mode), options.seed)
    if made != now:
        rule = (
            f"must be a run with before, after and seed {now}, is one with {made}: remove it, or name another directory"
        )
        raise BadInput("directory", str(path), rule)
    return run.commit == sources


def _estimate_s(options: AdaptationOptions, runs: Sequence[tuple[str, str, int]]) -> float:
    return sum(options.before_s + options.watched_s(mode) + _AROUND_S for _, mode, _ in runs)


def _order(options: AdaptationOptions) -> Iterator[tuple[str, str, int]]:
    """Rounds over everything, so that what disturbs the machine for a while disturbs no mode alone."""
    for attempt in range(options.runs):
        for name in options.steps:
            for mode in options.modes:
                yield name, mode, attempt


@asynccontextmanager
async def _cluster() -> AsyncIterator[tuple[Cluster, DistributorClient]]:
    with tempfile.TemporaryDirectory(prefix="srtm-adaptation-") as folder:
        async with (
            cluster(brokers=2, mcap=MCAP, data=Path(folder)) as running,
            DistributorClient(running.distributor) as client,
        ):
            yield running, client


async def _run(
    running: Cluster,
    client: DistributorClient,
    step: Step,
    mode: str,
    attempt: int,
    options: AdaptationOptions,
    sources: str | None,
    topic: str,
) -> StepRun:
    await client.create_or_change_topic(topic, topic_document(topic, step, mode))
    try:
        addresses = await _placed(client, topic)
        watched_s = options.watched_s(mode)
        plans = step_plans(topic, list(addresses.values()), step, options.before_s, watched_s, [options.seed, attempt])
        at_ns, ends_ns = await _traffic(plans, options.before_s, watched_s)
        http = {place.tcp_address: place.http_address for place in running.brokers}
        traces = [await fetch_trace(http[address], topic) for address in addresses.values()]
    finally:
        await client.remove_topic(topic, purge=True)
    return judged(step, mode, attempt, traces, at_ns, ends_ns, options, sources)


def judged(
    step: Step,
    mode: str,
    number: int,
    traces: Sequence[Trace],
    at_ns: int,
    ends_ns: int,
    options: AdaptationOptions,
    sources: str | None,
) -> StepRun:
    """What still waited is due never."""
    due_ns = [np.where(trace.due_ns < trace.arrival_ns, NEVER_NS, trace.due_ns) for trace in traces]
    arrival_ns, before_ns = [trace.arrival_ns for trace in traces], round(options.first_before_s * SECOND_NS)
    seen = Aftermath(arrival_ns, due_ns, at_ns, ends_ns, before_ns)
    before = Aftermath(arrival_ns, due_ns, at_ns, at_ns, before_ns)
    return StepRun(
        step=step.name,
        mode=mode,
        number=number,
        drained_s=_finite(seen.drained_s()),
        back_s=_finite(seen.back_s()),
        worst_p99_ms=seen.worst_p99_ms(ends_ns - round(_TAIL_S * SECOND_NS)),
        before_p99_ms=before.worst_p99_ms(at_ns - before_ns),
        messages=sum(len(trace) for trace in traces),
        before_s=options.before_s,
        watched_s=options.watched_s(mode),
        seed=options.seed,
        commit=sources,
    )


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


def topic_document(topic: str, step: Step, mode: str) -> Json:
    """A publisher for each broker, declared with what comes there before the step: that is the split to begin with."""
    name, _, window = mode.partition(", ")
    declared = {"ids": ["first", "second"], "rates": [LOAD * step.before, LOAD * (1 - step.before)]}
    adaptation = {"window_s": float(window.split()[0])} if window else {}
    return {
        "name": topic,
        "rate": RATE,
        "burst": BURSTS[step.batch],
        "mode": name,
        "split": "proportional" if name == "proportional" else "fitted",
        "placement": "lb",
        "adaptation": adaptation,
        "slo": {"percentile": 99, "latency_ms": 5},
        "publishers": [{**declared, "batch": step.batch}],
    }


async def _placed(client: DistributorClient, topic: str) -> dict[str, str]:
    """{publisher: its broker's address}, the one that counts before the step first, once all shares are in force."""
    with trio.move_on_after(READY_WITHIN_S):
        while True:
            view = await client.topic(topic)
            if len(view["brokers"]) == 2 and all(
                place["applied_version"] == place["share_version"] for place in view["brokers"]
            ):
                found = await client.publishers(topic)
                brokers = dict(zip(found["ids"], found["brokers"], strict=True))
                address = {place["broker"]: str(place["address"]) for place in view["brokers"]}
                return {who: address[brokers[who]] for who in ("first", "second")}
            await trio.sleep(0.05)
    raise Unavailable(f"topic {topic} was not on both brokers within {READY_WITHIN_S:g} s")


@dataclass(frozen=True)
class StepPlans:
    """Who sends all the time, only before the step, only after it."""

    stay: Plan
    leave: Plan
    come: Plan


def step_plans(
    topic: str, addresses: Sequence[str], step: Step, before_s: float, after_s: float, seed: Sequence[int]
) -> StepPlans:
    """Publishers of 10 msg/s each; on both brokers as many stay as the smaller of their parts."""
    before = [step.before, 1 - step.before]
    after = [step.after, 1 - step.after]
    stays = [min(pair) for pair in zip(before, after, strict=True)]
    everything = 2 * before_s + after_s  # it is stopped when the others have ended
    number = seed[0] * 1000 + seed[1]

    def plan(parts: Sequence[float], prefix: str, seconds: float) -> Plan:
        publishers = _publishers(parts, prefix, step.batch)
        return Plan(
            topic=topic,
            targets=list(addresses),
            publishers=publishers,
            subscribers=[Subscriber(target=at) for at in sorted(set(publishers.target))],
            duration_s=seconds,
            warmup_s=0.0,
            drain_s=0.0,
            seed=number,
        )

    return StepPlans(
        stay=plan(stays, "stay-", everything),
        leave=plan([was - rest for was, rest in zip(before, stays, strict=True)], "leave-", everything),
        come=plan([now - rest for now, rest in zip(after, stays, strict=True)], "come-", after_s),
    )


def _publishers(parts: Sequence[float], prefix: str, batch: int) -> Publishers:
    target = [at for at, part in enumerate(parts) for _ in range(round(part * LOAD / PUBLISHER_RATE))]
    return Publishers(
        ids=[f"{prefix}{number}" for number in range(len(target))],
        target=target,
        rate=[PUBLISHER_RATE] * len(target),
        batch=[batch] * len(target),
        group=[-1] * len(target),
        process=["poisson"] * len(target),
    )


async def _traffic(plans: StepPlans, before_s: float, after_s: float) -> tuple[int, int]:
    """When the step was and when it ended to be watched, ns of the monotonic clock."""
    with _generator(plans.stay) as stay, _generator(plans.leave) as leave, _generator(plans.come) as come:
        stay.start()
        leave.start()
        await _first_message(stay)
        await _first_message(leave)
        await trio.sleep(before_s)
        come.start()
        await _first_message(come)
        leave.stop()
        at_ns = time.monotonic_ns()
        await trio.sleep(after_s)
        return at_ns, time.monotonic_ns()


async def _first_message(generator: LoadGen) -> None:
    """Raises Unavailable."""
    deadline_s = trio.current_time() + READY_WITHIN_S
    while msgspec.json.decode(generator.progress(), type=RunProgress).sent == 0:
        if trio.current_time() > deadline_s:
            raise Unavailable(f"the generator sent nothing within {READY_WITHIN_S:g} s")
        await trio.sleep(POLL_S)


@contextmanager
def _generator(plan: Plan) -> Iterator[LoadGen]:
    """Stopped when the block ends."""
    generator = LoadGen(msgspec.json.encode(plan))
    try:
        yield generator
    finally:
        generator.stop()

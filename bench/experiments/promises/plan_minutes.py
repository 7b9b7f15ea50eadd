"""What a plan says of a list of sensors on a map, beside minutes of the same topic on real brokers.

The sensors stand around the detectors of METR-LA. Those close together fire together, as ``srtm topic groups
--by-place`` finds them. A minute is judged as the plan judges it: the broker with the latest access delay at the
promise's percentile decides, of those with at least 1 % of the messages.

A machine that stands still for a moment sends what was due meanwhile in one burst. A minute says nothing where what
arrived needs a clearly larger bucket than what was intended, by one bucket for all of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
import trio

from bench.data.sensors import CUT_KM, read_detectors
from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.harness.cluster_runs.assigned_traffic import plan_of, settled
from bench.harness.cluster_runs.placed_run import addresses, without_warmup
from bench.harness.cluster_runs.trace import Column, Trace, fetch_trace
from bench.harness.load.run import deliveries, run_plan
from bench.harness.results.intervals import percentile_ms
from bench.harness.results.panels import Panel, Series
from bench.harness.results.sources import PRODUCT
from bench.harness.results.verdict import Check
from srtm.analysis.places import near_groups
from srtm.client.distributor import DistributorClient, Json
from srtm.cluster.supervisor import Cluster, cluster
from srtm.token_bucket.kept_minutes import Promise, Server, needed_burst
from srtm.token_bucket.wilson import Interval, wilson_interval

SENSORS, RATE = 300, 2.0  # msg/s of one sensor: a stop of the machine bunches few messages, compared with b
JITTER_DEGREES = 0.005  # about 500 m
SLACKS = (1.1, 1.3)  # r over the load
BURSTS = ("auto", "paper")
PERCENTILE, SLO_MS = 99.0, 5.0
BROKERS, MCAP = 3, 400.0  # msg/s a broker: the load takes two
WARMUP_S = 3.0
WITHIN_S = 30.0  # until shares are in force
LEAST_PART = 0.01  # of the messages: a broker with fewer does not decide
BUNCHED = 1.1  # of the burst that the intended traffic needs
TOPIC = "map"
OPTIONS = ("--realtime", "--trace-entries", "100000")  # a minute of all sensors, and more


@dataclass(frozen=True, kw_only=True)
class Case:
    slack: float
    burst: str


@dataclass(frozen=True, kw_only=True)
class Minute:
    """``worst_ms``: access delay at the promise's percentile, of the broker that decides."""

    worst_ms: float
    reasons: Sequence[str]  # why it says nothing; none: it counts

    @property
    def kept(self) -> bool:
        return self.worst_ms <= SLO_MS


def figure(effort: Effort) -> Figure:
    cases = [Case(slack=slack, burst=burst) for burst in BURSTS for slack in SLACKS]
    rows = trio.run(_side_by_side, cases, effort)
    return Figure(
        rows=rows,
        panels=[_panel(rows)],
        checks=checks(rows),
        conditions=f"{SENSORS} sensors of {RATE:g} msg/s, Poisson, groups within {CUT_KM:g} km; p{PERCENTILE:g} <= "
        f"{SLO_MS:g} ms; {BROKERS} brokers of {MCAP:,.0f} msg/s; all rows at once, a cluster each; "
        "reactors and generators before all ordinary work of the machine",
    )


async def _side_by_side(cases: Sequence[Case], effort: Effort) -> list[Row]:
    rows: dict[Case, Row] = {}

    async def one(case: Case) -> None:
        rows[case] = await _measure(case, effort)

    async with trio.open_nursery() as nursery:
        for case in cases:
            nursery.start_soon(one, case)
    return [rows[case] for case in cases]


async def _measure(case: Case, effort: Effort) -> Row:
    document = document_of(case, effort.seed)
    with TemporaryDirectory(prefix="srtm-minutes-") as data:
        async with (
            cluster(brokers=BROKERS, mcap=MCAP, data=Path(data), broker_options=OPTIONS) as running,
            DistributorClient(running.distributor, timeout_s=120.0) as client,
        ):
            plan = await client.plan(document)
            await client.create_or_change_topic(TOPIC, document)
            view = await settled(client, TOPIC, within_s=WITHIN_S)
            assignments = await client.publishers(TOPIC)
            minutes: list[Minute] = []
            for seed in effort.seeds():
                effort.step(f"r = {case.slack:g} times the load, b {case.burst}, {said(minutes)}")
                minutes.append(await _minute(running, assignments, document["rate"], effort.seconds, seed))
    return row(case, plan, len(view["brokers"]), minutes)


async def _minute(running: Cluster, assignments: Json, rate: float, seconds: float, seed: int) -> Minute:
    plan = plan_of(
        TOPIC,
        assignments,
        addresses(running),
        seconds=seconds,
        warmup_s=WARMUP_S,
        seed=seed,
        slo_ms=SLO_MS,
        percentile=PERCENTILE,
    )
    begun_ns = time.monotonic_ns()
    result = await run_plan(msgspec.structs.replace(plan, keep_each=True), realtime=True)
    traces = {place.name: await fetch_trace(place.http_address, TOPIC) for place in running.brokers}
    recorded = {broker: trace for broker, trace in traces.items() if len(trace.since(begun_ns))}
    intended_ns, _ = deliveries(result)
    return minute_of(result.reasons, intended_ns, list(without_warmup(recorded, begun_ns, WARMUP_S).values()), rate)


def minute_of(reasons: Sequence[str], intended_ns: Column, traces: Sequence[Trace], rate: float) -> Minute:
    """Judge one minute from what each broker recorded of it. ``rate``: the topic's, msg/s."""
    least = LEAST_PART * sum(map(len, traces))
    delays = [trace.access_ns for trace in traces if len(trace) >= least]
    meant = burst_for(intended_ns, rate)
    came = burst_for(np.concatenate([trace.arrival_ns for trace in traces]), rate)
    if came > BUNCHED * meant:
        reasons = [*reasons, f"bunched: {came:.0f} tokens for what arrived, {meant:.0f} for what was meant"]
    return Minute(worst_ms=max(percentile_ms(one, PERCENTILE) for one in delays), reasons=reasons)


def burst_for(instants_ns: Column, rate: float) -> float:
    """Return the burst with which one bucket keeps the promise, messages."""
    seconds = (np.sort(instants_ns) - instants_ns.min()) / 1e9
    bucket, promise = Server(rate=rate, service_s=0.0), Promise(percentile=PERCENTILE, latency_s=SLO_MS / 1e3)
    return max(1.0, needed_burst(seconds, bucket, promise))


def document_of(case: Case, seed: int) -> Json:
    """The topic as an operator submits it who has a map of the sensors."""
    numbers = near_groups(places := sensors(seed), CUT_KM)
    return {
        "name": TOPIC,
        "rate": case.slack * SENSORS * RATE,
        "burst": case.burst,
        "slo": {"percentile": PERCENTILE, "latency_ms": SLO_MS},
        "publishers": [
            {
                "ids": [f"sensor-{number}" for number in range(SENSORS)],
                "rates": [RATE] * SENSORS,
                "groups": [f"place-{number}" for number in numbers],
                "latitudes": [latitude for latitude, _ in places],
                "longitudes": [longitude for _, longitude in places],
            }
        ],
    }


def sensors(seed: int) -> list[tuple[float, float]]:
    """Places, degrees: each near a detector drawn at random."""
    random = np.random.default_rng(seed)
    detectors = read_detectors()
    chosen = [detectors[index] for index in random.integers(len(detectors), size=SENSORS)]
    apart = random.normal(scale=JITTER_DEGREES, size=(SENSORS, 2)).tolist()
    return [(one.latitude + north, one.longitude + east) for one, (north, east) in zip(chosen, apart, strict=True)]


def counted(minutes: Sequence[Minute]) -> tuple[int, int]:
    """Return how many count, and how many of these kept the promise."""
    valid = [minute for minute in minutes if not minute.reasons]
    return len(valid), sum(minute.kept for minute in valid)


def said(minutes: Sequence[Minute]) -> str:
    valid, kept = counted(minutes)
    return f"minute {len(minutes) + 1}: kept in {kept} of {valid} so far"


def row(case: Case, plan: Json, brokers: int, minutes: Sequence[Minute]) -> Row:
    valid, kept = counted(minutes)
    real = wilson_interval(kept, valid)
    foretold = plan["promise"]["kept"]
    return {
        "slack": case.slack,
        "rule": case.burst,
        "burst": plan["burst"],
        "brokers": brokers,
        "plan": 100 * foretold["chance"],
        "plan_low": 100 * foretold["low"],
        "plan_high": 100 * foretold["high"],
        "kept": kept,
        "minutes": valid,
        "left_out": len(minutes) - valid,
        "low": 100 * real.low,
        "high": 100 * real.high,
    }


def overlaps(one: Row) -> bool:
    """Whether the plan's interval and that of the real minutes have a common point."""
    real, plan = Interval(one["low"], one["high"]), Interval(one["plan_low"], one["plan_high"])
    return bool(one["minutes"] and plan.low <= real.high and real.low <= plan.high)


def checks(rows: Sequence[Row]) -> list[Check]:
    return [
        Check(
            f"r = {one['slack']:g} times the load, b {one['rule']}: kept in {one['kept']} of {one['minutes']} minutes",
            f"{one['low']:.0f} to {one['high']:.0f} %",
            f"overlaps {one['plan_low']:.0f} to {one['plan_high']:.0f} % of the plan",
            overlaps(one),
        )
        for one in rows
    ]


def _panel(rows: Sequence[Row]) -> Panel:
    places = [float(number) for number in range(1, len(rows) + 1)]
    real = [100 * one["kept"] / max(1, one["minutes"]) for one in rows]
    series = [
        Series(label="the plan", x=places, y=[one["plan"] for one in rows]),
        Series(label="real minutes", x=places, y=real),
    ]
    return Panel(title="Promise kept", x_label="row of the table", y_label="minutes, %", series=series, slo_ms=None)


EXPERIMENT = Experiment(
    name="plan-minutes",
    title="What a plan says, and real minutes",
    claim="The interval that a plan gives for the minutes that keep the promise overlaps that of real minutes.",
    columns={
        "r / load": "slack",
        "burst": "rule",
        "b": "burst",
        "brokers": "brokers",
        "plan, %": "plan",
        "from": "plan_low",
        "to": "plan_high",
        "minutes": "minutes",
        "kept": "kept",
        "left out": "left_out",
        "from, %": "low",
        "to, %": "high",
    },
    run=figure,
    how="Measured",
    runs="{repetitions} minutes of {seconds:g} s a row",
    sources=(*PRODUCT, "bench/experiments/promises"),
    full=Effort(seconds=60.0, repetitions=20),
)

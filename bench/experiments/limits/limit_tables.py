"""The tables of a thesis on rate limiting in API management, measured: bytes a user, atomicity by a race, how even the
traffic is that is let through; and its response time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import trio
from coredis import Redis

from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check, at_most
from bench.limit_peers.servers import environment, limit_service, redis_server, used_memory
from bench.limiting.algorithms import ALGORITHMS, FIXED, LIMIT, TRAFFIC, most_in_a_window
from limiting.store.redis import RedisStore, opened
from limiting.store.rules import rules_of, subject_hash
from srtm.contracts.contract import Contract, read_contract
from srtm.errors import Unavailable
from srtm.limiting.limiter import Limiter
from srtm.operations.limit_load import OverHttp, Plan, offered, quantile

REQUESTS = 500  # of a user a day, as in the thesis
USERS, LOG_USERS, STORED_USERS, STORED_LOGS = 100_000, 2_000, 2_000, 200
RACERS, QUOTA = 8, 400
RATE, SECONDS = 100.0, 10.0
NAIVE = "read, decide, write"


@dataclass(frozen=True)
class Kind:
    """An algorithm of the thesis. ``policy``: ours; ``told``: bytes a user; ``curve``: its name among ALGORITHMS."""

    name: str
    policy: dict[str, object]
    told: str
    atomic: str
    consistency: str
    curve: str
    is_log: bool = False


_WINDOW: dict[str, object] = {"name": "p", "kind": "window", "quota": QUOTA, "window": "1d"}
KINDS = (
    Kind("token bucket", {"name": "p", "rate": 0.01, "burst": QUOTA}, "6", "no", "medium", "bucket, b = 100"),
    Kind(FIXED, {**_WINDOW, "slices": 1, "weighted": False}, "2 to 6", "yes", "low", FIXED),
    Kind("sliding window log", {**_WINDOW, "kind": "log"}, "2,000", "yes", "high", "log", is_log=True),
    Kind("sliding window counters, 6", {**_WINDOW, "slices": 6}, "any", "yes", "any", "weighted, 6 x 10 s"),
)
RESPONSE = "response time by HTTP"


def figure(effort: Effort) -> Figure:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            rows.append({**_row(kind), **trio.run(_stored, Path(folder) / kind.curve, kind)})
            effort.step(f"{kind.name}: {rows[-1]['bytes']:.0f} bytes a user")
        rows.append({**dict.fromkeys(rows[0]), "name": NAIVE, "raced_store": trio.run(_naive, Path(folder) / "naive")})
        rows.append({**dict.fromkeys(rows[0]), "name": RESPONSE, **trio.run(_responses, Path(folder))})
    return Figure(
        rows=rows,
        panels=[_panel(rows)],
        checks=checks(rows),
        conditions=f"{', '.join(environment())}; {REQUESTS} requests a user a day; {RACERS} at once in a race for "
        f"{QUOTA} tokens; {RATE:g} checks a second by HTTP",
    )


def _contract(policy: dict[str, object]) -> Contract:
    return read_contract({"namespace": "api", "subject": "*", "policies": [policy]})


def _row(kind: Kind) -> Row:
    subjects, requests = (LOG_USERS, REQUESTS) if kind.is_log else (USERS, 1)
    policy = {**kind.policy, "quota": REQUESTS} if kind.is_log else kind.policy
    command = [sys.executable, "-m", "bench.limit_peers.subject_memory", msgspec.json.encode(policy).decode()]
    command += [str(subjects), str(requests)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise Unavailable(f"subject_memory: {done.stderr[-300:]}")
    return {
        "name": kind.name,
        "told": kind.told,
        "bytes": float(done.stdout),
        "bytes_store": None,
        "told_atomic": kind.atomic,
        "raced": raced(kind.policy),
        "raced_store": None,
        "told_consistency": kind.consistency,
        "worst_percent": worst_percent(kind.curve),
        "mean_ms": None,
        "p95_ms": None,
    }


def raced(policy: dict[str, object]) -> int:
    """How many more than the quota threads of one program get that ask for one subject at once."""
    limiter = Limiter([_contract(policy)])

    def ask(_: int) -> int:
        return sum(limiter.check("api", "user").allowed for _ in range(QUOTA))

    with ThreadPoolExecutor(RACERS) as threads:
        return sum(threads.map(ask, range(RACERS))) - QUOTA


def worst_percent(curve: str) -> float:
    """The most that is let through in any minute of all traffic of the article's curves, of the limit."""
    algorithm = next(one for one in ALGORITHMS if one.name == curve)
    worst = 0
    for make in TRAFFIC.values():
        limiter = algorithm.make()
        released = [limiter.released_ns(at_ns) for at_ns in make(Random(1))]
        worst = max(worst, most_in_a_window([at_ns for at_ns in released if at_ns is not None]))
    return 100 * worst / LIMIT


async def _stored(folder: Path, kind: Kind) -> Row:
    async with redis_server(folder) as server, opened(f"redis://{server.tcp_address}") as store:
        policy, cost, users = kind.policy, 1, STORED_USERS
        if kind.is_log:
            policy, cost, users = {**policy, "quota": REQUESTS}, REQUESTS, STORED_LOGS
        before = used_memory(server.tcp_address)
        for number in range(users):
            await _take(store, policy, f"user:{number:024}", cost)
        each = (used_memory(server.tcp_address) - before) / users
        taken = await _race(lambda name: _take(store, kind.policy, "racer", 1, name))
        return {"bytes_store": each, "raced_store": taken - QUOTA}


async def _take(store: RedisStore, policy: dict[str, object], subject: str, cost: int, name: str = "") -> bool:
    rules = rules_of(_contract(policy))
    words: list[str | bytes | int] = ["take", rules.script, cost, name or subject, 0, ""]
    while True:
        try:
            answer = await store.decide(rules.keys(subject_hash("api", subject)), words)
        except Unavailable:
            continue  # a busy machine takes longer than a check may
        return bool(answer[0] == 1)


async def _race(take: Callable[[str], Awaitable[bool]]) -> int:
    """How many tokens clients get that ask at once, more often than there are."""
    taken = 0

    async def ask(racer: int) -> None:
        nonlocal taken
        for number in range(QUOTA // 4):
            got = await take(f"{racer}-{number}")  # before the sum is read
            taken += got

    async with trio.open_nursery() as nursery:
        for racer in range(RACERS):
            nursery.start_soon(ask, racer)
    return taken


async def _naive(folder: Path) -> int:
    """As many have written it: read what is left, decide, write it back."""
    async with redis_server(folder) as server:
        client: Redis[Any] = Redis.from_url(f"redis://{server.tcp_address}")
        async with client:

            async def take(_: str) -> bool:
                left = int(await client.get("left") or QUOTA)
                if left > 0:
                    await client.set("left", left - 1)
                return left > 0

            return await _race(take) - QUOTA


async def _responses(folder: Path) -> Row:
    contracts = '[[contracts]]\nnamespace = "api"\nsubject = "*"\npolicies = [{name = "p", rate = 10, burst = 20}]\n'
    async with limit_service(folder / "service", contracts) as system:
        host, _, port = system.http_address.rpartition(":")
        wire = OverHttp(system.http_address, "api")
        heard = await offered(host, int(port), wire, Plan(rate=RATE, seconds=SECONDS))
    found = heard.latencies_s
    return {"mean_ms": 1e3 * sum(found) / len(found), "p95_ms": 1e3 * quantile(found, 0.95)}


def checks(rows: Sequence[Row]) -> list[Check]:
    by = {one["name"]: one for one in rows}
    ours = [by[kind.name] for kind in KINDS]
    raced_most = max(max(one["raced"], one["raced_store"]) for one in ours)
    fixed, bucket, log, counters = (one["worst_percent"] for one in (ours[1], ours[0], ours[2], ours[3]))
    naive = by[NAIVE]["raced_store"]
    return [
        at_most("bucket: bytes a user in memory", by["token bucket"]["bytes"], 100, "bytes"),
        at_most("race: above the quota, in a program and in the store", raced_most, 0, "tokens"),
        Check(f"race: above the quota, {NAIVE}", f"{naive:,} tokens", "above 0", naive > 0),
        Check(
            "most in a minute: log, counters, bucket, fixed window",
            f"{log:.0f}, {counters:.0f}, {bucket:.0f}, {fixed:.0f} %",
            "in this order, the log 100 %",
            100 == log < counters < bucket <= fixed,
        ),
        at_most("response time, mean (5.5 to 6 ms there)", by[RESPONSE]["mean_ms"], 6, "ms"),
        at_most("response time, p95 (7 ms there)", by[RESPONSE]["p95_ms"], 7, "ms"),
    ]


def _panel(rows: Sequence[Row]) -> Panel:
    ours = rows[: len(KINDS)]
    places = [float(number) for number in range(1, len(ours) + 1)]
    columns = {"in memory": "bytes", "in Redis": "bytes_store"}
    series = [Series(label=label, x=places, y=[one[key] for one in ours]) for label, key in columns.items()]
    axes = "row of the table", "bytes (log scale)"
    return Panel(title="A user's memory", x_label=axes[0], y_label=axes[1], series=series, slo_ms=None)


EXPERIMENT = Experiment(
    name="limit-tables",
    title="Memory, atomicity and consistency of limiters",
    claim="A user of a bucket takes at most 100 bytes. No race gets more than the quota, in a program or in a store, "
    "where reading, deciding and writing one after the other lets more through. A log lets through exactly the limit "
    "in any minute, counters more, buckets and fixed windows up to twice. A decision by HTTP takes no longer than "
    "the thesis says.",
    columns={
        "algorithm": "name",
        "bytes a user, as told": "told",
        "in memory": "bytes",
        "in Redis": "bytes_store",
        "atomic, as told": "told_atomic",
        "race in a program: above": "raced",
        "race in Redis: above": "raced_store",
        "consistency, as told": "told_consistency",
        "most in a minute, % of the limit": "worst_percent",
        "mean, ms": "mean_ms",
        "p95, ms": "p95_ms",
    },
    run=figure,
    how="Measured",
    runs="one run each",
    sources=("limiting", "bench/limit_peers", "bench/limiting", "bench/experiments/limits", "srtm"),
    full=Effort(seconds=0.0, repetitions=1),
)

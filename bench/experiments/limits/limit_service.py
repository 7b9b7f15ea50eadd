"""What the limit service does when its store goes away, and while ten thousand contracts are put in force."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import msgspec
import trio

from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check, at_most
from bench.limit_peers.servers import environment, limit_service, redis_server
from bench.limit_peers.submitting import submit
from limiting.nodes.decisions import Decisions
from limiting.store.redis import opened
from limiting.store.shared import SharedStore
from srtm.client.distributor import Json
from srtm.contracts.contract import read_contract
from srtm.limiting.limiter import Limiter
from srtm.operations.limit_load import Heard, OverHttp, Plan, offered, quantile

STORE, RELOAD = "store", "contracts"
BEFORE, ONCE, AGAIN_AND_AGAIN = "before", "while all change, once", "while all change, again and again"
STOPPED, KILLED = "stopped (SIGSTOP)", "killed, and started again"
BURST = 50  # and hardly any rate: what is let through without the store is one part
CALM_CHECKS, CHECKS = 300, 2_000
PROBES_S = 2.5  # so long it is away
START_S = 2.0  # of the process that submits
FOR_EVER = 1_000_000  # submissions
CONTRACTS, RATE, SECONDS = 10_000, 200.0, 20.0
NUMBERS = ("before_ms", "first_ms", "then_ms", "back_s", "above")
BENCH = [{"name": "p", "rate": 1_000, "burst": 1_000}]


def figure(effort: Effort) -> Figure:
    rows: list[Row] = []
    for number in range(effort.repetitions):
        with tempfile.TemporaryDirectory() as folder:
            rows += [trio.run(_without_store, Path(folder) / str(how == KILLED), how) for how in (STOPPED, KILLED)]
            rows += trio.run(_reloaded, Path(folder), replace(effort, seed=effort.seed + number))
    rows = middle(rows)
    return Figure(
        rows=rows,
        panels=[_panel(rows)],
        checks=checks(rows),
        conditions=f"{', '.join(environment())}; the store's checks in the service's process, one after the other; "
        f"{RATE:g} checks a second by HTTP for {SECONDS:g} s before and while {CONTRACTS:,} contracts change: once in "
        "that time, and again and again without a pause",
    )


async def _without_store(folder: Path, how: str) -> Row:
    limiter = Limiter()
    policies = [{"name": "burst", "rate": 0.001, "burst": BURST}]
    contract = read_contract({"namespace": "api", "subject": "*", "policies": policies})
    async with redis_server(folder) as server, opened(f"redis://{server.tcp_address}") as store:
        decisions = Decisions(limiter, store=SharedStore(store, limiter), mode="store")
        decisions.put(contract)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(decisions.run)
            calm = [(await _check(decisions, f"calm-{number}"))[0] for number in range(CALM_CHECKS)]
            os.kill(server.pid, signal.SIGSTOP if how == STOPPED else signal.SIGKILL)
            first = [(await _check(decisions, "user"))[0] for _ in range(3)]
            found = [await _check(decisions, "user") for _ in range(CHECKS)]
            await trio.sleep(PROBES_S)
            if how == STOPPED:
                os.kill(server.pid, signal.SIGCONT)
                back_s = await _back(decisions)
            else:
                async with redis_server(folder / "again", server.tcp_address):
                    back_s = await _back(decisions)
            nursery.cancel_scope.cancel()
    waits = [latency for latency, _ in found]
    return {
        **_row(STORE, how),
        "before_ms": 1e3 * quantile(calm, 0.5),
        "first_ms": 1e3 * max(first),
        "then_ms": 1e3 * quantile(waits, 0.999),
        "back_s": back_s,
        "above": sum(allowed for _, allowed in found) + 3 - BURST,
    }


async def _check(decisions: Decisions, subject: str) -> tuple[float, bool]:
    begun = trio.current_time()
    checked = await decisions.check("api", [subject], 1)
    return trio.current_time() - begun, checked.allowed


async def _back(decisions: Decisions) -> float:
    begun = trio.current_time()
    with trio.fail_after(30):
        while (await decisions.check("api", ["calm-0"], 1, peek=True)).decisive.degraded:  # noqa: ASYNC110
            await trio.sleep(0.01)
    return trio.current_time() - begun


async def _reloaded(folder: Path, effort: Effort) -> list[Row]:
    empty = 'contracts = [{namespace = "none", subject = "*", policies = [{name = "p", rate = 1, burst = 1}]}]'
    async with limit_service(folder / "reload", empty, "--data", str(folder / "data")) as system:
        files = [_file(folder / f"contracts-{number}.json", number) for number in (0, 1)]
        address = system.http_address
        await trio.to_thread.run_sync(submit, address, files[0].read_bytes())
        before = await _asked(address, effort.seed)
        rows = [{**_row(RELOAD, BEFORE), **_latencies(before)}]
        for how, times in ((ONCE, 1), (AGAIN_AND_AGAIN, FOR_EVER)):
            heard, reloads = await _reloading(address, times, files[::-1], effort.seed + len(rows))
            effort.step(f"{CONTRACTS:,} contracts were put in force {len(reloads)} times")
            rows.append({**_row(RELOAD, how), **_latencies(heard), "back_s": quantile(reloads, 0.5)})
    return rows


async def _reloading(address: str, times: int, files: Sequence[Path], seed: int) -> tuple[Heard, list[float]]:
    """What checks found while contracts were submitted, and how long each submission took, s."""
    command = [sys.executable, "-m", "bench.limit_peers.submitting", address, str(times), *map(str, files)]
    async with trio.open_nursery() as nursery:
        submits: trio.Process = await nursery.start(
            partial(trio.run_process, command, capture_stdout=False, stdout=subprocess.PIPE, check=False)
        )
        assert submits.stdout is not None
        said = bytearray()
        nursery.start_soon(_read, submits.stdout, said)
        if times > 1:
            await trio.sleep(START_S)
        heard = await _asked(address, seed)
        submits.kill()
    return heard, [float(line) for line in said.split()]


async def _read(stream: trio.abc.ReceiveStream, said: bytearray) -> None:
    async for chunk in stream:
        said += chunk


async def _asked(address: str, seed: int) -> Heard:
    host, _, port = address.rpartition(":")
    return await offered(host, int(port), OverHttp(address, "api"), Plan(rate=RATE, seconds=SECONDS, seed=seed))


def _file(path: Path, number: int) -> Path:
    path.write_bytes(msgspec.json.encode({"contracts": _contracts(number)}))
    return path


def _contracts(number: int) -> list[Json]:
    """The bench's own, and those of others, which change with ``number``."""
    changed = [{"name": "p", "rate": 1 + number, "burst": 10}]
    found: list[Json] = [{"namespace": "api", "subject": "bench-*", "policies": BENCH}]
    for tenant in range(CONTRACTS - 1):
        found.append({"namespace": "api", "subject": f"tenant-{tenant}:*", "policies": changed})
    return found


def _latencies(heard: Heard) -> Row:
    said = heard.to_json()
    return {"before_ms": said["p50_ms"], "first_ms": said["p99_ms"], "then_ms": said["p99.9_ms"]}


def _row(part: str, how: str) -> Row:
    return {
        "part": part,
        "how": how,
        "before_ms": None,
        "first_ms": None,
        "then_ms": None,
        "back_s": None,
        "above": None,
    }


def middle(rows: Sequence[Row]) -> list[Row]:
    """The medians of all rounds."""
    found = []
    for part, how in dict.fromkeys((one["part"], one["how"]) for one in rows):
        same = [one for one in rows if (one["part"], one["how"]) == (part, how)]
        values = {name: [one[name] for one in same if one[name] is not None] for name in NUMBERS}
        found.append({**_row(part, how), **{name: median(each) for name, each in values.items() if each}})
    return found


def checks(rows: Sequence[Row]) -> list[Check]:
    away = [one for one in rows if one["part"] == STORE]
    before, once, again = (one["then_ms"] for one in rows if one["part"] == RELOAD)
    return [
        at_most("store away: the first three answers", max(one["first_ms"] for one in away), 200, "ms"),
        at_most("store away: then, p99.9", max(one["then_ms"] for one in away), 1, "ms"),
        at_most("store away: above one part of the contract", max(one["above"] for one in away), 3, "tokens"),
        at_most("store back: until it decides again", max(one["back_s"] for one in away), 2, "s"),
        at_most(f"{CONTRACTS:,} contracts change once: p99.9, of that before", once / before, 1.5, "times"),
        at_most("they change again and again: p99.9, of that before", again / before, 1.5, "times"),
    ]


def _panel(rows: Sequence[Row]) -> Panel:
    places = [float(number) for number in range(1, len(rows) + 1)]
    columns = {"before, or p50": "before_ms", "first three, or p99": "first_ms", "then, or all: p99.9": "then_ms"}
    series = [Series(label=label, x=places, y=[one[key] for one in rows]) for label, key in columns.items()]
    return Panel(title="Latency", x_label="row of the table", y_label="ms (log scale)", series=series, slo_ms=None)


EXPERIMENT = Experiment(
    name="limit-service",
    title="A store that goes away, and ten thousand contracts that change",
    claim="When the store stops, three answers come within 200 ms and the others within 1 ms, at most one part of the "
    "contract above it, and the store decides again within 2 s of its return. While 10,000 contracts change, p99.9 of "
    "decisions is at most 1.5 times that before.",
    columns={
        "of": "part",
        "case": "how",
        "before (contracts: p50), ms": "before_ms",
        "first three (contracts: p99), ms": "first_ms",
        "then (contracts: all), p99.9, ms": "then_ms",
        "back after (contracts: in force after), s": "back_s",
        "tokens above one part": "above",
    },
    run=figure,
    how="Measured",
    runs="{repetitions} rounds, medians",
    sources=("limiting", "bench/limit_peers", "bench/experiments/limits", "srtm"),
    full=Effort(seconds=0.0, repetitions=3),
)

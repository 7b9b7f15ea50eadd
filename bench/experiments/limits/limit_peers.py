"""Our limiter beside others, in one run: Redis with a script, Gubernator, Envoy's own, and the library ``limits``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

import trio

from bench.experiments.lab.figure import Effort, Experiment, Figure, Row
from bench.harness.results.panels import Panel, Series
from bench.harness.results.verdict import Check
from bench.harness.systems.systems import System
from bench.limit_peers.in_process import BURST, RATE, library, ours, per_second
from bench.limit_peers.in_process import Check as Ask
from bench.limit_peers.redis_benchmark import RANDOM_KEY, Point, measured
from bench.limit_peers.servers import ask_redis, environment, envoy, gubernator, limit_service, redis_server
from srtm.errors import Unavailable
from srtm.operations.limit_load import OverHttp, Plan, Wire, offered

OURS, REDIS, GUBERNATOR = "SRTM", "Redis with Lua", "Gubernator"
OUR_CHECK, ENVOY = f"{OURS}, check", "Envoy, local_ratelimit"  # by HTTP
RESP, HTTP, PROGRAM = "Redis protocol", "HTTP", "in a program"
DEPTHS = (1, 16)
REQUESTS = {1: 20_000, 16: 200_000}
HTTP_RATE, HTTP_SECONDS = 200.0, 10.0
CHECKS = 100_000
SCRIPT = Path(__file__).resolve().parents[2] / "limit_peers" / "gcra.lua"
CONTRACTS = f"""
[[contracts]]
namespace = "api"
subject = "*"
policies = [{{name = "burst", rate = {RATE}, burst = {BURST}}}]
"""


@dataclass(frozen=True)
class OverGubernator(OverHttp):
    """Its JSON gateway: the limit comes with each request. It always answers 200, so only latency is read."""

    def request(self, subject: str) -> bytes:
        limit = f'"name":"{self.namespace}","unique_key":"{subject}","hits":"1","limit":"{BURST}","duration":"2000"'
        body = f'{{"requests":[{{{limit},"algorithm":"LEAKY_BUCKET"}}]}}'
        head = f"POST /v1/GetRateLimits HTTP/1.1\r\nHost: {self.authority}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


@dataclass(frozen=True)
class OverEnvoy(OverHttp):
    """A request to the proxy, which lets it go on or answers 429."""

    def request(self, subject: str) -> bytes:
        return f"GET / HTTP/1.1\r\nHost: {self.authority}\r\nx-subject: {subject}\r\n\r\n".encode()


Start = Callable[[Path], AbstractAsyncContextManager[System]]
BY_HTTP: tuple[tuple[str, Start, type[OverHttp]], ...] = (
    (GUBERNATOR, gubernator, OverGubernator),
    (ENVOY, partial(envoy, rate=RATE, burst=BURST, subjects=Plan.subjects), OverEnvoy),
)


def figure(effort: Effort) -> Figure:
    rows: list[Row] = []
    left_out: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(effort.repetitions):
            found = trio.run(_round, Path(folder) / str(number), replace(effort, seed=effort.seed + number), left_out)
            rows += [{"round": number, **one} for one in found]
            effort.step(f"round {number + 1}: {len(found)} points")
    rows = middle(rows)
    return Figure(
        rows=rows,
        panels=[_panel(rows, "per_second", "Decisions", "a second (log scale)"), _panel(rows, "p99_us", "p99", "us")],
        checks=checks(rows),
        conditions=conditions(rows, left_out),
    )


def conditions(rows: Sequence[Row], left_out: Sequence[str]) -> str:
    """``left_out``: why a peer is not there, as each round said it."""
    said = [", ".join(environment()), f"a bucket of {RATE}/s and {BURST}", "systems take turns within a round"]
    if any(one["system"] == ENVOY for one in rows):
        said.append("Envoy decides in the proxy itself, which asks no service: by HTTP it stands beside our check")
    return "; ".join([*said, *dict.fromkeys(left_out)])


async def _round(folder: Path, effort: Effort, left_out: list[str]) -> list[Row]:
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(limit_service(folder, CONTRACTS))
        redis = await stack.enter_async_context(redis_server(folder))
        for depth in DEPTHS:
            for system, words in _by_resp(redis):
                address = (service if system == OURS else redis).tcp_address
                ask = partial(measured, address, words, depth=depth, requests=REQUESTS[depth])
                rows.append(_point(RESP, system, f"{depth} at once", await trio.to_thread.run_sync(ask)))
        rows.append(await _by_http(OUR_CHECK, service, OverHttp(service.http_address, "api"), effort.seed))
    for name, start, wire in BY_HTTP:
        try:
            async with start(folder) as peer:
                rows.append(await _by_http(name, peer, wire(peer.http_address, "api"), effort.seed))
        except Unavailable as error:
            left_out.append(f"{name} is left out: {error}")
            effort.step(left_out[-1])
    return rows + [_in_program(name, each, effort.seed) for name, each in _programs()]


def _by_resp(redis: System) -> Iterator[tuple[str, list[str]]]:
    sha = str(ask_redis(redis.tcp_address, "SCRIPT", "LOAD", SCRIPT.read_text()))
    yield OURS, ["CL.THROTTLE", RANDOM_KEY, str(BURST - 1), str(RATE), "1"]
    yield REDIS, ["EVALSHA", sha, "1", RANDOM_KEY, str(1 / RATE), str(BURST), "1"]


async def _by_http(name: str, system: System, wire: Wire, seed: int) -> Row:
    host, _, port = system.http_address.rpartition(":")
    heard = await offered(host, int(port), wire, Plan(rate=HTTP_RATE, seconds=HTTP_SECONDS, seed=seed))
    if heard.errors:
        raise Unavailable(f"{heard.errors} answers of {name} were no decisions")
    said = heard.to_json()
    point = Point(said["decisions_per_second"], 1e3 * said["p50_ms"], 1e3 * said["p99_ms"])
    return _point(HTTP, name, f"{HTTP_RATE:g}/s at random", point)


def _programs() -> Iterator[tuple[str, Ask]]:
    two_slices = {"name": "w", "kind": "window", "quota": BURST, "window": "2s", "slices": 2}
    yield f"{OURS}, bucket", ours({"name": "burst", "rate": RATE, "burst": BURST})
    yield f"{OURS}, window of 2 slices", ours(two_slices)
    yield f"{OURS}, log", ours({"name": "l", "kind": "log", "quota": BURST, "window": "2s"})
    for strategy in ("fixed-window", "sliding-window-counter", "moving-window"):
        yield f"limits, {strategy}", library(strategy)


def _in_program(name: str, ask: Ask, seed: int) -> Row:
    rate = per_second(ask, CHECKS, seed)
    return {**_point(PROGRAM, name, "one thread", Point(rate, 0, 0)), "p50_us": None, "p99_us": None}


def _point(part: str, system: str, asked: str, point: Point) -> Row:
    return {"part": part, "system": system, "asked": asked, **point._asdict()}


def middle(rows: Sequence[Row]) -> list[Row]:
    """Of each point the medians of all rounds."""
    points: dict[tuple[str, str, str], list[Row]] = {}
    for one in rows:
        points.setdefault((one["part"], one["system"], one["asked"]), []).append(one)
    return [
        {
            **_point(*key, Point(median(one["per_second"] for one in found), 0, 0)),
            **{name: _median_of(found, name) for name in ("p50_us", "p99_us")},
        }
        for key, found in points.items()
    ]


def _median_of(rows: Sequence[Row], name: str) -> float | None:
    values = [one[name] for one in rows if one[name] is not None]
    return median(values) if values else None


def checks(rows: Sequence[Row]) -> list[Check]:
    by = {(one["part"], one["system"], one["asked"]): one for one in rows}
    alone = {name: by[RESP, name, "1 at once"]["p99_us"] for name in (OURS, REDIS)}
    many = {name: by[RESP, name, "16 at once"]["per_second"] for name in (OURS, REDIS)}
    ratio = many[OURS] / many[REDIS]
    return [
        Check(
            "one at once: p99", f"{alone[OURS]:.4g} us", f"at most {alone[REDIS]:.4g} us", alone[OURS] <= alone[REDIS]
        ),
        Check("16 at once: decisions a second, of those of Redis", f"{ratio:.3g}", "at least 2", ratio >= 2),
    ]


def _panel(rows: Sequence[Row], field: str, title: str, y_label: str) -> Panel:
    series = []
    for name in (OURS, REDIS):
        here = [one for one in rows if one["part"] == RESP and one["system"] == name]
        x = [float(one["asked"].split()[0]) for one in here]
        series.append(Series(label=name, x=x, y=[one[field] for one in here]))
    return Panel(title=title, x_label="commands at once", y_label=y_label, series=series, slo_ms=None, x_log=True)


EXPERIMENT = Experiment(
    name="limit-peers",
    title="Beside other limiters",
    claim="In the Redis protocol a decision of the limit service is no later than that of a script in Redis (p99), and "
    "16 at once are at least twice as many a second.",
    columns={
        "by": "part",
        "system": "system",
        "asked": "asked",
        "decisions/s": "per_second",
        "p50, us": "p50_us",
        "p99, us": "p99_us",
    },
    run=figure,
    how="Measured",
    runs="{repetitions} rounds, medians",
    sources=("limiting", "bench/limit_peers", "bench/experiments/limits", "srtm"),
    full=Effort(seconds=0.0, repetitions=5),
)

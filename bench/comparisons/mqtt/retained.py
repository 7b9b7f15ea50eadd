"""100,000 retained messages go to a new subscriber of ``#`` while 1,000 msg/s flow.

Only messages of the flow that were due while the replay ran count as *meanwhile*. The reader is a thread of this
process that lets every other go first: else it would take the processor from the generator, whose lateness would be
booked on the broker.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import trio

from bench.comparisons.mqtt.started import OURS, THEIRS, in_thread, plan, started
from bench.comparisons.rows.turns import in_turn
from bench.harness.load.mqtt_client import PUBLISH, Client, first_packet, publish_packet, subscribe_packet
from bench.harness.load.run import RunProgress, RunResult, deliveries, run_plan
from bench.harness.machine.threads import giving_way
from bench.harness.results.comparison import Better, Bound, Figure, NoneOf, Row, Sample, Turn
from bench.harness.results.intervals import percentile_ms
from bench.harness.systems.systems import System

RETAINED = 100_000
PAYLOAD = b"x" * 64
AT_ONCE = 500  # publishes between two answers
PUBLISHERS = 100  # at 10 msg/s
REPLAYS = 3
SHORTEST_S = 5.0
RETAIN = 1
PROMISE_MS = 1.0
CHUNK = 1 << 20
SILENT_S = 5.0  # nothing more comes, not even of the flow


class Replay(msgspec.Struct, frozen=True):
    """One way through all that is retained, on the monotonic clock."""

    began_ns: int
    ended_ns: int
    missing: int  # messages


async def _sample(name: str, turn: Turn, folder: Path) -> Sample:
    async with started(name, turn, folder) as system:
        await in_thread(_fill, system)
        result, replays = await _beside(name, system, turn)
    return sample_of(name, result, replays)


def _fill(system: System) -> None:
    with Client.at(system.tcp_address, b"filler") as client:
        for first in range(0, RETAINED, AT_ONCE):
            numbers = range(first, first + AT_ONCE)
            client.socket.sendall(b"".join(publish_packet(_name(one), PAYLOAD, retain=True) for one in numbers))
            client.ping()


def _name(number: int) -> bytes:
    return b"kept/%d/%d" % (number // 100, number % 100)


async def _beside(name: str, system: System, turn: Turn) -> tuple[RunResult, list[Replay]]:
    """The flow, and a new subscriber of ``#`` again and again once its measured part has begun."""
    replays: list[Replay] = []
    measuring = trio.Event()

    def look(progress: RunProgress) -> None:
        if progress.phase == "measuring":
            measuring.set()

    async def read() -> None:
        await measuring.wait()
        for number in range(REPLAYS):
            replay = partial(giving_way, partial(_replay, system, number))
            replays.append(await trio.to_thread.run_sync(replay, abandon_on_cancel=True))

    asked = plan(system.tcp_address, turn, PUBLISHERS, qos=0)
    asked = msgspec.structs.replace(asked, duration_s=max(SHORTEST_S, turn.seconds), keep_each=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        result = await run_plan(asked, look, name=f"mqtt retained {name}")
    return result, replays


def _replay(system: System, number: int) -> Replay:
    """Counts what comes with the retain flag: the flow comes too, without it."""
    names = {_name(one) for one in range(RETAINED)}
    began_ns = time.monotonic_ns()
    with suppress(OSError), Client.at(system.tcp_address, b"new-%d" % number) as client:  # what is missing says so
        client.socket.settimeout(SILENT_S)
        began_ns = time.monotonic_ns()
        client.socket.sendall(subscribe_packet(1, [b"#"]))
        buffer = bytearray()
        while names and (some := client.socket.recv(CHUNK)):
            buffer += some
            at = 0
            while (found := first_packet(buffer, at)) is not None:
                first, rest, length = found
                at += length
                if first >> 4 == PUBLISH and first & RETAIN:
                    names.discard(rest[2 : 2 + int.from_bytes(rest[:2], "big")])
            del buffer[:at]
    return Replay(began_ns, time.monotonic_ns(), len(names))


def sample_of(system: str, result: RunResult, replays: list[Replay]) -> Sample:
    """Nothing is judged by Mosquitto here, which keeps the generator late: so its samples count all the same."""
    due_ns, latency_ns = deliveries(result)
    meanwhile = sum(((due_ns >= one.began_ns) & (due_ns <= one.ended_ns) for one in replays), due_ns < 0)
    if not meanwhile.any() or meanwhile.all():
        return Sample(system, {}, ["no message was due while the replays ran, or none when they did not"])
    values = {
        "p99_ms": percentile_ms(latency_ns[meanwhile], 99),
        "quiet_p99_ms": percentile_ms(latency_ns[~meanwhile], 99),
        "replay_s": sum(one.ended_ns - one.began_ns for one in replays) / len(replays) / 1e9,
        "missing": sum(one.missing for one in replays),
        "lost": result.lost,
        "lateness_p99_ms": result.lateness_p99_ms,
    }
    return Sample(system, values, [] if system == THEIRS else result.reasons)


ROW = Row(
    name="retained",
    claim="100,000 retained messages go to a new subscriber of # while 1,000 msg/s flow: all come, and p99 meanwhile.",
    systems=(OURS, THEIRS),
    figures=(
        Figure("p99_ms", "p99 of the flow meanwhile, ms", 3, drawn=True, better=Better.LOWER),
        Figure("quiet_p99_ms", "p99 of the flow otherwise, ms", 3),
        Figure("replay_s", "time until all retained messages are there, s", 2, drawn=True, better=Better.LOWER),
        Figure("missing", "retained messages that did not come", 0),
        Figure("lateness_p99_ms", "generator's lateness p99, ms", 3),
    ),
    targets=(
        NoneOf("missing", "retained messages that did not come"),
        NoneOf("lost", "messages lost meanwhile"),
        Bound("p99_ms", "p99 of the flow while 100,000 retained go out", PROMISE_MS, "ms"),
    ),
    begin=in_turn(_sample),
    note=f"{REPLAYS} new subscribers, one after the other, in each run; the flow is of QoS 0, from {PUBLISHERS} "
    "publishers to one subscriber. The generator's lateness is in p99. Mosquitto is shown however late it made the "
    "generator.",
)

"""Both lease rules on real processes in network namespaces: ``python -m bench.lease_soak --seconds 600``.

Each broker has two links: a good one to its publishers, and a bad one (``bench.relay``) to the distributor, which is
cut, delayed, made lossy and healed at random. Brokers and the distributor are stopped for longer than a lease and go
on, or are killed and started again. Publishers send more than the envelope all the time, so that whatever may be let go
is. At the end everything is healed; then the merged release logs must pass both forms of the checker, and the shares in
force must come back to exactly (r, b) within three lease times.

The log of a broker that is to be killed is fetched right before: what it lets go in the milliseconds until the signal
is missing there, and nothing else.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import trio

from bench import own_network
from bench.relay import CUT, GOOD, READY, Quality
from bench.trace import Trace, fetch_trace
from srtm.bucket import Violation, conforms_actual, conforms_due
from srtm.distributor_client import DistributorClient
from srtm.errors import SrtmError, Unavailable
from srtm.http_client import HttpClient
from srtm.splitting import to_micro

LEASE_S = 5.0
RATE, BURST = 300.0, 30.0  # of each topic
TOPICS = {"timed": f"{LEASE_S:g}s", "kept": "keep"}
_OFFERED = 0.6  # of a topic's rate, to every broker
_BEAT_S = 0.05
_ANSWER_S = 2.0
_START_S = 30.0
_BAD = Quality(loss=0.15, twice=0.1, delay_ms=150.0, jitter_ms=400.0)


@dataclass
class Logs:
    """Due and actual instants of what was let go, by topic."""

    due_ns: dict[str, list[np.ndarray]] = field(default_factory=lambda: {topic: [] for topic in TOPICS})
    actual_ns: dict[str, list[np.ndarray]] = field(default_factory=lambda: {topic: [] for topic in TOPICS})
    lateness_ns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))  # the largest

    def take(self, topic: str, trace: Trace) -> None:
        released = trace.released_ns > 0
        self.due_ns[topic].append(trace.due_ns[released])
        self.actual_ns[topic].append(trace.released_ns[released])
        self.lateness_ns[topic] = max([self.lateness_ns[topic], *trace.lateness_ns[released].tolist()])

    def violations(self) -> list[tuple[str, str, Violation]]:
        rate, burst = to_micro(RATE, "rate"), to_micro(BURST, "burst")
        found = []
        for topic in TOPICS:
            due = conforms_due(np.concatenate(self.due_ns[topic]).tolist(), rate, burst)
            late_ns = self.lateness_ns[topic]
            actual = conforms_actual(np.concatenate(self.actual_ns[topic]).tolist(), rate, burst, late_ns)
            found += [(topic, "due", due)] if due else []
            found += [(topic, "actual", actual)] if actual else []
        return found

    def count(self, topic: str) -> int:
        return sum(len(part) for part in self.due_ns[topic])


@dataclass
class Broker:
    """``number`` gives it its addresses: 10.77.N.2 on the bad link, 10.78.N.2 on the good one."""

    number: int
    directory: Path
    namespace: trio.Process
    link: trio.Process
    process: trio.Process | None = None
    is_stopped: bool = False

    @property
    def http_address(self) -> str:
        return f"10.78.{self.number}.2:4151"

    async def start(self) -> None:
        command = ["nsenter", "--target", str(self.namespace.pid), "--net", sys.executable, "-m", "broker"]
        command += ["--name", f"b{self.number}", "--data-path", str(self.directory)]
        command += ["--tcp-address", f"10.78.{self.number}.2:4150", "--http-address", self.http_address]
        command += ["--distributor", f"http://10.77.{self.number}.1:4190"]
        self.process = await trio.lowlevel.open_process(command, stderr=subprocess.DEVNULL)
        await until_answer(self.http_address)

    def signal(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    async def set_link(self, quality: Quality) -> None:
        assert self.link.stdin is not None
        await self.link.stdin.send_all(msgspec.json.encode(quality) + b"\n")

    async def kill(self, logs: Logs) -> None:
        assert self.process is not None
        await self.read(logs)
        self.process.kill()
        await self.process.wait()
        self.process = None

    async def read(self, logs: Logs) -> None:
        for topic in TOPICS:
            logs.take(topic, await fetch_trace(self.http_address, topic))

    async def share(self, topic: str) -> tuple[float, float]:
        bucket = await get(self.http_address, f"/v1/topics/{topic}/bucket")
        return bucket["rate"], bucket["burst"]


class Cluster:
    """Everything that runs. ``faults``: what was done to it, in order."""

    def __init__(self, directory: Path) -> None:
        self.brokers: list[Broker] = []
        self.faults: list[str] = []
        self.logs = Logs()
        self._directory = directory
        self._distributor: trio.Process | None = None

    async def start_distributor(self) -> None:
        command = [sys.executable, "-m", "srtm", "distributor", "--http-address", "0.0.0.0:4190"]
        command += ["--store", f"sqlite:///{self._directory / 'store.sqlite3'}"]
        self._distributor = await trio.lowlevel.open_process(command, stderr=subprocess.DEVNULL)
        await until_answer("127.0.0.1:4190")

    async def kill_distributor(self) -> None:
        assert self._distributor is not None
        self._distributor.kill()
        await self._distributor.wait()

    def signal_distributor(self, number: int) -> None:
        assert self._distributor is not None
        self._distributor.send_signal(number)

    async def submit(self) -> None:
        slo = {"percentile": 99, "latency_ms": 50}
        async with DistributorClient(["http://127.0.0.1:4190"]) as client:
            for topic, lease in TOPICS.items():
                publishers = [{"count": 30, "rate": RATE / 40, "id_prefix": f"{topic}-"}]
                document = {"name": topic, "rate": RATE, "burst": BURST, "lease": lease, "publishers": publishers}
                await client.create_or_change_topic(topic, {**document, "mode": "static", "slo": slo})

    async def in_force(self) -> dict[str, tuple[float, float]]:
        """Sums of the shares."""
        sums = {}
        for topic in TOPICS:
            shares = [await broker.share(topic) for broker in self.brokers]
            sums[topic] = (round(sum(rate for rate, _ in shares), 6), round(sum(burst for _, burst in shares), 6))
        return sums

    async def do_harm(self, chance: random.Random) -> None:
        """One fault, to its end or to a state that the next one may find."""
        broker = chance.choice(self.brokers)
        what = chance.choice(("cut", "bad", "heal", "stop", "kill", "stop the distributor", "kill the distributor"))
        self.faults.append(f"{what} b{broker.number}")
        match what:
            case "cut" | "bad" | "heal":
                await broker.set_link({"cut": CUT, "bad": _BAD, "heal": GOOD}[what])
            case "stop":
                broker.signal(signal.SIGSTOP)
                await trio.sleep(chance.uniform(0.5, 2.0) * LEASE_S)
                broker.signal(signal.SIGCONT)
            case "kill":
                await broker.kill(self.logs)
                await trio.sleep(chance.uniform(0.0, 2.0) * LEASE_S)
                await broker.start()
            case "stop the distributor":
                self.signal_distributor(signal.SIGSTOP)
                await trio.sleep(chance.uniform(0.5, 2.0) * LEASE_S)
                self.signal_distributor(signal.SIGCONT)
            case "kill the distributor":
                await self.kill_distributor()
                await trio.sleep(chance.uniform(0.0, 2.0) * LEASE_S)
                await self.start_distributor()

    def end(self) -> None:
        for broker in self.brokers:
            if broker.process is not None:
                broker.process.kill()
        if self._distributor is not None:
            self._distributor.kill()


async def get(address: str, target: str) -> dict[str, float]:
    client = HttpClient(f"http://{address}")
    try:
        status, body = await client.request("GET", target, timeout_s=_ANSWER_S)
    finally:
        await client.aclose()
    if status != 200:
        raise Unavailable(f"{address}{target}: {status} {body[:200]!r}")
    return dict(msgspec.json.decode(body))


async def until_answer(address: str) -> None:
    """Raises trio.TooSlowError."""
    with trio.fail_after(_START_S):
        while True:
            try:
                client = HttpClient(f"http://{address}")
                try:
                    status, _ = await client.request("GET", "/ping", timeout_s=_ANSWER_S)
                finally:
                    await client.aclose()
                if status == 200:
                    return
            except SrtmError:
                pass  # not yet
            await trio.sleep(0.05)


async def publish(broker: Broker) -> None:
    """Until cancelled: more of both topics than the broker may let go, whatever happens to it."""
    while True:
        try:
            with trio.fail_after(_ANSWER_S):
                stream = await trio.open_tcp_stream(f"10.78.{broker.number}.2", 4150)
            async with stream, trio.open_nursery() as nursery:
                nursery.start_soon(_send, stream)
                async for _ in stream:  # answers and refusals alike
                    pass
                nursery.cancel_scope.cancel()
        except* (OSError, trio.BrokenResourceError, trio.TooSlowError):
            pass  # it is down: that is what this is about
        await trio.sleep(0.2)


async def _send(stream: trio.SocketStream) -> None:
    identity = b'{"client_id": "soak", "heartbeat_interval": -1}'
    await stream.send_all(b"  V2IDENTIFY\n" + len(identity).to_bytes(4, "big") + identity)
    one = b"".join(b"PUB %s\n\0\0\0\1x" % topic.encode() for topic in TOPICS)
    while True:
        await stream.send_all(one * round(RATE * _OFFERED * _BEAT_S))
        await trio.sleep(_BEAT_S)


@asynccontextmanager
async def running(directory: Path, count: int) -> AsyncIterator[Cluster]:
    """In a network namespace of its own. Raises Unavailable."""
    cluster = Cluster(directory)
    async with AsyncExitStack() as stack:
        stack.callback(cluster.end)
        await cluster.start_distributor()
        for number in range(1, count + 1):
            broker = await _new_broker(number, directory, stack)
            cluster.brokers.append(broker)
            await broker.start()
        yield cluster


async def _new_broker(number: int, directory: Path, stack: AsyncExitStack) -> Broker:
    """A namespace with both of its links, for a broker that is not started yet. Raises Unavailable."""
    apart = ["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"]
    namespace = await _ready_process(apart, stack)
    own_network.join(namespace.pid, f"good{number}", "good")
    own_network.set_up(f"good{number}", f"10.78.{number}.1/30")
    address = ["addr", "add", f"10.78.{number}.2/30", "dev", "good"]
    for words in (address, ["link", "set", "good", "up"], ["link", "set", "lo", "up"]):
        await trio.run_process(["nsenter", "--target", str(namespace.pid), "--net", "ip", *words])
    relay = [sys.executable, "-m", "bench.relay", "--far-pid", str(namespace.pid), "--device", f"bad{number}"]
    relay += ["--near", f"10.77.{number}.1", "--far", f"10.77.{number}.2", "--seed", str(number)]
    home = trio.Path(directory / f"b{number}")
    await home.mkdir()
    return Broker(number, Path(home), namespace, await _ready_process(relay, stack))


async def _ready_process(command: list[str], stack: AsyncExitStack) -> trio.Process:
    """Raises Unavailable if it does not say that it is ready."""
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stack.callback(process.kill)
    assert process.stdout is not None
    if await process.stdout.receive_some(len(READY)) != READY:
        raise Unavailable(f"{' '.join(command)}: did not start")
    return process


async def soak(seconds: float, seed: int, brokers: int) -> list[str]:
    """What is not as it must be, in words."""
    chance, failures = random.Random(seed), list[str]()
    with tempfile.TemporaryDirectory() as directory:
        async with running(Path(directory), brokers) as cluster, trio.open_nursery() as nursery:
            await cluster.submit()
            for broker in cluster.brokers:
                nursery.start_soon(publish, broker)
            ends_s = trio.current_time() + seconds
            while trio.current_time() < ends_s:
                await trio.sleep(chance.uniform(0.5, 4.0))
                await cluster.do_harm(chance)
            for broker in cluster.brokers:
                await broker.set_link(GOOD)
            back_s = await _until_whole(cluster)
            if back_s is None:
                failures.append(f"shares in force after {3 * LEASE_S:g} s: {await cluster.in_force()}")
            await trio.sleep(2.0)
            for broker in cluster.brokers:
                await broker.read(cluster.logs)
            nursery.cancel_scope.cancel()
        failures += [f"{topic}, {form}: {violation}" for topic, form, violation in cluster.logs.violations()]
    counts = ", ".join(
        f"{cluster.logs.count(topic)} of {topic} (at most {cluster.logs.lateness_ns[topic] / 1e6:.1f} ms late)"
        for topic in TOPICS
    )
    back = "never" if back_s is None else f"after {back_s:.1f} s"
    print(
        f"leases: {seconds:g} s, seed {seed}, {len(cluster.faults)} faults, released {counts},"
        f" shares whole {back}: {'FAILED' if failures else 'passed'}"
    )
    return failures


async def _until_whole(cluster: Cluster) -> float | None:
    """Seconds until the shares in force are exactly the envelope; None: not within three lease times."""
    started_s = trio.current_time()
    whole = dict.fromkeys(TOPICS, (RATE, BURST))
    with trio.move_on_after(3 * LEASE_S):
        while True:
            if await cluster.in_force() == whole:
                return trio.current_time() - started_s
            await trio.sleep(0.1)
    return None


def check_means() -> None:
    """Raises Unavailable naming what is missing."""
    own_network.check_privileges()
    lacking = [f"the command {name} (util-linux)" for name in ("unshare", "nsenter") if shutil.which(name) is None]
    lacking += ["/dev/net/tun"] * (not os.access("/dev/net/tun", os.R_OK | os.W_OK))
    if lacking:
        raise Unavailable(f"bad links between network namespaces need {', '.join(lacking)}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m bench.lease_soak")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brokers", type=int, default=3)
    asked = parser.parse_args(arguments)
    try:
        check_means()
        own_network.enter()
        failures = trio.run(partial(soak, asked.seconds, asked.seed, asked.brokers))
    except SrtmError as error:
        print(error, file=sys.stderr)
        return 1
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

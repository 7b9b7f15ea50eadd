"""Both lease rules, and GDRL, on real processes in network namespaces: ``python -m tests.faults.lease_soak
--seconds 600``.

Each broker has two links: a good one to its publishers, and a bad one (``bench.harness.machine.lossy_link``) to the
distributor and to the other brokers, which is cut, delayed, made lossy and healed at random. Brokers and the
distributor are stopped for longer than a lease and go on, or are killed and started again; some are proven dead before
that, and the others must have their tokens then; the topic whose brokers exchange is taken out of that mode and put
back. Publishers send more than the envelope all the time, so that whatever may be let go is. At the end everything is
healed; then the merged release logs must pass both forms of the checker, and the shares in force must come back to
exactly (r, b) within three lease times: under GDRL, and once more after it is left.

The log of a broker that is to be killed is fetched right before: what it lets go in the milliseconds until the signal
is missing there, and nothing else.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from bench.harness.machine.lossy_link import CUT, GOOD, Quality
from srtm import protocol as wire
from srtm.client.distributor import DistributorClient
from srtm.control import DeadNotice
from tests.faults.program import check_means, status_of
from tests.faults.soak_broker import Broker, forward_between_brokers, new_broker, until_answer
from tests.faults.soak_logs import Logs

LEASE_S = 5.0
RATE, BURST = 300.0, 30.0  # of each topic
TOPICS = {"timed": (f"{LEASE_S:g}s", "static"), "kept": ("keep", "static"), "exchanged": ("keep", "gdrl")}
_OFFERED = (
    0.6  # of a topic's rate, to every broker; of the exchanged one's twice that to the first, and less to the others
)
_BEAT_S = 0.05
FAULTS = (
    *("cut", "bad", "heal", "stop", "kill", "kill and prove", "stop the distributor", "kill the distributor"),
    *("leave the exchange", "exchange"),
)
_ANSWER_S = 2.0
_BAD = Quality(loss=0.15, twice=0.1, delay_ms=150.0, jitter_ms=400.0)


class Cluster:
    """Everything that runs. ``faults``: what was done to it, in order; ``failures``: what did not come of it."""

    def __init__(self, directory: Path) -> None:
        self.brokers: list[Broker] = []
        self.faults: list[str] = []
        self.failures: list[str] = []
        self.freed_s: list[float | None] = []  # after each proof of death: until the others had all of it
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
            for topic, (lease, mode) in TOPICS.items():
                publishers = [{"count": 30, "rate": RATE / 40, "id_prefix": f"{topic}-"}]
                document = {"name": topic, "rate": RATE, "burst": BURST, "lease": lease, "publishers": publishers}
                await client.create_or_change_topic(topic, {**document, "mode": mode, "slo": slo})

    async def switch(self, mode: str) -> None:
        """The exchanged topic's mode."""
        async with DistributorClient(["http://127.0.0.1:4190"]) as client:
            await client.set_options("exchanged", {"mode": mode})

    async def kill_and_prove(self, broker: Broker) -> None:
        """Notes how long after the proof the others had all, and starts it again two leases later."""
        for one in self.brokers:
            await one.set_link(GOOD)
        if await _seconds_until(self.is_fully_assigned) is None:
            self.failures.append(f"b{broker.number}, before its death: shares in force {await self.in_force()}")
        async with DistributorClient(["http://127.0.0.1:4190"]) as client:
            incarnation = (await client.broker(f"b{broker.number}"))["incarnation"]
            await broker.kill(list(TOPICS), self.logs)
            await client.broker_is_dead(f"b{broker.number}", DeadNotice(incarnation=incarnation, reason="killed"))
        self.freed_s.append(await _seconds_until(self.is_fully_assigned))
        if self.freed_s[-1] is None:
            sums = await self.in_force()
            self.failures.append(f"b{broker.number} was proven dead: the others' shares in force {sums}")
        await trio.sleep(2 * LEASE_S)
        await broker.start()

    async def in_force(self) -> dict[str, tuple[float, float]]:
        """Sums of the shares of brokers that run."""
        sums = {}
        for topic in TOPICS:
            shares = [await broker.share(topic) for broker in self.brokers if broker.process is not None]
            sums[topic] = (round(sum(rate for rate, _ in shares), 6), round(sum(burst for _, burst in shares), 6))
        return sums

    async def is_fully_assigned(self) -> bool:
        """The shares in force are exactly the envelopes. Of the exchanged topic that is seen between two exchanges."""
        return await self.in_force() == dict.fromkeys(TOPICS, (RATE, BURST))

    async def has_exchanged(self) -> bool:
        """The first broker, which is sent most, has got from the others."""
        first, *others = [(await broker.share("exchanged"))[0] for broker in self.brokers]
        return first > RATE / 2 > max(others)

    async def do_harm(self, chance: random.Random) -> None:
        """One fault, to its end or to a state that the next one may find."""
        broker = chance.choice(self.brokers)
        what = chance.choice(FAULTS)
        self.faults.append(f"{what} b{broker.number}")
        match what:
            case "cut" | "bad" | "heal":
                await broker.set_link({"cut": CUT, "bad": _BAD, "heal": GOOD}[what])
            case "stop":
                await broker.stop_for(chance.uniform(0.5, 2.0) * LEASE_S, self.logs)
            case "kill and prove":
                await self.kill_and_prove(broker)
            case "kill":
                await broker.kill(list(TOPICS), self.logs)
                await trio.sleep(chance.uniform(0.0, 2.0) * LEASE_S)
                await broker.start()
            case "leave the exchange" | "exchange":
                await self.switch("gdrl" if what == "exchange" else "static")
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


async def publish(broker: Broker) -> None:
    """Until cancelled: more of both topics than the broker may let go, whatever happens to it."""
    while True:
        try:
            with trio.fail_after(_ANSWER_S):
                stream = await trio.open_tcp_stream(f"10.78.{broker.number}.2", 4150)
            async with stream, trio.open_nursery() as nursery:
                nursery.start_soon(_send, stream, broker.number)
                async for _ in stream:  # answers and refusals alike
                    pass
                nursery.cancel_scope.cancel()
        except* (OSError, trio.BrokenResourceError, trio.TooSlowError):
            pass  # it is down: that is what this is about
        await trio.sleep(0.2)


async def _send(stream: trio.SocketStream, number: int) -> None:
    await stream.send_all(wire.MAGIC + wire.identify({"client_id": "soak", "heartbeat_interval": -1}))
    count = round(RATE * _OFFERED * _BEAT_S)
    parts = {topic: count * 2 // number if topic == "exchanged" else count for topic in TOPICS}
    batch = b"".join(wire.pub(topic, b"x") * part for topic, part in parts.items())
    while True:
        await stream.send_all(batch)
        await trio.sleep(_BEAT_S)


@asynccontextmanager
async def running(directory: Path, count: int) -> AsyncIterator[Cluster]:
    """In a network namespace of its own. Raises Unavailable."""
    cluster = Cluster(directory)
    async with AsyncExitStack() as stack:
        stack.callback(cluster.end)
        forward_between_brokers()
        await cluster.start_distributor()
        for number in range(1, count + 1):
            broker = await new_broker(number, directory, stack)
            cluster.brokers.append(broker)
            await broker.start()
        yield cluster


async def soak(directory: Path, seconds: float, seed: int, brokers: int) -> list[str]:
    """What is not as it must be, in words."""
    chance, failures = random.Random(seed), list[str]()
    async with running(directory, brokers) as cluster, trio.open_nursery() as nursery:
        await cluster.submit()
        for broker in cluster.brokers:
            nursery.start_soon(publish, broker)
        if await _seconds_until(cluster.has_exchanged) is None:
            failures.append("the brokers exchange nothing")
        ends_s = trio.current_time() + seconds
        while trio.current_time() < ends_s:
            await trio.sleep(chance.uniform(0.5, 4.0))
            await cluster.do_harm(chance)
        for broker in cluster.brokers:
            await broker.set_link(GOOD)
        times = []
        for mode in ("gdrl", "static"):
            await cluster.switch(mode)
            times.append(await _seconds_until(cluster.is_fully_assigned))
            if times[-1] is None:
                failures.append(f"{mode}: shares in force after {3 * LEASE_S:g} s: {await cluster.in_force()}")
        await trio.sleep(2.0)
        for broker in cluster.brokers:
            await broker.read(list(TOPICS), cluster.logs)
        nursery.cancel_scope.cancel()
    violations = cluster.logs.violations(RATE, BURST)
    failures += cluster.failures
    failures += [f"{topic}, {form}: {violation}" for topic, form, violation in violations]
    counts = ", ".join(
        f"{cluster.logs.count(topic)} of {topic} ({cluster.logs.ordinary(topic)[1] / 1e6:.1f} ms late, but after stops)"
        for topic in TOPICS
    )
    back = " and ".join(map(_after, times))
    freed = ", ".join(map(_after, cluster.freed_s)) or "none proven"
    print(
        f"leases: {seconds:g} s, seed {seed}, {len(cluster.faults)} faults, released {counts},"
        f" shares whole {back}, without the dead {freed}: {'FAILED' if failures else 'passed'}"
    )
    return failures


def _after(seconds: float | None) -> str:
    return "never" if seconds is None else f"after {seconds:.1f} s"


async def _seconds_until(holds: Callable[[], Awaitable[bool]]) -> float | None:
    """None: not within three lease times."""
    started_s = trio.current_time()
    with trio.move_on_after(3 * LEASE_S):
        while True:
            if await holds():
                return trio.current_time() - started_s
            await trio.sleep(0.1)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.faults.lease_soak")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brokers", type=int, default=3)
    asked = parser.parse_args(arguments)
    return status_of(check_means, partial(soak, seconds=asked.seconds, seed=asked.seed, brokers=asked.brokers))


if __name__ == "__main__":
    sys.exit(main())

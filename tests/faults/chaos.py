"""Chaos in a whole cluster: ``python -m tests.faults.chaos --seconds 600``.

Three brokers, a distributor and an adaptor run as processes in network namespaces (``tests.faults.soak_broker``).
Meanwhile, as a seed draws it and all at once:

* brokers are cut off, have bad links, are stopped, are killed and started again, also on an older copy of their
  directory, or are declared dead; a second broker runs under the name of one that is cut off, on a copy of its
  directory;
* the distributor is stopped, and killed and started again, also on an older copy of its store;
* the wall clocks of all of them step by up to a day;
* topics are submitted, removed, submitted again, and change their mode.

In one run either directories or the store are put back, as the seed draws it. Where both are older, and the brokers
that know more are silent, nobody is left who could tell: docs/operating.md, "the store is restored from an older copy".

Publishers send every broker more than a topic's whole rate, so that whatever may be let go is. At the end everything is
healed. Then the shares in force must be exactly (r, b) again, every topic must have let something go, and the merged
traces of all brokers, the second one's too, must pass ``tests.faults.envelope``.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from bench.harness.machine.lossy_link import CUT, GOOD, Quality
from srtm import protocol as wire
from tests.faults.chaos_cluster import (
    ENVELOPE,
    LEASE_S,
    MODES,
    Cluster,
    Member,
    Topic,
    change_copies,
    copy_directory,
    running,
)
from tests.faults.program import check_means as check_namespaces
from tests.faults.program import status_of
from tests.faults.wall_clock import WallClock, check_compiler

BROKER_FAULTS = ("cut", "bad link", "heal", "stop", "kill", "kill and prove", "older directory", "copy", "clock")
DISTRIBUTOR_FAULTS = ("stop", "kill", "older store", "clock")
PUT_BACK = ("older directory", "older store")
CHANGES = ("mode", "mode", "submit", "remove", "submit again")
TOPICS = {"kept": "keep", "timed": f"{LEASE_S:g}s", "third": "keep"}
_MOST_TOPICS = 5
_BAD = Quality(loss=0.15, twice=0.1, delay_ms=150.0, jitter_ms=400.0)
_DAY_S = 86_400.0
_BEAT_S = 0.05
_PER_BEAT = round(1.2 * ENVELOPE.rate * _BEAT_S)
_REACHED_WITHIN_S = 2.0
_LEAST_RELEASED = 0.05  # part of r times a topic's life; kept shares of killed brokers may be away for long


class Chaos:
    """What is done to ``cluster``, by one seeded task for each broker, the distributor and the topics."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._seed = seed
        self._submitted = 0
        self._left_out = self._chance("put back").choice(PUT_BACK)

    async def run(self, seconds: float) -> None:
        """Faults that have begun are seen to their end."""
        ends_s = trio.current_time() + seconds
        async with trio.open_nursery() as nursery:
            for member in self._cluster.members:
                nursery.start_soon(self._harm_broker, member, ends_s)
            nursery.start_soon(self._harm_distributor, ends_s)
            nursery.start_soon(self._change_topics, ends_s)

    def _chance(self, whose: str) -> random.Random:
        return random.Random(f"{self._seed} {whose}")

    def _draw(self, faults: Sequence[str], chance: random.Random) -> str:
        return chance.choice([fault for fault in faults if fault != self._left_out])

    async def _harm_broker(self, member: Member, ends_s: float) -> None:
        chance = self._chance(member.broker.name)
        older = Path(f"{member.broker.directory}.older")
        await trio.to_thread.run_sync(copy_directory, member.broker.directory, older)
        while trio.current_time() < ends_s:
            await trio.sleep(chance.uniform(0.2, 3.0))
            what = self._draw(BROKER_FAULTS, chance)
            self._cluster.note(what, member.broker.name)
            async with member.lock:
                await self._do_to_broker(what, member, older, chance)

    async def _do_to_broker(self, what: str, member: Member, older: Path, chance: random.Random) -> None:
        broker = member.broker
        match what:
            case "cut" | "bad link" | "heal":
                await broker.set_link({"cut": CUT, "bad link": _BAD, "heal": GOOD}[what])
            case "stop":
                broker.signal(signal.SIGSTOP)
                await trio.sleep(chance.uniform(0.1, 2.0) * LEASE_S)
                broker.signal(signal.SIGCONT)
            case "kill" | "kill and prove" | "older directory":
                await self._kill(what, member, older, chance)
            case "copy":
                async with self._cluster.spare_lock:
                    await self._cluster.start_copy(member)
                    await trio.sleep(chance.uniform(0.5, 2.0) * LEASE_S)
                    await self._cluster.end_copy(member)
            case "clock":
                step(member.clock, chance)

    async def _kill(self, what: str, member: Member, older: Path, chance: random.Random) -> None:
        """``older``: a copy of its directory, made at the kill before this."""
        broker = member.broker
        incarnation = await self._cluster.incarnation(member)
        await self._cluster.kill(member)
        if incarnation is not None and what != "kill":
            await self._cluster.prove_death(member, incarnation)
        await trio.to_thread.run_sync(change_copies, broker.directory, older, what == "older directory")
        await trio.sleep(chance.uniform(0.0, 1.5) * LEASE_S)
        await broker.start()

    async def _harm_distributor(self, ends_s: float) -> None:
        chance = self._chance("distributor")
        while trio.current_time() < ends_s:
            await trio.sleep(chance.uniform(1.0, 6.0))
            what = self._draw(DISTRIBUTOR_FAULTS, chance)
            self._cluster.note(what, "distributor")
            async with self._cluster.distributor_lock:
                await self._do_to_distributor(what, chance)

    async def _do_to_distributor(self, what: str, chance: random.Random) -> None:
        match what:
            case "stop":
                await self._cluster.stop_distributor_for(chance.uniform(0.1, 2.0) * LEASE_S)
            case "kill" | "older store":
                await self._cluster.kill_distributor()
                if what == "older store" and self._cluster.copy_is_complete:
                    self._cluster.put_store_back()
                await trio.sleep(chance.uniform(0.0, 1.5) * LEASE_S)
                await self._cluster.start_distributor()
            case "clock":
                step(self._cluster.distributor_clock, chance)

    async def _change_topics(self, ends_s: float) -> None:
        chance = self._chance("topics")
        while trio.current_time() < ends_s:
            await trio.sleep(chance.uniform(0.5, 4.0))
            what = chance.choice(CHANGES)
            name = chance.choice(sorted(self._cluster.topics))
            self._cluster.note(what, "topic")
            match what:
                case "mode":
                    await self._cluster.switch(name, chance.choice(MODES))
                case "submit" if len(self._cluster.topics) < _MOST_TOPICS:
                    self._submitted += 1
                    lease = chance.choice(sorted(TOPICS.values()))
                    await self._cluster.submit(Topic(f"new{self._submitted}", lease), chance.choice(modes(lease)))
                case "remove" if len(self._cluster.topics) > 1:
                    await self._cluster.remove(name)
                case "submit again":
                    removed = await self._cluster.remove(name)
                    await self._cluster.submit(Topic(name, removed.lease), chance.choice(modes(removed.lease)))


def modes(lease: str) -> list[str]:
    """Those that a topic with that lease may have."""
    return [mode for mode in MODES if lease == "keep" or mode != "gdrl"]


def step(clock: WallClock, chance: random.Random) -> None:
    """By seconds, or by up to a day, to either side."""
    clock.set(chance.choice((1.0, -1.0)) * chance.choice((chance.uniform(0, 10), chance.uniform(0, _DAY_S))))


async def publish(member: Member, cluster: Cluster) -> None:
    """Until cancelled: more than the envelope of each topic that the broker has heard of, whatever happens to it."""
    while True:
        try:
            with trio.fail_after(_REACHED_WITHIN_S):
                stream = await trio.open_tcp_stream(f"10.78.{member.number}.2", 4150)
            async with stream, trio.open_nursery() as nursery:
                nursery.start_soon(_send, stream, member, cluster)
                async for _ in stream:  # answers and refusals alike
                    pass
                nursery.cancel_scope.cancel()
        except* (OSError, trio.BrokenResourceError, trio.TooSlowError):
            pass  # it is down: that is what this is about
        await trio.sleep(0.2)


async def _send(stream: trio.SocketStream, member: Member, cluster: Cluster) -> None:
    await stream.send_all(wire.MAGIC + wire.identify({"client_id": "chaos", "heartbeat_interval": -1}))
    while True:
        heard = [name for name, topic in cluster.topics.items() if member.number in topic.heard]
        await stream.send_all(b"".join(wire.pub(name, b"x") * _PER_BEAT for name in heard))
        await trio.sleep(_BEAT_S)


async def run(directory: Path, seconds: float, seed: int, brokers: int) -> list[str]:
    """Return what is not as it must be, in words. ``directory`` then holds the logs of all processes."""
    async with running(directory, brokers) as cluster, trio.open_nursery() as nursery:
        await prepare(cluster)
        nursery.start_soon(cluster.listen)
        for member in (*cluster.members, cluster.spare):
            nursery.start_soon(publish, member, cluster)
        await Chaos(cluster, seed).run(seconds)
        failures = await judge(cluster)
        nursery.cancel_scope.cancel()
    released = sum(topic.released for topic in (*cluster.topics.values(), *cluster.ended))
    counted = ", ".join(f"{count} {what}" for what, count in sorted(Counter(cluster.faults).items()))
    print(f"chaos: {seconds:g} s, seed {seed}, released {released}; {counted}: {'FAILED' if failures else 'passed'}")
    return failures


async def prepare(cluster: Cluster) -> None:
    """The last broker starts when topics are placed and a copy of the store is made that does not know it."""
    *first, last = cluster.members
    for member in first:
        await member.broker.start()
    for (name, lease), mode in zip(TOPICS.items(), MODES, strict=False):
        await cluster.submit(Topic(name, lease), mode)
    await last.broker.start()


async def judge(cluster: Cluster) -> list[str]:
    """After everything was healed."""
    failures = cluster.failures
    for member in cluster.members:
        await member.broker.set_link(GOOD)
        member.clock.set(0.0)
    await cluster.prove_ends_of_copies()
    if await cluster.seconds_until_whole() is None:
        failures.append(f"shares in force when all was healed: {await cluster.in_force()}")
    await trio.sleep(2.0)
    for topic in cluster.topics.values():
        for member in cluster.members:
            await cluster.read_trace(member, topic)
    for topic in (*cluster.ended, *cluster.topics.values()):
        found = topic.excess()
        if found is not None:
            failures.append(f"{topic.name} ({topic.lease}): {found}")
    for topic in cluster.topics.values():
        if topic.released == 0:
            failures.append(f"{topic.name}: nothing was let go, which shows nothing")
    return failures


def check_means() -> None:
    """Raises Unavailable naming what is missing."""
    check_namespaces()
    check_compiler()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.faults.chaos", description="Chaos in a whole cluster.")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="an empty one, kept with all data and logs; default: none is")
    asked = parser.parse_args(arguments)
    work = partial(run, seconds=asked.seconds, seed=asked.seed, brokers=asked.brokers)
    return status_of(check_means, work, asked.directory)


if __name__ == "__main__":
    sys.exit(main())

"""The processes and topics of ``tests.faults.chaos``, and the traces of all that the brokers let go."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import trio

from bench.harness.cluster_runs.broker_api import bucket_state
from bench.harness.cluster_runs.trace import Trace, fetch_trace
from bench.harness.machine.lossy_link import CUT, GOOD
from srtm.client.distributor import DistributorClient
from srtm.control import DeadNotice
from srtm.errors import BadInput, NotFound, PeerError, SrtmError, Unavailable
from tests.faults.envelope import Column, Envelope, excess
from tests.faults.soak_broker import Broker, forward_between_brokers, new_broker, until_answer
from tests.faults.wall_clock import WallClock, build

LEASE_S = 5.0
URL = "http://127.0.0.1:4190"
ENVELOPE = Envelope(rate=200.0, burst=20.0)  # of each topic
MODES = ("static", "proportional", "fitted", "gdrl", "central")
_POLL_S = 0.1
_INCARNATION = "srtm.incarnation"
_REACHED_WITHIN_S = 20.0
_SETTLES_WITHIN_S = 6 * LEASE_S


@dataclass
class Topic:
    """One life of a topic, from its submission to its removal.

    ``since_ns``: the submission was answered. ``until_ns``: the removal was asked for. Both by CLOCK_MONOTONIC, which
    traces are in; all processes run on one host. ``heard``: numbers of brokers that have had a bucket for it. Only
    these are sent messages: one that cannot know of a topic cannot limit it.
    """

    name: str
    lease: str
    since_ns: int = 0
    until_ns: int | None = None
    heard: set[int] = field(default_factory=set)
    due_ns: dict[tuple[int, int], Column] = field(default_factory=dict)  # by broker and its process

    def take(self, broker: int, process: int, due_ns: Column) -> None:
        """A later trace of the same process holds all of an earlier one."""
        until_ns = np.iinfo(np.int64).max if self.until_ns is None else self.until_ns
        self.due_ns[broker, process] = due_ns[(due_ns >= self.since_ns) & (due_ns <= until_ns)]

    @property
    def released(self) -> int:
        return sum(map(len, self.due_ns.values()))

    def excess(self) -> str | None:
        """Which interval broke the law, and whose processes let go how much in it; None: the law holds."""
        found = excess(self.due_ns.values(), ENVELOPE)
        if found is None:
            return None
        within = {
            f"process {process} of b{broker}": int(((due_ns >= found.from_ns) & (due_ns <= found.to_ns)).sum())
            for (broker, process), due_ns in self.due_ns.items()
        }
        return f"{found}: {', '.join(f'{count} by {who}' for who, count in within.items() if count)}"


@dataclass
class Member:
    """A broker with a clock of its own. ``lock``: held while something is done to it, or its traces are read."""

    broker: Broker
    clock: WallClock
    lock: trio.Lock = field(default_factory=trio.Lock)

    @property
    def number(self) -> int:
        return self.broker.number


class Cluster:
    """``members``, and a ``spare``: a broker that is started only on copies of the others' directories."""

    def __init__(self, directory: Path) -> None:
        self.members: list[Member] = []
        self.spare: Member
        self.topics: dict[str, Topic] = {}
        self.ended: list[Topic] = []
        self.failures: list[str] = []
        self.faults: list[str] = []  # what was done, in order
        self.spare_lock = trio.Lock()
        self.ended_copies: list[tuple[Member, str]] = []  # (of whom, its incarnation)
        self.distributor_lock = trio.Lock()  # held while something is done to it
        self.copy_is_complete = False  # the store's copy knows all topics, and none that was removed
        self._started_s = trio.current_time()
        self._directory = directory
        self._store, self._store_copy = directory / "store", directory / "store.copy"
        self._store.mkdir()
        self._library = build(directory)
        self._distributor: trio.Process | None = None
        self._adaptor: trio.Process | None = None
        self.distributor_clock = self.new_clock("distributor")

    def note(self, what: str, whose: str) -> None:
        self.faults.append(f"{what} {whose}")
        print(f"{trio.current_time() - self._started_s:.1f} s: {what} {whose}", flush=True)

    def new_clock(self, name: str) -> WallClock:
        return WallClock(self._library, self._directory / f"{name}.offset")

    # the distributor

    async def start_distributor(self) -> None:
        command = [sys.executable, "-m", "srtm", "distributor", "--http-address", "0.0.0.0:4190"]
        command += ["--store", f"sqlite:///{self._store / 'store.sqlite3'}", "--fitting", "off"]
        environment = {**os.environ, **self.distributor_clock.environment}
        with (self._directory / "distributor.log").open("ab") as log:
            self._distributor = await trio.lowlevel.open_process(command, stderr=log, env=environment)
        await until_answer("127.0.0.1:4190")

    async def start_adaptor(self) -> None:
        command = [sys.executable, "-m", "srtm", "adaptor", "--distributor", URL]
        self._adaptor = await trio.lowlevel.open_process(command, stderr=subprocess.DEVNULL)

    async def kill_distributor(self) -> None:
        assert self._distributor is not None
        self._distributor.kill()
        await self._distributor.wait()

    async def stop_distributor_for(self, seconds: float) -> None:
        assert self._distributor is not None
        self._distributor.send_signal(signal.SIGSTOP)
        await trio.sleep(seconds)
        self._distributor.send_signal(signal.SIGCONT)

    async def copy_store(self) -> None:
        """As a snapshot of the disk finds it. The copy knows the same topics; shares, modes and brokers get older."""
        assert self._distributor is not None
        async with self.distributor_lock:
            self._distributor.send_signal(signal.SIGSTOP)
            copy_directory(self._store, self._store_copy)
            self._distributor.send_signal(signal.SIGCONT)
        self.copy_is_complete = True

    def put_store_back(self) -> None:
        """While no distributor runs."""
        copy_directory(self._store_copy, self._store)

    # topics

    async def submit(self, topic: Topic, mode: str) -> None:
        """Until it is answered; the same document twice changes nothing."""
        self.copy_is_complete = False
        publishers = [{"count": 30, "rate": ENVELOPE.rate / 40, "id_prefix": f"{topic.name}-"}]
        document = {"name": topic.name, "rate": ENVELOPE.rate, "burst": ENVELOPE.burst, "lease": topic.lease}
        document |= {"mode": mode, "publishers": publishers, "slo": {"percentile": 99, "latency_ms": 50}}
        async with DistributorClient(URL) as client:
            while True:
                try:
                    await client.create_or_change_topic(topic.name, document)
                    break
                except BadInput:
                    raise
                except SrtmError:  # it is stopped, or being started
                    await trio.sleep(_POLL_S)
        topic.since_ns = time.monotonic_ns()
        self.topics[topic.name] = topic
        await self.copy_store()

    async def remove(self, name: str) -> Topic:
        """Read what it let go, then remove it for good."""
        self.copy_is_complete = False
        topic = self.topics.pop(name)
        for member in self.members:
            async with member.lock:
                await self.read_trace(member, topic)
        topic.until_ns = time.monotonic_ns()
        self.ended.append(topic)
        async with DistributorClient(URL) as client:
            while True:
                try:
                    await client.remove_topic(name)
                except NotFound:
                    break
                except SrtmError:
                    await trio.sleep(_POLL_S)
        await self.copy_store()
        return topic

    async def switch(self, name: str, mode: str) -> bool:
        """False: the distributor does not answer now."""
        try:
            async with DistributorClient(URL, timeout_s=2.0) as client:
                await client.set_options(name, {"mode": mode})
        except SrtmError:
            return False
        return True

    async def listen(self) -> None:
        """Until cancelled: note which brokers have heard of which topic."""
        while True:
            for member in self.members:
                for topic in list(self.topics.values()):
                    if member.number not in topic.heard and await self.has_bucket(member, topic):
                        topic.heard.add(member.number)
            await trio.sleep(_POLL_S)

    async def has_bucket(self, member: Member, topic: Topic) -> bool:
        with trio.move_on_after(0.5):  # it may be stopped
            try:
                await bucket_state(member.broker.http_address, topic.name)
            except SrtmError:
                return False
            return True
        return False

    # brokers

    async def read_trace(self, member: Member, topic: Topic) -> None:
        process = member.broker.process
        if process is None:
            return
        try:
            trace = await self._trace(member, topic)
        except PeerError as error:
            if ": 404 " not in str(error):
                raise
            return  # this process has let nothing go: it has not heard of the topic
        topic.take(member.number, process.pid, trace.due_ns[trace.released_ns > 0])

    async def _trace(self, member: Member, topic: Topic) -> Trace:
        """Of a process that runs, but may be slow, or have just been started."""
        with trio.fail_after(_REACHED_WITHIN_S):
            while True:
                try:
                    return await fetch_trace(member.broker.http_address, topic.name)
                except Unavailable:
                    await trio.sleep(_POLL_S)

    async def kill(self, member: Member) -> None:
        """What it lets go between its last trace and the signal is missing, and nothing else."""
        process = member.broker.process
        assert process is not None
        if process.poll() is None:
            for topic in list(self.topics.values()):
                await self.read_trace(member, topic)
        elif member is not self.spare:
            self.failures.append(f"{member.broker.name} ended by itself with status {process.returncode}")
        process.kill()
        await process.wait()
        member.broker.process = None

    async def incarnation(self, member: Member) -> str | None:
        """None: the distributor does not answer now, or has not heard of it."""
        try:
            async with DistributorClient(URL, timeout_s=2.0) as client:
                return str((await client.broker(member.broker.name))["incarnation"])
        except SrtmError:
            return None

    async def prove_death(self, member: Member, incarnation: str) -> bool:
        """An operator's word, of a process that has ended. False: the distributor did not take it."""
        try:
            async with DistributorClient(URL, timeout_s=2.0) as client:
                await client.broker_is_dead(member.broker.name, DeadNotice(incarnation=incarnation, reason="killed"))
        except SrtmError:
            return False
        return True

    async def start_copy(self, member: Member) -> None:
        """Cut the broker off, and start the spare under its name on a copy of its directory."""
        folder = self._directory / "spare"
        await trio.to_thread.run_sync(copy_directory, member.broker.directory, folder)
        await member.broker.set_link(CUT)
        await self.spare.broker.start_as(member.broker.name, folder)  # it must be refused
        for topic in self.topics.values():
            topic.heard.add(self.spare.number)

    async def end_copy(self, member: Member) -> None:
        for topic in self.topics.values():
            topic.heard.discard(self.spare.number)
        await self.kill(self.spare)
        self.ended_copies.append((member, (self._directory / "spare" / "srtm.incarnation").read_text().strip()))
        await member.broker.set_link(GOOD)

    async def prove_ends_of_copies(self) -> None:
        """An operator's word: one may have come first when its name was dead, or unknown to an older store."""
        for member, incarnation in self.ended_copies:
            await self.prove_death(member, incarnation)

    async def in_force(self) -> dict[str, tuple[float, float]]:
        """Sums of the shares of all brokers, by topic."""
        sums = {}
        for name in self.topics:
            shares = [await bucket_state(member.broker.http_address, name) for member in self.members]
            sums[name] = (round(sum(one.rate for one in shares), 6), round(sum(one.burst for one in shares), 6))
        return sums

    async def seconds_until_whole(self) -> float | None:
        """Until the shares in force are the envelopes; None: they do not become so."""
        started_s = trio.current_time()
        with trio.move_on_after(_SETTLES_WITHIN_S):
            while True:
                try:
                    sums: Mapping[str, tuple[float, float]] = await self.in_force()
                except SrtmError:  # a broker that has not heard of a topic yet, or is slow to take a connection
                    sums = {}
                if sums == dict.fromkeys(self.topics, (ENVELOPE.rate, ENVELOPE.burst)):
                    return trio.current_time() - started_s
                await trio.sleep(_POLL_S)
        return None

    def end(self) -> None:
        processes = [self._distributor, self._adaptor]
        processes += [member.broker.process for member in (*self.members, self.spare)]
        for process in processes:
            if process is not None:
                process.kill()


def copy_directory(source: Path, target: Path) -> None:
    """As it is now, in the place of what ``target`` was. A process may be writing to ``source``."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore_dangling_symlinks=True, copy_function=_copy_if_there)


def _copy_if_there(source: str, target: str) -> None:
    """A file that is written under another name first may get its own between the listing and the copy."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def change_copies(directory: Path, older: Path, put_back: bool) -> None:
    """``older`` becomes a copy of ``directory``, which becomes what ``older`` was if it is to be put back.

    The incarnation stays: an older one is refused for good once a later one was heard, so nothing would come of it.
    """
    now = directory.with_suffix(".now")
    copy_directory(directory, now)
    if put_back:
        copy_directory(older, directory)
        shutil.copy(now / _INCARNATION, directory)
    shutil.rmtree(older)
    now.rename(older)


@asynccontextmanager
async def running(directory: Path, count: int) -> AsyncIterator[Cluster]:
    """``count`` brokers with their links, not started; the distributor and the adaptor run. Raises Unavailable."""
    cluster = Cluster(directory)
    async with AsyncExitStack() as stack:
        forward_between_brokers()
        for number in range(1, count + 2):
            broker = await new_broker(number, directory, stack)
            clock = cluster.new_clock(broker.name)
            broker.environment = clock.environment
            cluster.members.append(Member(broker, clock))
        cluster.spare = cluster.members.pop()
        stack.callback(cluster.end)
        await cluster.start_distributor()
        await cluster.start_adaptor()
        yield cluster

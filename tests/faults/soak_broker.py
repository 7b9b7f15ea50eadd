"""Brokers of a soak, each in a network namespace of its own with two links: a good one to its publishers, and a bad one
(``bench.harness.machine.lossy_link``) to the distributor and to the other brokers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import trio

from bench.harness.cluster_runs.broker_api import bucket_state, request
from bench.harness.cluster_runs.trace import fetch_trace
from bench.harness.machine import namespaces as own_network
from bench.harness.machine.lossy_link import READY, Quality
from srtm.errors import PeerError, Unavailable
from tests.faults.soak_logs import Logs

_ANSWER_S = 2.0
_START_S = 90.0
_CHECKS_SOURCE = (
    "/proc/sys/net/ipv4/conf/all/rp_filter"  # other brokers' words come in by one link and go out by another
)
_FORWARDS = Path("/proc/sys/net/ipv4/ip_forward")


@dataclass
class Broker:
    """``number`` gives it its addresses: 10.77.N.2 on the bad link, 10.78.N.2 on the good one. ``environment``: added
    to that of its processes; ``flags``: to their command."""

    number: int
    directory: Path
    namespace: trio.Process
    link: trio.Process
    process: trio.Process | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    flags: Sequence[str] = ()

    @property
    def name(self) -> str:
        return f"b{self.number}"

    @property
    def http_address(self) -> str:
        return f"10.78.{self.number}.2:4151"

    async def start(self) -> None:
        """Until it answers, be it that it must hear the distributor first: that may be cut off."""
        await self.start_as(self.name, self.directory)

    async def start_as(self, name: str, directory: Path) -> None:
        """Start another broker's name or directory here, until it answers."""
        await self.launch(name, directory)
        await until_answer(self.http_address, is_ready=False)

    async def launch(self, name: str, directory: Path) -> None:
        """Start a process that may be refused, under its own name and directory or another broker's."""
        command = ["nsenter", "--target", str(self.namespace.pid), "--net", sys.executable, "-m", "broker"]
        command += ["--name", name, "--data-path", str(directory)]
        command += ["--tcp-address", f"10.78.{self.number}.2:4150", "--http-address", self.http_address]
        command += ["--distributor", f"http://10.77.{self.number}.1:4190", *self.flags]
        with self.directory.with_suffix(".log").open("ab") as log:
            environment = {**os.environ, **self.environment}
            self.process = await trio.lowlevel.open_process(command, stderr=log, env=environment)

    def signal(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    async def stop_for(self, seconds: float, logs: Logs) -> None:
        """And let it go on."""
        self.signal(signal.SIGSTOP)
        await trio.sleep(seconds)
        logs.went_on(self.number, time.monotonic_ns())
        self.signal(signal.SIGCONT)

    async def set_link(self, quality: Quality) -> None:
        assert self.link.stdin is not None
        await self.link.stdin.send_all(msgspec.json.encode(quality) + b"\n")

    async def cut_way_to(self, other: int, is_cut: bool) -> None:
        """What it sends to that broker is lost from now on, or arrives again; what that one sends arrives."""
        for network in (f"10.77.{other}.0/30", f"10.78.{other}.0/30"):
            words = ["ip", "route", "add" if is_cut else "del", "blackhole", network]
            await trio.run_process(["nsenter", "--target", str(self.namespace.pid), "--net", *words])

    async def kill(self, topics: Sequence[str], logs: Logs) -> None:
        assert self.process is not None
        await self.read(topics, logs)
        self.process.kill()
        await self.process.wait()
        self.process = None

    async def read(self, topics: Sequence[str], logs: Logs) -> None:
        for topic in topics:
            logs.take(self.number, topic, await fetch_trace(self.http_address, topic))

    async def share(self, topic: str) -> tuple[float, float]:
        bucket = await bucket_state(self.http_address, topic)
        return bucket.rate, bucket.burst


async def until_answer(address: str, *, is_ready: bool = True) -> None:
    """Until ``/ping`` is answered; ``is_ready``: by 200. Raises trio.TooSlowError."""
    with trio.fail_after(_START_S):
        while True:
            try:
                await request(address, "GET", "/ping", within_s=_ANSWER_S)
                return
            except PeerError:
                if not is_ready:
                    return
            except Unavailable:
                pass  # not yet
            await trio.sleep(0.05)


def forward_between_brokers() -> None:
    """In the present namespace, which all links come to."""
    _FORWARDS.write_text("1")
    Path(_CHECKS_SOURCE).write_text("0")


async def new_broker(number: int, directory: Path, stack: AsyncExitStack) -> Broker:
    """A namespace with both of its links, for a broker that is not started yet. Raises Unavailable."""
    apart = ["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"]
    namespace = await _ready_process(apart, stack)
    own_network.join(namespace.pid, f"good{number}", "good")
    own_network.set_up(f"good{number}", f"10.78.{number}.1/30")
    address = ["addr", "add", f"10.78.{number}.2/30", "dev", "good"]
    for words in (address, ["link", "set", "good", "up"], ["link", "set", "lo", "up"]):
        await trio.run_process(["nsenter", "--target", str(namespace.pid), "--net", "ip", *words])
    relay = [
        sys.executable,
        "-m",
        "bench.harness.machine.lossy_link",
        "--far-pid",
        str(namespace.pid),
        "--device",
        f"bad{number}",
    ]
    relay += ["--near", f"10.77.{number}.1", "--far", f"10.77.{number}.2", "--seed", str(number)]
    link = await _ready_process(relay, stack)
    # To the others' HTTP by the bad links of both: what they exchange is lost, late and repeated like any other word.
    far = ["nsenter", "--target", str(namespace.pid), "--net"]
    for others in ("10.78.0.0/16", "10.77.0.0/16"):
        way = ["route", "add", others, "via", f"10.77.{number}.1", "dev", f"bad{number}"]
        await trio.run_process([*far, "ip", *way])
    await trio.run_process([*far, "sh", "-c", f"echo 0 > {_CHECKS_SOURCE}"])
    home = trio.Path(directory / f"b{number}")
    await home.mkdir()
    return Broker(number, Path(home), namespace, link)


async def _ready_process(command: list[str], stack: AsyncExitStack) -> trio.Process:
    """Raises Unavailable if it does not say that it is ready."""
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stack.callback(process.kill)
    assert process.stdout is not None
    if await process.stdout.receive_some(len(READY)) != READY:
        raise Unavailable(f"{' '.join(command)}: did not start")
    return process

"""The life of a testbed: made for one block, gone after it; if its owner is killed, gone at the next start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.harness.machine.checkout import ROOT
from bench.harness.machine.lossy_link import READY, Quality
from bench.testbed.net import network
from bench.testbed.net.capabilities import Means, check, uses
from bench.testbed.net.cleanup import remove, remove_dead
from bench.testbed.net.frame_relay import Cable, Order
from bench.testbed.net.inside import command_inside
from bench.testbed.net.layout import SWITCH, Host, Layout
from bench.testbed.net.names import NAMESPACES, Owner, this_process
from bench.testbed.net.shaping import RELAY, carried_by
from srtm.cluster.parent_death import PARENT_VARIABLE
from srtm.errors import Unavailable

_ENDS_WITHIN_S = 10.0


@dataclass(frozen=True)
class LiveTestbed:
    """What is there."""

    owner: Owner
    layout: Layout
    uses: str  # how what was asked for is done

    def namespace(self, host: Host) -> Path:
        return NAMESPACES / self.owner.name(host.name)

    def command(self, host: Host, command: Sequence[str]) -> list[str]:
        """What to start so that ``command`` runs on ``host``."""
        return command_inside(self.owner.name(host.name), command)


def environment() -> dict[str, str]:
    """Of what runs on a host: it ends with its parent, and joins no cluster by accident."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("SRTM_")}
    return {**mine, PARENT_VARIABLE: str(os.getpid())}


@contextmanager
def live_testbed(layout: Layout, found: Means, seed: int, tell: Callable[[str], object]) -> Iterator[LiveTestbed]:
    """Everything up and connected; when the block ends, whatever runs on the hosts is killed and all is removed.
    ``tell`` takes a line for people. From the main thread. Raises Unavailable, BadInput."""
    check(layout, found)
    for name in remove_dead():
        tell(f"removed what a dead owner left: {name}")
    owner = this_process()
    try:
        made = _made(owner, layout, found)
        with _relay(owner, layout, found, seed):
            for host in layout.hosts:
                others = [other for other in layout.hosts if other != host]
                network.connect(host, others, owner.name(host.name), owner.name(SWITCH), found.netem)
            yield made
    finally:
        remove(owner)


def _made(owner: Owner, layout: Layout, found: Means) -> LiveTestbed:
    switch = owner.name(SWITCH)
    network.add_namespace(switch)
    network.add_switch(switch)
    for host in layout.hosts:
        network.add_namespace(owner.name(host.name))
        if carried_by(host.link, found.netem) != RELAY:
            network.add_cable(host, owner.name(host.name), switch)
    return LiveTestbed(owner, layout, uses(layout, found))


@contextmanager
def _relay(owner: Owner, layout: Layout, found: Means, seed: int) -> Iterator[None]:
    """Runs as long as the block, if a link needs it."""
    relayed = [host for host in layout.hosts if carried_by(host.link, found.netem) == RELAY]
    if not relayed:
        yield
        return
    order = Order(cables=[_cable(owner, host) for host in relayed], seed=seed)
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.testbed.net.frame_relay"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        cwd=ROOT,
        process_group=0,  # a terminal's Ctrl-C is for the owner
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            process.stdin.flush()
            if process.stdout.readline() != READY:
                raise Unavailable("the relay of the testbed's links did not start")
            yield
        finally:
            process.kill()
            process.wait(_ENDS_WITHIN_S)


def _cable(owner: Owner, host: Host) -> Cable:
    link = host.link
    return Cable(
        near=str(NAMESPACES / owner.name(host.name)),
        near_device=network.DEVICE,
        far=str(NAMESPACES / owner.name(SWITCH)),
        far_device=host.name,
        quality=Quality(loss=link.loss, delay_ms=link.delay_ms, jitter_ms=link.jitter_ms),
    )

"""Namespaces, cables and a switch, by rtnetlink (pyroute2). Threads of their own go into the namespaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pyroute2 import IPRoute, netns
from pyroute2.netlink.exceptions import NetlinkError

from bench.harness.machine import namespaces as own_network
from bench.testbed.net.layout import NETWORK, SWITCH, Host
from bench.testbed.net.names import NAMESPACES
from bench.testbed.net.shaping import NETEM, carried_by, netem
from srtm.errors import Unavailable

DEVICE = "eth0"  # of a host, at its end of the cable; the other end has the host's name
_LOOPBACK = 1
NUD_PERMANENT, NUD_NOARP, NTF_MASTER = 0x80, 0x40, 0x04  # linux/neighbour.h


def add_namespace(name: str) -> None:
    """With nothing in it but loopback. Raises Unavailable."""
    with _told(f"namespace {name}"):
        own_network.apart(partial(_hold, name))


def remove_namespace(name: str) -> None:
    """It ends when nothing is in it any more. Raises Unavailable."""
    with _told(f"namespace {name}"):
        netns.remove(name)


def add_switch(namespace: str) -> None:
    """Raises Unavailable."""

    def add(ip: IPRoute) -> None:
        ip.link("add", ifname=SWITCH, kind="bridge")
        ip.link("set", index=_index(ip, SWITCH), state="up")

    _inside(namespace, f"switch in {namespace}", add)


def add_cable(host: Host, namespace: str, switch: str) -> None:
    """A pair of virtual Ethernet devices between the two namespaces, not in use yet. Raises Unavailable."""
    far = {"ifname": DEVICE, "net_ns_fd": namespace}
    _inside(switch, f"cable of {host.name}", lambda ip: ip.link("add", ifname=host.name, kind="veth", peer=far))


def connect(host: Host, others: Sequence[Host], namespace: str, switch: str, has_netem: bool) -> None:
    """Its device and the switch's get what makes them a link of that quality, and go up. It knows ``others``, and the
    switch knows it, so that no packet waits for an answer that a bad link may lose. Raises Unavailable."""

    def here(ip: IPRoute) -> None:
        device = _index(ip, DEVICE)
        ip.link("set", index=device, address=host.hardware_address)
        ip.addr("add", index=device, address=host.address, prefixlen=NETWORK.prefixlen)
        _start(ip, device, host, has_netem)
        for other in others:
            known = {"dst": other.address, "lladdr": other.hardware_address, "state": NUD_PERMANENT}
            ip.neigh("replace", ifindex=device, **known)

    def there(ip: IPRoute) -> None:
        device = _index(ip, host.name)
        ip.link("set", index=device, master=_index(ip, SWITCH))
        _start(ip, device, host, has_netem)
        ip.fdb("replace", ifindex=device, lladdr=host.hardware_address, flags=NTF_MASTER, state=NUD_NOARP)

    _inside(namespace, f"device of {host.name}", here)
    _inside(switch, f"the switch's device of {host.name}", there)


def _start(ip: IPRoute, device: int, host: Host, has_netem: bool) -> None:
    if carried_by(host.link, has_netem) == NETEM:
        ip.tc("add", index=device, **netem(host.link))
    ip.link("set", index=device, state="up")


def _hold(name: str) -> None:
    """The namespace of this thread gets a name, by which it stays."""
    with IPRoute() as ip:
        ip.link("set", index=_LOOPBACK, state="up")
    netns.attach(name, "thread-self")


def _inside(namespace: str, what: str, work: Callable[[IPRoute], object]) -> None:
    def talk() -> None:
        with IPRoute() as ip:
            work(ip)

    with _told(what):
        own_network.inside(NAMESPACES / namespace, talk)


def _index(ip: IPRoute, device: str) -> int:
    return int(ip.link_lookup(ifname=device)[0])


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except (NetlinkError, OSError) as error:
        raise Unavailable(f"{what}: {error}") from error

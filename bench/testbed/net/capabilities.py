"""What this machine can do for a testbed, tried out in a network namespace that is gone afterwards."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import msgspec
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from bench.harness.machine import namespaces as own_network
from bench.testbed.net.layout import Layout, Link
from bench.testbed.net.shaping import netem
from srtm.errors import Unavailable

TUN = "/dev/net/tun"
_NEEDED = ("CAP_NET_ADMIN", "CAP_SYS_ADMIN")
_ABSENT = (errno.ENOENT, errno.EOPNOTSUPP)  # what the kernel says of a kind that it does not know
_A, _B = "probe-a", "probe-b"


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """``lacking``: without these there is no testbed."""

    lacking: list[str]
    netem: bool
    tun: bool

    @property
    def lateness(self) -> str:
        """What makes packets late, and loses them; "": nothing can."""
        if self.netem:
            return "netem"
        return "a relay of ours between TAP devices" if self.tun else ""


def means() -> Means:
    """Tried now. What cannot be tried for lack of a capability counts as missing."""
    capabilities = own_network.missing(own_network.effective_capabilities(), has_ip=True)
    lacking = [name for name in capabilities if name in _NEEDED]
    kinds = {"veth": False, "bridge": False, "netem": False}
    if not lacking:
        kinds = own_network.apart(_kinds)
        lacking = [f"the kernel's {kind} (module {kind})" for kind in ("veth", "bridge") if not kinds[kind]]
    return Means(lacking=lacking, netem=kinds["netem"], tun=os.access(TUN, os.R_OK | os.W_OK))


def check(layout: Layout, found: Means) -> None:
    """Raises Unavailable naming all that ``layout`` asks for and this machine has not."""
    missing = list(found.lacking)
    if layout.emulated and not found.lateness:
        missing.append(f"netem (module sch_netem) or {TUN}, for delay, jitter and loss")
    if missing:
        raise Unavailable(f"this testbed needs {'; '.join(missing)} (see srtm bench testbed probe)")


def uses(layout: Layout, found: Means) -> str:
    """How what ``layout`` asks for is done, in words for the result."""
    return f"delay, jitter and loss by {found.lateness}" if layout.emulated else "no delay, jitter or loss"


def _kinds() -> dict[str, bool]:
    with IPRoute() as ip:
        found = {
            "veth": _works(lambda: ip.link("add", ifname=_A, kind="veth", peer={"ifname": _B})),
            "bridge": _works(lambda: ip.link("add", ifname="probe-switch", kind="bridge")),
        }
        where = ip.link_lookup(ifname=_A)
        asked = netem(Link(delay_ms=1.0))
        found["netem"] = bool(where) and _works(lambda: ip.tc("add", index=where[0], **asked))
    return found


def _works(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except NetlinkError as error:
        if error.code in _ABSENT:
            return False
        raise
    return True

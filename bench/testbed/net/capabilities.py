"""What this machine can do for a testbed, tried out in a network namespace that is gone afterwards."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from bench.harness.machine import namespaces as own_network
from bench.testbed.net.cgroups import cgroups_for
from bench.testbed.net.layout import Layout, Link
from bench.testbed.net.shaping import RELAY, carried_by, qdiscs
from srtm.errors import Unavailable

TUN = "/dev/net/tun"
_NEEDED = ("CAP_NET_ADMIN", "CAP_SYS_ADMIN")
_ABSENT = (errno.ENOENT, errno.EOPNOTSUPP)  # what the kernel says of a kind that it does not know
_A, _B = "probe-a", "probe-b"


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """``lacking``: without these there is no testbed. ``cpuset``, ``quota``: "cgroup v1" or "cgroup v2", else why not;
    ``cpuset_works`` and ``quota_works`` tell the two apart."""

    lacking: list[str]
    netem: bool
    tbf: bool
    tun: bool
    cpuset: str
    quota: str
    cpuset_works: bool
    quota_works: bool

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
    kinds = {"veth": False, "bridge": False, "netem": False, "tbf": False}
    if not lacking:
        kinds = own_network.apart(_kinds)
        lacking = [f"the kernel's {kind} (module {kind})" for kind in ("veth", "bridge") if not kinds[kind]]
    cpuset, quota = cgroups_for("cpuset"), cgroups_for("cpu")
    return Means(
        lacking=lacking,
        netem=kinds["netem"],
        tbf=kinds["tbf"],
        tun=os.access(TUN, os.R_OK | os.W_OK),
        cpuset=cpuset.text,
        quota=quota.text,
        cpuset_works=cpuset.folder is not None,
        quota_works=quota.folder is not None,
    )


def check(layout: Layout, found: Means) -> None:
    """Raises Unavailable naming all that ``layout`` asks for and this machine has not."""
    missing = list(found.lacking)
    if layout.emulated and not found.lateness:
        missing.append(f"netem (module sch_netem) or {TUN}, for delay, jitter and loss")
    if not found.tbf and any(host.link.rate_mbit is not None for host in layout.hosts):
        missing.append("tbf (module sch_tbf), for a link's rate")
    if not found.cpuset_works and any(host.cpu.cpus for host in layout.hosts):
        missing.append(f"a cpuset: {found.cpuset}")
    if not found.quota_works and any(host.cpu.quota for host in layout.hosts):
        missing.append(f"a CPU quota: {found.quota}")
    if missing:
        raise Unavailable(f"this testbed needs {'; '.join(missing)} (see srtm bench testbed probe)")


def uses(layout: Layout, found: Means) -> list[str]:
    """How what ``layout`` asks for is done, in words for the result."""
    if not layout.emulated:
        words = ["no delay, jitter or loss"]
    else:
        by = carried_by(layout.emulated[0].link, found.netem)
        words = [f"delay, jitter and loss by {'a relay of ours between TAP devices' if by == RELAY else 'netem'}"]
    words.append("rate by tbf" if any(host.link.rate_mbit is not None for host in layout.hosts) else "no rate limit")
    words += [f"cpusets by {found.cpuset}"] * any(host.cpu.cpus for host in layout.hosts)
    words += [f"CPU quotas by {found.quota}"] * any(host.cpu.quota for host in layout.hosts)
    return words


def _kinds() -> dict[str, bool]:
    with IPRoute() as ip:
        found = {
            "veth": _works(lambda: ip.link("add", ifname=_A, kind="veth", peer={"ifname": _B})),
            "bridge": _works(lambda: ip.link("add", ifname="probe-switch", kind="bridge")),
        }
        for kind, device, link in (("netem", _A, Link(delay_ms=1.0)), ("tbf", _B, Link(rate_mbit=100.0))):
            [asked] = qdiscs(link, has_netem=True)
            where = ip.link_lookup(ifname=device)
            found[kind] = bool(where) and _works(partial(add_qdisc, ip, where[0], asked))
    return found


def add_qdisc(ip: IPRoute, index: int, asked: dict[str, Any]) -> None:
    """One of ``shaping.qdiscs`` on the device ``index``. Raises NetlinkError."""
    ip.tc("add", index=index, **asked)


def _works(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except NetlinkError as error:
        if error.code in _ABSENT:
            return False
        raise
    return True

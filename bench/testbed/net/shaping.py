"""What the kernel is asked for so that a link is as slow, late and lossy as it is to be. Pure.

At each end of a link: a token bucket filter for the rate, and netem before it where the kernel has it. Where it has
not, packets of such a link go through a process of ours (``frames``) instead.
"""

from __future__ import annotations

from typing import Any

from bench.testbed.net.layout import Link

NETEM, RELAY, VETH = "netem", "relay", "veth"
_NETEM_PACKETS = 100_000  # that netem holds: its default of 1,000 would lose some of 20,000 a second at 50 ms
_QUEUE_US = 50_000  # longest wait at a rate; what comes then is lost
_LEAST_BURST_BYTES = 16_384  # ten full packets: the filter lets none pass that is larger than its burst
_BURST_S = 0.001


def carried_by(link: Link, has_netem: bool) -> str:
    """What packets of ``link`` go through."""
    if not link.is_emulated:
        return VETH
    return NETEM if has_netem else RELAY


def qdiscs(link: Link, has_netem: bool) -> list[dict[str, Any]]:
    """Arguments of ``IPRoute.tc("add", ...)`` in order, for each end of the link's pair of devices."""
    found: list[dict[str, Any]] = []
    if carried_by(link, has_netem) == NETEM:
        found.append({"kind": "netem", "handle": "1:", **_netem(link)})
    if link.rate_mbit is not None:
        where = {"parent": "1:1", "handle": "2:"} if found else {"handle": "1:"}
        found.append({"kind": "tbf", **where, **_tbf(link.rate_mbit)})
    return found


def _netem(link: Link) -> dict[str, Any]:
    """Netem draws evenly from delay ± jitter; ours is delay and up to jitter more."""
    half_us = round(link.jitter_ms * 500)
    return {
        "delay": round(link.delay_ms * 1000) + half_us,
        "jitter": half_us,
        "loss": 100 * link.loss,
        "limit": _NETEM_PACKETS,
    }


def _tbf(rate_mbit: float) -> dict[str, Any]:
    bytes_per_s = round(rate_mbit * 1e6 / 8)
    return {
        "rate": bytes_per_s,
        "burst": max(_LEAST_BURST_BYTES, round(bytes_per_s * _BURST_S)),
        "latency": _QUEUE_US,
    }

"""What the kernel is asked for so that a link is as late and lossy as it is to be. Pure.

Netem does it at each end of a link, where the kernel has it. Where it has not, packets of such a link go through a
process of ours (``frame_relay``) instead.
"""

from __future__ import annotations

from typing import Any

from bench.testbed.net.layout import Link

NETEM, RELAY, VETH = "netem", "relay", "veth"
_NETEM_PACKETS = 100_000  # that netem holds: its default of 1,000 would lose some of 20,000 a second at 50 ms


def carried_by(link: Link, has_netem: bool) -> str:
    """What packets of ``link`` go through."""
    if not link.is_emulated:
        return VETH
    return NETEM if has_netem else RELAY


def netem(link: Link) -> dict[str, Any]:
    """Arguments of ``IPRoute.tc("add", ...)``. Netem draws evenly from delay ± jitter; ours is delay and up to jitter
    more."""
    half_us = round(link.jitter_ms * 500)
    return {
        "kind": "netem",
        "handle": "1:",
        "delay": round(link.delay_ms * 1000) + half_us,
        "jitter": half_us,
        "loss": 100 * link.loss,
        "limit": _NETEM_PACKETS,
    }

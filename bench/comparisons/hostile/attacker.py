"""``python -m bench.comparisons.hostile.attacker NAME TCP HTTP HTTPS MQTT SECONDS``: one attack, a process of its own.

On loopback only. ``burn=SHARE`` is none: it takes as much of a processor and leaves the broker alone. It lets every
other thread of the machine go first (SCHED_IDLE): what it takes from the broker is then the broker's own work for it,
not its processor. A line "under way", then from time to time what it has done so far.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from bench.comparisons.hostile.attacks import ATTACKS
from bench.comparisons.hostile.cpu_burner import burn
from bench.comparisons.hostile.flood import Target
from bench.comparisons.hostile.mqtt_attacks import WILLS
from bench.harness.machine.threads import allow_descriptors

UNDER_WAY = "under way"
BURN = "burn="
TELL_S = 0.2
SPARE_DESCRIPTORS = 100


def main(arguments: Sequence[str]) -> int:
    name, tcp, http, https, mqtt, seconds = arguments
    for address in (tcp, http, https, mqtt):
        if not address.startswith("127.0.0.1:"):
            print(f"bench.comparisons.hostile.attacker: {address}: must be on loopback (127.0.0.1)", file=sys.stderr)
            return 2
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    allow_descriptors(WILLS + SPARE_DESCRIPTORS)
    total, told_at, end = 0, 0.0, time.monotonic() + float(seconds)
    steps = burn(float(name[len(BURN) :])) if name.startswith(BURN) else ATTACKS[name](Target(tcp, http, https, mqtt))
    for done in steps:
        total, now = total + done, time.monotonic()
        if now >= told_at + TELL_S:
            print(total if told_at else UNDER_WAY, flush=True)
            told_at = now
        if now >= end:
            break
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

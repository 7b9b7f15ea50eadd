"""Arrival times through real processes: what is conformant stays so, however late the broker reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from bench.harness.results.verdict import Verdict
from tests.support.stopped_broker import CONNECTIONS, stop_and_judge

pytestmark = pytest.mark.slow
pytest.importorskip("srtm._native", reason="the extension is not built (make build)")

CAP_NET_RAW = 13
WAIT_S = 40.0
TRIES = 12
# Gives the capability up for good, then becomes the broker.
WITHOUT_CAPABILITY = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, {CAP_NET_RAW}, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-m", "srtm", "broker", *sys.argv[1:]])
"""


def has_capability(number: int) -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(line.split()[1] for line in lines if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> number & 1)


needs_net_raw = pytest.mark.skipif(not has_capability(CAP_NET_RAW), reason="needs CAP_NET_RAW")


def stopped(folder: Path, *options: str, messages: int) -> Verdict:
    """A busy machine keeps the senders from sending what conforms; the first try in which they do is judged."""

    async def work(number: int) -> Verdict:
        connections = CONNECTIONS // messages
        return await stop_and_judge(folder / f"b{number}", *options, connections=connections, messages=messages)

    for number in range(TRIES):
        verdict = trio.run(work, number)
        if not verdict.reasons:
            break
    return verdict


def delayed(verdict: Verdict) -> int:
    return next(int(check.measured) for check in verdict.checks if check.what == "messages with an access delay")


def test_a_stopped_broker_delays_no_conformant_message_where_each_connection_sends_one(tmp_path: Path) -> None:
    verdict = stopped(tmp_path, messages=1)
    assert verdict.reached, verdict.line


@needs_net_raw
def test_a_stopped_broker_delays_no_conformant_message_of_many_on_a_connection_under_the_packet_clock(
    tmp_path: Path,
) -> None:
    verdict = stopped(tmp_path, "--arrival-clock", "packet", messages=10)
    assert verdict.reached, verdict.line
    assert verdict.settings["timestamp_source"] == "packet"


def test_the_kernels_clock_cannot_tell_many_on_a_connection_apart(tmp_path: Path) -> None:
    # Ten unread messages of each connection share the stamp of the last: within 30 ms come 200, and 50 may pass.
    assert delayed(stopped(tmp_path, messages=10)) > 0


def test_a_packet_clock_without_its_capability_is_refused_by_name(tmp_path: Path) -> None:
    addresses = ["--tcp-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"]
    options = ["--name", "b", "--data-path", str(tmp_path), *addresses, "--arrival-clock", "packet"]
    command = [sys.executable, "-c", WITHOUT_CAPABILITY, *options]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert refused.returncode == 2
    assert refused.stderr == (
        "srtm broker: arrival_clock: 'packet': needs the capability CAP_NET_RAW, which this process does not have\n"
    )


def test_an_arrival_clock_that_is_none_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "broker", "--name", "b", "--data-path", str(tmp_path), "--arrival-clock", "sun"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert refused.returncode == 2
    assert refused.stderr == "srtm broker: arrival_clock: 'sun': must be one of kernel, packet\n"

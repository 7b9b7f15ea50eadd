"""``srtm bench arrival``: what it makes of its figures, what it refuses, and that it leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.checks.measures.arrival import Errors, errors_of, judge, rows_of
from bench.checks.measures.arrival_sender import Sent
from bench.harness.cluster_runs.trace import Column, Trace
from bench.harness.machine import namespaces as own_network
from srtm.errors import PeerError, Unavailable

WAIT_S = 60.0
ALL = sum(1 << number for number in own_network.CAPABILITIES.values())
MS = 1_000_000


def column(*values: int) -> Column:
    return np.array(values, dtype=np.int64)


def trace(publisher: Column, arrival_ns: Column) -> Trace:
    return Trace(["a", "b"], publisher, arrival_ns, arrival_ns, arrival_ns, arrival_ns)


def errors(clock: str, *errors_ms: float, bound_ms: float = 0.0, source: str | None = None) -> Errors:
    values = column(*(int(ms * MS) for ms in errors_ms))
    return Errors(clock, 10.0, values, source or clock, bound_ms, 0.5)


def test_the_error_of_each_message_is_its_arrival_minus_its_sending() -> None:
    sent = Sent(sent_ns={"a": [10, 20], "b": [15]})
    found = errors_of(sent, trace(column(0, 1, 0), column(11, 18, 25)))
    assert sorted(found.tolist()) == [1, 3, 5]


def test_a_message_that_is_missing_from_the_trace_is_an_error() -> None:
    with pytest.raises(PeerError, match="a sent 2 messages, the trace has 1"):
        errors_of(Sent(sent_ns={"a": [10, 20]}), trace(column(0), column(11)))
    with pytest.raises(PeerError, match="c sent 1 messages, the trace has 0"):
        errors_of(Sent(sent_ns={"c": [10]}), trace(column(0), column(11)))


def test_the_packet_clock_must_be_exact_and_the_kernels_within_its_bound() -> None:
    good = judge([errors("kernel", 0.1, 9.0, bound_ms=9.0), errors("packet", 0.1, 0.2)])
    assert good.reached, good.line
    assert not judge([errors("packet", 0.1, 1.2)]).reached
    assert not judge([errors("kernel", 0.1, 9.0, bound_ms=8.0)]).reached


def test_an_arrival_before_its_sending_or_a_wrong_source_gives_no_verdict() -> None:
    assert "1 arrivals before" in judge([errors("packet", -0.1, 0.2)]).line
    assert "took its stamps from read" in judge([errors("kernel", 0.1, source="read")]).line


def test_the_table_puts_both_clocks_of_a_lateness_together() -> None:
    rows = rows_of([errors("kernel", 1, 2, 3, bound_ms=4.0), errors("packet", 0.5)])
    assert rows == [
        ["10 ms", "kernel", "3", "2.000", "3.000", "3.000", "4.000"],
        ["10 ms", "packet", "1", "0.500", "0.500", "0.500", "-"],
    ]


def test_what_is_missing_is_named() -> None:
    assert own_network.missing(ALL, has_ip=True) == []
    assert own_network.missing(ALL & ~(1 << 21), has_ip=False) == ["CAP_SYS_ADMIN", "the command ip (iproute2)"]


@pytest.mark.slow
def test_without_privileges_the_measurement_is_refused_by_what_is_missing() -> None:
    # The bounding set loses the capability; what is executed then does not have it.
    drop = "import ctypes, os, sys; ctypes.CDLL(None).prctl(24, 13, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", drop, sys.executable, "-m", "srtm", "bench", "arrival"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert refused.returncode == 1
    assert "CAP_NET_RAW" in refused.stderr
    assert "Traceback" not in refused.stderr


def devices() -> set[str]:
    return {device.name for device in Path("/sys/class/net").iterdir()}


def is_allowed() -> bool:
    try:
        own_network.check_privileges()
    except Unavailable:
        return False
    return True


@pytest.mark.slow
@pytest.mark.skipif(not is_allowed(), reason="needs root: own network namespaces")
def test_a_short_run_measures_every_cell_and_leaves_no_device_behind() -> None:
    pytest.importorskip("srtm._native", reason="the extension is not built (make build)")
    before = devices()
    command = [sys.executable, "-m", "srtm", "bench", "arrival", "--rounds", "1", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    result = json.loads(done.stdout)
    assert result["reasons"] == []
    assert [run["name"] for run in result["runs"]] == [
        f"{clock} {late} ms" for clock in ("kernel", "packet") for late in (0, 1, 10, 100)
    ]
    assert all(run["sent"] == 20 for run in result["runs"])
    assert devices() == before

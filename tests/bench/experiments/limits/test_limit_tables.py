"""The page of a thesis's tables: each claim can fail, and what needs no other process is measured."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.experiments.limits import limit_tables
from bench.experiments.limits.limit_tables import KINDS, NAIVE, RESPONSE, checks, raced, worst_percent

WORST = (193.0, 200.0, 100.0, 112.0)
EMPTY = dict.fromkeys(limit_tables.EXPERIMENT.columns.values())
GOOD = [
    *(
        {**EMPTY, "name": kind.name, "bytes": 88.0, "raced": 0, "raced_store": 0, "worst_percent": worst}
        for kind, worst in zip(KINDS, WORST, strict=True)
    ),
    {**EMPTY, "name": NAIVE, "raced_store": 300},
    {**EMPTY, "name": RESPONSE, "mean_ms": 2.0, "p95_ms": 3.0},
]


def test_each_claim_can_fail() -> None:
    assert all(check.kept for check in checks(GOOD))
    for place, name, value in (
        (0, "bytes", 101.0),
        (2, "raced", 1),
        (3, "raced_store", 1),
        (4, "raced_store", 0),
        (2, "worst_percent", 101.0),
        (5, "mean_ms", 6.1),
        (5, "p95_ms", 7.1),
    ):
        rows = [{**one, name: value} if number == place else one for number, one in enumerate(GOOD)]
        assert sum(not check.kept for check in checks(rows)) == 1, name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_race_of_threads_gets_more_than_the_quota(kind: limit_tables.Kind) -> None:
    assert raced(kind.policy) == 0


@pytest.mark.slow
def test_curves_are_those_of_the_article() -> None:
    assert [worst_percent(kind.curve) for kind in KINDS[1:3]] == [200, 100]


@pytest.mark.slow
def test_a_log_takes_room_for_each_request() -> None:
    policy = {"name": "p", "kind": "log", "quota": 500, "window": "1d"}
    command = [sys.executable, "-m", "bench.limit_peers.subject_memory", json.dumps(policy), "2000", "128"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)  # a process of its own
    assert float(done.stdout) > 128 * 8

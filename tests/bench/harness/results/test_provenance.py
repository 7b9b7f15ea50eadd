from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from bench.harness.machine import softirqs
from bench.harness.results.provenance import command_line, provenance


def test_figures_measured_before_all_ordinary_work_say_under_which_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_RR)
    monkeypatch.setattr(os, "sched_getparam", lambda _: SimpleNamespace(sched_priority=10))

    monkeypatch.setattr(softirqs, "are_behind", lambda: False)
    assert provenance(0.0).endswith(", under SCHED_RR 10.")
    monkeypatch.setattr(softirqs, "are_behind", lambda: True)
    assert provenance(0.0).endswith(", under SCHED_RR 10, ksoftirqd behind it.")


def test_figures_measured_at_ordinary_priority_say_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_OTHER)

    monkeypatch.setattr(os, "getpriority", lambda *_: 0)
    assert "under" not in provenance(0.0)
    assert "nice" not in provenance(0.0)
    assert provenance(0.0).startswith("Measured 1970-01-01 at commit ")


def test_figures_measured_before_other_ordinary_work_say_by_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_OTHER)
    monkeypatch.setattr(os, "getpriority", lambda *_: -20)
    assert provenance(0.0).endswith(", at nice -20.")


def test_the_command_is_as_it_was_given_but_for_places_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["figures", "fig06", "--directory", "/tmp/x", "--document", "--json", "-", "--seed", "2"]
    monkeypatch.setattr(sys, "argv", [".venv/bin/srtm", "bench", *words])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert command_line() == "srtm bench figures fig06 --document --seed 2"
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name="bench.checks.faults.crash"))
    monkeypatch.setattr(sys, "argv", ["crash.py", "--kills", "3"])
    assert command_line() == "python -m bench.checks.faults.crash --kills 3"

"""Where the extension is not built, the core in Python answers as that in Rust does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm._native import Limiter as RustCore
from srtm.contracts.contract import read_contract
from srtm.limiting.python_core import Limiter as PythonCore

S = 10**9
ROOT = Path(__file__).resolve().parent.parent.parent.parent

POLICIES: list[dict[str, Any]] = [
    {"name": "b", "rate": 1, "burst": 3, "max_debt": 5},
    {"name": "w", "kind": "window", "quota": 4, "window": "12s", "slices": 3},
    {"name": "l", "kind": "log", "quota": 4, "window": "5s"},
    {"name": "c", "kind": "concurrency", "quota": 3, "expires": "4s"},
    {"name": "p", "kind": "pace", "rate": 1, "burst": 2, "max_wait": "2s"},
]
CHANGED: list[dict[str, Any]] = [
    {"name": "b", "rate": 2, "burst": 2, "max_debt": 5},
    {"name": "w", "kind": "window", "quota": 3, "window": "6s", "slices": 3},
    {"name": "l", "kind": "log", "quota": 3, "window": "6s"},
    {"name": "c", "kind": "concurrency", "quota": 4, "expires": "4s"},
    {"name": "p", "kind": "pace", "rate": 2, "burst": 2, "max_wait": "1s"},
]
METHODS = ["check"] * 3 + ["peek", "charge", "reset", "correct", "release", "change", "sweep"]
steps = st.lists(
    st.tuples(
        st.integers(0, 2 * S),
        st.sampled_from(
            ["check", "check", "check", "peek", "charge", "reset", "correct", "release", "change", "sweep"]
        ),
        st.sampled_from(["a", "b"]),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=30,
)


class Both:
    """Asks both cores, and compares what they say."""

    def __init__(self, policies: list[dict[str, Any]]) -> None:
        self.cores: list[Any] = [RustCore(bytes(16), 1_000), PythonCore(bytes(16), 1_000)]
        self.grants: list[list[bytes]] = [[], []]
        self.put(policies, 0)

    def put(self, policies: list[dict[str, Any]], now: int) -> None:
        document = {"namespace": "api", "subject": "*", "policies": policies}
        for core in self.cores:
            core.put_contract(read_contract(document).to_core(), (now, now))

    def ask(self, method: str, *arguments: Any) -> None:
        ours, theirs = (self._said(core, method, arguments) for core in self.cores)
        assert ours == theirs, method

    def with_grant(self, method: str, *arguments: Any) -> None:
        """By the grant of the same check at each, the latest one."""
        if self.grants[0]:
            grants = [grants.pop() for grants in self.grants]
            pairs = zip(self.cores, grants, strict=True)
            ours, theirs = (self._said(core, method, (grant, *arguments)) for core, grant in pairs)
            assert ours == theirs, method

    def _said(self, core: Any, method: str, arguments: tuple[Any, ...]) -> Any:
        try:
            found = getattr(core, method)(*arguments)
        except ValueError as error:
            return str(error)
        if not isinstance(found, tuple):
            return found
        allowed, _, looks, wait, grant, *rest = found
        if grant is not None:
            self.grants[self.cores.index(core)].append(grant)
        return allowed, looks, wait, grant is not None, rest


@settings(max_examples=150, deadline=None)
@given(policy=st.sampled_from(range(len(POLICIES))), asked=steps)
@pytest.mark.slow
def test_both_cores_say_the_same(policy: int, asked: list[tuple[int, str, str, int]]) -> None:
    both = Both([POLICIES[policy]])
    now = S
    for pause, method, subject, number in asked:
        now += pause
        clocks = (now, now)
        if method in ("check", "peek", "charge"):
            both.ask(method, "api", subject, number, clocks)
        elif method == "reset":
            for core in both.cores:
                core.reset("api", subject)
        elif method == "correct":
            both.with_grant(method, number, clocks)
        elif method == "release":
            both.with_grant(method, clocks)
        elif method == "change":
            both.put([CHANGED[policy]], now)
        else:
            both.ask("sweep", 4_096, clocks)
        both.ask("counts", 0)


def test_a_program_limits_without_the_extension() -> None:
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "srtm._native":
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
from srtm.limiting.local import LocalLimits
limits = LocalLimits.of_file("examples/contracts.toml")
print(sum(limits.check("api", "ip:1", 10).allowed for _ in range(6)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "4\n"


def test_open_requests_end_once() -> None:
    core = PythonCore(bytes(16), 10)
    document = {"namespace": "api", "subject": "*", "policies": [{"name": "c", "kind": "concurrency", "quota": 1}]}
    core.put_contract(read_contract(document).to_core(), (0, 0))
    grant = core.check("api", "a", 1, (0, 0))[4]
    assert grant is not None
    core.release(grant, (1, 1))
    with pytest.raises(ValueError, match="grant: was used before"):
        core.release(grant, (1, 1))
    assert core.check("api", "a", 1, (1, 1))[0]


def test_what_grants_take_is_given_back() -> None:
    core = PythonCore(bytes(16), 10)
    document = {"namespace": "api", "subject": "*", "policies": [{"name": "b", "rate": 1e6, "burst": 1e6}]}
    core.put_contract(read_contract(document).to_core(), (0, 0))
    for second in range(200):
        core.check("api", "a", 1, (second * S, 0))
    assert len(core._grants) <= 61

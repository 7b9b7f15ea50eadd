"""``docs/model``: what spin checked is what the code does."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.lease_replay import Replay, steps

MODEL = Path(__file__).parents[2] / "docs" / "model"
RECORDED = sorted([*MODEL.glob("runs/keep-*.txt"), *MODEL.glob("runs/timed-*.txt")])


def replayed(run: str, *, timed: bool) -> tuple[int, int]:
    """Steps, and takeovers that forgot an acknowledgement."""
    recorded = steps(run)
    replay = Replay(timed)
    try:
        replay.run(recorded)
    finally:
        replay.close()
    return len(recorded), replay.forgotten


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_run_of_the_model_is_a_run_of_the_code(path: Path) -> None:
    assert replayed(path.read_text(), timed=path.stem.startswith("timed"))[0] >= 40


@pytest.mark.parametrize("rule", ["timed", "keep"])
def test_in_recorded_runs_of_both_rules_leaders_come_who_do_not_know_what_was_acknowledged(rule: str) -> None:
    runs = [path.read_text() for path in RECORDED if path.stem.startswith(rule)]
    assert sum(replayed(run, timed=rule == "timed")[1] for run in runs) > 0


def test_there_are_runs_of_both_rules() -> None:
    assert {path.stem.split("-")[0] for path in RECORDED} == {"keep", "timed"}


@pytest.mark.skipif(shutil.which("spin") is None, reason="needs spin (Debian: apt-get install spin)")
@pytest.mark.parametrize("rule", ["timed", "keep"])
def test_new_runs_of_the_model_are_runs_of_the_code(rule: str, tmp_path: Path) -> None:
    for seed in range(11, 16):
        defines = ["-DRUN", "-DVERSIONS=200", "-DLIVES=60", *(["-DKEEP"] if rule == "keep" else [])]
        words = ["spin", f"-n{seed}", "-u5000", "-T", *defines, str(MODEL / "leases.pml")]
        run = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path).stdout
        assert replayed(run, timed=rule == "timed")[0] > 20

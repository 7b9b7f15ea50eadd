"""``docs/model/gdrl.pml``: what spin checked is what the code does."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.gdrl_replay import Replay, steps

MODEL = Path(__file__).parents[2] / "docs" / "model"
RECORDED = sorted((MODEL / "runs").glob("gdrl-*.txt"))
UNITS = {2: 4, 3: 6}  # {brokers: K of the model}


def replayed(run: str, brokers: int) -> dict[str, int]:
    """How often each step was taken."""
    recorded = steps(run)
    replay = Replay(brokers, UNITS[brokers])
    try:
        replay.run(recorded)
    finally:
        replay.close()
    words = [step.split()[0] for step, _ in recorded]
    return {word: words.count(word) for word in words}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_run_of_the_model_is_a_run_of_the_code(path: Path) -> None:
    taken = replayed(path.read_text(), int(path.stem.split("-")[1]))
    assert taken["settle"] > 5
    assert taken["credited"] > 0


def test_there_are_runs_with_two_and_with_three_brokers() -> None:
    assert {path.stem.split("-")[1] for path in RECORDED} == {"2", "3"}


@pytest.mark.skipif(shutil.which("spin") is None, reason="needs spin (Debian: apt-get install spin)")
@pytest.mark.parametrize("brokers", [2, 3])
def test_new_runs_of_the_model_are_runs_of_the_code(brokers: int, tmp_path: Path) -> None:
    defines = ["-DRUN", "-DVERSIONS=250", "-DLIVES=40", "-DPOOLS=20", "-DNUMBERS=60"]
    defines += [f"-DN={brokers}", f"-DK={UNITS[brokers]}"]
    for seed in range(21, 25):
        words = ["spin", f"-n{seed}", "-u60000", "-T", *defines, str(MODEL / "gdrl.pml")]
        run = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path).stdout
        assert sum(replayed(run, brokers).values()) > 200

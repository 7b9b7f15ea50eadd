"""The bench of splits: its traffic is what it says, its table and verdict are made of its runs."""

import json

import numpy as np
import pytest

from bench.experiments.splits import SplitsOptions, SplitsRun, arrivals, markdown, no_worse, splits


def run(**changes: float) -> SplitsRun:
    figures = {"proportional_ms": 20.0, "fitted_ms": 2.0, "one_ms": 0.1}
    return SplitsRun(**{"batch": 1, "part": 0.1, **figures, **changes})


@pytest.mark.parametrize("batch", [1, 10])
def test_traffic_comes_in_the_parts_and_batches_asked_for(batch: int) -> None:
    small, large = arrivals(batch, 0.2, 60.0, np.random.default_rng(1))
    assert (len(small), len(large)) == (pytest.approx(120_000, rel=0.03), pytest.approx(480_000, rel=0.02))
    assert (np.diff(small) >= 0).all()
    assert (small.reshape(-1, batch) == small[::batch, None]).all()


def test_a_row_is_the_mean_of_its_runs_and_their_range() -> None:
    table = markdown([run(fitted_ms=2.0), run(fitted_ms=4.0), run(part=0.5)])
    assert "| 1 | 10:90 | 20 (20 to 20) | 3 (2 to 4) |" in table
    assert "| 1 | 50:50 | 20 (20 to 20) | 2 (2 to 2) |" in table


def test_the_fitted_split_must_not_be_worse_in_the_mean_of_any_kind() -> None:
    assert no_worse([run(), run(fitted_ms=21.0)])
    assert not no_worse([run(), run(part=0.3, fitted_ms=20.1)])


def test_a_short_bench_finds_the_small_broker_helped(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.experiments.splits.PARTS", (0.1,))
    shown: list[str] = []
    found = splits(SplitsOptions(seconds=20.0, runs=1, json_file=str(tmp_path / "found.json")), shown.append)
    assert all(one.fitted_ms < one.proportional_ms for one in found)
    assert len(json.loads((tmp_path / "found.json").read_text())["runs"]) == len(found) == 2
    assert "| 10 | 10:90 |" in shown[-1]

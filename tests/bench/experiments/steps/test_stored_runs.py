from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.experiments.steps.stored_runs import Made, alike, file_of, is_kept, keep, kept, kept_in
from srtm.errors import BadInput
from tests.support.step_runs import RUN

MADE = Made(before_s={"fitted": 6.0}, watched_s={"fitted": 8.0}, seed=1, sources="5eed")


def test_a_kept_run_is_read_as_it_was_and_one_that_is_none_is_refused(tmp_path: Path) -> None:
    path = file_of(tmp_path, "50-10", "proportional, 2 s", 3)
    assert kept(path) is None
    run = replace(RUN, mode="proportional, 2 s", number=3, back_s=None, reasons=["late"])
    keep(path, run)
    keep(file_of(tmp_path, "50-10", "fitted", 0), RUN)
    assert kept(path) == run
    assert kept_in(tmp_path) == [RUN, run]
    path.write_text("{}")
    with pytest.raises(BadInput, match="must hold a run"):
        kept_in(tmp_path)


def test_a_kept_run_is_resumed_from_only_if_the_same_sources_made_it(tmp_path: Path) -> None:
    path = file_of(tmp_path, "50-10", "fitted", 0)
    assert not is_kept(path, "fitted", MADE)
    keep(path, replace(RUN, commit="decade"))
    assert is_kept(path, "fitted", MADE)
    assert not is_kept(path, "fitted", replace(MADE, sources="0ther"))
    with pytest.raises(BadInput, match="must be a run with before, after and seed"):
        is_kept(path, "fitted", replace(MADE, seed=2))


def test_runs_of_another_seed_or_of_other_sources_are_left_out_and_named() -> None:
    seeded, older = replace(RUN, seed=2, number=3), replace(RUN, number=2, sources="01d")
    later = replace(RUN, number=1, commit="decade")
    runs, others = alike([RUN, seeded, older, later], 1, "5eed")
    assert runs == [RUN, later]
    assert others == [
        "left out: fitted, 50:50 -> 10:90, run 3: seed 2, commit c0ffee",
        "left out: fitted, 50:50 -> 10:90, run 2: seed 1, commit c0ffee",
    ]

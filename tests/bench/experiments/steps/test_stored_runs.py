from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.experiments.steps.stored_runs import Made, alike, file_of, is_kept, keep, kept, kept_in, made_at
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


def test_runs_of_another_seed_or_beside_newer_ones_of_their_mode_are_left_out_and_named() -> None:
    seeded, older = replace(RUN, seed=2, number=3), replace(RUN, number=2, sources="01d")
    later = replace(RUN, number=1, commit="decade")
    runs, others = alike([RUN, seeded, older, later], 1, "5eed")
    assert runs == [RUN, later]
    assert others == [
        "left out: fitted, 50:50 -> 10:90, run 3: seed 2, sources 5eed",
        "left out: fitted, 50:50 -> 10:90, run 2: seed 1, sources 01d",
    ]


def test_a_mode_of_which_there_is_no_newer_run_is_shown_as_most_of_its_runs_were_made() -> None:
    old = [replace(RUN, mode="gdrl", number=number, sources="01d", commit="01dc") for number in range(2)]
    oldest, unknown = replace(old[0], number=2, sources="ear1y"), replace(old[0], number=3, sources=None)
    runs, others = alike([RUN, *old, oldest, unknown], 1, "5eed")
    assert runs == [RUN, *old]
    assert len(others) == 2
    assert made_at(runs).endswith(": fitted of 5eed, at commit c0ffee (1); gdrl of 01d, at commit 01dc (2).")


def test_the_commits_of_all_runs_are_named() -> None:
    runs = [RUN, replace(RUN, commit="decade"), replace(RUN, number=2)]
    assert "at commit c0ffee (2), decade (1);" in made_at(runs)
    assert "(5eed)" in made_at(runs)

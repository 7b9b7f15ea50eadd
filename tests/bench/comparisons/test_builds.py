"""Two builds in alternation: what is run from where, in which order, and what decides between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.comparisons.builds import NEW, OLD, NotSlower, refuse_document, row_against
from bench.comparisons.hostile import attack_runs as hostile
from bench.comparisons.rows.turns import in_turn
from bench.comparisons.tables.nsqd import NSQD
from bench.harness.machine.checkout import THIS, Build, other_build
from bench.harness.results.comparison import Better, Figure, Row, Sample, Turn, judge
from srtm.errors import BadInput

ELSEWHERE = Build(Path("elsewhere"), ("elsewhere/srtm",))
COST = Figure("cost", "cost, us", 1, better=Better.LOWER)
SPEED = Figure("speed", "speed, msg/s", 0, better=Better.HIGHER)
SHOWN = Figure("shown", "shown, ms", 1)


def rounds(figure: Figure, *ratios: float) -> list[list[Sample]]:
    """Of which the new build's figure is so many times the old one's."""
    return [[Sample(NEW, {figure.key: 10.0 * ratio}), Sample(OLD, {figure.key: 10.0})] for ratio in ratios]


@pytest.mark.parametrize(
    ("figure", "ratios", "kept"),
    [
        (COST, (1.04, 1.05, 1.9), True),
        (COST, (1.0, 1.2, 1.3), True),
        (COST, (1.01, 1.06, 1.3), False),
        (COST, (0.5, 0.5, 0.5), True),
        (SPEED, (0.96, 0.96, 0.5), True),
        (SPEED, (1.0, 0.8, 0.7), True),
        (SPEED, (0.99, 0.9, 0.7), False),
        (SPEED, (2.0, 2.0, 2.0), True),
        (SHOWN, (9.0, 9.0, 9.0), True),
    ],
)
def test_a_build_may_cost_a_twentieth_more_or_no_more_within_noise(
    figure: Figure, ratios: tuple[float, ...], kept: bool
) -> None:
    assert NotSlower(figure).check(rounds(figure, *ratios), []).kept is kept


def test_a_check_says_the_ratio_of_a_speed_as_that_of_a_cost() -> None:
    check = NotSlower(SPEED).check(rounds(SPEED, 0.5), [])
    assert (check.what, check.measured) == ("speed, msg/s, old / new", "2x (2 to 2)")


async def test_builds_go_first_in_turns(tmp_path: Path) -> None:
    ran: list[tuple[str, Path]] = []

    async def sample(system: str, turn: Turn, folder: Path) -> Sample:
        ran.append((system, turn.build.root))
        return Sample(system, {"cost": 1.0})

    row = row_against(Row("r", "", ("srtm", "nsqd"), (COST,), (), in_turn(sample)), ELSEWHERE)
    measure = row.begin(row.systems)
    for seed in (1, 2):
        found = await measure(Turn(tmp_path, 1.0, seed))
        assert [one.system for one in found] == [NEW, OLD]
    here, there = ("srtm", THIS.root), ("srtm", ELSEWHERE.root)
    assert ran == [here, there, there, here]


def test_p999_and_the_highest_load_are_shown_and_not_judged() -> None:
    figures = {name: [figure.key for figure in row.figures if figure.better] for name, row in NSQD.rows.items()}
    assert not figures["load"]
    assert all(figures[name] for name in figures if name != "load")
    assert not any("p999" in key for keys in figures.values() for key in keys)


@pytest.mark.parametrize("name", NSQD.rows)
def test_each_row_can_judge_two_builds(name: str) -> None:
    row = row_against(NSQD.rows[name], ELSEWHERE)
    values = {figure.key: 2.0 for figure in row.figures} | dict.fromkeys(("lost", "garbled"), 0.0)
    verdict = judge(row, [[Sample(NEW, values), Sample(OLD, values)]], {"pairs": 1})
    assert verdict.reached
    assert len(verdict.checks) == len(row.targets)


@pytest.mark.parametrize(
    ("new_ms", "old_ms", "burning_ms", "reached"),
    [(0.99, 0.1, 0.2, True), (2.9, 0.1, 1.0, True), (3.1, 3.1, 1.0, True), (3.1, 1.0, 1.0, False)],
)
def test_an_attack_is_bounded_or_no_worse_than_it_was(
    new_ms: float, old_ms: float, burning_ms: float, reached: bool
) -> None:
    row = hostile.row_of("nops", against=ELSEWHERE)
    faultless = {figure.key: 1.0 for figure in row.figures} | {"lost": 0.0, "refused": 0.0}
    each = zip(row.systems, (new_ms, old_ms, burning_ms), strict=True)
    one = [Sample(system, faultless | {"p99_ms": p99_ms}) for system, p99_ms in each]
    assert judge(row, [one], {"pairs": 1}).reached is reached


def test_another_checkout_must_be_built(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="where `make build` has run"):
        other_build(tmp_path)
    program = tmp_path / ".venv" / "bin" / "srtm"
    program.parent.mkdir(parents=True)
    program.touch()
    assert other_build(tmp_path).program == (str(program),)


def test_what_another_build_does_is_in_no_document(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="must not be given with --against"):
        refuse_document(tmp_path)
    refuse_document(None)

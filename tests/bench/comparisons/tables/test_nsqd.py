"""The comparison with nsqd: its rows, what their samples say, what is written down, what is refused."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path

import msgspec
import numpy as np
import pytest
import typer

from bench.commands.main import app
from bench.comparisons.rows import (
    bucket_cost,
    crowd,
    fan_out,
    http_publish,
    load,
    memory,
    neighbour,
    saturated,
    steady,
    turns,
)
from bench.comparisons.rows.row_runs import measured
from bench.comparisons.tables.document import keep, kept, page_of, picture
from bench.comparisons.tables.nsqd import NSQD
from bench.harness.load.cpu import CpuMeter
from bench.harness.load.flood import FloodResult
from bench.harness.load.run import RunProgress
from bench.harness.results.comparison import Sample, Turn, counts, judge
from bench.harness.results.provenance import Origin
from bench.harness.systems import systems
from bench.harness.systems.systems import System, floor_program, peer
from srtm.errors import BadInput, InternalError, Unavailable
from tests.support.run_results import result

TURN = Turn(Path("unused"), 4.0, 7)
FLOOD = FloodResult(count=1_000, elapsed_s=0.5, cpu_s=0.1, started_ns=1_000, ended_ns=2_000, intact=True)


def test_the_steady_load_is_a_thousand_publishers_at_ten_messages_a_second() -> None:
    asked = steady.plan("127.0.0.1:1", TURN)
    assert len(set(asked.publishers.ids)) == 1_000
    assert sum(asked.publishers.rate) == 10_000
    assert (asked.message_size, asked.seed, asked.duration_s) == (100, 7, 4.0)
    assert set(asked.publishers.group) == {-1}


def sample_of_each_row() -> dict[str, Sample]:
    """One sample of our broker, as each row makes it."""
    run, gone = steady.sample_of("srtm", result(), 20.0), (0.001, 0.002)
    return {
        "load": load.sample_of("srtm", 10, load.Rung(False, 0.3)),
        "steady": run,
        "saturated": saturated.sample_at_once("srtm", FLOOD, FLOOD, 0.002),
        "in-turn": saturated.sample_of("srtm", FLOOD, FLOOD, gone),
        "overflow": saturated.sample_of("srtm", FLOOD, FLOOD, gone),
        "memory": memory.sample_of("srtm", 0, 9_900 * 1024),
        "crowd": crowd.sample_of("srtm", result(), result(each=kept_each((1_500, 4_000_000))), FLOOD),
        "fan-out": fan_out.sample_of("srtm", FLOOD),
        "http": http_publish.sample_of("srtm", dict.fromkeys(http_publish.KINDS, FLOOD)),
        "bucket": steady.sample_of(bucket_cost.LIMITED, result(), 20.0),
        "neighbour": neighbour.sample_of(neighbour.LIMITED, result()),
    }


def kept_each(*pairs: tuple[int, int]) -> str:
    return base64.b64encode(np.array(pairs, dtype="<i8").tobytes()).decode()


@pytest.mark.parametrize("name", NSQD.rows)
def test_every_row_can_show_and_judge_what_it_measures(name: str) -> None:
    row, sample = NSQD.rows[name], sample_of_each_row()[name]
    one = [Sample(system, sample.values) for system in row.systems]
    outcome = measured(row, [one], judge(row, [one], {"pairs": 1, "seconds": 2.0}), started=0.0)
    assert [figure.label for figure in outcome.figures] == [figure.label for figure in row.figures]
    assert len(outcome.checks) == len(row.targets)
    assert any(figure.drawn for figure in row.figures) or name in ("in-turn", "overflow")


def test_a_flood_that_was_not_whole_is_a_fault() -> None:
    garbled = msgspec.structs.replace(FLOOD, intact=False)
    assert saturated.sample_of("srtm", FLOOD, garbled, (1.0, 1.0)).values["garbled"] == 1
    assert saturated.sample_at_once("srtm", FLOOD, garbled, 1.0).values["garbled"] == 1
    assert fan_out.sample_of("srtm", garbled).values["garbled"] == 1
    assert saturated.sample_of("srtm", FLOOD, FLOOD, (1.0, 3.0)).values["read_cpu_us"] == 3_000


def test_so_many_messages_wait_as_fit_into_memory_in_whole_batches() -> None:
    assert [saturated.messages(seconds) for seconds in (1.0, 5.0, 3.0001, 60.0)] == [
        200_000,
        500_000,
        300_000,
        1_000_000,
    ]


def test_only_what_was_due_while_the_crowd_came_counts_as_crowded() -> None:
    each = kept_each((999, 90_000_000), (1_000, 3_000_000), (2_000, 1_000_000), (2_001, 80_000_000))
    values = crowd.sample_of("srtm", result(p99_ms=1.5), result(each=each), FLOOD).values
    assert values["crowded_p99_ms"] == 3.0
    assert values["times_quiet"] == 2.0
    nobody = crowd.sample_of("srtm", result(), result(each=kept_each((1, 1))), FLOOD)
    assert not counts([nobody])


def test_a_late_generator_spoils_a_crowd_but_where_a_system_is_only_shown() -> None:
    late = result(each=kept_each((1_500, 4_000_000)), reasons=["late"])
    judged, shown = (crowd.sample_of(system, result(), late, FLOOD) for system in ("srtm", "nsqd"))
    assert list(judged.reasons) == ["late"]
    assert not shown.reasons
    assert shown.values == judged.values


class TestLadder:
    """The search for the highest load, on systems that keep every rung below one."""

    @staticmethod
    def climb(search: load.Search, breaks_at: int) -> tuple[int, list[int]]:
        climber, tried = load.Climber(search), []
        climber.start()
        while climber.next is not None:
            tried.append(climber.next)
            climber.tell(load.Rung(climber.next < breaks_at, 0.1))
        return climber.found[0], tried

    @pytest.mark.parametrize("start", [-1, 0, 1, load.START, load.RUNGS - 1])
    @pytest.mark.parametrize("breaks_at", range(load.RUNGS + 1))
    def test_the_last_rung_that_is_kept_is_found_from_anywhere(self, start: int, breaks_at: int) -> None:
        found, tried = self.climb(load.search(start), breaks_at)
        assert found == breaks_at - 1
        assert len(tried) <= 12
        assert len(tried) == len(set(tried))

    @pytest.mark.parametrize("start", range(1, load.RUNGS - 1))
    def test_a_system_that_has_not_changed_is_found_with_two_runs(self, start: int) -> None:
        assert self.climb(load.search(start), start + 1)[1] == [start, start + 1]

    def test_a_system_that_lost_a_rung_is_found_with_two_runs(self) -> None:
        assert self.climb(load.search(20), 20)[1] == [20, 19]

    async def test_systems_take_turns_at_every_step(self) -> None:
        asked: list[str] = []

        async def attempt(name: str, rung: int, turn: Turn, folder: Path) -> load.Rung:
            asked.append(name)
            return load.Rung(rung < 6, 0.0)

        searches = {name: load.search(start) for name, start in (("a", 5), ("b", 3), ("c", 6))}
        found = await load.one_round(searches, TURN, attempt)
        assert {name: kept for name, (kept, _) in found.items()} == {"a": 5, "b": 5, "c": 5}
        assert "".join(asked) == "abcabcbb"

    def test_a_rung_is_kept_within_a_millisecond_and_with_nothing_lost(self) -> None:
        good = result(offered=1_000, sent=1_000, received=1_000, p99_ms=1.0)
        assert load.rung_of(good).kept
        for change in ({"p99_ms": 1.01}, {"lost": 1}, {"sent": 998}, {"received": 0}):
            assert not load.rung_of(msgspec.structs.replace(good, **change)).kept

    def test_the_generators_lateness_one_rung_above_is_said(self) -> None:
        assert load.sample_of("floor", 3, load.Rung(False, 0.21)).values["late_ms"] == 0.21
        assert load.sample_of("floor", load.RUNGS - 1, None).values["late_ms"] == 0.0
        assert not counts([load.sample_of("nsqd", -1, load.Rung(False, 0.1))])

    def test_it_is_refused_where_the_generator_may_not_open_as_many_files(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 4096))
        with pytest.raises(Unavailable, match="open files are needed and 4096 allowed"):
            load.ROW.begin(load.SYSTEMS)

    def test_loads_are_whole_publishers_and_each_is_above_the_last(self) -> None:
        loads = [load.load_of(rung) for rung in range(load.RUNGS)]
        assert all(one % 10 == 0 and one < other for one, other in itertools.pairwise(loads))
        assert loads[0] == 2_000
        assert loads[-1] > 70_000


class MadeUpSystem(System):
    """One that has used 1, 2, 3, ... seconds each time it is asked."""

    def cpu_s(self) -> float:
        asked.append(1)
        return float(len(asked))


asked: list[int] = []


def progress(phase: str, received: int) -> RunProgress:
    return RunProgress(
        phase=phase, elapsed_s=0.0, offered=0, sent=0, refused=0, received=received, lateness_p99_ms=0.0, p99_ms=0.0
    )


def test_processor_time_and_messages_are_counted_between_the_same_two_looks() -> None:
    asked.clear()
    meter = CpuMeter(MadeUpSystem("x", 1, "", ""))
    for phase, received in (
        ("warmup", 0),
        ("measuring", 1_000),
        ("measuring", 1_500),
        ("measuring", 3_000),
        ("done", 9_999),
    ):
        meter.look(progress(phase, received))
    assert meter.us_per_message() == 1e6 * 2 / 2_000


def test_a_run_too_short_to_see_two_looks_has_no_processor_time() -> None:
    meter = CpuMeter(MadeUpSystem("x", 1, "", ""))
    meter.look(progress("measuring", 10))
    with pytest.raises(InternalError, match="too short"):
        meter.us_per_message()


@pytest.mark.parametrize("words", [["--pairs", "0"], ["--seconds", "1"], ["--pairs", "x"]])
def test_pairs_and_seconds_that_measure_nothing_are_refused(words: list[str]) -> None:
    with pytest.raises(typer.TyperException, match=r"should be"):
        typer.main.get_command(app).main(["nsqd", *words], standalone_mode=False)


def test_what_was_not_built_is_refused_naming_what_builds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "PEERS", tmp_path)
    with pytest.raises(Unavailable, match="make peers"):
        peer("nsqd")
    with pytest.raises(Unavailable, match="make floor"):
        floor_program(tmp_path / "srtm-floor")


def test_rows_measured_one_by_one_stand_in_one_table_and_one_picture(tmp_path: Path) -> None:
    for name in ("steady", "memory"):
        row, sample = NSQD.rows[name], sample_of_each_row()[name]
        one = [Sample(system, sample.values) for system in row.systems]
        keep(NSQD, tmp_path, measured(row, [one], judge(row, [one], {"pairs": 1, "seconds": 2.0}), started=0.0))
    outcomes = kept(NSQD, tmp_path)
    assert [outcome.name for outcome in outcomes] == ["steady", "memory"]
    text = page_of(NSQD, outcomes, Origin.here(0.0)).text
    assert "| memory an idle connection | 1 KiB (1 to 1) | at most 4 KiB | yes |" in text
    assert "| CPU a message at 10,000 msg/s, srtm / nsqd | 1x (1 to 1) | at most 0.35x | **no** |" in text
    assert "## steady" in text
    picture(NSQD, tmp_path, outcomes)
    assert (tmp_path / NSQD.picture).read_bytes().startswith(b"\x89PNG")


def test_a_kept_row_that_was_damaged_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "nsqd-load.json").write_text("{}")
    with pytest.raises(BadInput, match=r"nsqd-load.json.*must be what the bench wrote"):
        kept(NSQD, tmp_path)


class TestTurns:
    """Which samples are taken again."""

    async def round_of(self, tmp_path: Path, *samples: Sample) -> tuple[Sample, int]:
        taken = list(samples)

        async def sample(_system: str, _turn: Turn, _folder: Path) -> Sample:
            return taken.pop(0)

        (one,) = await turns.in_turn(sample)(("srtm",))(Turn(tmp_path, 1.0, 1))
        return one, len(samples) - len(taken)

    async def test_one_that_the_machine_spoilt_is_taken_again_a_few_times(self, tmp_path: Path) -> None:
        late, good = Sample("srtm", {"lost": 0}, ["late"]), Sample("srtm", {"lost": 0})
        assert await self.round_of(tmp_path, late, late, good) == (good, 3)
        assert await self.round_of(tmp_path, *[late] * 9) == (late, turns.TRIES)

    @pytest.mark.parametrize("values", [{}, {"lost": 1}, {"garbled": 1.0}])
    async def test_one_with_a_fault_of_the_system_stands(self, tmp_path: Path, values: dict[str, float]) -> None:
        faulty = Sample("srtm", values, ["late"])
        assert await self.round_of(tmp_path, faulty, Sample("srtm", {"lost": 0})) == (faulty, 1)

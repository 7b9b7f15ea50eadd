"""Table 1 as people see it."""

from dataclasses import replace

import msgspec
import pytest

from bench.experiments.table1.fitted_rows import Table1Options, settings_of
from bench.experiments.table1.rows import PAPER_S, burst_of
from bench.experiments.table1.view import REALTIME, Shown, conditions_of, line, panels, show_and_write, table
from tests.bench.experiments.table1.test_rows import MADE, PAPERS

OPTIONS = Table1Options(rounds_s=5.0)
SPOILT = replace(MADE, reasons=("the generator was late",), tries=4)


def shown(*rows):
    settings = settings_of(OPTIONS)
    return Shown(name="table1", conditions="C", rows=rows, settings=settings, seed=1, started=0.0)


def test_a_group_has_the_papers_line_and_one_for_each_way_with_rounds_and_seconds_by_brokers():
    ten = replace(MADE, group=10, rounds=((1, 1.0), (2, 2.5)), assigned=(5_000.0, 5_000.0), took_s=7.81)
    lines = [
        [cell.strip() for cell in one.strip("|").split("|")] for one in table([MADE, PAPERS, ten]).markdown.splitlines()
    ]
    assert lines[0][:5] == ["groups of", "b", "", "k = 1", "k = 2"]
    assert lines[2][:8] == ["5", f"{burst_of(5):,.0f}", "the paper", "1", "", "64", "", "1"]
    assert lines[3][2:9] == ["ours", "1 (2 s)", "", "3.0", "3.2", "1", "0.5"]
    assert lines[3][-1] == "reached"
    assert lines[4][2:7] == ["its way here", "1 (2 s)", "", "61.0", ""]
    assert lines[5][:5] == ["10", f"{burst_of(10):,.0f}", "the paper", "2", "1"]
    assert lines[6][2:7] == ["ours", "1 (1 s)", "1 (2.5 s)", "7.8", "9.45"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (SPOILT, "does not count: the generator was late"),
        (replace(MADE, worst_p99_ms=None), "| nothing received |"),
        (replace(MADE, state="failed", took_s=None), "| (failed) |"),
        (replace(MADE, state="does not fit"), "| 3.0 (does not fit) |"),
        (replace(MADE, certain=False), "| 3.0 (by the sample) |"),
        (replace(MADE, worst_p99_ms=1.2), "**fell short**"),
        (replace(PAPERS, aside=True, service_us=16.0), "| its way, 16 us |"),
    ],
)
def test_a_line_says_what_stands_against_its_figures(row, words):
    assert words in table([row]).markdown


def test_each_row_is_told_as_soon_as_it_is_found():
    assert line(MADE) == "groups of 5: fits on 1 broker, 3.0 s (64 s printed) reached"


def test_a_time_that_was_measured_again_is_named_under_the_table():
    assert "groups of 5 (4 times)" in shown(SPOILT).page.text
    assert "measured again" not in shown(MADE).page.text


def test_the_caption_says_whether_reactors_and_generator_went_before_other_work():
    plain, realtime = (settings_of(replace(OPTIONS, realtime=one)) for one in (False, True))
    assert REALTIME in conditions_of(realtime, "end to end")
    assert REALTIME not in conditions_of(plain, "end to end")
    assert "1,000 publishers of 10 msg/s in batches of 10" in conditions_of(plain, "end to end")


def test_the_picture_has_our_times_beside_the_papers_and_none_of_a_fitting_that_failed():
    failed = replace(MADE, group=10, state="failed", took_s=None)
    series = {one.label: one for one in panels([MADE, failed])[0].series}
    assert (series["ours"].x, series["ours"].y, series["ours"].notes) == ([5], [3.0], ["1"])
    assert series["the paper (Table 1)"].y == list(PAPER_S.values())
    assert series["a twentieth of the paper's"].y[0] == 3.2
    assert "the paper's way here" not in series


def test_page_picture_and_data_are_written_together(tmp_path):
    own = tmp_path / "own.json"
    assert not show_and_write(shown(MADE, replace(SPOILT, group=10)), lambda _: None, str(own), tmp_path)
    text = (tmp_path / "table1.md").read_text()
    assert "table1: 1 of 2 rows not reached: groups of 10: no verdict: the generator was late." in text
    assert "](table1.png)" in text
    assert (tmp_path / "table1.png").stat().st_size
    assert (tmp_path / "data" / "table1.json").stat().st_size
    result = msgspec.json.decode(own.read_bytes())
    assert (result["valid"], result["reasons"]) == (False, ["groups of 10: the generator was late"])
    assert [one["name"] for one in result["runs"]] == ["groups of 5", "groups of 10"]


def test_all_rows_reached_is_told(capsys):
    assert show_and_write(shown(MADE), print, None, None)
    assert "table1: reached." in capsys.readouterr().out

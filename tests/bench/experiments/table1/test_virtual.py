"""Table 1 in virtual time: that rows are what was found, and what it refuses."""

from dataclasses import replace

import msgspec
import pytest
from typer.testing import CliRunner

from bench.commands.main import app
from bench.experiments.table1.fitted_rows import Table1Options
from bench.experiments.table1.virtual import fit_virtually, table1_virtual
from srtm.errors import BadInput

OPTIONS = Table1Options(rows=(5,), after_s=5.0, rounds_s=2.0)


def test_a_row_is_fitted_over_simulated_brokers_and_measured_afterwards():
    one = fit_virtually(5, "sequential", OPTIONS)
    assert (one.state, one.assigned) == ("fits", (10_000.0,))
    assert one.worst_p99_ms == pytest.approx(0.9)  # 50 messages of 18 us
    strict = fit_virtually(5, "sequential", replace(OPTIONS, promise_ms=0.6))
    assert strict.brokers == 2
    assert strict.worst_p99_ms is not None
    assert strict.worst_p99_ms <= 0.6


def test_a_layout_that_does_not_fit_has_no_p99_afterwards():
    one = fit_virtually(10, "paper", replace(OPTIONS, brokers=1))
    assert (one.state, one.worst_p99_ms) == ("does not fit", None)


def test_every_row_is_taken_all_ways_and_only_those_of_the_same_brokers_are_judged(tmp_path):
    shown, written = [], tmp_path / "result.json"
    assert table1_virtual(replace(OPTIONS, json_file=str(written)), shown.append)
    assert "| its way, 16 us |" in shown[-1]
    result = msgspec.json.decode(written.read_bytes())
    assert [(one["method"], one["brokers"]) for one in result["runs"]] == [
        ("sequential", 1),
        ("paper", 1),
        ("paper", 1),
    ]
    assert [one["name"] for one in result["result"]] == ["groups of 5", "groups of 5, its way"]
    assert result["settings"]["virtual"] is True


@pytest.mark.parametrize(
    ("option", "field"),
    [
        (["--paper-rows", "5"], "paper-rows: '5'"),
        (["--resume"], "resume: "),
        (["--directory", "x"], "directory: 'x'"),
        (["--realtime"], "realtime: "),
        (["--rows", ""], "rows: "),
    ],
)
def test_what_has_no_place_in_virtual_time_is_refused(option, field):
    result = CliRunner().invoke(app, ["table1", "--virtual", *option], standalone_mode=False)
    assert isinstance(result.exception, BadInput)
    assert str(result.exception).startswith(field)

"""Table 1 in virtual time: what counts as reached, and that the table is what was found."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from bench.experiments.table1 import Table1Options
from bench.experiments.table1_virtual import BLOCK, VirtualRow, fit_virtually, markdown, reached, table1_virtual
from distributor.fitting_events import Layout, Report

SECOND = 1_000_000_000
OPTIONS = Table1Options(rows=(5,), after_s=5.0, rounds_s=2.0)


def row(method="sequential", *, took_s=3.0, brokers=2, p99_ms=0.9, fits=True, group=5):
    names = tuple(f"b{at}" for at in range(brokers))
    report = Report(
        fits=fits,
        certain=True,
        layout=Layout(brokers=names, placement=np.zeros(0, dtype=np.int64), shares_micro=()),
        latency={},
        rounds=(),
        full={},
        missing=None,
        others_worst_ns=0,
        took_ns=round(took_s * SECOND),
    )
    return VirtualRow(group, method, report, p99_ms, 1.0)


@pytest.mark.parametrize(
    ("ours", "papers", "right"),
    [
        ({}, {}, True),
        ({"took_s": 3.3}, {}, False),
        ({"took_s": 9.0, "group": 10}, {}, True),
        ({"brokers": 3}, {}, False),
        ({"brokers": 1}, {}, True),
        ({"p99_ms": 1.1}, {}, False),
        ({}, {"p99_ms": 1.1}, False),
        ({"fits": False}, {}, False),
        ({}, {"took_s": 2_000.0}, True),
    ],
)
def test_a_row_is_reached_if_it_is_fast_and_as_small_as_the_papers_way_and_both_keep_the_promise(ours, papers, right):
    assert reached(row(**ours), row("paper", **papers)) is right


def test_a_row_is_fitted_over_simulated_brokers_and_measured_afterwards():
    one = fit_virtually(5, "sequential", OPTIONS)
    assert (one.report.fits, one.brokers) == (True, 1)
    assert one.worst_p99_ms == pytest.approx(0.9)  # 50 messages of 18 us
    strict = fit_virtually(5, "sequential", replace(OPTIONS, promise_ms=0.6))
    assert strict.brokers == 2
    assert strict.worst_p99_ms <= 0.6


def test_the_table_has_both_ways_side_by_side():
    lines = markdown([(row(took_s=2.34), row("paper", took_s=61.0, brokers=1))], OPTIONS).splitlines()
    assert "rounds of 2 s" in lines[0]
    assert lines[2] == "| 5 | 64 | 3.2 | 2.3 | 0 | 2 | 0.9 | 61.0 | 0 | 1 | 0.9 |"


def test_it_is_shown_and_written_down(tmp_path):
    shown, written = [], tmp_path / "result.json"
    assert table1_virtual(replace(OPTIONS, json_file=str(written)), shown.append)
    assert "| 5 | 64 | 3.2 |" in shown[-1]
    result = msgspec.json.decode(written.read_bytes())
    assert [(one["method"], one["brokers"]) for one in result["runs"]] == [("sequential", 1), ("paper", 1)]
    assert result["settings"]["virtual"] is True


def test_the_document_has_a_place_for_it():
    text = (Path(__file__).parents[3] / "docs" / "placement.md").read_text()
    assert text.count(f"<!-- {BLOCK}:begin -->") == text.count(f"<!-- {BLOCK}:end -->") == 1

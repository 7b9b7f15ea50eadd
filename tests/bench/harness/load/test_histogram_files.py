"""Files for HdrHistogram's own tools, read back by one of them: its Python port."""

import msgspec
import numpy as np
import pytest
from hdrh.log import HistogramLogReader

from bench.harness.load.histogram_files import Curves, by_second, encoded, interval_log, percentile_distribution
from bench.harness.load.run import Interval
from bench.harness.results.results import histogram_ms, merged
from tests.support.run_results import histogram, recorded, result

MS = 1_000_000


def read(path):
    reader, found = HistogramLogReader(str(path), recorded()), []
    while (interval := reader.get_next_interval_histogram()) is not None:
        found.append(interval)
    reader.close()
    return found


def interval(start_s, *values_ms):
    return Interval(
        start_s=start_s, length_s=1.0, count=len(values_ms), max_ms=max(values_ms), histogram=histogram(*values_ms)
    )


def test_a_log_reads_back_interval_by_interval_with_lateness_and_answers_tagged(tmp_path):
    run = result(
        timeline=[interval(0.0, 1.0, 2.0), interval(1.0, 8.0)], measured_from_unix_ns=1_700_000_000_250_000_000
    )
    histograms = msgspec.structs.replace(run.histograms, lateness=histogram(0.1), ack=histogram(0.5, 0.7))
    run = msgspec.structs.replace(run, histograms=histograms)
    path = tmp_path / "run.hlog"
    path.write_text(interval_log("a title\nof two lines", Curves.of(run, 2.0)))
    first, second, lateness, ack = read(path)
    assert [one.get_tag() for one in (first, second, lateness, ack)] == [None, None, "lateness", "ack"]
    assert [one.get_total_count() for one in (first, second, lateness, ack)] == [2, 1, 1, 2]
    assert second.get_max_value() == pytest.approx(8e6, rel=1e-3)
    assert first.get_start_time_stamp() == pytest.approx(1_700_000_000_250, abs=1)
    assert second.get_start_time_stamp() - first.get_start_time_stamp() == pytest.approx(1000, abs=1)
    assert lateness.get_end_time_stamp() - lateness.get_start_time_stamp() == pytest.approx(2000, abs=1)


def test_a_distribution_agrees_with_the_histogram_and_ends_with_all_of_it():
    values = recorded(*(number / 10 for number in range(1, 1001)))
    lines = percentile_distribution(values).splitlines()
    rows = [line.split() for line in lines[2:] if not line.startswith("#")]
    for value_ms, share, count, *_ in rows:
        expected_ms = values.get_value_at_percentile(100 * float(share)) / 1e6
        assert float(value_ms) == pytest.approx(expected_ms, rel=2e-3)
        assert int(count) >= float(share) * 1000 - 1
    assert rows[-1][1:] == ["1.000000000000", "1000"]
    assert lines[-2].startswith("#[Max     =   100.0")
    mean_ms, deviation_ms = (float(part.split("=")[1].rstrip("]")) for part in lines[-3].split(","))
    assert (mean_ms, deviation_ms) == (pytest.approx(50.05, rel=1e-3), pytest.approx(28.87, rel=1e-3))


def test_a_run_without_a_message_has_a_distribution_of_none():
    assert "TotalCount     =            0" in percentile_distribution(recorded())


def test_values_by_the_second_of_their_instants_add_up_to_all_of_them():
    instants, values = np.array([0, 999, 2_500, 2_100]) * MS, np.array([1, 4, 3, 2]) * MS
    found = by_second(instants, values)
    assert [(one.start_s, one.length_s, one.count, one.max_ms) for one in found] == [
        (0.0, 1.0, 2, 4.0),
        (1.0, 1.0, 0, 0.0),
        (2.0, 1.0, 2, 3.0),
    ]
    whole = merged(one.histogram for one in found)
    assert whole.get_total_count() == merged([encoded(values)]).get_total_count() == 4
    assert histogram_ms(whole, 100) == pytest.approx(4.0, rel=1e-3)


def test_no_values_have_no_seconds():
    assert by_second(np.array([], dtype=np.int64), np.array([], dtype=np.int64)) == []

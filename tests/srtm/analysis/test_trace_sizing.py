"""Recorded traffic, read and sized: the smallest burst, its uncertainty, and theory beside it."""

import json
import math

import numpy as np
import pytest

from srtm.analysis.arrivals import Arrivals, merged, read_arrivals
from srtm.analysis.trace_sizing import sized
from srtm.errors import BadInput
from srtm.token_bucket.poisson import delayed_part, mean_delay_s, poisson_burst
from srtm.token_bucket.replay import access_delays

MICRO = 1_000_000


def recorded(arrival_ns) -> Arrivals:
    return Arrivals(("p",), np.zeros(len(arrival_ns), dtype=np.int64), np.asarray(arrival_ns, dtype=np.int64))


def poisson(seconds=60, batch=1, load=1_000, seed=1) -> Arrivals:
    rng = np.random.default_rng(seed)
    instants = np.sort(rng.random(load * seconds // batch)) * seconds * 1e9
    return recorded(np.repeat(instants.astype(np.int64), batch))


@pytest.mark.parametrize("batch", [1, 10])
@pytest.mark.parametrize("percentile", [50, 99, 99.9])
def test_the_burst_is_the_smallest_without_access_delay_at_the_percentile(batch, percentile):
    arrivals = poisson(batch=batch)
    for size in sized(arrivals, percentile).sizes:
        allowed = len(arrivals) - math.ceil(len(arrivals) * percentile / 100 - 1e-9)

        def delayed(burst, rate=size.rate):
            return int((access_delays(arrivals.arrival_ns, round(rate * MICRO), burst * MICRO) > 0).sum())

        assert delayed(size.burst) <= allowed
        assert size.burst == 1 or delayed(size.burst - 1) > allowed


def test_poisson_traffic_is_sized_as_theory_says_and_waits_as_eq_1_says():
    arrivals = poisson(seconds=600)
    (size,) = sized(arrivals, 99, [1_100]).sizes
    assert size.poisson_burst == pytest.approx(size.burst, abs=2)
    delays = access_delays(arrivals.arrival_ns, 1_100 * MICRO, 10 * MICRO)
    assert delays.mean() / 1e9 == pytest.approx(mean_delay_s(1_000, 1_100, 10), rel=0.1)
    assert np.mean(delays > 0) == pytest.approx(delayed_part(1_000 / 1_100, 10), rel=0.1)


def test_the_papers_burst_leaves_one_message_in_a_hundred_waiting():
    assert delayed_part(10 / 11, 25) == pytest.approx(0.01, rel=0.05)  # section 5.3: r = 11,000, b = 25
    assert delayed_part(10 / 11, 1) == pytest.approx(10 / 11)  # P(N >= 1) is the load
    assert poisson_burst(1, 1.0001, 99) == pytest.approx(math.log(100) / 2 * 10_000, rel=0.01)  # heavy traffic


def test_short_traffic_is_sized_with_a_warning_that_names_the_uncertainty():
    short, long = sized(poisson(60, 10), 99, [1_100]), sized(poisson(600, 10), 99, [1_100])
    (size,) = short.sizes
    assert short.warnings == [
        f"60 s of traffic are less than 600 s: b is uncertain by about {100 * size.uncertainty / size.burst:.0f} % "
        "(one standard error; slower changes of the traffic are not in it)"
    ]
    assert size.uncertainty > long.sizes[0].uncertainty > 0


@pytest.mark.slow
def test_the_uncertainty_told_is_that_of_traces_of_the_same_length():
    sizes = [sized(poisson(60, 10, seed=seed), 99, [1_100]).sizes[0] for seed in range(40)]
    told = np.sqrt(np.mean([size.uncertainty**2 for size in sizes]))
    assert told == pytest.approx(np.std([size.burst for size in sizes]), rel=0.5)


def test_six_hundred_seconds_are_enough():
    ten_minutes = recorded(np.arange(601) * 10**9)
    assert sized(ten_minutes, 99).warnings == []


@pytest.mark.parametrize("rate", [0.5, 1.0005, math.nan])
def test_a_rate_without_slack_is_refused(rate):
    with pytest.raises(BadInput, match="rate: "):
        sized(recorded(np.arange(100) * 10**9), 99, [rate])


@pytest.mark.parametrize("arrival_ns", [[], [1, 2, 3], [5] * 100])
def test_too_little_to_judge_is_refused(arrival_ns):
    with pytest.raises(BadInput, match="at least 20, at different times"):
        sized(recorded(arrival_ns), 99)


def test_a_brokers_trace_and_a_csv_are_read_alike(tmp_path):
    (tmp_path / "trace.json").write_text(
        json.dumps(
            {"publishers": ["a", "b"], "publisher": [1, 0, 1], "arrival_ns": [30, 10, 20], "due_ns": [30, 10, 20]}
        )
    )
    (tmp_path / "trace.csv").write_text("publisher,x,arrival_ns\na,0,10\nb,0,20\n\nb,0,30\n")
    found = [read_arrivals(tmp_path / name) for name in ("trace.json", "trace.csv")]
    for arrivals in found:
        assert arrivals.arrival_ns.tolist() == [10, 20, 30]
        assert [arrivals.names[at] for at in arrivals.publisher] == ["a", "b", "b"]
    both = merged(found)
    assert both.arrival_ns.tolist() == [10, 10, 20, 20, 30, 30]
    assert [both.names[at] for at in both.publisher] == ["a", "a", "b", "b", "b", "b"]


def test_of_recordings_that_go_back_differently_far_only_the_common_time_counts(tmp_path):
    (tmp_path / "long.csv").write_text("publisher,arrival_ns\na,10\na,20\na,30\na,60\n")
    (tmp_path / "short.csv").write_text("publisher,arrival_ns\nb,20\nb,30\nb,40\n")
    both = merged([read_arrivals(tmp_path / name) for name in ("long.csv", "short.csv")])
    assert both.arrival_ns.tolist() == [20, 20, 30, 30, 40]
    (tmp_path / "later.csv").write_text("publisher,arrival_ns\nc,100\nc,110\n")
    with pytest.raises(BadInput, match="some time in common: ask while messages come to all brokers"):
        merged([read_arrivals(tmp_path / name) for name in ("long.csv", "later.csv")])


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("id,time\n1,2\n", "header names arrival_ns"),
        ("arrival_ns\n1\nsoon\n", r"line 3\.arrival_ns: 'soon': must be a whole number"),
        ("publisher,arrival_ns\na\n", r"line 2\.arrival_ns"),
        ('arrival_ns\n"1\n', "must be CSV"),
        (f"arrival_ns\n{2**70}\n", "within"),
        ('{"publishers": [], "publisher": [0], "arrival_ns": [1]}', "indices of the 0 publishers"),
        ('{"publishers": ["a"], "publisher": [0], "arrival_ns": [1, 2]}', "1 publishers and 2 arrivals"),
        ('{"publishers": 3}', "must be a broker's trace"),
    ],
)
def test_what_is_no_trace_is_refused_saying_why(tmp_path, content, rule):
    (tmp_path / "trace").write_text(content)
    with pytest.raises(BadInput, match=rule):
        read_arrivals(tmp_path / "trace")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadInput, match="must be a file that can be read"):
        read_arrivals(tmp_path / "nowhere")

"""The demo: its traffic, its figures, its verdict; and, by simulation, that what it shows is no accident of a seed."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from bench.data.sensors import PUBLISHERS_CSV, RATE_PER_S, TOPIC_TOML, read_detectors
from bench.demo.placement_result import BrokerPart, Side, shortcomings, side_of, together
from bench.demo.run import BROKERS, MCAP, WARMUP_S, DemoOptions, Protocol, first_that_counts, run_demo
from bench.demo.view import draw, plain
from bench.harness.cluster_runs.assigned_traffic import plan_of
from bench.harness.cluster_runs.placed_run import penalty_of, without_warmup
from bench.harness.cluster_runs.trace import Trace
from bench.harness.load.run import Histograms, RunResult
from bench.harness.results.intervals import percentile_ms
from bench.harness.results.plot import Promise
from srtm.client.distributor import Json
from srtm.errors import BadInput
from srtm.topics.file import read_topic_file
from srtm.topics.spec import Strategy
from srtm.units import from_micro
from tests.support.demo_runs import NAMES, arranged, simulated, worst_p99_ms
from tests.support.run_results import EMPTY, histogram, result, target

PROMISE = Promise(0.99, 5.0)
RATE, BURST = 2_277.0, 200.0


def assigned(strategy: Strategy) -> Json:
    """The distributor's answer about publishers."""
    rows = list(csv.DictReader(PUBLISHERS_CSV.read_text().splitlines()))
    return {
        "ids": [row["id"] for row in rows],
        "brokers": [NAMES[at] for at in arranged(strategy).broker_of],
        "groups": [row["correlation_group"] for row in rows],
        "rates": [float(row["rate"]) for row in rows],
        "batches": [1] * len(rows),
        "processes": ["poisson"] * len(rows),
    }


def viewed(strategy: Strategy) -> Json:
    """The distributor's answer about the topic."""
    places = [
        {"broker": name, "rate": from_micro(share.rate), "burst": from_micro(share.burst)}
        for name, share in arranged(strategy).shares.items()
    ]
    return {"name": "la-highways", "rate": RATE, "burst": BURST, "brokers": places}


def run_result() -> RunResult:
    counts = dict.fromkeys(("offered", "sent", "acknowledged", "received"), 1_000)
    times = {f"{name}_ms": 1.0 for name in ("p50", "p95", "p99", "p999", "max")}
    latency = histogram(*(number / 10 for number in range(1, 101)))
    targets = [target("demo", histogram=latency, **counts, **times)] * BROKERS
    histograms = Histograms(latency=latency, lateness=EMPTY, ack=EMPTY)
    return result(targets=targets, histograms=histograms, rate=2_070.0, brokers=BROKERS, **counts)


@cache
def measured(strategy: Strategy) -> Side:
    traces = without_warmup(simulated(strategy, seed=1, seconds=WARMUP_S + 8.0), 0, WARMUP_S)
    return side_of(strategy, viewed(strategy), assigned(strategy), run_result(), traces, list(NAMES))


def test_two_brokers_are_necessary_and_enough() -> None:
    load = RATE_PER_S * len(read_detectors())
    assert MCAP < load < RATE < 2 * MCAP
    assert set(arranged("srtm").broker_of) == {0, 1}
    assert set(arranged("lb").broker_of) == {0, 1, 2}


def test_the_topic_file_says_what_the_demo_promises() -> None:
    document = read_topic_file(TOPIC_TOML)
    assert (document["rate"], document["burst"]) == (RATE, "auto")
    assert document["slo"] == {"percentile": 99, "latency_ms": 5.0}


def test_every_detector_sends_to_the_broker_that_it_was_assigned_to_and_shares_its_groups_process() -> None:
    addresses = {name: f"127.0.0.1:{port}" for port, name in enumerate(NAMES, start=1)}
    columns = assigned("srtm")
    settings = {"seconds": 7.0, "warmup_s": WARMUP_S, "seed": 3, "slo_ms": PROMISE.latency_ms, "percentile": 99.0}
    traffic = plan_of("la-highways", columns, addresses, **settings)
    assert tuple(traffic.publishers.target) == arranged("srtm").broker_of
    assert [subscriber.target for subscriber in traffic.subscribers] == [0, 1]
    names = columns["groups"]
    assert len(set(zip(traffic.publishers.group, names, strict=True))) == len(set(names)) == 33


def test_srtm_halves_what_fires_together() -> None:
    assert max(together(assigned("srtm")).values()) == 8  # of a group of 15


def test_access_delays_are_judged_by_the_worst_broker() -> None:
    measured_part = without_warmup(simulated("lb", seed=1, seconds=WARMUP_S + 8.0), 0, WARMUP_S)
    p99_ms = [percentile_ms(trace.access_ns, 99) for trace in measured_part.values()]
    assert [part.access_p99_ms for part in measured("lb").parts] == p99_ms
    assert measured("lb").access_worst_p99_ms == max(p99_ms) >= measured("lb").access_p99_ms


def test_neither_an_earlier_run_nor_the_warm_up_counts() -> None:
    second = 10**9
    arrival_ns = np.array([1, 5, 6, 7, 8], dtype=np.int64) * second
    traces = {"a": Trace([], *[arrival_ns] * 5), "b": Trace([], *[arrival_ns + second // 2] * 5)}
    counted = without_warmup(traces, started_ns=4 * second, warmup_s=2.0)
    assert counted["a"].arrival_ns.tolist() == [7 * second, 8 * second]
    assert len(counted["b"]) == 2


def test_a_broker_without_publishers_is_shown_and_does_not_count() -> None:
    side = measured("srtm")
    assert side.parts[2] == BrokerPart("broker-3")
    assert side.brokers == 2


def test_the_penalty_of_a_split_is_never_negative() -> None:
    for strategy in ("lb", "srtm"):
        assert measured(strategy).penalty_ms >= 0
        assert penalty_of(viewed(strategy), simulated(strategy, 2, 5.0)).sum_ns >= 0


def side(**changes: object) -> Side:
    return replace(measured("srtm"), **changes)  # type: ignore[arg-type]


def delayed(side: Side, access_p99_ms: float) -> Side:
    return replace(side, parts=[replace(side.parts[0], access_p99_ms=access_p99_ms), *side.parts[1:]])


def test_the_demo_passes_only_if_all_arrived_the_runs_count_and_srtm_waits_no_longer() -> None:
    lb, srtm = delayed(side(placement="lb"), 20.0), delayed(side(), 2.0)
    assert shortcomings(lb, srtm) == []
    assert shortcomings(lb, replace(srtm, lost=1)) == ["srtm: 1 messages were lost"]
    assert shortcomings(replace(lb, reasons=["late"]), srtm) == ["lb does not count: late"]
    assert shortcomings(lb, delayed(srtm, 20.0)) == []
    assert "above that of lb: 20.01 ms, 20.00 ms" in shortcomings(lb, delayed(srtm, 20.01))[0]


@pytest.mark.parametrize(("runs", "taken"), [(["", "late"], ""), (["late", ""], ""), (["late", "later", ""], "later")])
async def test_a_run_that_does_not_count_is_measured_once_more_and_says_so(runs: list[str], taken: str) -> None:
    said = Console(file=StringIO(), width=200)
    left = iter(runs)

    async def measure() -> Side:
        reason = next(left)
        return side(reasons=[reason] if reason else [])

    assert (await first_that_counts(measure, said)).reasons == ([taken] if taken else [])
    assert isinstance(said.file, StringIO)
    assert ("this run does not count (late)" in said.file.getvalue()) == (runs[0] == "late")


def test_the_promise_is_kept_or_broken_by_the_worst_broker() -> None:
    late = replace(measured("srtm").parts[1], p99_ms=5.01)
    broken = side(parts=[measured("srtm").parts[0], late])
    assert measured("srtm").kept(PROMISE)
    assert not broken.kept(PROMISE)
    assert broken.row(PROMISE)["kept"] is False


def test_tables_show_both_sides_and_fit_eighty_columns() -> None:
    broken = side(placement="lb", parts=[replace(part, p99_ms=9.0) for part in measured("lb").parts])
    text = plain([broken, measured("srtm")], PROMISE)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    assert "broken" in text
    assert "kept" in text
    assert all(name in text for name in NAMES)


def test_a_picture_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"png: .*: must be a file that can be written"):
        run_demo(DemoOptions(png=tmp_path / "none" / "x.png"))


def test_rows_for_json_are_flat() -> None:
    row = measured("lb").row(PROMISE)
    assert {
        "name",
        "brokers",
        "sent",
        "received",
        "lost",
        "p50_ms",
        "p99_ms",
        "access_p99_ms",
        "lateness_p99_ms",
    } <= set(row)
    assert not any(isinstance(value, dict) for value in row.values())
    assert all(not isinstance(value, dict | list) for part in measured("lb").part_rows() for value in part.values())


@pytest.mark.slow
def test_the_picture_is_written(tmp_path: Path) -> None:
    path = tmp_path / "demo.png"
    draw(path, [replace(measured("lb"), placement="lb"), measured("srtm")], PROMISE)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", list(Protocol))
def test_a_short_demo_on_real_brokers_loses_nothing_and_writes_its_result_and_picture(
    tmp_path: Path, protocol: Protocol
) -> None:
    picture, file = tmp_path / "demo.png", tmp_path / "demo.json"
    options = DemoOptions(seconds=2.0, png=picture, json_file=str(file), protocol=protocol)
    run_demo(options)  # its status is that of a two-second sample
    written = json.loads(file.read_text())
    assert [(run["name"], run["brokers"], run["lost"]) for run in written["runs"]] == [("lb", 3, 0), ("srtm", 2, 0)]
    assert written["runs"][0]["sent"] == written["runs"][1]["sent"] > 3_000
    assert sum(part["publishers"] for part in written["result"]["parts"]) == 2 * 207
    assert picture.stat().st_size > 10_000


@pytest.mark.slow
def test_srtm_keeps_the_promise_in_184_of_200_minutes_that_its_burst_was_not_sized_on() -> None:
    pairs = [(worst_p99_ms("srtm", seed, 60.0), worst_p99_ms("lb", seed, 60.0)) for seed in range(200)]
    assert sum(srtm <= lb for srtm, lb in pairs) >= 190
    kept = [sum(delay <= 5.0 for delay in delays) for delays in zip(*pairs, strict=True)]
    assert kept[0] >= 184
    assert kept[1] < 184


@pytest.mark.slow
def test_over_an_hour_lb_is_late_several_times_as_often_as_srtm() -> None:
    srtm, lb = late_part("srtm"), late_part("lb")
    assert 0 < srtm < 0.002
    assert lb > 4 * srtm


def late_part(strategy: Strategy) -> float:
    """The part of the messages of the worst broker that wait longer than the promise allows."""
    traces = simulated(strategy, 1, 3_600.0).values()
    return max(float((trace.access_ns > PROMISE.latency_ms * 1e6).mean()) for trace in traces if len(trace))

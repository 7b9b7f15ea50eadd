"""The measurements to be reached: what decides each verdict, on traces made by hand; how verdicts are written down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer

from bench.checks.measures import idle, overload, ping, sigstop, split
from bench.checks.measures.reach import MEASURES, markdown
from bench.commands.main import app
from bench.harness.cluster_runs.trace import Column, Trace
from bench.harness.results.document import PERFORMANCE, markdown_table, with_block, write_block
from bench.harness.results.verdict import Verdict, at_most, none_of, within
from srtm.errors import BadInput, Unavailable
from srtm.token_bucket.replay import due_instants
from srtm.units import to_micro
from tests.support.run_results import result

MS = 1_000_000


def traced(arrival_ns: Column, rate: float, burst: float, late_ns: int = 0) -> Trace:
    """What a broker would record that does all right, but lets each message go ``late_ns`` after its instant."""
    due_ns = due_instants(arrival_ns, to_micro(rate, "rate"), to_micro(burst, "burst"))
    released_ns = due_ns + late_ns
    nobody = np.zeros(len(arrival_ns), dtype=np.int64)
    return Trace(["p"], nobody, arrival_ns, due_ns, released_ns, released_ns)


def missed(verdict: Verdict) -> list[str]:
    return [check.what for check in verdict.checks if not check.kept]


def overloaded(late_ns: int = 0) -> Trace:
    """Twice the rate for a second, evenly."""
    arrival_ns = np.arange(10_000, dtype=np.int64) * 100_000
    return traced(arrival_ns, overload.RATE, overload.BURST, late_ns)


def test_overload_is_reached_by_a_broker_that_releases_at_the_references_instants() -> None:
    assert overload.judge(result(), overloaded(), 1.0).line == "overload: reached"


def test_one_due_instant_a_nanosecond_off_is_found() -> None:
    trace = overloaded()
    trace.due_ns[5_000] += 1
    assert "due instants that differ from the reference's" in missed(overload.judge(result(), trace, 1.0))


def test_timers_two_milliseconds_late_are_found() -> None:
    assert missed(overload.judge(result(), overloaded(2 * MS), 1.0)) == ["actual - due, p99"]


def test_a_release_above_the_envelope_is_found() -> None:
    trace = overloaded()
    trace.due_ns[9_000:9_010] = trace.due_ns[8_000]
    assert "due instants over b + r dt" in missed(overload.judge(result(), trace, 1.0))


def test_the_rate_of_release_counts_from_when_the_burst_was_spent() -> None:
    assert overload.release_rate(overloaded()) == pytest.approx(overload.RATE, rel=0.001)
    idle_trace = traced(np.arange(100, dtype=np.int64) * MS, overload.RATE, overload.BURST)
    assert overload.release_rate(idle_trace) == 0.0


def test_lost_messages_and_a_run_that_does_not_count_are_no_success() -> None:
    assert missed(overload.judge(result(lost=1), overloaded(), 1.0)) == ["messages lost"]
    late = overload.judge(result(reasons=["the generator was late"]), overloaded(), 1.0)
    assert late.line == "overload: no verdict: the generator was late"
    assert not late.reached


def stopped(apart_ns: int = 3 * MS // 2) -> sigstop.Sends:
    sent_ns = [number * apart_ns for number in range(sigstop.CONNECTIONS)]
    return sigstop.Sends(0, sent_ns, 300 * MS)


def test_kernel_stamps_reach_what_a_stop_asks_for() -> None:
    sends = stopped()
    trace = traced(np.array(sends.sent_ns), sigstop.RATE, sigstop.BURST)
    assert sigstop.judge(sends, trace, "kernel").line == "sigstop: reached"


def test_stamps_taken_when_the_broker_woke_fall_short() -> None:
    sends = stopped()
    woken = np.full(sigstop.CONNECTIONS, sends.continued_ns + MS)
    verdict = sigstop.judge(sends, traced(woken, sigstop.RATE, sigstop.BURST), "read")
    assert missed(verdict) == ["messages with an access delay", "arrival stamps from outside the stop"]


def test_senders_that_did_not_conform_give_no_verdict() -> None:
    sends = stopped(apart_ns=MS // 10)
    verdict = sigstop.judge(sends, traced(np.array(sends.sent_ns), sigstop.RATE, sigstop.BURST), "kernel")
    assert not verdict.valid


def split_run(brokers: int, p99_ms: float, off: float = 0.0) -> split.SplitRun:
    return split.SplitRun(brokers, result(brokers=brokers), p99_ms, off)


def test_the_mean_of_the_runs_is_what_meets_theory() -> None:
    good = [split_run(k, theory) for k, theory in split.THEORY_MS.items()]
    assert split.judge([*good, split_run(1, 0.2)], {}).reached
    assert split.judge([split_run(2, 2.3 * 0.8), split_run(2, 2.3 * 1.2)], {}).reached
    assert missed(split.judge([split_run(2, 2.3 * 1.2)], {})) == ["k = 2: p99 access delay, mean of 1 runs"]
    assert missed(split.judge([split_run(1, 0.31)], {})) == ["k = 1: p99 access delay, mean of 1 runs"]


def test_a_run_in_which_the_generator_was_stopped_does_not_count() -> None:
    stopped_run = split.SplitRun(2, result(brokers=2, lateness_max_ms=split.STOP_MS + 1), 90.0, 0.0)
    assert split.judge([split_run(2, 2.3), stopped_run], {}, wanted=1).reached
    verdict = split.judge([split_run(2, 2.3), stopped_run], {}, wanted=2)
    assert verdict.reasons == ["k = 2: only 1 of 2 runs were not stopped"]
    assert [run["poisson"] for run in verdict.runs] == [True, False]


def test_a_broker_whose_delays_are_two_percent_off_the_reference_is_found() -> None:
    share = (to_micro(5_500, "rate"), to_micro(12.5, "burst"))
    arrival_ns = np.sort(np.random.default_rng(1).integers(0, 10**9, 5_000))
    trace = traced(arrival_ns, 5_500, 12.5)
    p99_ms = float(np.percentile(trace.access_ns, 99, method="inverted_cdf")) / 1e6
    assert split.off_reference(trace, share, p99_ms) == 0.0
    assert split.off_reference(trace, share, 1.02 * p99_ms) == pytest.approx(0.02)
    slower = replace(trace, due_ns=trace.arrival_ns + trace.access_ns * 102 // 100)
    assert split.off_reference(slower, share, p99_ms) == pytest.approx(0.02, rel=0.01)
    assert missed(split.judge([split_run(2, 2.3, off=0.02)], {})) == ["largest difference from the reference"]


def test_idle_memory_is_what_connections_after_the_first_hundred_added() -> None:
    assert idle.judge(1_100, 10 << 20, (10 << 20) + 1_000 * 8192).reached
    assert not idle.judge(1_100, 10 << 20, (10 << 20) + 1_000 * 8193).reached


def test_too_few_descriptors_are_refused_with_the_number_needed() -> None:
    with pytest.raises(Unavailable, match="99999999 open files are needed"):
        idle.allow_descriptors(99_999_999)


def test_starting_is_judged_by_the_median() -> None:
    assert ping.judge([0.1, 0.29, 5.0]).reached
    assert not ping.judge([0.1, 0.31, 0.32]).reached


def test_bounds_are_kept_at_their_edge() -> None:
    assert at_most("x", 1.0, 1.0, "ms").kept
    assert within("x", 110.0, 100.0, 0.1, "ms").kept
    assert not within("x", 89.0, 100.0, 0.1, "ms").kept
    assert not none_of("x", 1).kept


def test_a_verdict_that_fell_short_says_by_what() -> None:
    verdict = Verdict("x", "claim", [at_most("p99", 2.0, 1.0, "ms"), none_of("lost", 0)])
    assert verdict.line == "x: fell short: p99 2 ms, must be at most 1 ms"


DOCUMENT = "before\n<!-- a:begin -->\nold\n<!-- a:end -->\nbetween\n<!-- b:begin -->\n<!-- b:end -->\nafter\n"


def test_a_block_is_replaced_and_nothing_else() -> None:
    written = with_block(DOCUMENT, "a", "new \\1 figures")
    assert written == DOCUMENT.replace("old\n", "\nnew \\1 figures\n\n")
    assert with_block(written, "a", "new \\1 figures") == written


@pytest.mark.parametrize("document", ["no blocks", DOCUMENT + DOCUMENT])
def test_a_document_without_exactly_one_block_of_the_name_is_refused(document: str) -> None:
    with pytest.raises(BadInput, match="exactly one block"):
        with_block(document, "a", "text")


def test_a_document_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="run from a checkout"):
        write_block(tmp_path / "none.md", "a", "text")


@pytest.mark.parametrize("file", ["", "none/x.json"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path, file: str) -> None:
    command = typer.main.get_command(app)
    for words in (["reach"], ["nsqd"]):
        with pytest.raises(BadInput, match="json"):
            command.main([*words, "--json", str(tmp_path / file)], standalone_mode=False)


def test_every_measurement_has_its_block_in_the_document() -> None:
    document = PERFORMANCE.read_text()
    for name in ["nsqd", *(f"reach {name}" for name in MEASURES)]:
        assert with_block(document, name, "figures") != document


def test_the_block_of_a_verdict_says_claim_figures_and_verdict() -> None:
    text = markdown(ping.judge([0.1, 0.2, 0.3]), started=0.0)
    assert "| start to /ping, median | 0.2 s | at most 0.3 s | yes |" in text
    assert "**ping: reached.** Measured 1970-01-01 at commit" in text


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert markdown_table(["a"], [["x|y"]]).splitlines()[-1] == "| x\\|y |"


@pytest.mark.slow
def test_a_quick_measurement_of_a_real_broker_is_written_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, file = typer.main.get_command(app), tmp_path / "reach.json"
    command.main(["reach", "ping", "--quick", "--json", str(file)], standalone_mode=False)
    written = json.loads(file.read_text())
    assert written["command"] == "bench reach"
    assert [run["name"] for run in written["runs"]] == ["start-0", "start-1", "start-2"]
    assert all(0 < run["start_s"] < 20 for run in written["runs"])
    assert "ping: " in capsys.readouterr().out

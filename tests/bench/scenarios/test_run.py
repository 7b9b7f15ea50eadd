"""``srtm bench run``: every example once, briefly; its files, read back; its exit status."""

import tomllib
from pathlib import Path

import msgspec
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from rich.console import Console

from bench.commands.main import bench_run
from bench.harness.results.results import histogram_ms, merged
from bench.harness.systems.peer_servers import ALL, missing
from bench.scenarios.file import scenario
from bench.scenarios.run import Outcome, judged, prepare, show
from srtm.errors import BadInput, Unavailable
from tests.support.run_results import EMPTY, result, target

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "bench" / "scenarios").glob("*.toml"))
FILE = """
address = "127.0.0.1:1"
duration_s = 1.0
[[topics]]
name = "t"
[[topics.publishers]]
count = 1
rate = 10.0
"""
PROMISE = "[promise]\nlatency_ms = 1.5\n"


def logged(path):
    """{tag: count of the log's histograms}"""
    reader, counts = HistogramLogReader(str(path), merged([])), {}
    while (interval := reader.get_next_interval_histogram()) is not None:
        counts[interval.get_tag()] = counts.get(interval.get_tag(), 0) + interval.get_total_count()
    reader.close()
    return counts


def test_how_long_a_run_takes_is_said_before_its_broker_is_asked(tmp_path, capsys):
    (tmp_path / "mine.toml").write_text(FILE)
    with pytest.raises(Unavailable):
        bench_run(tmp_path / "mine.toml", seconds=600.0, out=tmp_path)
    said = "mine: 1 s of warm-up, 600 s measured, at most 5 s for what is still on its way\n"
    assert capsys.readouterr().out == said


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs_and_writes_files_that_agree(path, tmp_path, capsys):
    document = tomllib.loads(path.read_text())
    skip_without(document["start"])
    seconds = 1.0 if "duration_s" in document else None
    status = bench_run(path, seed=3, seconds=seconds, out=tmp_path / "out")
    files = {file.suffix: file for file in (tmp_path / "out").iterdir()}
    assert {file.name for file in files.values()} == {f"{path.stem}{ending}" for ending in (".json", ".hlog", ".hgrm")}
    written = msgspec.json.decode(files[".json"].read_bytes())
    whole, *topics = written["runs"]
    assert status in ((0, 1) if written["valid"] else (3,))
    assert whole["valid"] is written["valid"]
    assert written["seed"] == 3
    assert [run["topic"] for run in topics] == [topic["name"] for topic in document["topics"]]
    channels = [len(topic.get("channels", ["bench"])) for topic in document["topics"]]
    assert all(run["received"] == run["sent"] * times > 0 for run, times in zip(topics, channels, strict=True))
    assert (whole["sent"], whole["received"]) == tuple(sum(run[key] for run in topics) for key in ("sent", "received"))
    histograms = written["result"]["histograms"]
    latency = merged([histograms["latency"]])
    assert histogram_ms(latency, 99) == pytest.approx(whole["p99_ms"], rel=2e-3)
    assert logged(files[".hlog"]) == {
        None: whole["received"],
        "lateness": merged([histograms["lateness"]]).get_total_count(),
        "ack": merged([histograms["ack"]]).get_total_count(),
    }
    assert f"TotalCount     = {whole['received']:12d}]" in files[".hgrm"].read_text()
    assert ("not valid" in capsys.readouterr().out) is not written["valid"]


def skip_without(name):
    if said := missing(ALL[name]):
        pytest.skip(said)


@pytest.mark.slow
@pytest.mark.parametrize(("start", "more"), [("nats", ""), ("mosquitto", "qos = 1\n"), ("redis", "")])
def test_other_brokers_are_measured_in_their_own_protocol(start, more, tmp_path):
    skip_without(start)
    (tmp_path / "other.toml").write_text(FILE.replace('address = "127.0.0.1:1"', f'start = "{start}"\n{more}'))
    bench_run(tmp_path / "other.toml", seconds=0.5, out=tmp_path)
    [whole, _] = msgspec.json.decode((tmp_path / "other.json").read_bytes())["runs"]
    assert (whole["sent"], whole["lost"], whole["errors"]) == (whole["received"], 0, 0)
    assert whole["sent"] > 0


def outcome(text, **found):
    wanted = scenario("mine", tomllib.loads(FILE + text), Path())
    measured = result(**found)
    return Outcome(wanted, "127.0.0.1:1", 0.0, measured, judged(wanted, measured))


def targets(*latencies_ms):
    def one(latency_ms):
        histogram = HdrHistogram.decode(EMPTY)
        histogram.record_value(round(latency_ms * 1e6))
        return target(received=1, histogram=histogram.encode().decode())

    return [one(latency_ms) for latency_ms in latencies_ms]


@pytest.mark.parametrize(
    ("text", "found", "status"),
    [
        ("", {}, 0),
        (PROMISE, {"targets": targets(1.4)}, 0),
        (PROMISE, {"targets": targets(1.4, 1.6)}, 1),  # the worst topic decides
        ("", {"lost": 1}, 3),
        (PROMISE, {"targets": [*targets(1.4), target()]}, 3),  # the p99 of a topic that got nothing is 0
        (PROMISE, {"targets": targets(1.6), "lost": 1}, 3),  # what says nothing breaks nothing
        (PROMISE, {"targets": targets(1.4), "reasons": ["late"], "valid": False}, 3),
    ],
)
def test_the_exit_status_tells_invalid_from_broken_from_kept(text, found, status):
    assert outcome(text, **found).exit_status == status


@pytest.mark.parametrize(("found", "valid"), [({}, True), ({"lost": 1}, False), ({"targets": [target()]}, False)])
def test_the_row_of_the_whole_run_is_as_valid_as_its_verdict(found, valid):
    verdict = outcome("", **found).verdict
    assert (verdict.runs[0]["valid"], verdict.valid) == (valid, valid)


def test_a_folder_that_takes_no_files_is_refused_before_anything_is_sent(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"out: .*must be a folder that can be written into"):
        prepare(tmp_path / "file" / "below")


def test_files_are_named_as_they_are_whatever_markup_they_look_like(capsys):
    show(outcome(PROMISE, targets=targets(1.0)), [Path("r[/y]") / "x[red].json"], Console(width=240))
    assert "written: r[/y]/x[red].json" in capsys.readouterr().out

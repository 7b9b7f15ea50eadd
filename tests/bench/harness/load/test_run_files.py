"""What runs leave beside the JSON of their command."""

import msgspec
import pytest
import trio
import typer
from hdrh.log import HistogramLogReader

from bench.console.options import RunsJsonOption
from bench.harness.load.histogram_files import Curves
from bench.harness.load.run import LISTENER, Histograms
from bench.harness.load.run_files import keep_beside, results_of, runs_beside, runs_of
from bench.harness.load.workload import Plan, Subscriber, modelled
from bench.harness.results.results import merged
from srtm.errors import BadInput
from tests.support.run_results import histogram, result, target

PLAN = Plan(
    topic="t",
    targets=["h:1"],
    publishers=modelled([0] * 6, 10.0, group_size=3),
    subscribers=[Subscriber(target=0)],
    duration_s=2.0,
    seed=7,
)
RUN = result(
    histograms=Histograms(latency=histogram(1.0, 2.0), lateness=histogram(0.1), ack=histogram(0.5)),
    targets=[target(histogram=histogram(1.0, 2.0))],
)


def ended(*names):
    """As ``run_plan`` tells its listener."""
    for name in names:
        LISTENER.get()(PLAN, RUN, name)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_each_run_leaves_its_three_files_in_the_order_of_the_runs(tmp_path):
    with runs_beside(tmp_path / "peers.json"):
        ended("nsqd 1000", "srtm: b = 5, 10 %")
    assert names(tmp_path / "peers-runs") == [
        f"{name}.{ending}" for name in ("0001-nsqd-1000", "0002-srtm-b-=-5-10-") for ending in ("hgrm", "hlog", "json")
    ]


def test_they_tell_the_run_and_agree_with_one_another(tmp_path):
    with runs_beside(str(tmp_path / "x.json")):
        ended("one")
    folder = tmp_path / "x-runs"
    written = msgspec.json.decode((folder / "0001-one.json").read_bytes())
    [run] = written["runs"]
    assert (run["name"], run["sent"], written["seed"], written["valid"]) == ("one", 100, 7, True)
    settings = written["settings"]
    assert (settings["publishers"], settings["rate"], settings["groups"]) == (6, pytest.approx(60.0), 2)
    told = written["result"]
    assert told["histograms"]["latency"] == told["targets"][0]["histogram"] == RUN.histograms.latency
    reader, tags = HistogramLogReader(str(folder / "0001-one.hlog"), merged([])), []
    while (interval := reader.get_next_interval_histogram()) is not None:
        tags.append((interval.get_tag(), interval.get_total_count()))
    reader.close()
    assert tags == [("lateness", 1), ("ack", 1)]
    assert "TotalCount     =            2" in (folder / "0001-one.hgrm").read_text()


def test_runs_of_an_earlier_command_are_replaced_and_nothing_else_is(tmp_path):
    for count in (3, 1):
        with runs_beside(tmp_path / "x.json"):
            ended(*["one"] * count)
        (tmp_path / "x-runs" / "mine.json").touch()
    assert names(tmp_path / "x-runs") == ["0001-one.hgrm", "0001-one.hlog", "0001-one.json", "mine.json"]


def test_a_command_that_makes_no_run_leaves_what_is_there(tmp_path):
    with runs_beside(tmp_path / "x.json"):
        ended("one")
    with runs_beside(tmp_path / "x.json"):
        pass
    assert len(names(tmp_path / "x-runs")) == 3


@pytest.mark.parametrize("nowhere", [None, "-"])
def test_without_a_file_nobody_listens(nowhere):
    assert runs_of(nowhere) is None
    with runs_beside(nowhere):
        assert LISTENER.get() is None


def test_the_inner_of_two_commands_keeps_its_runs_and_then_the_outer_again(tmp_path):
    with runs_beside(tmp_path / "out.json"):
        with runs_beside(tmp_path / "in.json"):
            ended("one")
        ended("two")
    assert len(names(tmp_path / "in-runs")) == len(names(tmp_path / "out-runs")) == 3
    assert LISTENER.get() is None


async def test_tasks_that_begin_inside_are_heard(tmp_path):
    with runs_beside(tmp_path / "x.json"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_ends, "one")
    assert len(names(tmp_path / "x-runs")) == 3


async def _ends(name):
    await trio.lowlevel.checkpoint()
    ended(name)


def test_a_run_made_elsewhere_is_kept_alike(tmp_path):
    keep_beside(str(tmp_path / "x.json"), "testbed", results_of(PLAN, RUN, "testbed"), Curves.of(RUN, 2.0))
    assert len(names(tmp_path / "x-runs")) == 3


def test_a_folder_that_takes_no_files_is_named(tmp_path):
    (tmp_path / "x-runs").touch()
    with (
        pytest.raises(BadInput, match=r"x-runs.* must be a folder that can be written into"),
        runs_beside(tmp_path / "x.json"),
    ):
        ended("one")


def test_the_option_listens_for_as_long_as_its_command_runs(tmp_path):
    app = typer.Typer()

    @app.command()
    def bench(json_file: RunsJsonOption = None) -> None:
        ended("one")

    typer.main.get_command(app).main(["--json", str(tmp_path / "x.json")], standalone_mode=False)
    assert len(names(tmp_path / "x-runs")) == 3
    assert LISTENER.get() is None

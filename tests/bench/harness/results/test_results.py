"""Result files, merged histograms, and what the kernel's files say about the machine."""

import base64
import os
import stat
import struct
import zlib

import msgspec
import pytest

from bench.harness.machine.host import Disturbance, Host, quota_cores
from bench.harness.results.results import Results, cdf, histogram_ms, merged, write_results
from srtm.errors import BadInput
from tests.support.run_results import histogram


def results(**changes):
    fields = {"seed": 7, "started": 0.0, "settings": {"rate": 10}}
    return Results.of("bench x", [{"name": "one", "p99_ms": 1.5}], **{**fields, **changes})


def test_a_result_file_says_what_when_where_and_whether_it_counts(tmp_path):
    write_results(str(tmp_path / "out.json"), results())
    document = msgspec.json.decode((tmp_path / "out.json").read_bytes())
    assert (document["schema"], document["command"], document["seed"]) == (1, "bench x", 7)
    assert document["started"] == "1970-01-01T00:00:00+00:00"
    assert (document["valid"], document["reasons"]) == (True, [])
    assert document["runs"] == [{"name": "one", "p99_ms": 1.5}]
    assert document["host"] == msgspec.to_builtins(Host.here())
    assert document["host"]["kernel"] == os.uname().release


def test_a_reason_makes_a_result_invalid():
    assert results(reasons=["late"]).valid is False


def test_standard_output_takes_the_same_document(capfdbinary):
    write_results("-", results())
    assert msgspec.json.decode(capfdbinary.readouterr().out, type=Results) == results()


def test_a_result_replaces_an_older_one_whole_and_leaves_nothing_beside_it(tmp_path):
    target = tmp_path / "out.json"
    target.write_text("old")
    write_results(str(target), results())
    assert list(tmp_path.iterdir()) == [target]
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert msgspec.json.decode(target.read_bytes(), type=Results) == results()


def test_a_result_that_cannot_be_written_names_the_file_and_leaves_nothing(tmp_path):
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", tmp_path / "missing" / "out.json"):
        with pytest.raises(BadInput, match=r"json: .*must be a file that can be written"):
            write_results(str(path), results())
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_histograms_add_up():
    total = merged([histogram(1, 2), histogram(3), histogram()])
    assert total.get_total_count() == 3
    assert histogram_ms(total, 100) == pytest.approx(3.0, rel=1e-3)
    assert histogram_ms(merged([]), 99) == 0.0


@pytest.mark.parametrize(("count", "percentile", "rank"), [(67, 99, 67), (100, 99, 99), (1000, 99.9, 999), (3, 50, 2)])
def test_a_percentile_is_what_so_many_do_not_exceed(count, percentile, rank):
    total = merged([histogram(*range(1, count + 1))])
    assert histogram_ms(total, percentile) == pytest.approx(rank, rel=1e-3)


@pytest.mark.parametrize("text", ["", "?", base64.b64encode(b"abc").decode(), histogram(5)[:-8]])
def test_text_that_is_no_histogram_is_refused(text):
    with pytest.raises(BadInput, match="histogram"):
        merged([text])


def test_a_hostile_histogram_is_refused():
    payload = zlib.compress(b"\0" * 40)
    with pytest.raises(BadInput, match="histogram"):
        merged([base64.b64encode(struct.pack(">II", 0x1C849304, len(payload)) + payload).decode()])


def test_a_cdf_rises_to_one():
    latencies_ms, shares = cdf(merged([histogram(1, 1, 2, 4)]))
    assert latencies_ms == pytest.approx([1.0, 2.0, 4.0], rel=1e-3)
    assert shares == [0.5, 0.75, 1.0]
    assert cdf(merged([])) == ([], [])


def cgroup(tmp_path, membership, **files):
    for name, text in files.items():
        file = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(membership)
    (tmp_path / "proc" / "stat").write_text("cpu  1 2 3 4 5 6 7 800 0 0\ncpu0 1 2 3 4 5 6 7 400 0 0\n")
    return tmp_path / "proc", tmp_path / "cg"


def test_the_smallest_quota_on_the_way_to_the_root_counts_under_cgroup_v2(tmp_path):
    proc, cgroups = cgroup(
        tmp_path,
        "0::/a/b\n",
        cg__cgroup_DOT_controllers="cpu memory",
        cg__a__b__cpu_DOT_max="max 100000\n",
        cg__a__cpu_DOT_max="150000 100000\n",
        cg__a__b__cpu_DOT_stat="usage_usec 5\nnr_throttled 2\nthrottled_usec 2500000\n",
    )
    assert quota_cores(proc, cgroups) == 1.5
    a_second = os.sysconf("SC_CLK_TCK")
    assert Disturbance.now(proc, cgroups) == Disturbance(800 / a_second, 2.5, 828 / a_second, 2)


def test_quota_and_throttling_are_read_under_cgroup_v1(tmp_path):
    proc, cgroups = cgroup(
        tmp_path,
        "3:memory:/m\n1:cpu:/c\n0::/\n",
        cg__cpu__c__cpu_DOT_cfs_quota_us="50000\n",
        cg__cpu__c__cpu_DOT_cfs_period_us="100000\n",
        cg__cpu__c__cpu_DOT_stat="nr_throttled 2\nthrottled_time 500000000\n",
    )
    assert quota_cores(proc, cgroups) == 0.5
    found = Disturbance.now(proc, cgroups)
    assert (found.throttled_s, found.throttled_periods) == (0.5, 2)


def test_a_quota_around_ours_counts_too_and_a_container_may_hide_our_own_folder(tmp_path):
    proc, cgroups = cgroup(
        tmp_path,
        "1:cpu:/docker/1234\n",
        cg__cpu__cpu_DOT_stat="nr_periods 9\nnr_throttled 3\nthrottled_time 250000000\n",
    )
    found = Disturbance.now(proc, cgroups)
    assert (found.throttled_s, found.throttled_periods) == (0.25, 3)


def test_no_cgroup_is_no_limit(tmp_path):
    proc, cgroups = cgroup(tmp_path, "0::/\n")
    assert quota_cores(proc, cgroups) is None
    assert Disturbance.now(proc, cgroups).throttled_s == 0.0


def test_disturbance_is_a_difference():
    assert Disturbance(3.0, 1.5, 90.0, 7).since(Disturbance(1.0, 1.0, 50.0, 4)) == Disturbance(2.0, 0.5, 40.0, 3)

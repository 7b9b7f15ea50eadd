"""Quotas and steal: the texts of the kernel, and what becomes of them."""

import os
import platform
from pathlib import PurePosixPath

import pytest

from broker.runtime.cpu_throttling import (
    Quota,
    Reading,
    ThrottlingWindow,
    cores_of_max,
    cores_of_v1,
    group_directories,
    quota,
    ticks,
)
from broker.runtime.machine import Processors, cpu_model, machine_here
from srtm.control import Throttling

S = 1_000_000_000
V2 = "usage_usec 500\nuser_usec 300\nnr_periods 100\nnr_throttled 25\nthrottled_usec 1500\n"
V1 = "nr_periods 10\nnr_throttled 2\nthrottled_time 7000\n"


def test_version_2_is_looked_for_in_the_group_and_in_all_around_it():
    found = group_directories("0::/system.slice/srtm.service\n")
    own, around, top = [place for place, is_v2 in found if is_v2 and not place.is_relative_to("unified")]
    assert own == PurePosixPath("system.slice/srtm.service")
    assert (around, top) == (PurePosixPath("system.slice"), PurePosixPath("."))


def test_version_1_is_looked_for_where_its_controller_is_mounted():
    found = group_directories("9:name=systemd:/x\n4:cpu,cpuacct:/docker/ab\n3:cpuset:/y\n")
    assert {str(place) for place, _ in found} == {
        f"{mounted}{inside}" for mounted in ("cpu", "cpu,cpuacct") for inside in ("/docker/ab", "/docker", "")
    }
    assert not any(is_v2 for _, is_v2 in found)


@pytest.mark.parametrize("text", ["", "nonsense", "0::", ":::\n0"])
def test_memberships_that_make_no_sense_name_no_version_1(text):
    assert not any(not is_v2 for _, is_v2 in group_directories(text))


def test_both_versions_of_cpu_stat_are_understood():
    assert quota(V2, 1.5) == Quota(1.5, 100, 25, 1_500_000)
    assert quota(V1, None) == Quota(None, 10, 2, 7000)
    assert quota("usage_usec 500\n", None) is None
    assert quota("", 2.0) is None


@pytest.mark.parametrize(
    ("text", "cores"),
    [("150000 100000\n", 1.5), ("max 100000\n", None), ("", None), ("1 0", None), ("-5 100000", None)],
)
def test_a_quota_is_told_in_cores(text, cores):
    assert cores_of_max(text) == cores


def test_version_1_has_no_quota_where_it_is_negative():
    assert cores_of_v1("-1\n", "100000\n") is None
    assert cores_of_v1("50000\n", "100000\n") == 0.5


def test_steal_is_a_part_of_all_ticks_without_those_of_guests_twice():
    assert ticks("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n") == (8, 36)
    assert ticks("cpu  1 2 3\n") == (0, 0)
    assert ticks("") == (0, 0)


def test_shares_are_of_the_last_ten_seconds_and_of_the_group_that_was_held_back_most():
    window = ThrottlingWindow()

    def at(second, throttled, steal):
        inner, outer = Quota(2.0, second * 10, 0, 0), Quota(1.5, second * 10, throttled, throttled * S)
        return window.note(Reading((inner, outer), steal, second * 200), second * S)

    assert at(0, 0, 0) == Throttling(quota_cores=1.5)
    assert at(1, 5, 20) == Throttling(quota_cores=1.5, throttled_share=0.5, throttled_s=5.0, steal_share=0.1)
    for second in range(2, 11):
        at(second, 5, 20)
    later = at(11, 5, 20)
    assert (later.throttled_share, later.throttled_s, later.steal_share) == (0.0, 5.0, 0.0)


def test_a_move_to_other_groups_is_no_throttling():
    window = ThrottlingWindow()
    window.note(Reading((Quota(1.0, 5, 5, 5),)), 0)
    assert window.note(Reading((Quota(1.0, 9, 9, 9), Quota(2.0, 9, 9, 9))), S).throttled_share == 0.0


def test_what_the_kernel_shows_is_read_once_a_second_at_most(tmp_path):
    group = tmp_path / "groups/a/b"
    group.mkdir(parents=True)
    (group / "cpu.stat").write_text(V2)
    (group / "cpu.max").write_text("150000 100000")
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text("0::/a/b\n")
    (proc / "stat").write_text("cpu  1 2 3 4 5 6 7 8 9 10\n")
    processors = Processors(proc, tmp_path / "groups")
    first = processors.throttling()
    assert first == Throttling(quota_cores=1.5)
    (group / "cpu.max").write_text("max 100000")
    assert processors.throttling() is first


def test_where_the_kernel_shows_nothing_there_is_no_throttling(tmp_path):
    assert Processors(tmp_path, tmp_path).throttling() == Throttling()


def test_the_machine_is_told_by_its_cores_its_kernel_and_the_model_that_the_kernel_names(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n")
    found = machine_here(tmp_path)
    assert (found.cores, found.cpu) == (len(os.sched_getaffinity(0)), "Some CPU @ 2 GHz")
    assert found.kernel == platform.release()
    assert cpu_model("processor: 0\n") == platform.machine()

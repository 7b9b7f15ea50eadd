"""Parts of the processors by cgroup v1 or v2."""

from pathlib import Path

import pytest

from bench.testbed.net.cgroups import cgroups_for, make_groups, settings
from bench.testbed.net.layout import Cpu, Host
from srtm.errors import Unavailable

HOST = Host(name="broker1", role="broker", address="10.99.0.11", cpu=Cpu(cpus="0-1", quota=0.5))


def v1(root: Path) -> Path:
    for controller in ("cpu", "cpuset"):
        (root / controller).mkdir(parents=True)
        (root / controller / "tasks").write_text("")
    (root / "cpuset" / "cpuset.mems").write_text("0\n")
    return root


def v2(root: Path, enabled: str) -> Path:
    root.mkdir(exist_ok=True)
    (root / "cgroup.controllers").write_text("cpu cpuset memory\n")
    (root / "cgroup.subtree_control").write_text(f"{enabled}\n")
    return root


def test_version_1_has_a_group_in_each_hierarchy(tmp_path):
    made = make_groups(HOST, "srtm-1-1-broker1", v1(tmp_path))
    assert made == [tmp_path / "cpu" / "srtm-1-1-broker1", tmp_path / "cpuset" / "srtm-1-1-broker1"]
    assert (made[0] / "cpu.cfs_quota_us").read_text() == "5000"
    assert (made[0] / "cpu.cfs_period_us").read_text() == "10000"
    assert [(made[1] / name).read_text() for name in ("cpuset.mems", "cpuset.cpus")] == ["0", "0-1"]


def test_version_2_has_one_group_for_both(tmp_path):
    made = make_groups(HOST, "srtm-1-1-broker1", v2(tmp_path, "cpuset cpu"))
    assert set(made) == {tmp_path / "srtm-1-1-broker1"}
    assert (made[0] / "cpu.max").read_text() == "5000 10000"
    assert (made[0] / "cpuset.cpus").read_text() == "0-1"


def test_a_host_without_a_part_of_its_own_has_no_group(tmp_path):
    assert make_groups(Host(name="control", role="control", address="10.99.0.1"), "x", v1(tmp_path)) == []


def test_what_is_not_enabled_is_missing_and_not_changed(tmp_path):
    found = cgroups_for("cpuset", v2(tmp_path, "cpu"))
    assert (found.folder, found.text) == (None, f"cpuset is not enabled in {tmp_path / 'cgroup.subtree_control'}")
    with pytest.raises(Unavailable, match="cpuset is not enabled"):
        make_groups(HOST, "x", tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "cpu\n"


def test_a_machine_without_cgroups_says_so(tmp_path):
    assert cgroups_for("cpu", tmp_path).text == f"no cgroup hierarchy with cpu under {tmp_path}"


def test_nothing_asked_is_nothing_set():
    assert settings(Cpu(), "cpu", 1) == settings(Cpu(), "cpuset", 2) == []

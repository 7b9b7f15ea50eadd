"""Whose a namespace is, told by its name."""

import os
from pathlib import Path

import pytest

from bench.testbed.net.names import Owner, owner_of, this_process


def test_a_name_tells_its_owner():
    owner = Owner(4242, 1234567)
    assert owner.name("broker1") == "srtm-4242-1234567-broker1"
    assert owner_of(owner.name("broker1")) == owner


@pytest.mark.parametrize(
    "name",
    [
        "blue",
        "srtm",
        "srtm-1-broker1",
        "srtm-x-1-broker1",
        "srtm-1-1-Broker",
        "srtm-0-1-broker1",
        "my-srtm-1-1-broker1",
    ],
)
def test_a_name_that_is_not_exactly_ours_is_somebody_elses(name):
    assert owner_of(name) is None


def test_this_process_lives_and_is_named_by_its_id():
    owner = this_process()
    assert owner.pid == os.getpid()
    assert owner.lives()


def test_another_process_with_the_same_id_is_not_the_owner():
    owner = this_process()
    assert not Owner(owner.pid, owner.started - 1).lives()


def test_a_command_with_brackets_and_spaces_in_its_name_does_not_confuse_the_start(tmp_path: Path):
    folder = tmp_path / "7"
    folder.mkdir()
    fields = " ".join(str(number) for number in range(4, 53))
    (folder / "stat").write_text(f"7 (a ) b) S {fields}\n")
    assert Owner(7, 22).lives(tmp_path)
    assert not Owner(8, 22).lives(tmp_path)

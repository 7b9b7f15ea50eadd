"""A broker's data directory: incarnations, and files that are replaced whole."""

import errno
import re

import pytest

from broker.runtime import data_directory as data_path
from srtm.errors import BadInput
from tests.support.file_modes import OWNER_ALONE, modes, no_umask


def test_incarnations_sort_by_start_even_if_the_clock_goes_back(tmp_path, monkeypatch):
    with data_path.locked(tmp_path) as first:
        pass
    monkeypatch.setattr(data_path.time, "time_ns", lambda: 1)
    with data_path.locked(tmp_path) as second:
        pass
    assert first < second
    assert first.partition("-")[2] == second.partition("-")[2]  # the same directory


def test_a_broker_that_was_here_starts_on_a_full_disk(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with data_path.locked(tmp_path) as first:
        pass
    monkeypatch.setattr(data_path, "replace_file", full)
    with data_path.locked(tmp_path) as second:
        assert second > first
    with data_path.locked(tmp_path) as third:
        assert third > second
    (tmp_path / "srtm.incarnation").unlink()
    with pytest.raises(BadInput, match="No space left"), data_path.locked(tmp_path):
        pass


def test_incarnations_name_their_directory(tmp_path):
    names = set()
    for directory in (tmp_path / "a", tmp_path / "b"):
        directory.mkdir()
        with data_path.locked(directory) as incarnation:
            names.add(incarnation.partition("-")[2])
    assert len(names) == 2


@pytest.mark.parametrize("content", [b"", b"\xff", "²".encode(), b"12"])
def test_a_spoilt_incarnation_file_is_drawn_anew(tmp_path, content):
    (tmp_path / "srtm.incarnation").write_bytes(content)
    with data_path.locked(tmp_path) as incarnation:
        assert re.fullmatch(r"\d{20}-[0-9a-f]{16}", incarnation)


def test_an_incarnation_file_that_cannot_be_read_is_a_refusal(tmp_path):
    (tmp_path / "srtm.incarnation").mkdir()
    with pytest.raises(BadInput, match="must be readable and writable"), data_path.locked(tmp_path):
        pass


def test_a_file_is_replaced_whole(tmp_path):
    data_path.replace_file(tmp_path / "f", b"old")
    data_path.replace_file(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_new_files_are_for_their_owner_alone_and_those_of_an_earlier_release_serve_on(tmp_path):
    with no_umask():
        (tmp_path / "srtm.incarnation").write_text("00000000000000000001-0123456789abcdef")
        (tmp_path / "f").write_text("old")
        with data_path.locked(tmp_path) as incarnation:
            assert incarnation.endswith("-0123456789abcdef")
        assert modes(tmp_path) == {"srtm.incarnation": 0o666, "f": 0o666}
        data_path.replace_file(tmp_path / "f", b"new")
        (tmp_path / "srtm.incarnation").unlink()
        with data_path.locked(tmp_path):
            assert modes(tmp_path) == {"srtm.incarnation": OWNER_ALONE, "f": OWNER_ALONE}

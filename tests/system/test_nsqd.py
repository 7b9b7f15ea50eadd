"""``srtm nsqd`` as a process, started the way client suites start nsqd: through an executable of that name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.broker_process import Process, refused
from tests.support.other_process import WAIT_S

pytestmark = pytest.mark.slow
pytest.importorskip("srtm._native", reason="the extension is not built (make build)")

CLI = [sys.executable, "-m", "srtm", "nsqd"]


@contextmanager
def nsqd(directory: Path, *flags: str, command: Sequence[str] = CLI, **ports: int) -> Iterator[Process]:
    with Process(command, *flags, cwd=directory, **ports) as running:
        running.wait_ready()
        yield running


@pytest.fixture
def shim(tmp_path: Path) -> list[str]:
    """An executable as docs/operating.md shows it, for this interpreter."""
    path = tmp_path / "bin" / "nsqd"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m srtm nsqd "$@"\n')
    path.chmod(0o755)
    return [str(path)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_status_0(tmp_path: Path, number: int) -> None:
    with nsqd(tmp_path) as running:
        assert running.wait_ended(number) == 0, running.lines
        assert all(line.startswith("[nsqd] ") for line in running.lines), running.lines


def test_another_signal_while_it_stops_changes_nothing(tmp_path: Path) -> None:
    with nsqd(tmp_path) as running:
        running.ask("POST", "/pub?topic=t", b"kept")
        running.process.send_signal(signal.SIGINT)
        assert running.wait_ended(signal.SIGTERM) == 0, running.lines
    with nsqd(tmp_path) as running:
        assert b'"depth":1' in running.ask("GET", "/stats?format=json&topic=t")[1]


def test_the_shims_process_is_the_broker_itself_and_has_no_children(tmp_path: Path, shim: list[str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with nsqd(data, command=shim) as running:
        tasks = Path(f"/proc/{running.process.pid}/task")
        children = [(task / "children").read_text() for task in tasks.iterdir()]
        assert "".join(children) == ""
        assert running.ask("POST", "/topic/create?topic=t") == (200, b"")
        running.process.kill()  # the pid that a suite knows
        running.process.wait()
        # the same ports and directory, at once
        with nsqd(data, command=shim, tcp=running.tcp, http_port=running.http) as again:
            assert again.ask("GET", "/ping") == (200, b"OK")


def test_data_goes_to_the_working_directory_unless_told_otherwise(tmp_path: Path) -> None:
    with nsqd(tmp_path) as running:
        running.ask("POST", "/topic/create?topic=t")
        assert running.wait_ended(signal.SIGTERM) == 0
    assert b'"t"' in (tmp_path / "nsqd.dat").read_bytes()


def test_it_reads_its_file_and_says_which_keys_it_ignores(tmp_path: Path) -> None:
    file = tmp_path / "nsqd.cfg"
    file.write_text('broadcast_address = "elsewhere"\nlog_prefix = "[n7]"\nmax_rdy = 3\n')
    with nsqd(tmp_path, "-config", str(file)) as running:
        assert b'"broadcast_address":"elsewhere"' in running.ask("GET", "/info")[1]
        running.wait_ended(signal.SIGTERM)
        err = "\n".join(running.lines)
    assert "[n7] " in err
    assert "a key that nsqd does not have is ignored" in err
    assert "key=max_rdy" in err


@pytest.mark.parametrize(
    ("flags", "status", "word"),
    [
        (["--frobnicate"], 2, "--frobnicate"),
        (["--msg-timeout=never"], 2, "--msg-timeout"),
        (["--data-path=/no/such/directory"], 1, "data_path"),
        (["--node-id=4096"], 1, "--node-id"),
    ],
)
def test_a_start_that_fails_says_why_with_nsqds_status(
    tmp_path: Path, flags: list[str], status: int, word: str
) -> None:
    ended = subprocess.run(
        [*CLI, *flags], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_S, check=False, env=dict(os.environ)
    )
    assert (ended.returncode, ended.stdout) == (status, "")
    assert ended.stderr.startswith("srtm nsqd: ")
    assert word in ended.stderr.splitlines()[0]
    assert "Traceback" not in ended.stderr


def test_two_of_them_cannot_have_one_directory_or_one_port(tmp_path: Path) -> None:
    with nsqd(tmp_path) as running:
        status, lines = refused(Process(CLI, cwd=tmp_path))
        assert (status, "data_path" in lines[0]) == (1, True)
        other = tmp_path / "other"
        other.mkdir()
        status, lines = refused(Process(CLI, cwd=other, tcp=running.tcp))
        assert (status, "tcp_address" in lines[0]) == (1, True)

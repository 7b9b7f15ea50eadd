"""``srtm nsqd`` as a process, started the way client suites start nsqd: through an executable of that name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.broker_process import free_port
from tests.support.other_process import WAIT_S, ask_http

pytestmark = pytest.mark.slow
pytest.importorskip("srtm._native", reason="the extension is not built (make build)")

CLI = [sys.executable, "-m", "srtm", "nsqd"]


class Nsqd:
    def __init__(self, directory: Path, *flags: str, command: list[str] | None = None, ports: tuple[int, int]) -> None:
        self.tcp, self.http = ports
        words = ["-tcp-address", f"127.0.0.1:{self.tcp}", f"--http-address=127.0.0.1:{self.http}", *flags]
        self.process = subprocess.Popen(
            [*(command or CLI), *words], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.started = time.monotonic()

    def wait_ready(self) -> None:
        while time.monotonic() < self.started + WAIT_S and self.process.poll() is None:
            try:
                assert self.ask("GET", "/ping") == (200, b"OK")
            except ConnectionRefusedError:
                time.sleep(0.002)  # another process's port cannot signal us that it is open
                continue
            return
        raise AssertionError(f"it did not start: {self.process.communicate(timeout=WAIT_S)}")

    def ask(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        return ask_http(self.http, method, target, body)

    def end(self, number: int) -> tuple[int, str]:
        """Exit status and what was said on standard error."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, err


@contextmanager
def nsqd(
    directory: Path, *flags: str, command: list[str] | None = None, ports: tuple[int, int] | None = None
) -> Iterator[Nsqd]:
    running = Nsqd(directory, *flags, command=command, ports=ports or (free_port(), free_port()))
    try:
        with running.process:
            running.wait_ready()
            yield running
            running.process.kill()
    finally:
        running.process.kill()


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
        status, err = running.end(number)
    assert status == 0, err
    assert all(line.startswith("[nsqd] ") for line in err.splitlines()), err


def test_another_signal_while_it_stops_changes_nothing(tmp_path: Path) -> None:
    with nsqd(tmp_path) as running:
        running.ask("POST", "/pub?topic=t", b"kept")
        running.process.send_signal(signal.SIGINT)
        status, err = running.end(signal.SIGTERM)
    assert status == 0, err
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
        with nsqd(
            data, command=shim, ports=(running.tcp, running.http)
        ) as again:  # the same ports and directory, at once
            assert again.ask("GET", "/ping") == (200, b"OK")


def test_data_goes_to_the_working_directory_unless_told_otherwise(tmp_path: Path) -> None:
    with nsqd(tmp_path) as running:
        running.ask("POST", "/topic/create?topic=t")
        assert running.end(signal.SIGTERM)[0] == 0
    assert b'"t"' in (tmp_path / "nsqd.dat").read_bytes()


def test_it_reads_its_file_and_says_which_keys_it_ignores(tmp_path: Path) -> None:
    file = tmp_path / "nsqd.cfg"
    file.write_text('broadcast_address = "elsewhere"\nlog_prefix = "[n7]"\nmax_rdy = 3\n')
    with nsqd(tmp_path, "-config", str(file)) as running:
        assert b'"broadcast_address":"elsewhere"' in running.ask("GET", "/info")[1]
        _, err = running.end(signal.SIGTERM)
    assert "[n7] " in err
    assert "a key that is none of nsqd's is ignored" in err
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
        second = Nsqd(tmp_path, ports=(free_port(), free_port()))
        _, err = second.process.communicate(timeout=WAIT_S)
        assert (second.process.returncode, "data_path" in err) == (1, True)
        other = tmp_path / "other"
        other.mkdir()
        third = Nsqd(other, ports=(running.tcp, free_port()))
        _, err = third.process.communicate(timeout=WAIT_S)
        assert (third.process.returncode, "tcp_address" in err) == (1, True)

"""``srtm top``: once for pipes, and in a real terminal until a key or a signal, which is left as it was."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from srtm.cli import main
from tests.srtm.console.test_overview import brokers, topics
from tests.support.played_distributor import Distributor

ROOT = Path(__file__).resolve().parents[3]
ANSWERS = {"/v1/overview/topics": topics(2, name="roads"), "/v1/overview/brokers": brokers(1)}
LEFT = b"\x1b[?1049l"  # the escape sequence by which a program gives the terminal's usual screen back


def play(distributor: Distributor) -> None:
    distributor.answers |= {("GET", path): (200, answer) for path, answer in ANSWERS.items()}


def test_once_prints_both_lists(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    play(distributor)
    assert main(["top", "--once"]) == 0
    shown = capsys.readouterr().out
    assert "roads-1" in shown
    assert "broker-0" in shown
    assert "\x1b" not in shown


def test_a_pipe_gets_it_once(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    play(distributor)
    assert main(["top"]) == 0
    assert "roads-1" in capsys.readouterr().out


def test_json_has_both_lists_and_needs_once(distributor: Distributor, capsys: pytest.CaptureFixture[str]) -> None:
    play(distributor)
    assert main(["top", "--once", "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert result == {"topics": ANSWERS["/v1/overview/topics"], "brokers": ANSWERS["/v1/overview/brokers"]}
    assert main(["top", "--json", "-"]) == 2
    assert "needs --once" in capsys.readouterr().err


class Answers(BaseHTTPRequestHandler):
    """Answers the overview."""

    def do_GET(self) -> None:
        body = json.dumps(ANSWERS[self.path.partition("?")[0]]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def terminal() -> Iterator[tuple[int, subprocess.Popen[bytes], ThreadingHTTPServer]]:
    """``srtm top`` in a terminal of its own; yields our end of it, the process, and the distributor."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ours, theirs = pty.openpty()
        environment = os.environ | {
            "SRTM_DISTRIBUTOR": f"http://127.0.0.1:{server.server_port}",
            "TERM": "xterm",
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-m", "srtm", "top"]
        with subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        ) as process:
            try:
                yield ours, process, server
            finally:
                process.kill()
                server.shutdown()
                os.close(ours)
                os.close(theirs)


def read_until(descriptor: int, text: bytes) -> bytes:
    """What the terminal shows up to ``text``; the test's own timeout ends it."""
    seen = b""
    while text not in seen:
        seen += os.read(descriptor, 65_536)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "status"),
    [("q", 0), (signal.SIGINT, 130), (signal.SIGTERM, 143)],
)
def test_a_terminal_is_left_as_it_was(end: str | signal.Signals, status: int) -> None:
    with terminal() as (ours, process, _):
        before = termios.tcgetattr(ours)
        read_until(ours, b"q: quit")
        if isinstance(end, str):
            os.write(ours, end.encode())
        else:
            process.send_signal(end)
        assert b"Traceback" not in read_until(ours, LEFT)
        assert process.wait(timeout=30) == status
        assert termios.tcgetattr(ours) == before


@pytest.mark.slow
def test_what_was_known_stays_while_nobody_answers() -> None:
    with terminal() as (ours, process, server):
        read_until(ours, b"q: quit")
        server.shutdown()
        server.server_close()
        assert b"roads-1" in read_until(ours, b"as it was: ")
        os.write(ours, b"q")
        read_until(ours, LEFT)
        assert process.wait(timeout=30) == 0

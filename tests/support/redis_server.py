"""A real Redis or Valkey on loopback, for tests of the mode ``store``."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import pytest

from tests.support.ports import free_port

COMMAND = shutil.which("valkey-server") or shutil.which("redis-server")
needs_redis = pytest.mark.skipif(COMMAND is None, reason="needs redis-server or valkey-server")


class RedisProcess:
    """A server that keeps nothing on disk. ``options``: more of its own. Use it as a context manager."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._directory, self._options = directory, options
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        assert COMMAND is not None
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory)]
        command = [COMMAND, *place, "--save", "", "--appendonly", "no", *self._options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._wait_until_ready(process)
        return process

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 20
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
                    link.sendall(b"PING\r\n")
                    if link.recv(16).startswith((b"+PONG", b"-NOAUTH")):
                        return
            except OSError:
                pass
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise RuntimeError(f"{COMMAND} does not start")
            time.sleep(0.01)

    @contextmanager
    def asking(self) -> Iterator[Callable[..., Any]]:
        """Give a function that sends a command and returns its answer (RESP2), however long it takes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as link, link.makefile("rb") as answers:

            def ask(*words: str | bytes | int) -> Any:
                texts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
                strings = b"".join(b"$%d\r\n%s\r\n" % (len(text), text) for text in texts)
                link.sendall(b"*%d\r\n%s" % (len(texts), strings))
                return _answer(answers)

            yield ask

    def kill(self) -> None:
        """End the server at once, as a crash does."""
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        """Start a new server in its place, with nothing in it."""
        self.process = self._started()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def _answer(answers: BinaryIO) -> Any:
    kind, rest = (line := answers.readline()[:-2])[:1], line[1:]
    match kind:
        case b"*":
            return [_answer(answers) for _ in range(int(rest))]
        case b"$":
            return answers.read(int(rest) + 2)[:-2] if int(rest) >= 0 else None
        case b":":
            return int(rest)
        case b"+":
            return rest
    raise AssertionError(line)

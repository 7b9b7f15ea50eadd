"""mosquitto_pub and mosquitto_sub, MQTT 3.1.1: a process for each publish, and one that listens. Debian builds them
without WebSocket."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque

from tests.interop.mqtt.checks import HOST, Message, Wish, authority, run

_FORM = "came %t %q %r %p"  # name, QoS, retained, payload


class MosquittoConnection:
    resumed: bool | None = None  # mosquitto_sub does not say

    def __init__(self, wish: Wish, patterns: dict[str, tuple[str, int]]) -> None:
        self._wish, self._patterns = wish, patterns
        self._where = ["-h", HOST, "-p", str(wish.port)]
        if wish.transport == "tls":
            self._where += ["--cafile", authority()]
        self._listening: Process | None = None
        self._came: deque[Message] = deque()

    async def open(self) -> None:
        """One that dies or wakes up listens at once, to what it heard last."""
        if self._wish.will is not None:
            await self.subscribe("nothing", 0)
        elif not self._wish.clean and self._wish.client_id in self._patterns:
            await self.subscribe(*self._patterns[self._wish.client_id])

    async def subscribe(self, pattern: str, qos: int) -> None:
        self._patterns[self._wish.client_id] = (pattern, qos)
        command = ["stdbuf", "-oL", "mosquitto_sub", *self._where, "-i", self._wish.client_id, "-d"]  # line by line
        command += ["-t", pattern, "-q", str(qos), "-F", _FORM]
        if not self._wish.clean:
            command.append("-c")
        if self._wish.will is not None:
            name, payload = self._wish.will
            command += ["--will-topic", name, "--will-payload", payload.decode(), "--will-qos", "1"]
        self._listening = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
        _STARTED.append(self._listening)
        while not (line := await self._line()).startswith("Subscribed"):
            self._note(line)  # what waited for its session may come first

    async def _line(self) -> str:
        assert self._listening is not None
        assert self._listening.stdout is not None
        line = await self._listening.stdout.readline()
        assert line, "mosquitto_sub ended"
        return line.decode().rstrip("\n")

    async def publish(self, name: str, payload: bytes, qos: int, *, retain: bool = False) -> None:
        command = ["mosquitto_pub", *self._where, "-t", name, "-q", str(qos)]
        command += ["-m", payload.decode()] if payload else ["-n"]
        ended = await asyncio.create_subprocess_exec(*command, *(["-r"] if retain else []))
        assert await ended.wait() == 0, "mosquitto_pub failed"

    async def next(self) -> Message:
        while not self._came:
            self._note(await self._line())
        return self._came.popleft()

    def _note(self, line: str) -> None:
        match line.split(" ", 4):
            case ["came", name, qos, retained, payload]:
                self._came.append(Message(name, payload.encode(), int(qos), retained == "1"))

    async def close(self) -> None:
        await self._end(signal.SIGTERM)

    async def die(self) -> None:
        await self._end(signal.SIGKILL)

    async def _end(self, number: signal.Signals) -> None:
        if self._listening is not None:
            self._listening.send_signal(number)
            await self._listening.communicate()


_PATTERNS: dict[str, tuple[str, int]] = {}  # {client id: what it subscribed to last, with its QoS}
_STARTED: list[Process] = []


async def connect(wish: Wish) -> MosquittoConnection:
    connection = MosquittoConnection(wish, _PATTERNS)
    await connection.open()
    return connection


if __name__ == "__main__":
    try:
        run("mosquitto", connect, without=("WebSocket",))
    finally:
        for process in _STARTED:  # those of a check that failed
            if process.returncode is None:
                os.kill(process.pid, signal.SIGKILL)
